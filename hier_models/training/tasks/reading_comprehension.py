"""Training of readers on questions with their contexts or documents."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.utils import logging

from ...data.columns import RowFormat
from ...data.overlap import texts_in
from ...data.reading_comprehension_rows import resolve_reading
from ...data.tokenizer_training import train_characters, train_word_level
from ...metrics import DocumentScores, DocumentStatistics, document_keys
from ...metrics.answers import usual_unit
from ...metrics.document_bleu import document_answers
from ...models.processing_ham_reader import AnswerNotFoundError, fit_characters
from ...pipelines.reading_comprehension_hier import best_spans
from ..arguments import ModelArguments, Recipe, RecipeError, check_smallest
from ..models import Processor, remember_task
from ..smoke_rows import task_rows
from .base import OF_DOCUMENTS, OF_SUMMARIES, PREDICTIONS_FILE, SCORES_FILE
from .encoder import EncoderTask, QuestionArguments


logger = logging.get_logger(__name__)

NOTES = ("example_index", "context_spans")
CHECKS = ("long_question", "widened_answer")
# What is counted of the questions of a part. An answer that begins or ends inside of a word is widened: it is learned
# with all of it; one that is misplaced stands beside others that stand where they should.
COUNTS = (
    *("questions", "windows", "windows_without_answer", "without_answer", "lost_answers", "long_questions"),
    *("widened_answers", "misplaced_answers"),
)
QUESTIONS_IN_MEMORY = 200
# The task's name in a config's `task_specific_params`.
PIPELINE = "reading-comprehension"


@dataclass
class ReadingComprehensionArguments(QuestionArguments):
    """Options of reading comprehension; the column of the context may hold several documents."""

    characters: bool = False  # whether the reader reads characters too; they are fitted on the training data
    num_characters: int | None = None  # the most characters to fit
    # What a tokenizer that is fitted splits texts into; characters are for Chinese that is not split into words.
    split_into: Literal["words", "characters"] = "words"
    lowercase: bool = True  # whether the words of a tokenizer that is fitted are in small letters
    # What F1, BLEU and ROUGE-L compare; by default characters of answers mostly written without spaces, as Chinese.
    unit: Literal["words", "characters"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {"stride": 0, "max_question_length": 1, "max_answer_length": 1}
        check_smallest("reading_comprehension", self, least)


class ReadingComprehensionTask(EncoderTask):
    """Questions on one context or several documents, answered by a span: SQuAD, MS MARCO, DuReader."""

    arguments = ReadingComprehensionArguments
    fits_words = True
    document_metrics = ("exact", "f1", "bleu1", "bleu4", "rougeL")
    metrics = document_metrics
    unused = (*OF_DOCUMENTS, *OF_SUMMARIES)
    auto_class = "AutoModelForQuestionAnswering"
    checkpoint_class: ClassVar[str | None] = None

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._windows: dict[str, Any] = {}
        self._counts = {part: dict.fromkeys(COUNTS, 0) for part in self.parts}

    def check(self) -> None:
        super().check()
        stride, most = self.options.stride, self.recipe.data.max_source_length
        if stride >= most:
            raise RecipeError(f"data: max_source_length {most}: stride must be less than that, got {stride}")

    def resolver(self, part: str) -> Callable[[Mapping[str, Any]], RowFormat]:
        return functools.partial(resolve_reading, **self.columns(), named_paragraphs=part == "train")

    def model_arguments(self) -> ModelArguments:
        arguments = super().model_arguments()
        if not self.options.characters or arguments.model_name_or_path is not None:
            return arguments
        characters = fit_characters(self._texts(), self.options.num_characters)
        settings = {**arguments.processor_settings(), "characters": characters}
        sizes = {**arguments.overrides(), "char_vocab_size": len(characters) + 2}
        return replace(arguments, processor_overrides=json.dumps(settings), config_overrides=json.dumps(sizes))

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        model, processor = super().load_model_and_processor()
        # The pipeline and `evaluate` read and answer as in training.
        own = {name: getattr(self.options, name) for name in ("stride", "max_question_length", "max_answer_length")}
        remember_task(model.config, PIPELINE, **own, max_length=self.recipe.data.max_source_length)
        return model, processor

    def _texts(self) -> Iterable[str]:
        rows = self.rows("train")
        return chain.from_iterable((row["question"], *row["documents"]) for row in rows)

    def fitted_tokenizer(self) -> PreTrainedTokenizerBase:
        words = self.recipe.model.tokenizer_words or 1
        if self.options.split_into == "characters":
            return train_characters(self._texts(), words)
        return train_word_level(self._texts(), words, lowercase=self.options.lowercase, digits=None)

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Any:
        if "test" in self.parts:
            self._inputs("test", processor)  # now, so that what is wrong with them shows at once
        return super().validation_dataset(model, processor)

    def collator(self, model: PreTrainedModel, processor: Processor) -> Callable[..., Any]:
        # Scores of batches are put together with padding on the right, where the words of a row then begin.
        return functools.partial(cast(Any, processor).pad, padding_side="right", return_tensors="pt")

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]]:
        return self._scores

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        found = self._predict("validation", trainer, processor, "predictions.jsonl")
        return None if found is None else self._score(found, "validation")

    def test(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        if (found := self._predict("test", trainer, processor, PREDICTIONS_FILE)) is None:
            return None
        statistics = self._statistics(found, "test")
        if statistics and trainer.is_world_process_zero():
            asked = [[row["question"], row["references"]] for row in self.rows("test") if row["references"]]
            DocumentScores(document_keys(asked), statistics).save(self.output_dir / SCORES_FILE)
        return {**self._score(found, "test"), **self._of_another_question("test", trainer, processor)}

    def _predict(self, part: str, trainer: Trainer, processor: Processor, file: str) -> list[tuple[str, float]] | None:
        """Answer the questions of a part, and write the answers down."""
        if (rows := self.rows(part)) is None:
            return None
        answers = self._answers(self._logits(trainer, self._inputs(part, processor)), rows, self._windows[part])
        said, scores = zip(*answers, strict=True)
        self.write_predictions(trainer, rows, file, prediction=said, score=scores, references=rows["references"])
        return answers

    def _of_another_question(self, part: str, trainer: Trainer, processor: Processor) -> dict[str, float]:
        """F1 where each context is asked the next row's question: what a reader then knows, it has not been asked."""
        rows = self.rows(part)
        if len(rows) < 2:
            return {}
        questions = list(rows["question"])
        others = rows.remove_columns("question").add_column("question", [*questions[1:], questions[0]])
        windows = self._made_of(others, processor)
        answers = self._answers(self._logits(trainer, _without_notes(windows)), others, windows)
        found = self._score(answers, part)
        return {"f1_of_another_question": found["f1"]} if "f1" in found else {}

    @staticmethod
    def _logits(trainer: Trainer, inputs: Any) -> Any:
        compute_metrics, trainer.compute_metrics = trainer.compute_metrics, None  # which is of the validation data
        output = trainer.predict(inputs)
        trainer.compute_metrics = compute_metrics
        return output.predictions

    def reports(self) -> dict[str, Any]:
        return {**super().reports(), "truncation": self._counts}

    def smoke_rows(self) -> list[dict[str, Any]]:
        rows, answers = task_rows("question_answering", self.columns()), self.options.answers_column or "answers"
        return [row for row in rows if row[answers]["text"]]

    def smoke_changes(self) -> dict[str, Any]:
        return {"stride": 8, "max_question_length": 24}

    def smoke_tokenizer(self) -> PreTrainedTokenizerBase:
        return train_word_level(texts_in(self.smoke_rows()), 200, digits=None)

    def _inputs(self, part: str, processor: Processor) -> Any:
        if part not in self._windows:
            if (rows := self.rows(part)) is None:
                return None
            made = self._made_of(rows, processor)
            self._count(part, rows, made)
            if part == "train":
                made = made.filter(lambda end: end >= 0, input_columns="end_positions", **self.of_data("num_proc"))
                if not len(made):
                    raise RecipeError("data: train has no window with an answer")
            self._windows[part] = made
        return _without_notes(self._windows[part])

    def _made_of(self, rows: Any, processor: Processor) -> Any:
        """Make windows of questions with their contexts."""
        # The same inputs for all rows: numbers of documents, if a question has several.
        several = any(len(documents) > 1 for documents in rows["documents"])
        limits = self.recipe.data.max_source_length, self.options.stride, self.options.max_question_length
        windows = _Windows(processor, *limits, several)
        return self.mapped(rows, windows, batch_size=QUESTIONS_IN_MEMORY, with_indices=True)

    def _count(self, part: str, rows: Any, made: Any) -> None:
        examples, ends = list(made["example_index"]), list(made["end_positions"])
        long, widened = ({i for i, is_so in zip(examples, made[name], strict=True) if is_so} for name in CHECKS)
        found = {i for i, end in zip(examples, ends, strict=True) if end >= 0}
        if len(widened) > len(rows) / 2:
            logger.warning(
                f"{part}: {len(widened)} of {len(rows)} answers begin or end inside of a word, and are learned with "
                "all of it; where words are not written apart, as in Chinese, let split_into be characters"
            )
        answered = [bool(answer["text"]) for answer in rows["answers"]]
        self._counts[part] = {
            "questions": len(rows),
            "windows": len(examples),
            "windows_without_answer": sum(end < 0 for end in ends),
            "without_answer": answered.count(False),
            "lost_answers": sum(has and i not in found for i, has in enumerate(answered)),
            "long_questions": len(long),
            "widened_answers": len(widened),
            "misplaced_answers": sum(rows["misplaced_answers"]),
        }

    def _answers(self, predictions: Any, rows: Any, windows: Any) -> list[tuple[str, float]]:
        """The best answer to each question, over all of its windows."""
        of_question: list[list[int]] = [[] for _ in range(len(rows))]
        for number, example in enumerate(windows["example_index"]):
            of_question[example].append(number)
        answers = []
        for numbers, documents in zip(of_question, rows["documents"], strict=True):
            if not numbers:  # a question without a word
                answers.append(("", 0.0))
                continue
            notes = [windows[number] for number in numbers]
            logits = [
                [np.asarray(part[number])[: len(note["context_spans"])].astype(np.float64) for part in predictions[:2]]
                for number, note in zip(numbers, notes, strict=True)
            ]
            ((start, end), score) = best_spans(notes, logits, 1, self.options.max_answer_length)[0]
            answers.append(("\n".join(documents)[start:end], score))
        return answers

    def _scores(self, eval_prediction: EvalPrediction | Any) -> dict[str, float]:
        rows, windows = self.rows("validation"), self._windows["validation"]
        return self._score(self._answers(eval_prediction.predictions, rows, windows), "validation")

    def _statistics(self, answers: Sequence[tuple[str, float]], part: str) -> dict[str, DocumentStatistics]:
        """What each answer adds to each score; nothing where no question has a reference."""
        references = list(self.rows(part)["references"])
        pairs = [(answer, golds) for (answer, _), golds in zip(answers, references, strict=True) if golds]
        if not pairs:
            return {}
        unit = self.options.unit or usual_unit(chain.from_iterable(references))
        said, golds = zip(*pairs, strict=True)
        return document_answers(said, golds, unit)

    def _score(self, answers: Sequence[tuple[str, float]], part: str) -> dict[str, float]:
        if not (found := self._statistics(answers, part)):
            return {"total": 0.0}
        return {**{name: found[name].score() for name in self.document_metrics}, "total": len(found["exact"].values)}


@dataclass
class _Windows:
    """Maps a batch of questions to windows; holds only what decides the result, since datasets hashes it."""

    processor: Any
    limit: int
    stride: int
    max_question_length: int
    several: bool

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {}
        for number, index in enumerate(indices):
            question, answers = batch["question"][number], batch["answers"][number]
            spans = self.processor.tokenizer(
                question, add_special_tokens=False, return_offsets_mapping=True, verbose=False
            )["offset_mapping"]
            long = len(spans) > self.max_question_length
            if long:  # the words that are left are asked; how many questions lost some is counted
                question = question[: spans[self.max_question_length - 1][1]]
            if not spans:
                continue
            documents = batch["documents"][number]
            given: dict[str, Any] = {"documents": [documents]} if self.several else {"context": documents}
            try:
                made = self._made(question, given, answers)
            except AnswerNotFoundError:
                made = self._made(question, given, {"text": [], "answer_start": []})
            count = len(made["input_ids"])
            made["example_index"] = [index] * count
            made["long_question"] = [long] * count
            made["widened_answer"] = [_is_widened(made, row, answers) for row in range(count)]
            for name, values in made.items():
                columns.setdefault(name, []).extend(values)
        return columns

    def _made(self, question: str, given: dict[str, Any], answers: Mapping[str, Any]) -> dict[str, list[Any]]:
        options = {"max_length": self.limit, "stride": self.stride, "return_spans": True}
        return dict(self.processor(question=[question], **given, answers=[answers], **options))


def _is_widened(made: Mapping[str, Any], row: int, answers: Mapping[str, Any]) -> bool:
    """Whether the words of an answer are more than the answer."""
    first, last = made["start_positions"][row], made["end_positions"][row]
    if last < 0:
        return False
    text, start = answers["text"][0], answers["answer_start"][0]
    spans = made["context_spans"][row]
    begins = start + len(text) - len(text.lstrip())
    return bool(spans[first][0] < begins or spans[last][1] > start + len(text.rstrip()))


def _without_notes(windows: Any) -> Any:
    return windows.remove_columns([name for name in (*NOTES, *CHECKS) if name in windows.column_names])
