"""The model of a recipe and its processor, loaded or made; and what a recipe says that concerns the model."""

import inspect
import logging
from collections.abc import Callable
from typing import Any, cast

import torch
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from ..data.tokenizing import plain_tokenizer
from .arguments import ModelArguments, Recipe, RecipeError


logger = logging.getLogger(__name__)

Processor = ProcessorMixin | PreTrainedTokenizerBase


def load_model_and_processor(
    arguments: ModelArguments, auto_class: Any = AutoModelForSeq2SeqLM
) -> tuple[PreTrainedModel, Processor]:
    """Load or make the model of a recipe, and its processor (the tokenizer, for a model without a processor).

    Args:
        arguments: The section `model` of a recipe.
        auto_class: Auto class of the kind of model, such as `AutoModelForMaskedLM`.

    Returns:
        The model, in training precision (float32), and its processor.

    Raises:
        RecipeError: If there is nothing to take the tokenizer from, or it does not fit the model.
    """
    overrides = arguments.overrides()
    options: dict[str, Any] = {}
    if arguments.attn_implementation is not None:
        options["attn_implementation"] = arguments.attn_implementation
    if arguments.model_name_or_path is not None:
        # float32, whatever the checkpoint was saved in: mixed precision keeps its master weights in it.
        model = auto_class.from_pretrained(arguments.model_name_or_path, dtype=torch.float32, **options, **overrides)
        processor = _saved_processor(arguments, model.config)
        _check_vocabulary(model.config, processor)
        return model, processor
    tokenizer_name = arguments.tokenizer or arguments.from_bart or arguments.from_roberta
    if tokenizer_name is None:
        raise RecipeError(
            "model: give model_name_or_path, from_bart, from_roberta, or (to train from scratch) tokenizer"
        )
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_name)
    if arguments.max_position_embeddings is not None:
        overrides["max_position_embeddings"] = arguments.max_position_embeddings
    if arguments.from_bart is not None:
        from ..hat_bart.modeling_hat_bart import HatBartForConditionalGeneration

        model = HatBartForConditionalGeneration.from_bart(
            arguments.from_bart, extra_positions=arguments.extra_positions, **options, **overrides
        ).float()
    elif arguments.from_roberta is not None:
        from ..hat_encoder.configuration_hat_encoder import HatEncoderConfig

        config = HatEncoderConfig.from_pretrained(arguments.from_roberta, **overrides)
        model = auto_class.from_pretrained(arguments.from_roberta, config=config, dtype=torch.float32, **options)
    else:
        ids = _special_ids(tokenizer)
        if auto_class is not AutoModelForSeq2SeqLM:
            ids = {
                name: value for name, value in ids.items() if name in ("bos_token_id", "pad_token_id", "eos_token_id")
            }
        config = AutoConfig.for_model(arguments.model_type, **{"vocab_size": len(tokenizer), **ids, **overrides})
        model = auto_class.from_config(config, **options)
    _check_vocabulary(model.config, tokenizer)
    tokenizer.model_max_length = getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)
    return model, _processor_for(model.config, tokenizer)


def set_generation(model: PreTrainedModel, recipe: Recipe) -> None:
    """Put a recipe's generation settings into a model.

    Args:
        model: A model that generates; its `generation_config` is changed.
        recipe: The recipe.

    Raises:
        RecipeError: If the settings do not go together.
    """
    settings = recipe.generation.settings()
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    if "max_length" in settings:
        model.generation_config.max_new_tokens = None  # it would win over max_length
    if settings.get("early_stopping") is None and model.generation_config.num_beams == 1:
        # A beam setting without beams is refused when the model is saved, hours after it was made.
        model.generation_config.early_stopping = None
    try:
        model.generation_config.validate(strict=True)
    except ValueError as error:
        raise RecipeError(f"generation: {' '.join(str(error).split())}") from error


def check_lengths(config: PretrainedConfig, recipe: Recipe) -> None:
    """Refuse lengths that a model has no positions for.

    Args:
        config: The model's configuration.
        recipe: The recipe.

    Raises:
        RecipeError: If a length of the recipe is larger than the number of positions.
    """
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None:
        return
    lengths = {
        "data: max_source_length": recipe.data.max_source_length,
        "data: max_target_length": recipe.data.max_target_length,
        "generation: max_length": recipe.generation.max_length or 0,
    }
    for name, length in lengths.items():
        if length > positions:
            raise RecipeError(
                f"{name} is {length}, but the model has only {positions} positions; lower it, or give the model more "
                f"with model: max_position_embeddings: {length} (from_bart grows BART's positions; from scratch takes "
                "any)"
            )


def longest_source(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Tell how long an input can be.

    Args:
        config: The model's configuration.
        tokenizer: Its tokenizer, asked where the config does not say.

    Returns:
        Tokens, or None where there is no limit.
    """
    positions = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
    return int(positions) if positions < 10**9 else None  # tokenizers without a limit say 10**30


def _saved_processor(arguments: ModelArguments, config: PretrainedConfig) -> Processor:
    name = arguments.model_name_or_path
    if arguments.tokenizer is None and type(config) in PROCESSOR_MAPPING:
        # What is changed in the config, such as the number of roles, the processor has to know too.
        shared = _shared_settings(config)
        changed = {key: value for key, value in shared.items() if key in arguments.overrides()}
        try:
            processor: Processor = AutoProcessor.from_pretrained(name, **changed)
        except (OSError, ValueError):
            logger.info("%s has no processor of its own; one is made from its tokenizer", name)
        else:
            return processor
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer or name)
    return _processor_for(config, tokenizer)


def _processor_for(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> Processor:
    """The processor class registered for a config; the tokenizer itself where there is none, as for BART."""
    if type(config) not in PROCESSOR_MAPPING:
        return tokenizer
    processor_class = cast(Callable[..., ProcessorMixin], PROCESSOR_MAPPING[type(config)])
    return processor_class(tokenizer, **_shared_settings(config))


def _shared_settings(config: PretrainedConfig) -> dict[str, Any]:
    """What a config says that its processor takes as an argument too."""
    names = inspect.signature(cast(Callable[..., Any], PROCESSOR_MAPPING[type(config)])).parameters
    return {name: getattr(config, name) for name in names if name != "tokenizer" and hasattr(config, name)}


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "pad", "eos")}
    ids = {name: value for name, value in ids.items() if value is not None}
    # BART's decoder starts with </s> and ends every summary with it.
    eos = ids.get("eos_token_id")
    return {**ids, **({} if eos is None else {"decoder_start_token_id": eos, "forced_eos_token_id": eos})}


def _check_vocabulary(config: PretrainedConfig, processor: Processor) -> None:
    tokenizer = plain_tokenizer(processor)
    if len(tokenizer) > config.vocab_size:
        raise RecipeError(
            f"model: the tokenizer has {len(tokenizer)} tokens but the model only {config.vocab_size}; they do not "
            "belong together (resize the model's embeddings if tokens were added)"
        )
