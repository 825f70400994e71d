"""What the tasks of encoders share: loading rows, counting what is cut, dropout schedules, scoring after training."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from datasets import Dataset, IterableDataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback

from ..data import LoadReport
from ..data.columns import RowFormat
from ..data.loading import load_rows
from ..data.tokenizing import plain_tokenizer
from ..data.totals import SharedTotals
from ..data.versioned import Versioned
from ..families import FAMILIES
from .arguments import Recipe, RecipeError, reading_data
from .dropout_schedule import DropoutSchedule
from .models import Processor, positions
from .tasks import Task, in_order


logger = logging.getLogger(__name__)

# Models whose positions begin behind the padding token's id.
SHIFTED_POSITIONS = {
    *("roberta", "xlm-roberta", "camembert"),
    *(name for name, family in FAMILIES.items() if family.positions_after_padding),
}
ROWS_IN_MEMORY = 1000


@dataclass
class EncoderArguments:
    """What all tasks of encoders have.

    Args:
        dropout_free_epochs: Epochs at the beginning without any dropout.
    """

    dropout_free_epochs: int = field(default=0, metadata={"help": "Epochs at the beginning without any dropout."})

    def __post_init__(self) -> None:
        """Check the values."""
        if self.dropout_free_epochs < 0:
            raise RecipeError(f"dropout_free_epochs must be 0 or more, got {self.dropout_free_epochs}")


class CutReport:
    """What did not fit into the inputs of an encoder."""

    NAMES = ("rows", "truncated_rows", "truncated_tokens")

    def __init__(self) -> None:
        self._totals = SharedTotals(len(self.NAMES))

    def add(self, cut: Sequence[int]) -> None:
        """Count some rows.

        Args:
            cut: Tokens cut off each.
        """
        self._totals.add(len(cut), sum(number > 0 for number in cut), sum(cut))

    def as_dict(self) -> dict[str, int]:
        """The report for a results file.

        Returns:
            Every count by its name.
        """
        return {name: self._totals[number] for number, name in enumerate(self.NAMES)}


class EncoderTask(Task):
    """A task of an encoder, trained with the stock `Trainer`.

    Args:
        recipe: The whole recipe.
        output_dir: Folder of the run.
    """

    # What the recipes' `model_name_or_path` is: a pretrained model, whose head is new in every other task.
    checkpoint_class: ClassVar[str | None] = "AutoModelForMaskedLM"
    # Whether the training data may be a stream.
    can_stream = False
    # What of the section data means nothing to the task.
    unused: tuple[str, ...] = (
        *("text_column", "summary_column", "source_kind", "fillers", "test", "test_split"),
        *("importance", "importance_tagger", "several_references", "digits"),
    )

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._rows: dict[str, Any] = {}
        self._tokenized: dict[str, Dataset] = {}
        tested = recipe.data.test is not None or recipe.data.test_split is not None
        self._parts = ("train", "validation", *(["test"] if tested else []))
        self._set_aside = {part: LoadReport() for part in self._parts}
        self._cuts = {"train": CutReport(), "validation": CutReport()}

    def resolver(self, part: str) -> Callable[[Mapping[str, Any]], RowFormat]:
        """Give what recognizes the columns.

        Args:
            part: `train` or `validation`.

        Returns:
            An argument for `load_rows`.
        """
        raise TypeError(f"{type(self).__name__} must say how its columns are recognized")

    def read(self, part: str, source: str | Path, **options: Any) -> Dataset | IterableDataset:
        """Read a source.

        Args:
            part: What it is for, `train` or `validation`.
            source: Hub id, file or folder.
            **options: Further arguments of `load_rows`.

        Returns:
            Its rows.
        """
        return load_rows(source, self.resolver(part), **options)

    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Any:  # noqa: D102  # as in Task
        return self._inputs("train", processor)

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Any:  # noqa: D102  # as in Task
        return self._inputs("validation", processor)

    def _inputs(self, part: str, processor: Processor) -> Any:
        raise TypeError(f"{type(self).__name__} must say what becomes of its rows")

    def check(self) -> None:  # noqa: D102  # as in Task
        name = self.recipe.run.task
        given = [f"data: {item}" for item in self.unused if getattr(self.recipe.data, item) not in (None, False)]
        given += [f"generation: {item}" for item in self.recipe.generation.settings()]
        if given:
            raise RecipeError(f"{given[0]} means nothing to {name} (run: task); leave it out")
        if self.recipe.data.streaming and not self.can_stream:
            raise RecipeError(f"data: streaming goes with masked_lm, not with {name}")
        if self.recipe.data.streaming and self.options.dropout_free_epochs:
            raise RecipeError("dropout_free_epochs cannot be counted with data: streaming, a stream has no epochs")

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:  # noqa: D102
        model, processor = super().load_model_and_processor()
        most = usable_positions(model.config)
        length = self.recipe.data.max_source_length
        if most is not None:
            if length > most:
                raise RecipeError(
                    f"data: max_source_length is {length}, but the model takes {most} tokens at most; lower it"
                )
            plain_tokenizer(processor).model_max_length = most
        return model, processor

    def trainer_class(self) -> type[Trainer]:  # noqa: D102
        return in_order(Trainer)

    def callbacks(self) -> list[TrainerCallback]:  # noqa: D102
        epochs = self.options.dropout_free_epochs
        return [DropoutSchedule(epochs)] if epochs else []

    def reports(self) -> dict[str, Any]:  # noqa: D102
        return {
            "truncation": {name: report.as_dict() for name, report in self._cuts.items()},
            "set_aside": {name: report.as_dict() for name, report in self._set_aside.items()},
        }

    def rows(self, part: str) -> Any:
        """Load the rows of a part of the data, once.

        Args:
            part: `train` or `validation`, and `test` where a task has it.

        Returns:
            A dataset of the task's format, a stream of it, or None if the recipe names no such part.
        """
        if part not in self._rows:
            self._rows[part] = self._load(part)
        return self._rows[part]

    def _load(self, part: str) -> Any:
        data = self.recipe.data
        source, split = data.source_of(part)
        if source is None:
            return None
        with reading_data(f"data: {part}"):
            rows = self.read(
                part,
                **data.reading(source, split),
                streaming=data.streaming and part == "train",
                set_aside_file=self.set_aside_file(part),
                report=self._set_aside[part],
            )
        most = getattr(data, f"max_{part}_documents")
        if most is None:
            return rows
        return rows.take(most) if isinstance(rows, IterableDataset) else rows.take(min(most, len(rows)))

    def tokenized(self, part: str, tokenize: Callable[[dict[str, list[Any]]], dict[str, list[Any]]]) -> Dataset | None:
        """Turn the rows of a part into model inputs and count what is cut.

        Args:
            part: `train` or `validation`.
            tokenize: Maps a batch of rows to inputs and, as `num_truncated_tokens`, what each lost.

        Returns:
            The inputs, or None if the recipe names no such part.
        """
        rows = self.rows(part)
        if rows is None or part in self._tokenized:
            return self._tokenized.get(part)
        inputs = rows.map(
            Versioned(tokenize),
            batched=True,
            batch_size=ROWS_IN_MEMORY,
            remove_columns=rows.column_names,
            num_proc=self.recipe.data.num_proc,
            desc="Tokenizing",
        )
        report = self._cuts[part]
        report.add(list(inputs["num_truncated_tokens"]))
        counts = report.as_dict()
        if counts["truncated_rows"]:
            logger.warning(
                "%s: %d of %d rows did not fit into %d tokens and lost %d",
                part,
                counts["truncated_rows"],
                counts["rows"],
                self.recipe.data.max_source_length,
                counts["truncated_tokens"],
            )
        self._tokenized[part] = inputs.remove_columns("num_truncated_tokens")
        return self._tokenized[part]

    def write_predictions(
        self, trainer: Trainer, rows: Sequence[Mapping[str, Any]], file: str = "predictions.jsonl"
    ) -> None:
        """Write what the model said of the validation data, or of others, in the first process.

        Args:
            trainer: The Trainer.
            rows: A mapping for each.
            file: Name of the file in the output folder.
        """
        if trainer.is_world_process_zero():
            write_json_lines(self.output_dir / file, rows)


def usable_positions(config: PretrainedConfig) -> int | None:
    """Tell how many tokens an encoder takes.

    Args:
        config: The model's configuration.

    Returns:
        Tokens, or None where there is no limit.
    """
    most = positions(config, "encoder")
    if most is None or config.model_type not in SHIFTED_POSITIONS:
        return most
    return most - int(config.pad_token_id or 0) - 1


def encode(processor: Processor, limit: int, **texts: list[str]) -> tuple[dict[str, list[Any]], list[int]]:
    """Tokenize texts or pairs, cut them to a length and count the tokens that each lost.

    Args:
        processor: The processor or tokenizer.
        limit: Tokens of an input. What is too long loses tokens at the end of the longer of its texts.
        **texts: `text` and perhaps `text_pair`.

    Returns:
        Lists of `input_ids` and `attention_mask`, and the tokens cut off each.
    """
    tokenizer: Callable[..., Any] = plain_tokenizer(processor)
    if hasattr(tokenizer, "encode_sentences"):  # one that puts markers in, and counts what it cuts
        kept = tokenizer(**texts, truncation="longest_first", max_length=limit, return_truncation=True)
        cut = list(kept["num_truncated_tokens"])
    else:
        whole = tokenizer(**texts, verbose=False)
        lengths = [len(ids) for ids in whole["input_ids"]]
        kept = whole
        if max(lengths) > limit:
            kept = tokenizer(**texts, truncation="longest_first", max_length=limit)
        cut = [before - len(ids) for before, ids in zip(lengths, kept["input_ids"], strict=True)]
    return {name: [list(row) for row in kept[name]] for name in ("input_ids", "attention_mask")}, cut


def write_json_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows to a file.

    Args:
        path: The file; its folder is made if it is not there.
        rows: What to write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def identifiers(rows: Dataset) -> list[str]:
    """Give every row an identifier of its own.

    Args:
        rows: A dataset, perhaps with a column `id`.

    Returns:
        The ids; the numbers of the rows where there are none or one occurs twice.
    """
    if "id" in rows.column_names:
        found = list(rows["id"])
        if len(set(found)) == len(found):
            return found
        logger.warning("the ids of the rows are not all different; their numbers are used instead")
    return [str(number) for number in range(len(rows))]
