"""Reading a document that is longer than the model can take in parts, between its articles, turns or sentences.

Exported checkpoints carry a copy of this file, so it needs nothing but the standard library.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from .chunking_hier import pack, sentence_spans, smaller_parts
from .document_pipeline_hier import Example, as_text


# Parts are about as long as one another, and may be so much longer than the mean.
EVEN = 1.15

Encode = Callable[[str, Any], Example]


def tokens_of(example: Example) -> int:
    """How many tokens a document has, with those that were cut."""
    return len(example) + example.counts["num_truncated_tokens"]


def parts_of(
    name: str, value: Any, tokens: int, limit: int, encode: Encode, processor: Any = None
) -> Iterator[Example]:
    """Cut a document of so many tokens into parts that the model can take."""
    texts, slice_ = _pieces(name, value, processor)
    if tokens <= limit or (name == "text" and len(texts) < 2):
        yield encode(name, value)
        return
    rate = tokens / max(1, sum(map(len, texts)))  # of tokens in a character
    sizes = [[math.ceil(rate * len(text))] for text in texts]
    even = tokens / math.ceil(tokens / limit)
    limits = [min(limit, math.ceil(EVEN * even))]

    def encoded(start: int, end: int) -> tuple[Example, list[int]]:
        example = encode(name, slice_(start, end))
        return example, [tokens_of(example)]

    for start, _, example, _ in pack(sizes, limits, encoded):
        if tokens_of(example) <= limit:
            yield example
        else:  # one piece that is too long
            yield from parts_of("text", texts[start], tokens_of(example), limit, encode, processor)


def _pieces(name: str, value: Any, processor: Any) -> tuple[list[str], Callable[[int, int], Any]]:
    """The text of each piece of a document, and what makes a document of some that follow one another."""
    if name != "text":
        items = list(value)
        return [as_text(name, [item], replace=True) for item in items], lambda start, end: items[start:end]
    spans = sentence_spans(value, processor)
    if len(spans) > 1:
        return [value[a:b] for a, b in spans], lambda start, end: value[spans[start][0] : spans[end - 1][1]]
    texts, joiner = smaller_parts(value)
    return texts, lambda start, end: joiner.join(texts[start:end])
