"""Classification of texts and of pairs of texts, such as MNLI."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import EvalPrediction, PreTrainedModel, Trainer

from ...data.columns import RowFormat
from ...data.task_rows import resolve_pairs
from ..arguments import ModelArguments, Recipe, RecipeError
from ..models import Processor, classes_of_checkpoint
from .encoder import EncoderArguments, EncoderTask, encode


logger = logging.getLogger(__name__)


@dataclass
class ClassificationArguments(EncoderArguments):
    """Options of classification."""

    second_column: str | None = None  # with the second text of a pair
    label_column: str | None = None
    # The labels' names, in the order of their numbers in the data; by default those in the training data, or of the
    # checkpoint that is trained on, if all of the data's are among them.
    classes: list[str] | None = None


class ClassificationTask(EncoderTask):
    """Texts or pairs with one label each, scored by accuracy; rows without one are left out and counted.

    A label of -1 or - is none, unless `classes` names it.
    """

    arguments = ClassificationArguments
    metrics = ("accuracy",)
    auto_class = "AutoModelForSequenceClassification"
    resolve = resolve_pairs
    unused = tuple(name for name in EncoderTask.unused if name != "text_column")

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._unlabelled: dict[str, int] = {}
        self._classes: list[str] = []

    def columns(self) -> dict[str, Any]:
        return {"text_column": self.recipe.data.text_column, **super().columns()}

    def resolver(self, part: str) -> Callable[[Mapping[str, Any]], RowFormat]:
        return partial(resolve_pairs, **self.columns(), classes=self.options.classes or ())

    def model_arguments(self) -> ModelArguments:
        # The head has as many outputs as there are labels, so the data come first here.
        with self.recipe.training.main_process_first(desc="reading the labels"):
            self._classes = self.options.classes or self._classes_of_data()
        names = dict(enumerate(self._classes))
        numbers = {name: number for number, name in names.items()}
        overrides = {"id2label": names, "label2id": numbers, **self.recipe.model.overrides()}
        return replace(self.recipe.model, config_overrides=json.dumps(overrides))

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        model, processor = super().load_model_and_processor()
        if any(not name.startswith(f"{model.base_model_prefix}.") for name in self.loading["resized_weights"]):
            number = len(self._classes)
            logger.warning("model: the checkpoint has another number of classes than %d, so its head is new", number)
        return model, processor

    def load(self, part: str) -> Any:
        rows = super().load(part)
        return None if rows is None else self._labelled(part, rows)

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]]:
        return accuracy

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        scores = score_choices(self, trainer, self._inputs("validation", processor), self._classes.__getitem__)
        return None if scores is None else {**scores, "classes": self._classes}

    def reports(self) -> dict[str, Any]:
        return {**super().reports(), "unlabelled": dict(self._unlabelled)}

    def smoke_rows(self) -> list[dict[str, Any]]:
        rows, classes = super().smoke_rows(), self.options.classes
        label = self.options.label_column or "label"
        return [{**row, label: i % len(classes)} for i, row in enumerate(rows)] if classes else rows

    def _labelled(self, part: str, rows: Dataset) -> Dataset:
        if "label" not in rows.column_names:
            raise RecipeError(f"classification: {part} has no labels; name their column with label_column")
        kept = [number for number, label in enumerate(rows["label"]) if label is not None]
        self._unlabelled[part] = len(rows) - len(kept)
        if not kept:
            raise RecipeError(f"data: no row of {part} has a label")
        labelled = rows.select(kept)
        if number := self._unlabelled[part]:
            are_numbers = all(label.lstrip("-").isdecimal() for label in labelled["label"])
            hint = "; if -1 is a class, name it in classes" if are_numbers and not self.options.classes else ""
            logger.warning("%s: %d of %d rows have no label and are left out%s", part, number, len(rows), hint)
        return labelled

    def _classes_of_data(self) -> list[str]:
        found = set(self.rows("train" if self.recipe.data.train is not None else "validation")["label"])
        as_written = {label.casefold(): label for label in found}
        trained = [as_written.get(name.casefold(), name) for name in classes_of_checkpoint(self.recipe.model)]
        if found <= set(trained):
            return trained  # in the order of the checkpoint's head
        is_numbers = all(label.isdecimal() for label in found)
        return [str(number) for number in range(max(map(int, found)) + 1)] if is_numbers else sorted(found)

    def _inputs(self, part: str, processor: Processor) -> Any:
        if self.rows(part) is None:
            return None
        numbers = self._numbers
        limit = self.recipe.data.max_source_length

        def tokenize(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
            texts = {name: batch[name] for name in ("text", "text_pair") if name in batch}
            inputs, cut = encode(processor, limit, **texts)
            return {**inputs, "labels": [numbers[label] for label in batch["label"]], "num_truncated_tokens": cut}

        return self.tokenized(part, tokenize)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The class of each label: its name, or its number in the order of the names, which may be numerals too."""
        labels = {part: list(rows["label"]) for part in self.parts if (rows := self.rows(part)) is not None}
        found = set(chain.from_iterable(labels.values()))
        names = {name: number for number, name in enumerate(self._classes)}
        numbers = {label: int(label) for label in sorted(found) if label.isdecimal() and int(label) < len(names)}
        for known in (names, numbers):
            if found <= known.keys():
                return known
        others = found - names.keys() - numbers.keys() or found - names.keys()
        part = next(part for part in labels if others.intersection(labels[part]))
        unknown = Counter(label for label in labels[part] if label in others)
        most, _ = unknown.most_common(1)[0]
        raise RecipeError(
            f"classification: {part} has {unknown.total()} rows with a label that is none of the classes "
            f"({', '.join(self._classes)}), such as {most!r}; name all of them with classes"
        )


def log_probabilities(predictions: Any) -> np.ndarray[Any, Any]:
    """Turn logits into log-probabilities."""
    logits = np.asarray(predictions[0] if isinstance(predictions, tuple) else predictions)
    return np.asarray(torch.tensor(logits).double().log_softmax(-1))


def accuracy(eval_prediction: EvalPrediction | Any) -> dict[str, float]:
    """Score classes or choices; the `compute_metrics` of both tasks."""
    predicted = log_probabilities(eval_prediction.predictions).argmax(axis=-1)
    return {"accuracy": 100 * float((predicted == np.asarray(eval_prediction.label_ids)).mean())}


def score_choices(
    task: EncoderTask, trainer: Trainer, inputs: Any, name_of: Callable[[int], Any]
) -> dict[str, Any] | None:
    """Choose for each row of the validation data, and write the choices down under the names of their numbers."""
    if (rows := task.rows("validation")) is None:
        return None
    output = trainer.predict(inputs)
    scores = log_probabilities(output.predictions)
    chosen = [name_of(number) for number in scores.argmax(-1).tolist()]
    labels = [name_of(int(label)) for label in np.asarray(output.label_ids)]
    task.write_predictions(trainer, rows, prediction=chosen, probability=np.exp(scores.max(-1)).tolist(), label=labels)
    return {**accuracy(output), "rows": len(rows)}
