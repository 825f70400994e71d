"""`hier-models summarize`."""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from .documents import open_documents
from .errors import MistakeError, guarded, say, state
from .loading import check_checkpoint, generation_settings, given_only, load_pipeline
from .options import (
    BatchSizeOption,
    DeviceOption,
    Dtype,
    DtypeOption,
    InputArgument,
    MaxLengthOption,
    MaxSourceLengthOption,
    MinLengthOption,
    ModelArgument,
    NumBeamsOption,
    SetOption,
    TextColumnOption,
    app,
    help_text,
)
from .reporting import tokens_were


RECORD_BEGINS = b'{"id": "'


@app.command(
    help=help_text("""Summarize documents: one, or a batch that can be interrupted and continued.

    \b
    Examples:
      hier-models summarize ./my-model paper.txt
      hier-models summarize ./my-model a.txt b.txt --json
      pdftotext paper.pdf - | hier-models summarize ./my-model
      hier-models summarize ./my-model papers/ --output out.jsonl
      hier-models summarize ./my-model test.jsonl -o out.jsonl --batch-size 8
      hier-models summarize ./my-model paper.txt --num-beams 4 --max-length 200

    Summaries go to standard output, one a line, in the order of the documents. With --json each is a JSON object:
    id, summary, num_truncated_tokens (how much of the document did not fit into the model), model, settings.

    An --output that ends in .jsonl is written as JSON lines, each when its document is done. If the file is there
    already, the job goes on where it stopped: run the same command again.

    In records the document is the column text, article, document, … (a string), sentences (a list of strings),
    turns (a list of objects with role and content) or documents (a list of strings to summarize together).
    """)
)
@guarded
def summarize(
    model: ModelArgument,
    inputs: InputArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here; .jsonl can be continued.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON objects, one a line, to standard output.")
    ] = False,
    max_length: MaxLengthOption = None,
    min_length: MinLengthOption = None,
    num_beams: NumBeamsOption = None,
    settings: SetOption = None,
    max_source_length: MaxSourceLengthOption = None,
    batch_size: BatchSizeOption = 1,
    text_column: TextColumnOption = None,
    set_aside: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write records that cannot be used here and go on. Default: stop at one."),
    ] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = Dtype.auto,
) -> None:
    """Summarize documents."""
    as_lines = output is not None and output.suffix.lower() in (".jsonl", ".ndjson")
    if output is not None and not as_lines:
        if as_json:
            raise MistakeError(f"--output: JSON objects, one a line, go to a file that ends in .jsonl, got {output}")
        if output.suffix.lower() == ".json":
            raise MistakeError(f"--output: got {output}; write JSON lines (.jsonl), which can be continued, or text")
        if output.exists():
            raise MistakeError(f"--output: {output} is there already; only .jsonl files are continued, so remove it")
    if output is not None and not output.absolute().parent.is_dir():
        raise MistakeError(f"--output: there is no folder {output.absolute().parent}")
    check_checkpoint(model)
    with open_documents(inputs, text_column, set_aside) as documents:
        # A first look at everything, so that a bad record does not stop the job in its last hour.
        identifiers = [document["id"] for document in documents]
        generation = generation_settings(max_length, min_length, num_beams, settings)
        # What each record says of its making; a job goes on only with the same.
        making = {"model": model, "settings": generation | given_only(max_source_length=max_source_length)}
        done: set[str] = set()
        if output is not None and output.exists():
            done = finished(output, identifiers, making)
        if done:
            say(f"{output} holds {len(done)} of {len(identifiers)} summaries; going on with the others.")
        if len(done) == len(identifiers):
            return
        pipe = load_pipeline(model, device, dtype)
        if output is not None and as_lines:
            state.when_interrupted = f"What is done is in {output}; the same command goes on from there."
        cut = write_summaries(
            pipe,
            (document for document in documents if document["id"] not in done),
            total=len(identifiers) - len(done),
            output=output,
            as_json=as_json or as_lines,
            making=making,
            batch_size=batch_size,
        )
    if cut:
        number = f"{len(cut)} of {len(identifiers)} documents were" if len(identifiers) > 1 else "The document was"
        say(f"{number} longer than the model takes: {tokens_were(sum(cut))} cut at the end.")
    if documents.set_aside_count:
        say(f"{documents.set_aside_count} records could not be used; they are in {set_aside}.")


def finished(output: Path, identifiers: list[str], making: dict[str, Any]) -> set[str]:
    """Read which documents a job has done, and cut off a line that it was interrupted in."""
    content = output.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    lines, rest = whole.splitlines(), content[len(whole) :]
    done: set[str] = set()
    known = set(identifiers)
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            identifier, made = record["id"], {name: record[name] for name in making}
        except (ValueError, TypeError, KeyError) as error:
            raise MistakeError(_no_summary(output, number)) from error
        if identifier not in known:
            raise MistakeError(
                f"--output: {output}:{number} is the summary of {identifier!r}, which is not among the documents; it "
                "belongs to another job, so give another file"
            )
        if made != making:
            raise MistakeError(
                f"--output: {output}:{number} was made with {json.dumps(made)}, and this job has "
                f"{json.dumps(making)}; give another file, or the same model and settings"
            )
        done.add(identifier)
    if not rest.startswith(RECORD_BEGINS) and not RECORD_BEGINS.startswith(rest):
        raise MistakeError(_no_summary(output, len(lines) + 1))
    if rest:
        os.truncate(output, len(whole))
    return done


def _no_summary(output: Path, line: int) -> str:
    return f"--output: {output}:{line} is no summary of an earlier run; give another file"


def write_summaries(
    pipe: Any,
    documents: Iterator[dict[str, Any]],
    *,
    total: int,
    output: Path | None,
    as_json: bool,
    making: dict[str, Any],
    batch_size: int,
) -> list[int]:
    """Summarize, write each summary when it is there, and return how many tokens were cut of each cut document."""
    waiting: deque[str] = deque()

    def stream() -> Iterator[dict[str, Any]]:
        for document in documents:
            waiting.append(document.pop("id"))
            yield document

    cut: list[int] = []
    with ExitStack() as stack:
        target = sys.stdout if output is None else stack.enter_context(output.open("a", encoding="utf-8"))
        results = pipe(stream(), batch_size=batch_size, return_truncation=True, **making["settings"])
        bar = None
        # Not where the summaries themselves go by.
        if total > 1 and sys.stderr.isatty() and not target.isatty():
            bar = stack.enter_context(
                typer.progressbar(length=total, label="Summarizing", file=sys.stderr, show_pos=True)
            )
        for result in results:
            first = result[0]
            summary = first.pop("summary_text").strip()
            if first["num_truncated_tokens"]:
                cut.append(first["num_truncated_tokens"])
            record = {"id": waiting.popleft(), "summary": summary, **first, **making}
            line = json.dumps(record, ensure_ascii=False) if as_json else _one_line(summary) if total > 1 else summary
            target.write(_encodable(line) + "\n")
            target.flush()
            if bar is not None:
                bar.update(1)
    return cut


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
