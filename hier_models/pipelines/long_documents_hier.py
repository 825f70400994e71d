"""Reading a document that is longer than the model can take in parts, between its articles, turns or sentences."""

import math
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch

from .chunking_hier import pack, sentence_spans, smaller_parts
from .document_pipeline_hier import Example, as_text


EVEN = 1.15  # parts are about as long as one another, and may be so much longer than the mean
_WORD = re.compile(r"\w+")

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


def central_sentences(sentences: list[str], sizes: list[int], room: int) -> list[str]:
    """Those that are most like all others, each once and in their order, as many as there is room for.

    Source: Erkan and Radev (2004), LexRank, section 3.1: degree centrality, here of cosines as they are.
    """
    words = [_WORD.findall(sentence.casefold()) for sentence in sentences]
    numbers = {word: number for number, word in enumerate(dict.fromkeys(chain.from_iterable(words)))}
    counts = torch.zeros(len(sentences), len(numbers))  # (sentences, words)
    for row, its in zip(counts, words, strict=True):
        for word in its:
            row[numbers[word]] += 1
    rareness = torch.log(len(sentences) / (counts > 0).sum(dim=0))  # (words,)
    unit = torch.nn.functional.normalize(counts * rareness)
    centrality = unit @ unit.sum(dim=0)  # (sentences,)
    kept: dict[str, int] = {}
    for number in centrality.argsort(descending=True, stable=True).tolist():
        if sizes[number] <= room and sentences[number] not in kept:
            kept[sentences[number]] = number
            room -= sizes[number]
    return sorted(kept, key=kept.__getitem__)


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
