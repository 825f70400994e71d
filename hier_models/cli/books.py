"""`hier-models summarize --book`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from .documents import STDIN
from .errors import MistakeError, local_path, say, state
from .extractive import is_extractive
from .loading import check_checkpoint, load_pipeline


PAGE, TREE = "book.html", "book.json"


def run_book(
    book: str,
    model: str,
    book_model: str | None,
    *,
    settings: dict[str, Any],
    output: Path | None,
    as_json: bool,
    batch_size: int | str,
    **loading: Any,
) -> None:
    """Summarize a book, say how it was read, and write the summary, and a page and a tree where there is a folder."""
    if book == STDIN:
        raise MistakeError("--book: give a file or a folder, not standard input")
    if not book:
        raise MistakeError("--book: an empty string names nothing; for this folder, give '.'")
    if output is not None and output.is_file():
        raise MistakeError(f"--output: with --book it is a folder, and {output} is a file")
    if output is not None:
        source = local_path(book)
        if os.path.isdir(source) and output.resolve().is_relative_to(source.resolve()):
            raise MistakeError(f"--output: {output} is in the book's folder, where {PAGE} would be a chapter")
        if output.resolve() == source.resolve().parent and source.name in (PAGE, TREE):
            raise MistakeError(f"--output: {source} is the book and would be overwritten; give another folder")
    names = [name for name in (model, book_model) if name is not None]
    for name in names:
        check_checkpoint(name)
        if is_extractive(name):
            raise MistakeError(f"{name} chooses sentences of one text, and a book's summary is made of summaries")
    from ..books import read_book

    as_read = read_book(book)
    say(as_read.report())
    pipelines = [load_pipeline(name, **loading) for name in names]
    from ..books.summarizing import SUMMARIES_FILE, summarize_book

    if output is not None:
        kept = output / SUMMARIES_FILE
        state.when_interrupted = f"What is done is in {kept}; the same command goes on from there."
    size = batch_size if isinstance(batch_size, int) else 1
    try:
        result = summarize_book(
            as_read, *pipelines, output=output, batch_size=size, progress=sys.stderr.isatty(), **settings
        )
    except ValueError as error:
        if not str(error).startswith("`output`"):
            raise
        raise MistakeError(str(error).replace("`output`", "--output", 1)) from error
    if report := result.report().removeprefix(as_read.report()).strip("\n"):
        say(report)
    if output is not None:
        result.save_json(output / TREE)
        say(f"To read: {result.save_html(output / PAGE)}")
    text = json.dumps(result.as_dict(with_text=False), ensure_ascii=False) if as_json else result.summary
    print(text.encode("utf-8", "replace").decode("utf-8"))
