"""Reading poems: a line is written from its keyword and the lines before."""

from typing import Any

from .keywords import is_chinese
from .source_text import read_items
from .text_inputs import check_text


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
    text = check_text(name, value).strip()
    if not is_chinese(text):
        raise ValueError(f"`{name}` must be Chinese characters alone ({what}), got {text!r}")
    return text
