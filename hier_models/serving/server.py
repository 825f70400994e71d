"""Summaries over HTTP: what may be asked, who may ask, and how much."""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException, Request, Response, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import ClientDisconnect

from ..data.document_files import INSTEAD, decoded, read_document
from ..data.record_readers import DATA_SUFFIXES, DOCUMENT_SUFFIXES, KINDS, TEXT_SUFFIXES
from ..inspection.pages import page
from ..models.summary_lengths import LENGTHS
from ..pipelines.document_pipeline_hier import highlights
from .batching import BESIDES, Batcher, Job, RefusedError, shows


logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "HIER_MODELS_TOKEN"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
OPEN = ("/", "/health", "/openapi.json")  # ask for no token: they tell nothing of documents
STILL_HERE = 5.0  # seconds of silence after which a stream says that it lasts
REST, SILENCE = 30.0, 2.0  # seconds that what is sent after its answer is waited for: in all, and without a byte

Event = tuple[str, dict[str, Any]]
Events = asyncio.Queue[Event]
Turn = Annotated[dict[Literal["role", "content"], str], Field(min_length=2)]
Page = Annotated[dict[Literal["start", "page"], Annotated[int, Field(ge=0)]], Field(min_length=2)]
Phrase = str | tuple[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]


class Asked(BaseModel):
    """A document, as exactly one of `text`, `sentences`, `turns` and `documents`, and what is wanted of it."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(None, description="The document. Never a path or an address: it is read as it stands.")
    sentences: list[str] | None = Field(None, description="The document, cut into its sentences.")
    turns: list[Turn] | None = Field(None, description="A dialogue: role and content of each turn.")
    documents: list[str] | None = Field(None, description="Several articles, to summarize together.")
    page_starts: list[Page] | None = Field(
        None, description="From which character of `text` on it stands on which page, for `sources`."
    )
    query: str | None = Field(None, description="What the summary is to answer, or be about.")
    length: Literal["line", "short", "long"] | None = Field(None, description="For models that know lengths.")
    sources: bool = Field(False, description="Say on which sentences of the document each of the summary rests.")
    faithful: bool | None = Field(None, description="Numbers, names, rare words only if the document has them.")
    phrases: list[Phrase] | None = Field(None, description="What to highlight, for models that know phrases.")
    heatmap: bool = Field(False, description="Add a page (HTML) of where the model looked, if it can tell.")

    @model_validator(mode="after")
    def _one_document(self) -> Asked:
        given = [value for kind in KINDS if (value := getattr(self, kind)) is not None]
        if len(given) != 1:
            raise ValueError(f"give the document as exactly one of {', '.join(KINDS)}")
        parts = [given[0]] if isinstance(given[0], str) else given[0]
        if not any(str(part["content"] if isinstance(part, dict) else part).strip() for part in parts):
            raise ValueError("the document is empty; there is nothing to summarize")
        if self.page_starts and self.text is None:
            raise ValueError("page_starts goes with `text`, whose characters it counts; leave it out")
        return self

    def job(self, **others: Any) -> Job:
        """Make it a job of the batcher's."""
        names = (*KINDS, *BESIDES)
        document = {name: value for name in names if (value := getattr(self, name)) is not None}
        settings = {"return_truncation": True, "length": self.length, "faithful": self.faithful}
        settings["return_sources"] = self.sources or None
        return Job(
            document,
            {name: value for name, value in settings.items() if value is not None},
            heatmap=self.heatmap,
            **others,
        )


class Place(BaseModel):
    """A sentence of the document that a sentence of the summary rests on."""

    text: str
    start: int = Field(description="Where it begins in `document`, in characters.")
    end: int
    weight: float = Field(description="The weights of a sentence's places add up to 1.")
    page: int | None = Field(None, description="Of a document with pages.")


class Sentence(BaseModel):
    """A sentence of the summary."""

    text: str
    start: int = Field(description="Where it begins in `summary`, in characters.")
    end: int
    sources: list[Place]


class Summary(BaseModel):
    """The answer; what was not asked for is not there. What a model counts beside has a place too."""

    model_config = ConfigDict(extra="allow")

    summary: str
    num_truncated_tokens: int = Field(description="Tokens of the document that were cut at its end.")
    num_omitted_tokens: int | None = Field(
        None, description="Tokens of the document that were left out of what is read."
    )
    sources: list[Sentence] | None = None
    document: str | None = Field(None, description="With `sources`: the text that they stand in.")
    heatmap: str | None = None


class Problem(BaseModel):
    """What went wrong, and what to do."""

    detail: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The form cannot be taken apart.",
        401: "The token is missing or wrong.",
        403: "The request comes from a page of another site.",
        408: "The request came too slowly.",
        413: "The request is too large.",
        415: "The request is neither JSON nor a form.",
        422: "The request cannot be understood, or the model cannot do it.",
        429: "Too many documents wait; Retry-After says when to try again.",
        500: "The model failed.",
        503: "It took too long, or the server is about to stop; Retry-After says when to try again.",
    }.items()
}


@dataclass(frozen=True)
class Limits:
    """How much a server takes on."""

    batch_size: int = 8  # documents
    batch_wait: float = 10  # milliseconds
    queue: int = 64  # documents
    timeout: float = 120  # seconds
    max_bytes: int = 2**23


def token_of_server() -> str:
    """The token that everybody has to send, or "" for none; one from a file may end with a line break."""
    return os.environ.get(TOKEN_VARIABLE, "").strip()


def create_app(pipe: Any, name: str, limits: Limits, only_local: bool) -> FastAPI:
    """Make the application of a summarization pipeline.

    Args:
        pipe: the pipeline.
        name: what its model is called.
        limits: how much it takes on.
        only_local: whether it is for this machine: without a token, it then answers to no other name of it.

    Returns:
        An ASGI application; its `state.batcher` does the work.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    answers = Counter("hier_models_requests", "Requests.", ["path", "status"], registry=registry)
    sizes = Histogram("hier_models_batch_size", "Documents of a batch.", buckets=range(1, 65), registry=registry)
    seconds = Histogram("hier_models_batch_seconds", "Seconds that a batch took.", registry=registry)
    waits = Histogram("hier_models_request_seconds", "Seconds from a document to its summary.", registry=registry)

    def observe(size: int, taken: float) -> None:
        sizes.observe(size)
        seconds.observe(taken)

    batcher = Batcher(pipe, limits.batch_size, limits.batch_wait / 1000, limits.queue, observe)
    Gauge("hier_models_waiting", "Documents that wait.", registry=registry).set_function(lambda: len(batcher.waiting))
    token = token_of_server()
    knows_lengths = bool(pipe._knows_lengths())
    knows_phrases = highlights(pipe.processor)
    index = page(
        "serving/page.html", "Summarize a document", model=name, lengths=list(LENGTHS) if knows_lengths else [],
        phrases=knows_phrases, shows=shows(pipe), token=bool(token), most=limits.max_bytes,
    )  # fmt: skip

    # Only described here: `_Gate` looks at it, before a body is read.
    guarded = [Depends(HTTPBearer(auto_error=False))] if token else []
    app = FastAPI(
        title="hier_models",
        description="Summaries of long documents.",
        docs_url=None,  # its page would be loaded from elsewhere
        redoc_url=None,
    )
    app.state.batcher = batcher
    app.add_middleware(_Gate, token=token, only_local=only_local, limits=limits, count=answers)
    app.add_exception_handler(Exception, _failure)
    app.add_exception_handler(404, _elsewhere)
    app.add_exception_handler(405, _elsewhere)

    @app.head("/", include_in_schema=False)
    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def start_page() -> HTMLResponse:
        return HTMLResponse(index, headers={"Content-Security-Policy": "frame-ancestors 'none'"})

    @app.head("/health", include_in_schema=False)
    @app.get("/health", responses={503: PROBLEMS[503]})
    async def health() -> dict[str, Any]:
        """Whether it takes documents."""
        if batcher.stopping:
            raise HTTPException(503, "The server is about to stop.", {"Retry-After": "5"})
        return {"status": "ok", "model": name, "waiting": len(batcher.waiting)}

    @app.get("/metrics", dependencies=guarded, responses={200: {"content": {"text/plain": {}}}, 401: PROBLEMS[401]})
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    def begin(asked: Asked, shows: bool) -> tuple[Job, Events, int]:
        """Let a document wait; what becomes of it comes through a queue."""
        kind = type(pipe.model).__name__
        if asked.length is not None and not knows_lengths:
            raise HTTPException(422, f"length: {kind} was not trained with lengths; leave it out.")
        if asked.phrases is not None and not knows_phrases:
            raise HTTPException(422, f"phrases: {kind} highlights nothing; leave it out.")
        loop, events = asyncio.get_running_loop(), Events()
        job = asked.job(tell=lambda *event: loop.call_soon_threadsafe(events.put_nowait, event), shows=shows)
        try:
            return job, events, batcher.submit(job)
        except RefusedError as error:
            headers = {"Retry-After": str(error.retry_after)}
            raise HTTPException(error.status, error.detail, headers) from None

    async def follow(job: Job, events: Events) -> AsyncGenerator[Event, None]:
        """What becomes of a document, at last "summary" or "error"; it is dropped when nobody looks any more."""
        end, last = job.arrived + limits.timeout, ""
        try:
            while last not in ("summary", "error"):
                left = end - time.monotonic()
                try:
                    last, data = await asyncio.wait_for(events.get(), min(left, STILL_HERE))
                except TimeoutError:
                    last, data = "silence", {}
                    if left <= STILL_HERE:
                        detail = f"There is no summary after {limits.timeout:g} s. Send a shorter document, or later."
                        last, data = "error", {"status": 503, "detail": detail}
                yield last, data
            if last == "summary":
                waits.observe(time.monotonic() - job.arrived)
        finally:
            batcher.abandon(job)

    document = Depends(functools.partial(_read, limits))
    body: dict[str, Any] = {"openapi_extra": {"requestBody": _body_schema()}, "responses": PROBLEMS}
    body["dependencies"] = guarded

    @app.post("/summarize", response_model=Summary, **body)
    async def summarize(request: Request, asked: Asked = document) -> Response:
        """Summarize a document: JSON, or a form with a text file."""
        job, events, _ = begin(asked, shows=False)
        leaving = asyncio.create_task(_leave(request, events))
        try:
            async with aclosing(follow(job, events)) as course:
                *_, (event, data) = [each async for each in course]
        finally:
            leaving.cancel()
        if event == "error":
            again = {"Retry-After": str(max(1, round(batcher.pace)))} if data["status"] == 503 else None
            raise HTTPException(data["status"], data["detail"], again)
        return JSONResponse(data)

    @app.post("/summarize/stream", response_class=StreamingResponse, **body)
    async def stream(asked: Asked = document) -> StreamingResponse:
        """The same as server-sent events: waiting, writing (the text so far), and then summary or error."""
        job, events, before = begin(asked, shows=True)

        async def lines() -> AsyncIterator[str]:
            yield _event("waiting", {"before": before})
            async with aclosing(follow(job, events)) as course:
                async for event, data in course:
                    yield ":\n\n" if event == "silence" else _event(event, data)

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # of proxies, which would hold it back
        return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)

    return app


async def _read(limits: Limits, request: Request) -> Asked:
    """What a request asks, of JSON or a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            return Asked.model_validate_json(await request.body())
        if kind == "multipart/form-data":
            return Asked.model_validate(await _form(request, limits))
    except ValidationError as error:
        raise HTTPException(422, _explained(error)) from None
    except ClientDisconnect:
        raise HTTPException(499, "The client is gone.") from None
    raise HTTPException(
        415, "Send JSON (Content-Type: application/json) or a form with a text file (curl -F file=@…)."
    )


async def _form(request: Request, limits: Limits) -> dict[str, Any]:
    async with request.form(max_files=1, max_fields=100, max_part_size=limits.max_bytes) as form:
        given = {name: form.getlist(name) for name in form}
        if twice := [name for name, values in given.items() if name != "phrases" and len(values) > 1]:
            raise HTTPException(422, f"{twice[0]}: sent more than once.")
        fields: dict[str, Any] = {name: values if name == "phrases" else values[0] for name, values in given.items()}
        file = fields.pop("file", None)
        if file is not None:
            if isinstance(file, str):
                raise HTTPException(422, "file: send the file itself, as curl -F file=@paper.txt does.")
            if "text" in fields:
                raise HTTPException(422, "file: send a text or a file, not both.")
            fields |= await _file(file, limits.timeout)
        return fields


async def _file(file: UploadFile, timeout: float) -> dict[str, Any]:
    """The document of a file, whose kind the end of its name tells; nothing else of the name counts."""
    suffix, content = Path(file.filename or "").suffix.lower(), await file.read()
    if suffix in DATA_SUFFIXES:
        detail = f"file: the records of a {suffix} file are documents of their own: send each in a request, as JSON."
        raise HTTPException(422, detail)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"document{suffix}")
        try:
            if suffix in INSTEAD:
                raise ValueError(f"a file that ends in {suffix} is not read; {INSTEAD[suffix]}")
            if suffix not in DOCUMENT_SUFFIXES or suffix in TEXT_SUFFIXES:
                return {"text": decoded(content, "it")}
            path.write_bytes(content)
            return (await asyncio.wait_for(run_in_threadpool(read_document, path, "it"), timeout)).row()
        except TimeoutError:
            detail = f"file: it was not read after {timeout:g} s. Send a shorter document, or its text."
            raise HTTPException(422, detail) from None
        except (ValueError, ImportError) as error:
            raise HTTPException(422, f"file: {error}") from None


def _explained(error: ValidationError) -> str:
    """The first few mistakes of a request, in one line."""
    mistakes = []
    for each in error.errors(include_url=False, include_context=False, include_input=False)[:3]:
        place = ".".join(str(part) for part in each["loc"])
        if each["type"] == "extra_forbidden":
            each["msg"] = f"there is no such field; there are {', '.join(Asked.model_fields)}"
        mistakes.append(f"{place}: {each['msg']}" if place else each["msg"].removeprefix("Value error, "))
    return "; ".join(mistakes)


def _body_schema() -> dict[str, Any]:
    schema = Asked.model_json_schema()
    text = {
        name: value
        for name, value in schema["properties"].items()
        if name not in ("sentences", "turns", "documents", "page_starts")
    }
    file = {"type": "string", "format": "binary", "description": "A text, PDF, Word, HTML, Markdown or subtitle file."}
    form = {**schema, "properties": {**text, "phrases": {"type": "array", "items": {"type": "string"}}, "file": file}}
    # A pydantic model's schema has no word for that exactly one of them is given, and what is null is not given.
    one = {kind: {"required": [kind], "properties": {kind: {"not": {"type": "null"}}}} for kind in (*KINDS, "file")}
    bodies = {
        "application/json": {**schema, "oneOf": [one[kind] for kind in KINDS]},
        "multipart/form-data": {**form, "oneOf": [one["text"], one["file"]]},
    }
    return {"required": True, "content": {kind: {"schema": body} for kind, body in bodies.items()}}


async def _leave(request: Request, events: Events) -> None:
    """Wait until the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    events.put_nowait(("error", {"status": 499, "detail": "The client is gone."}))


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def _elsewhere(request: Request, error: Any) -> JSONResponse:
    """Nothing is there, or nothing that is asked so."""
    there = "POST /summarize and /summarize/stream; GET /, /health, /metrics and /openapi.json"
    return JSONResponse({"detail": f"{error.detail}; there are {there}."}, error.status_code, error.headers)


async def _failure(request: Request, error: Exception) -> JSONResponse:
    """Nothing of an error goes outside, but into the log."""
    logger.error("A request failed.", exc_info=error)
    return JSONResponse({"detail": "The server failed; its log says why."}, 500)


class _Gate:
    """Who may ask, and how much and how slowly may be sent; counts the answers."""

    def __init__(self, app: Any, token: str, only_local: bool, limits: Limits, count: Counter) -> None:
        self.app, self.limits, self.count = app, limits, count
        self.token, self.only_local = token.encode(), only_local and not token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, size = time.monotonic(), 0

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other")
                self.count.labels(route, message["status"]).inc()
            elif message["type"] == "http.response.body" and size >= 0 and not message.get("more_body"):
                # To close the connection while the client still sends may cost it the answer.
                await send({**message, "more_body": True})
                await rest()
                message = {**message, "body": b""}
            await send(message)

        async def rest() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(REST):
                    while (await asyncio.wait_for(receive(), SILENCE)).get("more_body"):
                        pass

        async def limited() -> Any:
            nonlocal size
            if size < 0:  # the body is over; what may come is that the client leaves
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), begun + self.limits.timeout - time.monotonic())
            except TimeoutError:
                raise HTTPException(408, f"The request did not come within {self.limits.timeout:g} s.") from None
            size += len(message.get("body", b""))
            if size > self.limits.max_bytes:
                raise self._too_large()
            size = size if message.get("more_body") else -1
            return message

        headers = dict(scope["headers"])
        try:
            self._check(scope["path"], headers)
        except HTTPException as error:
            response = JSONResponse({"detail": error.detail}, error.status_code, error.headers)
            await response(scope, receive, counted)
            return
        await self.app(scope, limited, counted)

    def _check(self, path: str, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        origin = headers.get(b"origin", b"").decode("latin-1").lower().rpartition("://")[2]
        # A page of another site, open in a browser of this machine, must not use it: nor under a name of its own, nor
        # a file or a frame without a site, whose origin is "null".
        if origin and origin != host:
            raise HTTPException(403, f"A page of {origin} may not use this server.")
        if self.only_local and re.sub(r"\.?(:\d+)?$", "", host) not in LOOPBACK:
            where = f"This server is for its own machine, not for {host:.100}"
            raise HTTPException(403, f"{where}. Start it with --host, or with a token in {TOKEN_VARIABLE}.")
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        is_right = scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self.token)
        if self.token and path not in OPEN and not is_right:
            detail = "The token is missing or wrong: send Authorization: Bearer and the server's token."
            raise HTTPException(401, detail, {"WWW-Authenticate": "Bearer"})
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.limits.max_bytes:
            raise self._too_large()

    def _too_large(self) -> HTTPException:
        most = f"{self.limits.max_bytes:,} bytes; send less, or start the server with a higher --max-bytes."
        return HTTPException(413, f"The request is larger than {most}")
