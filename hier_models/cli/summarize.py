"""`hier-models summarize`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from ..checkpoints import MINI_NAME
from . import options
from .books import run_book
from .errors import MistakeError, given, say
from .extractive import check_options
from .jobs import EMPTY, SUMMARIES, check_all_sources, output_path, run_job, writes_lines
from .loading import generation_settings, given_only, read_phrases
from .options import Dtype, InputsFirst, command
from .reporting import tokens_were


# Options that a summarizer without a model has no use for.
OF_GENERATION = ("length", "max_length", "min_length", "num_beams", "settings", "max_source_length")
OF_READING = ("cut", "phrase", "phrases_column", "show_phrases", "mark_copied")  # what leaves no choice to a query
FAITHFUL = ("faithful",)  # what --set knows besides the settings of `generate`
OF_OUTPUT = ("show_phrases", "sources", "cut", "mark_copied")


@command("summarize", cls=InputsFirst)
def summarize(
    inputs: options.Inputs = None,
    model: options.Model = MINI_NAME,
    book: Annotated[str | None, typer.Option(metavar="PATH")] = None,
    book_model: options.OtherModel = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    as_json: options.AsJson = False,
    length: options.SummaryLength = None,
    max_length: options.Tokens = None,
    min_length: options.MinLength = None,
    num_beams: options.NumBeams = None,
    settings: options.Set = None,
    max_source_length: options.Tokens = None,
    cut: Annotated[bool, typer.Option("--cut")] = False,
    batch_size: options.AutoBatchSize = options.AUTO,
    text_column: options.Name = None,
    query: options.Query = None,
    set_aside: options.SetAside = None,
    importance_tagger: options.OtherModel = None,
    phrase: options.Phrase = None,
    phrases_column: options.Name = None,
    show_phrases: Annotated[bool, typer.Option("--show-phrases")] = False,
    sources: Annotated[bool, typer.Option("--sources")] = False,
    mark_copied: Annotated[bool, typer.Option("--mark-copied")] = False,
    max_words: options.Number = None,
    max_sentences: options.Number = None,
    language: options.Name = None,
    ray: options.Ray = None,
    device: options.Name = None,
    dtype: options.NumberFormat = Dtype.auto,
) -> None:
    """Summarize documents."""
    check_options(
        model,
        given("book", *OF_GENERATION, "query", "importance_tagger", "phrase", "phrases_column", *OF_OUTPUT),
        given("max_words", "max_sentences", "language"),
    )
    if query is not None and (others := given(*OF_READING)):
        raise MistakeError(f"--query chooses what is read of a document; leave it out, or {others[0]}")
    if query is not None and not query.strip():
        raise MistakeError("--query is empty; ask a question, or leave it out")
    phrases = read_phrases(phrase)
    file = output_path(output, is_folder=book is not None or ray is not None)
    loading: dict[str, Any] = {"device": device, "dtype": dtype, "importance_tagger": importance_tagger}
    writing: dict[str, Any] = {"output": file, "as_json": as_json, "batch_size": batch_size}
    reading: dict[str, Any] = {"text_column": text_column, "set_aside": set_aside, "phrases_column": phrases_column}
    if show_phrases and not as_json and not writes_lines(file, ray):
        raise MistakeError("--show-phrases: only JSON has a place for them; give --json, or an --output in .jsonl")
    if book is not None:
        unused = given("text_column", "query", "set_aside", "ray", "phrase", "phrases_column", *OF_OUTPUT)
        if inputs or unused:
            other = f"INPUT {inputs[0]!r}" if inputs else unused[0]
            raise MistakeError(f"--book is summarized alone; leave out {other}")
        run_book(
            book,
            model,
            book_model,
            settings=generation_settings(max_length, min_length, num_beams, settings, FAITHFUL, length)
            | given_only(max_source_length=max_source_length, length=length),
            **writing,
            **loading,
        )
        return
    if book_model is not None:
        raise MistakeError("--book-model belongs to --book")
    counts, documents, queries = run_job(
        SUMMARIES,
        model,
        inputs,
        settings=lambda: (
            generation_settings(max_length, min_length, num_beams, settings, FAITHFUL, length)
            | given_only(max_source_length=max_source_length, length=length, truncation=cut or None)
            | given_only(max_words=max_words, max_sentences=max_sentences, language=language)
            | given_only(query=query, phrases=phrases, return_phrases=show_phrases or None)
            | given_only(return_copied=mark_copied or None, return_sources=sources or None)
        ),
        check=partial(check_all_sources, max_source_length=max_source_length, of_reading=given(*OF_READING)),
        **reading,
        **writing,
        **loading,
        ray=ray,
    )
    for name, what in (
        ("num_missing_phrases", "Phrases that are not in their documents"),
        ("num_truncated_phrases", "Occurrences of phrases that lost tokens to truncation"),
        ("num_long_phrases", "Occurrences of phrases that are too long to be highlighted"),
    ):
        if number := sum(count.get(name, 0) for count in counts):
            say(f"{what}: {number}.")
    if empty := sum(count.get(EMPTY, False) for count in counts):
        say(f"Empty summaries: {empty}.")
    if without := sum(count.get("without_phrases", 0) for count in counts):
        say(f"Nothing is highlighted in {without} of {documents} documents: no key phrases.")
    omitted = "headings, lists and what is least like the rest; --cut cuts at the end instead"
    if query is not None or queries == documents:
        omitted = "what is least like the query"
    elif queries:
        omitted = "headings, lists and what is least like the rest, or like its query"
    for name, what in (
        ("num_omitted_tokens", f"not read whole: {{}} left out, {omitted}"),
        ("num_truncated_tokens", "longer than the model takes: {} cut at the end"),
    ):
        if found := [count[name] for count in counts if count.get(name)]:
            which = f"{len(found)} of {documents} documents were" if documents > 1 else "The document was"
            say(f"{which} {what.format(tokens_were(sum(found)))}.")
