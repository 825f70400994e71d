"""Documents and summaries from the Hub, from files and from folders, under the column names the package knows."""

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import datasets
from datasets import Dataset, Features, IterableDataset, Value
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

from .bad_lines import LoadReport, SetAside, check_set_aside_file
from .cache_fingerprint import source_version
from .cleaning import Fillers, check_digits, load_fillers
from .columns import COUNTS, DROPPED_TURNS, FILLER_WORDS, PROBLEMS, BadRecord, RowFormat, resolve_columns
from .data_files import canonical_split, files_of_split, local_files
from .document_files import SUBTITLE_SUFFIXES
from .record_readers import DATA_SUFFIXES, KINDS, TEXT_SUFFIXES, Kind, Record, data_suffix, document_name, read_records


logger = logging.getLogger(__name__)

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
BadLines = Literal["stop", "set_aside"]

# How many records may be looked at to find one that shows which columns there are.
RECORDS_TO_PEEK = 100
# Rows held in memory while a dataset is written to disk; documents can be long.
ROWS_IN_MEMORY = 100
PROBLEM = "_problem"


class BadLineError(ValueError):
    """A line that cannot be used, with its file and line number."""


class _NoDocumentsError(ValueError):
    """Files without any document of the split."""


@dataclass(frozen=True)
class _Settings:
    """All that decides what a file is read into: also the key of the cache."""

    format: RowFormat
    split: str | None
    bad_lines: BadLines
    state_of_files: tuple[tuple[str, int, int], ...]
    version: str

    @property
    def features(self) -> Features:
        return Features(self.format.features)


class LoadOptions(TypedDict, total=False):
    """What the loaders of all kinds of rows take beside a source and its columns; see `load_documents`."""

    split: str | None
    config_name: str | None
    revision: str | None
    streaming: bool
    bad_lines: BadLines
    set_aside_file: str | os.PathLike[str] | None
    report: LoadReport | None


def load_documents(
    source: Source,
    *,
    text_column: str | None = None,
    summary_column: str | None = None,
    source_kind: Kind | None = None,
    fillers: Fillers | None = None,
    phrases_column: str | None = None,
    several_references: bool = False,
    digits: str | None = None,
    query_column: str | None = "",
    **options: Unpack[LoadOptions],
) -> Dataset | IterableDataset:
    """Load documents, and their summaries if there are any.

    The source's column becomes one of `text` (a string), `sentences` (list of strings), `turns` (list of
    `{"role", "content"}`) or `documents` (list of strings: the articles of one input), by its name and its values, or
    as `source_kind` says; a dialogue may also be given as `[role, text]` pairs or as one string with a `role: words`
    line per turn, where a line without a role goes on with the turn before, and `sections` as `[heading, text]` pairs,
    which are joined. A turn without words is left out and counted. The summary becomes `summary` (a string; a list of
    strings is taken as the sentences of one summary and joined with newlines, or as several references) and the
    identifier `id`. Other columns are left out.

    Files of documents (PDF, Word, HTML, Markdown, subtitles) need `pip install "hier_models[files]"`. Of these there
    is a column `left_out`, which counts what is of the page and not of the text (running heads, page numbers,
    footnotes, the words of the reference list, …), and where there is a PDF `page_starts`, a list of `{"start",
    "page"}`: from which character of `text` on a page goes. Subtitles that name who speaks become `turns`.

    Local files are read into datasets' cache once and read again when their size or time changes.

    Args:
        source: One of: a .jsonl or .ndjson file (one JSON object a line), a .json file (the same, or an array of
            objects), a .csv or .tsv file with a header, a .txt, .pdf, .docx, .html, .md, .srt or .vtt file (one
            document), a folder of such documents (`id` is the path in the folder) or of data; all but the folder also
            with .gz, .xz or .bz2; several such files; or the id of a dataset on the Hub.
        text_column: The column with the source; None to recognise it by its name.
        summary_column: The column with the summary; None to recognise it by its name if it is there, "" for none.
        source_kind: What the source is turned into: `text`, `sentences`, `turns` or `documents`; None to tell by the
            column's name and value. With "turns", a string in any column is read as `role: words` lines,
            with "documents" as articles that are divided as those of Multi-News are (by |||||).
        fillers: Filler words to take out of the source, as meaningless in a speech transcript: "english" for the
            lexicon of the package, a file with one a line, or a list; see `hier_models.data.cleaning`. Turns and
            sentences that are left without words are left out; `report` counts both.
        phrases_column: The column with the user's own phrases of each document, which becomes `phrases`; in any of the
            forms that the Highlight-Transformer's processor takes, or null where it is to find them.
        several_references: Take each string of a list, or each line of a string, in the column of the summary for a
            summary of its own: the first becomes `summary`, all become `references` (list of strings), of which
            metrics count the best.
        digits: What every digit of sources and summaries, phrases and queries becomes, such as "#", as a word-level
            tokenizer writes them; None leaves them as they are.
        query_column: The column with what each summary is to answer, which becomes `query` (None where a record has
            none, or a blank one); None for `query`, if it is there, "" for none.
        **options: `split`: which part to load. On the Hub the split; in a folder the files whose name or subfolder
            says so (train, validation, valid, val, dev, test); otherwise the records whose column `split` says so.
            None loads everything, and refuses a folder or a Hub dataset that has several splits.
            `config_name` and `revision` (branch, tag or commit) are of a dataset on the Hub.
            `streaming=True` returns an `IterableDataset` that reads while it is iterated over, in bounded memory.
            `bad_lines`: what to do with a line that cannot be used (broken JSON or CSV, invalid UTF-8, a missing
            column, a wrong type, an empty source or summary): "stop" raises `BadLineError`; "set_aside" writes it to
            `set_aside_file` and goes on, as JSON lines with `file`, `line`, `reason` and `raw`; the file is written
            anew by every call, but never over anything else.
            `report`, if passed, is given the number of lines set aside.

    Returns:
        A `Dataset`, or an `IterableDataset` with `streaming=True`.

    Raises:
        BadLineError: If a line cannot be used and `bad_lines` is "stop". With `streaming=True` it is raised when the
            line is reached.
        FileNotFoundError: If the source is neither here nor on the Hub.
        ValueError: If an argument does not fit, if the columns cannot be told apart, or if no document is left.
    """
    if source_kind is not None and source_kind not in KINDS:
        raise ValueError(f"source_kind must be one of {', '.join(KINDS)}, got {source_kind!r}")
    if digits is not None:
        check_digits(digits)
    resolve = partial(
        resolve_columns,
        text_column=text_column,
        summary_column=summary_column,
        source_kind=source_kind,
        fillers=() if fillers is None else load_fillers(fillers),
        phrases_column=phrases_column,
        several_references=several_references,
        digits=digits,
        query_column=query_column,
    )
    report = options["report"] = options.get("report") or LoadReport()
    rows = load_rows(source, resolve, **options)
    if not set(COUNTS) <= set(rows.column_names or ()):
        return rows
    if isinstance(rows, IterableDataset):
        features = Features({name: rows.features[name] for name in rows.features if name not in COUNTS})
        return rows.map(partial(_count_left_out, report), remove_columns=list(COUNTS), features=features)
    words, turns = (sum(rows[name]) for name in COUNTS)
    report.add_left_out(words, turns)
    if words or turns:
        logger.warning("%s: %d filler words taken out, %d turns without words left out", source, words, turns)
    return rows.remove_columns(list(COUNTS))


def _count_left_out(report: LoadReport, row: dict[str, Any]) -> dict[str, Any]:
    """Count as a stream goes by."""
    report.add_left_out(row[FILLER_WORDS], row[DROPPED_TURNS])
    return {}


def load_rows(
    source: Source,
    resolve: Callable[[Mapping[str, Any]], RowFormat],
    *,
    split: str | None = None,
    config_name: str | None = None,
    revision: str | None = None,
    streaming: bool = False,
    bad_lines: BadLines = "stop",
    set_aside_file: str | os.PathLike[str] | None = None,
    report: LoadReport | None = None,
) -> Dataset | IterableDataset:
    """Load rows of any kind as `load_documents` loads documents, which see for the sources."""
    if bad_lines not in ("stop", "set_aside"):
        raise ValueError(f"bad_lines must be 'stop' or 'set_aside', got {bad_lines!r}")
    if (bad_lines == "set_aside") != (set_aside_file is not None):
        raise ValueError(f"set_aside_file goes with bad_lines='set_aside'; got {bad_lines=} and {set_aside_file=}")
    files = local_files(source)
    if set_aside_file is not None:
        check_set_aside_file(Path(set_aside_file), source, files or [])
    for name, value in (("config_name", config_name), ("revision", revision)):
        if value is not None and files is not None:
            raise ValueError(f"{name}={value!r} is for datasets on the Hub; {str(source)!r} is local")
    # Made last, since it empties the file: a mistake in the other arguments must not cost the last run's bad lines.
    report = report or LoadReport()
    if files is None:
        raw = _from_hub(str(source), config_name, revision, split, streaming)
        row_format = _format_of_hub(raw, resolve)
        settings = _Settings(row_format, None, bad_lines, (), source_version())
        set_aside = None if set_aside_file is None else SetAside(os.fspath(set_aside_file), report)
        return _normalized_hub(raw, str(source), settings, set_aside)
    files, row_split = files_of_split(files, split)
    row_format = _format_of_files(files, resolve, bad_lines)
    state = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path, _ in files)
    settings = _Settings(row_format, row_split, bad_lines, state, source_version())
    set_aside = None if set_aside_file is None else SetAside(os.fspath(set_aside_file), report)
    names = [(str(path), name) for path, name in files]
    if streaming:
        # datasets takes a list among the arguments for shards, which data loader workers share out among themselves.
        arguments = {"files": names, "settings": settings, "set_aside": set_aside}
        return IterableDataset.from_generator(_stream, features=settings.features, gen_kwargs=arguments)
    arguments = {"files": tuple(names), "settings": settings}
    features = settings.features if set_aside is None else _with_problem(settings.features)
    try:
        dataset = Dataset.from_generator(
            _generate_some, features=features, gen_kwargs=arguments, writer_batch_size=ROWS_IN_MEMORY
        )
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, BadLineError | _NoDocumentsError):
            raise error.__cause__ from None
        raise
    return _without_problems(dataset, str(source), set_aside)


def _format_of_files(
    files: list[tuple[Path, str]], resolve: Callable[[Mapping[str, Any]], RowFormat], bad_lines: BadLines
) -> RowFormat:
    problem: Exception | None = None
    # PDFs first: where there is one, all documents have a column for pages. Last, what nothing is left out of, which
    # others have a column for: plain texts, and subtitles, which may be dialogues.
    last = (*TEXT_SUFFIXES, *SUBTITLE_SUFFIXES)
    files = sorted(files, key=lambda file: (data_suffix(file[0]) != ".pdf", data_suffix(file[0]) in last))
    every = (record for path, name in files for record in read_records(path, document_name(Path(name))))
    records: Iterable[Record] = islice(every, RECORDS_TO_PEEK)
    known: dict[str, Any] = {}
    if all(data_suffix(path) in DATA_SUFFIXES for path, _ in files):
        records = list(records)
        for record in reversed(records):  # of each column the first value stays
            known |= record.row or {}
    for record in records:
        found = []
        lacking = known.keys() - (record.row or {}).keys()  # columns that only others have
        for others in ({}, known) if lacking else ({},):
            try:
                found.append(resolve(others | _row_of(record)))
            except ValueError as error:
                problem = problem or type(error)(f"{record.file}:{record.line}: {error}")
        if found:
            return found[-1] if _says_no_other(found[0], found[-1]) else found[0]
        if bad_lines == "stop":
            break
    if problem is None:
        raise ValueError(f"source: no records in {', '.join(str(path) for path, _ in files[:5])}")
    if isinstance(problem, BadRecord):
        raise BadLineError(str(problem))
    raise problem


def _says_no_other(own: RowFormat, fuller: RowFormat) -> bool:
    """Whether one only fills in columns that the other does not know."""
    return all(value in (None, getattr(fuller, name)) for name, value in vars(own).items())


def _row_of(record: Record) -> dict[str, Any]:
    if record.row is None:
        raise BadRecord(record.problem)
    return record.row


# Reading them


def _stream(files: list[tuple[str, str]], settings: _Settings, set_aside: SetAside | None) -> Iterator[dict[str, Any]]:
    """The good documents; a bad line stops the stream or goes straight to the file."""
    for document in _generate(files, settings):
        problem = document.pop(PROBLEM, None)
        if problem is None:
            yield document
        elif set_aside is not None:
            set_aside.add(problem)


def _generate_some(files: Sequence[tuple[str, str]], settings: _Settings) -> Iterator[dict[str, Any]]:
    """The documents of the files, at least one: what datasets says of a file without rows is of no help."""
    documents = _generate(files, settings)
    first = next(documents, None)
    if first is None:
        where = "" if settings.split is None else f" with split={settings.split!r}"
        raise _NoDocumentsError(f"source: no documents in {', '.join(path for path, _ in files[:5])}{where}")
    yield first
    yield from documents


def _generate(files: Sequence[tuple[str, str]], settings: _Settings) -> Iterator[dict[str, Any]]:
    """The documents of the files, the bad lines among them as rows that hold only a problem.

    They are rows so that they are part of what datasets caches: the bad lines of a file are reported whenever it is
    loaded, also when it is not read again.
    """
    splits: set[str] = set()
    for path, name in files:
        for record in read_records(Path(path), document_name(Path(name))):
            document = None
            try:
                row = _row_of(record)
                if settings.split is not None and not in_split(row, settings.split):
                    continue
                document, parts = _normalized(row, settings)
                splits = _noted_splits(splits, row, settings.split)
            except BadRecord as error:
                if settings.bad_lines == "stop":
                    raise BadLineError(f"{record.file}:{record.line}: {error}") from None
                parts = [(str(error), record.raw)]
            for reason, raw in parts:
                entry = _entry(record.file, record.line, reason, raw)
                yield {**dict.fromkeys(settings.features), PROBLEM: entry}
            if document is not None:
                yield document if settings.bad_lines == "stop" else {**document, PROBLEM: None}


def _normalized(row: Mapping[str, Any], settings: _Settings) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The document, and the parts of the record that had to be left out of it, which are as bad as bad lines."""
    document = settings.format.normalize(row)
    parts = document.pop(PROBLEMS, [])
    if parts and settings.bad_lines == "stop":
        raise BadRecord(parts[0][0])
    return document, parts


def in_split(row: Mapping[str, Any], split: str) -> bool:
    """Tell whether a record says that it is of a split, by whichever of its names."""
    if not isinstance(row.get("split"), str):
        raise BadRecord(f"{split=} was asked for, but no file's name and no column 'split' of this record says so")
    return canonical_split(row["split"]) == canonical_split(split)


def _noted_splits(splits: set[str], row: Mapping[str, Any], split: str | None) -> set[str]:
    named = row.get("split")
    if split is not None or not isinstance(named, str) or named in splits:
        return splits
    if len(splits) == 1:
        logger.warning(
            "the records belong to several splits (%s, %s, …) and all are loaded; pass split=… for one", *splits, named
        )
    return splits | {named}


def _entry(file: str, line: int, reason: str, raw: str) -> str:
    entry = {"file": file, "line": line, "reason": reason, "raw": raw}
    text = json.dumps(entry, ensure_ascii=False)
    # Bytes that were no UTF-8 are surrogates here, which only JSON's own escapes can carry.
    return text if text.isascii() or not re.search("[\ud800-\udfff]", text) else json.dumps(entry)


def _with_problem(features: Features) -> Features:
    return Features({**features, PROBLEM: Value("large_string")})


def _without_problems(dataset: Dataset, source: str, set_aside: SetAside | None) -> Dataset:
    if set_aside is not None:
        problems = dataset[PROBLEM][:]  # read at once: row by row takes a minute for Wikipedia
        entries = [problem for problem in problems if problem is not None]
        if entries:
            for entry in entries:
                set_aside.add(entry)
            dataset = dataset.select([number for number, problem in enumerate(problems) if problem is None])
            logger.warning("%s: %d of %d lines set aside in %s", source, len(entries), len(problems), set_aside.path)
        dataset = dataset.remove_columns(PROBLEM)
    if len(dataset) == 0:
        aside = "" if set_aside is None else f"; the bad lines are in {set_aside.path}"
        raise ValueError(f"source: no usable documents in {source}{aside}")
    return dataset


# The Hub


def _from_hub(
    source: str, config_name: str | None, revision: str | None, split: str | None, streaming: bool
) -> Dataset | IterableDataset:
    try:
        loaded = datasets.load_dataset(source, config_name, revision=revision, split=split, streaming=streaming)
    except (DatasetNotFoundError, ConnectionError) as error:
        problem = f"{source!r} is no file or folder here, and loading it from the Hub failed"
        raise FileNotFoundError(f"source: {problem}: {error}") from error
    if isinstance(loaded, dict):
        if len(loaded) > 1:
            raise ValueError(f"split: {source} has the splits {', '.join(loaded)}; pass split=… with one of them")
        (loaded,) = loaded.values()
    return loaded


def _format_of_hub(raw: Dataset | IterableDataset, resolve: Callable[[Mapping[str, Any]], RowFormat]) -> RowFormat:
    problem: Exception | None = None
    for row in islice(iter(raw), RECORDS_TO_PEEK):
        try:
            return resolve(row)
        except BadRecord as error:  # one empty record must not decide what the column is
            problem = problem or error
    raise problem or ValueError("source: the dataset is empty")


@dataclass
class _Normalizer:
    """Maps a batch of raw rows to documents, for `map` of either kind of dataset."""

    source: str
    settings: _Settings
    set_aside: SetAside | None
    keep_problems: bool

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        names = [*self.settings.features, *([PROBLEM] if self.keep_problems else [])]
        documents: dict[str, list[Any]] = {name: [] for name in names}
        for number, index in enumerate(indices):
            row = {name: values[number] for name, values in batch.items()}
            try:
                normalized, parts = _normalized(row, self.settings)
            except BadRecord as error:
                if self.settings.bad_lines == "stop":
                    raise BadLineError(f"{self.source}: row {index + 1}: {error}") from None
                normalized, parts = None, [(str(error), json.dumps(row, default=str))]
            entries = [_entry(self.source, index + 1, *part) for part in parts]
            if self.set_aside is not None:
                for entry in entries:
                    self.set_aside.add(entry)
            rows = [{PROBLEM: entry} for entry in entries if self.keep_problems]
            for document in rows if normalized is None else [*rows, normalized]:
                for name, values in documents.items():
                    values.append(document.get(name))
        return documents


def _normalized_hub(
    raw: Dataset | IterableDataset, source: str, settings: _Settings, set_aside: SetAside | None
) -> Dataset | IterableDataset:
    streamed = isinstance(raw, IterableDataset)
    keep_problems = set_aside is not None and not streamed
    options: dict[str, Any] = {
        "batched": True,
        "batch_size": ROWS_IN_MEMORY,
        "with_indices": True,
        "remove_columns": raw.column_names or list(next(iter(raw))),
        "features": _with_problem(settings.features) if keep_problems else settings.features,
    }
    if streamed:
        return raw.map(_Normalizer(source, settings, set_aside, keep_problems), **options)
    # The file is left out, so that where the bad lines go is no part of the cache's key.
    dataset = raw.map(_Normalizer(source, settings, None, keep_problems), desc="Reading documents", **options)
    return _without_problems(dataset, source, set_aside)
