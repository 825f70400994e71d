"""Refuses inputs that HAM cannot read, before they end in an index error inside it."""

import torch
from transformers.cache_utils import Cache
from transformers.configuration_utils import PreTrainedConfig


def check_inputs(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, source)
    inputs_embeds: torch.Tensor | None,  # (batch, source, embedding_size)
    attention_mask: torch.Tensor | None,  # (batch, source)
    keyword_mask: torch.Tensor | None,  # (batch, source)
) -> None:
    """Refuse inputs of the encoder that are missing, given twice, of a wrong shape or out of range."""
    if (input_ids is None) == (inputs_embeds is None):
        got = "both" if input_ids is not None else "none"
        raise ValueError(f"Give exactly one of `input_ids` and `inputs_embeds`, got {got}.")
    if input_ids is not None:
        if input_ids.dim() != 2 or 0 in input_ids.shape:
            raise ValueError(f"`input_ids` must be (batch, source), got shape {tuple(input_ids.shape)}.")
        shape = input_ids.shape
        _check_ids(config, "input_ids", input_ids)
    else:
        assert inputs_embeds is not None
        width = config.embedding_size
        if inputs_embeds.dim() != 3 or 0 in inputs_embeds.shape or inputs_embeds.shape[-1] != width:
            raise ValueError(
                f"`inputs_embeds` must be (batch, source, embedding_size={width}), got shape "
                f"{tuple(inputs_embeds.shape)}."
            )
        shape = inputs_embeds.shape[:2]
    for name, mask in (("attention_mask", attention_mask), ("keyword_mask", keyword_mask)):
        if mask is not None and mask.shape != shape:
            raise ValueError(f"`{name}` must be {tuple(shape)} like the tokens, got shape {tuple(mask.shape)}.")
    if config.body == "transformer":
        check_length(config, shape[1], "source")


def check_source(states: torch.Tensor, attention_mask: torch.Tensor | None) -> None:
    """Refuse a mask that does not fit the states of a source."""
    # states (batch, source, d_model), attention_mask (batch, source)
    if attention_mask is not None and attention_mask.shape != states.shape[:2]:
        raise ValueError(
            f"`attention_mask` must be {tuple(states.shape[:2])} like `encoder_outputs`, got shape "
            f"{tuple(attention_mask.shape)}."
        )


def check_length(config: PreTrainedConfig, length: int, part: str) -> None:
    """Refuse more tokens than there are positions."""
    if length > config.max_position_embeddings:
        raise ValueError(
            f"The {part} has {length} tokens, more than max_position_embeddings={config.max_position_embeddings}. "
            "Truncate it (`truncation=True` with `max_length`), or train a model with more positions."
        )


def check_decoded(config: PreTrainedConfig, cache: Cache | None, length: int) -> None:
    """Refuse to decode more tokens than there are positions."""
    past = 0 if cache is None else cache.get_seq_length()
    if isinstance(past, torch.Tensor):
        if torch.compiler.is_compiling() or cache.get_max_length() <= config.max_position_embeddings:
            return
        past = int(past)
    check_length(config, past + length, "target")


def check_target(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, target)
    inputs_embeds: torch.Tensor | None,  # (batch, target, embedding_size)
    source: torch.Tensor | None,  # (batch, source, d_model)
    attention_mask: torch.Tensor | None,  # (batch, target)
) -> None:
    """Refuse a target that is missing or given twice, has no tokens, or does not fit its source or its mask."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Give exactly one of `decoder_input_ids` and `decoder_inputs_embeds`.")
    if input_ids is not None:
        shape = tuple(input_ids.shape)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"`decoder_input_ids` must be (batch, target) with tokens, got shape {shape}.")
        _check_ids(config, "decoder_input_ids", input_ids)
    else:
        assert inputs_embeds is not None
        shape, width = tuple(inputs_embeds.shape), config.embedding_size
        if len(shape) != 3 or 0 in shape or shape[-1] != width:
            raise ValueError(
                f"`decoder_inputs_embeds` must be (batch, target, embedding_size={width}) with tokens, got shape "
                f"{shape}."
            )
    batch, length = shape[:2]
    if source is not None and len(source) != batch:
        raise ValueError(f"The target must have batch={len(source)} like the source, got batch={batch}.")
    if attention_mask is None or not isinstance(attention_mask, torch.Tensor) or attention_mask.dim() == 4:
        return
    of_mask = tuple(attention_mask.shape)
    if len(of_mask) != 2 or of_mask[0] != batch or of_mask[1] < length:
        raise ValueError(
            f"`decoder_attention_mask` must be {(batch, length)} like the target, with earlier tokens in front or "
            f"without, got shape {of_mask}."
        )


def check_labels(config: PreTrainedConfig, labels: torch.Tensor, target: torch.Tensor | None) -> None:
    """Refuse labels that are no tokens, or not as many as the target has."""
    # labels (batch, target), target (batch, target, …)
    shape = tuple(labels.shape)
    if target is not None and shape != target.shape[:2]:
        raise ValueError(f"`labels` must be {tuple(target.shape[:2])} like the target, got shape {shape}.")
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"`labels` must be (batch, target) with tokens, got shape {shape}.")
    _check_ids(config, "labels", labels.masked_fill(labels == -100, 0), ", or -100")


def _check_ids(config: PreTrainedConfig, name: str, ids: torch.Tensor, also: str = "") -> None:
    """Values are looked at on the CPU only: elsewhere it would make the device wait."""
    if ids.device.type != "cpu" or torch.compiler.is_compiling():
        return
    low, high = (int(value) for value in torch.aminmax(ids))
    if low < 0 or high >= config.vocab_size:
        raise ValueError(
            f"`{name}` must be in [0, vocab_size={config.vocab_size}){also}, got values from {low} to {high}."
        )


def check_arguments(
    embed_dim: int,
    depth: int,
    num_heads: int,
    scoring: str,
    keys: str,
    level_weights: str,
    dropout: float,
    kdim: int,
    vdim: int,
) -> None:
    """Refuse what no [`HierarchicalAttention`] can be made of."""
    sizes = {"embed_dim": embed_dim, "depth": depth, "num_heads": num_heads, "kdim": kdim, "vdim": vdim}
    for name, value in sizes.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}.")
    for name, choice, allowed in (
        ("scoring", scoring, ("scaled_dot_product", "additive", "bilinear")),
        ("keys", keys, ("level", "input")),
        ("level_weights", level_weights, ("learned", "first", "last")),
    ):
        if choice not in allowed:
            raise ValueError(f"`{name}` must be one of {', '.join(map(repr, allowed))}, got {choice!r}.")
    if not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise ValueError(f"`dropout` must be between 0 and 1, got {dropout!r}.")
    if embed_dim % num_heads:
        raise ValueError(f"`num_heads` must divide embed_dim={embed_dim}, got {num_heads}.")
    if num_heads == 1 and vdim != embed_dim:
        raise ValueError(
            f"`vdim` must be embed_dim={embed_dim} with one head, got {vdim}: nothing is projected, and a level's "
            "result is the next level's query."
        )
    if num_heads == 1 and scoring == "scaled_dot_product" and kdim != embed_dim:
        raise ValueError(
            f"`kdim` must be embed_dim={embed_dim} with one head and scaled dot products, got {kdim}: nothing is "
            "projected."
        )


def check_memory(
    widths: tuple[int, int], key: torch.Tensor, value: torch.Tensor, key_padding_mask: torch.Tensor | None
) -> None:  # key (batch, keys, kdim), value (batch, keys, vdim), key_padding_mask (batch, keys)
    """Refuse keys and values that do not fit an attention or each other."""
    kdim, vdim = widths
    if key.dim() != 3 or key.shape[-1] != kdim:
        raise ValueError(f"`key` must be (batch, keys, kdim={kdim}), got shape {tuple(key.shape)}.")
    if value.shape != (*key.shape[:2], vdim):
        raise ValueError(f"`value` must be {(*key.shape[:2], vdim)} for the keys, got shape {tuple(value.shape)}.")
    if key_padding_mask is not None and key_padding_mask.shape != key.shape[:2]:
        raise ValueError(
            f"`key_padding_mask` must be {tuple(key.shape[:2])} like the keys, got shape "
            f"{tuple(key_padding_mask.shape)}."
        )


__all__ = [
    "check_arguments",
    "check_decoded",
    "check_inputs",
    "check_labels",
    "check_length",
    "check_memory",
    "check_source",
    "check_target",
]
