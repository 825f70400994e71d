"""The protocol of a task: what is trained on what, how it is scored, and what it needs for `--smoke`."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import transformers
from datasets import IterableDataset

from ...data import HierDataCollator, LoadReport
from .. import key_phrases
from ..arguments import ModelArguments, Recipe, RecipeError, mistakes_of, named_in_errors, nearest
from ..distributed import own_file
from ..evaluation import write_json_lines
from ..models import Processor, load_model_and_processor
from ..own_tokenizer import own_tokenizer
from ..smoke_rows import documents_rows, train_tokenizer
from ..word_vectors import WordVectorCoverage, set_word_vectors


if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainerCallback


# Where `test` leaves the scores of each document; see `Task.document_metrics`.
SCORES_FILE = "document_scores.json"
# What a model wrote of the test documents, in the order of their scores.
PREDICTIONS_FILE = "predictions_test.jsonl"
LOSS = "loss"  # which every task reports
# What of the section data is for rows of a document, and for its summary alone; see `Task.unused`.
OF_DOCUMENTS = ("text_column", "summary_column", "source_kind", "fillers")
OF_SUMMARIES = (
    *("importance", "importance_tagger", "query_column", "several_references", "digits", "long_documents"),
    *("phrases_column", "key_phrases", "stopwords"),
)


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
    # Whether a tokenizer of words is fitted where a recipe has `model: tokenizer_words`.
    fits_words: ClassVar[bool] = False
    # What of the section data means nothing to the task.
    unused: ClassVar[tuple[str, ...]] = ()
    # Whether answers or documents are put together by the order of the rows; see `HierTrainer`.
    in_order: ClassVar[bool] = False
    # How many examples `--smoke` trains on at a time, at most.
    smoke_batch: ClassVar[int] = 2
    # What `compute_metrics` reports, so that `metric_for_best_model` can be checked; None where that is not known.
    metrics: ClassVar[tuple[str, ...] | None] = None
    # What a comparison can compare: `test` writes the statistics of each document (`DocumentScores`) to `SCORES_FILE`.
    document_metrics: ClassVar[tuple[str, ...]] = ()

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        self.recipe, self.output_dir = recipe, output_dir
        # What of a checkpoint was loaded: see `load_model_and_processor`.
        self.loading: dict[str, list[str]] = {}
        # What the model's word vectors cover, if the recipe names any.
        self.word_vectors: WordVectorCoverage | None = None
        tested = recipe.data.test is not None or recipe.data.test_split is not None
        self.parts = ("train", "validation", *(["test"] if tested else []))
        self.set_aside = {part: LoadReport() for part in self.parts}
        self._rows: dict[str, Any] = {}

    @property
    def options(self) -> Any:
        """The recipe's section of this task: an instance of `arguments`."""
        return self.recipe.options

    def check(self) -> None:
        """Refuse, before anything is loaded, what cannot work.

        Raises:
            RecipeError: If parts of the recipe do not fit together.
        """
        given = [f"data: {name}" for name in self.unused if getattr(self.recipe.data, name) not in (None, False)]
        if self.recipe.model.tokenizer_words is not None and not self.fits_words:
            given.append("model: tokenizer_words")
        if given:
            raise RecipeError(f"{given[0]} means nothing to {self.recipe.run.task} (run: task); leave it out")
        data, training = self.recipe.data, self.recipe.training
        for part in ("validation", "test"):
            source, split = data.source_of(part)
            if source is not None and source == data.train and split is not None and data.train_split is None:
                wanted = f"give train_split too, or {part} a source of its own"
                raise RecipeError(f"data: {part}_split={split!r} is of train, all of which is trained on; {wanted}")
        metric = (training.metric_for_best_model or LOSS).removeprefix("eval_")
        if training.eval_strategy == "no" or metric == LOSS or self.metrics is None:
            return
        if metric not in self.metrics:
            names = nearest(metric, [LOSS, *self.metrics])
            raise RecipeError(f"training: metric_for_best_model: {self.recipe.run.task} reports no {metric!r}{names}")
        if isinstance(self, WritingTask) and not training.predict_with_generate:
            raise RecipeError(f"training: metric_for_best_model: {metric} needs predict_with_generate: true")

    def set_aside_file(self, part: str) -> Path | None:
        """Name this process' file for lines of a part that cannot be used; None where bad lines stop the run."""
        data = self.recipe.data
        if data.bad_lines != "set_aside":
            return None
        streaming = data.streaming and "train" in part
        return own_file(self.output_dir / f"set_aside_{part}.jsonl", self.recipe.training, streaming=streaming)

    def rows(self, part: str) -> Any:
        """Load the rows of a part of the data, once; None if the recipe names none."""
        if part not in self._rows:
            self._rows[part] = self.load(part)
        return self._rows[part]

    @abstractmethod
    def load(self, part: str) -> Any:
        """Read the rows of a part from its source; see `rows`."""

    def load_by(self, loader: Callable[..., Any], part: str, further: str | None = None, **options: Any) -> Any:
        """Read the rows of a part, or of a further source of `also_train`, with a loader of `hier_models.data`."""
        data = self.recipe.data
        source, split = data.source_of(part) if further is None else (further, None)
        if source is None:
            return None
        files = {"set_aside_file": self.set_aside_file(part), "report": self.set_aside.setdefault(part, LoadReport())}
        with named_in_errors(f"data: {part}" if further is None else f"{self.recipe.run.task}: also_train"):
            rows = loader(**{**data.loading(source, split), **files, **options})
        return at_most(rows, getattr(data, f"max_{part if further is None else 'train'}_documents"))

    def model_arguments(self) -> ModelArguments:
        """Give the section `model` with what the data decide, such as a tokenizer that is fitted to them."""
        if not self.fits_tokenizer():
            return self.recipe.model
        folder = own_tokenizer(self.recipe, self.output_dir, self.fitted_tokenizer)
        return dataclasses.replace(self.recipe.model, tokenizer=str(folder), tokenizer_words=None)

    def fits_tokenizer(self) -> bool:
        """Tell whether the recipe asks for a tokenizer that is fitted to the training data."""
        return self.recipe.model.tokenizer_words is not None

    def fitted_tokenizer(self) -> PreTrainedTokenizerBase:
        """Fit a tokenizer to the training data."""
        raise NotImplementedError(f"{type(self).__name__} fits no tokenizer")

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        """Load or make the model, ready to train, and what prepares its inputs.

        Returns:
            The model, in float32, and its processor or tokenizer.
        """
        auto_class = getattr(transformers, self.auto_class)
        model, processor = load_model_and_processor(self.model_arguments(), auto_class, self.loading)
        if self.recipe.model.word_vectors is not None:
            with mistakes_of("model: word_vectors", OSError):
                self.word_vectors = set_word_vectors(model, processor, self.recipe.model.word_vectors)
        return model, processor

    @abstractmethod
    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset:
        """Load and tokenize the training data. Called in the first process before the others, which find its cache.

        A stream is repeated and shuffled by `run_training`.
        """

    @abstractmethod
    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset | None:
        """Load and tokenize the validation data; None if the recipe names none."""

    def collator(self, model: PreTrainedModel, processor: Processor) -> Callable[..., Any]:
        """Make what makes a batch of examples."""
        return HierDataCollator(processor, model=model)

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]] | None:
        """Give the scores that the Trainer reports during training; None for the loss alone."""
        return None

    def callbacks(self) -> list[TrainerCallback]:
        """Give the task's own callbacks for the Trainer."""
        return []

    def trainer_options(self) -> dict[str, Any]:
        """Give further arguments of the Trainer, such as `preprocess_logits_for_metrics`."""
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
        """Score the trained model on the test data, as `evaluate` does; what becomes `test` in results.json."""
        return None

    def reports(self) -> dict[str, Any]:
        """Report what was cut or set aside, known only after training where data are streamed; for results.json."""
        return {"set_aside": as_dicts(self.set_aside)}

    @staticmethod
    def table(evaluation: dict[str, Any]) -> str:
        """Lay out the scores that `evaluate` returned for the command line, one line for each number."""
        rows = [(name, value) for name, value in evaluation.items() if isinstance(value, int | float)]
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(
            f"{name:<{width}}  {value:>8.2f}" if isinstance(value, float) else f"{name:<{width}}  {value:>8}"
            for name, value in rows
        )

    def of_data(self, *names: str) -> dict[str, Any]:
        """Give settings of the section data by their names."""
        return {name: getattr(self.recipe.data, name) for name in names}

    def columns(self) -> dict[str, Any]:
        """Give the columns that the task's section of the recipe names, or leaves to be recognized."""
        return {name: value for name, value in vars(self.options).items() if name.endswith("_column")}

    # For --smoke

    def smoke_rows(self) -> list[dict[str, Any]]:
        """Make about eight rows of data, with the columns that the recipe names; by default documents."""
        return documents_rows(self.recipe.data)

    def smoke_data(self, folder: Path) -> dict[str, Any]:
        """Write the rows to files, and say what to change in the recipe so that it reads them: name -> value."""
        data, rows = self.recipe.data, self.smoke_rows()
        changes: dict[str, Any] = {}
        for part, count in (("train", len(rows)), ("validation", 4), ("test", 2)):
            split = getattr(data, f"{part}_split")
            if part == "train" or getattr(data, part) is not None or split is not None:
                changes[part] = str(folder / f"smoke_{part}.jsonl")
                column = {} if split is None else {"split": split}
                write_json_lines(changes[part], [{**row, **column} for row in rows[:count]])
        if more := getattr(self.options, "also_train", None):  # every further source is the same file
            changes["also_train"] = [changes["train"]] * len(more)
        if data.key_phrases is not None:
            changes["key_phrases"] = key_phrases.FIT
        return changes

    def smoke_tokenizer(self) -> PreTrainedTokenizerBase:
        """Train a tokenizer of the recipe's kind on the rows; by default byte-level BPE as BART and RoBERTa have."""
        return train_tokenizer(self.smoke_rows())

    def smoke_changes(self) -> dict[str, Any]:
        """Shrink what belongs to this task alone, or where the general shrinking does not do: name -> value."""
        return {}


class WritingTask(Task):
    """A task whose model writes texts, which are scored as wholes."""

    @abstractmethod
    def scores(self, part: str, model: PreTrainedModel, processor: Processor, **files: Any) -> dict[str, Any]:
        """Score what the model writes of a part, and write the files."""

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        if self.rows("validation") is None or not self.recipe.training.predict_with_generate:
            return None
        return self.scores("validation", model, processor, predictions_file=self.output_dir / "predictions.jsonl")

    def test(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        if self.rows("test") is None:
            return None
        files = {"predictions_file": self.output_dir / PREDICTIONS_FILE, "scores_file": self.output_dir / SCORES_FILE}
        return self.scores("test", model, processor, **files)


def as_dicts(reports: dict[str, Any]) -> dict[str, Any]:
    """The reports of all parts for results.json."""
    return {part: report.as_dict() for part, report in reports.items()}


def at_most(rows: Any, number: int | None) -> Any:
    """The first rows, of a stream too; all if no number is given."""
    if rows is None or number is None:
        return rows
    return rows.take(number if isinstance(rows, IterableDataset) else min(number, len(rows)))
