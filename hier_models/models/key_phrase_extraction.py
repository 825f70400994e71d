"""Key phrases of a document: the best of its short runs of words, by default by tf-idf in the counts of a corpus."""

import base64
import hashlib
import math
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .phrase_finder import TF_IDF, PhraseFinder
from .phrase_spans import Phrase
from .phrase_words import composed_words, is_in_a_word, is_unspaced, split_words
from .text_inputs import check_integer


# Words whose hashes are kept at hand, and phrases of documents that are gathered before they are counted together.
_WORDS_IN_MEMORY = 2**20
_GATHERED = 2**21
# A phrase's key is h(first word)·K + h(second word), and so on; odd, so that no bit is lost.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ODD = np.uint64(1)

Array = np.ndarray[Any, Any]


class _WordHashes(dict[str, int]):
    """Words to numbers of 64 bits, the same on every machine; 0 for what is in no phrase, odd unless all digits."""

    def __missing__(self, word: str) -> int:
        number = 0
        composed = unicodedata.normalize("NFC", word)
        if composed != word:  # é as e and an accent is the same letter
            number = self[composed]
        elif len(word) > 1 or is_unspaced(word):
            digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            number = max(2, int.from_bytes(digest, "little") & ~1) | (not word.isdigit())
        self[word] = number
        return number


class Candidates(NamedTuple):
    """Phrases of a document that may be key phrases, each once."""

    keys: Array  # their hashes, (phrases,)
    counts: Array  # how often each is there, (phrases,)
    of: Array  # which phrase each occurrence is of, (occurrences,)
    bounds: Array  # characters of each occurrence, (occurrences, 2)
    first: Array  # first occurrence of each, (phrases,)

    def words(self, text: str) -> Iterator[list[str]]:
        """Give the words of each phrase."""
        return (composed_words(text[start:end]) for start, end in self.bounds[self.first].tolist())


class RankedPhrases(PhraseFinder):
    """Chooses the best of all runs of a few words.

    Candidates are runs of words side by side with no punctuation between, none of them a stopword or a single letter
    (as in scikit-learn; not so in scripts without spaces), and not all of them numbers.

    Args:
        stopwords: Words that are in no phrase.
        lengths: How many words a phrase may have.
        top_k: How many phrases of a document are chosen.

    Raises:
        ValueError: If a length or `top_k` is below 1, or there is no length.
        TypeError: If a stopword is no string.

    Source: section 4.1.
    """

    def __init__(self, stopwords: Iterable[str] = (), lengths: Sequence[int] = (2, 3), top_k: int = 10) -> None:
        if isinstance(stopwords, str):
            raise TypeError(f"`stopwords` must be a list of words, got the string {stopwords[:80]!r}")
        words = list(stopwords)
        if not all(isinstance(word, str) for word in words):
            raise TypeError(f"`stopwords` must be words, got {next(w for w in words if not isinstance(w, str))!r}")
        if not lengths or not all(type(number) is int and number >= 1 for number in lengths):
            raise ValueError(f"`lengths` must be numbers of words of 1 or more, such as (2, 3), got {lengths!r}")
        check_integer("top_k", top_k)
        # As words are found in texts: "won't" is one word, "e-mail" two.
        self.stopwords = frozenset(part for word in words for part in composed_words(word))
        self.lengths = tuple(sorted(set(lengths)))
        self.top_k = top_k
        self._hashes = _WordHashes()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.stopwords)} stopwords, lengths={self.lengths}, top_k={self.top_k})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_hashes": _WordHashes()}  # the same however much it was used

    def as_dict(self) -> dict[str, Any]:
        """Give the stopwords, lengths and how many are chosen."""
        return {"lengths": list(self.lengths), "top_k": self.top_k, "stopwords": sorted(self.stopwords)}

    def find(self, text: str, ranges: Sequence[tuple[int, int]] | None = None) -> list[Phrase]:
        """Find the key phrases of a document; see [`PhraseFinder`].

        Args:
            text: The document.
            ranges: Where to look, as (start, end) in characters; by default everywhere.

        Returns:
            At most `top_k` phrases with a score above 0, the most important first and of equals the earlier one. Their
            values have an L2 norm of 1. A phrase looks as where it first occurs, and has all its places in the ranges.

        Raises:
            ValueError: If what finds them is not fitted.

        Source: section 4.1.
        """
        keys, bounds = self._candidates(text, ranges)
        unique, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        scores = self._scores(text, ranges, Candidates(unique, counts, inverse, bounds, first))
        chosen = np.lexsort((first, bounds[first, 0], -scores))[: self.top_k]
        chosen = chosen[scores[chosen] > 0]
        values = scores[chosen] / math.sqrt(float(np.sum(scores[chosen] ** 2)) or 1.0)
        phrases = []
        for number, value in zip(chosen, values.tolist(), strict=True):
            places = bounds[inverse == number].tolist()
            start, end = places[0]
            phrases.append(Phrase(" ".join(text[start:end].split()), value, tuple((a, b) for a, b in places)))
        return phrases

    def _scores(self, text: str, ranges: Sequence[tuple[int, int]] | None, candidates: Candidates) -> Array:
        """How important each candidate is, 0 or more, (phrases,)."""
        raise NotImplementedError

    def _candidates(self, text: str, ranges: Sequence[tuple[int, int]] | None) -> tuple[Array, Array]:
        """Find every phrase that may be a key phrase: its key (phrases,) and its characters (phrases, 2)."""
        if len(self._hashes) > _WORDS_IN_MEMORY or not self._hashes:
            self._hashes = _WordHashes(dict.fromkeys(self.stopwords, 0))
        keys, places = [], []
        for start, end in [(0, len(text))] if ranges is None else ranges:
            for key, place in self._candidates_of(text, start, end):
                keys.append(key)
                places.append(place)
        if not keys:
            return np.zeros(0, dtype=np.uint64), np.zeros((0, 2), dtype=np.int64)
        return np.concatenate(keys), np.concatenate(places)

    def _candidates_of(self, text: str, start: int, end: int) -> Iterator[tuple[Array, Array]]:
        words, bounds, beside = split_words(text[start:end])
        whole = slice(int(is_in_a_word(text, start)), len(words) - is_in_a_word(text, end))
        words, bounds, beside = words[whole], bounds[whole], beside[whole.start : max(0, whole.stop - 1)]
        if not words:
            return
        hashes = np.fromiter(map(self._hashes.__getitem__, words), dtype=np.uint64, count=len(words))
        bounds = bounds + start
        content = hashes != 0
        linked = content[:-1] & content[1:] & beside  # (words - 1,): this word and the next are of one phrase
        keys, valid, named = hashes, content, hashes & _ODD
        for n in range(1, self.lengths[-1] + 1):
            if n > 1:
                keys = keys[:-1] * _FACTOR + hashes[n - 1 :]
                valid = valid[:-1] & linked[n - 2 :]
                named = named[:-1] | (hashes[n - 1 :] & _ODD)
            if not len(keys):
                return
            if n in self.lengths:
                at = np.flatnonzero(valid & (named != 0))
                yield keys[at], np.stack([bounds[at, 0], bounds[at + n - 1, 1]], axis=1)


class KeyPhraseExtractor(RankedPhrases, name=TF_IDF):
    """Finds the key phrases of a document by tf-idf, among the candidates of [`RankedPhrases`].

    Their tf-idf is that of scikit-learn's `TfidfVectorizer` with its defaults, tf · (ln((1 + N) / (1 + df)) + 1),
    where the df of a phrase that the corpus lacks is 0. Unlike there, phrases are known by a hash of 64 bits, so that
    a corpus of any size is counted in bounded memory and quickly, and the counts are a small file without pickle.

    Args:
        stopwords: Words that are in no phrase.
        lengths: How many words a phrase may have.
        top_k: How many phrases of a document are chosen.

    Raises:
        ValueError: If a length or `top_k` is below 1, or there is no length.
        TypeError: If a stopword is no string.

    Source: section 4.1.
    """

    def __init__(self, stopwords: Iterable[str] = (), lengths: Sequence[int] = (2, 3), top_k: int = 10) -> None:
        super().__init__(stopwords, lengths, top_k)
        self.documents = 0
        self.uncounted = 0
        self._keys: Array = np.zeros(0, dtype=np.uint64)
        self._counts: Array = np.zeros(0, dtype=np.uint32)

    def __len__(self) -> int:
        """How many phrases of the corpus are known."""
        return len(self._keys)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.documents} documents, {len(self)} phrases, {len(self.stopwords)} stopwords, "
            f"lengths={self.lengths}, top_k={self.top_k})"
        )

    # Fitting

    def fit(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        max_phrases: int = 1_000_000,
        min_documents: int = 2,
        max_counted: int = 8_000_000,
    ) -> "KeyPhraseExtractor":
        """Count in how many documents of a corpus each phrase is; what was counted before is forgotten.

        Memory does not grow with the corpus: about 50 bytes times `max_counted`. When more phrases than that are
        counted, the rarer half is dropped and begins anew; `uncounted` says by how much a count may be too low.

        Args:
            texts: A document each: a text, or a list of its articles. Read once, so that it may be a generator.
            max_phrases: How many phrases to keep: those of the most documents.
            min_documents: Phrases of fewer documents are not kept. They count as if no document had them.
            max_counted: How many phrases to count at a time.

        Returns:
            The extractor itself.

        Raises:
            ValueError: If there is no document, or a number is below 1.
            TypeError: If a document is no text.
        """
        limits = {"max_phrases": max_phrases, "min_documents": min_documents, "max_counted": max_counted}
        for name, limit in limits.items():
            check_integer(name, limit)
        if isinstance(texts, str):
            raise TypeError("`texts` must be documents, got one string")
        table = _Table(max_counted)
        documents = 0
        for text in texts:
            if not isinstance(text, str) and not (
                isinstance(text, Sequence) and all(isinstance(article, str) for article in text)
            ):
                raise TypeError(
                    f"document {documents} of `texts` must be a string or a list of strings, got {type(text).__name__}"
                )
            keys, _ = self._candidates(text if isinstance(text, str) else "\n\n".join(text), None)
            table.add(np.unique(keys))
            documents += 1
        if not documents:
            raise ValueError("`texts` has no document")
        keys, counts = table.most(max_phrases, min_documents)
        self.documents, self.uncounted, self._keys, self._counts = documents, table.uncounted, keys, counts
        return self

    def _scores(self, text: str, ranges: Sequence[tuple[int, int]] | None, candidates: Candidates) -> Array:
        if not self.documents:
            raise ValueError("the KeyPhraseExtractor is not fitted; give its `fit` the documents of a corpus")
        idf: Array = np.log((1 + self.documents) / (1 + self._frequencies(candidates.keys))) + 1
        return candidates.counts * idf

    def _frequencies(self, keys: Array) -> Array:
        """Look up in how many documents phrases are; (phrases,)."""
        if not len(self._keys):
            return np.zeros(len(keys), dtype=np.int64)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._counts[places].astype(np.int64), 0)

    def as_dict(self) -> dict[str, Any]:
        """Give all that is counted: what `save` writes."""
        return {
            "documents": self.documents,
            "uncounted": self.uncounted,
            **super().as_dict(),
            "keys": _packed(self._keys.astype("<u8")),
            "counts": _packed(self._counts.astype("<u4")),
        }

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> "KeyPhraseExtractor":
        """Make what gave these settings and counts."""
        extractor = cls(settings["stopwords"], settings["lengths"], settings["top_k"])
        extractor.documents, extractor.uncounted = int(settings["documents"]), int(settings["uncounted"])
        extractor._keys = _unpacked(settings["keys"], "<u8").astype(np.uint64)
        extractor._counts = _unpacked(settings["counts"], "<u4").astype(np.uint32)
        if len(extractor._keys) != len(extractor._counts):
            raise ValueError(f"{len(extractor._keys)} keys, {len(extractor._counts)} counts")
        return extractor


class _Table:
    """Counts keys in bounded memory: when there are too many, the rarer half goes (lossy counting)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.uncounted = 0
        self.keys: Array = np.zeros(0, dtype=np.uint64)
        self.counts: Array = np.zeros(0, dtype=np.uint32)
        self._gathered: list[Array] = []
        self._waiting = 0

    def add(self, keys: Array) -> None:
        """Count each of some keys once more."""
        self._gathered.append(keys)
        self._waiting += len(keys)
        if self._waiting >= min(_GATHERED, self.size):
            self._merge()

    def most(self, size: int, least: int) -> tuple[Array, Array]:
        """Give the keys with the highest counts, and these."""
        self._merge()
        self._keep(self.counts >= least)
        if len(self.keys) > size:
            # Of equal counts those with the lower keys, which are in order.
            best = np.argsort(-self.counts.astype(np.int64), kind="stable")[:size]
            self._keep(np.sort(best))
        return self.keys, self.counts

    def _merge(self) -> None:
        if not self._waiting:
            return
        keys, counts = np.unique(np.concatenate(self._gathered), return_counts=True)
        self._gathered, self._waiting = [], 0
        places = np.searchsorted(self.keys, keys)
        known = np.zeros(len(keys), dtype=bool)
        inside = places < len(self.keys)
        known[inside] = self.keys[places[inside]] == keys[inside]
        self.counts[places[known]] += counts[known].astype(np.uint32)
        self.keys = np.insert(self.keys, places[~known], keys[~known])
        self.counts = np.insert(self.counts, places[~known], counts[~known].astype(np.uint32))
        if len(self.keys) > self.size:
            dropped = _cut(self.counts, max(1, self.size // 2))
            self.uncounted += dropped
            self._keep(self.counts > dropped)

    def _keep(self, chosen: Array) -> None:
        self.keys, self.counts = self.keys[chosen], self.counts[chosen]


def _cut(counts: Array, size: int) -> int:
    """Give the count that at most `size` counts are above."""
    return int(np.partition(counts, len(counts) - size - 1)[len(counts) - size - 1])


def _packed(array: Array) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 1)).decode("ascii")


def _unpacked(text: str, dtype: str) -> Array:
    return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), dtype=dtype)
