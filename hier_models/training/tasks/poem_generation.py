"""Chinese quatrains: the task of HAM's poem model, and its evaluation by the paper's BLEU."""

import copy
import functools
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Seq2SeqTrainingArguments

from ...data import LoadReport
from ...data.poems import (
    LINE_LENGTHS,
    LINES,
    PoemReport,
    character_coverage,
    in_vocabulary,
    load_poems,
    poem_lines,
    tokenize_poems,
)
from ...data.tokenizer_training import train_characters
from ...data.tokenizing import plain_tokenizer
from ...metrics import DocumentScores, PoemBleu, document_keys, poem_form
from ...metrics.document_bleu import POEM_METRICS, document_poem_bleu
from ...models.keywords import PoemKeywords
from ...models.line_length import LENGTH_TOKENS
from ..arguments import Recipe, RecipeError, check_smallest
from ..evaluation import generation_settings, predicting, write_evaluation
from ..metrics import decode
from ..models import Processor, remember_task, set_generation
from ..smoke_rows import ROWS
from .base import OF_DOCUMENTS, OF_SUMMARIES, WritingTask, as_dicts, at_most


logger = logging.getLogger(__name__)

TASK = "poem-generation"
# Rows of the table below BLEU, and the scores that they have.
FORM_ROWS = (
    ("BLEU without keywords", "bleu_without_keywords"),
    ("lines that repeat a character", "repeats"),
    ("  the poets'", "poets_repeats"),
    ("characters of earlier lines", "earlier"),
    ("  the poets'", "poets_earlier"),
    ("fourth lines that rhyme", "rhymes"),
    ("  the poets'", "poets_rhymes"),
    ("lines with regulated tones", "tones"),
    ("  the poets'", "poets_tones"),
)


@dataclass
class PoemGenerationArguments:
    """The section `poem_generation` of a recipe."""

    lines_column: str | None = None  # with the lines of a poem; recognized by its name if not given
    keyword_unit: Literal["words", "characters"] = "words"  # what keywords are: words (of jieba) or characters
    min_keyword_count: int = 3  # words in fewer poems of the training data are no keywords of texts
    # From scratch, without a tokenizer: characters of the training poems to know, special ones aside; all by default.
    num_characters: int | None = None
    held_out_validation: int = 0  # where the data have no validation poems, so many training poems, by chance
    held_out_test: int = 0  # the same for test poems
    split_seed: int = 0  # decides which poems are taken


def poem_table(evaluation: dict[str, Any]) -> str:
    """Lay out the scores as in the paper's Table 2."""
    lengths = [length for length in (5, 7) if f"bleu_{length}" in evaluation]
    rows = [["", *(f"{length}-Char" for length in lengths)]]
    for label, name in (*((f"BLEU{line}", f"bleu{line}") for line in range(1, LINES)), ("BLEU", "bleu")):
        rows.append([label, *(f"{evaluation[f'{name}_{length}']:.3f}" for length in lengths)])
    for label, name in FORM_ROWS:
        cells = [f"{evaluation[key]:.3f}" for length in lengths if (key := f"{name}_{length}") in evaluation]
        rows += [[label, *cells]] if cells else []
    rows.append(["poems", *(str(evaluation[f"poems_{length}"]) for length in lengths)])
    width = max(len(row[0]) for row in rows)
    text = [f"{row[0]:<{width}}" + "".join(f"  {cell:>7}" for cell in row[1:]) for row in rows]
    if evaluation.get("poems_left_out"):
        text.append(f"{evaluation['poems_left_out']} poems have a line without a word in the vocabulary: not scored")
    return "\n".join(text)


def _tokenizer_of(lines: Iterable[str], num_characters: int | None = None) -> PreTrainedTokenizerBase:
    """Characters, and the tokens that say how long a line gets."""
    tokenizer = train_characters(lines, num_characters)
    tokenizer.add_special_tokens({"additional_special_tokens": list(LENGTH_TOKENS.values())})
    return tokenizer


class PoemGenerationTask(WritingTask):
    """Quatrains, each line from its keyword and those before it (HAM, section 5.2; Wang et al., 2016, 3.3 and 4.1)."""

    arguments = PoemGenerationArguments
    metrics = ()
    unused = (*OF_DOCUMENTS, *OF_SUMMARIES)
    document_metrics = tuple(f"{name}_{length}" for length in LINE_LENGTHS for name in POEM_METRICS)
    table = staticmethod(poem_table)
    smoke_batch = 16  # lines, of which a poem has several

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self.set_aside = {part: LoadReport() for part in ("train", "validation", "test")}  # with those held out
        self._tokenized: dict[str, PoemReport] = {}
        self._coverage: dict[str, dict[str, Any]] = {}

    def check(self) -> None:
        super().check()
        options = self.options
        if self.recipe.data.streaming:
            raise RecipeError("data: streaming does not go with poem_generation, which reads all poems for keywords")
        least = {"min_keyword_count": 1, "held_out_validation": 0, "held_out_test": 0, "num_characters": 1}
        check_smallest("poem_generation", options, least)
        for part in ("validation", "test"):
            if getattr(options, f"held_out_{part}") and self.recipe.data.source_of(part)[0] is not None:
                raise RecipeError(f"poem_generation: held_out_{part} does not go with data: {part}; leave one out")

    def fits_tokenizer(self) -> bool:
        return self.recipe.model.model_name_or_path is None and self.recipe.model.tokenizer is None

    def fitted_tokenizer(self) -> PreTrainedTokenizerBase:
        lines = (line for lines in self.rows("train")["lines"] for line in lines)
        return _tokenizer_of(lines, self.options.num_characters)

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        model, processor = super().load_model_and_processor()
        set_generation(model, self.recipe, max_length=max(LINE_LENGTHS) + 2)  # with the decoder's start and the end
        if not hasattr(processor, "poem_keywords"):
            raise RecipeError(f"model: poem_generation is for HAM (model_type: ham), got {model.config.model_type}")
        poems: Any = processor
        if poems.poem_keywords is None:
            unit, least = self.options.keyword_unit, self.options.min_keyword_count
            try:
                poems.poem_keywords = PoemKeywords.fit(self.rows("train")["lines"], unit, min_count=least)
            except ImportError as error:
                raise RecipeError(f"poem_generation: keyword_unit: {error}") from error
            except ValueError as error:  # with the name that the argument has in a recipe
                named = str(error).replace("`min_count`", "min_keyword_count")
                raise RecipeError(f"poem_generation: {named}") from error
        lengths = sorted({len(lines[0]) for lines in self.rows("train")["lines"]})
        remember_task(model.config, TASK, lengths=lengths)
        return model, processor

    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset:
        return self._examples("train", processor)

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | None:
        if self.rows("test") is not None:  # now, so that what is wrong with them shows at once
            self._coverage["test"] = character_coverage(self.rows("test"), processor).as_dict()
        return None if self.rows("validation") is None else self._examples("validation", processor)

    def reports(self) -> dict[str, Any]:
        read = {part: self.set_aside[part] for part, poems in self._rows.items() if poems is not None}
        return {"set_aside": as_dicts(read), "lines": as_dicts(self._tokenized), "coverage": self._coverage}

    def smoke_rows(self) -> list[dict[str, Any]]:
        column = self.options.lines_column or "lines"
        # Three of each, so that characters of held-out poems are known from the others.
        return [{column: list(lines)} for lines in ROWS["poems"] * 3]

    def smoke_tokenizer(self) -> PreTrainedTokenizerBase:
        return _tokenizer_of(line for lines in ROWS["poems"] for line in lines)

    def smoke_changes(self) -> dict[str, Any]:
        held_out = {name: 2 for name in ("held_out_validation", "held_out_test") if getattr(self.options, name)}
        return {"min_keyword_count": 1, "keyword_unit": "characters", **held_out}

    def _examples(self, part: str, processor: Processor) -> Dataset:
        poems = self.rows(part)
        self._coverage[part] = character_coverage(poems, processor).as_dict()
        if missing := self._coverage[part]["unknown"]:
            logger.warning("%s: %d characters are not in the vocabulary (see `coverage`)", part, missing)
        self._tokenized[part] = PoemReport()
        return tokenize_poems(poems, processor, self._tokenized[part])

    def scores(self, part: str, model: PreTrainedModel, processor: Processor, **files: Any) -> dict[str, Any]:
        return run_poem_evaluation(model, processor, self.rows(part), training_args=self.recipe.training, **files)

    def load(self, part: str) -> Any:
        options, most = self.options, getattr(self.recipe.data, f"max_{part}_documents")
        first, both = options.held_out_validation, options.held_out_validation + options.held_out_test
        if not both or (part != "train" and not getattr(options, f"held_out_{part}")):
            return self._read(part)
        poems = self._train_poems
        if both >= len(poems):
            raise RecipeError(f"poem_generation: {both} of {len(poems)} are held out; some must be left to train on")
        order = np.random.default_rng(options.split_seed).permutation(len(poems))
        if part == "train":
            return poems.select(np.sort(order[both:]))
        return at_most(poems.select(order[:first] if part == "validation" else order[first:both]), most)

    @functools.cached_property
    def _train_poems(self) -> Any:
        """Those that others are held out of."""
        return self._read("train")

    def _read(self, part: str) -> Any:
        poems = self.load_by(load_poems, part, lines_column=self.options.lines_column)
        if poems is None and part == "train":
            raise RecipeError("data: train is missing")
        return poems


def run_poem_evaluation(
    model: PreTrainedModel,
    processor: Any,
    dataset: Dataset,
    *,
    batch_size: int = 64,
    training_args: Seq2SeqTrainingArguments | None = None,
    predictions_file: str | os.PathLike[str] | None = None,
    results_file: str | os.PathLike[str] | None = None,
    scores_file: str | os.PathLike[str] | None = None,
    **generate_kwargs: Any,
) -> dict[str, Any]:
    """Write the second, third and fourth line of each poem after the true lines before it, and score them.

    The keyword of a line is that of the true line, as in training. Every line has as many characters as the poem's
    lines have, and none of them twice. Generation follows the model's `generation_config` and `generate_kwargs`.

    Args:
        model: A HAM model.
        processor: Its `HamProcessor`, with `poem_keywords`.
        dataset: Poems with `lines`, from `load_poems`.
        batch_size: Lines written at a time on each device, unless `training_args` says so.
        training_args: Arguments of the Trainer to run under (device, precision, batch size).
        predictions_file: JSON lines to write the lines to: `lines` (the poet's), `keywords`, `written`.
        results_file: JSON file to write what is returned to.
        scores_file: JSON file to write what each poem adds to BLEU to, as `DocumentScores`.
        **generate_kwargs: Passed to `generate`, such as `num_beams=4`.

    Returns:
        What `PoemBleu` and `poem_form` give, what this gives of the poets' lines (poets_…), `poems` (scored),
        `poems_left_out` (with a line that has no keyword in the vocabulary), and `generation` (the settings generated
        with).

    Raises:
        ValueError: If the processor has no keywords, or no poem can be scored.

    Source: HAM, section 5.2 (BLEU) and Table 2.
    """
    if getattr(processor, "poem_keywords", None) is None:
        raise ValueError(f"processor: {type(processor).__name__} has no poem_keywords; fit them with PoemKeywords.fit")
    examples: dict[int, list[dict[str, Any]]] = {}
    for example in poem_lines(dataset, processor.poem_keywords, in_vocabulary(processor)):
        examples.setdefault(example["poem"], []).append(example)
    usable = {poem: rows[1:] for poem, rows in examples.items() if all(row["keyword"] is not None for row in rows[1:])}
    if not usable:
        raise ValueError("dataset: no poem can be scored: the vocabulary has no keyword for their lines")
    written: dict[int, list[str]] = {poem: [] for poem in usable}
    # The length of the lines says how long they get.
    with predicting(model, processor, training_args, batch_size, generation_max_length=None) as trainer:
        generation_config = copy.deepcopy(model.generation_config)
        for length in sorted({len(rows[0]["line"]) for rows in usable.values()}):
            rows = [row for own in usable.values() for row in own if len(row["line"]) == length]
            for row, line in zip(rows, _write(trainer, rows, length, generate_kwargs), strict=True):
                written[row["poem"]].append(line)
            model.generation_config = copy.deepcopy(generation_config)  # the Trainer writes every default into it
    metric = PoemBleu()
    lines, gold = list(written.values()), [list(dataset[poem]["lines"]) for poem in usable]
    keywords = [[row["keyword"] for row in rows] for rows in usable.values()]
    sounds = getattr(processor.poem_keywords, "sounds", None)
    of_poets = poem_form([poem[1:] for poem in gold], gold, sounds)
    results = {
        **metric.compute(predictions=lines, references=gold, keywords=keywords),
        **metric.settings,
        **poem_form(lines, gold, sounds),
        **{f"poets_{name}": share for name, share in of_poets.items()},
        "poems": len(usable),
        "poems_left_out": len(examples) - len(usable),
        "generation": {**generation_settings(generation_config), **generate_kwargs},
    }

    def document_scores() -> DocumentScores:
        return DocumentScores(document_keys(gold), document_poem_bleu(lines, gold))

    rows_written = [
        {"lines": poem, "keywords": words, "written": own}
        for poem, words, own in zip(gold, keywords, lines, strict=True)
    ]
    write_evaluation(trainer, results, rows_written, document_scores, (results_file, predictions_file, scores_file))
    return results


def _write(trainer: Any, rows: Sequence[dict[str, Any]], length: int, options: dict[str, Any]) -> list[str]:
    """Write a line of each example."""
    model, processor = trainer.model, trainer.processing_class
    keywords, lines = [row["keyword"] for row in rows], [row["before"] for row in rows]
    encoded = processor(keywords=keywords, lines=lines, length=length)
    inputs = Dataset.from_dict({name: encoded[name] for name in ("input_ids", "attention_mask", "keyword_mask")})
    # Lines are written to their length whatever the model's settings say of it.
    config = model.generation_config
    config.min_length = config.min_new_tokens = config.max_new_tokens = None
    config.max_length = length + 2  # with the decoder's start and the end; the Trainer pads to it
    options = {"metric_key_prefix": "test", "logits_processor": processor.line_rules(length), **options}
    generated = trainer.predict(inputs, **options).predictions
    return ["".join(line.split()) for line in decode(generated, plain_tokenizer(processor))]
