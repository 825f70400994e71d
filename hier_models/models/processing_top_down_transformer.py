"""Processor of the Top-Down Transformer: text in, `<s> text </s>` out, and a weight for each token where wanted."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase

from .source_processing import GivesRunningText, SourceOptions, SourceProcessor
from .source_text import read_items
from .text_inputs import check_language_code


class TopDownTransformerProcessor(GivesRunningText, SourceProcessor):
    """Turns documents into the Top-Down Transformer's input: `<s> text </s>`, as BART's tokenizer does.

    The model cuts its segments by itself, so that there are no markers. The literal text `<s>` stays text.

    Args:
        tokenizer: Any tokenizer of Transformers that has a BOS and an EOS token.
        language: Language of the texts, as a code such as en or de: that in which importance labels find lemmas.

    Raises:
        ValueError: If the tokenizer lacks a token, or the language is no code.

    Source: sections 2.1 and 2.3 (token weights).
    """

    _needs_places: ClassVar[str] = "`importance` and `return_offsets_mapping` need one"

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None = None, language: str = "en") -> None:
        super().__init__(tokenizer)
        why = "documents begin with BOS and end with EOS"
        self._check_tokens(tokenizer, {"bos_token": why, "eos_token": why})
        check_language_code(language)
        self.language = language

    @property
    def extra_inputs(self) -> dict[str, float]:
        """Per-token inputs beyond ids and mask, and the value that pads them; there with `importance=` only."""
        return {"token_importance": 0.0}

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        text_target: str | Sequence[str] | None = None,
        importance: Sequence[Any] | None = None,
        return_offsets_mapping: bool = False,
        **options: Unpack[SourceOptions],
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
            text_target: The summary or summaries: gives `labels`. They begin with `[line]`, `[short]` or `[long]`, the
                summary's length, with a tokenizer that has these (at most 25 words, at most 110, more).
            importance: What is important in a document: a list of (start, end, weight) with the characters of the
                running text (see `running_text`) and a weight of 0 or more; for a list of documents, a list of such
                lists. A token gets the largest weight of the spans it overlaps, and 0 outside of all. Where no token
                of a document gets a weight, all get 1, which is average pooling, and a warning says so.
            return_offsets_mapping: Also return `offset_mapping`: for each token where its characters begin and end in
                the running text; (0, 0) for special tokens and padding.
            **options: `padding`, `truncation`, `max_length` and others, see `SourceOptions`; with
                `return_truncation=True` also counts per input: `num_truncated_tokens` (tokens that are missing), for
                targets `num_truncated_target_tokens`, and with `importance` whether it is `without_importance` (1: no
                token got a weight).

        Returns:
            `input_ids` and `attention_mask` (batch, tokens), with `importance` also `token_importance` (batch,
            tokens), with `text_target` also `labels` (batch, target tokens); the counts (batch,); `offset_mapping`
            (batch, tokens, 2).

        Raises:
            ValueError: If the inputs are none, several, empty lists or of different lengths, a turn or a span is
                malformed, a limit is below 2, or the tokenizer does not tell where its tokens are.
            TypeError: If an input is not text, or a list of text, as described.
        """
        inputs = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        located = importance is not None or return_offsets_mapping
        if located and text_target is not None and not any(value is not None for value in inputs.values()):
            raise ValueError("`importance` and `return_offsets_mapping` are about a document; give one")
        data, batched = self._prepare(
            inputs, text_target, options, importance=importance, return_offsets=return_offsets_mapping
        )
        return self._encoded(data, batched, options.get("return_tensors"))

    def _sources(  # type: ignore[override]
        self,
        name: str,
        value: Any,
        limit: int | None,
        cut: bool,
        *,
        importance: Sequence[Any] | None = None,
        return_offsets: bool = False,
    ) -> tuple[dict[str, list[Any]], bool]:
        texts, batched = self._running_texts(name, value)
        spans = None if importance is None else self._read_importance(name, importance, texts, batched)
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        rows = []
        for number, (ids, offsets) in enumerate(self._encode(texts, spans is not None or return_offsets)):
            kept = ids if limit is None else ids[: limit - 2]
            row: dict[str, Any] = {"input_ids": [bos, *kept, eos], "attention_mask": [1] * (len(kept) + 2)}
            offsets = offsets[: len(kept)]
            if spans is not None:
                weights = [0.0, *_weights(spans[number], offsets, len(texts[number])).tolist(), 0.0]
                without = not any(weights)
                row["token_importance"] = [1.0] * len(weights) if without else weights
                row["without_importance"] = int(without)
            if return_offsets:
                row["offset_mapping"] = [(0, 0), *offsets, (0, 0)]
            rows.append({**row, "num_truncated_tokens": len(ids) - len(kept)})
        return {key: [row[key] for row in rows] for key in rows[0]}, batched

    def _read_importance(
        self, name: str, importance: object, texts: list[str], batched: bool
    ) -> "list[np.ndarray[Any, Any]]":
        """Check the importance spans of every document."""
        wanted = "a list of spans for each document" if batched else "a list of spans"
        values = read_items("importance", importance, wanted) if batched else [importance]
        if len(values) != len(texts):
            raise ValueError(f"`importance` must match `{name}`, got {len(values)} lists for {len(texts)} documents")
        labels = [f"importance[{i}]" if batched else "importance" for i in range(len(values))]
        rows = zip(labels, values, texts, strict=True)
        return [_spans(label, value, len(text)) for label, value, text in rows]

    def _further_reports(self, data: dict[str, Any]) -> dict[str, str]:
        without = sum(data.pop("without_importance", []))
        if not without:
            return {}
        message = f"No token of {without} texts is important; all their tokens weigh the same."
        return {"without": f"{message} return_truncation=True returns which."}


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
