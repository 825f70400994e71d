"""Where in a document the sentences stand that a summary copies.

Section 6 of HAT-BART's paper finds them by eye, in three articles; here they are found by a rule, in any number.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from ..data.record_readers import KINDS
from ..models.sentence_splitting import check_language, split_sentences
from ..pipelines.copied_words_hier import UNSPACED, combining_marks


# Every Chinese character and kana is a word of its own: no spaces tell where theirs end. An accent, or the sign of a
# vowel, may stand behind its letter as a character of its own.
WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}](?:[^\W_{UNSPACED}]|[{combining_marks()}\u200c\u200d])*")
BLANK_LINE = re.compile(r"\n[ \t\r\f\v]*\n|\u2029")
HEADING_WORDS = 10  # a line without a full stop and of fewer words is the heading of the paragraph that follows
SENTENCE_MARKS = tuple(".?!:;…。！？।॥۔؟\"'”’»)")  # noqa: RUF001


@dataclass(frozen=True)
class CopyRule:
    """When a sentence of a summary counts as copied from one of its document.

    Args:
        threshold: The least share of its words that must stand, in order, in one sentence of the document; above 0.5,
            up to 1.
        min_run: How many of them at least must stand there without anything between: a long sentence holds others
            by chance, scattered.
        min_words: Sentences of fewer words are not judged: everybody writes them.

    Raises:
        ValueError: If a value is out of its range.
    """

    threshold: float = 0.8
    min_run: int = 4
    min_words: int = 5

    def __post_init__(self) -> None:
        if not 0.5 < self.threshold <= 1:
            raise ValueError(f"threshold: got {self.threshold}; it must be above 0.5 and at most 1")
        if self.min_run < 1:
            raise ValueError(f"min_run: got {self.min_run}; it must be at least 1")
        if self.min_words < self.min_run:
            raise ValueError(f"min_words: got {self.min_words}; it must be at least min_run={self.min_run}")

    def __str__(self) -> str:
        """The rule as a sentence for a reader of the report."""
        return (
            f"A sentence of a summary counts as copied if at least {self.threshold:.0%} of its words stand in one "
            f"sentence of the document in the same order (ROUGE-L precision), {self.min_run} or more of them in one "
            f"piece; sentences of fewer than {self.min_words} words are not judged."
        )


@dataclass(frozen=True)
class SourceText:
    """A document as its sentences."""

    sentences: tuple[str, ...]
    blocks: tuple[int, ...] | None = None  # the number of each sentence's paragraph (turn, article), if it is known
    block_name: str = "paragraph"  # or "turn", or "article"

    @property
    def num_blocks(self) -> int:
        """How many blocks there are; 0 if they are not known."""
        return self.blocks[-1] + 1 if self.blocks else 0


@dataclass(frozen=True)
class Copy:
    """Where a sentence of a summary was copied from.

    Args:
        sentence: The sentence of the document, from 0.
        coverage: Share of the summary sentence's words that stand there in order, in (0, 1].
        extent: Share of the document sentence's words that were taken, in (0, 1].
        run: Words taken in one piece.
        position: Share of the document's words that come before the sentence, in [0, 1).
        block: The sentence's paragraph (turn, article) from 0, or None if they are not known.
        marks: The taken parts of the document sentence, pairs of (start, end) in characters.
    """

    sentence: int
    coverage: float
    extent: float
    run: int
    position: float
    block: int | None = None
    marks: tuple[tuple[int, int], ...] = field(default=(), compare=False)


def source_text(document: Mapping[str, Any], language: str = "english") -> SourceText:
    """Split a document into sentences, and say to which paragraph each belongs.

    Paragraphs of a text are told apart by blank lines; a heading belongs to the paragraph after it. In a dialogue the
    blocks are its turns, in a set of articles the articles. Of ready sentences no paragraphs are known, nor of a text
    without blank lines.

    Args:
        document: Has one of `text`, `sentences`, `turns` and `documents`, as `load_documents` gives them.
        language: For the sentence splitter.

    Returns:
        The sentences and their blocks.

    Raises:
        ValueError: If the document has none of the four, or has several, or the language is unknown.
    """
    check_language(language)
    given = {kind: document[kind] for kind in KINDS if document.get(kind) is not None}
    if len(given) != 1:
        raise ValueError(f"document: it must have exactly one of {', '.join(KINDS)}; got {', '.join(given) or 'none'}")
    [(kind, value)] = given.items()
    if kind == "sentences":
        return SourceText(tuple(value))
    name = {"text": "paragraph", "turns": "turn", "documents": "article"}[kind]
    pieces = _paragraphs(value) if kind == "text" else [part["content"] if kind == "turns" else part for part in value]
    split = [(number, found) for number, piece in enumerate(pieces) for found in _sentences(piece, language)]
    blocks = tuple(number for number, _ in split)
    known = len(pieces) > 1 or kind != "text"
    return SourceText(tuple(sentence for _, sentence in split), blocks if known else None, name)


def split_summary(summary: str, language: str = "english") -> list[str]:
    """Split a summary into sentences; lines end them too."""
    return [sentence for line in summary.splitlines() for sentence in _sentences(line, language)]


def find_copies(source: SourceText, summary: Sequence[str], rule: CopyRule | None = None) -> list[Copy | None]:
    """Find for each sentence of a summary the sentence of the document that it was copied from.

    Of several that a sentence could be copied from, it is the one that shares most words in order; of equals, the one
    with the longest piece in common, then the one that was taken most entirely, then the first.

    The time grows linearly with the words of the document: an index of its words leaves few sentences to compare, and
    the longest common subsequence is computed with a machine word (or a few) of bits for a whole summary sentence
    (Hyyrö, 2004, Bit-parallel LCS-length computation revisited).

    Args:
        source: The document.
        summary: Sentences of the summary.
        rule: When a sentence counts as copied; the default rule if None.

    Returns:
        For each sentence of the summary where it was copied from, or None.

    Source: HAT-BART, section 6 and appendix A, where the sentences were found by eye.
    """
    matcher = _Matcher(source, rule or CopyRule())
    return [matcher.copy(sentence) for sentence in summary]


def words_of(text: str) -> list[str]:
    """List the words that sentences are compared by: letters and digits, in one case; a Chinese character is one."""
    return [_folded(match[0]) for match in WORD.finditer(text)]


def is_judged(sentence: str, rule: CopyRule) -> bool:
    """Tell whether a sentence of a summary has the words that it takes to be judged."""
    return len(words_of(sentence)) >= rule.min_words


class _Matcher:
    """A document, indexed by its words."""

    def __init__(self, source: SourceText, rule: CopyRule) -> None:
        self.source, self.rule = source, rule
        self.words = [words_of(sentence) for sentence in source.sentences]
        self.index: dict[str, list[tuple[int, int]]] = {}  # word -> sentences that have it, and how often
        self.before: list[int] = []  # words before each sentence
        total, seen = 0, set()
        for number, words in enumerate(self.words):
            self.before.append(total)
            total += len(words)
            key = tuple(words)
            if key in seen:  # the first of equal sentences stands for all
                continue
            seen.add(key)
            for word, count in Counter(words).items():
                self.index.setdefault(word, []).append((number, count))
        self.total = max(total, 1)

    def copy(self, sentence: str) -> Copy | None:
        words = words_of(sentence)
        if len(words) < self.rule.min_words:
            return None
        least = self.rule.threshold * len(words) - 1e-9
        shared: Counter[int] = Counter()  # an upper bound of what sentences have in common in order
        for word, count in Counter(words).items():
            for number, times in self.index.get(word, ()):
                shared[number] += min(count, times)
        positions: dict[str, int] = {}
        for place, word in enumerate(words):
            positions[word] = positions.get(word, 0) | 1 << place
        best: tuple[int, int, float, int] | None = None
        matcher: SequenceMatcher[str] = SequenceMatcher(None, autojunk=False)
        matcher.set_seq2(words)
        for number, bound in shared.items():
            if bound < least or (best is not None and bound < best[0]):
                continue
            there = self.words[number]
            common = _common_subsequence(positions, len(words), there)
            if common < least or (best is not None and common < best[0]):
                continue
            matcher.set_seq1(there)
            run = matcher.find_longest_match(0, len(there), 0, len(words)).size
            if run < self.rule.min_run:
                continue
            rank = (common, run, common / len(there), -number)
            best = rank if best is None else max(best, rank)
        if best is None:
            return None
        common, run, extent, number = best[0], best[1], best[2], -best[3]
        return Copy(
            sentence=number,
            coverage=common / len(words),
            extent=extent,
            run=run,
            position=self.before[number] / self.total,
            block=None if self.source.blocks is None else self.source.blocks[number],
            marks=_marks(self.source.sentences[number], words),
        )


def _common_subsequence(positions: Mapping[str, int], length: int, words: Sequence[str]) -> int:
    """Give the length of the longest common subsequence, one addition of `length` bits for each word."""
    full = (1 << length) - 1
    row = full  # a zero for each place where the subsequence grows
    for word in words:
        here = row & positions.get(word, 0)
        if here:
            row = ((row + here) | (row - here)) & full
    return length - row.bit_count()


def _marks(sentence: str, words: list[str]) -> tuple[tuple[int, int], ...]:
    """Pieces of two words or more that a sentence shares with others in order, with marks at its beginning and end."""
    found = list(WORD.finditer(sentence))
    there = [_folded(match[0]) for match in found]
    starts = [0, *(match.start() for match in found[1:])]
    ends = [*(match.end() for match in found[:-1]), len(sentence)]
    blocks = SequenceMatcher(None, there, words, autojunk=False).get_matching_blocks()
    return tuple((starts[block.a], ends[block.a + block.size - 1]) for block in blocks if block.size > 1)


def _folded(word: str) -> str:
    return word.lower() if word.isascii() else unicodedata.normalize("NFKC", word).casefold()


def _sentences(text: str, language: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, language)]


def _paragraphs(text: str) -> list[str]:
    """Split a text at its blank lines, and put each heading before the paragraph that it belongs to."""
    paragraphs = [""]
    for piece in filter(str.strip, BLANK_LINE.split(text)):
        is_heading = not piece.rstrip().endswith(SENTENCE_MARKS) and len(words_of(piece)) < HEADING_WORDS
        paragraphs[-1] += f"{piece}\n\n" if is_heading else piece
        if not is_heading:
            paragraphs.append("")
    return [paragraph for paragraph in paragraphs if paragraph]
