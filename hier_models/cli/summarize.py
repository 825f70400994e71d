"""`hier-models summarize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .books import run_book
from .errors import MistakeError, guarded, say
from .extractive import LanguageOption, MaxSentencesOption, MaxWordsOption, check_options
from .jobs import SUMMARIES, run_job
from .loading import generation_settings, given_only, read_phrases
from .options import (
    BatchSizeOption,
    DeviceOption,
    Dtype,
    DtypeOption,
    ImportanceTaggerOption,
    InputArgument,
    MaxLengthOption,
    MaxSourceLengthOption,
    MinLengthOption,
    NumBeamsOption,
    PhraseOption,
    PhrasesColumnOption,
    SetOption,
    TextColumnOption,
    app,
    help_text,
)
from .reporting import tokens_were


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
      hier-models summarize lexrank articles.jsonl --max-words 200
      hier-models summarize --book book.epub -m ./my-model -o out/

    Summaries go to standard output, one a line, in the order of the documents. With --json each is a JSON object:
    id, summary, num_truncated_tokens (how much of the document did not fit into the model), model, settings.

    An --output that ends in .jsonl is written as JSON lines, each when its document is done. If the file is there
    already, the job goes on where it stopped: run the same command again.

    In records the document is the column text, article, document, … (a string), sentences (a list of strings),
    turns (a list of objects with role and content) or documents (a list of strings to summarize together).

    lead, lexrank, textrank or tf-idf in the place of MODEL are baselines without a model: they choose sentences of the
    document.

    A Highlight-Transformer reads key phrases; --phrase names others, --show-phrases and --mark-copied show what it
    read and what it copied.

    --book summarizes a whole book: an EPUB, a folder with a file for each chapter, or one text with chapter headings.
    Chapters are summarized, then their summaries, until one is left. The folder --output keeps each when it is made,
    so that a stopped run goes on there, and gets book.html, a page to read, and book.json.
    """)
)
@guarded
def summarize(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A checkpoint: a folder, or the id of a model on the Hub."),
    ] = None,
    inputs: InputArgument = None,
    book: Annotated[
        str | None, typer.Option(metavar="PATH", help="Summarize this book: EPUB, folder of chapters, or text.")
    ] = None,
    model_option: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="The model, where it does not stand first.")
    ] = None,
    book_model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="With --book: for the joined summaries of chapters. Default: the same."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write here; .jsonl can be continued. With --book a folder."
        ),
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
    importance_tagger: ImportanceTaggerOption = None,
    phrase: PhraseOption = None,
    phrases_column: PhrasesColumnOption = None,
    show_phrases: Annotated[
        bool, typer.Option("--show-phrases", help="Write which phrases were highlighted into the JSON objects.")
    ] = False,
    mark_copied: Annotated[
        bool, typer.Option("--mark-copied", help="[Mark] the words that the model copied from the document.")
    ] = False,
    max_words: MaxWordsOption = None,
    max_sentences: MaxSentencesOption = None,
    language: LanguageOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = Dtype.auto,
) -> None:
    """Summarize documents."""
    if model_option is not None:
        # Then what stands first is no model.
        inputs = [*([] if model is None else [model]), *(inputs or [])] or None
        model = model_option
    if model is None:
        raise MistakeError("MODEL is missing: a checkpoint, which stands first or after --model")
    check_options(
        model,
        {
            "--book": book,
            "--max-length": max_length,
            "--min-length": min_length,
            "--num-beams": num_beams,
            "--set": settings,
            "--max-source-length": max_source_length,
            "--importance-tagger": importance_tagger,
            "--phrase": phrase,
            "--phrases-column": phrases_column,
            "--show-phrases": show_phrases,
            "--mark-copied": mark_copied,
        },
        {"--max-words": max_words, "--max-sentences": max_sentences, "--language": language},
    )
    phrases = read_phrases(phrase)
    if show_phrases and not as_json and (output is None or output.suffix.lower() not in (".jsonl", ".ndjson")):
        raise MistakeError("--show-phrases: only JSON has a place for them; give --json, or an --output in .jsonl")
    if book is not None:
        unused = {
            f"INPUT {inputs[0]!r}" if inputs else "": inputs,
            "--text-column": text_column,
            "--set-aside": set_aside,
            "--phrase": phrase,
            "--phrases-column": phrases_column,
            "--show-phrases": show_phrases,
            "--mark-copied": mark_copied,
        }
        if given := next((name for name, value in unused.items() if value), None):
            raise MistakeError(f"--book is summarized alone; leave out {given}")
        run_book(
            book,
            model,
            book_model,
            settings=generation_settings(max_length, min_length, num_beams, settings)
            | given_only(max_source_length=max_source_length),
            output=output,
            as_json=as_json,
            batch_size=batch_size,
            device=device,
            dtype=dtype,
            importance_tagger=importance_tagger,
        )
        return
    if book_model is not None:
        raise MistakeError("--book-model belongs to --book")
    counts, documents = run_job(
        SUMMARIES,
        model,
        inputs,
        settings=lambda: (
            generation_settings(max_length, min_length, num_beams, settings)
            | given_only(
                max_source_length=max_source_length,
                max_words=max_words,
                max_sentences=max_sentences,
                language=language,
            )
            | given_only(phrases=phrases, return_phrases=show_phrases or None, return_copied=mark_copied or None)
        ),
        output=output,
        as_json=as_json,
        batch_size=batch_size,
        text_column=text_column,
        set_aside=set_aside,
        device=device,
        dtype=dtype,
        importance_tagger=importance_tagger,
        phrases_column=phrases_column,
    )
    for name, what in (
        ("num_missing_phrases", "Phrases that are not in their documents"),
        ("num_truncated_phrases", "Occurrences of phrases that lost tokens to truncation"),
        ("num_long_phrases", "Occurrences of phrases that are too long to be highlighted"),
    ):
        if number := sum(count.get(name, 0) for count in counts):
            say(f"{what}: {number}.")
    if without := sum(count.get("without_phrases", 0) for count in counts):
        say(f"Nothing is highlighted in {without} of {documents} documents: no key phrases.")
    if cut := [count["num_truncated_tokens"] for count in counts if count["num_truncated_tokens"]]:
        number_cut = f"{len(cut)} of {documents} documents were" if documents > 1 else "The document was"
        say(f"{number_cut} longer than the model takes: {tokens_were(sum(cut))} cut at the end.")
