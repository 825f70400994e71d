"""Refuses inputs that the Highlight-Transformer cannot read, before they end in an index error inside it."""

import torch
from transformers.cache_utils import Cache
from transformers.configuration_utils import PreTrainedConfig


_REMEDIES = {
    "source": "Truncate it (`truncation=True` in the processor's call)",
    "target": "Truncate labels (`max_target_length` in the processor's call) or `generate` fewer `max_new_tokens`",
}


def check_inputs(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, source)
    inputs_embeds: torch.Tensor | None,  # (batch, source, d_model)
    attention_mask: torch.Tensor | None,  # (batch, source)
    phrase_positions: torch.Tensor | None,  # (batch, phrases, 2)
    phrase_values: torch.Tensor | None,  # (batch, phrases)
    source_ids: torch.Tensor | None,  # (batch, source)
) -> None:
    """Refuse inputs of the encoder that are missing, given twice, of a wrong shape, out of range or too long.

    Values are looked at on the CPU only: elsewhere it would make the device wait.
    """
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
        if inputs_embeds.dim() != 3 or 0 in inputs_embeds.shape or inputs_embeds.shape[-1] != config.d_model:
            raise ValueError(
                f"`inputs_embeds` must be (batch, source, d_model={config.d_model}), got shape "
                f"{tuple(inputs_embeds.shape)}."
            )
        shape = inputs_embeds.shape[:2]
    if attention_mask is not None and attention_mask.shape != shape:
        raise ValueError(
            f"`attention_mask` must be {tuple(shape)} like the tokens, got shape {tuple(attention_mask.shape)}."
        )
    check_length(config, shape[1], "source")
    if source_ids is not None:
        if source_ids.shape != shape:
            raise ValueError(
                f"`source_ids` must be {tuple(shape)} like the tokens, got shape {tuple(source_ids.shape)}."
            )
        _check_ids(config, "source_ids", source_ids)
    if (phrase_positions is None) != (phrase_values is None):
        missing = "phrase_positions" if phrase_positions is None else "phrase_values"
        raise ValueError(f"Give both of `phrase_positions` and `phrase_values`, or none of them; no `{missing}` came.")
    if phrase_positions is not None and phrase_values is not None:
        _check_phrases(config, phrase_positions, phrase_values, shape, attention_mask)


def check_length(config: PreTrainedConfig, length: int, what: str) -> None:
    """Refuse more tokens than there are positions."""
    limit = config.max_position_embeddings
    if limit is not None and length > limit:
        raise ValueError(
            f"A {what} of {length} tokens is longer than max_position_embeddings={limit}. {_REMEDIES[what]}, or grow "
            f"the positions with `model.resize_position_embeddings({length})` or `from_bart(…, "
            f"max_position_embeddings={length})` before fine-tuning."
        )


def check_decoded(config: PreTrainedConfig, cache: Cache | None, length: int) -> None:
    """Refuse to decode more tokens than there are positions."""
    past = 0 if cache is None else cache.get_seq_length()
    if isinstance(past, torch.Tensor):
        limit = config.max_position_embeddings
        if limit is None or torch.compiler.is_compiling() or cache.get_max_length() <= limit:
            return
        past = int(past)
    check_length(config, past + length, "target")


def check_target(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, target)
    inputs_embeds: torch.Tensor | None,  # (batch, target, d_model)
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
        shape, width = tuple(inputs_embeds.shape), config.d_model
        if len(shape) != 3 or 0 in shape or shape[-1] != width:
            raise ValueError(
                f"`decoder_inputs_embeds` must be (batch, target, d_model={width}) with tokens, got shape {shape}."
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
    if _can_look_at(ids):
        low, high = (int(value) for value in torch.aminmax(ids))
        if low < 0 or high >= config.vocab_size:
            raise ValueError(
                f"`{name}` must be in [0, vocab_size={config.vocab_size}){also}, got values from {low} to {high}."
            )


def _check_phrases(
    config: PreTrainedConfig,
    positions: torch.Tensor,
    values: torch.Tensor,
    shape: torch.Size,
    attention_mask: torch.Tensor | None,
) -> None:
    if positions.dim() != 3 or positions.shape[0] != shape[0] or positions.shape[2] != 2:
        raise ValueError(
            f"`phrase_positions` must be (batch={shape[0]}, phrases, 2), got shape {tuple(positions.shape)}."
        )
    if positions.is_floating_point() or positions.dtype == torch.bool:
        raise ValueError(f"`phrase_positions` must be integers, got {positions.dtype}.")
    if values.shape != positions.shape[:2]:
        raise ValueError(
            f"`phrase_values` must be {tuple(positions.shape[:2])}, one for each phrase, got shape "
            f"{tuple(values.shape)}."
        )
    if not (values.numel() and _can_look_at(positions) and _can_look_at(values)):
        return
    start, end = positions.unbind(-1)
    is_phrase = (start != -1) | (end != -1)
    lengths = torch.full(start.shape[:1], shape[1])
    if attention_mask is not None:  # from the first attended token to the last
        exists = (attention_mask != 0).cpu()
        spans = (torch.arange(shape[1]) * exists).amax(dim=1) + 1 - exists.int().argmax(dim=1)
        lengths = spans.where(exists.any(dim=1), lengths)  # in a row of padding there is nothing to highlight
    wrong = is_phrase & ((start < 0) | (end <= start) | (end > lengths[:, None]))
    if wrong.any():
        row, phrase = wrong.nonzero()[0].tolist()
        raise ValueError(
            "`phrase_positions` must hold the first token of each phrase and the one after its last, counted from the "
            f"document's first, inside of the document; -1 and -1 pad. Got {positions[row, phrase].tolist()} for "
            f"phrase {phrase} of row {row}, which has {lengths[row].item()} tokens."
        )
    longest = int((end - start).where(is_phrase, 0).max())
    if longest > config.max_phrase_length:
        raise ValueError(
            f"`phrase_positions` has a phrase of {longest} tokens, longer than max_phrase_length="
            f"{config.max_phrase_length}. Shorten it, leave it out, or set `model.config.max_phrase_length` to "
            f"{longest}."
        )
    low, high = (value.item() for value in torch.aminmax(values.detach().float().where(is_phrase, 0.0)))
    if not (low >= 0 and high < float("inf")):  # not a number is neither
        raise ValueError(f"`phrase_values` must be finite and not negative, got values from {low} to {high}.")


def _can_look_at(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


__all__ = ["check_decoded", "check_inputs", "check_labels", "check_length", "check_target"]
