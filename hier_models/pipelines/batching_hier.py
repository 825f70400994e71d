"""Batches of documents of like length: which come together, and the texts of all in the order of the documents."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers.pipelines.base import ChunkPipeline


AUTO = "auto"  # as `batch_size`
ALIKE = 2.0  # lengths in one batch are at most so many times one another: all are padded to the longest
SHORT = 100  # tokens; among shorter ones the length does not matter
WINDOW = 64  # documents, or chunks, that are read ahead to find those of like length
BUDGET = 4096  # tokens of a batch, with the padding


def alike(one: int, other: int) -> bool:
    """Say whether documents of two lengths can be in one batch."""
    return _apart(one, other) <= ALIKE


def _apart(one: int, other: int) -> float:
    return max(one, other) / min(one, other)


@dataclass(eq=False)
class _Chunk:
    """What the model reads at once: a document, or a part of one."""

    example: Any
    output: dict[str, Any] | None = None

    @property
    def length(self) -> int:
        longest: int = max(SHORT, *self.example.rows)
        return longest


def in_batches(
    pipe: Any, documents: Iterable[Any], before: dict[str, Any], during: dict[str, Any], after: dict[str, Any]
) -> Iterator[Any]:
    """Run a pipeline over documents, with the arguments of its three parts; what it gives comes in their order.

    The first document that has no text yet is always of the next batch, with those of the next ones that are most
    like it, so that little is lost when a job is stopped.
    """
    ahead, budget = iter(documents), BUDGET
    failure: Exception | None = None
    waiting: deque[list[_Chunk]] = deque()
    while True:
        while failure is None and sum(map(len, waiting)) < WINDOW:
            try:
                read = pipe.preprocess(next(ahead), **before)
                waiting.append([_Chunk(one["examples"]) for one in ([read] if isinstance(read, dict) else read)])
            except Exception as error:  # raised when all before it have their texts
                failure = error
        if not waiting:
            break
        batch = _chosen([chunk for chunks in waiting for chunk in chunks if chunk.output is None], budget)
        try:
            outputs = pipe.forward({"examples": [chunk.example for chunk in batch]}, **during)
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                raise
            budget = _cost(batch) // 2
            continue
        for number, chunk in enumerate(batch):
            chunk.output = {name: values[number : number + 1] for name, values in outputs.items()}
        while waiting and all(chunk.output is not None for chunk in waiting[0]):
            written = [chunk.output for chunk in waiting.popleft()]
            yield pipe.postprocess(written if isinstance(pipe, ChunkPipeline) else written[0], **after)
    if failure is not None and not isinstance(failure, StopIteration):
        raise failure


def _chosen(waiting: list[_Chunk], budget: int) -> list[_Chunk]:
    """The first, and as many as there is room for of those that are most like it."""
    # Equals in their order.
    first, *others = sorted(waiting, key=lambda chunk: _apart(chunk.length, waiting[0].length))
    batch = [first]
    for chunk in others:
        lengths = [each.length for each in (*batch, chunk)]
        if not alike(min(lengths), max(lengths)) or _cost([*batch, chunk]) > budget:
            break
        batch.append(chunk)
    return batch


def _cost(batch: list[_Chunk]) -> int:
    """Tokens of a batch, with the padding."""
    return sum(len(chunk.example.rows) for chunk in batch) * max(chunk.length for chunk in batch)
