"""`hier-models evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .errors import MistakeError, guarded, say
from .loading import check_checkpoint, generation_settings, load_pipeline, quiet
from .options import (
    BatchSizeOption,
    DeviceOption,
    Dtype,
    DtypeOption,
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
from .reporting import rouge_table, tokens_were


@app.command(
    help=help_text("""Summarize documents that have reference summaries, and score the summaries with ROUGE.

    \b
    Examples:
      hier-models evaluate ./my-model test.jsonl
      hier-models evaluate ./my-model test.jsonl --predictions out.jsonl
      hier-models evaluate ./my-model corpus/ --split validation --json scores.json
      hier-models evaluate ./my-model ccdv/pubmed-summarization --split test

    The table on standard output gives F1 times 100: rougeL compares the whole texts, rougeLsum sentence by sentence.
    --json also keeps the settings of ROUGE and of the generation, and what of the documents was cut.
    """)
)
@guarded
def evaluate(
    model: ModelArgument,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A .jsonl, .json, .csv or .tsv file, a folder of them, or a dataset on the Hub."
        ),
    ],
    split: Annotated[str | None, typer.Option(metavar="NAME", help="Part of the data: test, validation, …")] = None,
    text_column: TextColumnOption = None,
    summary_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column with the references. Recognized by its name if not given."),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each summary and its reference here, as JSON lines.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write scores and settings here, as JSON.")
    ] = None,
    max_length: MaxLengthOption = None,
    min_length: MinLengthOption = None,
    num_beams: NumBeamsOption = None,
    settings: SetOption = None,
    max_source_length: MaxSourceLengthOption = None,
    batch_size: BatchSizeOption = 4,
    device: DeviceOption = None,
    dtype: DtypeOption = Dtype.auto,
) -> None:
    """Summarize documents and score the summaries."""
    path = Path(data).expanduser()
    _check_outputs(path, {"--predictions": predictions, "--json": json_file})
    check_checkpoint(model)
    generation = generation_settings(max_length, min_length, num_beams, settings)
    quiet()
    from ..data import load_documents

    documents = load_documents(
        path if path.exists() else data, split=split, text_column=text_column, summary_column=summary_column
    )
    if "summary" not in documents.column_names:
        raise MistakeError(f"DATA: {data} has no reference summaries; --summary-column names their column if it has")
    pipe = load_pipeline(model, device, dtype)
    from ..training import run_evaluation

    results = run_evaluation(
        pipe.model,
        pipe.processor or pipe.tokenizer,
        documents,
        max_source_length=max_source_length,
        batch_size=batch_size,
        predictions_file=predictions,
        results_file=json_file,
        **generation,
    )
    print(rouge_table(results))
    cut = results["truncation"]
    if cut["truncated_documents"]:
        say(
            f"{cut['truncated_documents']} of {results['documents']} documents were longer than the model takes: "
            f"{tokens_were(cut['truncated_tokens'])} cut at the end."
        )
    for file in (predictions, json_file):
        if file is not None:
            say(f"Written: {file}")


def _check_outputs(data: Path, files: dict[str, Path | None]) -> None:
    """Refuse, before the work begins, what could not be written or would destroy the data."""
    source = data.resolve()
    taken: dict[Path, str] = {}
    for option, file in files.items():
        if file is None:
            continue
        resolved = file.resolve()
        if resolved == source and data.is_file():
            raise MistakeError(f"{option}: {file} is the data and would be overwritten; give another file")
        if file.is_dir():
            raise MistakeError(f"{option}: {file} is a folder; give a file")
        if data.is_dir() and resolved.is_relative_to(source):
            raise MistakeError(f"{option}: {file} lies in the folder of the data; give a file elsewhere")
        if not resolved.parent.is_dir():
            raise MistakeError(f"{option}: there is no folder {file.absolute().parent}")
        if resolved in taken:
            raise MistakeError(f"{option}: {file} is also the file of {taken[resolved]}; give another")
        taken[resolved] = option
