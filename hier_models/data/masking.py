"""Masked language modeling after RoBERTa: windows of whole sentences, and the collator that masks them.

Windows are packed once; which of their tokens are masked is drawn anew whenever a batch is made.
"""

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerBase, ProcessorMixin

from .tokenizing import CUT_COLUMNS, plain_text, plain_tokenizer, source_kind
from .totals import SharedTotals


logger = logging.getLogger(__name__)

DOCUMENTS_IN_MEMORY = 1000


class PackingReport:
    """What became of the documents, over all that were packed.

    With a streamed dataset the numbers grow while it is iterated over, and every pass counts again.
    """

    NAMES = ("documents", "sentences", "windows", "tokens", "divided_sentences")

    def __init__(self) -> None:
        self._totals = SharedTotals(len(self.NAMES))

    @property
    def documents(self) -> int:
        """Documents packed."""
        return self._totals[0]

    @property
    def sentences(self) -> int:
        """Their sentences."""
        return self._totals[1]

    @property
    def windows(self) -> int:
        """Windows made of them."""
        return self._totals[2]

    @property
    def tokens(self) -> int:
        """Tokens of the windows, markers included."""
        return self._totals[3]

    @property
    def divided_sentences(self) -> int:
        """Sentences longer than a window, which were divided."""
        return self._totals[4]

    def add(self, *amounts: int) -> None:
        """Count some documents.

        Args:
            *amounts: What to add to each number, in the order of `NAMES`.
        """
        self._totals.add(*amounts)

    def as_dict(self) -> dict[str, int]:
        """The report for a results file.

        Returns:
            Every count by its name.
        """
        return {name: self._totals[i] for i, name in enumerate(self.NAMES)}

    def __str__(self) -> str:
        """One line for a log."""
        line = (
            f"{self.documents} documents ({self.sentences} sentences) packed into {self.windows} windows of "
            f"{self.tokens / max(1, self.windows):.0f} tokens on average"
        )
        if self.divided_sentences:
            line += f"; {self.divided_sentences} sentences were longer than a window and were divided"
        return line


class _Packing:
    """Maps a batch of documents to windows; holds only what decides the result, since datasets hashes it."""

    def __init__(self, processor: ProcessorMixin, kind: str, max_length: int, across_documents: bool) -> None:
        self.processor = processor
        self.kind = kind
        self.max_length = max_length
        self.across_documents = across_documents

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        sources = batch[self.kind]
        texts = sources if self.kind == "sentences" else [plain_text(self.kind, source) for source in sources]
        documents = self.processor.encode_sentences(texts)
        divided = [sum(len(sentence) > self.max_length - 2 for sentence in document) for document in documents]
        if self.across_documents:
            windows = list(self._windows(documents))
        else:
            windows = [window for document in documents for window in self._windows([document])]
        # `datasets` wants columns as long as there are windows; the counts stand in the first ones.
        counts = {"num_sentences": sum(map(len, documents)), "num_divided": sum(divided)}
        return {
            "input_ids": windows,
            **{name: [number, *[0] * (len(windows) - 1)][: len(windows)] for name, number in counts.items()},
        }

    def _windows(self, documents: Sequence[Sequence[list[int]]]) -> Iterator[list[int]]:
        """Fill windows with sentences, each with its marker, and a separator between documents."""
        tokenizer = self.processor.tokenizer
        bos, sep = tokenizer.bos_token_id, tokenizer.sep_token_id
        window: list[int] = []
        for document in documents:
            between = [sep] if window else []
            for piece in self._pieces(document):
                if window and len(window) + len(between) + len(piece) + 2 > self.max_length:
                    yield [*window, sep]
                    window, between = [], []
                window += [*between, bos, *piece]
                between = []
        if window:
            yield [*window, sep]

    def _pieces(self, document: Sequence[list[int]]) -> Iterator[list[int]]:
        """The sentences; one that is longer than a window in pieces."""
        size = self.max_length - 2
        for sentence in document:
            for start in range(0, len(sentence), size):
                yield sentence[start : start + size]


COUNTS = ("num_sentences", "num_divided")


class _Counting:
    """Packing of a streamed dataset, which has to be counted as it goes by."""

    def __init__(self, packing: _Packing, report: PackingReport) -> None:
        self.packing = packing
        self.report = report

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        columns = self.packing(batch)
        _count(self.report, columns, len(batch[self.packing.kind]))
        return {"input_ids": columns["input_ids"]}


def _count(report: PackingReport, columns: Mapping[str, Sequence[Any]], documents: int) -> None:
    sentences, divided = (sum(columns[name]) for name in COUNTS)
    windows = columns["input_ids"]
    report.add(documents, sentences, len(windows), sum(map(len, windows)), divided)


def pack_sentences(
    dataset: Dataset | IterableDataset,
    processor: ProcessorMixin,
    *,
    max_length: int = 512,
    across_documents: bool = False,
    num_proc: int | None = None,
    report: PackingReport | None = None,
) -> Dataset | IterableDataset:
    """Pack documents into windows of whole sentences, `<s> sentence <s> sentence … </s>`, for pretraining.

    Windows end with a document (RoBERTa's DOC-SENTENCES, which the paper compares with), or go on with the next one
    after a separator, `… </s> <s> next document …` (FULL-SENTENCES). A sentence that is longer than a window is
    divided and counted; nothing is lost. Documents without a token have no window.

    Args:
        dataset: What `load_documents` gives: one of the columns `text`, `sentences`, `turns`, `documents`.
        processor: The encoder's processor.
        max_length: Tokens of a window at most, markers included.
        across_documents: Whether windows may go on with the next document. They do among 1000 documents at a time.
        num_proc: Processes to use; None for one. A streamed dataset ignores it.
        report: Is given the counts, if passed. It is logged at the end.

    Returns:
        A dataset of windows with `input_ids`, for `MaskingCollator`.

    Raises:
        ValueError: If `max_length` leaves no room for a sentence, the dataset does not have exactly one kind of
            source, or the processor cannot tell sentences.
    """
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 3:
        raise ValueError(f"max_length must be an integer of at least 3 (two markers and a token), got {max_length!r}")
    if not hasattr(processor, "encode_sentences"):
        raise ValueError(
            f"processor must be one that tells sentences, such as HatEncoderProcessor, got {type(processor).__name__}"
        )
    report = PackingReport() if report is None else report
    columns = dataset.column_names or list(next(iter(dataset)))
    packing = _Packing(processor, source_kind(columns), max_length, across_documents)
    options: dict[str, Any] = {"batched": True, "batch_size": DOCUMENTS_IN_MEMORY, "remove_columns": columns}
    if isinstance(dataset, IterableDataset):
        return dataset.map(_Counting(packing, report), **options)
    packed = dataset.map(packing, num_proc=num_proc, desc="Packing", **options)
    _count(report, {name: packed[name] for name in packed.column_names}, len(dataset))
    logger.log(logging.WARNING if report.divided_sentences else logging.INFO, "%s", report)
    return packed.remove_columns(COUNTS)


class MaskingCollator(DataCollatorForLanguageModeling):
    """Pads windows to a batch and masks tokens in it, as in BERT and RoBERTa; the model learns to tell them.

    Of the tokens that are drawn, 80 % become the mask token, 10 % another token, and 10 % stay. Markers, separators,
    padding and all other special tokens are never drawn, nor put in another's place: the model finds its sentences by
    them. Everything else is `DataCollatorForLanguageModeling`.

    Args:
        processor: The encoder's processor or tokenizer.
        mlm_probability: Share of tokens to draw.
        mask_replace_prob: Share of those that become the mask token.
        random_replace_prob: Share of those that become another token.
        seed: Draw from a generator of the collator's own, each worker of a data loader from another. None draws from
            torch's global one, which a Trainer seeds, and restores when it resumes.
        static: Whether a window has the same mask whenever, in whatever batch it comes, for evaluation. `seed` then
            chooses the mask; None is 0.
        pad_to_multiple_of: Rounds the padded length up.

    Raises:
        ValueError: If the tokenizer has no mask or padding token, or a share is not between 0 and 1.

    Source: section 7 (pretraining as in RoBERTa).
    """

    def __init__(
        self,
        processor: ProcessorMixin | PreTrainedTokenizerBase,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        seed: int | None = None,
        static: bool = False,
        pad_to_multiple_of: int | None = None,
    ) -> None:
        tokenizer = plain_tokenizer(processor)
        for name in ("mask_token", "pad_token"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"processor: its tokenizer has no {name}, which masking needs; set tokenizer.{name}")
        super().__init__(
            tokenizer=tokenizer,
            mlm_probability=mlm_probability,
            mask_replace_prob=mask_replace_prob,
            random_replace_prob=random_replace_prob,
            seed=seed,
            pad_to_multiple_of=pad_to_multiple_of,
        )
        self.static = static
        self.special_ids = torch.tensor(sorted(set(tokenizer.all_special_ids)))
        self.ordinary_ids = torch.tensor(sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids)))

    def torch_call(self, examples: list[Any]) -> dict[str, Any]:
        """Make a batch.

        Args:
            examples: Windows: `input_ids` and perhaps `attention_mask` and `special_tokens_mask`.

        Returns:
            `input_ids`, `attention_mask` and `labels`, (batch, tokens); labels are -100 where nothing was drawn.

        Raises:
            ValueError: If an example has no `input_ids`, or a column that cannot be batched.
        """
        known = ("input_ids", "attention_mask", "special_tokens_mask")
        for example in examples:
            if not isinstance(example, Mapping) or "input_ids" not in example:
                raise ValueError(f"examples must have input_ids, got {list(example) if example else example}")
            others = set(example) - {*known, *CUT_COLUMNS}
            if others:
                raise ValueError(
                    f"columns {', '.join(sorted(others))} cannot be batched; remove them from the dataset"
                )
        if self.seed is not None and self.generator is None and not self.static:
            self.create_rng()  # which Transformers leaves out where the seed is 0
        rows = [{name: example[name] for name in known if name in example} for example in examples]
        batch: dict[str, Any] = super().torch_call(rows)
        return batch

    def torch_mask_tokens(
        self, inputs: Any, special_tokens_mask: Any | None = None, offset_mapping: Any | None = None
    ) -> tuple[Any, Any]:
        """Draw tokens and mask them.

        Args:
            inputs: Token ids, (batch, tokens).
            special_tokens_mask: 1 for tokens not to be drawn, besides the special tokens.
            offset_mapping: Not used.

        Returns:
            The masked ids, and the labels: the ids that were drawn, -100 elsewhere.
        """
        special = torch.isin(inputs, self.special_ids)
        if special_tokens_mask is not None:
            special |= torch.as_tensor(special_tokens_mask).bool()
        if not self.static:
            return self._mask(inputs, special)
        masked, labels = inputs.clone(), torch.full_like(inputs, -100)
        pad = self.tokenizer.pad_token_id
        for i, row in enumerate(inputs):
            kept = row != pad  # the draw must not depend on the padding
            content = row[kept].numpy().tobytes()
            self.generator = torch.Generator().manual_seed(zlib.crc32(content) + (self.seed or 0))
            one, label = self._mask(row[kept][None].clone(), special[i][kept][None])
            masked[i, kept], labels[i, kept] = one[0], label[0]
        return masked, labels

    def _mask(self, inputs: torch.Tensor, special: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        masked, labels = super().torch_mask_tokens(inputs, special_tokens_mask=special)
        # Transformers draws the other tokens from all, special ones included; draw those again.
        wrong = (labels != -100) & torch.isin(masked, self.special_ids) & (masked != self.tokenizer.mask_token_id)
        if wrong.any():
            draws = torch.randint(len(self.ordinary_ids), (int(wrong.sum()),), generator=self.generator)
            masked[wrong] = self.ordinary_ids[draws]
        return masked, labels
