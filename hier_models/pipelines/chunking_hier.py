"""Cutting long documents into chunks between sentences, for one language or for two that are kept aligned."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar


Item = TypeVar("Item")

# An end mark with what closes after it, before white space and something that can begin a sentence; the full stops of
# scripts that need no white space; a blank line.
_CLOSERS = "\"'”’»)\\]」』）"  # noqa: RUF001
_OPENERS = "\"'“„‘‚«(\\[¿¡"  # noqa: RUF001
STOPS = "。！？।॥۔؟"  # noqa: RUF001
# Marks in a row are read once, from the first on: the time is linear in the text.
_END = re.compile(
    rf"(?<![.!?…])[.!?…]++[{_CLOSERS}]*+(?=\s+[^\s\W\da-zß-öø-ÿ]|\s+[{_OPENERS}\d])|[{STOPS}][{_CLOSERS}]*|\n\s*\n"
)
# Not after a single letter ("J. Smith"), a number in German and its like ("am 3. Mai"), or these.
_NO_END = re.compile(
    r"(?:^|[\s(\"'“„])(?:[^\W\d_]|\d{1,2}|Mrs?|Ms|Dr|Prof|St|No|Nr|vs|etc|e\.g|i\.e|cf|bzw|Hr|Fr|vgl|d\.h|z\.B|M|Mme)\.$",
    re.IGNORECASE,
)
_NO_END_LENGTH = 15  # characters that are enough to know such an end
_CLAUSE = re.compile(r"(?<=[,;:–—])\s+")
_SPACE = re.compile(r"\s+")


def pack(
    sizes: Sequence[Sequence[int]],
    limits: Sequence[int | None],
    encode: Callable[[int, int], tuple[Item, Sequence[int]]],  # makes a chunk, and counts its tokens on each side
) -> Iterator[tuple[int, int, Item, bool]]:
    """Put as many neighbours together as the limits allow, by about their sizes; what does not fit is one element."""
    start = 0
    while start < len(sizes):
        end = start + 1
        total = list(sizes[start])
        while end < len(sizes):
            total = [a + b for a, b in zip(total, sizes[end], strict=True)]
            if not fits(total, limits):
                break
            end += 1
        item, lengths = encode(start, end)
        while end - start > 1 and not fits(lengths, limits):
            end -= 1
            item, lengths = encode(start, end)
        yield start, end, item, fits(lengths, limits)
        start = end


def fits(lengths: Sequence[int], limits: Sequence[int | None]) -> bool:
    """Say whether lengths are within limits."""
    return all(limit is None or length <= limit for length, limit in zip(lengths, limits, strict=True))


def plain_sentences(text: str) -> list[str]:
    """Find sentences by their marks, where there is no processor that does it better."""
    sentences = []
    start = 0
    for match in _END.finditer(text):
        end = match.end()
        while end > start and text[end - 1].isspace():
            end -= 1
        if end > start and not _NO_END.search(text[max(start, end - _NO_END_LENGTH) : end]):
            sentences.append(text[start:end].strip())
            start = match.end()
    return [*sentences, text[start:].strip()] if text[start:].strip() else sentences


def sentence_spans(text: str, processor: Any = None) -> list[tuple[int, int]]:
    """Find where the sentences of a text begin and end, in characters."""
    if hasattr(processor, "split_sentences"):
        return [(start, end) for start, end in processor.split_sentences(text)]
    spans: list[tuple[int, int]] = []
    for sentence in plain_sentences(text):
        start = text.index(sentence, spans[-1][1] if spans else 0)
        spans.append((start, start + len(sentence)))
    return spans


def smaller_parts(text: str) -> tuple[list[str], str]:
    """Take a text that is too long apart, into clauses, else words, else characters; and say what joins them."""
    for pattern in (_CLAUSE, _SPACE):
        parts = [part for part in pattern.split(text.strip()) if part]
        if len(parts) > 1:
            return parts, " "
    return list(text), ""


def join_chunks(texts: Sequence[Any]) -> str:
    """Join what was made of the chunks of a document."""
    return " ".join(text.strip() for text in texts if text.strip())
