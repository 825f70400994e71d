"""Whether the training documents of a comparison share text with its test documents."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..data.data_files import files_of_split
from ..data.loading import in_split
from ..data.overlap import Document, documents_of_file, find_overlaps, texts_of_record
from ..data.record_readers import read_records
from ..training.arguments import Recipe, RecipeError
from .comparison_settings import Comparison


def check_overlap(comparison: Comparison, recipe: Recipe) -> str:
    """Refuse training documents that share text with test documents."""
    if comparison.check_overlap is False:
        return "not checked"
    data = recipe.data
    test = _file(data.test if data.test is not None else data.train)
    train = _file(data.train)
    further = [] if comparison.check_overlap is True else [Path(file) for file in comparison.check_overlap]
    if gone := [file for file in further if not file.is_file()]:
        raise RecipeError(f"comparison: check_overlap: there is no file {str(gone[0])!r}")
    if test is None or (data.test is None and data.test_split is None):
        if further:
            raise RecipeError("comparison: check_overlap: the test data are in no file of their own")
        return "not checked (the test data are in no file of their own)"

    if train is None:
        if further:
            raise RecipeError("comparison: check_overlap: the training data are in no file; they cannot be looked at")
        return "not checked (the training data are in no file)"

    # Each by itself: the same text in several files would be in more documents, and be taken for a formula.
    searched = [(train, _documents(train, data.train_split)), *((file, documents_of_file(file)) for file in further)]
    documents = 0
    for file, training in searched:
        report = find_overlaps(training, _documents(test, data.test_split))
        documents += report.documents
        for what, found, name, split in (
            ("training", report.documents, file, data.train_split if file is train else None),
            ("test", report.held_out, test, data.test_split),
        ):
            if not found:
                where = name if split is None else f"the split {split!r}"
                raise RecipeError(f"comparison: check_overlap: no {what} documents were found for {where}")
        if report.overlaps:
            raise RecipeError(f"comparison: {file}: {report}. Take them out, or set check_overlap: false")
    return f"none of {documents} training documents shares text with {report.held_out} test documents"


def _file(source: str | None) -> Path | None:
    path = Path(source or "").expanduser()
    return path if path.is_file() else None


def _documents(file: Path, split: str | None) -> Iterator[Document]:
    """The documents of a split, as they are loaded: all where the file's name says that it is one of them."""
    _, split = files_of_split([(file, file.name)], split)
    if split is None:
        yield from documents_of_file(file)
        return
    for record in read_records(file, file.name):
        if record.row is not None and in_split(record.row, split):
            yield str(record.row.get("id") or f"{file.name}:{record.line}"), texts_of_record(record.row)


def with_own_data(recipes: Iterable[Recipe]) -> list[Recipe]:
    """The first of those that have the same data."""
    found: dict[Any, Recipe] = {}
    for recipe in recipes:
        data = recipe.data
        found.setdefault((data.train, data.train_split, data.test, data.test_split), recipe)
    return list(found.values())
