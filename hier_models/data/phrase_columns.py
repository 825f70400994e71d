"""The column with a document's own phrases, as the Highlight-Transformer's processor takes them."""

import json
import math
from collections.abc import Mapping
from typing import Any

from datasets import List, Value


PHRASES = "phrases"
FEATURE = List(
    {"text": Value("large_string"), "start": Value("int64"), "end": Value("int64"), "value": Value("float64")}
)
WANTED = (
    'a list of phrases: [phrase, value], [start, end, value], "phrase", or the same as {"text": …, "value": …} or '
    '{"start": …, "end": …, "value": …}, where it begins before it ends'
)


def read_phrases_column(value: Any) -> list[dict[str, Any]] | None:
    """Bring a document's phrases to one form."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except (ValueError, RecursionError):
            raise ValueError(f"must hold {WANTED}, got the text {value[:80]!r}, which is no JSON") from None
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(f"must hold {WANTED}, got a value of type {type(value).__name__}")
    return [_phrase(item) for item in value]


def has_places(phrases: list[dict[str, Any]] | None) -> bool:
    """Whether a phrase is given by its characters, which move with what stands before them."""
    return any(phrase["start"] is not None for phrase in phrases or ())


def _phrase(item: Any) -> dict[str, Any]:
    given = item
    if isinstance(item, str):
        item = {"text": item}
    elif isinstance(item, list | tuple) and len(item) in (2, 3):
        item = dict(zip(("text", "value") if len(item) == 2 else ("start", "end", "value"), item, strict=True))
    if isinstance(item, Mapping):
        found = {name: value for name, value in item.items() if value is not None}
        if set(found) in ({"text"}, {"text", "value"}, {"start", "end", "value"}) and _fits(found):
            return {name: found.get(name) for name in ("text", "start", "end", "value")}
    raise ValueError(f"must hold {WANTED} with values of 0 or more; got {str(given)[:80]}")


def _fits(phrase: dict[str, Any]) -> bool:
    text, value = phrase.get("text", "x"), phrase.get("value", 0)
    bounds = [phrase.get(name, default) for name, default in (("start", 0), ("end", 1))]
    return (
        isinstance(text, str)
        and bool(text.strip())
        and isinstance(value, int | float)
        and math.isfinite(value)
        and value >= 0
        and all(isinstance(bound, int) and bound >= 0 for bound in bounds)
        and not any(isinstance(number, bool) for number in (value, *bounds))
        and bounds[0] < bounds[1]
    )
