"""What texts are rid of: filler words of speech transcripts, and digits, for models that know no numbers."""

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path


# Lexicons that come with the package, by name.
LEXICONS = ("english",)

Fillers = str | os.PathLike[str] | Sequence[str]

_SPACE = r"[^\S\r\n]"
_SENTENCE_END = ".!?…"


def load_fillers(fillers: Fillers) -> tuple[str, ...]:
    """Read a lexicon of filler words."""
    entries = read_lines("fillers", fillers, LEXICONS, "a lexicon of the package")
    words = {" ".join(entry.split()) for entry in entries if entry.strip(", \n\t")}
    if not words:
        raise ValueError(f"fillers={fillers!r} holds no filler; leave it out to keep all words")
    return tuple(sorted(words))


def read_lines(argument: str, given: Fillers, known: Sequence[str], kind: str) -> list[str]:
    """Read words: a list of them, or the lines of a file, of the package's by its name, or of the user's."""
    if not isinstance(given, str | os.PathLike):
        for word in given:
            if not isinstance(word, str):
                raise ValueError(f"{argument} must be words, got {word!r}")
        return list(given)
    name = os.fspath(given)
    path = Path(__file__).with_name(f"{argument}_{name}.txt") if name in known else Path(name).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{argument}={name!r} is neither a file nor {kind} ({', '.join(known)})")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{argument}: {path} is not UTF-8: {error}") from error
    return [line for line in lines if not line.lstrip().startswith("#")]


def remove_fillers(text: str, fillers: Sequence[str]) -> tuple[str, int]:
    """Take filler words out of a text.

    Only whole words go, in any case, with the comma that set them off, and with the full stop of a sentence that was
    nothing but fillers. Every other character stays as it is. A filler after a number stays ("5 mm").
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
    """Tell whether there is a letter or a digit in a text."""
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


# Digits


def check_digits(digits: str) -> None:
    """Refuse what cannot stand for a digit."""
    if not isinstance(digits, str) or len(digits) != 1 or digits.isalpha() or digits.isspace() or digits < " ":
        raise ValueError(f"digits must be a single character that is no letter or space, such as '#', got {digits!r}")


def replace_digits(text: str, digits: str) -> str:
    """Put one character in the place of every digit, as the tokenizer does."""
    return re.sub(r"\d", lambda _: digits, text)  # which may be a backslash
