"""Training of importance taggers: which tokens of a document have their word in the summary."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from datasets import Dataset, IterableDataset
from transformers import DataCollatorForTokenClassification, EvalPrediction, PreTrainedModel, Trainer

from ...data import load_documents
from ...data.importance import ImportanceLabels
from ...data.tokenizing import WITHOUT_IMPORTANCE, plain_tokenizer, source_kind
from ..arguments import Recipe, RecipeError
from ..models import Processor
from .encoder import UNUSED, EncoderArguments, EncoderTask


class ImportanceTaggingTask(EncoderTask):
    """A token is important if its word, not a stopword, has its lemma in the summary; scored over all tokens."""

    arguments = EncoderArguments
    metrics = ("precision", "recall", "f1", "auc")
    auto_class = "AutoModelForTokenClassification"
    checkpoint_class = None
    unused = UNUSED

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._without: dict[str, int] = {}

    def read(self, part: str, source: str | Path, **options: Any) -> Dataset | IterableDataset:
        named = self.of_data("text_column", "summary_column", "source_kind", "fillers")
        return load_documents(source, **named, **options)

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        model, processor = super().load_model_and_processor()
        if not hasattr(processor, "running_text"):
            raise RecipeError(
                f"model: importance_tagging is for model_type: top_down_transformer, not {type(model).__name__}"
            )
        if model.config.num_labels != 2:
            raise RecipeError(f"model: an importance tagger has 2 labels, this one has {model.config.num_labels}")
        if getattr(model.config, "pooling", None) == "importance":  # as in a summarizer's checkpoint
            model.config.pooling = "average"  # a tagger makes weights, and gets none
        model.config.id2label = {0: "unimportant", 1: "important"}
        model.config.label2id = {"unimportant": 0, "important": 1}
        return model, processor

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Any:
        if (inputs := self._inputs("validation", processor)) is not None:
            # Now and not after hours of training.
            found: set[int] = set()
            for labels in inputs["labels"]:
                found.update(labels)
                if {0, 1} <= found:
                    break
            else:
                raise RecipeError(
                    f"data: {'every' if 1 in found else 'no'} token of validation is important, so there is nothing "
                    "to score; give more data"
                )
        return inputs

    def collator(self, model: PreTrainedModel, processor: Processor) -> Callable[..., Any]:
        return DataCollatorForTokenClassification(plain_tokenizer(processor))

    def trainer_options(self) -> dict[str, Any]:
        return {"preprocess_logits_for_metrics": importance_probabilities}

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]]:
        return compute_tagging_metrics

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        inputs: Any = self._inputs("validation", processor)
        return None if inputs is None else {**compute_tagging_metrics(trainer.predict(inputs)), "rows": len(inputs)}

    def reports(self) -> dict[str, Any]:
        return {**super().reports(), "without_importance": dict(self._without)}

    def _inputs(self, part: str, processor: Processor) -> Dataset | None:
        if (rows := self.rows(part)) is None:
            return None
        if "summary" not in rows.column_names:
            raise RecipeError(f"data: {part} has no summaries; name their column with summary_column if there are any")
        kind, length = source_kind(rows.column_names), self.recipe.data.max_source_length
        inputs = cast(Dataset, self.tokenized(part, ImportanceLabels(processor, kind, length)))
        if WITHOUT_IMPORTANCE in inputs.column_names:
            self._without[part] = sum(inputs[WITHOUT_IMPORTANCE])
            inputs = self._tokenized[part] = inputs.remove_columns(WITHOUT_IMPORTANCE)
        return inputs


def importance_probabilities(logits: Any, labels: torch.Tensor) -> torch.Tensor:
    """Reduce logits to what is scored; the Trainer's `preprocess_logits_for_metrics`.

    Args:
        logits: (batch, tokens, 2), perhaps the first of a tuple.
        labels: (batch, tokens), not looked at.

    Returns:
        (batch, tokens): the probability that a token is important.
    """
    scores = logits[0] if isinstance(logits, tuple) else logits
    return cast(torch.Tensor, scores.float().softmax(-1)[..., 1])


def compute_tagging_metrics(eval_prediction: EvalPrediction | Any) -> dict[str, float]:
    """Score an importance tagger; the `compute_metrics` of the stock `Trainer`.

    A token is taken for important from a probability of 0.5 on. Precision and F1 are 0 where none is.

    Args:
        eval_prediction: Probabilities (documents, tokens) from `importance_probabilities`, or logits (documents,
            tokens, 2), as `predictions`; labels (documents, tokens) as `label_ids`, -100 where there is none.

    Returns:
        `precision`, `recall`, `f1` of the important tokens and `auc`, the area under the ROC curve, all times 100;
        `tokens` with a label, and how many are `important`, in percent.

    Raises:
        ValueError: If all tokens are important, or none.
    """
    predictions = eval_prediction.predictions
    predictions = np.asarray(predictions[0] if isinstance(predictions, tuple) else predictions)
    labels = np.asarray(eval_prediction.label_ids)
    if predictions.ndim == 3:
        difference = predictions[..., 1].astype(np.float64) - predictions[..., 0]
        predictions = 1 / (1 + np.exp(-difference))
    real = labels != -100
    scores, important = predictions[real], labels[real] == 1
    found = scores >= 0.5
    right = int((found & important).sum())
    precision = right / max(1, int(found.sum()))
    recall = right / max(1, int(important.sum()))
    f1 = 0.0 if right == 0 else 2 * precision * recall / (precision + recall)
    auc = area_under_curve(scores, important)
    result = {"precision": precision, "recall": recall, "f1": f1, "auc": auc, "important": float(important.mean())}
    return {**{name: 100 * value for name, value in result.items()}, "tokens": len(scores)}


def area_under_curve(scores: "np.ndarray[Any, Any]", positive: "np.ndarray[Any, Any]") -> float:
    """Find the area under the ROC curve: how often a positive scores higher than a negative, ties as halves."""
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        found = f"{positives} and {negatives}"
        raise ValueError(f"the area under the curve compares important tokens with others, got {found}")
    ranks = pd.Series(scores).rank().to_numpy()  # from 1; ties share their mean
    above = float(ranks[positive].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)
