"""Scores of summaries against their documents, without a reference: how much is copied, and what is not there."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..inspection.copying import WORD, words_of


ORDERS = (1, 2, 3, 4)  # of the novel n-grams
_END = re.compile(r"[.!?。！？।][\"'”’)\]»」』]*$")
# Where a sentence begins, perhaps as an item of a list.
_BEGIN = re.compile(
    r"(?:^\s*|[.!?…:][\"'”’“)\]»」』]*\s+|\n\s*)(?:[-–—*•·]\s+|\d+[.)]\s+)?[\"'“‘„«「(\[]*$"  # noqa: RUF001
)


@dataclass(frozen=True)
class ReferenceFreeCounts:
    """What one summary adds to the scores of all; see `reference_free_scores`.

    Args:
        words: Of the summary.
        document_words: Of the document.
        copied: Words in fragments of the document.
        squares: The sum of the squared lengths of these fragments.
        ngrams: N-grams of the summary, for n = 1 to 4.
        novel: Those that the document does not have.
        repeated: Trigrams of the summary that it has before.
        facts: Names and numbers of the summary.
        found: Those that stand in the document.
        finished: Whether it ends in a full stop or its like.
    """

    words: int
    document_words: int
    copied: int
    squares: int
    ngrams: tuple[int, ...]
    novel: tuple[int, ...]
    repeated: int
    facts: int
    found: int
    finished: bool


def reference_free_counts(summary: str, document: str) -> ReferenceFreeCounts:
    """Compare a summary with its document.

    Args:
        summary: The summary.
        document: All of the document.

    Returns:
        What `reference_free_scores` adds up.
    """
    words, source = words_of(summary), words_of(document)
    fragments = _fragments(words, source)
    ngrams = {n: _ngrams(words, n) for n in ORDERS}
    of_source = {n: set(_ngrams(source, n)) for n in ORDERS}
    facts = _names_and_numbers(summary)
    known = set(source)
    return ReferenceFreeCounts(
        words=len(words),
        document_words=len(source),
        copied=sum(fragments),
        squares=sum(length**2 for length in fragments),
        ngrams=tuple(len(ngrams[n]) for n in ORDERS),
        novel=tuple(sum(gram not in of_source[n] for gram in ngrams[n]) for n in ORDERS),
        repeated=len(ngrams[3]) - len(set(ngrams[3])),
        facts=len(facts),
        found=sum(word in known for word in facts),
        finished=bool(_END.search(summary.strip())),
    )


def reference_free_scores(counts: Iterable[ReferenceFreeCounts]) -> dict[str, float | None]:
    """Score summaries against their documents, without references.

    Words are runs of letters and digits in one case; a Chinese character or kana is a word. Names are told by their
    capital alone: the nouns of German count, a name after "Dr." does not, as if it began a sentence.

    Args:
        counts: `reference_free_counts` of each summary.

    Returns:
        `coverage` (share of a summary's words in fragments that stand in the document), `density` (mean length, in
        words, of the fragment that a word of the summary is in) and `compression` (words of the document per word of
        the summary), each the mean over summaries with words; `novel_1` to `novel_4` (share of all n-grams of the
        summaries that their documents do not have), `repeated_trigrams` (share that the summary has before),
        `facts` (precision of numbers, and of words with a capital that do not begin a sentence: the share that
        stands in the document), and `finished` (share of the summaries that end in a full stop or its like). None
        where there is nothing to count.

    Source: Grusky et al. (2018), Newsroom, section 4 and figure 2, https://aclanthology.org/N18-1065 (coverage,
    density, compression); See et al. (2017), figure 6, https://aclanthology.org/P17-1099 (novel n-grams).
    """
    entries = list(counts)
    written = [entry for entry in entries if entry.words]
    return {
        "coverage": _mean([entry.copied / entry.words for entry in written]),
        "density": _mean([entry.squares / entry.words for entry in written]),
        "compression": _mean([entry.document_words / entry.words for entry in written]),
        **{
            f"novel_{n}": _share(sum(entry.novel[i] for entry in entries), sum(entry.ngrams[i] for entry in entries))
            for i, n in enumerate(ORDERS)
        },
        "repeated_trigrams": _share(
            sum(entry.repeated for entry in entries), sum(entry.ngrams[ORDERS.index(3)] for entry in entries)
        ),
        "facts": _share(sum(entry.found for entry in entries), sum(entry.facts for entry in entries)),
        "finished": _mean([entry.finished for entry in entries]),
    }


def reference_free_rows(scores: dict[str, float | None]) -> list[tuple[str, str]]:
    """Lay out the scores for people: a label and a text each."""
    as_numbers = ("density", "compression")
    labels = {f"novel_{n}": f"novel {n}-grams" for n in ORDERS}
    labels |= {"repeated_trigrams": "repeated trigrams", "facts": "names and numbers found"}
    return [
        (
            labels.get(name, name),
            "–" if value is None else f"{value:.2f}" if name in as_numbers else f"{value:.1%}",
        )
        for name, value in scores.items()
    ]


def _fragments(words: Sequence[str], source: Sequence[str]) -> list[int]:
    """Lengths of the extractive fragments: from left to right, each the longest that stands in the source."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(source):
        places.setdefault(word, []).append(place)
    lengths, begin = [], 0
    while begin < len(words):
        length, ends = 0, places.get(words[begin], [])  # where the source has the words from `begin`, up to `length`
        while ends:
            length += 1
            following = words[begin + length] if begin + length < len(words) else None
            ends = [end + 1 for end in ends if end + 1 < len(source) and source[end + 1] == following]
        if length:
            lengths.append(length)
        begin += max(1, length)
    return lengths


def _ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[i:] for i in range(n)), strict=False))


def _names_and_numbers(text: str) -> list[str]:
    """Words with a digit, and words with a capital that do not begin a sentence."""
    found = []
    for word, match in zip(words_of(text), WORD.finditer(text), strict=True):
        begins = _BEGIN.search(text, max(0, match.start() - 16), match.start())
        if any(map(str.isdigit, match[0])) or (match[0][0].isupper() and not begins):
            found.append(word)
    return found


def _mean(values: Sequence[float]) -> float | None:
    return _share(sum(values), len(values))


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
