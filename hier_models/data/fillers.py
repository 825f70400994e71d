"""Filler words of speech transcripts: the lexicon, and taking its words out of a text."""

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path


# Lexicons that come with the package, by name.
LEXICONS = ("english",)

Fillers = str | os.PathLike[str] | Sequence[str]

_SPACE = r"[^\S\r\n]"
_SENTENCE_END = ".!?…"


def load_fillers(fillers: Fillers) -> tuple[str, ...]:
    """Read a lexicon of filler words.

    Args:
        fillers: The name of a lexicon of the package ("english"); or a UTF-8 file with a filler a line, where lines
            that begin with # are comments; or the fillers themselves. A filler is one or more words. One that ends in
            a comma is removed only where a comma follows it.

    Returns:
        The fillers, each once, sorted.

    Raises:
        FileNotFoundError: If it is neither a name nor a file.
        ValueError: If there is no filler in it, or one that is no text.
    """
    if isinstance(fillers, str | os.PathLike):
        name = os.fspath(fillers)
        if name in LEXICONS:
            text = files(__package__).joinpath(f"fillers_{name}.txt").read_text(encoding="utf-8")
        else:
            path = Path(name).expanduser()
            if not path.is_file():
                raise FileNotFoundError(
                    f"fillers={name!r} is neither a file nor a lexicon of the package ({', '.join(LEXICONS)})"
                )
            try:
                text = path.read_text(encoding="utf-8-sig")
            except UnicodeDecodeError as error:
                raise ValueError(f"fillers: {path} is not UTF-8: {error}") from error
        entries: Sequence[object] = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    else:
        entries = list(fillers)
    for entry in entries:
        if not isinstance(entry, str):
            raise ValueError(f"fillers must be words, got {entry!r}")
    words = {" ".join(str(entry).split()) for entry in entries}
    words = {word for word in words if word.strip(", ")}
    if not words:
        raise ValueError(f"fillers={fillers!r} holds no filler; leave it out to keep all words")
    return tuple(sorted(words))


def remove_fillers(text: str, fillers: Sequence[str]) -> tuple[str, int]:
    """Take filler words out of a text.

    Only whole words go, in any case, with the comma that set them off, and with the full stop of a sentence that was
    nothing but fillers. Every other character stays as it is. A filler after a number stays ("5 mm").

    Args:
        text: The text.
        fillers: What `load_fillers` gives.

    Returns:
        The text without them, and how many were removed.
    """
    one, run = _patterns(tuple(fillers))
    kept: list[str] = []
    last = ""  # last character kept that is no space
    end = removed = 0
    for match in run.finditer(text):
        start, stop = match.span()
        removed += sum(1 for _ in one.finditer(text, start, stop))
        left, right = _spaces_before(text, start, end), _spaces_after(text, stop)
        piece = text[end:left]
        last = piece[-1:] or last
        if text[right : right + 1] == ",":
            stop = right + 1
            right = _spaces_after(text, stop)
        elif right == len(text) or text[right] in f"{_SENTENCE_END}\r\n":
            if not last or last in f"{_SENTENCE_END}\r\n":  # a sentence of nothing else
                while right < len(text) and text[right] in _SENTENCE_END:
                    right += 1
                stop, right = right, _spaces_after(text, right)
            else:
                if last == "," and piece:
                    left = _spaces_before(text, left - 1, end)
                    last = text[left - 1 : left] if left > end else ""
                start, right = left, stop  # what ends the sentence keeps its distance
        # One of the two spaces around what is taken out stays.
        if stop == right or right == len(text):
            start = left
        kept.append(text[end:start])
        end = right
    kept.append(text[end:])
    return "".join(kept), removed


def has_words(text: str) -> bool:
    """Tell whether there is a letter or a digit in a text.

    Args:
        text: The text.

    Returns:
        False for nothing but punctuation and spaces.
    """
    return any(character.isalnum() for character in text)


def _spaces_before(text: str, position: int, least: int) -> int:
    while position > least and text[position - 1].isspace() and text[position - 1] not in "\r\n":
        position -= 1
    return position


def _spaces_after(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace() and text[position] not in "\r\n":
        position += 1
    return position


@lru_cache(maxsize=16)
def _patterns(fillers: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """One filler, and several in a row with nothing but spaces and commas between."""
    # A word does not go on with a letter, digit or combining accent, nor with one of these after ' or -.
    before = r"(?<![\w\u0300-\u036f])(?<!\w[-'’])(?<!\d)(?<!\d\s)"
    after = r"(?![\w\u0300-\u036f])(?![-'’]\w)"
    alternatives = []
    for filler in sorted(fillers, key=len, reverse=True):
        words = filler.rstrip(",").split()
        pattern = f"{_SPACE}++".join(re.escape(word) for word in words)
        pattern = pattern.replace(r"\-", f"{_SPACE}*+-{_SPACE}*+")  # some transcripts write "mm - hmm"
        pattern = f"{before if words[0][0].isalnum() else ''}{pattern}{after if words[-1][-1].isalnum() else ''}"
        alternatives.append(f"{pattern}{_SPACE}*+," if filler.endswith(",") else pattern)
    # Most characters begin no filler: one look at them is enough.
    beginnings = "".join(sorted({re.escape(filler[0]) for filler in fillers}))
    one = f"(?=[{beginnings}])(?:{'|'.join(alternatives)})"
    # Possessive, since a long line of spaces must not be tried at every length.
    run = f"{one}(?:{_SPACE}*+,?{_SPACE}*+{one})*"
    return re.compile(one, re.IGNORECASE), re.compile(run, re.IGNORECASE)
