"""The model of a recipe and its processor, loaded or made; and what a recipe says that concerns the model."""

import inspect
import logging
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.models.whisper.tokenization_whisper import LANGUAGES, TO_LANGUAGE_CODE

from ..checkpoints import why_no_checkpoint
from ..data.tokenizing import plain_tokenizer
from ..families import FAMILIES
from ..models.bart_warm_start import grow_positions
from ..pipelines.document_pipeline_hier import DEFAULT_MAX_NEW_TOKENS, positions, task_params
from .arguments import CHECKPOINTS, ModelArguments, Recipe, RecipeError, mistakes_of, nearest
from .bart_from_encoder import as_warm_start
from .twins import FEED_FORWARD, led_from_bart, widen_feed_forward


logger = logging.getLogger(__name__)

Processor = ProcessorMixin | PreTrainedTokenizerBase


# What takes the hierarchy out of a family.
PLAIN = {name: dict(family.plain) for name, family in FAMILIES.items() if family.plain}
# Those that begin with BART's weights, and the one that begins with RoBERTa's.
FROM_BART = tuple(name for name, family in FAMILIES.items() if family.starts_from == "bart")
FROM_ROBERTA = next(name for name, family in FAMILIES.items() if family.starts_from == "roberta")
# What the families have beyond BART and RoBERTa.
HIERARCHICAL = {name for family in FAMILIES.values() for name in family.hierarchy}
# What begins anew where a recipe asks for other roles or levels than the checkpoint has.
RESIZED = tuple({name for family in FAMILIES.values() for name in family.resized})


@contextmanager
def _settings_are_the_users() -> Iterator[None]:
    """Turn what a configuration refuses into a mistake in the recipe."""
    try:
        yield
    except StrictDataclassError as error:
        # Its first line names the check that failed, the last says what is wrong.
        reason = str(error).splitlines()[-1].strip().partition("Error: ")[2] or str(error)
        raise RecipeError(f"model: config_overrides: {reason}") from error


@_settings_are_the_users()
def load_model_and_processor(
    arguments: ModelArguments, auto_class: Any = AutoModelForSeq2SeqLM, loading: dict[str, list[str]] | None = None
) -> tuple[PreTrainedModel, Processor]:
    """Load or make the model of a recipe, and its processor (the tokenizer, for a model without a processor).

    A checkpoint of ours may have another number of segment embeddings than `config_overrides` asks for, or none: they
    are then new, and everything else is loaded.

    Args:
        arguments: The section `model` of a recipe.
        auto_class: Auto class of the kind of model, such as `AutoModelForMaskedLM`.
        loading: Is given what of a checkpoint was loaded: `new_weights` (not in it), `resized_weights` (of another
            size in it, so new too) and `unused_weights` (only in it), numbers of layers written as *.

    Returns:
        The model, in training precision (float32), and its processor.

    Raises:
        RecipeError: If there is nothing to take the tokenizer from, it does not fit the model, the processor does not
            take the language, or the configuration refuses a value of `config_overrides`.
    """
    _check_folders(arguments)
    arguments = arguments.resolved()
    if arguments.from_encoder is not None:
        if arguments.model_type not in ("bart", "led", *FROM_BART):
            what = f"from_encoder with model_type: {arguments.model_type}"
            raise RecipeError(f"model: {what} makes no model; bart, led, {_listed(FROM_BART)} do")
        with tempfile.TemporaryDirectory(prefix="bart-") as folder:
            return load_model_and_processor(as_warm_start(arguments, Path(folder)), auto_class, loading)
    overrides = arguments.overrides()
    _check_overrides(arguments, overrides)
    wider = _taken_to_widen(arguments, overrides)
    options: dict[str, Any] = {}
    if arguments.attn_implementation is not None:
        name, known = arguments.attn_implementation, ("eager", *ALL_ATTENTION_FUNCTIONS.valid_keys())
        if name not in known and "/" not in name:  # with a slash, a kernel on the Hub
            raise RecipeError(f"model: there is no attn_implementation {name!r}{nearest(name, known)}")
        options["attn_implementation"] = name
    if arguments.model_name_or_path is not None:
        model, report = _load_checkpoint(arguments, auto_class, overrides, options)
        _widen(model, wider, report)
        processor = _saved_processor(arguments, model.config)
        if arguments.max_position_embeddings is not None:
            plain_tokenizer(processor).model_max_length = arguments.max_position_embeddings
        _check_vocabulary(model.config, processor)
        _report_loading(report, loading)
        return model, _with_settings(processor, arguments, model.config)
    tokenizer_name = arguments.tokenizer or arguments.from_bart or arguments.from_roberta
    if tokenizer_name is None:
        raise RecipeError(
            f"model: give {', '.join(CHECKPOINTS)}, or (to train from scratch) tokenizer or, for summarization, "
            "tokenizer_words"
        )
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_name)
    if arguments.max_position_embeddings is not None:
        if reads_any_length(arguments.model_type):
            raise RecipeError(
                f"model: max_position_embeddings means nothing to {arguments.model_type}, which reads sources of any "
                "length; leave it out (config_overrides: max_rows is the number of its row positions)"
            )
        overrides |= source_length(arguments.model_type, arguments.max_position_embeddings)
    report = {}
    added: dict[str, Any] = {"extra_positions": arguments.extra_positions}
    if arguments.from_bart is not None and arguments.model_type == "led" and auto_class is AutoModelForSeq2SeqLM:
        with mistakes_of("model"):
            model, report = led_from_bart(arguments.from_bart, **(added | overrides | wider))
    elif arguments.from_bart is not None:
        model_class = _class_from_bart(arguments.model_type, auto_class)
        options |= {**added, "output_loading_info": True, **_plain(arguments.model_type, arguments, overrides)}
        with mistakes_of("model"):
            model, report = model_class.from_bart(arguments.from_bart, **options)
        model = model.float()
        _widen(model, wider, report)
    elif arguments.from_roberta is not None:
        overrides = _plain(FROM_ROBERTA, arguments, overrides)
        config: PretrainedConfig = CONFIG_MAPPING[FROM_ROBERTA].from_pretrained(arguments.from_roberta, **overrides)
        options |= {"config": config, "dtype": torch.float32, "output_loading_info": True}
        model, report = auto_class.from_pretrained(arguments.from_roberta, **options)
    else:
        overrides = _without_hierarchy(arguments.model_type, overrides) if arguments.plain else overrides
        ids = _special_ids(tokenizer, arguments.model_type)
        if auto_class is not AutoModelForSeq2SeqLM:
            ids = {name: ids[name] for name in ("bos_token_id", "pad_token_id", "eos_token_id") if name in ids}
        config = AutoConfig.for_model(arguments.model_type, **{"vocab_size": len(tokenizer), **ids, **overrides})
        model = auto_class.from_config(config, **options)
    _check_vocabulary(model.config, tokenizer)
    _report_loading(report, loading)
    tokenizer.model_max_length = positions(model.config, "encoder") or tokenizer.model_max_length
    return model, _with_settings(_processor_for(model.config, tokenizer), arguments, model.config)


def save_processor(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save what prepares a model's inputs beside the model."""
    tokenizer.model_max_length = positions(config, "encoder") or tokenizer.model_max_length
    _processor_for(config, tokenizer).save_pretrained(folder)


def set_generation(model: PreTrainedModel, recipe: Recipe, max_length: int | None = None) -> None:
    """Put a recipe's generation settings into a model, and a length where neither has one."""
    settings = recipe.generation.settings()
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    if "max_length" in settings:
        model.generation_config.max_new_tokens = None  # it would win over max_length
    if model.generation_config.num_beams == 1:
        # Beam settings without beams are refused when the model is saved; the recipe's are for its writer to take out.
        for name in {"early_stopping", "length_penalty"} - set(settings):
            setattr(model.generation_config, name, None)
    with mistakes_of("generation"):
        model.generation_config.validate(strict=True)
    if model.generation_config.max_length is None and model.generation_config.max_new_tokens is None:
        model.generation_config.max_length = max_length  # else `generate` would stop after 20 tokens


def set_lengths(config: PretrainedConfig, processor: Processor, recipe: Recipe) -> None:
    """Refuse lengths that a model has no positions for; without positions, it takes sources as long as in training."""
    lengths: dict[str, tuple[int, str]] = {
        "data: max_source_length": (recipe.data.max_source_length, "encoder"),
        "data: max_target_length": (recipe.data.max_target_length, "decoder"),
        "generation: max_length": (recipe.generation.max_length or 0, "decoder"),
    }
    for name, (length, side) in lengths.items():
        most = positions(config, side)
        if most is not None and length > most:
            # Sources are what `max_position_embeddings` is about, unless both sides have the same.
            own = side == "decoder" and hasattr(config, f"max_{side}_position_embeddings")
            more = f"config_overrides: max_{side}_position_embeddings" if own else "max_position_embeddings"
            raise RecipeError(
                f"{name} is {length}, but the model has only {most} positions; lower it, or give the model more with "
                f"model: {more}: {length} (from_bart, from_encoder and checkpoints of HAT-BART and Top-Down "
                "Transformers grow their positions; from scratch takes any)"
            )
    if positions(config, "encoder") is None:
        tokenizer = plain_tokenizer(processor)
        tokenizer.model_max_length = max(tokenizer.model_max_length, recipe.data.max_source_length)


def warn_if_endless(processor: Processor) -> None:
    """Warn of a tokenizer that marks no ends of texts, as a model that learns from it never ends one."""
    if not isinstance(processor, PreTrainedTokenizerBase) or processor.eos_token is None:
        return
    if processor.eos_token_id not in processor(text_target="a")["input_ids"]:
        logger.warning(
            "model: the tokenizer puts no %s at the end of a text, so the model will not learn to end what it writes; "
            "give the tokenizer a post-processor that does (tokenizers.processors.TemplateProcessing)",
            processor.eos_token,
        )


def default_max_new_tokens(model: PreTrainedModel, **generate_kwargs: Any) -> int | None:
    """Tell how much to generate where nobody says: as the pipelines, where `generate` stops after 20 tokens."""
    for name in ("max_length", "max_new_tokens"):
        if (getattr(model.generation_config, name), generate_kwargs.get(name)) != (None, None):
            return None
    most = positions(model.config, "decoder") or DEFAULT_MAX_NEW_TOKENS + 1
    return int(min(DEFAULT_MAX_NEW_TOKENS, most - 1))


def remember_task(config: PretrainedConfig, task: str, **settings: Any) -> None:
    """Write into a configuration what a model is for and how it was trained, for its pipeline and `export`."""
    params = getattr(config, "task_specific_params", None) or {}
    config.task_specific_params = {**params, task: {**task_params(config, task), **settings}}


def longest_source(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Tell how long an input can be."""
    most = positions(config, "encoder") or tokenizer.model_max_length
    return int(most) if most < 10**9 else None  # tokenizers without a limit say 10**30


def reads_any_length(family: str) -> bool:
    """Whether a family has no positions that its sources could run out of."""
    return family in FAMILIES and FAMILIES[family].source_positions is None


def source_length(family: str, tokens: int) -> dict[str, int]:
    """Write a recipe's `max_position_embeddings` under the name that a family's configuration has, if it has one."""
    others = "max_encoder_position_embeddings" if family == "led" else "max_position_embeddings"
    name = FAMILIES[family].source_positions if family in FAMILIES else others
    return {} if name is None else {name: tokens}


def _plain(family: str, arguments: ModelArguments, overrides: dict[str, Any]) -> dict[str, Any]:
    """Take the hierarchy out where a recipe asks for it: the twin of silent markers has silent markers too."""
    if not arguments.plain:
        return overrides
    is_silent = FAMILIES[family].marked and arguments.new_modules != "random"
    return {**({"silent_markers": True} if is_silent else {}), **_without_hierarchy(family, overrides)}


def _without_hierarchy(family: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Values that take a family's hierarchy out; or, for BART itself, without those that are of one."""
    if family in PLAIN:
        return {**overrides, **PLAIN[family]}
    return {name: value for name, value in overrides.items() if name not in HIERARCHICAL}


def _class_from_bart(family: str, auto_class: Any) -> Any:
    """The class of a family that begins with BART's weights."""
    known = FAMILIES[family].models if family in FAMILIES else {}
    found = auto_class._model_mapping[type(AutoConfig.for_model(family))] if auto_class.__name__ in known else None
    if not hasattr(found, "from_bart"):
        raise RecipeError(f"model: from_bart makes no {family} for this task; it makes {_listed(FROM_BART)}")
    return found


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _check_folders(arguments: ModelArguments) -> None:
    """Refuse folders that are not there, or without a model, before a library looks for them on the Hub."""
    for setting in (*CHECKPOINTS, "tokenizer"):
        name = getattr(arguments, setting)
        if name is None or (setting == "tokenizer" and Path(name).exists()):
            continue
        if (reason := why_no_checkpoint(name)) is not None:
            advice = "" if Path(name).is_file() else "; if another recipe makes it, run that one first, to its end"
            raise RecipeError(f"model: {setting}: {reason}{advice}")


def classes_of_checkpoint(arguments: ModelArguments) -> list[str]:
    """Names of a trained classifier's classes, by their numbers; none of other models, nor LABEL_0 and the like."""
    if arguments.model_name_or_path is None:
        return []
    _check_folders(arguments)
    names = [name for _, name in sorted(AutoConfig.from_pretrained(arguments.model_name_or_path).id2label.items())]
    return [] if names == [f"LABEL_{number}" for number in range(len(names))] else names


def _check_overrides(arguments: ModelArguments, overrides: dict[str, Any]) -> None:
    """Refuse names that a configuration lacks, which it would keep; add `new_modules` where there is a choice."""
    if arguments.model_name_or_path is not None:
        config = AutoConfig.from_pretrained(arguments.model_name_or_path)
    else:
        family = FROM_ROBERTA if arguments.from_roberta is not None else arguments.model_type
        if family not in CONFIG_MAPPING:
            raise RecipeError(f"model: there is no model_type {family!r}{nearest(family, [*FAMILIES, 'bart', 'led'])}")
        config = AutoConfig.for_model(family)
    known = {*config.to_dict(), *config.attribute_map, "num_labels"}
    if arguments.new_modules is not None and "new_modules" in known:
        overrides["new_modules"] = arguments.new_modules
    elif arguments.new_modules == "identity" and config.model_type in FAMILIES:  # BART and LED lack nothing
        raise RecipeError(f"model: new_modules: what a checkpoint lacks of a {config.model_type} can only be random")
    # Twins share a recipe's `config_overrides`; what is of the hierarchy is left out of a plain one.
    ignored = HIERARCHICAL if arguments.plain else set()
    for name in overrides:
        if name not in known and name not in ignored:
            raise RecipeError(f"model: config_overrides: a {config.model_type} has no {name!r}{nearest(name, known)}")


def _load_checkpoint(
    arguments: ModelArguments, auto_class: Any, overrides: dict[str, Any], options: dict[str, Any]
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load `model_name_or_path`, with more positions or other segments if asked for; the second is what was loaded."""
    name = cast(str, arguments.model_name_or_path)
    config = AutoConfig.from_pretrained(name)
    family = config.model_type
    if arguments.plain:
        absent = PLAIN.get(family, {})
        if any(getattr(config, key) != value for key, value in absent.items() if key != "num_segments"):
            raise RecipeError(f"model: plain is given, but {name} has the hierarchy; start from a plain checkpoint")
        overrides = _without_hierarchy(family, overrides)
    # Mixed precision keeps its master weights in float32. What has another size and may not is refused below.
    options = {**options, "dtype": torch.float32, "output_loading_info": True, "ignore_mismatched_sizes": True}
    most, growing = arguments.max_position_embeddings, ("bart", *FROM_BART)
    if most is not None and family not in growing:
        raise RecipeError(
            f"model: max_position_embeddings={most} does not go with {name}: only from_bart and checkpoints of "
            f"{_listed(growing)} can grow their positions, and this is one of {family}"
        )
    with mistakes_of("model"):
        if most is None or family == "bart":
            model, report = auto_class.from_pretrained(name, **options, **overrides)
        else:
            options |= {"extra_positions": arguments.extra_positions, **source_length(family, most)}
            model, report = _class_from_bart(family, auto_class).from_bart(name, **options, **overrides)
        if most is not None and family == "bart":
            grow_positions(model, most, arguments.extra_positions)
    # With another number of classes a head begins anew.
    resizable = RESIZED if "id2label" not in overrides else (*RESIZED, *_of_head(model))
    if wrong := _patterns(key for key, *_ in report["mismatched_keys"] if not key.endswith(resizable)):
        raise RecipeError(f"model: {name} has other sizes than config_overrides asks for, in {', '.join(wrong)}")
    return model, report


def _of_head(model: PreTrainedModel) -> tuple[str, ...]:
    """Names of the parameters that give a number for each class."""
    classes = model.config.num_labels
    return tuple(
        name
        for name, weight in model.named_parameters()
        if not name.startswith(f"{model.base_model_prefix}.") and len(weight) == classes
    )


def _taken_to_widen(arguments: ModelArguments, overrides: dict[str, Any]) -> dict[str, int]:
    """Feed-forward sizes above those of the checkpoint, taken out of the overrides."""
    name = arguments.model_name_or_path or arguments.from_bart
    asked = [key for key in FEED_FORWARD if isinstance(overrides.get(key), int)]
    if name is None or not asked:
        return {}
    present = AutoConfig.from_pretrained(name)
    return {key: overrides.pop(key) for key in asked if overrides[key] > getattr(present, key, math.inf)}


def _widen(model: PreTrainedModel, wider: dict[str, int], report: dict[str, Any]) -> None:
    with mistakes_of("model: config_overrides"):
        grown = widen_feed_forward(model, **wider)
    report["mismatched_keys"] = [*report.get("mismatched_keys", ()), *((key, None, None) for key in grown)]


def _report_loading(report: dict[str, Any], loading: dict[str, list[str]] | None) -> None:
    """Say which weights are not the checkpoint's, by name with * for the numbers of layers."""
    found = {
        "new_weights": _patterns(report.get("missing_keys", ())),
        "resized_weights": _patterns(key for key, *_ in report.get("mismatched_keys", ())),
        "unused_weights": _patterns(report.get("unexpected_keys", ())),
    }
    for name, patterns in found.items():
        if patterns:
            logger.info("%s: %s", name.replace("_", " "), ", ".join(patterns))
    if loading is not None:
        loading.update(found)


def _patterns(keys: Iterable[str]) -> list[str]:
    return sorted({re.sub(r"\.\d+\.", ".*.", key) for key in keys})


def _saved_processor(arguments: ModelArguments, config: PretrainedConfig) -> Processor:
    name = arguments.model_name_or_path
    if arguments.tokenizer is None and type(config) in PROCESSOR_MAPPING:
        # What is changed in the config, such as the number of roles, the processor has to know too.
        shared = _shared_settings(config)
        changed = {key: value for key, value in shared.items() if key in arguments.overrides()}
        try:
            return cast(Processor, AutoProcessor.from_pretrained(name, **changed))
        except (OSError, ValueError):
            logger.info("%s has no processor of its own; one is made from its tokenizer", name)
    return _processor_for(config, AutoTokenizer.from_pretrained(arguments.tokenizer or name))


def _processor_for(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> Processor:
    """The processor class registered for a config; the tokenizer itself where there is none, as for BART."""
    marked = config.model_type in FAMILIES and FAMILIES[config.model_type].marked
    if not marked and hasattr(tokenizer, "without_markers"):
        tokenizer = tokenizer.without_markers()  # a HAT's, which a twin of it shares
    if type(config) not in PROCESSOR_MAPPING:
        return tokenizer
    processor_class = cast(Callable[..., ProcessorMixin], PROCESSOR_MAPPING[type(config)])
    return processor_class(tokenizer, **_shared_settings(config))


def _with_settings(processor: Processor, arguments: ModelArguments, config: PretrainedConfig) -> Processor:
    """The processor with the recipe's language and other settings; as it is where none are given."""
    given = {} if arguments.language is None else {"language": arguments.language}
    reads_rows = hasattr(config, "attend_padding")  # as a Coarse-to-Fine LSTM does
    for origin, settings in (("language", given), ("processor_overrides", arguments.processor_settings())):
        if reads_rows and origin == "processor_overrides":
            settings = {**_arrangement(config, processor, settings), **settings}
        if not settings:
            continue
        names = _settings_of(processor)
        if not isinstance(processor, ProcessorMixin) or (origin == "language" and "language" not in names):
            raise RecipeError(f"model: {origin} means nothing to {type(processor).__name__}; leave it out")
        if unknown := [name for name in settings if name not in names]:
            lacking = f"{type(processor).__name__} has no setting {unknown[0]!r}"
            raise RecipeError(f"model: {origin}: {lacking}; it has {', '.join(names)}")
        with mistakes_of("model"):
            processor = _made_again(processor, **settings)
    if reads_rows:
        _check_rows(processor, config)
    return processor


def in_language(processor: Processor, language: str) -> Processor:
    """The processor with another language, by its name or its code, whichever of the two the processor keeps."""
    other_form = TO_LANGUAGE_CODE if cast(Any, processor).language in LANGUAGES else LANGUAGES
    return _made_again(processor, language=other_form.get(language, language))


def _made_again(processor: Processor, **settings: Any) -> Processor:
    before = {name: getattr(processor, name) for name in _settings_of(processor)}
    return cast(Processor, cast(Any, type(processor))(plain_tokenizer(processor), **{**before, **settings}))


def _settings_of(processor: Processor) -> list[str]:
    return [name for name in inspect.signature(type(processor)).parameters if name != "tokenizer"]


def _arrangement(config: PretrainedConfig, processor: Processor, settings: dict[str, Any]) -> dict[str, Any]:
    """What a Coarse-to-Fine LSTM's config says of rows: how many it tells apart, whether it attends to padding."""
    found: dict[str, Any] = {}
    rows, num_rows = (settings.get(name, getattr(processor, name)) for name in ("rows", "num_rows"))
    if config.row_position_size and num_rows is None and rows != "grid":
        found["num_rows"] = config.max_rows
    if config.attend_padding and rows == "grid":
        found["pad_grid"] = True
    return found


def _check_rows(processor: Processor, config: PretrainedConfig) -> None:
    """Refuse rows that a Coarse-to-Fine LSTM has no positions for, and attention to padding that there is none of."""
    reader = cast(Any, processor)
    if config.row_position_size and (reader.num_rows is None or reader.num_rows > config.max_rows):
        raise RecipeError(
            f"model: the processor gives up to {reader.num_rows or 'any number of'} rows, but the model has positions "
            f"for {config.max_rows}; lower processor_overrides: num_rows, or give it more (config_overrides: max_rows)"
        )
    if config.attend_padding != reader.pad_grid:
        raise RecipeError(
            f"model: the config has attend_padding={config.attend_padding} and the processor pad_grid="
            f"{reader.pad_grid}; there is padding to attend to only in a grid (processor_overrides: rows: grid)"
        )


def _shared_settings(config: PretrainedConfig) -> dict[str, Any]:
    """What a config says that its processor takes as an argument too."""
    names = inspect.signature(cast(Callable[..., Any], PROCESSOR_MAPPING[type(config)])).parameters
    return {name: getattr(config, name) for name in names if name != "tokenizer" and hasattr(config, name)}


def _special_ids(tokenizer: PreTrainedTokenizerBase, family: str) -> dict[str, int]:
    names = ("bos_token_id", "pad_token_id", "eos_token_id")
    ids = {name: value for name in names if (value := getattr(tokenizer, name)) is not None}
    # BART's decoder starts with </s> and ends every summary with it; the LSTM's starts with <s>, if there is one.
    eos = ids.get("eos_token_id")
    begins_with = FAMILIES[family].decoder_starts_with if family in FAMILIES else "eos"
    start = ids.get(f"{begins_with}_token_id", eos)
    return {**ids, **({} if eos is None else {"decoder_start_token_id": start, "forced_eos_token_id": eos})}


def _check_vocabulary(config: PretrainedConfig, processor: Processor) -> None:
    tokenizer = plain_tokenizer(processor)
    if len(tokenizer) > config.vocab_size:
        raise RecipeError(
            f"model: the tokenizer has {len(tokenizer)} tokens but the model only {config.vocab_size}; they do not "
            "belong together (resize the model's embeddings if tokens were added)"
        )
