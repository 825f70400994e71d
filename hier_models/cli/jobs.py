"""Jobs from documents to texts, one or many, that can be interrupted and continued."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..cores import on_cores
from ..data.record_readers import COMPRESSION_SUFFIXES, KINDS
from ..journal import Journal, digest
from ..locks import held
from .documents import PHRASES, QUERY, Documents, open_documents, say_left_out
from .errors import MistakeError, check_not_the_data, check_parent, local_path, mistakes, say, state
from .loading import check_checkpoint, check_highlights, given_only, load_pipeline, making_of
from .options import Dtype
from .ray_cluster import LOCK, absolute, check_folder, cluster, make_on_ray


_IN_A_NUMBER = re.compile(r"\d[.,:/–-]\d")
EMPTY = "is_empty"  # counted beside what the pipeline counts
# Id and digest of a document, and what the pipeline returns for it.
Result = tuple[str, str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Kind:
    """What a job makes of documents."""

    task: str  # the pipeline's
    product: str  # what one text is called, in records and messages
    products: str
    label: str  # stands before the progress bar
    counting: str | None = None  # option of the pipeline that makes it count what is worth knowing


SUMMARIES = Kind("summarization", "summary", "summaries", "Summarizing", "return_truncation")
TRANSLATIONS = Kind("translation", "translation", "translations", "Translating", "return_chunks")
POEMS = Kind("poem-generation", "poem", "poems", "Writing")


def output_path(output: str | None, *, is_folder: bool) -> Path | None:
    """Refuse a folder, or what a slash at its end says is one, where a file is written."""
    if output is None:
        return None
    path = Path(output)
    if not is_folder and (path.is_dir() or output.endswith(("/", os.sep))):
        raise MistakeError(f"--output: {output} is a folder; give a file, such as {path / 'out.jsonl'}")
    return path


def run_job(
    kind: Kind,
    model: str,
    inputs: list[str] | None,
    *,
    settings: Callable[[], dict[str, Any]],  # of the pipeline's call, kept in each record; asked late, takes libraries
    output: Path | None,
    as_json: bool,
    batch_size: int | str,
    text_column: str | None,
    set_aside: Path | None,
    device: str | None,
    dtype: Dtype,
    importance_tagger: str | None = None,
    phrases_column: str | None = None,
    seed: int | None = None,
    ray: str | None = None,  # the address of a cluster
    check: Callable[[Any, Iterable[dict[str, Any]]], None],
) -> tuple[list[dict[str, int]], int, int]:
    """Make texts of documents and write them.

    Return what was counted for each, also before, their number, and how many have a query of their own.
    """
    lines = writes_lines(output, ray)
    if ray is not None:
        check_folder(output)
        if seed is not None:
            raise MistakeError("--seed: with --ray nothing is drawn in an order of its own; leave out one of the two")
    if output is not None and output.suffix.lower() in COMPRESSION_SUFFIXES:
        raise MistakeError(f"--output: what is written is not compressed, so give a name without {output.suffix}")
    if output is not None and not lines:
        if as_json:
            raise MistakeError(f"--output: JSON objects, one a line, go to a file that ends in .jsonl, got {output}")
        if output.suffix.lower() == ".json":
            raise MistakeError(f"--output: got {output}; write JSON lines (.jsonl), which can be continued, or text")
        if output.exists():
            raise MistakeError(f"--output: {output} is there already; only .jsonl files are continued, so remove it")
    if output is not None:
        check_parent(output, "--output")
        for name in inputs or ():
            check_not_the_data(output, "--output", local_path(name))
    check_checkpoint(model)
    with ExitStack() as stack:
        documents = stack.enter_context(open_documents(inputs, text_column, set_aside, phrases_column))
        # A first look at everything, so that a bad record does not stop the job in its last hour.
        digests, queries = {}, 0
        for document in documents:
            name = document.pop("id")
            digests[name] = digest(document)
            queries += QUERY in document
        # Whoever reads them again would be told the same again.
        of_data = logging.getLogger("hier_models.data")
        stack.callback(of_data.setLevel, of_data.level)
        of_data.setLevel(logging.ERROR)
        also = given_only(importance_tagger=importance_tagger, phrases_column=phrases_column, seed=seed)
        asked = settings()
        if kind is not POEMS and asked.get("num_return_sequences", 1) != 1:
            raise MistakeError(f"--set num_return_sequences: one {kind.product} of a document is made; leave it out")
        if asked.get("return_sources") and len(digests) > 1 and not (as_json or lines):
            raise MistakeError("--sources: of many documents only JSON has a place for them; give --json or a .jsonl")
        making = making_of(model, asked | also, dtype, importance_tagger)
        done: dict[str, dict[str, Any]] = {}
        if output is not None:
            if lines:
                if ray is not None:
                    output.mkdir(exist_ok=True)
                stack.enter_context(alone(output if ray is None else output / LOCK))
            with mistakes("--output", ValueError):
                for file in [output] if ray is None else sorted(output.glob("part-*.jsonl")):
                    done |= Journal(file, kind.product, making).read(digests)
            done = {name: {**record, EMPTY: not record[kind.product]} for name, record in done.items()}
        rest = len(digests) - len(done)
        if done:
            going_on = "going on with the others" if rest else "nothing is left to do"
            say(f"{output} holds {len(done)} of {len(digests)} {kind.products}; {going_on}.")
        if not rest:
            _say_left_out(documents)
            return list(done.values()), len(digests), queries
        if ray is not None:
            stack.enter_context(cluster(ray))  # before anything slow
        # The machine that sends the documents out need not have an accelerator: there the model checks them only.
        pipe = load_pipeline(model, device if ray is None else "cpu", dtype, kind.task, importance_tagger)
        check_highlights(pipe, phrases_column)
        check(pipe, documents)
        if lines:
            state.when_interrupted = f"What is done is in {output}; the same command goes on from there."
        results: Generator[Result, None, None]
        if ray is None:
            left = (document for document in documents if document["id"] not in done)
            work = partial(make_texts, pipe, making=making, batch_size=batch_size, kind=kind, seed=seed)
            results = on_cores(pipe, work, left, total=rest, batch_size=batch_size)
        else:
            loading = (absolute(model), device, dtype, kind.task, importance_tagger and absolute(importance_tagger))
            load = partial(load_pipeline, *loading)
            on_gpus = None if device is None else device.startswith("cuda")
            results = make_on_ray(
                documents, set(done), rest, load, batch_size, on_gpus, settings_of_call(making, kind)
            )
        # Before the cluster is left, to which Ray would connect again, and the file, which processes would keep.
        stack.callback(results.close)
        counts = write_texts(results, total=rest, output=output, as_json=as_json or lines, making=making, kind=kind)
    _say_left_out(documents)
    return [*done.values(), *counts], len(digests), queries


def _say_left_out(documents: Documents) -> None:
    if documents.set_aside_count:
        say(f"{documents.set_aside_count} records could not be used; they are in {documents.set_aside}.")
    if dropped := documents.dropped_turns:
        say(f"{dropped} turn{'s' if dropped > 1 else ''} without words {'were' if dropped > 1 else 'was'} left out.")
    say_left_out(documents.left_out)


def check_all_sources(
    pipe: Any,
    documents: Iterable[dict[str, Any]],
    max_source_length: int | None = None,
    of_reading: Sequence[str] = (),  # options, of those that were given, that leave no choice to a query
) -> None:
    """Refuse what a model cannot read, before the first text is made, and not in the last hour of a job."""
    from ..pipelines.document_pipeline_hier import highlights

    segments, highlighting = getattr(pipe.processor, "num_segments", 0), highlights(pipe.processor)
    if not segments and not highlighting and not of_reading:
        return
    for document in documents:
        check_query(document, of_reading)
        has_roles, has_phrases = segments and "turns" in document, highlighting and document.get(PHRASES)
        if not has_roles and not has_phrases:
            continue
        from ..data.tokenizing import check_phrases, check_roles

        one = {name: [value] for name, value in document.items()}
        if has_roles:
            check_roles(one, segments)
        if has_phrases:
            kind = next(kind for kind in KINDS if kind in document)
            check_phrases(one, kind, pipe.processor, max_source_length or pipe._source_limit(None))


def check_query(document: dict[str, Any], of_reading: Sequence[str]) -> None:
    """Refuse options that leave no choice to a record's query."""
    for option in of_reading if QUERY in document else ():
        if option != "--phrases-column" or PHRASES in document:
            chosen = f"its column `{QUERY}` chooses what is read of it"
            raise MistakeError(f"{document['id']}: {chosen}; leave out {option}, or take the column away")


@contextmanager
def alone(output: Path) -> Iterator[None]:
    """Keep a file for one process, as two would both write everything; where the system has no such locks, hope."""
    output.open("ab").close()
    with held(output) as is_ours:
        if not is_ours:
            raise MistakeError(f"--output: another process is writing {output}; wait for it")
        try:
            yield
        finally:
            if output.is_file() and not output.stat().st_size:  # nothing came of it
                output.unlink()


def writes_lines(output: Path | None, ray: str | None) -> bool:
    """Whether a job writes JSON lines, which can be continued; the parts of a cluster's always are."""
    return ray is not None or (output is not None and output.suffix.lower() in (".jsonl", ".ndjson"))


def settings_of_call(making: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """The arguments of a pipeline's call, which has the tagger already, and each document its phrases."""
    known = ("importance_tagger", "phrases_column", "seed")
    settings = {name: value for name, value in making["settings"].items() if name not in known}
    return settings if kind.counting is None else {**settings, kind.counting: True}


def make_texts(
    pipe: Any,
    documents: Iterator[dict[str, Any]],
    making: dict[str, Any],
    batch_size: int | str,
    kind: Kind = SUMMARIES,
    seed: int | None = None,
) -> Generator[Result, None, None]:
    """Run the pipeline over documents, in their order."""
    waiting: deque[tuple[str, str]] = deque()

    def stream() -> Iterator[dict[str, Any]]:
        for document in documents:
            waiting.append((document.pop("id"), digest(document)))
            yield document

    def drawn(**settings: Any) -> Iterator[list[dict[str, Any]]]:
        from transformers import set_seed

        # Each with a seed of its own, so that a job that goes on draws the same.
        for document in stream():
            set_seed(int(digest([seed, waiting[-1][0]]), 16) % 2**32)
            yield pipe(document, **settings)

    settings = settings_of_call(making, kind)
    for result in pipe(stream(), batch_size=batch_size, **settings) if seed is None else drawn(**settings):
        yield *waiting.popleft(), result


def write_texts(
    results: Iterable[Result],
    *,
    total: int,
    output: Path | None,  # a folder gets another file
    as_json: bool,
    making: dict[str, Any],
    kind: Kind = SUMMARIES,
) -> list[dict[str, int]]:
    """Write the text of each document when it is there, and return what the pipeline counted for each."""
    from tqdm import tqdm

    from ..pipelines.sources_hier import format_sources

    counts = []
    if output is not None and output.is_dir():
        output /= f"part-{len(list(output.glob('part-*.jsonl'))):05}.jsonl"
    journal = Journal(output or Path(), kind.product, making)
    with ExitStack() as stack:
        target = sys.stdout if output is None else stack.enter_context(output.open("a", encoding="utf-8"))
        # On a terminal, and not where the texts themselves go by.
        hidden = total < 2 or target.isatty() or None
        bar = stack.enter_context(tqdm(total=total, desc=kind.label, disable=hidden))
        for identifier, made_of, result in results:
            first = result[0]
            whole = first.pop(f"{kind.product}_text")
            if kind is POEMS and len(result) > 1:
                first["candidates"] = [{key: poem[key] for key in poem if key != "poem_text"} for poem in result[1:]]
            text, spaces = whole.strip(), len(whole) - len(whole.lstrip())
            for part in (*first.get("copied", ()), *first.get("sources", ())):
                part |= {"start": part["start"] - spaces, "end": part["end"] - spaces}
            counts.append({**first, EMPTY: not text})
            if output is not None:
                first["made_of"] = made_of  # a job that is continued looks whether it is still the same
            line = text if as_json else _marked(text, first.get("copied", ()))
            line = " ".join(line.split()) if total > 1 else line
            line = "\n".join([line, *format_sources(first.get("sources", ()))])
            target.write((journal.line(identifier, text, **first) if as_json else _encodable(line)) + "\n")
            target.flush()
            bar.update()
    return counts


def _marked(text: str, words: Iterable[dict[str, Any]]) -> str:
    """Put words into brackets, those that follow one another into one pair, as the parts of a number do."""
    spans: list[tuple[int, int]] = []
    for word in words:
        end = spans[-1][1] if spans else 0
        follows = spans and (
            not text[end : word["start"]].strip() or _IN_A_NUMBER.fullmatch(text, end - 1, word["start"] + 1)
        )
        start = spans.pop()[0] if follows else word["start"]
        spans.append((start, word["end"]))
    for start, end in reversed(spans):
        text = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    return text


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
