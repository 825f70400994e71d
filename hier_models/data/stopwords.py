"""Words that carry grammar and no topic: the lists of the package, and a user's own."""

import os
from collections.abc import Sequence
from functools import lru_cache

from .cleaning import read_lines


# Languages with a list of stopwords beside this file.
LANGUAGES = ("de", "en")
NO_STOPWORDS = "for no stopwords an empty list, or a file that holds only a -"


@lru_cache
def load_stopwords(language: str) -> frozenset[str]:
    """Read the list of a language."""
    if language not in LANGUAGES:
        wanted = f"one that has a list of stopwords ({', '.join(LANGUAGES)})"
        raise ValueError(f"language must be {wanted}, got {language!r}; it is the processor's: language")
    return read_stopwords(language)


def read_stopwords(stopwords: str | os.PathLike[str] | Sequence[str]) -> frozenset[str]:
    """Read a list of stopwords that the user names."""
    lines = read_lines("stopwords", stopwords, LANGUAGES, "a language that has a list")
    if not isinstance(stopwords, str | os.PathLike):
        return frozenset(lines)
    words = frozenset(word for line in lines for word in line.split())
    if not words:
        raise ValueError(f"stopwords: {os.fspath(stopwords)} holds no word; give some, or {NO_STOPWORDS}")
    return words
