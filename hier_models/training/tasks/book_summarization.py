"""Summarization of books: trained on reference summaries of their chapters, scored on those that a model writes."""

import dataclasses
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from datasets import Dataset, IterableDataset
from tqdm.auto import tqdm
from transformers import GenerationConfig, PreTrainedModel, pipeline

from ...books.summarizing import SEPARATOR, weights_digest
from ...checkpoints import resolve_checkpoint
from ...journal import Journal, digest
from ..arguments import Recipe, RecipeError, mistakes_of
from ..models import Processor
from ..smoke_rows import documents_rows
from .summarization import SummarizationTask


logger = logging.getLogger(__name__)


@dataclass
class BookArguments:
    """Options of summarizing books."""

    # With the chapters of a book, a list of texts, in the validation and test data. In the training data, `data:
    # text_column` names the column with the reference summaries of its chapters.
    chapters_column: str = "chapters"


class BookSummarizationTask(SummarizationTask):
    """Trained on joined summaries of chapters, which the first model writes at test (Top-Down Transformer, 3.4.2)."""

    arguments = BookArguments

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._chapter_model: tuple[PreTrainedModel, Processor] | None = None
        self._chapters: dict[str, dict[str, int]] = {}

    def check(self) -> None:
        super().check()
        data = self.recipe.data
        if self.recipe.model.model_name_or_path is None:
            raise RecipeError("model: model_name_or_path is not given; books begin with the chapters' model")
        if data.text_column is None:
            raise RecipeError("data: text_column is not given; it has the reference summaries of the chapters")
        if (kind := data.source_kind) is not None:
            raise RecipeError(f"data: source_kind is {kind}, but books are lists of chapters; leave it out")

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset | None:
        self._chapter_model = model, processor
        return super().validation_dataset(model, processor)

    def reports(self) -> dict[str, Any]:
        return {**super().reports(), "chapters": self._chapters}

    def load(self, part: str, **changes: Any) -> Any:
        column = self.recipe.data.text_column if part == "train" else self.options.chapters_column
        if (books := super().load(part, text_column=column, source_kind="documents")) is None:
            return None
        if part != "train":
            summaries = self._summaries_of_chapters(part, books["documents"])
            kept = books.remove_columns("documents")
            return kept.add_column("text", [SEPARATOR.join(book) for book in summaries])
        return books.map(_joined, batched=True, remove_columns=["documents"])

    def _summaries_of_chapters(self, part: str, books: list[list[str]]) -> list[list[str]]:
        model, processor = cast(tuple[PreTrainedModel, Processor], self._chapter_model)
        name = cast(str, self.recipe.model.model_name_or_path)
        before = model.generation_config
        try:
            own = GenerationConfig.from_pretrained(resolve_checkpoint(name))
        except OSError:
            own = GenerationConfig.from_model_config(model.config)
        making = {
            "model": name,
            "weights": weights_digest(model),
            "max_source_length": self.recipe.data.max_source_length,
            "generation": json.loads(own.to_json_string(ignore_metadata=True)),
        }
        self.output_dir.mkdir(parents=True, exist_ok=True)
        journal = Journal(self.output_dir / f"chapter_summaries_{part}.jsonl", "summary", making)
        chapters = {f"{i}.{j}": text for i, book in enumerate(books) for j, text in enumerate(book)}
        inputs = {identifier: digest(text) for identifier, text in chapters.items()}
        with mistakes_of("training: output_dir"):
            done = journal.read(inputs)
        missing = {identifier: text for identifier, text in chapters.items() if identifier not in done}
        if missing:
            logger.warning("%s: summarizing %d chapters of %d books", part, len(missing), len(books))
            model.generation_config = own
            self._summarize(missing, journal, model.eval(), processor)
            model.generation_config = before
            done = journal.read(inputs)
        cut = [record["num_truncated_tokens"] for record in done.values()]
        self._chapters[part] = {
            "chapters": len(chapters),
            "truncated_chapters": sum(number > 0 for number in cut),
            "truncated_tokens": sum(cut),
        }
        return [[done[f"{i}.{j}"]["summary"] for j in range(len(book))] for i, book in enumerate(books)]

    def _summarize(self, chapters: dict[str, str], journal: Journal, model: PreTrainedModel, processor: Any) -> None:
        training = self.recipe.training
        make: Any = pipeline
        summarizer = make("summarization", model=model, processor=processor, device=training.device)
        results = summarizer(
            (text for text in chapters.values()),
            batch_size=training.per_device_eval_batch_size,
            max_source_length=self.recipe.data.max_source_length,
            truncation=True,
            return_truncation=True,
        )
        with journal.path.open("a", encoding="utf-8") as stream:
            shown = tqdm(results, "chapters", len(chapters))
            for (identifier, text), (result, *_) in zip(chapters.items(), shown, strict=True):
                summary = result.pop("summary_text").strip()
                stream.write(journal.line(identifier, summary, **result, made_of=digest(text)) + "\n")
                stream.flush()

    # For --smoke

    def smoke_rows(self) -> list[dict[str, Any]]:
        data = self.recipe.data
        plain = dataclasses.replace(data, source_kind=None, text_column="text", summary_column="summary")
        rows = documents_rows(plain)
        return [
            {
                str(data.text_column): [row["summary"], other["summary"]],
                self.options.chapters_column: [row["text"], other["text"]],
                data.summary_column or "summary": row["summary"],
            }
            for row, other in zip(rows, [*rows[1:], rows[0]], strict=True)
        ]


def _joined(books: dict[str, list[Any]]) -> dict[str, list[str]]:
    return {"text": [SEPARATOR.join(parts) for parts in books["documents"]]}
