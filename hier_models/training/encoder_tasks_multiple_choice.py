"""Questions with options, such as RACE."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from transformers import DataCollatorForMultipleChoice, PreTrainedModel, Trainer

from ..data.columns import RowFormat
from ..data.task_rows import resolve_choices
from ..data.tokenizing import plain_tokenizer
from .arguments import RecipeError
from .encoder_smoke import questions_with_options
from .encoder_tasks import EncoderArguments, EncoderTask, encode, identifiers
from .encoder_tasks_classification import accuracy, log_probabilities
from .models import Processor


BLANK = re.compile("_+")


@dataclass
class MultipleChoiceArguments(EncoderArguments):
    """Options of multiple choice.

    Args:
        dropout_free_epochs: Epochs at the beginning without any dropout.
        context_column: Column with the text; recognized by its name if not given.
        question_column: Column with the question; recognized by its name if not given.
        options_column: Column with the options; recognized by its name if not given.
        answer_column: Column with the right option; recognized by its name if not given.
    """

    context_column: str | None = field(default=None, metadata={"help": "Column with the text."})
    question_column: str | None = field(default=None, metadata={"help": "Column with the question."})
    options_column: str | None = field(default=None, metadata={"help": "Column with the options."})
    answer_column: str | None = field(default=None, metadata={"help": "Column with the right option."})


class MultipleChoiceTask(EncoderTask):
    """A text, a question and options of which one is right, scored by accuracy.

    Each option makes an input of its own: the text, then the question with the option, which takes the place of a
    blank ("_") in the question if there is one, as in RACE's questions to be completed. What is too long loses
    tokens at the end of the text, or of the question with its option if that is longer.
    """

    arguments = MultipleChoiceArguments
    auto_class = "AutoModelForMultipleChoice"

    def resolver(self, part: str) -> Callable[[Mapping[str, Any]], RowFormat]:  # noqa: D102  # as in EncoderTask
        return functools.partial(
            resolve_choices,
            context_column=self.options.context_column,
            question_column=self.options.question_column,
            options_column=self.options.options_column,
            answer_column=self.options.answer_column,
        )

    def collator(self, model: PreTrainedModel, processor: Processor) -> Callable[..., Any]:  # noqa: D102
        return DataCollatorForMultipleChoice(plain_tokenizer(processor))

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]]:  # noqa: D102
        return accuracy

    def evaluate(  # noqa: D102
        self, trainer: Trainer, model: PreTrainedModel, processor: Processor
    ) -> dict[str, Any] | None:
        rows = self.rows("validation")
        if rows is None:
            return None
        output = trainer.predict(self._inputs("validation", processor))
        scores = log_probabilities(output.predictions)
        predictions = [
            {
                "id": identifier,
                "prediction": int(row.argmax()),
                "probability": float(np.exp(row.max())),
                "label": int(label),
            }
            for identifier, row, label in zip(identifiers(rows), scores, np.asarray(output.label_ids), strict=True)
        ]
        self.write_predictions(trainer, predictions)
        return {**accuracy(output), "rows": len(rows)}

    def smoke_rows(self) -> list[dict[str, Any]]:  # noqa: D102
        return questions_with_options(self.options)

    def _inputs(self, part: str, processor: Processor) -> Any:
        rows = self.rows(part)
        if rows is not None and "label" not in rows.column_names:
            raise RecipeError(f"multiple_choice: {part} has no answers; name their column with answer_column")
        limit = self.recipe.data.max_source_length

        def tokenize(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
            sizes = [len(options) for options in batch["options"]]
            texts = [text for text, size in zip(batch["context"], sizes, strict=True) for _ in range(size)]
            asked = zip(batch["question"], batch["options"], strict=True)
            pairs = [complete(question, option) for question, options in asked for option in options]
            inputs, cut = encode(processor, limit, text=texts, text_pair=pairs)
            grouped = {name: _grouped(values, sizes) for name, values in inputs.items()}
            lost = [sum(counts) for counts in _grouped(cut, sizes)]
            return {**grouped, "labels": batch["label"], "num_truncated_tokens": lost}

        return self.tokenized(part, tokenize)


def complete(question: str, option: str) -> str:
    """Put a question and an option together."""
    return BLANK.sub(lambda _: option, question) if "_" in question else f"{question} {option}"


def _grouped(values: list[Any], sizes: list[int]) -> list[list[Any]]:
    rest = iter(values)
    return [[next(rest) for _ in range(size)] for size in sizes]
