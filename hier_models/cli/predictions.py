"""Summaries that were made before, and the documents of a test set that they are of."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.record_readers import KINDS
from .documents import free_name
from .errors import MistakeError, local_path, mistakes
from .loading import quiet


@dataclass
class LoadedDocuments:
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


def read_named(option: str, given: list[str] | None) -> dict[str, str]:
    """Read [NAME=]VALUE, name -> value; without a name it is the last part of the path."""
    found: dict[str, str] = {}
    for entry in given or []:
        name, equals, value = entry.partition("=")
        if not equals or "/" in name or os.path.exists(local_path(entry)):
            path = local_path(entry)
            name, value = (path.name if path.is_dir() or option == "--model" else path.stem), entry
        if not value:
            raise MistakeError(f"{option}: got {entry!r}; write NAME=VALUE, or only the value")
        if not re.fullmatch(r"[\w.+-]+", name) or name.startswith("."):
            raise MistakeError(f"{option}: {name!r} cannot be part of a file's name; give letters: NAME={value}")
        if name in found:
            raise MistakeError(f"{option}: two are called {name!r}; give them names: NAME={value}")
        found[name] = value
    return found


def check_predictions(files: Mapping[str, str]) -> None:
    """Refuse, before the work begins, files that are not there."""
    for name, file in files.items():
        if not local_path(file).is_file():
            raise MistakeError(f"--predictions: there is no file {file!r} (for {name})")


def read_predictions(files: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Read what each system wrote."""
    return {name: read_rows(local_path(file)) for name, file in files.items()}


def have_references(given: Mapping[str, list[dict[str, Any]]]) -> bool:
    """Whether predictions say what they are to be compared with."""
    return any("reference" in row for rows in given.values() for row in rows)


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Read what `evaluate --predictions` or `summarize --output` wrote."""
    rows: list[dict[str, Any]] = []
    with mistakes(f"--predictions: {file} is no text", UnicodeDecodeError), file.open(encoding="utf-8-sig") as stream:
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


def load_test_set(
    data: str, split: str | None, text_column: str | None, summary_column: str | None, limit: int | None, **on_hub: Any
) -> LoadedDocuments:
    """Load the documents; a summary column of "" for none, None for one that is recognized by its name."""
    quiet()
    from ..data import load_documents

    path = local_path(data)
    rows: Any = load_documents(
        path if path.exists() else data, split=split, text_column=text_column, summary_column=summary_column, **on_hub
    )
    own = [str(name or "") for name in rows["id"]] if "id" in rows.column_names else [""] * len(rows)
    seen: Counter[str] = Counter()
    # As `summarize` calls them.
    identifiers = [free_name(known or f"{data}:{number}", seen) for number, known in enumerate(own, start=1)]
    references = list(rows["summary"]) if "summary" in rows.column_names else None
    return LoadedDocuments(rows, identifiers, any(own), references, data, min(limit or len(rows), len(rows)))


def match_predictions(
    given: Mapping[str, list[dict[str, Any]]], files: Mapping[str, str], documents: LoadedDocuments
) -> dict[str, list[str]]:
    """Find each system's summary of each document."""
    return {name: match_summaries(f"--predictions: {files[name]}", rows, documents) for name, rows in given.items()}


def match_summaries(what: str, rows: list[dict[str, Any]], documents: LoadedDocuments) -> list[str]:
    """Find the summary of each document: by its identifier, by its number in it, or by the order."""
    total = len(documents.identifiers)
    known = {identifier: number for number, identifier in enumerate(documents.identifiers)}
    seen: Counter[str] = Counter()
    named = ["" if row.get("id") is None else str(row["id"]) for row in rows]  # an id may be 0
    # `evaluate` does not number documents of one name.
    named = [free if name and (free := free_name(name, seen)) in known else name for name in named]
    counted = [re.fullmatch(r".*:(\d+)", name, re.DOTALL) for name in named]
    by_name = documents.named and all(named)
    if by_name:
        places = [known.get(name) for name in named]
    elif not documents.named and all(counted):
        # `summarize` numbers documents without identifiers after the name of their file, however that was written.
        numbers = [int(match[1]) for match in counted if match]
        places = [number - 1 if 0 < number <= total else None for number in numbers]
        if None in places and len(rows) == total and numbers == sorted(set(numbers)):
            places = list(range(total))  # lines that `summarize` set aside, and counted, are no longer there
    elif len(rows) in (total, len(documents)):
        places = list(range(len(rows)))
        for number, (name, other) in enumerate(zip(named, documents.identifiers, strict=False)):
            if name and known.get(name, None if documents.named else number) != number:
                stands = f"stands in the place of {other!r}; give every summary its id"
                raise MistakeError(f"{what}: summary {number + 1} is of {name!r}, but {stands}")
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
        # Under one name a reference may have been changed, as by `evaluate --digits`, or be the first of several.
        if not by_name and documents.references and row.get("reference") not in (documents.references[place], None):
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
