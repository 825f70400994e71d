"""What a training run can be for: the protocol of a task, and the tasks by name.

`run_training` does what all tasks share: resuming, seeds, accumulation, checkpoints, saving, results. A task says what
is trained on what, how it is scored, and what it needs for `--smoke`. To add one, write a subclass of `Task` and its
line in `TASKS`.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar


if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset
    from torch.utils.data import DataLoader
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainerCallback

    from .arguments import Recipe
    from .models import Processor
    from .word_vectors import WordVectorCoverage


# Name in a recipe's `run: task:` -> module in this package and class.
TASKS = {
    "summarization": ("summarization", "SummarizationTask"),
    "book_summarization": ("book_summarization", "BookSummarizationTask"),
    "translation": ("translation", "TranslationTask"),
    "denoising": ("denoising", "DenoisingTask"),
    "masked_lm": ("encoder_tasks_masked_lm", "MaskedLMTask"),
    "question_answering": ("encoder_tasks_question_answering", "QuestionAnsweringTask"),
    "classification": ("encoder_tasks_classification", "ClassificationTask"),
    "multiple_choice": ("encoder_tasks_multiple_choice", "MultipleChoiceTask"),
    "poem_generation": ("poem_generation", "PoemGenerationTask"),
    "reading_comprehension": ("reading_comprehension", "ReadingComprehensionTask"),
    "importance_tagging": ("encoder_tasks_importance_tagging", "ImportanceTaggingTask"),
}

# Where `test` leaves the scores of each document; see `Task.document_metrics`.
SCORES_FILE = "document_scores.json"
# What a model wrote of the test documents, in the order of their scores.
PREDICTIONS_FILE = "predictions_test.jsonl"


def in_order(trainer_class: type[Trainer]) -> type[Trainer]:
    """Derive a Trainer that evaluates on every row, in the order of the data, however it trains.

    Answers are put together from windows, and documents from chunks, by their order. What changes the order of the
    training, such as `train_sampling_strategy="group_by_length"`, changes that of Transformers' evaluation too.
    """
    from .arguments import IN_ORDER

    class InOrder(trainer_class):  # type: ignore[misc, valid-type]  # the base is an argument
        """The Trainer; its batches of evaluation are taken one after the other."""

        def _ordered(self, make: Callable[..., DataLoader[Any]], dataset: Any) -> DataLoader[Any]:
            training = {name: getattr(self.args, name) for name in IN_ORDER if hasattr(self.args, name)}
            for name in training:
                setattr(self.args, name, IN_ORDER[name])
            try:
                return make(dataset)
            finally:
                for name, value in training.items():
                    setattr(self.args, name, value)

        def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
            """Make the batches; see `Trainer`."""
            return self._ordered(super().get_eval_dataloader, eval_dataset)

        def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
            """Make the batches; see `Trainer`."""
            return self._ordered(super().get_test_dataloader, test_dataset)

    InOrder.__name__ = InOrder.__qualname__ = trainer_class.__name__
    return InOrder


class Task(ABC):
    """One training run of a task: made from the recipe, and asked for its parts in the order of the methods here.

    Args:
        recipe: The whole recipe.
        output_dir: Folder of the run.
    """

    # A dataclass of options that only this task has: the recipe's section that is named like the task.
    arguments: ClassVar[type | None] = None
    # Name of the Auto class that loads or makes the model.
    auto_class: ClassVar[str] = "AutoModelForSeq2SeqLM"
    # Name of the Auto class whose checkpoint `--smoke` makes in place of `model_name_or_path`; None for `auto_class`.
    checkpoint_class: ClassVar[str | None] = None
    # The metrics that a comparison can compare: `test` writes their statistics of each document (`DocumentScores`) to
    # `SCORES_FILE` in the folder of the run.
    document_metrics: ClassVar[tuple[str, ...]] = ()

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        self.recipe = recipe
        self.output_dir = output_dir
        # What of a checkpoint was loaded: see `load_model_and_processor`.
        self.loading: dict[str, list[str]] = {}
        # What the model's word vectors cover, if the recipe names any.
        self.word_vectors: WordVectorCoverage | None = None

    @property
    def options(self) -> Any:
        """The recipe's section of this task: an instance of `arguments`."""
        return self.recipe.options

    def check(self) -> None:  # noqa: B027  # most tasks have nothing to check
        """Refuse, before anything is loaded, what cannot work.

        Raises:
            RecipeError: If parts of the recipe do not fit together.
        """

    def set_aside_file(self, part: str) -> Path | None:
        """Name the file for lines that cannot be used.

        Args:
            part: Of the data, such as `train`.

        Returns:
            A file in the output folder, of this process alone; None where bad lines stop the run.
        """
        from .distributed import own_file

        data = self.recipe.data
        if data.bad_lines != "set_aside":
            return None
        streaming = data.streaming and "train" in part
        return own_file(self.output_dir / f"set_aside_{part}.jsonl", self.recipe.training, streaming=streaming)

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        """Load or make the model, ready to train, and what prepares its inputs.

        Returns:
            The model, in float32, and its processor or tokenizer.
        """
        import transformers

        from .arguments import RecipeError
        from .models import load_model_and_processor
        from .word_vectors import set_word_vectors

        model, processor = load_model_and_processor(
            self.recipe.model, getattr(transformers, self.auto_class), self.loading
        )
        if self.recipe.model.word_vectors is not None:
            try:
                self.word_vectors = set_word_vectors(model, processor, self.recipe.model.word_vectors)
            except (OSError, ValueError) as error:
                raise RecipeError(f"model: word_vectors: {error}") from error
        return model, processor

    @abstractmethod
    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset:
        """Load and tokenize the training data. Called in the first process before the others, which find its cache.

        Args:
            model: The model.
            processor: Its processor.

        Returns:
            What the collator batches; a stream is repeated and shuffled by `run_training`.
        """

    @abstractmethod
    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset | None:
        """Load and tokenize the validation data.

        Args:
            model: The model.
            processor: Its processor.

        Returns:
            What the collator batches, or None if the recipe names no validation data.
        """

    @abstractmethod
    def collator(self, model: PreTrainedModel, processor: Processor) -> Callable[..., Any]:
        """Make the collator.

        Args:
            model: The model.
            processor: Its processor.

        Returns:
            What makes a batch of examples.
        """

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]] | None:
        """Give the scores that the Trainer reports during training.

        Args:
            processor: The model's processor.

        Returns:
            The Trainer's `compute_metrics`, or None for the loss alone.
        """
        return None

    def callbacks(self) -> list[TrainerCallback]:
        """Give the task's own callbacks.

        Returns:
            Callbacks for the Trainer.
        """
        return []

    def trainer_class(self) -> type[Trainer]:
        """Choose the Trainer.

        Returns:
            `Seq2SeqTrainer`, or another class that takes the same arguments, such as `Trainer`.
        """
        from transformers import Seq2SeqTrainer

        return Seq2SeqTrainer

    def trainer_options(self) -> dict[str, Any]:
        """Give further arguments of the Trainer.

        Returns:
            Such as `preprocess_logits_for_metrics`.
        """
        return {}

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        """Score the trained model on the validation data.

        Args:
            trainer: The Trainer after training.
            model: The trained model.
            processor: The model's processor.

        Returns:
            What becomes `evaluation` in results.json, or None if there is nothing to score on.
        """
        return None

    def test(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        """Score the trained model on the test data.

        Args:
            trainer: The Trainer after training.
            model: The trained model.
            processor: The model's processor.

        Returns:
            What becomes `test` in results.json, or None if there is nothing to score on.
        """
        return None

    def reports(self) -> dict[str, Any]:
        """Report what was cut or set aside, known only after training where data are streamed.

        Returns:
            Name -> report, for results.json.
        """
        return {}

    @staticmethod
    def table(evaluation: dict[str, Any]) -> str:
        """Lay out the scores for the command line.

        Args:
            evaluation: What `evaluate` returned.

        Returns:
            One line for each number.
        """
        rows = [(name, value) for name, value in evaluation.items() if isinstance(value, int | float)]
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(
            f"{name:<{width}}  {value:>8.2f}" if isinstance(value, float) else f"{name:<{width}}  {value:>8}"
            for name, value in rows
        )

    # For --smoke

    @abstractmethod
    def smoke_rows(self) -> list[dict[str, Any]]:
        """Make a few rows of data as the recipe's own data have them.

        Returns:
            About eight rows, with the columns that the recipe names.
        """

    def smoke_data(self, folder: Path) -> dict[str, Any]:
        """Write the rows to files.

        Args:
            folder: Where to write.

        Returns:
            What to change in the recipe so that it reads them: name -> value.
        """
        from .smoke import write_rows

        data = self.recipe.data
        rows = self.smoke_rows()
        changes: dict[str, Any] = {"train": str(write_rows(folder / "smoke_a.jsonl", rows, data.train_split))}
        if data.validation is not None or data.validation_split is not None:
            file = write_rows(folder / "smoke_b.jsonl", rows[:4], data.validation_split)
            changes["validation"] = str(file)
        if data.test is not None or data.test_split is not None:
            changes["test"] = str(write_rows(folder / "smoke_c.jsonl", rows[:2], data.test_split))
        return changes

    def smoke_tokenizer(self) -> PreTrainedTokenizerBase:
        """Train a tokenizer on the rows.

        Returns:
            A tokenizer of the kind that the recipe's model has; by default byte-level BPE with BART's and RoBERTa's
            special tokens.
        """
        from .smoke import train_tokenizer

        return train_tokenizer(self.smoke_rows())

    def smoke_changes(self) -> dict[str, Any]:
        """Shrink what belongs to this task alone.

        Returns:
            Name -> value, for names of `arguments`, or of other sections where the general shrinking does not do.
        """
        return {}


def task_class(name: str) -> type[Task]:
    """Find a task.

    Args:
        name: As in `run: task:`.

    Returns:
        Its class.

    Raises:
        RecipeError: If there is none of this name.
    """
    from .arguments import RecipeError

    if name not in TASKS:
        raise RecipeError(f"run: task must be one of {', '.join(TASKS)}, got {name!r}")
    module, class_name = TASKS[name]
    found: type[Task] = getattr(importlib.import_module(f".{module}", __package__), class_name)
    return found
