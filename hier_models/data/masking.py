"""Masked language modeling after RoBERTa: the collator that masks windows anew whenever it makes a batch of them."""

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerBase, ProcessorMixin

from .tokenizing import CUT_COLUMNS, plain_tokenizer


class MaskingCollator(DataCollatorForLanguageModeling):
    """Pads windows to a batch and masks tokens in it, as in BERT and RoBERTa; the model learns to tell them.

    Of the tokens that are drawn, 80 % become the mask token, 10 % another token, and 10 % stay. Markers, separators,
    padding and all other special tokens are never drawn, nor put in another's place: the model finds its sentences by
    them. Everything else is `DataCollatorForLanguageModeling`.

    Args:
        processor: The encoder's processor or tokenizer.
        mlm_probability: Share of tokens to draw.
        seed: Draw from a generator of the collator's own, each worker of a data loader from another. None draws from
            torch's global one.
        static: Whether a window has the same mask whenever, in whatever batch it comes, for evaluation. `seed` then
            chooses the mask; None is 0.
        by_batch: Whether a batch has the same masks whenever, in whatever process it is made, for training: so that a
            run that was stopped, or that several processes share, draws what one process would. In another epoch
            (`set_epoch`) it has others. `seed` then chooses the masks; None is 0.

    Raises:
        ValueError: If the tokenizer has no mask or padding token, a share is not between 0 and 1, or both `static` and
            `by_batch` are asked for.

    Source: section 7 (pretraining as in RoBERTa).
    """

    def __init__(
        self,
        processor: ProcessorMixin | PreTrainedTokenizerBase,
        mlm_probability: float = 0.15,
        seed: int | None = None,
        static: bool = False,
        by_batch: bool = False,
    ) -> None:
        if static and by_batch:
            raise ValueError("static and by_batch exclude each other; leave one of them out")
        tokenizer = plain_tokenizer(processor)
        for name in ("mask_token", "pad_token"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"processor: its tokenizer has no {name}, which masking needs; set tokenizer.{name}")
        super().__init__(tokenizer=tokenizer, mlm_probability=mlm_probability, seed=seed)
        self.static, self.by_batch = static, by_batch
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # with the copies in a data loader's workers
        self.special_ids = torch.tensor(sorted(set(tokenizer.all_special_ids)))
        self.ordinary_ids = torch.tensor(sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids)))

    def set_epoch(self, epoch: int) -> None:
        """Choose with which masks batches come, with `by_batch`; also in a data loader's workers.

        Args:
            epoch: Number of the epoch that begins.
        """
        self._epoch.fill_(epoch)

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
                raise ValueError(f"columns {', '.join(sorted(others))} cannot be batched; remove them")
        if self.seed is not None and self.generator is None and not self.static:
            self.create_rng()  # which Transformers leaves out where the seed is 0
        rows: list[Any] = [{name: example[name] for name in known if name in example} for example in examples]
        return dict(super().torch_call(rows))

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
        if self.by_batch:
            self.generator = self._seeded(inputs, int(self._epoch))
        if not self.static:
            return self._mask(inputs, special)
        masked, labels = inputs.clone(), torch.full_like(inputs, -100)
        pad = self.tokenizer.pad_token_id
        for i, row in enumerate(inputs):
            kept = row != pad  # the draw must not depend on the padding
            self.generator = self._seeded(row[kept])
            one, label = self._mask(row[kept][None].clone(), special[i][kept][None])
            masked[i, kept], labels[i, kept] = one[0], label[0]
        return masked, labels

    def _seeded(self, ids: torch.Tensor, epoch: int = 0) -> torch.Generator:
        return torch.Generator().manual_seed(zlib.crc32(ids.numpy().tobytes(), epoch) + (self.seed or 0))

    def _mask(self, inputs: torch.Tensor, special: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        masked, labels = super().torch_mask_tokens(inputs, special_tokens_mask=special)
        # Transformers draws the other tokens from all, special ones included; draw those again.
        wrong = (labels != -100) & torch.isin(masked, self.special_ids) & (masked != self.tokenizer.mask_token_id)
        if wrong.any():
            draws = torch.randint(len(self.ordinary_ids), (int(wrong.sum()),), generator=self.generator)
            masked[wrong] = self.ordinary_ids[draws]
        return masked, labels
