"""Reading the Highlight-Transformer's input: articles, sentences or turns to the parts of one running text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_text(name: str, value: object) -> str:
    """Check that a value is text; surrogates, which tokenizers cannot take, become U+FFFD one for one."""
    if not isinstance(value, str):
        raise TypeError(f"`{name}` must be a string, got {type(value).__name__}")
    return value if value.isascii() else LONE_SURROGATE.sub("\ufffd", value)


def read_items(name: str, value: object, wanted: str) -> list[Any]:
    """Check that a value is a list (or another sequence, such as a data set's column)."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(f"`{name}` must be {wanted}, got {type(value).__name__}")
    return list(value)


def read_batch(name: str, value: object, item: type, wanted: str) -> tuple[list[tuple[str, list[Any]]], bool]:
    """Return named lists of items, one per document, and whether the value was a batch of such lists."""
    outer = read_items(name, value, f"{wanted}, or a list of such lists")
    if not outer or isinstance(outer[0], item):
        return [(name, outer)], False
    return [(f"{name}[{i}]", read_items(f"{name}[{i}]", inner, wanted)) for i, inner in enumerate(outer)], True


def join_parts(parts: Iterable[str], separator: str) -> str:
    """Make one running text; a part without text adds no separator."""
    return separator.join(part for part in parts if part)


def part_places(parts: Iterable[str], separator: str) -> list[tuple[int, int]]:
    """Tell where each part is in the running text."""
    places, end = [], 0
    for part in parts:
        start = end + (len(separator) if part and end else 0)
        end = start + len(part)
        places.append((start, end))
    return places


def read_turn(place: str, turn: object) -> str:
    """Read one turn as "role: content"."""
    if not isinstance(turn, Mapping):
        raise TypeError(f'`{place}` must be {{"role": …, "content": …}}, got {type(turn).__name__}')
    if set(turn) != {"role", "content"}:
        raise ValueError(f"`{place}` must have the keys role and content, got {list(turn)}")
    role, content = (read_text(f"{place}[{key!r}]", turn[key]).strip() for key in ("role", "content"))
    if not role:
        raise ValueError(f"`{place}['role']` is empty; name the speaker")
    return f"{role}: {content}"
