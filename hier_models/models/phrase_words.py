"""Words of a text in any script, with their places, and which of them stand side by side."""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np


# Scripts written without spaces: Chinese, Japanese, Thai, Lao, Burmese, Khmer. Each of their letters is a word, so
# that phrases of two and three words are runs of two and three letters.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b"
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
_APOSTROPHES = "'’"
_ASCII_WORD = re.compile(r"([a-zA-Z0-9]+(?:'[a-zA-Z0-9]+)*)")
# Words of one phrase are apart by spaces, of which one may be a line's end, by a hyphen, or by a Tibetan tsheg.
_BETWEEN = re.compile(r"[^\S\n]*\n?[^\S\n]*|[-\u2010\u2011\u0f0b]")
# What nearly all gaps are.
_COMMON_GAPS = {" ": True, "-": True, "\n": True, ", ": False, ". ": False, "\n\n": False}


@lru_cache(1)
def _marks() -> str:
    """Combining marks, which Python's `\\w` leaves out, and the joiners of Indic and Persian words: a regex's set."""
    marks = [c for c in range(0x300, 0x1F000) if unicodedata.category(chr(c))[0] == "M"]
    starts = [marks[0], *(b for a, b in pairwise(marks) if b > a + 1)]
    ends = [*(a for a, b in pairwise(marks) if b > a + 1), marks[-1]]
    return "\u200c\u200d" + "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))


@lru_cache(1)
def _any_word() -> re.Pattern[str]:
    letter, mark = rf"[^\W_{UNSPACED}]", f"[{_marks()}]"
    spaced = f"{letter}+(?:{mark}+{letter}*)*"
    return re.compile(rf"({spaced}(?:[{_APOSTROPHES}]{spaced})*|(?![\W_])[{UNSPACED}]{mark}*)")


def word_pattern(text: str) -> re.Pattern[str]:
    """Give the pattern of a word: letters and digits, with an apostrophe inside or not; quicker for plain English."""
    return _ASCII_WORD if text.isascii() else _any_word()


@lru_cache(4096)
def _within_phrase(gap: str) -> bool:
    return _BETWEEN.fullmatch(gap) is not None


def split_words(text: str) -> "tuple[list[str], np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    """Find the words of a text."""
    parts = word_pattern(text).split(text)  # gap, word, gap, word, …, gap
    bounds = np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)))
    words = "\0".join(parts[1::2]).lower().replace("’", "'").split("\0") if len(parts) > 1 else []
    known = _COMMON_GAPS.get
    beside = [_within_phrase(gap) if (found := known(gap)) is None else found for gap in parts[2:-1:2]]
    return words, np.stack([bounds[:-1:2], bounds[1::2]], axis=1), np.array(beside, dtype=bool)


def composed_words(text: str) -> list[str]:
    """Find the words of a text, in which é is one letter and not e and an accent, to be compared."""
    return [unicodedata.normalize("NFC", word) for word in split_words(text)[0]]


def is_unspaced(word: str) -> bool:
    """Tell whether a word is of a script without spaces."""
    return _UNSPACED_LETTER.match(word) is not None


def is_in_a_word(text: str, place: int) -> bool:
    """Tell whether a cut falls into a word."""
    begin = place
    while 0 < begin < len(text) and not text[begin - 1].isspace():
        begin -= 1
    after = (match for match in word_pattern(text).finditer(text, begin) if match.end() > place)
    return (match := next(after, None)) is not None and match.start() < place


def find_phrase(phrase: str, text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Find a given phrase: whole words, in any case, accents apart or not, any spaces between."""
    pattern, is_letter = _phrase_pattern(phrase), _letter().match
    # Not a part of the pattern: sets of so many characters take a hundred times as long to compile as a phrase.
    word_first, word_last = is_letter(phrase.lstrip()[0]), is_letter(phrase.rstrip()[-1])
    while match := pattern.search(text, start, end):
        first, stop = match.span()
        cut = (word_first and first > 0 and is_letter(text[first - 1])) or (
            word_last and stop < len(text) and is_letter(text[stop])
        )
        if not cut:
            yield first, stop
        start = first + 1 if cut else stop


@lru_cache(1)
def _letter() -> re.Pattern[str]:
    """What is a part of a word with the letter beside it."""
    return re.compile(rf"[^\W_{UNSPACED}]|[{_marks()}]")


@lru_cache(1024)
def _phrase_pattern(phrase: str) -> re.Pattern[str]:
    return re.compile(r"\s+".join(map(_spellings, phrase.split())), re.IGNORECASE)


def _spellings(word: str) -> str:
    """A pattern of a word with any apostrophe, and of what looks the same: é is one character, or e and an accent."""
    forms = dict.fromkeys([word, unicodedata.normalize("NFC", word), unicodedata.normalize("NFD", word)])
    patterns = [re.sub(f"[{_APOSTROPHES}]", f"[{_APOSTROPHES}]", re.escape(form)) for form in forms]
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"
