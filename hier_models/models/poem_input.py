"""Reading what the HAM processor is given: texts in any of four forms, and poems as keywords and lines."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .keywords import is_chinese


LONE_SURROGATE = re.compile("[\ud800-\udfff]")

# What stands between the parts of a running text.
SEPARATORS = {"sentences": " ", "turns": "\n", "documents": "\n\n"}


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


def read_texts(name: str, value: object) -> tuple[list[str], bool]:
    """Return running texts of any kind of input, and whether it was a batch."""
    if name in ("text", "text_target"):
        batched = not isinstance(value, str)
        values = read_items(name, value, "a string or a list of strings") if batched else [value]
        if not values:
            raise ValueError(f"`{name}` is an empty list; give at least one text")
        return [read_text(f"{name}[{i}]" if batched else name, item) for i, item in enumerate(values)], batched
    item, wanted = (Mapping, "a list of turns") if name == "turns" else (str, "a list of strings")
    read = _turn if name == "turns" else read_text
    outer = read_items(name, value, f"{wanted}, or a list of such lists")
    batched = bool(outer) and not isinstance(outer[0], item)
    rows = (
        [(f"{name}[{i}]", read_items(f"{name}[{i}]", row, wanted)) for i, row in enumerate(outer)]
        if batched
        else [(name, outer)]
    )
    texts = []
    for label, row in rows:
        parts = (read(f"{label}[{i}]", part).strip() for i, part in enumerate(row))
        texts.append(SEPARATORS[name].join(part for part in parts if part))
    return texts, batched


def read_poems(keywords: object, lines: object) -> tuple[list[tuple[str, list[str]]], bool]:
    """Return (keyword, the lines before) of each line that is to be written, and whether there were several."""
    if keywords is None:
        raise ValueError("`lines` goes with `keywords`: a line is written from its keyword and the lines before")
    batched = not isinstance(keywords, str)
    words = read_items("keywords", keywords, "a string or a list of strings") if batched else [keywords]
    if not words:
        raise ValueError("`keywords` is an empty list; give at least one keyword")
    if lines is None:
        rows: list[Any] = [[] for _ in words]
    else:
        outer = read_items("lines", lines, "a list of lists of lines" if batched else "a list of lines")
        rows = outer if batched else [outer]
    if len(rows) != len(words):
        raise ValueError(f"`lines` must match `keywords`, got {len(rows)} for {len(words)}")
    poems = []
    for number, (word, row) in enumerate(zip(words, rows, strict=True)):
        place, mark = (f"lines[{number}]", f"keywords[{number}]") if batched else ("lines", "keywords")
        before = read_items(place, row, "a list of lines")
        before = [read_chinese(f"{place}[{i}]", line, "a line of a poem") for i, line in enumerate(before)]
        poems.append((read_chinese(mark, word, "a keyword"), before))
    return poems, batched


def read_chinese(name: str, value: object, what: str) -> str:
    """Check that a value is Chinese characters and nothing else."""
    text = read_text(name, value).strip()
    if not is_chinese(text):
        raise ValueError(f"`{name}` must be Chinese characters alone ({what}), got {text!r}")
    return text


def _turn(place: str, turn: object) -> str:
    """Read one turn as "role: content"."""
    if not isinstance(turn, Mapping):
        raise TypeError(f'`{place}` must be {{"role": …, "content": …}}, got {type(turn).__name__}')
    if set(turn) != {"role", "content"}:
        raise ValueError(f"`{place}` must have the keys role and content, got {list(turn)}")
    role, content = (read_text(f"{place}[{key!r}]", turn[key]).strip() for key in ("role", "content"))
    if not role:
        raise ValueError(f"`{place}['role']` is empty; name the speaker")
    return f"{role}: {content}"


__all__ = ["read_chinese", "read_items", "read_poems", "read_text", "read_texts"]
