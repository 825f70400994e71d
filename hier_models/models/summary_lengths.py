"""How long a summary is: a control token in the place of its BOS says so, `[line]`, `[short]` or `[long]`."""

from collections.abc import Sequence
from typing import Any


# Length -> most words of a summary that teaches it; the last has no limit.
LENGTHS: dict[str, float] = {"line": 25, "short": 110, "long": float("inf")}


def length_ids(tokenizer: Any) -> dict[str, int]:
    """Find the tokens that a summary of a length begins with."""
    special = set(tokenizer.all_special_tokens)
    if not all(f"[{length}]" in special for length in LENGTHS):
        return {}
    return {length: tokenizer.convert_tokens_to_ids(f"[{length}]") for length in LENGTHS}


def length_of(summary: str) -> str:
    """Tell which length a summary teaches."""
    words = len(summary.split())
    return next(length for length, most in LENGTHS.items() if words <= most)


def begin_with_lengths(rows: list[list[int]], summaries: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Have each target begin with the token of its length, if the tokenizer has such tokens."""
    ids = length_ids(tokenizer)
    if not ids:
        return rows
    return [[ids[length_of(text)], *row[1:]] for row, text in zip(rows, summaries, strict=True)]
