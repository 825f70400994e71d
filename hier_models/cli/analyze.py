"""`hier-models analyze`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checkpoints import MINI_NAME
from ..journal import Journal, digest
from . import options
from .errors import MistakeError, check_output_folder, first_paragraph, local_path, mistakes, say, state
from .extractive import is_extractive
from .jobs import alone, check_all_sources, make_texts, write_texts
from .loading import (
    check_checkpoint,
    check_judges,
    family_of,
    generation_settings,
    given_only,
    load_pipeline,
    making_of,
)
from .options import Dtype, command
from .predictions import (
    LoadedDocuments,
    check_predictions,
    have_references,
    load_test_set,
    match_predictions,
    match_summaries,
    read_named,
    read_predictions,
    read_rows,
)


REFERENCE = "reference"
REPORT_FILES = ("copying.json", "copying.jsonl", "copying.png", "copying.html")
ENTROPY_FILE = "entropy.json"


@command("analyze")
def analyze(
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER")],
    models: Annotated[list[str] | None, typer.Option("--model", "-m", metavar="[NAME=]MODEL")] = None,
    predictions: Annotated[list[str] | None, typer.Option("--predictions", "-p", metavar="[NAME=]FILE")] = None,
    reference: Annotated[bool, typer.Option("--reference")] = False,
    limit: Annotated[int | None, typer.Option("--documents", min=1, metavar="N")] = None,
    shown: Annotated[int | None, typer.Option(min=0, metavar="N")] = None,
    heatmaps: Annotated[int, typer.Option(min=0, metavar="N")] = 3,
    threshold: Annotated[float, typer.Option(metavar="SHARE")] = 0.8,
    split: options.Name = None,
    config_name: options.Name = None,
    revision: options.Name = None,
    text_column: options.Name = None,
    summary_column: options.Name = None,
    language: Annotated[str, typer.Option(metavar="NAME")] = "english",
    max_length: options.Tokens = None,
    min_length: options.MinLength = None,
    num_beams: options.NumBeams = None,
    settings: options.Set = None,
    max_source_length: options.Tokens = None,
    bert_score: options.OtherModel = None,
    nli: options.OtherModel = None,
    batch_size: options.AutoBatchSize = options.AUTO,
    device: options.Name = None,
    dtype: options.NumberFormat = Dtype.auto,
) -> None:
    """Report what models copy from where."""
    if not models and not predictions:
        models = [MINI_NAME]
    checkpoints, files = read_named("--model", models), read_named("--predictions", predictions)
    names = list(dict.fromkeys([*checkpoints, *files, *([REFERENCE] if reference else [])]))
    if reference and REFERENCE in {*checkpoints, *files}:
        raise MistakeError(f"--reference: the name {REFERENCE!r} is taken; give the other one a name: NAME=…")
    for name in checkpoints.values():
        check_checkpoint(name)
    check_predictions(files)
    check_judges(bert_score, nli)
    generated = [name for name in checkpoints if name not in files]
    generation = generation_settings(max_length, min_length, num_beams, settings)
    writes = not all(is_extractive(checkpoints[name]) for name in generated)
    reads = not all(map(is_extractive, checkpoints.values()))  # if only for its attention
    if (generation and not writes) or (max_source_length and not reads):
        raise MistakeError("--max-length and other settings of the generation: there is nothing to generate")
    _check_output(output, data, files)
    from ..inspection.copying import CopyRule
    from ..inspection.pages import require_matplotlib
    from ..models.sentence_splitting import check_language

    require_matplotlib()
    with mistakes("--threshold", ValueError):
        rule = CopyRule(threshold=threshold)
    with mistakes("--language", ValueError):
        check_language(language)
    given = read_predictions(files)
    # References are looked at only where they are of use: data may have none, or some that could not be used.
    with_references = reference or summary_column or bert_score or have_references(given)
    on_hub = given_only(config_name=config_name, revision=revision)
    documents = load_test_set(data, split, text_column, summary_column if with_references else "", limit, **on_hub)
    if reference and documents.references is None:
        raise MistakeError(f"--reference: {data} has no reference summaries; --summary-column names their column")
    if bert_score and documents.references is None:
        raise MistakeError(f"--bert-score: {data} has no reference summaries; --summary-column names their column")
    summaries = match_predictions(given, files, documents)
    if reference:
        summaries[REFERENCE] = (documents.references or [])[: len(documents)]
    output.mkdir(exist_ok=True)
    # Cut, as for the heatmaps: from where a model copies is asked of what it reads at once.
    making = {"truncation": True} | given_only(max_source_length=max_source_length) | generation
    entropy: dict[str, dict[str, Any]] = {}
    for name, checkpoint in checkpoints.items():
        pipe = None
        if name in generated:
            made = output / f"summaries-{name}.jsonl"
            own = {"language": language} if is_extractive(checkpoint) else making
            pipe = _generate(checkpoint, documents, made, own, batch_size, device, dtype)
            summaries[name] = match_summaries(str(made), read_rows(made), documents)
        family = None if is_extractive(checkpoint) else family_of(checkpoint)
        attends_to_rows = family is not None and family.report == "rows"
        if heatmaps or attends_to_rows:
            pipe = pipe or load_pipeline(checkpoint, device, dtype)
        if heatmaps:
            _draw_heatmaps(pipe, name, documents, summaries[name], heatmaps, max_source_length, output)
        if attends_to_rows:
            entropy[name] = _entropy(pipe, name, documents, summaries[name], max_source_length)
        del pipe  # one model in memory at a time

    from tqdm import tqdm

    from ..inspection.copying_report import CopyingReport

    report = CopyingReport(rule, language=language, shown=shown)
    ordered = {name: summaries[name] for name in names}
    references: list[Any] = documents.references or [None] * len(documents)
    judged = _judged(documents, ordered, bert_score, nli, language, device)
    for number, (identifier, document) in enumerate(tqdm(documents, desc="Comparing", disable=None)):
        texts_of_it = {name: texts[number] for name, texts in ordered.items()}
        scores_of_it = {name: {score: values[number] for score, values in judged[name].items()} for name in names}
        report.add(document, texts_of_it, identifier, references[number], scores_of_it)
    for save, name in zip(
        (report.save_json, report.save_copies, report.save_png, report.save_html), REPORT_FILES, strict=True
    ):
        save(output / name)
    if entropy:
        (output / ENTROPY_FILE).write_text(json.dumps(entropy, indent=2) + "\n", encoding="utf-8")
    print(report.table())
    for name, found in entropy.items():
        line = f"{name}: entropy {found['entropy']:.2f} of the attention over rows (uniform: {found['uniform']:.2f})"
        if found["encoded_rows"] is not None:
            line += f"; {found['encoded_rows'] / found['rows']:.0%} of the rows read"
        print(line)
    say(f"Written: {', '.join([*REPORT_FILES, *([ENTROPY_FILE] if entropy else [])])} in {output}")


def _check_output(output: Path, data: str, files: Mapping[str, str]) -> None:
    """Refuse a folder that cannot be written, and files of the user's that the report would write over."""
    check_output_folder(output, "--output", data)
    written = {output.resolve() / name for name in (*REPORT_FILES, ENTROPY_FILE)}
    for what, path in (("DATA", data), *(("--predictions", file) for file in files.values())):
        if local_path(path).resolve() in written:
            raise MistakeError(f"{what}: {path} would be overwritten by the report; give another --output")


def _generate(
    checkpoint: str,
    documents: LoadedDocuments,
    file: Path,
    settings: dict[str, Any],
    batch_size: int | str,
    device: str | None,
    dtype: Dtype,
) -> Any:
    """Summarize the documents that have no summary in the file yet; return the pipeline if one was loaded."""
    making = making_of(checkpoint, settings, dtype, None)
    names = documents.identifiers if file.exists() else []
    with alone(file):
        with mistakes("--output", ValueError):
            done = Journal(file, "summary", making).read(
                {name: digest(documents[number]) for number, name in enumerate(names)}
            )
        rest = [number for number, name in enumerate(documents.identifiers[: len(documents)]) if name not in done]
        if not rest:
            return None
        if done:
            say(f"{file} holds {len(documents) - len(rest)} of {len(documents)} summaries; going on with the others.")
        say(f"Summarizing with {checkpoint}: {len(rest)} documents")
        pipe = load_pipeline(checkpoint, device, dtype)
        check_all_sources(pipe, ({"id": name, **document} for name, document in documents))
        state.when_interrupted = f"What is done is in {file}; the same command goes on from there."
        left = ({"id": documents.identifiers[number], **documents[number]} for number in rest)
        results = make_texts(pipe, left, making, batch_size)
        counts = write_texts(results, total=len(rest), output=file, as_json=True, making=making)
        if cut := sum(bool(count["num_truncated_tokens"]) for count in counts):
            say(f"{cut} of {len(rest)} documents were longer than the model takes and were cut at the end.")
        return pipe


def _judged(
    documents: LoadedDocuments,
    summaries: Mapping[str, list[str]],
    bert_score: str | None,
    nli: str | None,
    language: str,
    device: str | None,
) -> dict[str, dict[str, list[float]]]:
    """Score each system's summaries by the models that are named."""
    if bert_score is None and nli is None:
        return {name: {} for name in summaries}
    from ..training.tasks.summarization import scores_of_models

    # Of all systems at once: each model is loaded once.
    count = len(documents)
    rows = documents.rows.select([*range(count)] * len(summaries))
    texts = [text for of_system in summaries.values() for text in of_system]
    references = (documents.references or [])[:count] * len(summaries)
    asked: dict[str, Any] = {"bert_score": bert_score, "nli": nli, "language": language, "device": device or "cpu"}
    found, _ = scores_of_models(rows, texts, references, **asked)
    return {
        name: {score: values[place * count : (place + 1) * count] for score, values in found.items()}
        for place, name in enumerate(summaries)
    }


def _draw_heatmaps(
    pipe: Any,
    name: str,
    documents: LoadedDocuments,
    summaries: list[str],
    count: int,
    max_source_length: int | None,
    output: Path,
) -> None:
    """Draw the hierarchical attention over the first documents, for a model that has any."""
    if pipe.processor is None or not getattr(pipe.model.config, "hierarchical_layers", 1):
        say(f"{name} has no hierarchical attention to draw.")
        return
    from ..inspection import hierarchical_attention

    drawn = 0
    for number, ((identifier, document), summary) in enumerate(
        islice(zip(documents, summaries, strict=True), count), 1
    ):
        if not summary.strip():
            say(f"{name}: the summary of {identifier} is empty; no heatmap of it")
            continue
        settings: dict[str, Any] = {"max_source_length": max_source_length, "title": f"{name}: {identifier}"}
        try:
            attention = hierarchical_attention(pipe.model, pipe.processor, **document, summary=summary, **settings)
        except ValueError as error:  # a summary that takes more tokens than the decoder has positions
            say(f"{name}: no heatmap of {identifier}: {first_paragraph(error)}")
            continue
        attention.save_html(output / f"attention-{name}-{number}.html")
        attention.save_png(output / f"attention-{name}-{number}.png")
        drawn += 1
    say(f"{name}: attention over {drawn} document{'' if drawn == 1 else 's'} drawn")


def _entropy(
    pipe: Any, name: str, documents: LoadedDocuments, summaries: list[str], max_source_length: int | None
) -> dict[str, Any]:
    """Measure how spread out a model's attention over rows is."""
    from tqdm import tqdm

    from ..inspection import row_entropy

    both = ((document, summary) for (_, document), summary in zip(documents, summaries, strict=True))
    shown = tqdm(both, total=len(documents), desc="Measuring attention", disable=None)
    with mistakes(f"{name}: no entropy", ValueError):
        return asdict(row_entropy(pipe.model, pipe.processor, shown, max_source_length=max_source_length))
