"""Reading what a processor is given: a text, sentences, turns or articles, one input or a list of inputs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .text_inputs import check_text


# What stands between the parts of a running text, where sentences count for nothing.
SEPARATORS = {"sentences": " ", "turns": "\n", "documents": "\n\n"}


def given_input(inputs: Mapping[str, object], none_allowed: bool) -> str:
    """Find the name of the one input that is given; an empty one for none."""
    given = [name for name, value in inputs.items() if value is not None]
    if len(given) > 1 or (not given and not none_allowed):
        *others, last = (f"`{name}`" for name in inputs)
        raise ValueError(
            f"give exactly one of {', '.join(others)} and {last} (or only `text_target`), got "
            f"{' and '.join(given) or 'none'}"
        )
    return given[0] if given else ""


def read_items(name: str, value: object, wanted: str) -> list[Any]:
    """Check that a value is a list (or another sequence, such as a data set's column)."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(f"`{name}` must be {wanted}, got {type(value).__name__}")
    return list(value)


def read_rows(name: str, value: object, item: type, wanted: str) -> tuple[list[tuple[str, list[Any]]], bool]:
    """Return named lists of items, one per document, and whether the value was a batch of such lists."""
    outer = read_items(name, value, f"{wanted}, or a list of such lists")
    if not outer or isinstance(outer[0], item):
        return [(name, outer)], False
    return [(f"{name}[{i}]", read_items(f"{name}[{i}]", inner, wanted)) for i, inner in enumerate(outer)], True


def read_texts(name: str, value: object) -> tuple[list[str], bool]:
    """Return one text or several, and whether they were several."""
    batched = not isinstance(value, str)
    values = read_items(name, value, "a string or a list of strings") if batched else [value]
    if not values:
        raise ValueError(f"`{name}` is an empty list; give at least one text")
    return [check_text(f"{name}[{i}]" if batched else name, item) for i, item in enumerate(values)], batched


def read_turn(place: str, turn: object) -> tuple[str, str]:
    """Read one turn: who speaks, and "role: content"."""
    if not isinstance(turn, Mapping):
        raise TypeError(f'`{place}` must be {{"role": …, "content": …}}, got {type(turn).__name__}')
    if set(turn) != {"role", "content"}:
        raise ValueError(f"`{place}` must have the keys role and content, got {list(turn)}")
    role, content = (check_text(f"{place}[{key!r}]", turn[key]).strip() for key in ("role", "content"))
    if not role:
        raise ValueError(f"`{place}['role']` is empty; name the speaker")
    return role, f"{role}: {content}"


def read_parts(name: str, value: object) -> tuple[list[list[str]], bool]:
    """Bring any kind of input to the parts of its running text; say whether it was a batch."""
    if name == "text":
        texts, batched = read_texts(name, value)
        return [[text] for text in texts], batched
    if name == "turns":
        rows, batched = read_rows(name, value, Mapping, "a list of turns")
        return [[read_turn(f"{label}[{j}]", turn)[1] for j, turn in enumerate(row)] for label, row in rows], batched
    rows, batched = read_rows(name, value, str, "a list of strings")
    return [[check_text(f"{label}[{j}]", part) for j, part in enumerate(row)] for label, row in rows], batched


def read_running_texts(name: str, value: object) -> tuple[list[str], bool]:
    """Bring any kind of input to running texts; say whether it was a batch. Parts without text add no separator."""
    rows, batched = read_parts(name, value)
    if name == "text":
        return [text for (text,) in rows], batched
    parts = ([part.strip() for part in row] for row in rows)
    return [SEPARATORS[name].join(part for part in row if part) for row in parts], batched


def part_places(parts: Iterable[str], separator: str) -> list[tuple[int, int]]:
    """Tell where each part is in the running text."""
    places, end = [], 0
    for part in parts:
        start = end + (len(separator) if part and end else 0)
        end = start + len(part)
        places.append((start, end))
    return places
