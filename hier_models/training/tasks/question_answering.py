"""Questions whose answer stands in a context, or does not, such as SQuAD 2.0."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from transformers import EvalPrediction, PreTrainedModel, Trainer

from ...data.question_answering import EXAMPLE, SPANS, Prediction, QuestionReport, find_answers, tokenize_questions
from ...data.task_rows import resolve_questions
from ...metrics import Squad
from ..arguments import Recipe, RecipeError
from ..models import Processor
from .base import as_dicts
from .encoder import EncoderTask, QuestionArguments, identifiers


@dataclass
class QuestionAnsweringArguments(QuestionArguments):
    """Options of question answering."""

    n_best: int = 20  # candidates looked at for each question
    null_threshold: float = 0.0  # there is no answer where that scores more than this above the best answer


class QuestionAnsweringTask(EncoderTask):
    """Questions on contexts, scored by exact match and F1 of SQuAD 2.0."""

    arguments = QuestionAnsweringArguments
    metrics = tuple(f"{kind}{name}" for kind in ("", "HasAns_", "NoAns_", "best_") for name in ("exact", "f1"))
    auto_class = "AutoModelForQuestionAnswering"
    resolve = resolve_questions

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._windows: dict[str, Any] = {}
        self._reports = {"train": QuestionReport(), "validation": QuestionReport()}

    def check(self) -> None:
        super().check()
        length, question = self.recipe.data.max_source_length, self.options.max_question_length
        room = length - question - 1  # at least a separator stands between; `tokenize_questions` knows how many
        if not 0 <= self.options.stride < room:
            left = f"what max_source_length={length} leaves beside max_question_length={question} and a separator"
            wanted = f"stride must be 0 or more and less than {room}, {left}"
            raise RecipeError(f"question_answering: {wanted}; got {self.options.stride}")

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]]:
        return self._scores

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        if (rows := self.rows("validation")) is None:
            return None
        output = trainer.predict(self._inputs("validation", processor))
        predictions = self._answers(output.predictions)
        null_scores = [found.no_answer_score for found in predictions]
        self.write_predictions(
            trainer,
            rows,
            prediction=[found.text for found in predictions],
            best_answer=[_best(found) for found in predictions],
            no_answer_score=[score if math.isfinite(score) else None for score in null_scores],
            answers=[answers["text"] for answers in rows["answers"]],
        )
        return {**self._scores(output), "null_threshold": self.options.null_threshold}

    def reports(self) -> dict[str, Any]:
        return {**super().reports(), "truncation": as_dicts(self._reports)}

    def smoke_changes(self) -> dict[str, Any]:
        return {"stride": 8, "max_question_length": 24}

    def _inputs(self, part: str, processor: Processor) -> Any:
        if part not in self._windows:
            if (rows := self.rows(part)) is None:
                return None
            if "answers" not in rows.column_names:
                raise RecipeError(f"question_answering: {part} has no answers; name their column with answers_column")
            self._windows[part] = tokenize_questions(
                rows,
                processor,
                max_length=self.recipe.data.max_source_length,
                return_spans=part == "validation",
                num_proc=self.recipe.data.num_proc,
                report=self._reports[part],
                **self._settings("stride", "max_question_length"),
            )
        windows = self._windows[part]
        return windows.remove_columns([name for name in (EXAMPLE, SPANS) if name in windows.column_names])

    def _answers(self, logits: Any) -> list[Prediction]:
        contexts, windows = list(self.rows("validation")["context"]), self._windows["validation"]
        settings = self._settings("n_best", "max_answer_length", "null_threshold")
        return find_answers(contexts, windows, logits[0], logits[1], **settings)

    def _settings(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in names}

    def _scores(self, eval_prediction: EvalPrediction | Any) -> dict[str, float]:
        rows = self.rows("validation")
        keys = identifiers(rows)
        # The metric applies the threshold, so that it can also tell what the best one would have been.
        predictions = [
            {"id": key, "prediction_text": _best(found), "no_answer_probability": found.no_answer_score}
            for key, found in zip(keys, self._answers(eval_prediction.predictions), strict=True)
        ]
        references = [{"id": key, "answers": found} for key, found in zip(keys, rows["answers"], strict=True)]
        options = {"no_answer_threshold": self.options.null_threshold}
        return cast(dict[str, float], Squad().compute(predictions=predictions, references=references, **options))


def _best(prediction: Prediction) -> str:
    return next((answer.text for answer in prediction.n_best if answer.text), "")
