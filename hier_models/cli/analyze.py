"""`hier-models analyze`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checkpoints import MINI_NAME
from ..journal import Journal, digest
from . import options
from .documents import KINDS, free_name
from .errors import MistakeError, check_parent, first_paragraph, mistakes, say, state
from .jobs import check_all_sources, make_texts, write_texts
from .loading import check_checkpoint, family_of, generation_settings, given_only, load_pipeline, making_of, quiet
from .options import Dtype, command


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
    shown: Annotated[int, typer.Option(min=0, metavar="N")] = 10,
    heatmaps: Annotated[int, typer.Option(min=0, metavar="N")] = 3,
    threshold: Annotated[float, typer.Option(metavar="SHARE")] = 0.8,
    split: options.Split = None,
    config_name: options.ConfigName = None,
    revision: options.Revision = None,
    text_column: options.TextColumn = None,
    summary_column: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    language: Annotated[str, typer.Option(metavar="NAME")] = "english",
    max_length: options.MaxLength = None,
    min_length: options.MinLength = None,
    num_beams: options.NumBeams = None,
    settings: options.Set = None,
    max_source_length: options.MaxSourceLength = None,
    batch_size: options.BatchSize = 1,
    device: options.Device = None,
    dtype: options.NumberFormat = Dtype.auto,
) -> None:
    """Report what models copy from where."""
    if not models and not predictions:
        models = [MINI_NAME]
    checkpoints, files = _named("--model", models), _named("--predictions", predictions)
    names = list(dict.fromkeys([*checkpoints, *files, *([REFERENCE] if reference else [])]))
    if reference and REFERENCE in {*checkpoints, *files}:
        raise MistakeError(f"--reference: the name {REFERENCE!r} is taken; give the other one a name: NAME=…")
    for name in checkpoints.values():
        check_checkpoint(name)
    for name, file in files.items():
        if not Path(file).expanduser().is_file():
            raise MistakeError(f"--predictions: there is no file {file!r} (for {name})")
    generated = [name for name in checkpoints if name not in files]
    generation = generation_settings(max_length, min_length, num_beams, settings)
    if not generated and (generation or max_source_length):
        raise MistakeError("--max-length and other settings of the generation: there is nothing to generate")
    _check_output(output, data, files)
    from ..inspection.copying import CopyRule
    from ..inspection.pages import require_matplotlib

    require_matplotlib()
    with mistakes("--threshold", ValueError):
        rule = CopyRule(threshold=threshold)
    given = {name: _read_rows(Path(file).expanduser()) for name, file in files.items()}
    # References are looked at only where they are of use: data may have none, or some that could not be used.
    with_references = reference or summary_column or any("reference" in row for rows in given.values() for row in rows)
    on_hub = given_only(config_name=config_name, revision=revision)
    documents = _load(data, split, text_column, summary_column if with_references else "", limit, **on_hub)
    if reference and documents.references is None:
        raise MistakeError(f"--reference: {data} has no reference summaries; --summary-column names their column")
    summaries = {name: _match(f"--predictions: {files[name]}", rows, documents) for name, rows in given.items()}
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
            pipe = _generate(checkpoint, documents, made, making, batch_size, device, dtype)
            summaries[name] = _match(str(made), _read_rows(made), documents)
        family = family_of(checkpoint)
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

    with mistakes("--language", ValueError):
        report = CopyingReport(rule, language=language, shown=shown)
    ordered = {name: summaries[name] for name in names}
    for number, (identifier, document) in enumerate(tqdm(documents, desc="Comparing", disable=None)):
        references = documents.references
        texts_of_it = {name: texts[number] for name, texts in ordered.items()}
        report.add(document, texts_of_it, identifier, references[number] if references else None)
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


@dataclass
class _Documents:
    """The documents of a test set."""

    rows: Any  # as `load_documents` gives them
    identifiers: list[str]  # a name for each, all different; also of those that --documents leaves out
    named: bool  # whether they have identifiers of their own, and not only numbers
    references: list[str] | None  # the reference summaries, if they were asked for and are there
    data: str  # what the user calls the data
    limit: int  # how many documents are looked at

    def __len__(self) -> int:
        return self.limit

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(self.limit):
            yield self.identifiers[number], self[number]

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = self.rows[number]
        return {kind: row[kind] for kind in KINDS if kind in row}


def _named(option: str, given: list[str] | None) -> dict[str, str]:
    """Read [NAME=]VALUE, name -> value; without a name it is the last part of the path."""
    found: dict[str, str] = {}
    for entry in given or []:
        name, equals, value = entry.partition("=")
        if not equals or "/" in name or Path(entry).expanduser().exists():
            path = Path(entry).expanduser()
            name, value = (path.name if path.is_dir() or option == "--model" else path.stem), entry
        if not value:
            raise MistakeError(f"{option}: got {entry!r}; write NAME=VALUE, or only the value")
        if not re.fullmatch(r"[\w.+-]+", name) or name.startswith("."):
            raise MistakeError(f"{option}: {name!r} cannot be part of a file's name; give letters: NAME={value}")
        if name in found:
            raise MistakeError(f"{option}: two are called {name!r}; give them names: NAME={value}")
        found[name] = value
    return found


def _check_output(output: Path, data: str, files: Mapping[str, str]) -> None:
    """Refuse a folder that cannot be made, and files of the user's that the report would write over."""
    if output.exists() and not output.is_dir():
        raise MistakeError(f"--output: {output} is a file; give a folder")
    check_parent(output, "--output")
    source = Path(data).expanduser().resolve()
    folder = output.resolve()
    if source.is_dir() and folder.is_relative_to(source):
        raise MistakeError(f"--output: {output} lies in the folder of the data; give a folder elsewhere")
    written = {folder / name for name in (*REPORT_FILES, ENTROPY_FILE)}
    for what, path in (("DATA", data), *(("--predictions", file) for file in files.values())):
        if Path(path).expanduser().resolve() in written:
            raise MistakeError(f"{what}: {path} would be overwritten by the report; give another --output")


def _load(
    data: str, split: str | None, text_column: str | None, summary_column: str | None, limit: int | None, **on_hub: Any
) -> _Documents:
    quiet()
    from ..data import load_documents

    path = Path(data).expanduser()
    rows: Any = load_documents(
        path if path.exists() else data, split=split, text_column=text_column, summary_column=summary_column, **on_hub
    )
    own = [str(name or "") for name in rows["id"]] if "id" in rows.column_names else [""] * len(rows)
    seen: Counter[str] = Counter()
    # As `summarize` calls them.
    identifiers = [free_name(known or f"{data}:{number}", seen) for number, known in enumerate(own, start=1)]
    references = list(rows["summary"]) if "summary" in rows.column_names else None
    return _Documents(rows, identifiers, any(own), references, data, min(limit or len(rows), len(rows)))


def _read_rows(file: Path) -> list[dict[str, Any]]:
    """Read what `evaluate --predictions` or `summarize --output` wrote."""
    rows: list[dict[str, Any]] = []
    with mistakes(f"--predictions: {file} is no text", UnicodeDecodeError), file.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            with mistakes(f"--predictions: {file}:{number} is no JSON", ValueError):
                row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("summary"), str):
                raise MistakeError(f"--predictions: {file}:{number} has no summary; give what a command here wrote")
            rows.append(row)
    if not rows:
        raise MistakeError(f"--predictions: {file} is empty; it must have a summary of each document")
    return rows


def _match(what: str, rows: list[dict[str, Any]], documents: _Documents) -> list[str]:
    """Find the summary of each document: by its identifier, by its number in it, or by the order."""
    total = len(documents.identifiers)
    known = {identifier: number for number, identifier in enumerate(documents.identifiers)}
    named = [str(row.get("id") or "") for row in rows]
    counted = [re.fullmatch(r".*:(\d+)", name, re.DOTALL) for name in named]
    if documents.named and all(named):
        places = [known.get(name) for name in named]
    elif not documents.named and all(counted):
        # `summarize` numbers documents without identifiers after the name of their file, however that was written.
        numbers = [int(match[1]) for match in counted if match]
        places = [number - 1 if 0 < number <= total else None for number in numbers]
        if None in places and len(rows) == total and numbers == sorted(set(numbers)):
            places = list(range(total))  # lines that `summarize` set aside, and counted, are no longer there
    elif len(rows) in (total, len(documents)):
        places = list(range(len(rows)))
    else:
        has = f"{len(rows)} summaries, and {documents.data} has {total} documents"
        raise MistakeError(f"{what} has {has}; without ids, match both")
    found: dict[int, dict[str, Any]] = {}
    for number, (place, row) in enumerate(zip(places, rows, strict=True), start=1):
        if place is None:
            raise MistakeError(f"{what}: summary {number} is of {row['id']!r}, which is not among the documents")
        name = documents.identifiers[place]
        if place in found:
            raise MistakeError(f"{what} has several summaries of {name!r}")
        if documents.references and row.get("reference") not in (documents.references[place], None):
            raise MistakeError(
                f"{what}: summary {number} is of another document than {name!r}: their references differ"
            )
        found[place] = row
    if missing := [name for number, name in enumerate(documents.identifiers[: len(documents)]) if number not in found]:
        raise MistakeError(
            f"{what} has no summary of {len(missing)} of {len(documents)} documents, such as {missing[0]!r}; finish "
            "the job that makes them, or take fewer with --documents"
        )
    return [found[number]["summary"] for number in range(len(documents))]


def _generate(
    checkpoint: str,
    documents: _Documents,
    file: Path,
    settings: dict[str, Any],
    batch_size: int,
    device: str | None,
    dtype: Dtype,
) -> Any:
    """Summarize the documents that have no summary in the file yet; return the pipeline if one was loaded."""
    making = making_of(checkpoint, settings, dtype, None)
    names = documents.identifiers if file.exists() else []
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


def _draw_heatmaps(
    pipe: Any,
    name: str,
    documents: _Documents,
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
    pipe: Any, name: str, documents: _Documents, summaries: list[str], max_source_length: int | None
) -> dict[str, Any]:
    """Measure how spread out a model's attention over rows is."""
    from tqdm import tqdm

    from ..inspection import row_entropy

    both = ((document, summary) for (_, document), summary in zip(documents, summaries, strict=True))
    shown = tqdm(both, total=len(documents), desc="Measuring attention", disable=None)
    with mistakes(f"{name}: no entropy", ValueError):
        return asdict(row_entropy(pipe.model, pipe.processor, shown, max_source_length=max_source_length))
