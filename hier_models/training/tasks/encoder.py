"""What the tasks of encoders share: loading rows, counting what is cut, dropout schedules, scoring after training."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset, IterableDataset
from transformers import DataCollatorWithPadding, PreTrainedModel, Trainer, TrainerCallback

from ...data.cache_fingerprint import Versioned
from ...data.columns import RowFormat
from ...data.loading import load_rows
from ...data.tokenizing import cut_texts, plain_tokenizer
from ...models.text_inputs import NO_LIMIT, longest_text
from ...pipelines.document_pipeline_hier import positions
from ..arguments import Recipe, RecipeError
from ..callbacks import DropoutSchedule
from ..evaluation import prediction_rows, write_json_lines
from ..models import Processor
from ..smoke_rows import ROWS, task_rows
from .base import OF_DOCUMENTS, OF_SUMMARIES, Task


logger = logging.getLogger(__name__)

# What of the section data means nothing to any of them.
UNUSED = ("test", "test_split", *OF_SUMMARIES)


@dataclass
class EncoderArguments:
    """What all tasks of encoders have; columns that they name are recognized by their names if not given."""

    dropout_free_epochs: int = 0  # epochs at the beginning without any dropout

    def __post_init__(self) -> None:
        if self.dropout_free_epochs < 0:
            raise RecipeError(f"dropout_free_epochs must be 0 or more, got {self.dropout_free_epochs}")


@dataclass
class QuestionArguments(EncoderArguments):
    """What tasks of questions on a context have; lengths are in tokens, of readers in words."""

    question_column: str | None = None
    context_column: str | None = None
    answers_column: str | None = None
    stride: int = 128  # what neighboring windows of a long context share
    max_question_length: int = 64  # markers included; a longer question is cut and counted
    max_answer_length: int = 30


class EncoderTask(Task):
    """A task of an encoder, trained with the stock `Trainer`."""

    # Recognizes the columns of a row; `resolver` gives it those that the recipe names.
    resolve: ClassVar[Callable[..., RowFormat]]
    # What the recipes' `model_name_or_path` is: a pretrained model, whose head is new in every other task.
    checkpoint_class: ClassVar[str | None] = "AutoModelForMaskedLM"
    # Whether the training data may be a stream.
    can_stream = False
    in_order = True
    unused: ClassVar[tuple[str, ...]] = (*OF_DOCUMENTS, *UNUSED)

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._tokenized: dict[str, Dataset] = {}
        nothing = dict.fromkeys(("rows", "truncated_rows", "truncated_tokens"), 0)
        self._cuts = dict.fromkeys(self.parts[:2], nothing)

    def resolver(self, part: str) -> Callable[[Mapping[str, Any]], RowFormat]:
        """Give what recognizes the columns of a part."""
        return functools.partial(type(self).resolve, **self.columns())

    def read(self, part: str, source: str | Path, **options: Any) -> Dataset | IterableDataset:
        """Read a source."""
        return load_rows(source, self.resolver(part), **options)

    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Any:
        return self._inputs("train", processor)

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Any:
        return self._inputs("validation", processor)

    def _inputs(self, part: str, processor: Processor) -> Any:
        raise TypeError(f"{type(self).__name__} must say what becomes of its rows")

    def collator(self, model: PreTrainedModel, processor: Processor) -> Callable[..., Any]:
        return DataCollatorWithPadding(plain_tokenizer(processor))

    def check(self) -> None:
        super().check()
        name = self.recipe.run.task
        if settings := self.recipe.generation.settings():
            raise RecipeError(f"generation: {next(iter(settings))} means nothing to {name} (run: task); leave it out")
        if self.recipe.training.label_smoothing_factor and isinstance(self.options, QuestionArguments):
            of_places = "whose loss is of the places where answers begin and end"
            raise RecipeError(f"training: label_smoothing_factor must be 0 for {name}, {of_places}")
        if self.recipe.data.streaming and not self.can_stream:
            raise RecipeError(f"data: streaming goes with masked_lm, not with {name}")
        if self.recipe.data.streaming and self.options.dropout_free_epochs:
            raise RecipeError("dropout_free_epochs cannot be counted with data: streaming, a stream has no epochs")

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        model, processor = super().load_model_and_processor()
        length = self.recipe.data.max_source_length
        if positions(model.config, "encoder") is not None:
            plain_tokenizer(processor).model_max_length = NO_LIMIT  # the model's own counts
        if (most := usable_positions(model, processor)) is not None:
            if length > most:
                raise RecipeError(f"data: max_source_length is {length}, but the model takes {most} tokens at most")
            plain_tokenizer(processor).model_max_length = most
        return model, processor

    def callbacks(self) -> list[TrainerCallback]:
        epochs = self.options.dropout_free_epochs
        return [DropoutSchedule(epochs)] if epochs else []

    def reports(self) -> dict[str, Any]:
        return {"truncation": self._cuts, **super().reports()}

    def smoke_rows(self) -> list[dict[str, Any]]:
        task = self.recipe.run.task
        return task_rows(task, self.columns()) if task in ROWS else super().smoke_rows()

    def load(self, part: str) -> Any:
        streaming = self.recipe.data.streaming and part == "train"
        return self.load_by(functools.partial(self.read, part), part, streaming=streaming)

    def tokenized(self, part: str, tokenize: Callable[[dict[str, list[Any]]], dict[str, list[Any]]]) -> Dataset | None:
        """Turn the rows of a part into model inputs and count what is cut."""
        rows = self.rows(part)
        if rows is None or part in self._tokenized:
            return self._tokenized.get(part)
        inputs = self.mapped(rows, tokenize)
        cut = np.array(inputs["num_truncated_tokens"])
        rows_cut, lost, length = int((cut > 0).sum()), int(cut.sum()), self.recipe.data.max_source_length
        self._cuts[part] = {"rows": len(cut), "truncated_rows": rows_cut, "truncated_tokens": lost}
        if rows_cut:
            logger.warning(f"{part}: {rows_cut} of {len(cut)} rows did not fit into {length} tokens and lost {lost}")
        self._tokenized[part] = inputs.remove_columns("num_truncated_tokens")
        return self._tokenized[part]

    def mapped(self, rows: Dataset, tokenize: Callable[..., dict[str, list[Any]]], **options: Any) -> Dataset:
        """Turn batches of rows into model inputs."""
        options |= {"remove_columns": rows.column_names, "num_proc": self.recipe.data.num_proc}
        return rows.map(Versioned(tokenize), batched=True, desc="Tokenizing", **options)

    def write_predictions(
        self, trainer: Trainer, rows: Dataset, file: str = "predictions.jsonl", **columns: Sequence[Any]
    ) -> None:
        """Write what the model said of each row, in the first process."""
        if trainer.is_world_process_zero():
            lines = prediction_rows(rows, id=identifiers(rows), **columns)
            write_json_lines(self.output_dir / file, lines)


def usable_positions(model: PreTrainedModel, processor: Processor) -> int | None:
    """Tell how many tokens an encoder takes, and its tokenizer; None if the encoder has no positions."""
    return None if positions(model.config, "encoder") is None else longest_text(model, plain_tokenizer(processor))


def encode(processor: Processor, limit: int, **texts: list[str]) -> tuple[dict[str, list[Any]], list[int]]:
    """Tokenize texts or pairs, cut them to a length and count the tokens that each lost."""
    tokenizer: Any = plain_tokenizer(processor)
    if hasattr(tokenizer, "encode_sentences"):  # one that puts markers in, and counts what it cuts
        kept = tokenizer(**texts, truncation="longest_first", max_length=limit, return_truncation=True)
        cut = list(kept["num_truncated_tokens"])
    else:
        kept, cut = cut_texts(tokenizer, limit, **texts)
    return {name: [list(row) for row in kept[name]] for name in tokenizer.model_input_names if name in kept}, cut


def identifiers(rows: Dataset) -> list[str]:
    """Give every row an identifier of its own."""
    if "id" in rows.column_names:
        found = list(rows["id"])
        if len(set(found)) == len(found):
            return found
        logger.warning("the ids of the rows are not all different; their numbers are used instead")
    return [str(number) for number in range(len(rows))]
