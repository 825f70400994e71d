"""Faithful decoding: numbers, names and rare words are written only if the document has them.

Words are runs of letters and digits. One may be written if it stands in the document, with or without a capital, or if
it is one of the commonest words; of a word that takes several tokens, each token only if such a word goes on with it.
Signs other than punctuation (%, €, &, …) and Chinese or Thai characters must stand in the document one by one.
"""

import functools
import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import torch
from transformers import LogitsProcessor
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.utils import logging

from .common_words_hier import COMMON_WORDS
from .copied_words_hier import UNSPACED, combining_marks


logger = logging.get_logger(__name__)

NEVER = 127  # of a token that may not be written: more tokens than any word still needs
# As in BERT's tokenizer. Longer runs, such as those of encoded files, are no words that anyone summarizes.
LONGEST_WORD = 100  # characters
MOST_KEPT = 100_000  # ends of words, whose tokens are counted once for all documents
ENOUGH, FEW_WORDS, ENGLISH = 20000, 10, 1 / 3  # characters; words; share of words
# What anyone may write, besides spaces.
PUNCTUATION = frozenset(".,;:!?'\"()-–—‘’“”„«»…¿¡")  # noqa: RUF001
# Far below any score, and still a number: beams that end up here die out, and what is sampled from is no NaN.
LOWEST = -1e4

_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    rf"{UNSPACED}\U00020000-\U0003ffff"  # kana, Chinese
)
_PARTS = r"\udc80-\udcff"  # parts of characters, as bytes are decoded below

_Table = dict[str, list[int]]


@functools.lru_cache(1)
def _word() -> re.Pattern[str]:
    """Letters, marks and digits."""
    return re.compile(f"((?:[^\\W_{_UNSPACED}]|(?![{_UNSPACED}])[{combining_marks()}\u200c\u200d]|[{_PARTS}])+)")


class _Words:
    """Words, sorted: those with the same beginning stand together."""

    def __init__(self, words: Iterable[str]) -> None:
        self.known = {word for word in words if len(word) <= LONGEST_WORD}
        self.sorted = sorted(self.known)

    def rests(self, beginning: str) -> Iterator[str]:
        """What is left of every longer word that begins so."""
        for place in range(bisect_right(self.sorted, beginning), len(self.sorted)):
            if not self.sorted[place].startswith(beginning):
                return
            yield self.sorted[place][len(beginning) :]


def is_english(text: str) -> bool:
    """Tell whether a text looks like English, by its words without capitals: names and codes are no language."""
    text = text[:ENOUGH]
    alone = re.findall(r"(?<![\w/])[^\W\d_]{2,}(?![\w/])", text.lower() if text.isupper() else text)
    words = [word for word in alone if word == word.lower()]
    return len(words) < FEW_WORDS or sum(word in COMMON_WORDS for word in words) >= ENGLISH * len(words)


class WordPieces:
    """How the tokens of a tokenizer make up words, and which words may always be written."""

    def __init__(self, tokenizer: Any, common_words: Iterable[str] = COMMON_WORDS) -> None:
        if isinstance(common_words, str):
            raise ValueError("`common_words` must be a list of words, got a string.")
        self.texts = _texts(tokenizer)
        # The one way in which WordPiece divides a word. Others divide it in a way that a summary may show in several.
        self.takes_longest = _kind(tokenizer) == "WordPiece"
        special = {number for number, text in enumerate(self.texts) if text is None}
        self.special = special - ({tokenizer.unk_token_id, tokenizer.mask_token_id} - {tokenizer.eos_token_id})
        self.behind: _Table = defaultdict(list)  # end of a text that begins behind a word -> its tokens; "" for none
        self.inside: _Table = defaultdict(list)  # text that a word may go on with -> its tokens
        self.conditions: dict[int, tuple[set[str], list[str]]] = {}  # signs and whole words that a token writes
        self.ends: list[tuple[str, bool]] = []  # of each token: the word it ends with, and whether that begins there
        for number, text in enumerate(self.texts):
            self._add(number, text)
        self.words_alone = {number for number, (word, begins) in enumerate(self.ends) if word and begins}
        self.go_on = {number for number, (word, begins) in enumerate(self.ends) if word and not begins}
        self.longest = max((len(text) for table in (self.behind, self.inside) for text in table), default=0)
        self._needed: dict[str, int] = {"": 0}  # of ends of words, as they were asked for
        # As they are, and without the capitals and accents that the tokenizer takes away.
        common = set(common_words)
        common |= self.words(tokenizer(" ".join(common), add_special_tokens=False, verbose=False)["input_ids"])
        self.common = _Words(way for word in common for way in _ways(word))
        self.common_behind = self.pieces(self.behind, "", self.common)
        self.common_inside = self.pieces(self.inside, "", self.common)
        self._of_common = len(self._needed)

    def forget(self) -> None:
        """Let go of what was found of the words of earlier documents, once that is much."""
        if len(self._needed) > self._of_common + MOST_KEPT:
            self._needed = dict(islice(self._needed.items(), self._of_common))

    def words(self, ids: Iterable[int]) -> set[str]:
        """Words of a text."""
        return set(_word().findall(self._joined(ids)))

    def signs(self, ids: Iterable[int]) -> set[str]:
        """Characters of a text."""
        return set(self._joined(ids))

    def pieces(self, table: _Table, beginning: str, words: _Words) -> dict[int, int]:
        """Which tokens words may go on with."""
        found: dict[int, int] = {}
        for rest in words.rests(beginning):
            for end, ids in self._beginnings(table, rest):
                needed = self._tokens_of(rest[end:])
                if needed < NEVER:
                    found.update((number, min(needed, found.get(number, NEVER))) for number in ids)
                    # A word that is a token is not written in pieces: "bri" is for "brisket", not for "bridge".
                    if self.takes_longest or (not beginning and end == len(rest)):
                        break
        return found

    def _add(self, number: int, text: str | None) -> None:
        """Sort a token under the words that it begins, goes on with, and writes as a whole."""
        if not text:  # special tokens write nothing
            self.ends.append(("", False))
            return
        begins = text[0] == " "
        if (word := text[begins:]).isascii() and word.isalnum():  # most are
            self.ends.append((word, begins))
            (self.behind if begins else self.inside)[word].append(number)
            return
        first, *parts = _word().split(text)  # signs, word, signs, word, …, signs
        last = parts[-2] if parts and not parts[-1] else ""
        self.ends.append((last, bool(first) or len(parts) != 2 or not last))
        if parts and not first:
            # Those that end a word and go on, which no usual tokenizer has, are left out: others write the same.
            if len(parts) == 2 and last:
                self.inside[last].append(number)
            return
        signs = {sign for sign in "".join([first, *parts[1::2]]) if not sign.isspace()} - PUNCTUATION
        whole = parts[0:-2:2] if last else parts[0::2]
        self.behind[last].append(number)
        if signs or whole:
            self.conditions[number] = (signs, whole)

    def _beginnings(self, table: _Table, text: str) -> Iterator[tuple[int, list[int]]]:
        """The tokens that a text begins with, and where they end, the longest first."""
        for end in range(min(len(text), self.longest), 0, -1):
            if text[:end] in table:
                yield end, table[text[:end]]

    def _tokens_of(self, rest: str) -> int:
        """How many tokens the rest of a word takes."""
        known = self._needed  # another thread may put a smaller one in its place
        if rest not in known:
            least = NEVER
            for end, _ in self._beginnings(self.inside, rest):
                least = min(least, 1 + self._tokens_of(rest[end:]))
                if self.takes_longest and least < NEVER:
                    break
            known[rest] = least
        return known[rest]

    def _joined(self, ids: Iterable[int]) -> str:
        # Processors may pad, or know more tokens than the tokenizer.
        return "".join((self.texts[number] if 0 <= number < len(self.texts) else None) or " " for number in ids)


class FaithfulLogitsProcessor(LogitsProcessor):
    """Lets a model write only the words of its document and the commonest words, where other settings leave any."""

    def __init__(
        self,
        word_pieces: WordPieces,
        sources: Sequence[Sequence[int]],
        documents: Sequence[Sequence[int]] | None = None,
        special_ids: Iterable[int] = (),
        max_length: Sequence[int] | int | None = None,  # of all, or of each document
    ) -> None:
        word_pieces.forget()
        documents = sources if documents is None else documents
        if len(documents) != len(sources):
            raise ValueError(f"There are {len(sources)} sources and {len(documents)} documents.")
        self.word_pieces = word_pieces
        self.special = [number for number in word_pieces.special.union(special_ids) if number < len(word_pieces.texts)]
        lengths = [max_length] * len(sources) if max_length is None or isinstance(max_length, int) else max_length
        self.lengths = [math.inf if length is None else length for length in lengths]  # of each document
        self.words: list[_Words] = []
        rows: list[torch.Tensor] = []
        for source, document in zip(sources, documents, strict=True):
            read = word_pieces.words(source) & word_pieces.words(document)
            self.words.append(_Words(way for word in read for way in _ways(word)))
            rows += self._rows(self.words[-1], word_pieces.signs(source) & word_pieces.signs(document))
        rows.append(torch.full_like(rows[0], NEVER))
        # How many more tokens a word needs behind each token: for each document behind a word and behind a sign; and
        # inside of a word, where all depends on the word.
        self.least = torch.stack(rows)  # (2 * batch + 1, vocab)
        self.longest = int(self.least.masked_fill(self.least == NEVER, 0).max())
        self._stacked: torch.Tensor | None = None
        self._bounds_of: dict[tuple[Any, ...], torch.Tensor] = {}
        self._states: dict[tuple[int, str], tuple[int, torch.Tensor, torch.Tensor]] = {}

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Take the words away that may not be written."""
        self.least = self.least.to(scores.device)
        each = len(scores) // len(self.words)
        # Tokens that a word may take behind the next one; the last token may have to be the end.
        left = [int(min(max(length - 2 - input_ids.shape[1], 0), NEVER - 1)) for length in self.lengths]
        written = enumerate(self._unfinished(input_ids))
        states = [(*self._state(row // each, word, scores.device), left[row // each]) for row, word in written]
        bounds = self._stack([self._bounds(place, room, scores) for place, _, _, room in states], scores)
        for row, (place, ids, needed, room) in enumerate(states):
            if ids.shape[0]:
                # What is no word yet has to become one, by the shortest way if there is no room.
                most = room if place < len(self.least) - 1 else needed.min().clamp(min=room)
                bounds[row].index_fill_(0, ids[needed <= most], torch.inf)
        faithful = torch.minimum(scores, bounds)  # several times as fast as filling in a mask
        rows = (faithful.amax(dim=1) == -torch.inf).nonzero()[:, 0]
        if rows.shape[0]:
            faithful[rows] = _given_way(scores[rows], bounds[rows] == -torch.inf)
        return faithful  # type: ignore[return-value]

    def _stack(self, rows: list[torch.Tensor], scores: torch.Tensor) -> torch.Tensor:
        """Rows as one tensor, at each step in one place: each would cut up what the last freed, and memory grow."""
        kept = self._stacked
        if kept is None or (kept.shape, kept.dtype, kept.device) != (scores.shape, scores.dtype, scores.device):
            with torch.inference_mode(False):
                kept = self._stacked = torch.empty_like(scores)
        return torch.stack(rows, out=kept)

    def _bounds(self, place: int, room: int, scores: torch.Tensor) -> torch.Tensor:
        """No bound for tokens that may be written, by a row of `least`, where a word has so much room: (vocab,)."""
        key = place, min(room, self.longest), scores.shape[1], scores.dtype, scores.device
        if key not in self._bounds_of:
            bounds = scores.new_full(scores.shape[1:], -torch.inf)  # it or `least` may be padded
            known = self.least[place, : bounds.shape[0]]
            bounds[: known.shape[0]].masked_fill_(known <= room, torch.inf)
            self._bounds_of[key] = bounds
        return self._bounds_of[key]

    def _rows(self, words: _Words, signs: set[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """What may be written behind a word, and behind a sign: how many tokens a word then still needs, (vocab,)."""
        pieces = self.word_pieces
        behind_word = torch.full((len(pieces.texts),), NEVER, dtype=torch.int8)
        behind_word[pieces.behind[""]] = 0
        for found in (pieces.common_behind, pieces.pieces(pieces.behind, "", words)):
            _lower(behind_word, found)
        known = words.known | pieces.common.known
        for number, (needs_signs, needs_words) in pieces.conditions.items():
            if not signs.issuperset(needs_signs) or not known.issuperset(needs_words):
                behind_word[number] = NEVER
        behind_word[self.special] = 0
        behind_sign = behind_word.clone()
        for found in (pieces.common_inside, pieces.pieces(pieces.inside, "", words)):
            _lower(behind_sign, found)
        return behind_word, behind_sign

    def _unfinished(self, input_ids: torch.Tensor) -> Iterator[str]:
        """What each row has written of its last word."""
        for ids in input_ids[:, -LONGEST_WORD:].tolist():
            word = ""
            for number in reversed(ids):
                end, begins = self.word_pieces.ends[number] if number < len(self.word_pieces.ends) else ("", False)
                word = end + word
                if begins:
                    break
            yield word

    def _state(self, document: int, beginning: str, device: torch.device) -> tuple[int, torch.Tensor, torch.Tensor]:
        """Which row of `least` holds, and which tokens the word may go on with, and how many each needs."""
        if (document, beginning) not in self._states:
            words, pieces = self.words[document], self.word_pieces
            found: dict[int, int] = {}
            for known in (words, pieces.common) if beginning else ():
                for number, needed in pieces.pieces(pieces.inside, beginning, known).items():
                    found[number] = min(needed, found.get(number, NEVER))
            # A word of a prompt may be one that cannot be ended.
            is_word = beginning in words.known or beginning in pieces.common.known or not found
            place = 2 * document + (not beginning) if is_word else len(self.least) - 1
            ids, needs = (torch.tensor(list(part), dtype=torch.long) for part in (found.keys(), found.values()))
            self._states[document, beginning] = place, ids.to(device), needs.to(device)
        return self._states[document, beginning]


class NoDoubledWordLogitsProcessor(LogitsProcessor):
    """Takes the word away that was written just now, unless the document has it twice in a row: "further further".

    Only a word that is one token; not one that begins a longer word of the document, as in "in inositol".
    """

    def __init__(self, word_pieces: WordPieces, sources: Sequence[Sequence[int]]) -> None:
        self.words, go_on = word_pieces.words_alone, word_pieces.go_on
        self.may_follow = [{one for one, two in pairwise(ids) if two == one or two in go_on} for ids in sources]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Take each row's last word away."""
        each = len(scores) // len(self.may_follow)
        last = input_ids[:, -1:]
        doubles = [
            number in self.words and number not in self.may_follow[row // each]
            for row, number in enumerate(last[:, 0].tolist())
        ]
        if not any(doubles):
            return scores
        rows = torch.tensor(doubles, device=scores.device)[:, None]
        lowest = scores.gather(1, last).clamp(max=LOWEST)  # where nothing else is left, it is written all the same
        return scores.scatter(1, last, torch.where(rows, lowest, scores.gather(1, last)))  # type: ignore[return-value]


def _given_way(scores: torch.Tensor, barred: torch.Tensor) -> torch.Tensor:
    """Scores where other settings leave nothing that is allowed: of the token that they force, or of all allowed."""
    is_forced = (scores > -torch.inf).sum(dim=1, keepdim=True) == 1
    lowest = torch.full_like(scores, LOWEST).masked_fill(barred, -torch.inf)
    return torch.where(is_forced, scores, lowest)


def _ways(word: str) -> set[str]:
    """Ways to write a word: as it is, and with or without a capital."""
    return {word, word.lower(), word.capitalize(), word[:1].upper() + word[1:]}


def _lower(row: torch.Tensor, found: dict[int, int]) -> None:
    ids = torch.tensor(list(found), dtype=torch.long)
    row[ids] = torch.minimum(row[ids], torch.tensor(list(found.values()), dtype=row.dtype))


def _kind(tokenizer: Any) -> str:
    return type(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)).__name__


def _texts(tokenizer: Any) -> list[str | None]:
    """What each token writes, with the space before it; None for special ones."""
    vocabulary = tokenizer.get_vocab()
    writes = _writing(tokenizer, vocabulary)
    texts: list[str | None] = [None] * (max(vocabulary.values()) + 1)
    added = tokenizer.added_tokens_decoder
    for piece, number in vocabulary.items():
        texts[number] = str(added[number]) if number in added else writes(piece)
    for number in {*tokenizer.all_special_ids, *(number for number, token in added.items() if token.special)}:
        texts[number] = None
    return texts


def _writing(tokenizer: Any, vocabulary: Iterable[str]) -> Callable[[str], str]:
    """What makes a text of a piece of the vocabulary."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if _kind(tokenizer) == "WordPiece":
        prefix = backend.model.continuing_subword_prefix
        return lambda piece: piece[len(prefix) :] if piece.startswith(prefix) else f" {piece}"
    if _kind(tokenizer) == "WordLevel":
        return lambda piece: f" {piece}"
    if backend is not None and "ByteLevel" in f"{backend.decoder!r} {backend.pre_tokenizer!r}":
        table = {character: byte for byte, character in bytes_to_unicode().items()}
        return lambda piece: _decoded(bytes(table[character] for character in piece))
    if any(piece.startswith("▁") for piece in vocabulary):
        return _sentence_piece
    kinds = "WordPiece, byte-level BPE, SentencePiece or whole words"
    raise ValueError(f"`faithful` is for tokenizers of {kinds}, got {type(tokenizer).__name__}. Leave it out.")


def _sentence_piece(piece: str) -> str:
    byte = re.fullmatch("<0x([0-9A-F]{2})>", piece)
    return _decoded(bytes([int(byte[1], 16)])) if byte else piece.replace("▁", " ")


def _decoded(text: bytes) -> str:
    """Bytes as text; parts of characters stay apart, as letters of their own."""
    return text.decode("utf-8", "surrogateescape")
