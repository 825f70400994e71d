"""Questions whose answer stands in a context, or does not, such as SQuAD 2.0."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from transformers import DataCollatorWithPadding, EvalPrediction, PreTrainedModel, Trainer

from ...data.columns import RowFormat
from ...data.question_answering import EXAMPLE, SPANS, Prediction, QuestionReport, find_answers, tokenize_questions
from ...data.task_rows import resolve_questions
from ...data.tokenizing import plain_tokenizer
from ...metrics import Squad
from ..arguments import Recipe, RecipeError
from ..models import Processor
from ..smoke_rows import questions
from .base import as_dicts
from .encoder import EncoderArguments, EncoderTask, identifiers


@dataclass
class QuestionAnsweringArguments(EncoderArguments):
    """Options of question answering.

    Args:
        dropout_free_epochs: Epochs at the beginning without any dropout.
        question_column: Column with the question; recognized by its name if not given.
        context_column: Column with the context; recognized by its name if not given.
        answers_column: Column with the answers; recognized by its name if not given.
        stride: Tokens that neighboring windows of a long context share.
        max_question_length: Tokens of a question, markers included.
        max_answer_length: Tokens of an answer.
        n_best: Candidates looked at for each question.
        null_threshold: There is no answer where that scores more than this above the best answer.
    """

    question_column: str | None = None
    context_column: str | None = None
    answers_column: str | None = None
    stride: int = 128
    max_question_length: int = 64
    max_answer_length: int = 30
    n_best: int = 20
    null_threshold: float = 0.0


class QuestionAnsweringTask(EncoderTask):
    """Questions on contexts, scored by exact match and F1 of SQuAD 2.0."""

    arguments = QuestionAnsweringArguments
    auto_class = "AutoModelForQuestionAnswering"

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._windows: dict[str, Any] = {}
        self._reports = {"train": QuestionReport(), "validation": QuestionReport()}

    def resolver(self, part: str) -> Callable[[Mapping[str, Any]], RowFormat]:
        return functools.partial(
            resolve_questions,
            question_column=self.options.question_column,
            context_column=self.options.context_column,
            answers_column=self.options.answers_column,
        )

    def collator(self, model: PreTrainedModel, processor: Processor) -> Callable[..., Any]:
        return DataCollatorWithPadding(plain_tokenizer(processor))

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]]:
        return self._scores

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        rows = self.rows("validation")
        if rows is None:
            return None
        output = trainer.predict(self._inputs("validation", processor))
        predictions = self._answers(output.predictions)
        self.write_predictions(
            trainer,
            [
                {
                    "id": identifier,
                    "prediction": prediction.text,
                    "best_answer": _best(prediction),
                    "no_answer_score": _finite(prediction.no_answer_score),
                    "answers": answers["text"],
                }
                for identifier, prediction, answers in zip(
                    identifiers(rows), predictions, rows["answers"], strict=True
                )
            ],
        )
        return {**self._scores(output), "null_threshold": self.options.null_threshold}

    def reports(self) -> dict[str, Any]:
        return {**super().reports(), "truncation": as_dicts(self._reports)}

    def smoke_rows(self) -> list[dict[str, Any]]:
        return questions(self.options)

    def smoke_changes(self) -> dict[str, Any]:
        return {"stride": 8, "max_question_length": 24}

    def _inputs(self, part: str, processor: Processor) -> Any:
        if part not in self._windows:
            rows = self.rows(part)
            if rows is None:
                return None
            if "answers" not in rows.column_names:
                raise RecipeError(f"question_answering: {part} has no answers; name their column with answers_column")
            self._windows[part] = tokenize_questions(
                rows,
                processor,
                max_length=self.recipe.data.max_source_length,
                stride=self.options.stride,
                max_question_length=self.options.max_question_length,
                return_spans=part == "validation",
                num_proc=self.recipe.data.num_proc,
                report=self._reports[part],
            )
        windows = self._windows[part]
        return windows.remove_columns([name for name in (EXAMPLE, SPANS) if name in windows.column_names])

    def _answers(self, logits: Any) -> list[Prediction]:
        return find_answers(
            list(self.rows("validation")["context"]),
            self._windows["validation"],
            logits[0],
            logits[1],
            n_best=self.options.n_best,
            max_answer_length=self.options.max_answer_length,
            null_threshold=self.options.null_threshold,
        )

    def _scores(self, eval_prediction: EvalPrediction | Any) -> dict[str, float]:
        rows = self.rows("validation")
        keys = identifiers(rows)
        # The metric applies the threshold, so that it can also tell what the best one would have been.
        predictions = [
            {"id": key, "prediction_text": _best(found), "no_answer_probability": found.no_answer_score}
            for key, found in zip(keys, self._answers(eval_prediction.predictions), strict=True)
        ]
        references = [{"id": key, "answers": found} for key, found in zip(keys, rows["answers"], strict=True)]
        scores = Squad().compute(
            predictions=predictions, references=references, no_answer_threshold=self.options.null_threshold
        )
        return cast(dict[str, float], scores)


def _best(prediction: Prediction) -> str:
    return next((answer.text for answer in prediction.n_best if answer.text), "")


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
