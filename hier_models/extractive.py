"""Summaries of the document's own sentences, without a model: lead, LexRank, TextRank, tf-idf, salience.

Own code, since the kept libraries are not faithful: sumy 0.13 ends LexRank's iteration when it changes by less than
0.1 and has it jump nowhere, counts a sentence among its own neighbours in TextRank, and holds setuptools back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from .data.record_readers import KINDS
from .inspection.copying import SourceText, source_text, words_of
from .models.keywords import page_rank
from .models.sentence_splitting import check_language, split_sentences
from .pipelines.long_documents_hier import no_sentences, put_last, sentences_and_headings, worth_of
from .pipelines.salience_hier import Words


Method = Literal["lead", "lexrank", "textrank", "tf-idf", "salience"]
METHODS: tuple[str, ...] = get_args(Method)

LEXRANK_THRESHOLD = 0.1  # LexRank, section 3.2: sentences are linked from this similarity on
ALIKE = 0.5  # sentences more alike than this say the same: of articles about one event many do


class ExtractiveSummarizer:
    """Summarizes by choosing sentences: those of the highest rank that fit, in the order of the source.

    - lead: the beginning; of several articles the first sentence of each, then the second of each, and so on.
    - lexrank: PageRank over sentences linked by a tf-idf cosine above 0.1 (Erkan and Radev, 2004).
    - textrank: PageRank over sentences, weighed by shared words over the logarithms of their lengths (Mihalcea and
      Tarau, 2004).
    - tf-idf: the sum of a sentence's tf-idf values, without stopwords (Christian et al., 2016).
    - salience: weights of place, words and length, learned from summaries in English (after Kupiec et al., 1995).

    But for lead, a sentence is passed over that is too like one chosen before (tf-idf cosine above 0.5); the papers do
    so for LexRank only.

    Time and memory of lexrank and textrank grow with the square of the number of sentences.

    Args:
        method: One of the five.
        max_words: Longest summary, in words between spaces. A single sentence may be longer.
        max_sentences: Most sentences of a summary; None for any number. One, with lead, is the baseline FIRST.
        language: Of the documents: for the sentence splitter, and for tf-idf's stopwords (english, german; other
            languages have none).

    Raises:
        ValueError: If the method or the language is unknown, or `max_words` or `max_sentences` is below 1.

    Source: Highlight-Transformer, Table 1 (first part) and section 4.3.
    """

    def __init__(
        self,
        method: Method = "lead",
        *,
        max_words: int = 256,
        max_sentences: int | None = None,
        language: str = "english",
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        for name, value in (("max_words", max_words), ("max_sentences", max_sentences)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        check_language(language)
        self.method, self.max_words, self.max_sentences, self.language = method, max_words, max_sentences, language

    def __call__(self, document: Mapping[str, Any] | None = None, **source: Any) -> str:
        """Summarize a document.

        Args:
            document: Has one of `text`, `sentences`, `turns` and `documents`, as `load_documents` gives them.
            **source: One of them instead.

        Returns:
            The chosen sentences on one line; empty if the document is.

        Raises:
            ValueError: If there is none of the four, or several.
        """
        given = source if document is None else document
        if self.method == "salience" and [kind for kind in KINDS if given.get(kind) is not None] == ["text"]:
            text = given["text"]
            parts = SourceText(tuple(text[start:end] for start, end in sentences_and_headings(text, self)))
        else:
            parts = source_text(given, self.language)
        sentences = [" ".join(sentence.split()) for sentence in parts.sentences]
        words = [words_of(sentence) for sentence in sentences]
        weighted = None if self.method == "lead" else Words(words)
        chosen: list[int] = []
        alike: list[Any] = []  # how like each chosen one all are, (sentences,)
        left = self.max_words
        for number in self._order(sentences, words, parts):
            length = len(sentences[number].split())
            is_too_long = bool(chosen) and length > left
            if len(chosen) == self.max_sentences or (is_too_long and self.method == "lead"):
                break  # what comes later is not the beginning
            says_the_same = any(similarities[number] > ALIKE for similarities in alike)
            if length and not is_too_long and not says_the_same:
                chosen.append(number)
                left -= length
                if weighted is not None:
                    alike.append(weighted.shared(number, weighted.weights))
        return " ".join(sentences[number] for number in sorted(chosen))

    def split_sentences(self, text: str) -> list[tuple[int, int]]:
        """Find the sentences of a text, (start, end), in the documents' language."""
        return split_sentences(text, self.language)

    def _order(self, sentences: Sequence[str], words: Sequence[Sequence[str]], parts: SourceText) -> list[int]:
        """Sentences by rank, the best first; of equals the earlier."""
        if self.method == "lead":
            return _in_turn(parts)
        if self.method == "lexrank":
            scores = lexrank(words)
        elif self.method == "textrank":
            scores = textrank(words)
        elif self.method == "salience":
            sizes = [*map(len, words)]
            left_out, last = no_sentences(list(sentences), sizes)
            scores = put_last(worth_of(sentences, parts.block_name, parts.blocks), last)
            scores[list(left_out)] = -np.inf  # headings, for which the last words would have room
        else:
            scores = tf_idf_sums(words, _stopwords(self.language))
        # Sums of roundings are no reason to prefer a sentence.
        order = np.argsort(-np.round(scores, 12), kind="stable")
        return [int(number) for number in order if scores[number] > -np.inf]


def lexrank(sentences: Sequence[Sequence[str]], threshold: float = LEXRANK_THRESHOLD) -> Any:
    """Rank sentences by LexRank: Erkan and Radev (2004), Algorithm 3 and Equation 4."""
    links = (_similarities(sentences) > threshold).astype(np.float64)
    np.fill_diagonal(links, 1.0)  # a sentence is like itself, even one of words that are everywhere
    return pagerank(links)


def textrank(sentences: Sequence[Sequence[str]]) -> Any:
    """Rank sentences by TextRank: Mihalcea and Tarau (2004), section 4.1."""
    words = Words(sentences)
    shared = _products(words, np.ones(len(words.words)))
    logarithms = np.log([max(len(words), 1) for words in sentences])
    # Two sentences of one word have logarithms of zero; log 2 keeps them below all others.
    weights = shared / np.maximum(logarithms[:, None] + logarithms[None, :], np.log(2))
    np.fill_diagonal(weights, 0.0)
    return pagerank(weights)


def tf_idf_sums(sentences: Sequence[Sequence[str]], stopwords: frozenset[str] = frozenset()) -> Any:
    """Rank sentences by the sum of their words' tf-idf values: Christian et al. (2016), section 3."""
    words = Words([[word for word in own if word not in stopwords] for own in sentences])
    return words.sums(words.times * words.rareness[words.words])


def pagerank(weights: Any) -> Any:
    """Find where a surfer is, who follows links (from row to column) by their weights, and at times jumps anywhere."""
    size = len(weights)
    if not size:
        return np.zeros(0)
    sums = weights.sum(axis=1)
    steps = np.divide(weights, sums[:, None], out=np.full_like(weights, 1 / size), where=sums[:, None] > 0)
    return page_rank(size, lambda rank: rank @ steps)


def _similarities(sentences: Sequence[Sequence[str]]) -> Any:
    """Cosines of the counts times words' rareness (Erkan and Radev, Equation 1), (sentences, sentences)."""
    words = Words(sentences)
    return _products(words, words.weights)


def _products(words: Words, weights: Any) -> Any:
    rows = [words.shared(row, weights) for row in range(words.size)]
    return np.reshape(rows, (words.size, words.size))


def _in_turn(parts: SourceText) -> list[int]:
    """The order of lead: of several articles their first sentences, then their second, and so on."""
    if parts.block_name != "article" or parts.blocks is None:
        return list(range(len(parts.sentences)))
    # Blocks are in order, and so a sentence's place in its article is its distance from the article's first.
    first = {block: number for number, block in reversed([*enumerate(parts.blocks)])}
    places = [(number - first[block], block, number) for number, block in enumerate(parts.blocks)]
    return [number for *_, number in sorted(places)]


@lru_cache
def _stopwords(language: str) -> frozenset[str]:
    code = {"english": "en", "german": "de"}.get(language)
    if code is None:
        return frozenset()
    from .data.stopwords import load_stopwords

    return load_stopwords(code)
