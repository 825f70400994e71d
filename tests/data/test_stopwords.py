"""The lists of stopwords, and a user's own."""

import re
from pathlib import Path

import pytest

from hier_models.data.stopwords import LANGUAGES, load_stopwords, read_stopwords


@pytest.mark.parametrize("language", LANGUAGES)
def test_lists_of_the_package(language: str) -> None:
    words = load_stopwords(language)
    assert 150 < len(words) < 500
    assert all(re.fullmatch(r"[^\W\d_]+('[^\W\d_]+)?", word) and word == word.lower() for word in words)
    # Words of a topic, which lists from the web often hold.
    assert not words & {"system", "information", "problem", "page", "member", "group", "research", "jahr", "tag"}
    assert read_stopwords(language) == words


def test_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("\ufeff# a comment\nle la\nles\n", encoding="utf-8")
    assert read_stopwords(file) == read_stopwords(str(file)) == {"le", "la", "les"}
    assert read_stopwords(["Le", "la"]) == {"Le", "la"}
    assert read_stopwords(()) == frozenset()


def test_what_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="language must be one that has a list of stopwords"):
        load_stopwords("fr")
    with pytest.raises(FileNotFoundError, match="stopwords='fr' is neither a file nor a language that has a list"):
        read_stopwords("fr")
    file = tmp_path / "words.txt"
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match="is not UTF-8"):
        read_stopwords(file)
    file.write_text("# nothing\n")
    with pytest.raises(ValueError, match="holds no word"):
        read_stopwords(file)
    with pytest.raises(ValueError, match="stopwords must be words, got 3"):
        read_stopwords(["the", 3])  # type: ignore[list-item]
