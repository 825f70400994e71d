"""Processor of the Coarse-to-Fine LSTM: text in, `sentence </s> sentence </s> …` out, and the row of every token.

In the order the data flow: reading the four kinds of input, then the processor, which turns them into ids, lays these
out in rows, cuts, reports what it cut, and pads.
"""

import copy
import itertools
import re
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from transformers import BatchEncoding, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import logging

from .sentence_splitting import check_language, split_sentences


logger = logging.get_logger(__name__)


# ------------------------------------------------------------------------------------------------- reading the input


class Document(NamedTuple):
    """One input: its running text, and where each sentence but the first begins."""

    text: str
    cuts: list[int]


LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _text(name: str, value: object) -> str:
    """Check that a value is text; surrogates, which tokenizers cannot take, become U+FFFD one for one."""
    if not isinstance(value, str):
        raise TypeError(f"`{name}` must be a string, got {type(value).__name__}")
    return value if value.isascii() else LONE_SURROGATE.sub("\ufffd", value)


def _items(name: str, value: object, wanted: str) -> list[Any]:
    """Check that a value is a list (or another sequence, such as a data set's column)."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(f"`{name}` must be {wanted}, got {type(value).__name__}")
    return list(value)


def _batch(name: str, value: object, item: type, wanted: str) -> tuple[list[tuple[str, list[Any]]], bool]:
    """Return named lists of items, one per document, and whether the value was a batch of such lists."""
    outer = _items(name, value, f"{wanted}, or a list of such lists")
    if not outer or isinstance(outer[0], item):
        return [(name, outer)], False
    return [(f"{name}[{i}]", _items(f"{name}[{i}]", inner, wanted)) for i, inner in enumerate(outer)], True


def _turn(place: str, turn: object) -> str:
    """Read one turn as "role: content"."""
    if not isinstance(turn, Mapping):
        raise TypeError(f'`{place}` must be {{"role": …, "content": …}}, got {type(turn).__name__}')
    if set(turn) != {"role", "content"}:
        raise ValueError(f"`{place}` must have the keys role and content, got {list(turn)}")
    role, content = (_text(f"{place}[{key!r}]", turn[key]).strip() for key in ("role", "content"))
    if not role:
        raise ValueError(f"`{place}['role']` is empty; name the speaker")
    return f"{role}: {content}"


def _join(parts: Iterable[str]) -> Document:
    """Make one running text of sentences, a space between them; an empty one adds no space."""
    text, length, cuts = [], 0, []
    for part in parts:
        cuts.append(length)
        part = part.strip()
        if part:
            text.append(part)
            length += len(part) + (length > 0)
    return Document(" ".join(text), cuts[1:])


# ------------------------------------------------------------------------------------------------------ the processor

# Per processor, kept out of it so that pickling, hashing and saving it do not change with use: the tokenizer's backend
# and size with our copy of that backend; and which processors have warned of cuts.
_BACKENDS: "weakref.WeakKeyDictionary[CoarseToFineLstmProcessor, tuple[Any, int, Any]]" = weakref.WeakKeyDictionary()
_WARNED: "weakref.WeakSet[CoarseToFineLstmProcessor]" = weakref.WeakSet()

ARRANGEMENTS = ("sentences", "grid")
# The thesis' grid.
GRID_ROWS, GRID_ROW_LENGTH = 10, 40


class CoarseToFineLstmProcessor(ProcessorMixin):
    """Turns documents into the Coarse-to-Fine LSTM's input: an EOS token after each sentence, and each token's row.

    Rows are what the model's coarse attention chooses from: the sentences, or the rows of a grid that the words of the
    document are written into one after the other, whatever sentence they are of. The EOS tokens are inserted as ids:
    the literal text `</s>` stays text. Without them, the ids are those that the tokenizer gives for the same text. An
    empty sentence is an empty row; a document without text is a row with an EOS token.

    Args:
        tokenizer: Any tokenizer of Transformers that has an EOS token, such as that of `train_word_level`. One without
            a fast backend works too; it then sees sentence by sentence, and slower.
        rows: "sentences", or "grid" (the thesis).
        row_length: Most tokens of a row, EOS included. A longer sentence goes on in the next row; a row of the grid is
            full before the next one begins. None for whole sentences; for a grid it is 40.
        num_rows: Rows that truncation keeps: no more than `max_rows` of a model with row positions. None for all; for
            a grid it is 10.
        pad_grid: Whether a grid that the document does not fill is filled with padding, of which `row_ids` tell the
            row, for a model with `attend_padding` (the thesis).
        language: Language of the texts, for splitting into sentences: one that punkt knows, such as english or german.

    Raises:
        ValueError: If the tokenizer lacks a token, a number is below 1, `rows` or the language is not known, or there
            is padding for no grid.

    Source: sections 4.3 (sentences), 5.1.1 (EOS tokens) and 5.2 (the grid and its padding).
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None = None,
        rows: str = "sentences",
        row_length: int | None = None,
        num_rows: int | None = None,
        pad_grid: bool = False,
        language: str = "english",
    ) -> None:
        super().__init__(tokenizer)
        if rows not in ARRANGEMENTS:
            raise ValueError(f"`rows` must be one of {', '.join(ARRANGEMENTS)}, got {rows!r}")
        if rows == "grid":
            row_length = GRID_ROW_LENGTH if row_length is None else row_length
            num_rows = GRID_ROWS if num_rows is None else num_rows
        for name, number in (("row_length", row_length), ("num_rows", num_rows)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ValueError(f"`{name}` must be an integer of at least 1 or None, got {number!r}")
        if not isinstance(pad_grid, bool):
            raise ValueError(f"`pad_grid` must be True or False, got {pad_grid!r}")
        if pad_grid and rows != "grid":
            raise ValueError(f'`pad_grid` goes with rows="grid", got rows={rows!r}; sentences have no padding')
        for token in ("eos_token", *(["pad_token"] if pad_grid else [])):
            if getattr(tokenizer, f"{token}_id") is None:
                what = "an EOS token ends each sentence" if token == "eos_token" else "padding fills the grid"
                raise ValueError(
                    f"`tokenizer` ({type(tokenizer).__name__}) has no {token}; {what}. Add one with "
                    f'tokenizer.add_special_tokens({{"{token}": …}}) and resize the model\'s embeddings.'
                )
        check_language(language)
        self.rows = rows
        self.row_length = row_length
        self.num_rows = num_rows
        self.pad_grid = pad_grid
        self.language = language

    @property
    def extra_inputs(self) -> dict[str, int]:
        """Per-token inputs beyond ids and mask, and the value that pads them."""
        return {"row_ids": -1}

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model inputs that the processor makes."""
        return ["input_ids", "attention_mask", *self.extra_inputs]

    def split_sentences(self, text: str) -> list[tuple[int, int]]:
        """Find the sentences of a text, as `text=` does.

        Args:
            text: The text.

        Returns:
            (start, end) in characters, one per sentence.
        """
        return split_sentences(text, self.language)

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        text_target: str | Sequence[str] | None = None,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        max_target_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_truncation: bool = False,
    ) -> BatchEncoding:
        """Prepare documents, targets or both for the model.

        Give at most one of `text`, `sentences`, `turns` and `documents`, as one input or a list of inputs. A single
        input without `return_tensors` gives flat lists, as tokenizers do.

        Args:
            text: Running text, split into sentences here.
            sentences: A document's sentences as you split them; one without text is an empty row (in a grid, nothing).
            turns: A dialogue: `{"role": …, "content": …}` per turn, each read as one sentence, "role: content". A
                content may be empty, as in transcripts.
            documents: Several articles that make one input, one after the other, each split into sentences.
            text_target: The summary or summaries, one sequence `… </s>` each: gives `labels`. The decoder begins with
                BOS, which is none of them.
            padding: True or "longest", "max_length", or False. Padded labels are -100, always on the right.
            truncation: Whether to cut at `max_length`, the processor's `num_rows`, and `max_target_length`; by default
                where they are given and nothing is padded, as in Transformers. Of targets the EOS token
                stays.
            max_length: Length limit in tokens, EOS tokens included; by default the tokenizer's `model_max_length`.
            max_target_length: The same for `text_target`.
            pad_to_multiple_of: Rounds the padded length up.
            padding_side: "right" or "left"; by default the tokenizer's.
            return_tensors: "pt" or "np".
            return_truncation: Also return, per input, `num_truncated_tokens` (tokens that are missing, EOS tokens
                included), `num_truncated_sentences` (sentences that lost a token) and, for targets,
                `num_truncated_target_tokens`. Without it, cuts are logged, the first as a warning.

        Returns:
            `input_ids`, `attention_mask` and `row_ids` (batch, tokens), the last with the row of each token, counted
            from 0, and -1 for padding outside of a grid; with `text_target` also `labels` (batch, target tokens); the
            counts (batch,).

        Raises:
            ValueError: If the inputs are none, several, empty lists or of different lengths, a turn is malformed, or a
                limit is below 1.
            TypeError: If an input is not text, or a list of text, as described.
        """
        if truncation not in (True, False, None, "longest_first", "only_first", "do_not_truncate"):
            raise ValueError(f"`truncation` must be True or False, got {truncation!r}")
        by_limits = truncation is None and padding in (False, None, "do_not_pad")  # as in Transformers
        cut = max_length is not None if by_limits else truncation not in (False, None, "do_not_truncate")
        cut_target = max_target_length is not None if by_limits else cut
        inputs = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        given = [name for name, value in inputs.items() if value is not None]
        if len(given) > 1 or (not given and text_target is None):
            raise ValueError(
                f"give exactly one of `text`, `sentences`, `turns` and `documents` (or only `text_target`), "
                f"got {' and '.join(given) or 'none'}"
            )

        data: dict[str, Any] = {}
        batched = True
        for name in given:
            sources, batched = self._read(name, inputs[name])
            limit = self._limit("max_length", max_length) if cut else None
            rows = [self._arrange(row, limit, cut) for row in self._encode(sources)]
            data = {key: [row[key] for row in rows] for key in rows[0]}
        if text_target is not None:
            targets, targets_batched = self._read("text_target", text_target)
            counts = [(len(data.get("input_ids", [])), batched), (len(targets), targets_batched)]
            if given and counts[0] != counts[1]:
                got = [f"a list of {n}" if many else "one" for n, many in counts]
                raise ValueError(f"`text_target` must match `{given[0]}`, got {got[1]} for {got[0]}")
            batched = targets_batched
            limit = self._limit("max_target_length", max_target_length) if cut_target else None
            labels = [ids for (ids,) in self._encode(targets)]
            kept = [ids if limit is None else ids[: limit - 1] for ids in labels]
            data["labels"] = [[*ids, self.tokenizer.eos_token_id] for ids in kept]
            data["num_truncated_target_tokens"] = [len(a) - len(b) for a, b in zip(labels, kept, strict=True)]

        if not return_truncation:
            self._report_cuts(data)
        self._pad(data, padding, max_length, max_target_length, pad_to_multiple_of, padding_side)
        if not batched and return_tensors is None:
            data = {key: values[0] for key, values in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

    def _read(self, name: str, value: object) -> tuple[list[Document], bool]:
        """Bring any kind of input to documents; say whether it was a batch."""
        if name in ("text", "text_target"):
            batched = not isinstance(value, str)
            values = _items(name, value, "a string or a list of strings") if batched else [value]
            if not values:
                raise ValueError(f"`{name}` is an empty list; give at least one text")
            texts = [_text(f"{name}[{i}]" if batched else name, item) for i, item in enumerate(values)]
            if name == "text_target":
                return [Document(target, []) for target in texts], batched
            return [self._document(item) for item in texts], batched
        item, wanted = (Mapping, "a list of turns") if name == "turns" else (str, "a list of strings")
        read = _turn if name == "turns" else _text
        rows, batched = _batch(name, value, item, wanted)
        checked = [[read(f"{label}[{j}]", part) for j, part in enumerate(row)] for label, row in rows]
        if name == "documents":
            checked = [
                [article[a:b] for article in row for a, b in split_sentences(article, self.language)]
                for row in checked
            ]
        return [_join(row) for row in checked], batched

    def _document(self, text: str) -> Document:
        spans = split_sentences(text, self.language)
        return Document(text, [end for _, end in spans[:-1]])  # white space before a sentence is its own

    def _limit(self, name: str, value: int | None) -> int:
        limit = int(self.tokenizer.model_max_length) if value is None else value
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"`{name}` must be an integer of at least 1, got {limit!r}")
        return limit

    def _encode(self, documents: list[Document]) -> list[list[list[int]]]:
        """Tokenize every document's sentences, without special tokens.

        Documents go through whole, so that the ids are the tokenizer's own, and the ids are cut where sentences begin.
        """
        if not self.tokenizer.is_fast:
            return [self._encode_slowly(document) for document in documents]
        backend = self._backend()
        texts = [document.text for document in documents]
        encoded = []
        for encoding, document in zip(backend.encode_batch(texts, add_special_tokens=False), documents, strict=True):
            ids, offsets = self._plain(encoding.ids), encoding.offsets
            bounds = [0]
            for cut in document.cuts:  # to the first token that begins there or later
                bounds.append(bisect_left(offsets, (cut,), lo=bounds[-1]))
            encoded.append([ids[a:b] for a, b in itertools.pairwise([*bounds, len(ids)])])
        return encoded

    def _encode_slowly(self, document: Document) -> list[list[int]]:
        pieces = [document.text[a:b] for a, b in itertools.pairwise([0, *document.cuts, len(document.text)])]
        encoded = self.tokenizer(pieces, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return [self._plain(ids) for ids in encoded["input_ids"]]

    def _backend(self) -> Any:
        """Return a copy of the tokenizer's backend that reads special tokens as text.

        A copy, since the switch lives in the backend: the tokenizer stays as it is for its other users and threads.
        """
        original, size = self.tokenizer.backend_tokenizer, len(self.tokenizer)
        known = _BACKENDS.get(self)
        if known is None or known[0] is not original or known[1] != size:
            backend = copy.deepcopy(original)
            backend.encode_special_tokens = True
            backend.no_truncation()
            backend.no_padding()
            known = _BACKENDS[self] = (original, size, backend)
        return known[2]

    def _plain(self, ids: list[int]) -> list[int]:
        """Turn special tokens that a vocabulary still finds in text (Unigram, whole words) into the unknown token."""
        unknown = self.tokenizer.unk_token_id
        special = set(self.tokenizer.all_special_ids) - {unknown}
        if special.isdisjoint(ids):
            return ids
        if unknown is None:
            raise ValueError("the text contains a special token, and `tokenizer` has no unk_token to put in its place")
        return [unknown if i in special else i for i in ids]

    def _arrange(self, sentences: list[list[int]], limit: int | None, cut: bool) -> dict[str, Any]:
        """Put the EOS tokens in, lay the tokens out in rows, cut them, and count what was cut."""
        eos, most = self.tokenizer.eos_token_id, self.row_length
        sentences = [[*sentence, eos] if sentence else [] for sentence in sentences]
        if not any(sentences):
            sentences = [[eos]]
        ids = [token for sentence in sentences for token in sentence]
        if self.rows == "grid":
            row_ids = [place // (most or 1) for place in range(len(ids))]
        else:
            row_ids, row = [], 0
            for sentence in sentences:
                row_ids += [row + (0 if most is None else place // most) for place in range(len(sentence))]
                row += 1 if most is None else max(1, -(-len(sentence) // most))
        kept = len(ids) if limit is None else min(limit, len(ids))
        if cut and self.num_rows is not None:
            kept = bisect_left(row_ids, self.num_rows, hi=kept)
        lost = [end > kept for end in itertools.accumulate(map(len, sentences))]
        counts = {
            "num_truncated_tokens": len(ids) - kept,
            "num_truncated_sentences": sum(gone for gone, sentence in zip(lost, sentences, strict=True) if sentence),
        }
        ids, row_ids, mask = ids[:kept], row_ids[:kept], [1] * kept
        if self.pad_grid:
            whole = (most or 1) * max(self.num_rows or 1, 1 + (row_ids[-1] if row_ids else 0))
            row_ids += [place // (most or 1) for place in range(kept, whole)]
            ids += [self.tokenizer.pad_token_id] * (whole - kept)
            mask += [0] * (whole - kept)
        return {"input_ids": ids, "attention_mask": mask, "row_ids": row_ids, **counts}

    def _report_cuts(self, data: dict[str, Any]) -> None:
        """Take the counts out of the result and log them."""
        data.pop("num_truncated_sentences", None)
        counts = {"texts": "num_truncated_tokens", "targets": "num_truncated_target_tokens"}
        lost = {kind: [n for n in data.pop(name, []) if n] for kind, name in counts.items()}
        if any(lost.values()):
            message = " and ".join(f"{sum(n)} tokens of {len(n)} {kind}" for kind, n in lost.items() if n)
            log = logger.info if self in _WARNED else logger.warning
            _WARNED.add(self)
            log(
                f"Truncation cut {message}. return_truncation=True returns the counts per text; a larger max_length "
                "or max_target_length, or num_rows of the processor, keeps more."
            )

    def _pad(
        self,
        data: dict[str, Any],
        padding: bool | str,
        max_length: int | None,
        max_target_length: int | None,
        pad_to_multiple_of: int | None,
        padding_side: str | None,
    ) -> None:
        """Pad in place: ids and mask by the tokenizer, the rest to the same lengths."""
        options = {"padding": padding, "pad_to_multiple_of": pad_to_multiple_of, "return_attention_mask": True}
        to_limit = padding == "max_length"
        if "input_ids" in data:
            lengths = [len(ids) for ids in data["input_ids"]]
            inputs = {key: data[key] for key in ("input_ids", "attention_mask")}
            limit = max_length if to_limit else None
            data.update(self.tokenizer.pad(inputs, **options, max_length=limit, padding_side=padding_side))
            left = (padding_side or self.tokenizer.padding_side) == "left"
            for key, value in self.extra_inputs.items():
                fill = [[value] * (len(ids) - n) for ids, n in zip(data["input_ids"], lengths, strict=True)]
                data[key] = [f + row if left else row + f for f, row in zip(fill, data[key], strict=True)]
        if "labels" in data:
            rows, limit = data["labels"], max_target_length if to_limit else None
            padded = self.tokenizer.pad({"input_ids": rows}, **options, max_length=limit, padding_side="right")
            data["labels"] = [
                row + [-100] * (len(ids) - len(row)) for row, ids in zip(rows, padded["input_ids"], strict=True)
            ]


__all__ = ["CoarseToFineLstmProcessor"]
