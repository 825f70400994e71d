"""Recipes: everything a training run needs to know, from a YAML file and the command line."""

import dataclasses
import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import yaml
from transformers import HfArgumentParser, Seq2SeqTrainingArguments

from .tasks import TASKS, task_class


class RecipeError(ValueError):
    """A recipe, or an option on the command line, that cannot be used."""


class PrecisionError(RecipeError):
    """A precision that this machine cannot compute in."""


def _help(text: str) -> dict[str, str]:
    return {"help": text}


@dataclass
class ModelArguments:
    """Where the model comes from: a checkpoint, BART's or RoBERTa's weights, or nothing (random weights).

    Args:
        model_name_or_path: A checkpoint to go on from, of any encoder-decoder model (plain BART for a baseline).
        from_bart: A BART checkpoint to warm-start a model of `model_type` from (hat_bart, highlight_transformer,
            top_down_transformer).
        from_roberta: A RoBERTa checkpoint to warm-start the encoder-only HAT from.
        model_type: The family to warm-start from BART, or to train from scratch where none of the three above is
            given; also what `--smoke` makes in the place of a checkpoint that is not here.
        plain: The same model without the hierarchy and without segment embeddings: the plain Transformer that the
            papers compare with, on the same input (for the Top-Down Transformer, local attention alone).
        tokenizer: Folder or hub id of the tokenizer; by default that of the checkpoint.
        tokenizer_words: From scratch and without a tokenizer, fit one of the so many commonest words of the training
            documents and their summaries; it is kept in the output folder. For summarization.
        word_vectors: From scratch, a file of word2vec or GloVe that the embeddings begin with; see `set_word_vectors`.
        language: Language of the documents, as the processor takes it; by default the checkpoint's, or English.
        max_position_embeddings: Longest source in tokens; `from_bart`, and checkpoints of the families that it is for,
            grow to it.
        extra_positions: What added positions begin with: copies of those that there are, or random values.
        attn_implementation: eager, sdpa, flash_attention_2, … as in Transformers.
        config_overrides: JSON object (in YAML a mapping) of configuration values, such as dropout.
        processor_overrides: The same for the processor, such as rows of a Coarse-to-Fine LSTM's.
    """

    model_name_or_path: str | None = field(default=None, metadata=_help("A checkpoint to go on from."))
    from_bart: str | None = field(default=None, metadata=_help("A BART checkpoint to warm-start from."))
    from_roberta: str | None = field(
        default=None, metadata=_help("A RoBERTa checkpoint to warm-start the encoder-only HAT from.")
    )
    model_type: str = field(default="hat_bart", metadata=_help("The family to make from BART or from scratch."))
    plain: bool = field(default=False, metadata=_help("Without the hierarchy: the papers' plain Transformer."))
    tokenizer: str | None = field(default=None, metadata=_help("Folder or hub id of the tokenizer."))
    tokenizer_words: int | None = field(default=None, metadata=_help("Words of a tokenizer to fit."))
    word_vectors: str | None = field(default=None, metadata=_help("A file of word2vec or GloVe for the embeddings."))
    language: str | None = field(default=None, metadata=_help("Language of the documents, for the processor."))
    max_position_embeddings: int | None = field(default=None, metadata=_help("Longest source in tokens."))
    extra_positions: Literal["tile", "random"] = field(
        default="tile", metadata=_help("What added positions begin with.")
    )
    attn_implementation: str | None = field(default=None, metadata=_help("eager, sdpa, flash_attention_2, …"))
    config_overrides: str | None = field(
        default=None, metadata=_help('JSON object of configuration values, such as {"dropout": 0.1}.')
    )
    processor_overrides: str | None = field(
        default=None, metadata=_help('JSON object of settings of the processor, such as {"rows": "grid"}.')
    )

    def __post_init__(self) -> None:
        """Check what does not fit together."""
        given = [name for name in ("model_name_or_path", "from_bart", "from_roberta") if getattr(self, name)]
        if len(given) > 1:
            raise RecipeError(f"{' and '.join(given)} are both given; the model comes from one of them")
        if self.from_roberta and self.max_position_embeddings:
            raise RecipeError("max_position_embeddings does not go with from_roberta; RoBERTa's positions are kept")
        if self.word_vectors is not None and given:
            raise RecipeError(
                f"{given[0]} and word_vectors are both given; word vectors are for a model that is made from scratch"
            )
        if self.tokenizer_words is not None:
            if self.tokenizer_words < 1:
                raise RecipeError(f"tokenizer_words must be at least 1, got {self.tokenizer_words}")
            if given or self.tokenizer:
                raise RecipeError(
                    f"{(given or ['tokenizer'])[0]} and tokenizer_words are both given; a tokenizer is fitted only "
                    "where there is none"
                )
        self.overrides()
        self.processor_settings()

    def overrides(self) -> dict[str, Any]:
        """The configuration values of `config_overrides`.

        Returns:
            Name -> value.

        Raises:
            RecipeError: If it is not a JSON object.
        """
        return _json_object("config_overrides", self.config_overrides)

    def processor_settings(self) -> dict[str, Any]:
        """The settings of `processor_overrides`.

        Returns:
            Name -> value.

        Raises:
            RecipeError: If it is not a JSON object.
        """
        return _json_object("processor_overrides", self.processor_overrides)


def _json_object(name: str, text: str | None) -> dict[str, Any]:
    try:
        values = json.loads(text or "{}")
    except ValueError as error:
        raise RecipeError(f"{name} is no JSON ({error}): {text}") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{name} must be a JSON object, got {text}")
    return values


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
        several_references: Each string of a list, or each line, in the column of the summary is a summary of its own:
            the first is trained on, and scores are those of the best.
        digits: What every digit of sources and summaries becomes, such as "#".
        max_source_length: Tokens of a source, markers included.
        max_target_length: Tokens of a summary.
        max_train_documents: Take only so many.
        max_validation_documents: Take only so many.
        max_test_documents: Take only so many.
        streaming: Read the training documents while training, in bounded memory.
        shuffle_buffer: Documents held in memory to shuffle a streamed dataset.
        importance: "oracle" has a Top-Down Transformer pool by importance, with the weights that the summaries give
            its tokens: 1 for words whose lemma is in the summary, 0 for all others.
        importance_tagger: A checkpoint that gives the weights of the validation and test documents instead, as there
            are no summaries where the model is used; without it they are the oracle's too.
        key_phrases: Where a Highlight-Transformer's key phrases come from: "fit" counts the phrases of the training
            documents, of what the model reads of them; else a file or a checkpoint that has them (key_phrases.json).
            By default the processor's own, or a column `phrases`.
        stopwords: With "fit", the words that are in no key phrase: en, de, or a file; by default those of the
            processor's language.
        bad_lines: Stop at a line that cannot be used, or set it aside in a file of the output folder.
        num_proc: Processes that tokenize.
    """

    train: str | None = field(default=None, metadata=_help("Hub id, file or folder of the training documents."))
    train_split: str | None = field(default=None, metadata=_help("The split of train."))
    validation: str | None = field(default=None, metadata=_help("Hub id, file or folder to validate on."))
    validation_split: str | None = field(default=None, metadata=_help("The split of validation (or of train)."))
    test: str | None = field(default=None, metadata=_help("Hub id, file or folder to score the trained model on."))
    test_split: str | None = field(default=None, metadata=_help("The split of test (or of train)."))
    config_name: str | None = field(default=None, metadata=_help("Configuration of a dataset on the Hub."))
    revision: str | None = field(default=None, metadata=_help("Branch, tag or commit of a dataset on the Hub."))
    text_column: str | None = field(default=None, metadata=_help("Column with the source."))
    summary_column: str | None = field(default=None, metadata=_help("Column with the summary."))
    source_kind: Literal["text", "sentences", "turns", "documents"] | None = field(
        default=None, metadata=_help("What the source is read as: text, sentences, turns or documents.")
    )
    fillers: str | None = field(
        default=None, metadata=_help("Filler words to take out of transcripts: english, or a file.")
    )
    phrases_column: str | None = field(default=None, metadata=_help("Column with the documents' own phrases."))
    several_references: bool = field(default=False, metadata=_help("The column holds several summaries each."))
    digits: str | None = field(default=None, metadata=_help("What every digit becomes."))
    max_source_length: int = field(default=1024, metadata=_help("Tokens of a source, markers included."))
    max_target_length: int = field(default=256, metadata=_help("Tokens of a summary."))
    max_train_documents: int | None = field(default=None, metadata=_help("Take only so many."))
    max_validation_documents: int | None = field(default=None, metadata=_help("Take only so many."))
    max_test_documents: int | None = field(default=None, metadata=_help("Take only so many."))
    streaming: bool = field(default=False, metadata=_help("Read the training documents while training."))
    shuffle_buffer: int = field(default=1000, metadata=_help("Documents in memory to shuffle a streamed dataset."))
    importance: Literal["oracle"] | None = field(
        default=None, metadata=_help("Weights of tokens by the words of the summary.")
    )
    importance_tagger: str | None = field(
        default=None, metadata=_help("A checkpoint that gives the weights of validation and test documents.")
    )
    key_phrases: str | None = field(
        default=None, metadata=_help("Key phrases to highlight: fit, or a file or checkpoint that has them.")
    )
    stopwords: str | None = field(default=None, metadata=_help("Words in no key phrase: en, de, or a file."))
    bad_lines: Literal["stop", "set_aside"] = field(
        default="stop", metadata=_help("Stop at a bad line, or set it aside in a file of the output folder.")
    )
    num_proc: int | None = field(default=None, metadata=_help("Processes that tokenize."))


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

    num_beams: int | None = field(default=None, metadata=_help("Beams; 1 is greedy search."))
    length_penalty: float | None = field(default=None, metadata=_help("Exponent of the length in beam scores."))
    min_length: int | None = field(default=None, metadata=_help("Fewest tokens of a summary."))
    max_length: int | None = field(default=None, metadata=_help("Most tokens of a summary."))
    no_repeat_ngram_size: int | None = field(default=None, metadata=_help("No n-gram of this size occurs twice."))
    early_stopping: bool | None = field(default=None, metadata=_help("Stop beam search when enough beams are done."))

    def settings(self) -> dict[str, Any]:
        """What was given.

        Returns:
            Name -> value, without what was left to the model.
        """
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class RunArguments:
    """What concerns the run as a whole.

    Args:
        task: What the model is trained for; a task may have a section of its own, named like it.
        total_train_batch_size: Documents of one optimizer step on all devices together; sets the gradient accumulation
            so that a recipe means the same on one GPU and on eight.
        learning_rates: JSON object (in YAML a mapping) of names of parts of the model and the learning rates that they
            have in the place of `learning_rate`; see `optimizer_with_rates`.
        perplexity_decay: Factor of all learning rates at each evaluation, once the evaluation loss has stopped
            falling; see `PerplexityDecay`.
        soft_epochs: Epochs in the beginning of which a Coarse-to-Fine LSTM with hard attention trains with soft
            attention.
        overwrite: Start anew although the output folder holds a run; its checkpoints are deleted.
    """

    task: str = field(default="summarization", metadata=_help("What the model is trained for."))
    total_train_batch_size: int | None = field(
        default=None, metadata=_help("Documents of one optimizer step; sets gradient_accumulation_steps.")
    )
    learning_rates: str | None = field(
        default=None, metadata=_help('JSON object of parts of the model, such as {"encoder.coarse": 0.1}.')
    )
    perplexity_decay: float | None = field(
        default=None, metadata=_help("Factor of the learning rates once the evaluation loss has stopped falling.")
    )
    soft_epochs: float | None = field(
        default=None, metadata=_help("First epochs with soft attention, for a model with hard attention.")
    )
    overwrite: bool = field(default=False, metadata=_help("Start anew although output_dir holds a run."))

    def __post_init__(self) -> None:
        """Check what can be checked without the model."""
        self.rates()

    def rates(self) -> dict[str, Any]:
        """The learning rates of `learning_rates`.

        Returns:
            Name of a part -> learning rate.

        Raises:
            RecipeError: If it is not a JSON object.
        """
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
        """The recipe for a results file.

        Returns:
            Section -> name -> value, for JSON.
        """
        sections = {name: dataclasses.asdict(getattr(self, name)) for name in SECTIONS if name != "training"}
        if self.options is not None:
            sections[self.run.task] = dataclasses.asdict(self.options)
        return {**sections, "training": self.training.to_dict()}


SECTIONS: dict[str, type] = {
    "model": ModelArguments,
    "data": DataArguments,
    "generation": GenerationArguments,
    "run": RunArguments,
    "training": Seq2SeqTrainingArguments,
}


# What else a recipe file may say, beside its sections.
BASE, VARIANTS = "base", "variants"


def _renamed() -> dict[str, str]:
    """Transformers renamed gradient_checkpointing in 5.2x; recipes may use either name on every release."""
    known = {item.name for item in dataclasses.fields(Seq2SeqTrainingArguments)}
    pairs = {
        "gradient_checkpointing": "activation_checkpointing",
        "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
    }
    return {old: new for old, new in pairs.items() if new in known} or {new: old for old, new in pairs.items()}


class _RecipeParser(HfArgumentParser):
    """The stock parser, which raises instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise RecipeError(message)


def load_recipe(
    path: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    variant: str | None = None,
) -> Recipe:
    """Read a recipe.

    A recipe file has the sections `model`, `data`, `generation`, `run` and `training`, each a mapping of the names of
    `ModelArguments`, `DataArguments`, `GenerationArguments`, `RunArguments` and `Seq2SeqTrainingArguments`; and, where
    the task (`run: task:`) has options of its own, a section that is named like the task.

    With `base:`, another recipe file (its path is taken from the folder of this one), a recipe is that one, but for
    what it says itself; null takes a value of the base back. With `variants:`, a mapping of names to such changes, it
    is a sweep: one recipe for each variant, whose `output_dir` is a folder named like it in the sweep's; see
    `run_sweep`.

    Args:
        path: A YAML file; None to use the overrides alone.
        overrides: What to change, as on the command line (`["--learning_rate", "1e-4"]`) or by name
            (`{"learning_rate": 1e-4}`), without sections.
        variant: Which variant of a sweep to read.

    Returns:
        The recipe.

    Raises:
        RecipeError: If the file is no such YAML, or a name or a value is not allowed; if it is a sweep and no variant
            is named, or none of that name is in it.
    """
    content = {} if path is None else _content_of_file(Path(path))
    variants = content.pop(VARIANTS, None)
    if variants is not None or variant is not None:
        content = _content_of_variant(content, variants, variant, path)
    task = _task(content, overrides)
    options = task_class(task).arguments
    sections = {**SECTIONS, **({} if options is None else {task: options})}
    arguments = _arguments_of_content(content, str(path), sections)
    if isinstance(overrides, Mapping):
        for name, value in overrides.items():
            _check_name(str(name), "overrides", sections)
            arguments += as_options(str(name), value)
    else:
        arguments += [_renamed_option(option) for option in overrides]
    if variant is not None:
        parent = _last_value(arguments, "output_dir")
        if parent is None:
            raise RecipeError(f"{path}: training: output_dir is not given; each variant gets a folder in it")
        arguments += as_options("output_dir", os.path.join(parent, variant))
    parser = _RecipeParser(cast(Any, list(sections.values())), allow_abbrev=False, add_help=False)
    try:
        *parsed, rest = parser.parse_args_into_dataclasses(
            arguments, return_remaining_strings=True, look_for_args_file=False
        )
    except RecipeError:
        raise
    except (ValueError, TypeError) as error:  # from the arguments' own checks
        if "bf16" in str(error):
            raise PrecisionError(
                "training: bf16: true needs a device with bfloat16, and there is none here. Say --bf16 false, with "
                "--fp16 true on a GPU of before 2020; or --use_cpu true to compute in bfloat16 on the CPU, slowly "
                f"({error})"
            ) from error
        raise RecipeError(str(error)) from error
    for option in rest:
        if option.startswith("--"):
            _check_name(option[2:].split("=")[0].replace("-", "_"), "the command line", sections)
    if rest:
        raise RecipeError(f"cannot use {' '.join(rest)!r}: options are given as --name value")
    return Recipe(*parsed)


def variant_names(path: str | os.PathLike[str]) -> list[str]:
    """List the variants of a sweep.

    Args:
        path: A YAML file, as for `load_recipe`.

    Returns:
        Their names, in the order of the file; empty if it is a plain recipe.

    Raises:
        RecipeError: If the file cannot be read, or its variants have no usable names.
    """
    return list(_content_of_file(Path(path)).get(VARIANTS, {}))


def check_overrides(path: str | os.PathLike[str], overrides: Sequence[str] | Mapping[str, Any]) -> None:
    """Refuse to change for all variants of a sweep what they differ in: they would be one and the same.

    Args:
        path: A YAML file with variants.
        overrides: What to change, as for `load_recipe`.

    Raises:
        RecipeError: If a variant sets one of these names itself.
    """
    if isinstance(overrides, Mapping):
        given = {str(name) for name in overrides}
    else:
        given = {option[2:].split("=")[0].replace("-", "_") for option in overrides if option.startswith("--")}
    given = {_renamed().get(name, name) for name in given}
    for variant, sections in _content_of_file(Path(path)).get(VARIANTS, {}).items():
        for values in sections.values() if isinstance(sections, dict) else ():
            for name in values if isinstance(values, dict) else ():
                if _renamed().get(name, name) in given:
                    raise RecipeError(
                        f"{name} cannot be changed for all variants: variant {variant!r} of {path} sets it, and "
                        "they would be the same; change it in the file"
                    )


def _content_of_file(path: Path, inheriting: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The sections of a recipe file, over those of its `base`."""
    content = _read(path)
    variants = content.get(VARIANTS)
    if VARIANTS in content:
        if not isinstance(variants, dict) or not variants:
            raise RecipeError(f"{path}: {VARIANTS} must be a mapping of names to sections, got {variants!r}")
        for name in variants:
            if not re.fullmatch(r"\w[\w.-]*", str(name)):
                raise RecipeError(
                    f"{path}: a variant's name becomes that of a folder: letters, digits, _ . and -; got {name!r}"
                )
        content[VARIANTS] = {str(name): sections or {} for name, sections in variants.items()}
    base = content.pop(BASE, None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise RecipeError(f"{path}: {BASE} must be the path of another recipe, got {base!r}")
    inheriting = (*inheriting, path.resolve())
    file = path.parent / base
    if file.resolve() in inheriting:
        raise RecipeError(f"{path}: {BASE}: {base} begins with this recipe itself")
    below = _content_of_file(file, inheriting)
    if VARIANTS in below:
        raise RecipeError(f"{path}: {BASE}: {base} is a sweep; give the recipe that it begins with")
    return _merged(below, content)


def _content_of_variant(
    content: dict[str, Any], variants: dict[str, Any] | None, variant: str | None, path: Any
) -> dict[str, Any]:
    if variants is None:
        raise RecipeError(f"{path} has no variants, so no {variant!r}")
    if variant not in variants:
        problem = "is a sweep, for run_sweep" if variant is None else f"has no variant {variant!r}"
        raise RecipeError(f"{path} {problem}; its variants are {', '.join(variants)}")
    changes = variants[variant]
    if not isinstance(changes, dict):
        raise RecipeError(f"{path}: variant {variant!r} must hold sections, as a recipe does; got {changes!r}")
    return _merged(content, changes)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings in mappings, to any depth; what is above wins."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecipeError(f"no such recipe: {path}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is no YAML: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"{path} must hold the sections {', '.join(SECTIONS)}")
    return content


def _task(content: Mapping[str, Any], overrides: Sequence[str] | Mapping[str, Any]) -> str:
    """The task, which decides what else a recipe can say."""
    given = overrides.get("task") if isinstance(overrides, Mapping) else _last_value(overrides, "task")
    run = content.get("run")
    return str(given or (run.get("task") if isinstance(run, dict) else None) or RunArguments.task)


def _last_value(options: Sequence[str], name: str) -> str | None:
    """The value of an option, before all of them are read."""
    parser = _RecipeParser(allow_abbrev=False, add_help=False)
    parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}", dest=name)
    value: str | None = getattr(parser.parse_known_args(list(options))[0], name)
    return value


def _arguments_of_content(content: Mapping[str, Any], path: str, sections: Mapping[str, type]) -> list[str]:
    arguments: list[str] = []
    for section, values in content.items():
        if section in TASKS and section not in sections:
            raise RecipeError(f"{path}: section {section!r} goes with run: task: {section}")
        if section not in sections:
            raise RecipeError(f"{path}: unknown section {section!r}{_nearest(str(section), list(sections))}")
        if not isinstance(values, dict | None):
            raise RecipeError(f"{path}: section {section!r} must be a mapping of names to values, got {values!r}")
        for name, value in (values or {}).items():
            _check_name(str(name), f"{path}, section {section!r}", sections, section)
            arguments += as_options(str(name), value)
    return arguments


def _names(section: type) -> list[str]:
    return [item.name for item in dataclasses.fields(section) if item.init]


def _check_name(name: str, where: str, sections: Mapping[str, type], section: str | None = None) -> None:
    current = _renamed().get(name, name)
    homes = [candidate for candidate, names in sections.items() if current in _names(names)]
    if not homes:
        known = [name for names in sections.values() for name in _names(names)]
        raise RecipeError(f"{where}: unknown name {name!r}{_nearest(name, known)}")
    if section is not None and section not in homes:
        raise RecipeError(f"{where}: {name!r} belongs to section {homes[0]!r}")


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else f"; allowed are {', '.join(sorted(names))}"


def as_options(name: str, value: Any) -> list[str]:
    """Write a value as it is given on the command line.

    Args:
        name: The option, without dashes.
        value: Its value.

    Returns:
        The option; nothing for None.
    """
    option = f"--{_renamed().get(name, name)}"
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [option, *map(str, value)]
    if isinstance(value, Mapping):
        return [f"{option}={json.dumps(value)}"]
    # With "=", so that a value may begin with a dash.
    return [f"{option}={str(value).lower() if isinstance(value, bool) else value}"]


def _renamed_option(option: str) -> str:
    if not option.startswith("--"):
        return option
    name, separator, value = option[2:].partition("=")
    plain = name.replace("-", "_")
    return f"--{_renamed()[plain]}{separator}{value}" if plain in _renamed() else option
