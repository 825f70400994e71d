"""Processor of HAT-BART: text in, `<s> sentence <s> sentence … </s>` out."""

import itertools
import weakref
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel
from transformers import BatchEncoding, PreTrainedTokenizerBase

from .sentence_splitting import check_language
from .source_processing import (
    Document,
    GivesRunningText,
    SentenceProcessor,
    SourceOptions,
    bounds_by_offset,
    cut_at,
    pieces_of,
)
from .text_inputs import check_ends, check_integer


# Per processor, kept out of it as in source_processing.py: its copy of the backend, and the tokens' widths.
_WIDTHS: "weakref.WeakKeyDictionary[HatBartProcessor, tuple[Any, Any]]" = weakref.WeakKeyDictionary()


class HatBartProcessor(GivesRunningText, SentenceProcessor):
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
        marks = {"bos_token": "BOS tokens mark the sentences", "eos_token": "an EOS token ends the document"}
        self._check_tokens(tokenizer, marks)
        check_ends(self.tokenizer)
        check_integer("num_segments", num_segments, least=0)
        # By what it can: remote code has a class of its own.
        sets_markers = hasattr(self.tokenizer, "encode_sentences")
        self.num_segments = num_segments
        self.language = language or (self.tokenizer.language if sets_markers else "english")
        check_language(self.language)
        if sets_markers:
            self.tokenizer.language = self.language

    @property
    def extra_inputs(self) -> dict[str, int]:
        """Per-token inputs beyond ids and mask, and the value that pads them."""
        return {"segment_ids": 0} if self.num_segments else {}

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        text_target: str | Sequence[str] | None = None,
        return_offsets_mapping: bool = False,
        **options: Unpack[SourceOptions],
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
            text_target: The summary or summaries, one sequence `<s> … </s>` each: gives `labels`. They begin with
                `[line]`, `[short]` or `[long]`, the summary's length, with a tokenizer that has these (at most 25
                words, at most 110, more).
            return_offsets_mapping: Also return `offset_mapping`: where in the running text each token begins and ends,
                in characters; (0, 0) for markers, EOS and padding. The running text of `sentences` and `turns` has a
                space between them. Needs a tokenizer with a fast backend.
            **options: `padding`, `truncation`, `max_length` and others, see `SourceOptions`; with
                `return_truncation=True` also counts per input: `num_truncated_tokens` (tokens that are missing),
                `num_truncated_sentences` (sentences that lost a token; one of which no token fits loses its marker
                too) and for targets `num_truncated_target_tokens`.

        Returns:
            `input_ids` and `attention_mask` (batch, tokens), with `num_segments` also `segment_ids`, with
            `text_target` also `labels` (batch, target tokens); the counts (batch,); `offset_mapping` (batch, tokens,
            2).

        Raises:
            ValueError: If the inputs are none, several, empty lists or of different lengths, a turn is malformed, a
                document has more roles than `num_segments`, or a limit is below 2.
            TypeError: If an input is not text, or a list of text, as described.
        """
        inputs = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        data, batched = self._prepare(inputs, text_target, options, return_offsets=return_offsets_mapping)
        return self._encoded(data, batched, options.get("return_tensors"))

    def _running_texts(self, name: str, value: object) -> tuple[list[str], bool]:
        documents, batched = self._read(name, value)
        return [document.text for document in documents], batched

    def _sources(  # type: ignore[override]
        self, name: str, value: Any, limit: int | None, cut: bool, *, return_offsets: bool = False
    ) -> tuple[dict[str, list[Any]], bool]:
        documents, batched = self._read(name, value)
        encoded = self._sentences(documents)
        places = self._encode([document.text for document in documents], located=True) if return_offsets else None
        rows = []
        for number, (sentences, document) in enumerate(zip(encoded, documents, strict=True)):
            row = self._mark(sentences, document.segments, limit)
            if places is not None:  # a marker stands nowhere
                offsets = iter(places[number][1])
                spread = [place for ids in sentences for place in ((0, 0), *itertools.islice(offsets, len(ids)))]
                row["offset_mapping"] = [*spread[: len(row["input_ids"]) - 1], (0, 0)]
            rows.append(row)
        return {key: [row[key] for row in rows] for key in rows[0]}, batched

    def _sentences(self, documents: list[Document]) -> list[list[list[int]]]:
        # Where tokens tell their widths, the backend need not work out offsets: it then takes two thirds of the time.
        widths = self._widths() if self.tokenizer.is_fast else None
        if widths is None:
            return super()._sentences(documents)
        encoded = []
        backend = self._backend()
        encodings = backend.encode_batch_fast([document.text for document in documents], add_special_tokens=False)
        for encoding, document in zip(encodings, documents, strict=True):
            bounds = _bounds_by_width(widths[encoding.ids], document)
            if bounds is not None:
                encoded.append(cut_at(encoding.ids, bounds))
                continue
            encoding = backend.encode(document.text, add_special_tokens=False)
            encoded.append(cut_at(self._plain(encoding.ids), bounds_by_offset(encoding.offsets, document)))
        return encoded

    def _widths(self) -> "np.ndarray[Any, Any] | None":
        """Widths in bytes, known in a byte-level vocabulary without normalizer (BART's); added tokens have none."""
        backend = self._backend()
        known = _WIDTHS.get(self)
        if known is None or known[0] is not backend:
            widths = None
            split = backend.pre_tokenizer
            if backend.normalizer is None and isinstance(split, ByteLevel) and not split.add_prefix_space:
                vocabulary = backend.get_vocab(with_added_tokens=False)
                added = list(self.tokenizer.added_tokens_decoder)
                widths = np.zeros(1 + max([*vocabulary.values(), *added]), dtype=np.int64)
                widths[list(vocabulary.values())] = [len(token) for token in vocabulary]
                widths[added] = 0
            known = _WIDTHS[self] = (backend, widths)
        return known[1]

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


def _bounds_by_width(widths: "np.ndarray[Any, Any]", document: Document) -> list[int] | None:
    """Find each cut's token from the tokens' widths in bytes; None if the widths do not add up to the text."""
    ends = np.cumsum(widths)
    lengths = list(itertools.accumulate(len(piece.encode()) for piece in pieces_of(document)))
    if (int(ends[-1]) if len(ends) else 0) != lengths[-1]:
        return None
    return np.searchsorted(ends - widths, lengths[:-1]).tolist()  # type: ignore[no-any-return]
