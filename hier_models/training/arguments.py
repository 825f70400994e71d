"""The sections of a recipe: everything a training run needs to know."""

import dataclasses
import difflib
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_type_hints

from transformers import Seq2SeqTrainingArguments

from ..checkpoints import resolve_checkpoint


T = TypeVar("T")

# New modules that begin as identity learn little until their output, zero, opens: at a warm start's 3e-5 that is late.
NEW_MODULES_RATE = 10.0


class RecipeError(ValueError):
    """A recipe, or an option on the command line, that cannot be used."""


class PrecisionError(RecipeError):
    """A precision that this machine cannot compute in."""


@contextmanager
def named_in_errors(setting: str) -> Iterator[None]:
    """Name the setting of a recipe whose data are not there."""
    try:
        yield
    except FileNotFoundError as error:
        message = str(error)
        what = setting if message.startswith("source: ") else setting.partition(":")[0]
        raise RecipeError(f"{what}: {message.removeprefix('source: ')}") from error


@contextmanager
def mistakes_of(setting: str, *others: type[Exception]) -> Iterator[None]:
    """Say which setting of a recipe has the value that is refused, with a ValueError or another kind of error."""
    kinds: tuple[type[Exception], ...] = (ValueError, *others)
    try:
        yield
    except RecipeError:
        raise
    except kinds as error:
        raise RecipeError(f"{setting}: {' '.join(str(error).split())}") from error


def nearest(name: str, names: Iterable[str]) -> str:
    """Help with a misspelled name."""
    known = sorted(names)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else f"; allowed are {', '.join(known)}"


def _with_help(section: type[T]) -> type[T]:
    """Give the fields of a section what its docstring says of them, for `hier-models train --flags`."""
    _, _, listed = (section.__doc__ or "").partition("Args:\n")
    for name, text in re.findall(r"^ {8}(\w+): (.*(?:\n {9,}.*)*)", listed, re.MULTILINE):
        # argparse fills in names after percent signs.
        help_of_field = {"help": " ".join(text.split()).replace("%", "%%")}
        section.__dataclass_fields__[name].metadata = MappingProxyType(help_of_field)  # type: ignore[attr-defined]
    return section


# The settings of `model` that name a checkpoint.
CHECKPOINTS = ("model_name_or_path", "from_bart", "from_roberta", "from_encoder")


@_with_help
@dataclass
class ModelArguments:
    """Where the model comes from: a checkpoint, the weights of BART or an encoder, or nothing (random weights).

    Args:
        model_name_or_path: A checkpoint to go on from, of any encoder-decoder model (plain BART for a baseline), or
            `mini`.
        from_bart: A BART checkpoint to warm-start a model of `model_type` from (hat_bart, highlight_transformer,
            top_down_transformer; and led, to compare with).
        from_roberta: A RoBERTa checkpoint to warm-start the encoder-only HAT from.
        from_encoder: A checkpoint of BERT, RoBERTa or XLM-R to make a BART of (`bart_from_encoder`), which a model of
            `model_type` is warm-started from; or which is the model, with `model_type: bart`. Its decoder has
            `decoder_layers` of `config_overrides`, by default as many as the encoder.
        model_type: The family to warm-start from BART, or to train from scratch where none of the four above is
            given; also what `--smoke` makes in the place of a checkpoint that is not here.
        plain: The same model without the hierarchy and without segment embeddings: the plain Transformer that the
            papers compare with, on the same input (for the Top-Down Transformer, local attention alone).
        tokenizer: Folder or hub id of the tokenizer; by default that of the checkpoint.
        tokenizer_words: From scratch and without a tokenizer, fit one of the so many commonest words of the training
            documents and their summaries; it is kept in the output folder. For summarization.
        word_vectors: From scratch, a file of word2vec or GloVe that the embeddings begin with; see `set_word_vectors`.
        language: Language of the documents, as the processor takes it; by default the checkpoint's, or English.
        max_position_embeddings: Longest source in tokens; `from_bart`, `from_encoder`, and checkpoints of BART and
            of the families that begin with it, grow to it.
        extra_positions: What added positions begin with: copies of those that there are, or random values.
        new_modules: How modules that the checkpoint lacks begin: as identity, so that the model is as good as the
            checkpoint at first; or random, as in the papers. By default as its config says: identity, if nothing.
        attn_implementation: eager, sdpa, flash_attention_2, … as in Transformers.
        config_overrides: JSON object (in YAML a mapping) of configuration values, such as dropout. With
            `encoder_ffn_dim` and `decoder_ffn_dim` above the checkpoint's, its blocks are widened (`twins.py`).
        processor_overrides: The same for the processor, such as rows of a Coarse-to-Fine LSTM's.
    """

    model_name_or_path: str | None = None
    from_bart: str | None = None
    from_roberta: str | None = None
    from_encoder: str | None = None
    model_type: str = "hat_bart"
    plain: bool = False
    tokenizer: str | None = None
    tokenizer_words: int | None = None
    word_vectors: str | None = None
    language: str | None = None
    max_position_embeddings: int | None = None
    extra_positions: Literal["tile", "random"] = "tile"
    new_modules: Literal["identity", "random"] | None = None
    attn_implementation: str | None = None
    config_overrides: str | None = None
    processor_overrides: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in CHECKPOINTS if getattr(self, name)]
        if len(given) > 1:
            raise RecipeError(f"{' and '.join(given)} are both given; the model comes from one of them")
        if self.from_roberta and self.max_position_embeddings:
            raise RecipeError("max_position_embeddings does not go with from_roberta; RoBERTa's positions are kept")
        if self.word_vectors is not None and given:
            raise RecipeError(f"{given[0]} and word_vectors are both given; word vectors are for a model from scratch")
        if self.tokenizer_words is not None:
            if self.tokenizer_words < 1:
                raise RecipeError(f"tokenizer_words must be at least 1, got {self.tokenizer_words}")
            if given or self.tokenizer:
                raise RecipeError(f"{(given or ['tokenizer'])[0]} and tokenizer_words are both given; leave one out")
        self.overrides()
        self.processor_settings()

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint that weights begin with, on the Hub or in a folder; None from scratch."""
        return next((getattr(self, name) for name in CHECKPOINTS if getattr(self, name)), None)

    def resolved(self) -> "ModelArguments":
        """The same with the folder of a checkpoint that is given by its name alone, such as mini."""
        names = {name: getattr(self, name) for name in (*CHECKPOINTS, "tokenizer")}
        folders: dict[str, Any] = {name: resolve_checkpoint(value) for name, value in names.items() if value}
        return dataclasses.replace(self, **folders)

    def overrides(self) -> dict[str, Any]:
        """The configuration values of `config_overrides`."""
        return _json_object("config_overrides", self.config_overrides)

    def processor_settings(self) -> dict[str, Any]:
        """The settings of `processor_overrides`."""
        return _json_object("processor_overrides", self.processor_overrides)


def _json_object(name: str, text: str | None) -> dict[str, Any]:
    try:
        values = json.loads(text or "{}")
    except ValueError as error:
        raise RecipeError(f"{name} is no JSON ({error}): {text}") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{name} must be a JSON object, got {text}")
    return values


def check_smallest(section: str, values: Any, smallest: Mapping[str, int], hint: str = "") -> None:
    """Refuse numbers that are too small to mean anything."""
    for name, least in smallest.items():
        value = getattr(values, name)
        if value is not None and value < least:
            raise RecipeError(f"{section}: {name} must be at least {least}, got {value}{hint}")


@_with_help
@dataclass
class DataArguments:
    """What to train and evaluate on; see `load_documents` for the kinds of sources.

    Args:
        train: Source of the training documents.
        train_split: Its split.
        validation: Source of the validation documents; that of `train` if only `validation_split` is given.
        validation_split: Its split.
        test: Source of documents to score the trained model on, as the papers' tables do; that of `train` if only
            `test_split` is given. For summarization.
        test_split: Its split.
        config_name: Configuration of a dataset on the Hub.
        revision: Branch, tag or commit of a dataset on the Hub.
        text_column: Column with the source; recognised by its name if not given.
        summary_column: Column with the summary; recognised by its name if not given.
        source_kind: What the source is read as: text, sentences, turns (a dialogue; a string is then read as `role:
            words` lines) or documents (a string is then divided where Multi-News has its separator, |||||); told by
            the column's name and value if not given.
        fillers: Take the filler words of a speech transcript out of the source: "english", or a file with one a line.
        phrases_column: Column with the user's own phrases of each document, for a Highlight-Transformer.
        query_column: Column with what each summary is to answer. Each document then begins with its query, and what
            is trained is remembered as a model that reads queries: its pipeline puts `query` there. As in that, what
            is read of long documents is chosen by the query with `long_documents: condense`.
        several_references: Each string of a list, or each line, in the column of the summary is a summary of its own:
            the first is trained on, and scores are those of the best.
        digits: What every digit of sources and summaries, phrases and queries becomes, such as "#".
        max_source_length: Tokens of a source, markers included; by default, for summarization, as many as mini or a
            checkpoint in a folder was trained to read, if its config says so; else 1,024.
        long_documents: Of a longer source, "cut" reads the beginning, and "condense" a third of that, and what says
            the most of the document or is most like its query, as the summarization pipeline does. By default as the
            checkpoint was trained; that is cut, if it does not say.
        max_target_length: Tokens of a summary.
        max_train_documents: Take only so many; of `also_train`, of each source.
        max_validation_documents: Take only so many.
        max_test_documents: Take only so many.
        streaming: Read the training documents while training, in bounded memory.
        shuffle_buffer: Documents held in memory to shuffle a streamed dataset.
        importance: "oracle" has a Top-Down Transformer pool by importance, with the weights that the summaries give
            its tokens: 1 for words whose lemma is in the summary, 0 for all others.
        importance_tagger: A checkpoint that gives the weights of the validation and test documents instead, as there
            are no summaries where the model is used; without it they are the oracle's too.
        key_phrases: Where a Highlight-Transformer's key phrases come from: "fit" counts the phrases of the training
            documents, of what the model reads of them; "textrank" and "title" need none; else a file or a checkpoint
            that has them (key_phrases.json), as `hier-models fit-phrases` makes.
            By default the processor's own. Documents with a `phrases_column` keep their phrases.
        stopwords: With "fit", the words that are in no key phrase: en, de, or a file; by default those of the
            processor's language.
        bad_lines: Stop at a line that cannot be used, or set it aside in a file of the output folder.
        num_proc: Processes that tokenize.
    """

    train: str | None = None
    train_split: str | None = None
    validation: str | None = None
    validation_split: str | None = None
    test: str | None = None
    test_split: str | None = None
    config_name: str | None = None
    revision: str | None = None
    text_column: str | None = None
    summary_column: str | None = None
    source_kind: Literal["text", "sentences", "turns", "documents"] | None = None
    fillers: str | None = None
    phrases_column: str | None = None
    query_column: str | None = None
    several_references: bool = False
    digits: str | None = None
    max_source_length: int = 1024
    long_documents: Literal["cut", "condense"] | None = None
    max_target_length: int = 256
    max_train_documents: int | None = None
    max_validation_documents: int | None = None
    max_test_documents: int | None = None
    streaming: bool = False
    shuffle_buffer: int = 1000
    importance: Literal["oracle"] | None = None
    importance_tagger: str | None = None
    key_phrases: str | None = None
    stopwords: str | None = None
    bad_lines: Literal["stop", "set_aside"] = "stop"
    num_proc: int | None = None

    def __post_init__(self) -> None:
        parts = [f"max_{part}_documents" for part in ("train", "validation", "test")]
        check_smallest("data", self, dict.fromkeys(parts, 1), "; leave it out to take all")
        others = ("max_source_length", "max_target_length", "shuffle_buffer", "num_proc")
        check_smallest("data", self, dict.fromkeys(others, 1))

    def source_of(self, part: str) -> tuple[str | None, str | None]:
        """Find where a part comes from."""
        source, split = getattr(self, part), getattr(self, f"{part}_split")
        return (self.train if source is None and split is not None else source), split

    def loading(self, source: str, split: str | None) -> dict[str, Any]:
        """Say how a source is read."""
        options = {"split": split, "bad_lines": self.bad_lines}
        if (path := Path(source).expanduser()).exists():
            return {"source": path, **options}
        return {"source": source, "config_name": self.config_name, "revision": self.revision, **options}


@_with_help
@dataclass
class GenerationArguments:
    """How summaries are generated; kept in the model's `generation_config` and saved with it.

    Args:
        num_beams: Beams; 1 is greedy search.
        length_penalty: Exponent of the length that beam scores are divided by.
        min_length: Fewest tokens of a summary.
        max_length: Most tokens of a summary.
        no_repeat_ngram_size: No n-gram of this size occurs twice; 0 for no such rule.
        early_stopping: Whether beam search stops as soon as there are enough finished beams.
    """

    num_beams: int | None = None
    length_penalty: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    no_repeat_ngram_size: int | None = None
    early_stopping: bool | None = None

    def __post_init__(self) -> None:
        check_smallest("generation", self, {"num_beams": 1, "min_length": 0, "no_repeat_ngram_size": 0})
        check_smallest("generation", self, {"max_length": 2}, "; the decoder's start token counts")

    def settings(self) -> dict[str, Any]:
        """What was given."""
        return {name: value for name, value in vars(self).items() if value is not None}


@_with_help
@dataclass
class RunArguments:
    """What concerns the run as a whole.

    Args:
        task: What the model is trained for; a task may have a section of its own, named like it.
        total_train_batch_size: Documents of one optimizer step on all devices together; sets the gradient accumulation
            so that a recipe means the same on one GPU and on eight. By default it follows from the others.
        learning_rates: JSON object (in YAML a mapping) of names of parts of the model and the learning rates that they
            have in the place of `learning_rate`; see `optimizer_with_rates`.
        new_modules_rate: How many times `learning_rate` is that of new modules that begin as identity; 1 for the same.
        perplexity_decay: Factor of all learning rates at each evaluation, once the evaluation loss has stopped
            falling; see `PerplexityDecay`.
        soft_epochs: Epochs in the beginning of which a Coarse-to-Fine LSTM with hard attention trains with soft
            attention.
        bf16_where_fast: Compute in bfloat16 where it is fast: on an accelerator that has it and on a CPU
            that multiplies it (AVX-512 BF16, AMX); in float32 elsewhere.
        stop_after_minutes: Stop at a checkpoint once so much time has passed, for machines that are lent for minutes;
            the same call goes on. The clock is looked at where the loss is logged: set `logging_steps` (500). A
            sweep stops as a whole. What is done after training is not interrupted.
        overwrite: Start anew although the output folder holds a run; its checkpoints and results are deleted.
    """

    task: str = "summarization"
    total_train_batch_size: int | None = None
    learning_rates: str | None = None
    new_modules_rate: float = NEW_MODULES_RATE
    perplexity_decay: float | None = None
    soft_epochs: float | None = None
    bf16_where_fast: bool = False
    stop_after_minutes: float | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        self.rates()
        check_smallest("run", self, {"total_train_batch_size": 1, "new_modules_rate": 0})
        if self.stop_after_minutes is not None and self.stop_after_minutes <= 0:
            raise RecipeError(f"run: stop_after_minutes must be above 0, got {self.stop_after_minutes}")
        if self.stop_after_minutes is not None and self.overwrite:
            raise RecipeError("run: overwrite and stop_after_minutes exclude each other: each call would begin anew")

    def rates(self) -> dict[str, Any]:
        """The learning rates of `learning_rates`."""
        return _json_object("learning_rates", self.learning_rates)


@dataclass
class Recipe:
    """A whole training run.

    Args:
        model: Where the model comes from.
        data: What it is trained and validated on.
        generation: How it writes.
        run: Batch size over all devices, and whether to start anew.
        training: The stock arguments of `Seq2SeqTrainer`.
        options: What only the task has: an instance of its `arguments`, from the section named like the task.
    """

    model: ModelArguments
    data: DataArguments
    generation: GenerationArguments
    run: RunArguments
    training: Seq2SeqTrainingArguments
    options: Any = None

    def as_dict(self) -> dict[str, Any]:
        """The recipe for a results file."""
        sections = {name: dataclasses.asdict(getattr(self, name)) for name in SECTIONS if name != "training"}
        if self.options is not None:
            sections[self.run.task] = dataclasses.asdict(self.options)
        return {**sections, "training": self.training.to_dict()}


SECTIONS: dict[str, type] = {name: kind for name, kind in get_type_hints(Recipe).items() if name != "options"}


def set_accumulation(recipe: Recipe) -> None:
    """Set how many small batches make a step."""
    total, arguments = recipe.run.total_train_batch_size, recipe.training
    at_once = arguments.train_batch_size * arguments.world_size
    if arguments.auto_find_batch_size:  # which lowers the batch, and accumulates no more
        if total is not None:
            raise RecipeError("run: total_train_batch_size and training: auto_find_batch_size exclude each other")
        return
    if total is None:
        recipe.run.total_train_batch_size = at_once * arguments.gradient_accumulation_steps
        return
    if total % at_once:
        product = f"per_device_train_batch_size × devices = {at_once}"
        raise RecipeError(f"run: total_train_batch_size={total} is no multiple of {product}")
    arguments.gradient_accumulation_steps = total // at_once


# With these an evaluation sees every row once, in the order of the data.
IN_ORDER = {"train_sampling_strategy": "random", "dataloader_drop_last": False, "dataloader_in_order": True}
# What is scored is one array.
AS_ONE = {"eval_do_concat_batches": True}


def for_prediction(arguments: Seq2SeqTrainingArguments, **changes: Any) -> Seq2SeqTrainingArguments:
    """Change a run's arguments to those of a run that only predicts, in the order of the data."""
    names = inspect.signature(type(arguments)).parameters
    values = {name: value for name, value in arguments.to_dict().items() if name in names}
    off = dict.fromkeys(("prediction_loss_only", "load_best_model_at_end", "push_to_hub"), False)
    values |= {**IN_ORDER, **AS_ONE, **off, "eval_strategy": "no", "label_smoothing_factor": 0.0}
    # Some schedules of the learning rate cannot be without evaluations.
    values |= {"lr_scheduler_type": "constant", "lr_scheduler_kwargs": None, **changes}
    if arguments.device.type == "cpu":
        values["dataloader_pin_memory"] = False
    return type(arguments)(**values)
