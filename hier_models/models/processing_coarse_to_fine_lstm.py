"""Processor of the Coarse-to-Fine LSTM: text in, `sentence </s> sentence </s> …` out, and the row of every token."""

import itertools
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from transformers import BatchEncoding, PreTrainedTokenizerBase

from .sentence_splitting import check_language
from .source_processing import SentenceProcessor, SourceOptions
from .text_inputs import check_integer


ARRANGEMENTS = ("sentences", "grid")
# The thesis' grid.
GRID_ROWS, GRID_ROW_LENGTH = 10, 40


class CoarseToFineLstmProcessor(SentenceProcessor):
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

    _targets_begin: ClassVar[bool] = False
    _keeps_more: ClassVar[str] = "a larger max_length or max_target_length, or num_rows of the processor,"

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
            check_integer(name, number, optional=True)
        if not isinstance(pad_grid, bool):
            raise ValueError(f"`pad_grid` must be True or False, got {pad_grid!r}")
        if pad_grid and rows != "grid":
            raise ValueError(f'`pad_grid` goes with rows="grid", got rows={rows!r}; sentences have no padding')
        why = {"eos_token": "an EOS token ends each sentence"}
        if pad_grid:
            why["pad_token"] = "padding fills the grid"
        self._check_tokens(tokenizer, why)
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

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        text_target: str | Sequence[str] | None = None,
        **options: Unpack[SourceOptions],
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
            **options: `padding`, `truncation`, `max_length` and others, see `SourceOptions`; with
                `return_truncation=True` also counts per input: `num_truncated_tokens` (tokens that are missing),
                `num_truncated_sentences` (sentences that lost a token) and for targets `num_truncated_target_tokens`.
                Where anything is cut, the processor's `num_rows` is a limit too.

        Returns:
            `input_ids`, `attention_mask` and `row_ids` (batch, tokens), the last with the row of each token, counted
            from 0, and -1 for padding outside of a grid; with `text_target` also `labels` (batch, target tokens); the
            counts (batch,).

        Raises:
            ValueError: If the inputs are none, several, empty lists or of different lengths, a turn is malformed, or a
                limit is below 1.
            TypeError: If an input is not text, or a list of text, as described.
        """
        inputs = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        return self._encoded(*self._prepare(inputs, text_target, options), options.get("return_tensors"))

    def _sources(  # type: ignore[override]
        self, name: str, value: Any, limit: int | None, cut: bool
    ) -> tuple[dict[str, list[Any]], bool]:
        documents, batched = self._read(name, value)
        rows = [self._arrange(sentences, limit, cut) for sentences in self._sentences(documents)]
        return {key: [row[key] for row in rows] for key in rows[0]}, batched

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
