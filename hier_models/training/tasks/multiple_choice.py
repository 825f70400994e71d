"""Questions with options, such as RACE."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import DataCollatorForMultipleChoice, PreTrainedModel, Trainer

from ...data.task_rows import resolve_choices
from ...data.tokenizing import plain_tokenizer
from ...models.text_inputs import complete
from ..arguments import RecipeError
from ..models import Processor
from .classification import accuracy, score_choices
from .encoder import EncoderArguments, EncoderTask, encode


@dataclass
class MultipleChoiceArguments(EncoderArguments):
    """Options of multiple choice."""

    context_column: str | None = None
    question_column: str | None = None
    options_column: str | None = None
    answer_column: str | None = None  # with the right option


class MultipleChoiceTask(EncoderTask):
    """A text, a question and options, each an input of its own, of which one is right; scored by accuracy."""

    arguments = MultipleChoiceArguments
    metrics = ("accuracy",)
    auto_class = "AutoModelForMultipleChoice"
    resolve = resolve_choices

    def collator(self, model: PreTrainedModel, processor: Processor) -> Callable[..., Any]:
        return DataCollatorForMultipleChoice(plain_tokenizer(processor))

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]]:
        return accuracy

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        return score_choices(self, trainer, self._inputs("validation", processor), int)

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


def _grouped(values: list[Any], sizes: list[int]) -> list[list[Any]]:
    rest = iter(values)
    return [[next(rest) for _ in range(size)] for size in sizes]
