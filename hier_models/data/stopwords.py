"""Words that carry grammar and no topic: the lists of the package, and a user's own."""

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path


# Languages with a list of stopwords beside this file.
LANGUAGES = ("de", "en")


@lru_cache
def load_stopwords(language: str) -> frozenset[str]:
    """Read the list of a language.

    Args:
        language: Its code: en or de.

    Returns:
        The words, in small letters.

    Raises:
        ValueError: If there is no list of the language.
    """
    if language not in LANGUAGES:
        raise ValueError(
            f"language must be one that has a list of stopwords ({', '.join(LANGUAGES)}), got {language!r}; it is the "
            "processor's: language"
        )
    return _words(files(__package__).joinpath(f"stopwords_{language}.txt").read_text(encoding="utf-8"))


def read_stopwords(stopwords: str | os.PathLike[str] | Sequence[str]) -> frozenset[str]:
    """Read a list of stopwords that the user names.

    Args:
        stopwords: The code of a language that has a list (en, de); or a UTF-8 file with any number of words a line,
            where lines that begin with # are comments; or the words themselves, of which there may be none.

    Returns:
        The words, as they are given.

    Raises:
        FileNotFoundError: If it is neither a language nor a file.
        ValueError: If the file is not UTF-8 or has no word, or a word is no string.
    """
    if isinstance(stopwords, str | os.PathLike):
        name = os.fspath(stopwords)
        if name in LANGUAGES:
            return load_stopwords(name)
        path = Path(name).expanduser()
        if not path.is_file():
            raise FileNotFoundError(
                f"stopwords={name!r} is neither a file nor a language that has a list ({', '.join(LANGUAGES)})"
            )
        try:
            words = _words(path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(f"stopwords: {path} is not UTF-8: {error}") from error
        if not words:
            raise ValueError(f"stopwords: {path} holds no word")
        return words
    for word in stopwords:
        if not isinstance(word, str):
            raise ValueError(f"stopwords must be words, got {word!r}")
    return frozenset(stopwords)


def _words(text: str) -> frozenset[str]:
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())
