"""`hier-models inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..checkpoints import MINI_NAME, resolve_checkpoint
from ..families import Family
from . import loading, options
from .documents import PHRASES, STDIN_NAME, open_documents, read_text
from .errors import MistakeError, check_not_the_data, check_parent, given, local_path, mistakes, say
from .extractive import is_extractive
from .jobs import check_query
from .options import Dtype, InputsFirst, command
from .reporting import tokens_were


if TYPE_CHECKING:
    from ..inspection import LevelWeights


@command("inspect", cls=InputsFirst)
def inspect_attention(
    inputs: Annotated[str | None, typer.Argument(metavar="INPUT")] = None,
    model: options.Model = MINI_NAME,
    output: Annotated[list[Path] | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    summary: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    number: Annotated[int, typer.Option("--document", min=1, metavar="N")] = 1,
    title: Annotated[str | None, typer.Option(metavar="TEXT")] = None,
    top_k: options.Number = None,
    phrase: options.Phrase = None,
    phrases_column: options.Name = None,
    length: options.SummaryLength = None,
    max_length: options.Tokens = None,
    min_length: options.MinLength = None,
    num_beams: options.NumBeams = None,
    settings: options.Set = None,
    max_source_length: options.Tokens = None,
    text_column: options.Name = None,
    device: options.Name = None,
    dtype: options.NumberFormat = Dtype.auto,
) -> None:
    """Draw the hierarchical attention of one summary."""
    files = output or [Path("attention.html")]
    suffixes = {file.suffix.lower() for file in files}
    for file in files:
        if file.suffix.lower() not in (".html", ".htm", ".png"):
            raise MistakeError(f"--output: got {file}; it must end in .html or .png")
        check_parent(file, "--output")
        for read in (inputs, summary):
            if read is not None:
                check_not_the_data(file, "--output", local_path(read))
    if ".png" in suffixes:
        from ..inspection.pages import require_matplotlib

        require_matplotlib()
    if summary is not None and (length or max_length or min_length or num_beams or settings):
        raise MistakeError("--summary: a given summary is not generated, so leave out the settings of its generation")
    if is_extractive(model):
        raise MistakeError(f"--model: {model} is a method without a model, so there is no attention to show")
    loading.check_checkpoint(model)
    model = resolve_checkpoint(model)
    family = loading.family_of(model)
    if family is not None and family.report == "levels":
        if (
            number != 1
            or dtype != Dtype.auto
            or given(
                *("inputs", "summary", "top_k", "phrase", "phrases_column", "length", "max_length", "min_length"),
                *("num_beams", "settings", "max_source_length", "text_column", "device"),
            )
        ):
            raise MistakeError("INPUT: levels count the same for every document; give --output and --title alone")
        report = _levels(family, model)
        report.title = title or f"Levels of attention: {Path(model).name}"
        print(report.table())
        _write(report, files)
        return
    with open_documents(None if inputs is None else [inputs], text_column, None, phrases_column) as documents:
        document = next((document for place, document in enumerate(documents, start=1) if place == number), None)
        if document is None:
            raise MistakeError(f"--document: there is no document {number} in {inputs or STDIN_NAME}")
    name = document.pop("id")
    phrases = loading.read_phrases(phrase) if phrase else document.get(PHRASES)
    summary_text = None if summary is None else read_text(summary, str(summary)).strip()
    generation = loading.generation_settings(max_length, min_length, num_beams, settings, length=length)
    pipe = loading.load_pipeline(model, device, dtype)
    generation = loading.with_length(pipe, length, generation)
    check_query({"id": name, **document}, given("phrase", "phrases_column"))
    # What `summarize` reads of it: of what is too long what says the most, or what a record's query asks for.
    example = pipe.preprocess({**document, PHRASES: phrases}, max_source_length=max_source_length)["examples"]
    kind, read, _ = example.source
    omitted = example.counts.get("num_omitted_tokens", 0)
    made_of = {kind: read, "summary": summary_text, "max_source_length": max_source_length, **generation}
    if family is not None and family.report == "highlighting":
        if ".png" in suffixes:
            raise MistakeError("--output: what a Highlight-Transformer highlights is a page; give a file in .html")
        if top_k is not None:
            raise MistakeError("--top-k: the page of a Highlight-Transformer shows all words; leave it out")
        from ..inspection import highlighting_report

        title = title or f"Highlighting: {name}"
        highlighting = highlighting_report(pipe.model, pipe.processor, **made_of, phrases=phrases, title=title)
        highlighting.counts["num_omitted_tokens"] = omitted
        print(highlighting.summary.strip())
        if highlighting.phrases:
            print(f"\n{highlighting.table()}")
        _write(highlighting, files)
        counts = highlighting.counts
        if cut := counts.get("num_truncated_tokens", 0):
            say(f"The document was longer than the model takes: {tokens_were(cut)} cut.")
        _say_omitted(omitted)
        if missing := counts.get("num_missing_phrases", 0):
            say(f"{missing} of {len(highlighting.phrases)} phrases are not in the document.")
        if long := counts.get("num_long_phrases", 0):
            say(f"Occurrences of phrases that are too long to be highlighted: {long}.")
        if not any(value > 0 for value in highlighting.values()):
            say("Nothing is highlighted.")
        return
    loading.check_highlights(pipe, phrase or phrases_column)
    from ..inspection import hierarchical_attention

    if pipe.processor is None:
        kind = type(pipe.model).__name__
        raise MistakeError(f"--model: {kind} has no hierarchical attention to show; give one that has")
    title = title or f"Hierarchical attention: {name}"
    attention = hierarchical_attention(pipe.model, pipe.processor, **made_of, top_k=top_k, title=title)
    attention.num_omitted_tokens = omitted
    print(attention.summary)
    _write(attention, files)
    _say_omitted(omitted)
    if attention.num_truncated_tokens:
        say(f"The document was longer than the model takes: {tokens_were(attention.num_truncated_tokens)} cut.")


def _say_omitted(tokens: int) -> None:
    """Say how much of a document was not read, if any."""
    if tokens:
        say(f"The document was not read whole: {tokens_were(tokens)} left out.")


def _levels(family: Family, checkpoint: str) -> LevelWeights:
    """Read how much each level of a model's attentions counts."""
    loading.quiet()
    import transformers
    from safetensors import SafetensorError

    from ..inspection import level_weights
    from ..pipelines import AUTO_CLASSES

    auto_class = AUTO_CLASSES.get(family.pipelines[0], "AutoModelForSeq2SeqLM")
    with mistakes(f"--model: cannot load {checkpoint!r}", OSError, ValueError, KeyError, SafetensorError):
        return level_weights(getattr(transformers, auto_class).from_pretrained(checkpoint))


def _write(report: Any, files: list[Path]) -> None:
    """Write a report as pages and pictures."""
    for file in files:
        (report.save_png if file.suffix.lower() == ".png" else report.save_html)(file)
        say(f"Written: {file}")
