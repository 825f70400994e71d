"""Words that carry grammar and no topic: the lists of the package, and a user's own."""

import os
from collections.abc import Sequence
from functools import lru_cache

from .cleaning import read_list


# Languages with a list of stopwords beside this file.
LANGUAGES = ("de", "en")


@lru_cache
def load_stopwords(language: str) -> frozenset[str]:
    """Read the list of a language."""
    if language not in LANGUAGES:
        raise ValueError(
            f"language must be one that has a list of stopwords ({', '.join(LANGUAGES)}), got {language!r}; it is the "
            "processor's: language"
        )
    return _words(read_list("stopwords", language, LANGUAGES, ""))


def read_stopwords(stopwords: str | os.PathLike[str] | Sequence[str]) -> frozenset[str]:
    """Read a list of stopwords that the user names."""
    if isinstance(stopwords, str | os.PathLike):
        words = _words(read_list("stopwords", os.fspath(stopwords), LANGUAGES, "a language that has a list"))
        if not words:
            raise ValueError(f"stopwords: {os.fspath(stopwords)} holds no word")
        return words
    for word in stopwords:
        if not isinstance(word, str):
            raise ValueError(f"stopwords must be words, got {word!r}")
    return frozenset(stopwords)


def _words(text: str) -> frozenset[str]:
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())
