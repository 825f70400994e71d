"""Phrases of a document: reading those that are given, finding them in the text, and which tokens they are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .phrase_words import find_phrase


Spans = tuple[tuple[int, int], ...]

_WANTED = "(phrase, value), (start, end, value) with characters of the document, or a phrase alone"
# The same as objects, as JSON and Arrow have them.
_FORMS = (("text", "value"), ("start", "end", "value"))


@dataclass(frozen=True)
class Phrase:
    """A phrase and where it is."""

    text: str  # The phrase
    value: float  # Its importance, 0 or more
    spans: Spans  # Where its occurrences begin and end, in characters of the running text; none where it is not found
    cut: int = 0  # How many more occurrences are in the document, of which truncation took some or all


def read_phrases(name: str, given: object, text: str, articles: Sequence[tuple[int, int]]) -> list[Phrase]:
    """Check the phrases given with a document, and find them."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise TypeError(f"`{name}` must be a list of {_WANTED}, got {type(given).__name__}")
    alone = [_alone(item) for item in given]
    value = 1 / math.sqrt(max(1, sum(phrase is not None for phrase in alone)))
    return [
        _read_phrase(f"{name}[{i}]", item if phrase is None else (phrase, value), text, articles)
        for i, (item, phrase) in enumerate(zip(given, alone, strict=True))
    ]


def _alone(item: object) -> str | None:
    """Give the phrase of an item that has no value."""
    if isinstance(item, Mapping) and {name for name, value in item.items() if value is not None} == {"text"}:
        item = item["text"]
    return item if isinstance(item, str) else None


def _read_phrase(place: str, item: object, text: str, articles: Sequence[tuple[int, int]]) -> Phrase:
    if isinstance(item, Mapping):
        item = {name: value for name, value in item.items() if value is not None}  # Arrow has all names everywhere
        names = next((names for names in _FORMS if set(item) == set(names)), None)
        if names is None:
            raise ValueError(f"`{place}` must have the keys text, value or start, end, value, got {list(item)}")
        item = tuple(item[name] for name in names)
    if isinstance(item, bytes) or not isinstance(item, Sequence) or len(item) not in (2, 3):
        raise TypeError(f"`{place}` must be {_WANTED}, got {str(item)[:80]}")
    *where, value = item
    if isinstance(value, bool | str) or not isinstance(value, int | float | np.number):
        raise TypeError(f"`{place}` must end with its value, a number of 0 or more, got {value!r}")
    if not 0 <= value <= float(np.finfo(np.float32).max):
        raise ValueError(f"`{place}` must have a finite value of 0 or more, got {value}; it is kept in float32")
    if len(where) == 1:
        phrase = where[0]
        if not isinstance(phrase, str):
            raise TypeError(f"`{place}` must be {_WANTED}, got {str(item)[:80]}")
        if not phrase.strip():
            raise ValueError(f"`{place}` is blank; give a phrase with at least one character that is no space")
        spans = tuple(span for start, end in articles for span in find_phrase(phrase, text, start, end))
        return Phrase(phrase, float(value), spans)
    if not all(isinstance(bound, int | float | np.number) and not isinstance(bound, bool) for bound in where):
        raise TypeError(f"`{place}` must be {_WANTED}, got {str(item)[:80]}")
    start, end = where
    if not (0 <= start < end <= len(text)) or start % 1 or end % 1:
        raise ValueError(
            f"`{place}` must begin before it ends, within the document's {len(text)} characters, got "
            f"({start:g}, {end:g})"
        )
    start, end = int(start), int(end)
    return Phrase(text[start:end], float(value), ((start, end),))


def place_phrases(
    phrases: Sequence[Phrase],
    offsets: "np.ndarray[Any, Any]",  # (tokens, 2)
    kept: Sequence[tuple[int, int]],
    longest: int,
    refuse: bool,
) -> dict[str, Any]:
    """Find the tokens of phrases among those that are kept."""
    stays = np.zeros(len(offsets) + 1, dtype=np.int64)
    for a, b in kept:
        stays[a + 1 : b + 1] = 1
    kept_before = np.cumsum(stays)  # (tokens + 1,)
    # A token of no characters, such as a word mark, stands where the one before it ends.
    starts, ends = np.maximum.accumulate(offsets).T
    positions, values, report = [], [], []
    missing = truncated = too_long = 0
    for phrase in phrases:
        bounds = np.asarray(phrase.spans, dtype=np.int64).reshape(-1, 2)
        first, stop = np.searchsorted(ends, bounds[:, 0], side="right"), np.searchsorted(starts, bounds[:, 1])
        tokens = np.stack([first, stop], axis=1)[first < stop]  # (occurrences, 2), all that have a character of it
        left = kept_before[tokens]
        lengths = left[:, 1] - left[:, 0]
        missing += not len(tokens) and not phrase.cut
        truncated += phrase.cut + int((lengths < tokens[:, 1] - tokens[:, 0]).sum())
        if refuse and lengths.max(initial=0) > longest:
            raise ValueError(
                f"`phrases`: {phrase.text[:80]!r} has {lengths.max()} tokens, more than max_phrase_length="
                f"{longest}; give shorter ones, or set it higher here and in the model's config"
            )
        too_long += int((lengths > longest).sum())
        left = 1 + left[(lengths > 0) & (lengths <= longest)]
        tokens_left = [(a, b) for a, b in left.tolist()]
        report.append(
            {"text": phrase.text, "value": phrase.value, "spans": list(phrase.spans), "positions": tokens_left}
        )
        if phrase.value > 0:
            positions += tokens_left
            values += [phrase.value] * len(tokens_left)
    return {
        "phrase_positions": positions,
        "phrase_values": values,
        "num_missing_phrases": missing,
        "num_truncated_phrases": truncated,
        "num_long_phrases": too_long,
        "phrases": report,
    }


def shares(lengths: Sequence[int], budget: int) -> list[int]:
    """Share out tokens among articles: an equal part each, and what one leaves over to the others (section 4.1)."""
    kept = [0] * len(lengths)
    for done, i in enumerate(sorted(range(len(lengths)), key=lambda i: lengths[i])):
        kept[i] = min(lengths[i], budget // (len(lengths) - done))
        budget -= kept[i]
    return kept
