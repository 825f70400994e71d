"""Refuses inputs that HAT-BART cannot read, before they end in an index error inside it."""

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
    segment_ids: torch.Tensor | None,  # (batch, source)
    bos_positions: torch.Tensor | None,  # (batch, sentences)
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
    if attention_mask is not None and attention_mask.dim() == 2 and attention_mask.shape != shape:
        raise ValueError(
            f"`attention_mask` must be {tuple(shape)} like the tokens, got shape {tuple(attention_mask.shape)}."
        )
    if not config.silent_markers:  # they take no position, see `silence_markers`
        check_length(config, shape[1], "source")
    if segment_ids is not None:
        _check_segment_ids(config, segment_ids, shape)
    if bos_positions is not None and (config.hierarchical_layers or config.silent_markers):
        _check_bos_positions(bos_positions, shape, attention_mask)


def check_length(config: PreTrainedConfig, length: int, what: str) -> None:
    """Refuse more tokens than there are positions."""
    if length > config.max_position_embeddings:
        raise ValueError(
            f"A {what} of {length} tokens is longer than max_position_embeddings={config.max_position_embeddings}. "
            f"{_REMEDIES[what]}, or grow the positions with `from_bart(…, max_position_embeddings={length})` before "
            "fine-tuning."
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


def _check_segment_ids(config: PreTrainedConfig, segment_ids: torch.Tensor, shape: torch.Size) -> None:
    if not config.num_segments:
        raise ValueError(
            "`segment_ids` were given to a model without segment embeddings. Load it with `num_segments=` set to "
            "the largest number of roles in a document, or make the processor with `num_segments=0`."
        )
    if segment_ids.shape != shape:
        raise ValueError(
            f"`segment_ids` must be {tuple(shape)} like the tokens, got shape {tuple(segment_ids.shape)}."
        )
    if _can_look_at(segment_ids):
        low, high = (int(value) for value in torch.aminmax(segment_ids))
        if low < 0 or high >= config.num_segments:
            raise ValueError(
                f"`segment_ids` must be in [0, num_segments={config.num_segments}), got values from {low} to {high}."
            )


def _check_bos_positions(positions: torch.Tensor, shape: torch.Size, attention_mask: torch.Tensor | None) -> None:
    if positions.dim() != 2 or positions.shape[0] != shape[0] or positions.shape[1] == 0:
        raise ValueError(f"`bos_positions` must be (batch={shape[0]}, sentences), got shape {tuple(positions.shape)}.")
    if positions.is_floating_point() or positions.dtype == torch.bool:
        raise ValueError(f"`bos_positions` must be integers, got {positions.dtype}.")
    if not _can_look_at(positions):
        return
    low, high = (int(value) for value in torch.aminmax(positions))
    if low < -1 or high >= shape[1]:
        raise ValueError(
            f"`bos_positions` must be positions of the source's {shape[1]} tokens, or -1 for padding, got values from "
            f"{low} to {high}."
        )
    if attention_mask is None or attention_mask.dim() != 2:
        return
    is_token = attention_mask.to(positions.device) != 0
    is_padding = (positions >= 0) & ~is_token.gather(1, positions.clamp(min=0).long())
    wrong = (is_padding & is_token.any(dim=1, keepdim=True)).nonzero()  # a row of padding has no sentence to mark
    if len(wrong):
        row, sentence = wrong[0].tolist()
        raise ValueError(
            f"`bos_positions` must be positions of tokens, or -1 for padding; {int(positions[row, sentence])} in row "
            f"{row} is padding by `attention_mask`."
        )


def _can_look_at(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


__all__ = ["check_decoded", "check_inputs", "check_labels", "check_length", "check_target"]
