"""`hier-models serve`, as its users meet it: a process, and requests."""

import asyncio
import gzip
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import HTTPException
from transformers import pipeline

from hier_models.data.document_files import FileDocument
from hier_models.serving import server as app_of_server
from tests.cli.commands import mistake
from tests.conftest import DOCUMENTS, TURNS
from tests.data.pdf_files import column, write_pdf
from tests.serving.servers import Running, Visitors, events, head, serving


NODE = shutil.which("node")


@pytest.fixture(scope="module")
def summarize(model: str) -> Any:
    return pipeline("summarization", model=model, device="cpu")


def test_every_kind_of_document(server: Running, summarize):
    for document in (
        {"text": DOCUMENTS[0]},
        {"sentences": ["One.", "Two, or more.", "Three."]},
        {"turns": TURNS},
        {"documents": DOCUMENTS[1:3]},
    ):
        [expected] = summarize(document, return_truncation=True, return_sources=True)
        got = server.ask(**document, sources=True).json()
        assert got["summary"] == expected["summary_text"].strip()
        assert got["num_truncated_tokens"] == expected["num_truncated_tokens"]
        for ours, theirs in zip(got["sources"], expected["sources"], strict=True):
            assert got["summary"][ours["start"] : ours["end"]] == ours["text"] == theirs["text"]
            assert ours["sources"] == theirs["sources"]
            for place in ours["sources"]:
                assert got["document"][place["start"] : place["end"]] == place["text"]
        assert not {"sources", "document", "heatmap"} & set(server.ask(**document).json())


def test_a_long_document_is_condensed(server: Running, summarize):
    long = " ".join(DOCUMENTS * 3)
    [expected] = summarize(long, return_truncation=True)
    got = server.ask(text=long, heatmap=True).json()
    assert got.pop("heatmap").startswith("<!")
    assert got["num_omitted_tokens"] > 0
    assert got == {
        "summary": expected["summary_text"].strip(),
        **{k: v for k, v in expected.items() if k != "summary_text"},
    }


def test_queries(server: Running, summarize, tmp_path: Path):
    long = " ".join(f"Bee number {number} flies." for number in range(60))
    expected = [summarize(long, query=f"Which is number {n}?")[0]["summary_text"].strip() for n in (7, 50)]
    got = [server.ask(text=long, query=f"Which is number {n}?").json()["summary"] for n in (7, 50)]
    assert got == expected
    assert got[0] != got[1]
    path = tmp_path / "bees.txt"
    path.write_text(long)
    with server.client() as client, path.open("rb") as file:
        form = client.post("/summarize", files={"file": file}, data={"query": "Which is number 50?"})
    assert form.json()["summary"] == expected[1]
    refused = server.ask(text=long, query=" ")
    assert refused.status_code == 422
    assert "`query` must be a question" in refused.json()["detail"]


def test_a_file_is_uploaded(server: Running, tmp_path: Path):
    expected = server.ask(text=DOCUMENTS[1], sources=True).json()
    path = tmp_path / "paper.txt"
    path.write_text(DOCUMENTS[1], encoding="utf-8-sig")
    with server.client() as client:
        with path.open("rb") as file:
            got = client.post("/summarize", files={"file": file}, data={"sources": "true"})
        assert got.json() == expected
        wrong = {
            "file: it ": {"files": {"file": ("paper.pdf", b"%PDF-1.4 \xff\xfe")}},
            "send the file itself": {"files": {"other": ("", "")}, "data": {"file": str(path)}},
            "a text or a file, not both": {"files": {"file": ("a.txt", b"One.")}, "data": {"text": "Two."}},
            "documents: ": {"files": {"file": ("a.txt", b"One.")}, "data": {"documents": "Two."}},
            "empty": {"files": {"file": ("a.txt", b" \n")}},
            "sources": {"files": {"file": ("a.txt", b"One.")}, "data": {"sources": "perhaps"}},
            "is not read; save it as .docx or .pdf": {"files": {"file": ("a.rtf", b"{\\rtf1 One.}")}},
            "read it as a book": {"files": {"file": ("a.EPUB", b"One.")}},
            "compressed file; unpack it": {"files": {"file": ("a.txt.gz", gzip.compress(b"One."))}},
            "send each in a request": {"files": {"file": ("a.JSONL", b'{"text": "One."}')}},
        }
        for says, request in wrong.items():
            answer = client.post("/summarize", **request)
            assert answer.status_code == 422, answer.text
            assert says in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_a_client_that_goes_while_it_sends(kind: str):
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind.encode())]}
    with pytest.raises(HTTPException) as raised:
        asyncio.run(app_of_server._read(app_of_server.Limits(), app_of_server.Request(scope, gone)))
    assert raised.value.status_code == 499


def test_a_file_that_takes_too_long_to_read(monkeypatch: pytest.MonkeyPatch):
    end = threading.Event()

    def read(path: Path, name: str) -> FileDocument:
        end.wait(10)
        return FileDocument()

    monkeypatch.setattr(app_of_server, "read_document", read)
    pipe = SimpleNamespace(_knows_lengths=lambda: False, processor=None, model=SimpleNamespace(config=None))
    app = app_of_server.create_app(pipe, "tiny", app_of_server.Limits(timeout=1), only_local=True)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            try:
                return await client.post("/summarize", files={"file": ("a.html", b"<p>One.")})
            finally:
                end.set()

    answer = asyncio.run(ask())
    assert answer.status_code == 422  # and not to be sent again
    assert "file: it was not read after 1 s" in answer.json()["detail"]


def test_sources_of_a_pdf_name_the_page(server: Running, tmp_path: Path):
    texts = {
        1: ["Bees fly home to the hive.", "They rest."],
        2: ["Rain falls on the roof.", "Nobody flies, says page two."],
    }
    pages = [column(lines, y=500, step=40) for lines in texts.values()]
    path = write_pdf(tmp_path / "bees.pdf", pages)
    with server.client() as client, path.open("rb") as file:
        got = client.post("/summarize", files={"file": ("../bees.PDF", file)}, data={"sources": "true"}).json()
    places = [place for sentence in got["sources"] for place in sentence["sources"]]
    assert {place["page"] for place in places} <= {1, 2} != set()
    assert all(got["document"][place["start"] : place["end"]] == place["text"] for place in places)
    assert all(place["text"] in texts[place["page"]] for place in places)


def test_pages_may_come_in_any_order(server: Running):
    starts = [{"start": 0, "page": 1}, {"start": 20, "page": 2}, {"start": 90, "page": 3}]
    answers = [server.ask(text=DOCUMENTS[1], sources=True, page_starts=each).json() for each in (starts, starts[::-1])]
    assert answers[0] == answers[1]
    pages = {place["page"] for sentence in answers[0]["sources"] for place in sentence["sources"]}
    assert pages & {2, 3}


def test_a_path_or_address_is_text(server: Running, summarize, tmp_path: Path):
    secret = tmp_path / "secret.txt"
    secret.write_text(DOCUMENTS[0])
    for text in (str(secret), f"file://{secret}", f"{server.url}/health"):
        assert server.ask(text=text).json()["summary"] == summarize(text)[0]["summary_text"].strip()


def test_stream(server: Running, answers: dict[str, str]):
    text, summary = next(iter(answers.items()))
    answer = server.ask("/summarize/stream", text=text)
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = events(answer.text)
    assert found[0] == ("waiting", {"before": 0})
    assert found[-1][0] == "summary"
    assert found[-1][1]["summary"] == summary
    assert [name for name, _ in found].count("summary") == 1
    refused = server.ask("/summarize/stream", text="")
    assert refused.status_code == 422


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "Invalid JSON"),
        (b"{", "Invalid JSON"),
        (b"[1]", "object"),
        (b"{}", "exactly one of text, sentences, turns, documents"),
        (b'{"text": "a", "turns": []}', "exactly one of"),
        (b'{"text": " "}', "empty"),
        (b'{"sentences": []}', "empty"),
        (b'{"turns": [{"role": "Ann", "content": ""}]}', "empty"),
        (b'{"turns": [{"role": "Ann"}]}', "turns.0"),
        (b'{"text": 5}', "text: "),
        (b'{"text": "a", "page_starts": [{"start": 0}]}', "page_starts.0: "),
        (b'{"text": "a", "page_starts": [{"start": -5, "page": 1}]}', "page_starts.0.start: "),
        (b'{"sentences": ["a"], "page_starts": [{"start": 0, "page": 1}]}', "page_starts goes with `text`"),
        (b'{"text": "\\ud800"}', "Invalid JSON"),
        (b'{"text": "\xff"}', "Invalid JSON"),
        (b'{"text": "a", "words": "line"}', "words: there is no such field; there are text, sentences, turns,"),
        (b'{"text": "a", "length": "tiny"}', "'line', 'short' or 'long'"),
        (b'{"text": "a", "length": "line"}', "length: HatBartForConditionalGeneration was not trained with lengths"),
        (b'{"text": "a", "phrases": ["a"]}', "phrases: HatBartForConditionalGeneration highlights nothing"),
        (b"[" * 100_000, "Invalid JSON"),
    ],
)
def test_mistakes_say_what_to_do(server: Running, content: bytes, says: str):
    for path in ("/summarize", "/summarize/stream"):
        with server.client() as client:
            answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, answer.text
        assert says in answer.json()["detail"]
        assert "Traceback" not in answer.text


def test_other_mistakes(server: Running):
    with server.client() as client:
        for path, status in (("/summarize", 405), ("/no-such-page", 404)):
            answer = client.get(path)
            assert answer.status_code == status
            assert "there are POST /summarize and" in answer.json()["detail"]
        assert answer.headers["content-type"] == "application/json"
        assert client.head("/").status_code == client.head("/health").status_code == 200
        assert client.post("/summarize", content=b"text").status_code == 415
        broken = client.post("/summarize", content=b"text", headers={"Content-Type": "multipart/form-data"})
        assert (broken.status_code, broken.json()) == (400, {"detail": "Missing boundary in multipart."})
        twice = client.post("/summarize", files=[("text", (None, "One.")), ("text", (None, "Two."))])
        assert (twice.status_code, twice.json()["detail"]) == (422, "text: sent more than once.")
        large = client.post("/summarize", json={"text": "z" * 10**7})  # a word
        assert large.status_code == 413
        assert "8,388,608 bytes" in large.json()["detail"]
        pieces = client.post(
            "/summarize",
            content=iter([b'{"text": "'] + [b"a" * 2**20] * 9),
            headers={"Content-Type": "application/json"},
        )
        assert pieces.status_code == 413
        # One that sends all before it looks for an answer, as urllib does.
        for path, size, status in (("/summarize", 10**7, 413), ("/no-such-page", 8 * 10**6, 404)):
            answer = server.send_whole(path, b"z" * size)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        for headers, says in (
            ({"Host": "evil.example"}, "not for evil.example"),
            ({"Host": "127.0.0.1.evil.example:80"}, "not for"),
            ({"Origin": "https://evil.example"}, "A page of evil.example may not"),
            ({"Origin": "null"}, "A page of null may not"),  # of a file, or of a frame in a sandbox
        ):
            answer = client.post("/summarize", json={"text": "One."}, headers=headers)
            assert answer.status_code == 403
            assert says in answer.json()["detail"]
        for own in ({"Origin": server.url}, {"Host": f"LocalHost.:{server.port}"}):  # case does not count in a name
            assert client.post("/summarize", json={"text": "One."}, headers=own).status_code == 200


def test_the_page_sets_what_its_scripts_read(server: Running):
    """Such as the page of a PDF, before each sentence of the list of sources."""
    with server.client() as client:
        page = client.get("/").text
    read = set(re.findall(r"\bdataset\.(\w+)", page))
    assert {"sources", "page"} <= read == set(re.findall(r"\bdataset\.(\w+) = ", page))


@pytest.mark.skipif(NODE is None, reason="no node")
@pytest.mark.parametrize("knows_phrases", [True, False])
def test_the_page_sends_what_stands_in_a_record(server: Running, knows_phrases: bool):
    with server.client() as client:
        code = re.search(r"  const KINDS = .*?\n  }\n", client.get("/").text, re.DOTALL)[0]
    besides = {"query": "What?", "phrases": ["bees"], "page_starts": [{"start": 0, "page": 7}]}
    records = [{"article": "One.", "id": 5, **besides}, {"document": ["One."], **besides, "query": " "}]
    script = f"const find = () => {json.dumps(knows_phrases)};{code}"
    script += f"console.log(JSON.stringify({json.dumps(records)}.map(documentOf)))"
    found = subprocess.run([NODE, "-e", script], capture_output=True, text=True, check=True)
    phrases = {"phrases": ["bees"]} if knows_phrases else {}
    asked = {"text": "One.", "query": "What?", "page_starts": besides["page_starts"], **phrases}
    assert json.loads(found.stdout) == [asked, {"documents": ["One."], **phrases}]


def test_token(model: str):
    with serving(model, HIER_MODELS_TOKEN=" s3cret\n") as server, server.client() as client:
        assert client.get("/").status_code == client.get("/health").status_code == 200
        assert str(Path(model).parent) not in client.get("/").text + client.get("/health").text
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "s3cret"}):
            for path in ("/summarize", "/summarize/stream", "/metrics", "/elsewhere"):
                answer = client.post(path, json={"text": "One."}, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        described = client.get("/openapi.json").json()
        assert described["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}
        asks = {(path, "security" in each) for path, kinds in described["paths"].items() for each in kinds.values()}
        assert asks == {("/health", False), ("/metrics", True), ("/summarize", True), ("/summarize/stream", True)}
        good = {"Authorization": "Bearer s3cret", "Host": "summaries.example"}
        assert client.post("/summarize", json={"text": "One."}, headers=good).status_code == 200
        for scheme in ("Bearer", "bearer"):
            assert client.get("/metrics", headers={"Authorization": f"{scheme} s3cret"}).status_code == 200


def test_limits_of_queue_and_time(model: str):
    options = ("--queue", "1", "--batch-wait", "60000", "--timeout", "3", "--max-bytes", "2000")
    with serving(model, *options) as server:
        assert server.ask(text="a" * 2000).status_code == 413
        slow: list[bytes] = []
        long = json.dumps({"text": "Four." * 300}).encode()
        visitors = Visitors(1, lambda _: slow.append(server.send_slowly(long, pause=0.5)))
        # It waits for others, who do not come.
        late = server.ask("/summarize", text="One.")
        assert late.status_code == 503
        assert late.headers["Retry-After"] == "1"
        assert "no summary after 3 s" in late.json()["detail"]
        stream = events(server.ask("/summarize/stream", text="One.").text)
        assert stream[-1] == ("error", {"status": 503, "detail": late.json()["detail"]})
        # One that is gone leaves its place to others.
        for path in ("/summarize", "/summarize/stream"):
            body = json.dumps({"text": "Two."}).encode()
            with socket.create_connection(("127.0.0.1", server.port)) as waiting:
                waiting.sendall(head(path, len(body)) + body)
                until(lambda: server.metric("hier_models_waiting") == 1)
                full = server.ask(text="Three.")
                assert full.status_code == 429
                assert int(full.headers["Retry-After"]) >= 1
                assert "as many as may" in full.json()["detail"]
            until(lambda: server.metric("hier_models_waiting") == 0)
        visitors.finish(60)
        assert slow[0].startswith(b"HTTP/1.1 408 ")
        assert server.metric("hier_models_batch_size_count") == 0  # nothing was written for nobody


def until(condition: Any, timeout: float = 60) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_stops_when_what_waits_is_done(model: str, answers: dict[str, str]):
    (one, expected), *_ = answers.items()
    with serving(model, "--batch-wait", "3000") as server:
        got: list[httpx.Response] = []
        visitors = Visitors(3, lambda _: got.append(server.ask(text=one)))
        until(lambda: server.metric("hier_models_waiting") == 3)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.client().get("/health").status_code == 503)
        for refused in (server.ask(text=one), server.client().get("/health")):
            assert refused.status_code == 503
            assert int(refused.headers["Retry-After"]) >= 1
        visitors.finish(60)
        assert [answer.json()["summary"] for answer in got] == [expected] * 3
        assert server.process.wait() == 0
        assert "Traceback" not in server.process.stderr


def test_killed_and_started_again(model: str, answers: dict[str, str]):
    (one, expected), *_ = answers.items()
    with serving(model, "--batch-wait", "60000") as server:
        lost: list[httpx.HTTPError] = []

        def visit(_: int) -> None:
            try:
                server.ask(text=one)
            except httpx.HTTPError as error:
                lost.append(error)

        visitors = Visitors(4, visit)
        until(lambda: server.metric("hier_models_waiting") == 4)
        server.process.send_signal(9)
        visitors.finish(60)
        assert len(lost) == 4
        server.process.wait()
        with serving(model, port=server.port) as again:
            assert again.port == server.port
            assert again.ask(text=one).json()["summary"] == expected


@pytest.mark.parametrize(
    ("clients", "requests"), [(8, 100), pytest.param(64, 2500, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_crowd(model: str, answers: dict[str, str], clients: int, requests: int):
    """Good and bad, slow and gone, all at once: everybody gets their own answer, once."""
    texts = list(answers)
    memory: list[int] = []
    with serving(model, "--queue", str(clients // 2)) as server:

        def visit(number: int) -> None:
            with server.client() as client:
                for turn in range(requests // clients + 1):
                    place = number * 31 + turn
                    come(client, place % 20, texts[place % len(texts)])
                    if number == 0 and turn % 5 == 0:
                        memory.append(server.memory())

        def come(client: httpx.Client, kind: int, text: str) -> None:
            body = json.dumps({"text": text}).encode()
            if kind == 0:
                server.send_and_leave(body)
            elif kind == 1:
                received = server.send_slowly(body, 0.01)
                assert received.count(b"HTTP/1.1") == 1
                if b" 429 " not in received[:20]:
                    assert json.loads(received.partition(b"\r\n\r\n")[2])["summary"] == answers[text]
            elif kind == 2:
                bad = client.post("/summarize", content=body[:-1], headers={"Content-Type": "application/json"})
                assert bad.status_code == 422
            elif kind == 3:
                server.send_and_leave(body, "/summarize/stream")
            elif kind == 4:
                found = events(persist(client, "/summarize/stream", text).text)
                assert [name for name, _ in found if name in ("summary", "error")] == ["summary"]
                assert found[-1][1]["summary"] == answers[text]
            else:
                assert persist(client, "/summarize", text).json()["summary"] == answers[text]

        Visitors(clients, visit).finish(1500)
        until(lambda: server.metric("hier_models_waiting") == 0)  # those who left last are noticed a little later
        # Documents came together.
        assert server.metric("hier_models_batch_size_sum") > 1.5 * server.metric("hier_models_batch_size_count")
        assert server.metric("hier_models_requests_total") >= 0.8 * requests
        if requests > 1000:
            settled = memory[len(memory) // 4 :]
            assert max(settled) < 1.1 * settled[0], [size >> 20 for size in memory]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 0
        assert "Traceback" not in server.process.stderr


def persist(client: httpx.Client, path: str, text: str) -> httpx.Response:
    """Ask until the queue has a place."""
    while (answer := client.post(path, json={"text": text})).status_code == 429:
        assert int(answer.headers["Retry-After"]) >= 1
        time.sleep(0.05)
    assert answer.status_code == 200, answer.text
    return answer


def test_mistakes_at_the_start(model: str, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        mistake("serve", "-m", model, "--port", port, says=f"--port {port} (0 takes a free one): ")
    mistake("serve", "-m", model, "--host", "ä..b", "--port", "0", says="--host ä..b --port 0 (0 takes a free one): ")
    mistake("serve", "-m", "lexrank", says="chooses sentences")
    mistake("serve", "-m", "./nowhere", "--port", "0", says="there is no folder")
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    mistake("serve", says='pip install "hier_models[serve]"')
