"""Processor of HAT-BART: text in, `<s> sentence <s> sentence … </s>` out.

In the order the data flow: reading the four kinds of input, then the processor, which turns them into ids, inserts the
markers, cuts, reports what it cut, and pads.
"""

import copy
import itertools
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel
from transformers import BatchEncoding, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import logging

from .sentence_splitting import check_language, split_sentences
from .summary_lengths import begin_with_lengths
from .text_inputs import check_text


logger = logging.get_logger(__name__)


# ------------------------------------------------------------------------------------------------- reading the input


class Document(NamedTuple):
    """One input: its running text, where each sentence but the first begins, and each sentence's segment."""

    text: str
    cuts: list[int]
    segments: list[int]


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


def _join(parts: Iterable[tuple[str, int]]) -> Document:
    """Make one running text of sentences and their segments, a space between them; an empty one adds no space."""
    text, length, cuts, segments = [], 0, [], []
    for part, segment in parts:
        cuts.append(length)
        segments.append(segment)
        part = part.strip()
        if part:
            text.append(part)
            length += len(part) + (length > 0)
    return Document(" ".join(text), cuts[1:], segments or [0])


# --------------------------------------------------------------------------------------- where sentences begin in ids


def _bounds_by_width(widths: "np.ndarray[Any, Any]", document: Document) -> list[int] | None:
    """Find each cut's token from the tokens' widths in bytes; None if the widths do not add up to the text."""
    pieces = [document.text[a:b].encode() for a, b in itertools.pairwise([0, *document.cuts, len(document.text)])]
    ends = np.cumsum(widths)
    lengths = list(itertools.accumulate(map(len, pieces)))
    if (int(ends[-1]) if len(ends) else 0) != lengths[-1]:
        return None
    bounds: list[int] = np.searchsorted(ends - widths, lengths[:-1]).tolist()
    return bounds


def _bounds_by_offset(offsets: list[tuple[int, int]], document: Document) -> list[int]:
    """Find each cut's token, the first that begins there or later, from the tokens' offsets in characters."""
    bounds = [0]
    for cut in document.cuts:
        bounds.append(bisect_left(offsets, (cut,), lo=bounds[-1]))
    return bounds[1:]


# ------------------------------------------------------------------------------------------------------ the processor

# Per processor, kept out of it so that pickling, hashing and saving it do not change with use: the tokenizer's backend
# and size with our copy of that backend and its tokens' widths; and which processors have warned of cuts.
_BACKENDS: "weakref.WeakKeyDictionary[HatBartProcessor, tuple[Any, int, Any, Any]]" = weakref.WeakKeyDictionary()
_WARNED: "weakref.WeakSet[HatBartProcessor]" = weakref.WeakSet()


class HatBartProcessor(ProcessorMixin):
    """Turns documents into HAT-BART's input: every sentence begins with a BOS token, one EOS ends the document.

    The markers are inserted as ids: the literal text `<s>` stays text. Without the markers, the ids are those that the
    tokenizer gives for the same text; white space between two sentences goes to the second. A document without text is
    one empty sentence, `<s></s>`.

    Args:
        tokenizer: Any tokenizer of Transformers that has a BOS and an EOS token, and not the same for both. One
            without a fast backend works too; it then sees sentence by sentence, and slower. One that sets markers
            itself (`HatBartTokenizer`) gives the same, and takes on the language.
        num_segments: How many roles `segment_ids` tell apart; 0 for none, as in the model's config.
        language: Language of the texts, for splitting into sentences: one that punkt knows, such as english or german.
            By default that of a tokenizer that sets markers, else english.

    Raises:
        ValueError: If the tokenizer lacks a token, `num_segments` is negative or the language is not known.

    Source: sections 3.1 (BOS tokens) and 4.1 (turns and segments).
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase | None = None, num_segments: int = 0, language: str | None = None
    ) -> None:
        super().__init__(tokenizer)
        for token in ("bos_token", "eos_token"):
            if getattr(tokenizer, f"{token}_id") is None:
                raise ValueError(
                    f"`tokenizer` ({type(tokenizer).__name__}) has no {token}; BOS tokens mark the sentences, an EOS "
                    f'token ends the document. Add one with tokenizer.add_special_tokens({{"{token}": …}}) and resize '
                    "the model's embeddings."
                )
        if self.tokenizer.bos_token_id == self.tokenizer.eos_token_id:
            raise ValueError(
                f"`tokenizer` has {self.tokenizer.bos_token!r} as bos_token and as eos_token, so that the end would "
                'count as a sentence. Add another bos_token with tokenizer.add_special_tokens({"bos_token": …}).'
            )
        if isinstance(num_segments, bool) or not isinstance(num_segments, int) or num_segments < 0:
            raise ValueError(f"`num_segments` must be an integer, 0 or more, got {num_segments!r}")
        marks = hasattr(self.tokenizer, "encode_sentences")  # by what it can: remote code has a class of its own
        self.num_segments = num_segments
        self.language = language or (self.tokenizer.language if marks else "english")
        check_language(self.language)
        if marks:
            self.tokenizer.language = self.language

    @property
    def extra_inputs(self) -> dict[str, int]:
        """Per-token inputs beyond ids and mask, and the value that pads them."""
        return {"segment_ids": 0} if self.num_segments else {}

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

    def running_text(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
    ) -> str | list[str]:
        """Give the text that is tokenized, whose characters `offset_mapping` counts.

        Args:
            text: As in the call, of which one is given; it is its own running text.
            sentences: As in the call; joined by spaces.
            turns: As in the call; "role: content", joined by spaces.
            documents: As in the call; their sentences, joined by spaces.

        Returns:
            The text of one input, or a list of them.

        Raises:
            ValueError: If the inputs are none, several or malformed.
        """
        inputs = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        given = [name for name, value in inputs.items() if value is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"give exactly one of `text`, `sentences`, `turns` and `documents`, got {got}")
        rows, batched = self._read(given[0], inputs[given[0]])
        texts = [row.text for row in rows]
        return texts if batched else texts[0]

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
        return_offsets_mapping: bool = False,
        return_truncation: bool = False,
    ) -> BatchEncoding:
        """Prepare documents, targets or both for the model.

        Give at most one of `text`, `sentences`, `turns` and `documents`, as one input or a list of inputs. A single
        input without `return_tensors` gives flat lists, as tokenizers do.

        Args:
            text: Running text, split into sentences here.
            sentences: A document's sentences as you split them, each with its marker, empty ones too. They are joined
                to running text by single spaces.
            turns: A dialogue: `{"role": …, "content": …}` per turn, one marker each, read as "role: content". With
                `num_segments`, `segment_ids` number the roles of a document in order of appearance. A content may be
                empty, as in transcripts.
            documents: Several articles that make one input, one after the other, each split into sentences.
            text_target: The summary or summaries, one sequence `<s> … </s>` each: gives `labels`. With a tokenizer
                that has `[line]`, `[short]` and `[long]`, that of the summary's length (at most 25 words, at most
                110, more) stands in the place of BOS.
            padding: True or "longest", "max_length", or False. Padded labels are -100, always on the right.
            truncation: Whether to cut at `max_length` and `max_target_length`; by default where they are
                given and nothing is padded, as in Transformers. The EOS token stays; a sentence of which no token fits
                loses its marker too.
            max_length: Length limit in tokens, markers included; by default the tokenizer's `model_max_length`.
            max_target_length: The same for `text_target`.
            pad_to_multiple_of: Rounds the padded length up.
            padding_side: "right" or "left"; by default the tokenizer's.
            return_tensors: "pt" or "np".
            return_offsets_mapping: Also return `offset_mapping`: where in the running text each token begins and ends,
                in characters; (0, 0) for markers, EOS and padding. The running text of `sentences` and `turns` has a
                space between them. Needs a tokenizer with a fast backend.
            return_truncation: Also return, per input, `num_truncated_tokens` (tokens that are missing, markers
                included), `num_truncated_sentences` (sentences that lost a token) and, for targets,
                `num_truncated_target_tokens`. Without it, cuts are logged, the first as a warning.

        Returns:
            `input_ids` and `attention_mask` (batch, tokens), with `num_segments` also `segment_ids`, with
            `text_target` also `labels` (batch, target tokens); the counts (batch,); `offset_mapping` (batch, tokens,
            2).

        Raises:
            ValueError: If the inputs are none, several, empty lists or of different lengths, a turn is malformed, a
                document has more roles than `num_segments`, or a limit is below 2.
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
            data = self._ids(sources, limit, return_offsets_mapping)
        if text_target is not None:
            targets, targets_batched = self._read("text_target", text_target)
            counts = [(len(data.get("input_ids", [])), batched), (len(targets), targets_batched)]
            if given and counts[0] != counts[1]:
                got = [f"a list of {n}" if many else "one" for n, many in counts]
                raise ValueError(f"`text_target` must match `{given[0]}`, got {got[1]} for {got[0]}")
            batched = targets_batched
            labels = self._ids(targets, self._limit("max_target_length", max_target_length) if cut_target else None)
            texts = [target.text for target in targets]
            data["labels"] = begin_with_lengths(labels["input_ids"], texts, self.tokenizer)
            data["num_truncated_target_tokens"] = labels["num_truncated_tokens"]

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
            texts = [check_text(f"{name}[{i}]" if batched else name, item) for i, item in enumerate(values)]
            if name == "text_target":
                return [Document(target, [], [0]) for target in texts], batched
            return [self._document(item) for item in texts], batched
        if name == "turns":
            rows, batched = _batch(name, value, Mapping, "a list of turns")
            return [self._dialogue(label, row) for label, row in rows], batched
        rows, batched = _batch(name, value, str, "a list of strings")
        checked = [[check_text(f"{label}[{j}]", part) for j, part in enumerate(row)] for label, row in rows]
        if name == "documents":
            checked = [
                [article[a:b] for article in row for a, b in split_sentences(article, self.language)]
                for row in checked
            ]
        return [_join((part, 0) for part in row) for row in checked], batched

    def _document(self, text: str) -> Document:
        spans = split_sentences(text, self.language)
        cuts = [end for _, end in spans[:-1]]  # the white space before a sentence is its own, as tokenizers have it
        return Document(text, cuts, [0] * (len(cuts) + 1))

    def _dialogue(self, label: str, turns: list[Any]) -> Document:
        """Join turns to "role: content", numbering the roles."""
        roles: dict[str, int] = {}
        parts = []
        for j, turn in enumerate(turns):
            place = f"{label}[{j}]"
            if not isinstance(turn, Mapping):
                raise TypeError(f'`{place}` must be {{"role": …, "content": …}}, got {type(turn).__name__}')
            if set(turn) != {"role", "content"}:
                raise ValueError(f"`{place}` must have the keys role and content, got {list(turn)}")
            role, content = (check_text(f"{place}[{key!r}]", turn[key]).strip() for key in ("role", "content"))
            if not role:
                raise ValueError(f"`{place}['role']` is empty; name the speaker")
            parts.append((f"{role}: {content}", roles.setdefault(role, len(roles))))
        if self.num_segments and len(roles) > self.num_segments:
            raise ValueError(
                f"`{label}` has {len(roles)} roles, more than num_segments={self.num_segments}: merge roles, or set a "
                "larger num_segments here and in the model's config"
            )
        return _join((part, segment if self.num_segments else 0) for part, segment in parts)

    def _limit(self, name: str, value: int | None) -> int:
        limit = int(self.tokenizer.model_max_length) if value is None else value
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 2:
            raise ValueError(f"`{name}` must be an integer of at least 2 (a BOS and an EOS token), got {limit!r}")
        return limit

    def _ids(self, documents: list[Document], limit: int | None, return_offsets: bool = False) -> dict[str, list[Any]]:
        """Make every document's ids, mask and segments, with the counts of what the limit cut."""
        rows = []
        for sentences, document in zip(self._encode(documents), documents, strict=True):
            row = self._mark(sentences, document.segments, limit)
            if return_offsets:
                kept = self._offsets(sentences, document)[: len(row["input_ids"]) - 1]
                row["offset_mapping"] = [*kept, (0, 0)]
            rows.append(row)
        return {key: [row[key] for row in rows] for key in rows[0]}

    def _offsets(self, sentences: list[list[int]], document: Document) -> list[tuple[int, int]]:
        """Where the tokens of a document stand in it, with its markers, which stand nowhere."""
        if not self.tokenizer.is_fast:
            raise ValueError(
                f"`tokenizer` ({type(self.tokenizer).__name__}) has no fast backend, which knows where in the text a "
                "token is; `return_offsets_mapping` needs one. Load it with AutoTokenizer."
            )
        offsets = iter(self._backend()[0].encode(document.text, add_special_tokens=False).offsets)
        return [place for sentence in sentences for place in ((0, 0), *itertools.islice(offsets, len(sentence)))]

    def _encode(self, documents: list[Document]) -> list[list[list[int]]]:
        """Tokenize every document's sentences, without special tokens.

        Documents go through whole, so that the ids are the tokenizer's own, and the ids are cut where sentences begin.
        """
        if not self.tokenizer.is_fast:
            return [self._encode_slowly(document) for document in documents]
        backend, widths = self._backend()
        texts = [document.text for document in documents]
        # Where tokens tell their widths, the backend need not work out offsets: it then takes two thirds of the time.
        encode = backend.encode_batch if widths is None else backend.encode_batch_fast
        encoded = []
        for encoding, document in zip(encode(texts, add_special_tokens=False), documents, strict=True):
            ids = encoding.ids
            bounds = None if widths is None else _bounds_by_width(widths[ids], document)
            if bounds is None:
                if widths is not None:
                    encoding = backend.encode(document.text, add_special_tokens=False)
                ids, bounds = self._plain(encoding.ids), _bounds_by_offset(encoding.offsets, document)
            encoded.append([ids[a:b] for a, b in itertools.pairwise([0, *bounds, len(ids)])])
        return encoded

    def _encode_slowly(self, document: Document) -> list[list[int]]:
        pieces = [document.text[a:b] for a, b in itertools.pairwise([0, *document.cuts, len(document.text)])]
        encoded = self.tokenizer(pieces, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return [self._plain(ids) for ids in encoded["input_ids"]]

    def _backend(self) -> "tuple[Any, np.ndarray[Any, Any] | None]":
        """Return a copy of the tokenizer's backend that reads special tokens as text, and its tokens' widths.

        A copy, since the switch lives in the backend: the tokenizer stays as it is for its other users and threads.
        The widths in bytes are known in a byte-level vocabulary without normalizer (BART's): one letter is one byte.
        Added tokens have none, so that a document that has one is cut by offsets.
        """
        original, size = self.tokenizer.backend_tokenizer, len(self.tokenizer)
        known = _BACKENDS.get(self)
        if known is None or known[0] is not original or known[1] != size:
            backend = copy.deepcopy(original)
            backend.encode_special_tokens = True
            backend.no_truncation()
            backend.no_padding()
            widths = None
            split = backend.pre_tokenizer
            if backend.normalizer is None and isinstance(split, ByteLevel) and not split.add_prefix_space:
                vocabulary = backend.get_vocab(with_added_tokens=False)
                added = list(self.tokenizer.added_tokens_decoder)
                widths = np.zeros(1 + max([*vocabulary.values(), *added]), dtype=np.int64)
                widths[list(vocabulary.values())] = [len(token) for token in vocabulary]
                widths[added] = 0
            known = _BACKENDS[self] = (original, size, backend, widths)
        return known[2], known[3]

    def _plain(self, ids: list[int]) -> list[int]:
        """Turn special tokens that a vocabulary still finds in text (Unigram, whole words) into the unknown token."""
        unknown = self.tokenizer.unk_token_id
        special = set(self.tokenizer.all_special_ids) - {unknown}
        if special.isdisjoint(ids):
            return ids
        if unknown is None:
            raise ValueError("the text contains a special token, and `tokenizer` has no unk_token to put in its place")
        return [unknown if i in special else i for i in ids]

    def _mark(self, sentences: list[list[int]], segments: list[int], limit: int | None) -> dict[str, Any]:
        """Put the markers in, cut to the limit, and count what was cut."""
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        ids: list[int] = []
        segment_ids: list[int] = []
        ends = []
        for sentence, segment in zip(sentences, segments, strict=True):
            ids.append(bos)
            ids += sentence
            ends.append(len(ids))
            if self.num_segments:
                segment_ids += [segment] * (len(sentence) + 1)
        tokens = len(ids) + 1
        if limit is not None and tokens > limit:
            del ids[limit - 1 :]
            while len(ids) > 1 and ids[-1] == bos:  # a marker whose sentence is cut off
                ids.pop()
        kept = bisect_right(ends, len(ids))
        ids.append(eos)
        row = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        if self.num_segments:
            spoken = segment_ids[: len(ids) - 1]
            row["segment_ids"] = [*spoken, spoken[-1]]  # the end is the last role's that is left
        counts = {"num_truncated_tokens": tokens - len(ids), "num_truncated_sentences": len(sentences) - kept}
        return {**row, **counts}

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
                "or max_target_length, where the model has positions for it, keeps more."
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
            pads = self.extra_inputs | ({"offset_mapping": (0, 0)} if "offset_mapping" in data else {})
            for key, value in pads.items():
                fill: list[list[Any]] = [
                    [value] * (len(ids) - n) for ids, n in zip(data["input_ids"], lengths, strict=True)
                ]
                data[key] = [f + row if left else row + f for f, row in zip(fill, data[key], strict=True)]
        if "labels" in data:
            rows, limit = data["labels"], max_target_length if to_limit else None
            padded = self.tokenizer.pad({"input_ids": rows}, **options, max_length=limit, padding_side="right")
            data["labels"] = [
                row + [-100] * (len(ids) - len(row)) for row, ids in zip(rows, padded["input_ids"], strict=True)
            ]


__all__ = ["HatBartProcessor"]
