"""Chinese quatrains: the task of HAM's poem model, and its evaluation by the paper's BLEU."""

import copy
import dataclasses
import json
import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from datasets import Dataset, IterableDataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
)

from ..data import HierDataCollator, LoadReport
from ..data.poems import (
    LINE_LENGTHS,
    LINES,
    PoemReport,
    character_coverage,
    in_vocabulary,
    load_poems,
    poem_lines,
    tokenize_poems,
)
from ..data.tokenizer_training import train_characters
from ..data.tokenizing import plain_tokenizer
from ..metrics import DocumentScores, PoemBleu, document_keys
from ..metrics.document_bleu import POEM_METRICS, document_poem_bleu
from ..models.keywords_ham import PoemKeywords
from .arguments import Recipe, RecipeError, for_prediction, reading_data
from .metrics import decode
from .models import Processor, set_generation
from .own_tokenizer import own_tokenizer
from .results import write_json
from .summarization import generation_settings
from .tasks import PREDICTIONS_FILE, SCORES_FILE, Task


logger = logging.getLogger(__name__)

TASK = "poem-generation"


@dataclass
class PoemGenerationArguments:
    """The section `poem_generation` of a recipe.

    Args:
        lines_column: Column with the lines of a poem; recognized by its name if not given.
        keyword_unit: What keywords are: words (of jieba) or characters.
        min_keyword_count: Words in fewer poems of the training data are no keywords of texts.
        num_characters: From scratch and without a tokenizer, the size of the vocabulary that is fitted to the training
            poems, without special tokens; all their characters if not given.
        held_out_validation: Where the data have no validation poems, take so many of the training poems, by chance.
        held_out_test: The same for test poems.
        split_seed: Decides which poems are taken.
    """

    lines_column: str | None = field(default=None, metadata={"help": "Column with the lines."})
    keyword_unit: Literal["words", "characters"] = field(default="words", metadata={"help": "What keywords are."})
    min_keyword_count: int = field(default=3, metadata={"help": "Poems that a keyword is in, at least."})
    num_characters: int | None = field(default=None, metadata={"help": "Characters of the vocabulary; all."})
    held_out_validation: int = field(default=0, metadata={"help": "Training poems to validate on."})
    held_out_test: int = field(default=0, metadata={"help": "Training poems to test on."})
    split_seed: int = field(default=0, metadata={"help": "Decides which poems are held out."})


class PoemGenerationTask(Task):
    """Quatrains line by line, each line from its keyword and the lines before it, scored with the paper's BLEU.

    Args:
        recipe: The whole recipe.
        output_dir: Folder of the run.

    Source: HAM, section 5.2; Wang et al. (2016), sections 3.3 and 4.1.
    """

    arguments = PoemGenerationArguments
    document_metrics = tuple(f"{name}_{length}" for length in LINE_LENGTHS for name in POEM_METRICS)

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._set_aside = {part: LoadReport() for part in ("train", "validation", "test")}
        self._tokenized: dict[str, PoemReport] = {}
        self._coverage: dict[str, dict[str, Any]] = {}
        self._poems: dict[str, Any] = {}

    def check(self) -> None:  # noqa: D102  # as in Task
        data, options = self.recipe.data, self.options
        for name in ("importance", "importance_tagger", "fillers", "digits", "key_phrases", "source_kind"):
            if getattr(data, name) is not None:
                raise RecipeError(f"data: {name} means nothing to poem_generation (run: task); leave it out")
        if data.streaming:
            raise RecipeError("data: streaming does not go with poem_generation, which reads all poems for keywords")
        if options.keyword_unit not in ("words", "characters"):
            raise RecipeError(
                f"poem_generation: keyword_unit must be words or characters, got {options.keyword_unit!r}"
            )
        for name, least in (("min_keyword_count", 1), ("held_out_validation", 0), ("held_out_test", 0)):
            if getattr(options, name) < least:
                raise RecipeError(f"poem_generation: {name} must be at least {least}, got {getattr(options, name)}")
        if options.num_characters is not None and options.num_characters < 1:
            raise RecipeError(f"poem_generation: num_characters must be at least 1, got {options.num_characters}")
        for part in ("validation", "test"):
            if getattr(options, f"held_out_{part}") and self._named(part):
                raise RecipeError(f"poem_generation: held_out_{part} does not go with data: {part}; leave one out")

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:  # noqa: D102
        arguments = self.recipe.model
        if arguments.model_name_or_path is None and arguments.tokenizer is None:
            folder = own_tokenizer(self.recipe, self.output_dir, self._fitted_tokenizer)
            self.recipe.model = dataclasses.replace(arguments, tokenizer=str(folder))
        model, processor = super().load_model_and_processor()
        self.recipe.model = arguments
        set_generation(model, self.recipe)
        generation = model.generation_config
        if generation.max_length is None and generation.max_new_tokens is None:
            generation.max_length = max(LINE_LENGTHS) + 2  # with the decoder's start and the end
        if not hasattr(processor, "poem_keywords"):
            raise RecipeError(f"model: poem_generation is for HAM (model_type: ham), got {model.config.model_type}")
        poems: Any = processor
        if poems.poem_keywords is None:
            options, train = self.options, self._load("train")["lines"]
            try:
                poems.poem_keywords = PoemKeywords.fit(
                    train, options.keyword_unit, min_count=options.min_keyword_count
                )
            except ImportError as error:
                raise RecipeError(f"poem_generation: keyword_unit: {error}") from error
            except ValueError as error:
                # The name that the argument has in a recipe.
                raise RecipeError(
                    f"poem_generation: {str(error).replace('`min_count`', 'min_keyword_count')}"
                ) from error
        # `export` and the pipeline see what the model is for.
        params = getattr(model.config, "task_specific_params", None) or {}
        lengths = sorted({len(lines[0]) for lines in self._load("train")["lines"]})
        model.config.task_specific_params = {**params, TASK: {"lengths": lengths}}
        return model, processor

    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset:  # noqa: D102
        return self._examples("train", processor)

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | None:  # noqa: D102
        if self._load("test") is not None:  # now, so that what is wrong with them shows at once
            self._coverage["test"] = character_coverage(self._load("test"), processor).as_dict()
        return None if self._load("validation") is None else self._examples("validation", processor)

    def collator(self, model: PreTrainedModel, processor: Processor) -> HierDataCollator:  # noqa: D102
        return HierDataCollator(processor, model=model)

    def evaluate(  # noqa: D102
        self, trainer: Trainer, model: PreTrainedModel, processor: Processor
    ) -> dict[str, Any] | None:
        if not self.recipe.training.predict_with_generate:
            return None
        return self._scores("validation", model, processor, "predictions.jsonl")

    def test(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:  # noqa: D102
        return self._scores("test", model, processor, PREDICTIONS_FILE, SCORES_FILE)

    def reports(self) -> dict[str, Any]:  # noqa: D102
        return {
            "set_aside": {
                part: report.as_dict() for part, report in self._set_aside.items() if self._poems.get(part) is not None
            },
            "lines": {part: report.as_dict() for part, report in self._tokenized.items()},
            "coverage": self._coverage,
        }

    @staticmethod
    def table(evaluation: dict[str, Any]) -> str:  # noqa: D102
        return poem_table(evaluation)

    def smoke_rows(self) -> list[dict[str, Any]]:  # noqa: D102
        column = self.options.lines_column or "lines"
        # Three of each, so that characters of held-out poems are known from the others.
        return [{column: list(lines)} for lines in _SMOKE * 3]

    def smoke_tokenizer(self) -> PreTrainedTokenizerBase:  # noqa: D102
        return train_characters(line for lines in _SMOKE for line in lines)

    def smoke_changes(self) -> dict[str, Any]:  # noqa: D102
        changes: dict[str, Any] = {"min_keyword_count": 1, "keyword_unit": "characters"}
        for name in ("held_out_validation", "held_out_test"):
            if getattr(self.options, name):
                changes[name] = 2
        return changes

    def _fitted_tokenizer(self) -> PreTrainedTokenizerBase:
        return train_characters(
            (line for lines in self._load("train")["lines"] for line in lines), self.options.num_characters
        )

    def _examples(self, part: str, processor: Processor) -> Dataset:
        poems = self._load(part)
        self._coverage[part] = character_coverage(poems, processor).as_dict()
        missing = self._coverage[part]["unknown"]
        if missing:
            logger.warning("%s: %d characters are not in the vocabulary (see `coverage`)", part, missing)
        self._tokenized[part] = PoemReport()
        return tokenize_poems(poems, processor, self._tokenized[part])

    def _scores(
        self, part: str, model: PreTrainedModel, processor: Processor, file: str, scores: str | None = None
    ) -> dict[str, Any] | None:
        poems = self._load(part)
        if poems is None:
            return None
        return run_poem_evaluation(
            model,
            processor,
            poems,
            training_args=self.recipe.training,
            predictions_file=self.output_dir / file,
            scores_file=None if scores is None else self.output_dir / scores,
        )

    def _named(self, part: str) -> bool:
        data = self.recipe.data
        return getattr(data, part) is not None or getattr(data, f"{part}_split") is not None

    def _load(self, part: str) -> Any:
        """The poems of a part, read once; None if there are none."""
        if part not in self._poems:
            self._read(part)
        return self._poems[part]

    def _read(self, part: str) -> None:
        options = self.options
        if part == "train" or not getattr(options, f"held_out_{part}"):
            self._poems[part] = self._most(part, self._loaded(part))
        held_out = options.held_out_validation + options.held_out_test
        if part != "train" or not held_out:
            if part not in self._poems:
                self._load("train")
            return
        poems = self._poems["train"]
        if held_out >= len(poems):
            raise RecipeError(
                f"poem_generation: held_out_validation and held_out_test are {held_out} of {len(poems)} poems; some "
                "must be left to train on"
            )
        order = np.random.default_rng(options.split_seed).permutation(len(poems))
        first, second = options.held_out_validation, held_out
        if first:
            self._poems["validation"] = self._most("validation", poems.select(order[:first]))
        if second > first:
            self._poems["test"] = self._most("test", poems.select(order[first:second]))
        self._poems["train"] = poems.select(np.sort(order[second:]))

    def _most(self, part: str, poems: Any) -> Any:
        most = getattr(self.recipe.data, f"max_{part}_documents")
        return poems if poems is None or most is None else poems.take(min(most, len(poems)))

    def _loaded(self, part: str) -> Any:
        data = self.recipe.data
        source, split = data.source_of(part)
        if source is None:
            if part == "train":
                raise RecipeError("data: train is missing")
            return None
        with reading_data(f"data: {part}"):
            return load_poems(
                **data.reading(source, split),
                lines_column=self.options.lines_column,
                set_aside_file=self.set_aside_file(part),
                report=self._set_aside[part],
            )


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
    lines have. Generation follows the model's `generation_config` and `generate_kwargs`.

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
        What `PoemBleu` gives, `poems` (scored), `poems_left_out` (with a line that has no keyword in the vocabulary),
        and `generation` (the settings generated with).

    Raises:
        ValueError: If the processor has no keywords, or no poem can be scored.

    Source: HAM, section 5.2 (BLEU) and Table 2.
    """
    if getattr(processor, "poem_keywords", None) is None:
        raise ValueError(f"processor: {type(processor).__name__} has no poem_keywords; fit them with PoemKeywords.fit")
    tokenizer = plain_tokenizer(processor)
    examples: dict[int, list[dict[str, Any]]] = {}
    for example in poem_lines(dataset, processor.poem_keywords, in_vocabulary(processor)):
        examples.setdefault(example["poem"], []).append(example)
    usable = {poem: rows[1:] for poem, rows in examples.items() if all(row["keyword"] is not None for row in rows[1:])}
    if not usable:
        raise ValueError("dataset: no poem can be scored: the vocabulary has no keyword for their lines")
    written: dict[int, list[str]] = {poem: [] for poem in usable}
    with tempfile.TemporaryDirectory() as scratch:
        arguments = training_args or Seq2SeqTrainingArguments(
            output_dir=scratch, per_device_eval_batch_size=batch_size, report_to="none"
        )
        arguments = for_prediction(arguments, predict_with_generate=True)
        arguments.generation_max_length = None  # the length of the lines says how long they get
        trainer = Seq2SeqTrainer(
            model=model,
            args=arguments,
            processing_class=processor,
            data_collator=HierDataCollator(processor, model=model),
        )
        generation_config = copy.deepcopy(model.generation_config)
        for length in sorted({len(rows[0]["line"]) for rows in usable.values()}):
            rows = [row for own in usable.values() for row in own if len(row["line"]) == length]
            lines = _write(trainer, model, processor, tokenizer, rows, length, generate_kwargs)
            for row, line in zip(rows, lines, strict=True):
                written[row["poem"]].append(line)
            model.generation_config = copy.deepcopy(generation_config)  # the Trainer writes every default into it
    poems = {poem: list(dataset[poem]["lines"]) for poem in usable}
    metric = PoemBleu()
    results = {
        **metric.compute(predictions=list(written.values()), references=list(poems.values())),
        **metric.settings,
        "poems": len(usable),
        "poems_left_out": len(examples) - len(usable),
        "generation": {**generation_settings(generation_config), **generate_kwargs},
    }
    if trainer.is_world_process_zero():
        if predictions_file is not None:
            records = [
                {"lines": poems[poem], "keywords": [row["keyword"] for row in rows], "written": written[poem]}
                for poem, rows in usable.items()
            ]
            _write_records(Path(predictions_file), records)
        if scores_file is not None:
            found = document_poem_bleu(list(written.values()), list(poems.values()))
            DocumentScores(document_keys(list(poems.values())), found).save(Path(scores_file))
        if results_file is not None:
            write_json(Path(results_file), results)
    return results


def _write(
    trainer: Seq2SeqTrainer,
    model: PreTrainedModel,
    processor: Any,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[dict[str, Any]],
    length: int,
    generate_kwargs: dict[str, Any],
) -> list[str]:
    """Write a line of each example."""
    encoded = processor(keywords=[row["keyword"] for row in rows], lines=[row["before"] for row in rows])
    inputs = Dataset.from_dict({name: encoded[name] for name in ("input_ids", "attention_mask", "keyword_mask")})
    # Lines are written to their length whatever the model's settings say of it.
    config = model.generation_config
    config.min_length = config.min_new_tokens = config.max_new_tokens = None
    config.max_length = length + 2  # with the decoder's start and the end; the Trainer pads to it
    generated = trainer.predict(
        inputs,  # type: ignore[arg-type]  # a Dataset of `datasets`, which the Trainer takes
        metric_key_prefix="test",
        logits_processor=[processor.line_length(length)],
        **generate_kwargs,
    ).predictions
    return ["".join(line.split()) for line in decode(generated, tokenizer)]


def poem_table(results: dict[str, Any]) -> str:
    """Lay out the scores as in the paper's Table 2.

    Args:
        results: What `run_poem_evaluation` returns.

    Returns:
        One line for each score, a column for each length of lines.
    """
    lengths = [length for length in (5, 7) if f"bleu_{length}" in results]
    rows = [["", *(f"{length}-Char" for length in lengths)]]
    for label, name in (*((f"BLEU{line}", f"bleu{line}") for line in range(1, LINES)), ("BLEU", "bleu")):
        rows.append([label, *(f"{results[f'{name}_{length}']:.3f}" for length in lengths)])
    rows.append(["poems", *(str(results[f"poems_{length}"]) for length in lengths)])
    width = max(len(row[0]) for row in rows)
    text = [f"{row[0]:<{width}}" + "".join(f"  {cell:>7}" for cell in row[1:]) for row in rows]
    if results.get("poems_left_out"):
        text.append(f"{results['poems_left_out']} poems have a line without a word in the vocabulary: not scored")
    return "\n".join(text)


def _write_records(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        for record in records:
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")


# For --smoke: written for this, four of each length.
_SMOKE = (
    ("小院春风起", "花开一树红", "客来同饮酒", "月在画楼东"),
    ("雨过青山静", "云归古寺深", "老僧闲煮茗", "不问世间心"),
    ("夜泊江村外", "灯明水上船", "渔人歌一曲", "惊起白鸥眠"),
    ("秋日登高望", "长河落日圆", "故人千里外", "书信又经年"),
    ("小院春风昨夜来", "满庭花树一时开", "老翁扶杖花前立", "笑看儿童折几枚"),
    ("雨过青山分外明", "小桥流水伴人行", "不知何处吹长笛", "惊起林间鸟数声"),
    ("夜泊江村月满船", "渔灯几点水连天", "故人别后无消息", "听雨听风又一年"),
    ("秋日登高望远山", "白云来去自清闲", "长河落日归帆少", "一雁南飞过汉关"),
)
