"""Words that carry grammar and no topic: the lists of the package, and a user's own."""

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from .cleaning import read_utf8


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
    return _words(files(__package__).joinpath(f"stopwords_{language}.txt").read_text(encoding="utf-8"))


def read_stopwords(stopwords: str | os.PathLike[str] | Sequence[str]) -> frozenset[str]:
    """Read a list of stopwords that the user names."""
    if isinstance(stopwords, str | os.PathLike):
        name = os.fspath(stopwords)
        if name in LANGUAGES:
            return load_stopwords(name)
        path = Path(name).expanduser()
        if not path.is_file():
            raise FileNotFoundError(
                f"stopwords={name!r} is neither a file nor a language that has a list ({', '.join(LANGUAGES)})"
            )
        words = _words(read_utf8("stopwords", path))
        if not words:
            raise ValueError(f"stopwords: {path} holds no word")
        return words
    for word in stopwords:
        if not isinstance(word, str):
            raise ValueError(f"stopwords must be words, got {word!r}")
    return frozenset(stopwords)


def _words(text: str) -> frozenset[str]:
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())
