"""Refuses inputs that end in an index error inside a model, or go wrong in silence; values on the CPU only."""

import torch
from transformers.cache_utils import Cache
from transformers.configuration_utils import PreTrainedConfig


_REMEDIES = {
    "source": "Truncate it (`truncation=True` in the processor's call)",
    "target": "Truncate labels (`max_target_length` in the processor's call) or `generate` fewer `max_new_tokens`",
}


def can_look_at(tensor: torch.Tensor) -> bool:
    """Whether values may decide what happens next."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def check_values(name: str, values: torch.Tensor, end: int, limit: str, also: str = "") -> None:
    """Refuse values out of range, whose end has a name."""
    if can_look_at(values):
        low, high = (int(value) for value in torch.aminmax(values))
        if low < 0 or high >= end:
            raise ValueError(f"`{name}` must be in [0, {limit}={end}){also}, got values from {low} to {high}.")


def check_shape(
    name: str, tensor: torch.Tensor | None, shape: tuple[int, ...], like: str = " like the tokens"
) -> None:
    """Refuse another shape than that of what it goes with."""
    if tensor is not None and tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"`{name}` must be {tuple(shape)}{like}, got shape {tuple(tensor.shape)}.")


def check_integers(name: str, tensor: torch.Tensor) -> None:
    """Refuse fractions and truth values."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise ValueError(f"`{name}` must be integers, got {tensor.dtype}.")


def check_weights(name: str, weights: torch.Tensor) -> None:
    """Refuse weights that are not finite, or negative."""
    low, high = (value.item() for value in torch.aminmax(weights))
    if not (low >= 0 and high < float("inf")):  # not a number is neither
        raise ValueError(f"`{name}` must be finite and not negative, got values from {low} to {high}.")


def check_one(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, before: str = "") -> None:
    """Refuse none and both of ids and embeddings."""
    if (input_ids is None) == (inputs_embeds is None):
        got = "both" if input_ids is not None else "none"
        raise ValueError(f"Give exactly one of `{before}input_ids` and `{before}inputs_embeds`, got {got}.")


def check_tokens(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, axis)
    inputs_embeds: torch.Tensor | None,  # (batch, axis, width)
    width: str,
    axis: str,
    before: str = "",
) -> tuple[int, int]:
    """Refuse tokens that are missing, given twice, of a wrong shape or out of range."""
    check_one(input_ids, inputs_embeds, before)
    if input_ids is not None:
        shape = tuple(input_ids.shape)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"`{before}input_ids` must be (batch, {axis}), got shape {shape}.")
        check_values(f"{before}input_ids", input_ids, config.vocab_size, "vocab_size")
    else:
        assert inputs_embeds is not None
        shape, size = tuple(inputs_embeds.shape), getattr(config, width)
        if len(shape) != 3 or 0 in shape or shape[-1] != size:
            raise ValueError(f"`{before}inputs_embeds` must be (batch, {axis}, {width}={size}), got shape {shape}.")
    return shape[0], shape[1]


def check_source(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, source)
    inputs_embeds: torch.Tensor | None,  # (batch, source, width)
    attention_mask: torch.Tensor | None,  # (batch, source)
    width: str = "d_model",
    axis: str = "source",
    takes_made_masks: bool = False,
) -> tuple[int, int]:
    """Refuse tokens that no source can be, or that do not fit their mask."""
    shape = check_tokens(config, input_ids, inputs_embeds, width, axis)
    if attention_mask is not None and (attention_mask.dim() == 2 or not takes_made_masks):
        check_shape("attention_mask", attention_mask, shape)
    return shape


def check_target(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, target)
    inputs_embeds: torch.Tensor | None,  # (batch, target, width)
    source: torch.Tensor | None,  # (batch, source, d_model)
    attention_mask: torch.Tensor | None,  # (batch, target), or with earlier tokens in front
    width: str = "d_model",
    shares_sources: bool = False,
) -> None:
    """Refuse tokens that no target can be, or that do not fit their source or their mask."""
    batch, length = check_tokens(config, input_ids, inputs_embeds, width, "target", "decoder_")
    if source is not None and batch != len(source) and not (shares_sources and batch % len(source) == 0):
        raise ValueError(f"The target must have batch={len(source)} like the source, got batch={batch}.")
    if attention_mask is None or not isinstance(attention_mask, torch.Tensor) or attention_mask.dim() == 4:
        return  # generation made it
    of_mask = tuple(attention_mask.shape)
    if len(of_mask) != 2 or of_mask[0] != batch or of_mask[1] < length:
        raise ValueError(
            f"`decoder_attention_mask` must be {(batch, length)} like the target, with earlier tokens in front or "
            f"without, got shape {of_mask}."
        )


def check_labels(config: PreTrainedConfig, labels: torch.Tensor, target: torch.Tensor | None) -> None:
    """Refuse labels, (batch, target), that are no tokens, or not as many as the target has."""
    if target is not None:
        check_shape("labels", labels, target.shape[:2], " like the target")
    if labels.dim() != 2 or 0 in labels.shape:
        raise ValueError(f"`labels` must be (batch, target) with tokens, got shape {tuple(labels.shape)}.")
    ids = labels.masked_fill(labels == -100, 0)
    check_values("labels", ids, config.vocab_size, "vocab_size", also=", or -100")


def check_length(
    config: PreTrainedConfig, length: int, what: str = "source", name: str = "max_position_embeddings"
) -> None:
    """Refuse a source or target of more tokens than there are positions; `name` is their field of the config."""
    limit = getattr(config, name)
    if limit is None or length <= limit:
        return
    if not hasattr(config, "new_modules"):  # it does not begin as BART
        raise ValueError(
            f"The {what} has {length} tokens, more than {name}={limit}. {_REMEDIES[what]}, or train a model with more "
            "positions."
        )
    side = ', side="decoder"' if "decoder" in name else ""
    raise ValueError(
        f"A {what} of {length} tokens is longer than {name}={limit}. {_REMEDIES[what]}, or grow the positions with "
        f"`model.resize_position_embeddings({length}{side})` or `from_bart(…, {name}={length})` before fine-tuning."
    )


def check_decoded(
    config: PreTrainedConfig, cache: Cache | None, length: int, name: str = "max_position_embeddings"
) -> None:
    """Refuse to decode more tokens than positions; a static cache is counted only where it may hold too many."""
    past = 0 if cache is None else cache.get_seq_length()
    if isinstance(past, torch.Tensor):
        limit = getattr(config, name)
        if limit is None or torch.compiler.is_compiling() or cache.get_max_length() <= limit:
            return
        past = int(past)
    check_length(config, past + length, "target", name)


def refuse_flash_mask(mask: object, queries: int) -> None:
    """Refuse the mask of flash attention beside several queries: Transformers takes that of the keys for these too."""
    if isinstance(mask, torch.Tensor) and mask.dim() == 2 and queries > 1:
        raise ValueError(
            "Flash attention cannot read a batch with padding (or with unequal numbers of sentences) beside another "
            "sequence, such as a target of several tokens. Use batches of one document, or "
            '`model.set_attn_implementation("sdpa")`.'
        )


def refuse_flex_dropout(implementation: str | None, dropout: float) -> None:
    """Refuse FlexAttention with dropout, and say how to be rid of it."""
    if dropout and implementation == "flex_attention":
        raise ValueError(
            f"FlexAttention has no dropout of attention weights, got attention_dropout={dropout} (bart-base and "
            "bart-large have 0.1). Load the model with `attention_dropout=0.0` (in `from_bart`, `from_pretrained`, or "
            'a recipe\'s `config_overrides`), or use `model.set_attn_implementation("sdpa")`, which is slower with it.'
        )
