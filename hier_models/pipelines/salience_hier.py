"""Which sentences of a document a summary would be made of: by their place, their words and their length."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from .common_words_hier import COMMON_WORDS


WORD = re.compile(r"\w+")
_FROM_START, _FROM_END = (2, 8, 30), (3, 30)  # sentences in which what a place is worth falls to a third
WEIGHTS = np.array([91.0, 6.0, 47.0, 2.0, 22.0, 48.0, 116.0, 2.0])  # hundredths of what `features` finds
# Hundredths of words, each behind what it is worth.
_CUES = """
18 standard
12 study
11 existing
10 here
9 rice suggest
8 demonstrate novel proposed provides together we
7 chain does essential findings fully mechanism our results simple
6 access allows changes designed information mechanisms provide represent role stress system the this
5 acts allow associated functional how impact indicate investigated new of regulation show thus understanding why
4 ability allowed applications cell combined contribute describe development functions identification identify is
knowledge membrane model release remains reveal root specifically therefore underlying
3 activation activity allowing available complex composition conclusion context critical define efficient evidence
features formation gain genetic global history identified improved interactions investigate involved known largest
level member molecular overall parameters part present presented providing released relevant resistance specific state
suggests support supports table taken types
2 achieved activities advantage alternative approach approaches aspects based best block can capacity carried central
chemical consequently content core cycle date demonstrated dependent directly disease distinct effectively environment
expression extensive far finally fixed gene hence human indicated interact little located maintain make makes modern
multiple name needs observations original parts patterns physical place plays popular potential potentially previously
process processing quantitative referred reflect regulate regulatory related relationships remain required requires
respect responses roles scale section serve source structural term these traditional transfer ways work
-2 activated actually addition agreement almost amino among another appeared appropriate around began between
calculated cause causes certain clear composed concentration condition contained continued day decreased despite
detected displayed distance done down easily enough even eventually every experiment expressed extended fact find fold
follow food former given group groups have having high however identical include increase increasing initially instance
interaction internal issues itself lack large late led levels like likely limited long mainly majority many materials
maximum mostly mutation near nearly negative neither never no normal notably numbers once one origin others out outside
particularly performed population positive power presence prevent previous produce provided rates reaction real recent
recorded remaining replaced resulting rule run sample second secondary sequences should showed showing similarly sites
smaller solution started still them times top using whether within young
-3 according also an animals approximately away back became being below called came causing close commercial consistent
cost could days density described difference either encoding ensure entire estimated examples few final first for form
further half included indicating individuals into introduction key list lower made may more much needed next nor note
obtained old possibly practice problem production protein rate ratio re reach reduced reduction result size slightly
some that their treated typically values were whose years
-4 about against avoid before case cells confirmed contain corresponding did due each equivalent event failed followed
full gave get go greater including interest larger later left length not number over per position range said seen
sequence shown since small take then there to under up who would year
-5 additional after again and by contrast distribution double found has issue mean measured observed reported
respectively so while words
-6 although amount as at because containing equal example from or self similar than whereas wild with
-7 but expressing had none return test though when where
-8 average value which
-9 address his must see
-11 if
"""


def _cues(text: str) -> dict[str, int]:
    """What each word is worth."""
    cues, weight = dict[str, int](), 0
    for token in text.split():
        if token.lstrip("-").isdigit():
            weight = int(token)
        else:
            cues[token] = weight
    return cues


CUES = _cues(_CUES)


def salience(sentences: Sequence[str], articles: Sequence[int] | None = None) -> Any:
    """How much each sentence of a document is worth to a summary, (sentences,).

    A sum of what `features` finds and of what some words are worth, learned by examples/mini/salience.py.

    Source: the features of Edmundson (1969), New Methods in Automatic Extracting, and of Kupiec, Pedersen and Chen
    (1995), A Trainable Document Summarizer, section 2: location, cue words, key words, length.
    """
    words = Words(sentences)
    cues = np.array([CUES.get(word, 0) for word in words.numbers], dtype=float)
    return (features(words, articles) @ WEIGHTS + words.sums(cues[words.words])) / 100


def features(words: "Words", articles: Sequence[int] | None = None) -> Any:
    """What is known of each sentence, (sentences, 8): five of its place, two ranks among all, its length.

    Args:
        words: Of the document's sentences, in order.
        articles: The number of each sentence's article: its place is that in its own. None for one article.

    Returns:
        One row a sentence: those of its place fall from 1, ranks are from 0 to 1, the length is a logarithm.
    """
    articles = [0] * words.size if articles is None else articles
    lengths, before = Counter(articles), Counter[int]()
    places = []
    for article in articles:
        start = before[article]
        end = lengths[article] - 1 - start
        places.append([*(-start / far for far in _FROM_START), *(-end / far for far in _FROM_END)])
        before[article] += 1
    columns = [_rank(words.centrality()), _rank(words.commonness()), np.log1p(words.sums(words.times))]
    return np.hstack([np.exp(np.reshape(places, (-1, 5))), np.stack(columns, axis=1)])


class Words:
    """The words of sentences: an entry for each word of a sentence.

    Args:
        sentences: Of a document, in order, or the words of each.

    Attributes:
        rows: The sentence of each entry, (entries,).
        words: Its number in `numbers`, (entries,).
        times: How often the word stands in the sentence, (entries,).
        rareness: Of each word, the logarithm of how few sentences have it, (words,).
        weights: tf-idf of each entry, the length of a sentence's made 1, (entries,).
    """

    def __init__(self, sentences: Sequence[str] | Sequence[Sequence[str]]) -> None:
        counts = [Counter(words_of(one) if isinstance(one, str) else one) for one in sentences]
        self.size = len(counts)
        self.numbers = {word: number for number, word in enumerate(dict.fromkeys(chain.from_iterable(counts)))}
        self.rows = np.array([row for row, own in enumerate(counts) for _ in own], dtype=np.int64)
        self.words = np.array([self.numbers[word] for own in counts for word in own], dtype=np.int64)
        self.times = np.array([float(number) for own in counts for number in own.values()])
        self.rareness = np.log(self.size / np.bincount(self.words, minlength=len(self.numbers)))
        weights = self.times * self.rareness[self.words]
        self.weights = weights / np.sqrt(self.sums(weights**2)).clip(1e-12)[self.rows]

    def sums(self, entries: Any) -> Any:
        """Sum up what the entries of each sentence have, (sentences,)."""
        return np.bincount(self.rows, entries, minlength=self.size)

    def totals(self, entries: Any) -> Any:
        """Sum up what the entries of each word have, (words,)."""
        return np.bincount(self.words, entries, minlength=len(self.numbers))

    def likeness(self, values: Any) -> Any:
        """The product of each sentence's weights with values of words, (words,) → (sentences,)."""
        return self.sums(self.weights * values[self.words])

    def shared(self, row: int, weights: Any) -> Any:
        """The product of a sentence's weights with those of all sentences, (sentences,); weights of the entries."""
        own = slice(*np.searchsorted(self.rows, [row, row + 1]))
        values = np.zeros(len(self.numbers))
        values[self.words[own]] = weights[own]
        return self.sums(weights * values[self.words])

    def centrality(self) -> Any:
        """How much a sentence is like all others: Erkan and Radev (2004), LexRank, section 3.1, with no threshold."""
        return self.likeness(self.totals(self.weights))

    def commonness(self) -> Any:
        """How often the document has a sentence's words, but for those of any text: Nenkova and Vanderwende (2005)."""
        own = np.array([word not in COMMON_WORDS for word in self.numbers], dtype=float)
        times = self.times * own[self.words]
        return self.sums(times * self.totals(times)[self.words]) / self.sums(times).clip(1)


def words_of(text: str) -> list[str]:
    """The words of a text, without capitals; accents are one with their letters."""
    return WORD.findall(unicodedata.normalize("NFC", text).casefold())


def _rank(values: Any) -> Any:
    """What share of the others is lower; sums of roundings lower nothing."""
    values = np.round(values, 9)
    return np.searchsorted(np.sort(values), values) / max(1, len(values) - 1)
