"""Pretraining of encoders by masked language modeling, after RoBERTa."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from datasets import Dataset, IterableDataset, concatenate_datasets, interleave_datasets
from transformers import EvalPrediction, PreTrainedModel, Trainer

from ...data import HierDataCollator, load_documents
from ...data.cache_fingerprint import Versioned
from ...data.masking import MaskingCollator
from ...data.packing import PackingReport, pack_documents
from ..arguments import Recipe, RecipeError
from ..likelihood import perplexity_of
from ..models import Processor
from .base import as_dicts
from .encoder import UNUSED, EncoderArguments, EncoderTask


@dataclass
class MaskedLMArguments(EncoderArguments):
    """Options of masked language modeling."""

    mlm_probability: float = 0.15  # share of the tokens to tell
    across_documents: bool = False  # whether an input that is not full goes on with the next document
    # More training documents: files, folders, or hub ids, perhaps as `id:configuration`, of which `train` is taken.
    also_train: list[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mlm_probability <= 1:
            raise RecipeError(f"mlm_probability must be above 0 and at most 1, got {self.mlm_probability}")


class MaskedLMTask(EncoderTask):
    """Documents packed into inputs of whole sentences; masks are drawn anew in each epoch, in validation once.

    A stream has no epochs: there they are others where windows come in another batch.
    """

    arguments = MaskedLMArguments
    metrics = ("perplexity", "accuracy")
    auto_class = "AutoModelForMaskedLM"
    can_stream = True
    unused = ("summary_column", *UNUSED)

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._packing = {"train": PackingReport(), "validation": PackingReport()}
        self._validation: Dataset | None = None

    def read(self, part: str, source: str | Path, **options: Any) -> Dataset | IterableDataset:
        named = self.of_data("text_column", "source_kind", "fillers")
        return load_documents(source, summary_column="", **named, **options)

    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset:
        more = [self._more(number, source) for number, source in enumerate(self.options.also_train or [])]
        packed = [self._packed("train", part, processor) for part in (self.rows("train"), *more)]
        if len(packed) == 1:
            return packed[0]
        if self.recipe.data.streaming:
            # In turns, since a stream cannot be shuffled as a whole.
            return interleave_datasets(packed, stopping_strategy="all_exhausted")
        return concatenate_datasets(packed)

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | None:
        if (documents := self.rows("validation")) is None:
            return None
        collator = MaskingCollator(processor, self.options.mlm_probability, static=True)

        def mask(row: dict[str, Any]) -> dict[str, Any]:
            batch = collator([row])
            return {"input_ids": batch["input_ids"][0].tolist(), "labels": batch["labels"][0].tolist()}

        packed = self._packed("validation", documents, processor)
        self._validation = cast(Dataset, packed).map(Versioned(mask), desc="Masking")
        return self._validation

    def collator(self, model: PreTrainedModel, processor: Processor) -> Callable[..., Any]:
        return _MaskOrPad(processor, self.options.mlm_probability, self.recipe.training.seed)

    def trainer_options(self) -> dict[str, Any]:
        return {"preprocess_logits_for_metrics": sums_over_tokens}

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]]:
        return perplexity

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        if self._validation is None:
            return None
        return {**perplexity(trainer.predict(self._validation)), "rows": len(self._validation)}

    def reports(self) -> dict[str, Any]:
        return {**super().reports(), "truncation": as_dicts(self._packing)}

    def _packed(self, part: str, documents: Any, processor: Processor) -> Dataset | IterableDataset:
        options: dict[str, Any] = {"across_documents": self.options.across_documents, "report": self._packing[part]}
        length = self.recipe.data.max_source_length
        return pack_documents(documents, processor, max_length=length, **options, **self.of_data("num_proc"))

    def _more(self, number: int, source: str) -> Any:
        name, _, config_name = source.partition(":")
        on_hub = {"source": name, "split": "train", "config_name": config_name or None, "revision": None}
        here = Path(source).expanduser().exists()
        options: dict[str, Any] = {"streaming": self.recipe.data.streaming, **({} if here else on_hub)}
        return self.load_by(functools.partial(self.read, "train"), f"also_train_{number}", source, **options)


class _MaskOrPad:
    """Masks what has no labels yet and pads what has, since a Trainer has one collator for training and evaluation."""

    def __init__(self, processor: Processor, mlm_probability: float, seed: int) -> None:
        self.mask = MaskingCollator(processor, mlm_probability, seed=seed, by_batch=True)
        self.pad = HierDataCollator(processor)
        self.set_epoch = self.mask.set_epoch

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> Any:
        return self.pad(examples) if "labels" in examples[0] else self.mask(list(examples))


def sums_over_tokens(logits: Any, labels: torch.Tensor) -> torch.Tensor:
    """Reduce logits to what perplexity needs; the Trainer's `preprocess_logits_for_metrics`."""
    scores = logits[0] if isinstance(logits, tuple) else logits
    rows, places = (labels != -100).nonzero(as_tuple=True)
    scores, targets = scores[rows, places].float(), labels[rows, places]
    losses = torch.nn.functional.cross_entropy(scores, targets, reduction="none")
    right = (scores.argmax(-1) == targets).float()
    sums = torch.zeros(labels.shape[0], 3, dtype=torch.float, device=labels.device)
    return sums.index_add(0, rows, torch.stack([losses, torch.ones_like(losses), right], dim=1))


def perplexity(eval_prediction: EvalPrediction | Any) -> dict[str, float]:
    """Score what `sums_over_tokens` made of the logits, (rows, 3); the `compute_metrics` of the task."""
    sums = np.asarray(eval_prediction.predictions, dtype=np.float64)
    _, tokens, right = sums.sum(axis=0).tolist()
    if tokens == 0:
        raise ValueError("no token of the validation data is masked; give more data, or raise mlm_probability")
    return {"perplexity": perplexity_of(sums[:, :2]), "accuracy": 100 * right / tokens, "masked_tokens": int(tokens)}
