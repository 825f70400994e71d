"""Batches of documents of like length: which come together, in which order their texts come, what a fault does."""

from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hier_models.pipelines.batching_hier import ALIKE, BUDGET, SHORT, WINDOW, in_batches


class Pipe:
    """A pipeline over documents that are no more than lengths; it keeps what came together."""

    def __init__(self, room: int = 10**9) -> None:
        self.batches: list[list[Any]] = []
        self.room = room  # tokens in memory

    def preprocess(self, document: Any) -> dict[str, Any]:
        if document == 0:
            raise ValueError("empty")
        rows = document if isinstance(document, tuple) else [document]
        return {"examples": SimpleNamespace(rows=rows, document=document)}

    def forward(self, inputs: dict[str, Any]) -> dict[str, Any]:
        batch = [example.document for example in inputs["examples"]]
        self.batches.append(batch)
        if sum(sum(example.rows) for example in inputs["examples"]) > self.room:
            raise torch.OutOfMemoryError("out of memory")
        return {"text": batch}

    def postprocess(self, outputs: dict[str, Any]) -> Any:
        [text] = outputs["text"]
        return text

    def run(self, documents: Any) -> Iterator[Any]:
        return in_batches(self, documents, {}, {}, {})


def test_those_of_like_length_come_together_the_first_always_among_them():
    pipe, documents = Pipe(), [1000, 200, 900, 220, 1000, 450, 210]
    results = pipe.run(documents)
    assert next(results) == 1000
    assert pipe.batches == [[1000, 1000, 900]]
    assert next(results) == 200
    assert pipe.batches[1:] == [[200, 210, 220]]
    assert list(results) == documents[2:]
    assert pipe.batches[2:] == [[450]]


def test_a_batch_has_so_many_tokens_with_the_padding():
    pipe = Pipe()
    assert list(pipe.run([600] * 3 + [900] * 6)) == [600] * 3 + [900] * 6
    assert pipe.batches == [[600, 600, 600, 900], [900] * 4, [900]]
    pipe = Pipe()
    assert list(pipe.run([3 * BUDGET, 5])) == [3 * BUDGET, 5]  # one always fits
    pipe = Pipe()
    list(pipe.run([5] * 100))
    assert [len(batch) for batch in pipe.batches] == [BUDGET // SHORT, BUDGET // SHORT, 100 - 2 * (BUDGET // SHORT)]


def test_what_is_read_in_several_rows_takes_their_room():
    pipe, page = Pipe(), (500, 400, 500, 300)
    assert list(pipe.run([page] * 3)) == [page] * 3
    assert pipe.batches == [[page, page], [page]]


@given(st.lists(st.integers(1, 2 * BUDGET), max_size=3 * WINDOW))
def test_every_document_comes_once_in_its_place(documents: list[int]):
    pipe, taken = Pipe(), 0

    def read() -> Iterator[int]:
        nonlocal taken
        for taken, document in enumerate(documents, 1):  # noqa: B007
            yield document

    for given_back, (document, result) in enumerate(zip(documents, pipe.run(read()), strict=True)):
        assert result == document
        assert taken <= given_back + WINDOW
    for batch in pipe.batches:
        lengths = [max(SHORT, length) for length in batch]
        assert max(lengths) <= ALIKE * min(lengths)
        assert len(batch) == 1 or len(batch) * max(lengths) <= BUDGET


def test_what_cannot_be_read_stops_nothing_before_it():
    pipe, texts = Pipe(), []
    with pytest.raises(ValueError, match="empty"):
        texts.extend(pipe.run([1000, 200, 1000, 0, 1000]))
    assert texts == [1000, 200, 1000]


def test_where_memory_is_short_batches_are_smaller():
    pipe = Pipe(room=2000)
    assert list(pipe.run([1000] * 8)) == [1000] * 8
    assert [len(batch) for batch in pipe.batches] == [4, 2, 2, 2, 2]
    with pytest.raises(torch.OutOfMemoryError):
        list(islice(Pipe(room=500).run([1000] * 8), 1))
