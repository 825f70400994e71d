"""Whether documents to train on share long passages with documents to test on.

Every n-gram of the test documents, which are few, is held as one hash; the training documents stream by. In the order
the data flow: units of a text, hashes of its n-grams, the index of the test documents, what is found.
"""

import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .columns import BadRecord
from .data_files import files_of_split
from .loading import BadLineError, in_split
from .record_readers import read_records


logger = logging.getLogger(__name__)

# What of a record is no text of the document.
NO_TEXT = ("id", "split", "license", "licence", "url", "domain", "author")
# Words, and Chinese characters and kana one by one.
_HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNIT = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+")
_HAN_UNIT = re.compile(rf"[{_HAN}]")
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no bit is lost
_WORDS_IN_MEMORY = 1_000_000

Hashes = NDArray[np.uint64]
Document = tuple[str, Sequence[str]]


@dataclass(frozen=True)
class Overlap:
    """A document to train on that shares text with one to test on."""

    id: str  # the document to train on
    held_out: str  # the document to test on; the first of them
    reason: Literal["text", "passage"]  # "text" for a whole text, "passage" for an n-gram
    example: str  # the passage, or the beginning of the text


@dataclass
class OverlapReport:
    """What a search found."""

    overlaps: list[Overlap] = field(default_factory=list)  # one for each document to train on that shares text
    # The documents to train on that have any such passage, common or not: a further search needs no others.
    sharing: list[str] = field(default_factory=list)
    documents: int = 0  # how many documents to train on were looked at
    held_out: int = 0  # how many documents to test on there are

    def __str__(self) -> str:
        """A few lines for a message."""
        some = "; ".join(f"{found.id} and {found.held_out} ({found.example!r})" for found in self.overlaps[:3])
        return (
            f"{len(self.overlaps)} of {self.documents} training documents share text with {self.held_out} test or "
            f"validation documents{': ' if some else ''}{some}{'; …' if len(self.overlaps) > 3 else ''}"
        )


def find_overlaps(
    train: Iterable[Document], held_out: Iterable[Document], *, words: int = 13, characters: int = 30, common: int = 10
) -> OverlapReport:
    """Find the documents to train on that share a whole text or a long passage with documents to test on.

    Case, punctuation and spaces do not matter. A passage that stands in more than `common` different documents is
    taken for a formula (a licence, a fixed phrase of the field); documents that have it in the same text, such as
    questions on one paragraph, are one document here. It does not count, nor does a passage that is half of such a
    formula or more; unless the passages that a document shares are half of it or more. A passage with fewer different
    words than half its length ("yeah yeah yeah …" in a transcript) is none.
    """
    for name, value in (("words", words), ("characters", characters), ("common", common)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    index = _Index(held_out, words, characters)
    report = OverlapReport(held_out=len(index.ids))
    frequency: Counter[int] = Counter()
    counted: set[int] = set()  # texts with shared passages; copies of one make no formula of them
    candidates: list[tuple[str, _Shared]] = []
    for identifier, texts in train:
        report.documents += 1
        shared = index.find(texts)
        new = (spot.places.tolist() for spot in shared.spots if spot.text not in counted)
        frequency.update(set(chain.from_iterable(new)))
        counted.update(spot.text for spot in shared.spots)
        if shared.words or shared.document is not None:
            report.sharing.append(identifier)
        if shared.document is not None:
            beginning = " ".join(" ".join(texts).split())[:80]
            report.overlaps.append(Overlap(identifier, shared.document, "text", beginning))
        elif shared.words:
            candidates.append((identifier, shared))
    is_common = {place for place, count in frequency.items() if count + index.counts[place] > common}
    for identifier, shared in candidates:
        place = shared.counting(is_common)
        if place is not None:
            report.overlaps.append(Overlap(identifier, index.owner(place), "passage", shared.words[place]))
    return report


def documents_of_file(file: str | os.PathLike[str], split: str | None = None) -> Iterator[Document]:
    """Read the documents of a file, or of one of its splits; all where the file's name says that it is that split."""
    path = Path(file)
    _, split = files_of_split([(path, path.name)], split)
    unread = []
    for record in read_records(path, path.name):
        if record.row is None:
            unread.append(f"line {record.line} ({record.problem})")
            continue
        try:
            is_wanted = split is None or in_split(record.row, split)
        except BadRecord as error:
            raise BadLineError(f"{record.file}:{record.line}: {error}") from None
        if is_wanted:
            identifier = record.row.get("id")
            name = f"{path.name}:{record.line}" if identifier in (None, "") else str(identifier)
            yield name, texts_of_record(record.row)
    if unread:
        said = "%s: %d lines cannot be read, and are compared with nothing; the first is %s"
        logger.warning(said, path, len(unread), unread[0])


def texts_of_record(record: Mapping[str, Any]) -> list[str]:
    """Collect the texts of a record, its source and its summary alike."""
    texts = (" ".join(texts_in(value)) for name, value in record.items() if name.lower() not in NO_TEXT)
    return [text for text in texts if text.strip()]


def texts_in(value: Any) -> list[str]:
    """Find every text in lists and mappings of them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return texts_in(list(value.values()))
    return [text for item in value for text in texts_in(item)] if isinstance(value, list | tuple) else []


# --------------------------------------------------------------------------------------------------- units and hashes


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


@lru_cache(_WORDS_IN_MEMORY)
def _hash_of_unit(unit: str) -> int:
    return _hash(unit.encode("utf-8", "surrogatepass"))


def _hashes_of_passages(units: Hashes, length: int) -> Hashes:
    """A polynomial of the units' hashes for each passage, modulo 2⁶⁴."""
    count = max(0, len(units) - length + 1)
    total = np.zeros(count, dtype=np.uint64)
    for offset in range(length):
        total = total * _BASE + units[offset : offset + count]
    return total


@dataclass(frozen=True)
class _Text:
    """A text's units, the length of its passages, and the hash of each passage."""

    units: list[str]
    is_chinese: bool
    length: int
    passages: Hashes
    whole: int

    def says_something(self, start: int) -> bool:
        return 2 * len(set(self.units[start : start + self.length])) >= self.length

    def words_at(self, start: int) -> str:
        return ("" if self.is_chinese else " ").join(self.units[start : start + self.length])


def _read(texts: Sequence[str], words: int, characters: int) -> list[_Text]:
    found = []
    for text in texts:
        units = _UNIT.findall(text.lower())
        chinese = not text.isascii() and 2 * len(_HAN_UNIT.findall(text)) > len(units)
        length = characters if chinese else words
        hashes = np.fromiter(map(_hash_of_unit, units), dtype=np.uint64, count=len(units))
        found.append(_Text(units, chinese, length, _hashes_of_passages(hashes, length), _hash(hashes.tobytes())))
    return found


def _wholes(texts: Sequence[_Text]) -> list[int]:
    """Hashes of the texts that are long enough to be known by; of very short documents, of all texts together."""
    long = [text.whole for text in texts if len(text.units) >= text.length]
    if long or not any(text.units for text in texts):
        return long
    return [_hash(",".join(str(text.whole) for text in texts).encode())]


# ---------------------------------------------------------------------------------------------------------- the index


class _Index:
    """Hashes of all passages of the held-out documents, sorted, with the document that each is of."""

    def __init__(self, documents: Iterable[Document], words: int, characters: int) -> None:
        self.words, self.characters = words, characters
        self.ids: list[str] = []
        self.whole: dict[int, int] = {}
        parts, owners = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int32)]
        indexed: set[int] = set()  # questions on one text are one document of it
        for number, (identifier, texts) in enumerate(documents):
            self.ids.append(identifier)
            read = _read(texts, words, characters)
            for whole in _wholes(read):
                self.whole.setdefault(whole, number)
            new = [text.passages for text in read if text.whole not in indexed]
            indexed.update(text.whole for text in read)
            distinct = np.unique(np.concatenate([parts[0], *new]))
            parts.append(distinct)
            owners.append(np.full(len(distinct), number, dtype=np.int32))
        # Of a passage in several documents, the first owns it and all are counted.
        self.hashes, first, self.counts = np.unique(np.concatenate(parts), return_index=True, return_counts=True)
        self.owners = np.concatenate(owners)[first]

    def owner(self, place: int) -> str:
        return self.ids[int(self.owners[place])]

    def find(self, texts: Sequence[str]) -> "_Shared":
        read = _read(texts, self.words, self.characters)
        found = _Shared(
            document=next((self.ids[self.whole[whole]] for whole in _wholes(read) if whole in self.whole), None),
            passages=sum(len(text.passages) for text in read),
        )
        for text in read if len(self.hashes) else ():
            places = np.searchsorted(self.hashes, text.passages)
            places[places == len(self.hashes)] = 0
            starts = np.flatnonzero(self.hashes[places] == text.passages)
            starts = starts[np.array([text.says_something(start) for start in starts.tolist()], dtype=bool)]
            if len(starts):
                found.spots.append(_Spots(text.whole, text.length, starts, places[starts]))
                for start in starts.tolist():
                    found.words.setdefault(int(places[start]), text.words_at(start))
        return found


@dataclass(frozen=True)
class _Spots:
    """What a text shares with held-out ones: its hash, its passages' length, where they begin, their places."""

    text: int
    length: int
    starts: NDArray[np.int64]
    places: NDArray[np.int64]


@dataclass
class _Shared:
    """What a document shares with the held-out ones."""

    document: str | None  # A held-out document that has one of the texts as a whole
    passages: int  # how many passages the document has
    words: dict[int, str] = field(default_factory=dict)  # the passages that it shares: place in the index -> words
    spots: list[_Spots] = field(default_factory=list)  # of each text with such passages, where they are

    def counting(self, is_common: set[int]) -> int | None:
        """The first passage that is no formula, nor half of one; any, where they are half of the document."""
        for spot in self.spots:
            common = np.array([place in is_common for place in spot.places.tolist()])
            covered = np.zeros(int(spot.starts[-1]) + spot.length, dtype=bool)
            for start in spot.starts[common].tolist():
                covered[start : start + spot.length] = True
            for start, place in zip(spot.starts[~common].tolist(), spot.places[~common].tolist(), strict=True):
                if 2 * int(covered[start : start + spot.length].sum()) < spot.length:
                    return int(place)
        return next(iter(self.words)) if 2 * len(self.words) >= self.passages else None
