"""Processor of the Top-Down Transformer: text in, `<s> text </s>` out, and a weight for each token where wanted.

In the order the data flow: reading the four kinds of input and the importance spans, then the processor, which turns
them into ids and weights, cuts, reports what it cut, and pads.
"""

import copy
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import logging

from .summary_lengths import begin_with_lengths


logger = logging.get_logger(__name__)


# ------------------------------------------------------------------------------------------------- reading the input

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
LANGUAGE_CODE = re.compile("[a-z]{2,3}")


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


def _join(parts: Iterable[str], separator: str) -> str:
    """Make one running text; a part without text adds no separator."""
    return separator.join(part.strip() for part in parts if part.strip())


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


def _spans(name: str, value: object, length: int) -> "np.ndarray[Any, Any]":
    """Check a document's importance spans; (spans, 3)."""
    wanted = "a list of (start, end, weight), in characters of the document"
    try:
        spans = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"`{name}` must be {wanted}, got {str(value)[:80]}") from None
    if spans.size == 0 and spans.ndim <= 2:
        return np.zeros((0, 3))
    if spans.ndim != 2 or spans.shape[1] != 3:
        raise ValueError(f"`{name}` must be {wanted}, got {str(value)[:80]}")
    start, end, weight = spans.T
    fits = (start >= 0) & (start < end) & (end <= length) & (start % 1 == 0) & (end % 1 == 0)
    for good, rule in (
        (fits, f"must begin before it ends, within the document's {length} characters"),
        (np.isfinite(weight) & (weight >= 0), "must have a weight of 0 or more"),
    ):
        if not good.all():
            i = int(np.argmin(good))
            raise ValueError(f"`{name}[{i}]` {rule}, got ({start[i]:g}, {end[i]:g}, {weight[i]:g})")
    return spans


def _weights(
    spans: "np.ndarray[Any, Any]", offsets: list[tuple[int, int]], length: int
) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Give each token the largest weight of the spans that it overlaps; (tokens)."""
    characters = np.zeros(length + 1)
    for start, end, weight in spans[np.argsort(spans[:, 2], kind="stable")]:  # the largest last
        characters[int(start) : int(end)] = weight
    if not offsets:
        return np.zeros(0)
    places = np.asarray(offsets)
    weights = np.maximum.reduceat(characters, places.reshape(-1))[::2]
    return np.where(places[:, 0] < places[:, 1], weights, 0.0)


# ------------------------------------------------------------------------------------------------------ the processor

# Per processor, kept out of it so that pickling, hashing and saving it do not change with use: the tokenizer's backend
# and size with our copy of that backend; and what processors have warned of.
_BACKENDS: "weakref.WeakKeyDictionary[TopDownTransformerProcessor, tuple[Any, int, Any]]" = weakref.WeakKeyDictionary()
_WARNED: "weakref.WeakKeyDictionary[TopDownTransformerProcessor, set[str]]" = weakref.WeakKeyDictionary()

_SEPARATORS = {"sentences": " ", "turns": "\n", "documents": "\n\n"}


class TopDownTransformerProcessor(ProcessorMixin):
    """Turns documents into the Top-Down Transformer's input: `<s> text </s>`, as BART's tokenizer does.

    The model cuts its segments by itself, so that there are no markers. The literal text `<s>` stays text.

    Args:
        tokenizer: Any tokenizer of Transformers that has a BOS and an EOS token.
        language: Language of the texts, as a code such as en or de: that in which importance labels find lemmas.

    Raises:
        ValueError: If the tokenizer lacks a token, or the language is no code.

    Source: sections 2.1 and 2.3 (token weights).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None = None, language: str = "en") -> None:
        super().__init__(tokenizer)
        for token in ("bos_token", "eos_token"):
            if getattr(tokenizer, f"{token}_id") is None:
                raise ValueError(
                    f"`tokenizer` ({type(tokenizer).__name__}) has no {token}; documents begin with BOS and end with "
                    f'EOS. Add one with tokenizer.add_special_tokens({{"{token}": …}}) and resize the model\'s '
                    "embeddings."
                )
        if not isinstance(language, str) or not LANGUAGE_CODE.fullmatch(language):
            raise ValueError(f"`language` must be a code of two or three small letters, such as en, got {language!r}")
        self.language = language

    @property
    def extra_inputs(self) -> dict[str, float]:
        """Per-token inputs beyond ids and mask, and the value that pads them; there with `importance=` only."""
        return {"token_importance": 0.0}

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model inputs that the processor makes."""
        return ["input_ids", "attention_mask", *self.extra_inputs]

    def running_text(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
    ) -> str | list[str]:
        """Give the text that is tokenized, whose characters `importance` and `offset_mapping` count.

        Args:
            text: As in the call, of which one is given; it is its own running text.
            sentences: As in the call; joined by spaces.
            turns: As in the call; a line each, "role: content".
            documents: As in the call; joined by blank lines.

        Returns:
            The text of one input, or a list of them.

        Raises:
            ValueError: If the inputs are none, several or malformed.
            TypeError: If an input is not text, or a list of text.
        """
        name, value = self._given(False, text=text, sentences=sentences, turns=turns, documents=documents)
        texts, batched = self._read(name, value)
        return texts if batched else texts[0]

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        text_target: str | Sequence[str] | None = None,
        importance: Sequence[Any] | None = None,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        max_target_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_truncation: bool = False,
        return_offsets_mapping: bool = False,
    ) -> BatchEncoding:
        """Prepare documents, targets or both for the model.

        Give at most one of `text`, `sentences`, `turns` and `documents`, as one input or a list of inputs. A single
        input without `return_tensors` gives flat lists, as tokenizers do.

        Args:
            text: Running text.
            sentences: A document's sentences, joined to running text by single spaces.
            turns: A dialogue: `{"role": …, "content": …}` per turn, read as lines "role: content". A content may be
                empty, as in transcripts.
            documents: Several articles that make one input, one after the other, a blank line between.
            text_target: The summary or summaries: gives `labels`. With a tokenizer that has `[line]`, `[short]` and
                `[long]`, that of the summary's length (at most 25 words, at most 110, more) stands in the place of
                BOS.
            importance: What is important in a document: a list of (start, end, weight) with the characters of the
                running text (see `running_text`) and a weight of 0 or more; for a list of documents, a list of such
                lists. A token gets the largest weight of the spans it overlaps, and 0 outside of all. Where no token
                of a document gets a weight, all get 1, which is average pooling, and a warning says so.
            padding: True or "longest", "max_length", or False. Padded labels are -100, always on the right.
            truncation: Whether to cut at `max_length` and `max_target_length`; by default where they are
                given and nothing is padded, as in Transformers. The EOS token stays.
            max_length: Length limit in tokens, special tokens included; by default the tokenizer's
                `model_max_length`.
            max_target_length: The same for `text_target`.
            pad_to_multiple_of: Rounds the padded length up.
            padding_side: "right" or "left"; by default the tokenizer's.
            return_tensors: "pt" or "np".
            return_truncation: Also return, per input, `num_truncated_tokens` (tokens that are missing), for targets
                `num_truncated_target_tokens`, and with `importance` whether it is `without_importance` (1: no token
                got a weight). Without it, these are logged, the first as a warning.
            return_offsets_mapping: Also return `offset_mapping`: for each token where its characters begin and end in
                the running text; (0, 0) for special tokens and padding.

        Returns:
            `input_ids` and `attention_mask` (batch, tokens), with `importance` also `token_importance` (batch,
            tokens), with `text_target` also `labels` (batch, target tokens); the counts (batch,); `offset_mapping`
            (batch, tokens, 2).

        Raises:
            ValueError: If the inputs are none, several, empty lists or of different lengths, a turn or a span is
                malformed, a limit is below 2, or the tokenizer does not tell where its tokens are.
            TypeError: If an input is not text, or a list of text, as described.
        """
        if truncation not in (True, False, None, "longest_first", "only_first", "do_not_truncate"):
            raise ValueError(f"`truncation` must be True or False, got {truncation!r}")
        by_limits = truncation is None and padding in (False, None, "do_not_pad")  # as in Transformers
        cut = max_length is not None if by_limits else truncation not in (False, None, "do_not_truncate")
        cut_target = max_target_length is not None if by_limits else cut
        name, value = self._given(
            text_target is not None, text=text, sentences=sentences, turns=turns, documents=documents
        )
        located = importance is not None or return_offsets_mapping
        if located and not name:
            raise ValueError("`importance` and `return_offsets_mapping` are about a document; give one")

        data: dict[str, Any] = {}
        batched = True
        if name:
            texts, batched = self._read(name, value)
            spans = None if importance is None else self._read_importance(name, importance, texts, batched)
            data = self._ids(texts, self._limit("max_length", max_length) if cut else None, located, spans)
            if not return_offsets_mapping:
                data.pop("offset_mapping", None)
        if text_target is not None:
            targets, targets_batched = self._read("text_target", text_target)
            counts = [(len(data.get("input_ids", [])), batched), (len(targets), targets_batched)]
            if name and counts[0] != counts[1]:
                got = [f"a list of {n}" if many else "one" for n, many in counts]
                raise ValueError(f"`text_target` must match `{name}`, got {got[1]} for {got[0]}")
            batched = targets_batched
            labels = self._ids(targets, self._limit("max_target_length", max_target_length) if cut_target else None)
            data["labels"] = begin_with_lengths(labels["input_ids"], targets, self.tokenizer)
            data["num_truncated_target_tokens"] = labels["num_truncated_tokens"]

        if not return_truncation:
            self._report(data)
        self._pad(data, padding, max_length, max_target_length, pad_to_multiple_of, padding_side)
        if not batched and return_tensors is None:
            data = {key: values[0] for key, values in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

    def _given(self, none_allowed: bool, **inputs: object) -> tuple[str, object]:
        """Find the one input that is given; an empty name for none."""
        given = [name for name, value in inputs.items() if value is not None]
        if len(given) > 1 or (not given and not none_allowed):
            raise ValueError(
                f"give exactly one of `text`, `sentences`, `turns` and `documents` (or only `text_target`), "
                f"got {' and '.join(given) or 'none'}"
            )
        return (given[0], inputs[given[0]]) if given else ("", None)

    def _read(self, name: str, value: object) -> tuple[list[str], bool]:
        """Bring any kind of input to running texts; say whether it was a batch."""
        if name in ("text", "text_target"):
            batched = not isinstance(value, str)
            values = _items(name, value, "a string or a list of strings") if batched else [value]
            if not values:
                raise ValueError(f"`{name}` is an empty list; give at least one text")
            return [_text(f"{name}[{i}]" if batched else name, item) for i, item in enumerate(values)], batched
        item, wanted = (Mapping, "a list of turns") if name == "turns" else (str, "a list of strings")
        read = _turn if name == "turns" else _text
        rows, batched = _batch(name, value, item, wanted)
        parts = [[read(f"{label}[{j}]", part) for j, part in enumerate(row)] for label, row in rows]
        return [_join(row, _SEPARATORS[name]) for row in parts], batched

    def _read_importance(
        self, name: str, importance: object, texts: list[str], batched: bool
    ) -> "list[np.ndarray[Any, Any]]":
        """Check the importance spans of every document."""
        wanted = "a list of spans for each document" if batched else "a list of spans"
        values = _items("importance", importance, wanted) if batched else [importance]
        if len(values) != len(texts):
            raise ValueError(f"`importance` must match `{name}`, got {len(values)} lists for {len(texts)} documents")
        labels = [f"importance[{i}]" if batched else "importance" for i in range(len(values))]
        rows = zip(labels, values, texts, strict=True)
        return [_spans(label, value, len(text)) for label, value, text in rows]

    def _limit(self, name: str, value: int | None) -> int:
        limit = int(self.tokenizer.model_max_length) if value is None else value
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 2:
            raise ValueError(f"`{name}` must be an integer of at least 2 (a BOS and an EOS token), got {limit!r}")
        return limit

    def _ids(
        self,
        texts: list[str],
        limit: int | None,
        located: bool = False,
        spans: "list[np.ndarray[Any, Any]] | None" = None,
    ) -> dict[str, list[Any]]:
        """Make every text's ids, mask, offsets and weights, with the counts of what the limit cut."""
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        rows = []
        for number, (ids, offsets) in enumerate(self._encode(texts, located)):
            kept = ids if limit is None else ids[: limit - 2]
            row: dict[str, Any] = {"input_ids": [bos, *kept, eos], "attention_mask": [1] * (len(kept) + 2)}
            offsets = offsets[: len(kept)]
            if spans is not None:
                weights = [0.0, *_weights(spans[number], offsets, len(texts[number])).tolist(), 0.0]
                without = not any(weights)
                row["token_importance"] = [1.0] * len(weights) if without else weights
                row["without_importance"] = int(without)
            if located:
                row["offset_mapping"] = [(0, 0), *offsets, (0, 0)]
            rows.append({**row, "num_truncated_tokens": len(ids) - len(kept)})
        return {key: [row[key] for row in rows] for key in rows[0]}

    def _encode(self, texts: list[str], located: bool) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Tokenize texts without special tokens; where they are located, with every token's characters."""
        if not self.tokenizer.is_fast:
            if located:
                raise ValueError(
                    f"`tokenizer` ({type(self.tokenizer).__name__}) has no fast backend, which alone tells where in "
                    "the text a token is; `importance` and `return_offsets_mapping` need one"
                )
            encoded = self.tokenizer(texts, add_special_tokens=False, split_special_tokens=True, verbose=False)
            return [(self._plain(ids), []) for ids in encoded["input_ids"]]
        backend = self._backend()
        encode = backend.encode_batch if located else backend.encode_batch_fast
        encodings = encode(texts, add_special_tokens=False)
        return [(self._plain(encoding.ids), encoding.offsets if located else []) for encoding in encodings]

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

    def _report(self, data: dict[str, Any]) -> None:
        """Take the counts out of the result and log them."""
        counts = {"texts": "num_truncated_tokens", "targets": "num_truncated_target_tokens"}
        lost = {kind: [n for n in data.pop(name, []) if n] for kind, name in counts.items()}
        messages = {}
        if any(lost.values()):
            cut = " and ".join(f"{sum(n)} tokens of {len(n)} {kind}" for kind, n in lost.items() if n)
            messages["cut"] = (
                f"Truncation cut {cut}. return_truncation=True returns the counts per text; a larger max_length or "
                "max_target_length, where the model has positions for it, keeps more."
            )
        if without := sum(data.pop("without_importance", [])):
            messages["without"] = (
                f"No token of {without} texts is important; all their tokens weigh the same. return_truncation=True "
                "returns which."
            )
        warned = _WARNED.setdefault(self, set())
        for kind, message in messages.items():
            (logger.info if kind in warned else logger.warning)(message)
        warned.update(messages)

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
            values: dict[str, Any] = {**self.extra_inputs, "offset_mapping": (0, 0)}
            for key in data.keys() & values:
                fill = [[values[key]] * (len(ids) - n) for ids, n in zip(data["input_ids"], lengths, strict=True)]
                data[key] = [f + row if left else row + f for f, row in zip(fill, data[key], strict=True)]
        if "labels" in data:
            rows, limit = data["labels"], max_target_length if to_limit else None
            padded = self.tokenizer.pad({"input_ids": rows}, **options, max_length=limit, padding_side="right")
            data["labels"] = [
                row + [-100] * (len(ids) - len(row)) for row, ids in zip(rows, padded["input_ids"], strict=True)
            ]


__all__ = ["TopDownTransformerProcessor"]
