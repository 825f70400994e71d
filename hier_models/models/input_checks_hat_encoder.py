"""Refuses inputs that the encoder-only HAT cannot read, before they end in an index error inside it."""

import torch
from transformers.configuration_utils import PreTrainedConfig


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_inputs(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, tokens)
    inputs_embeds: torch.Tensor | None,  # (batch, tokens, hidden_size)
    *,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    bos_positions: torch.Tensor | None,  # (batch, sentences)
) -> None:
    """Refuse inputs that are missing, given twice, of a wrong shape, out of range or too long.

    Values are looked at on the CPU only: elsewhere it would make the device wait.
    """
    if (input_ids is None) == (inputs_embeds is None):
        got = "both" if input_ids is not None else "none"
        raise ValueError(f"Give exactly one of `input_ids` and `inputs_embeds`, got {got}.")
    if inputs_embeds is None:
        assert input_ids is not None
        if input_ids.dim() != 2 or 0 in input_ids.shape:
            raise ValueError(f"`input_ids` must be (batch, tokens), got {_shape(input_ids)}.")
        batch, length = input_ids.shape
        _check_values("input_ids", input_ids, 0, config.vocab_size, "vocab_size")
    else:
        if inputs_embeds.dim() != 3 or 0 in inputs_embeds.shape or inputs_embeds.shape[-1] != config.hidden_size:
            raise ValueError(
                f"`inputs_embeds` must be (batch, tokens, hidden_size={config.hidden_size}), got "
                f"{_shape(inputs_embeds)}."
            )
        batch, length = inputs_embeds.shape[:2]

    if attention_mask is not None and attention_mask.dim() == 2:
        _check_shape("attention_mask", attention_mask, (batch, length))
    if token_type_ids is not None:
        _check_shape("token_type_ids", token_type_ids, (batch, length))
        _check_values("token_type_ids", token_type_ids, 0, config.type_vocab_size, "type_vocab_size")
    if position_ids is not None:
        _check_shape("position_ids", position_ids, (batch, length), (1, length))
        _check_values("position_ids", position_ids, 0, config.max_position_embeddings, "max_position_embeddings")
    elif not config.silent_markers:  # they take no position, see `silence_markers`
        check_length(config, input_ids, length)
    if bos_positions is not None:
        if (
            bos_positions.dim() != 2
            or bos_positions.shape[0] != batch
            or not bos_positions.shape[1]
            or bos_positions.dtype not in _INTEGERS
        ):
            raise ValueError(
                f"`bos_positions` must be integers of shape (batch={batch}, sentences), padded with -1, got "
                f"{_shape(bos_positions)} of {bos_positions.dtype}."
            )
        _check_values("bos_positions", bos_positions, -1, length, "number of tokens")


def check_choices(name: str, tensor: torch.Tensor | None, dimensions: int) -> None:
    """Refuse an input of multiple choice without an axis of choices."""
    if tensor is not None and tensor.dim() != dimensions:
        axes = "(batch, choices, tokens)" if dimensions == 3 else "(batch, choices, tokens, hidden_size)"
        axes = "(batch, choices, sentences)" if name == "bos_positions" else axes
        raise ValueError(f"`{name}` must be {axes}, got {_shape(tensor)}.")


def check_length(config: PreTrainedConfig, input_ids: torch.Tensor | None, length: int) -> None:
    """Refuse more tokens than there are positions."""
    # input_ids (batch, tokens)
    longest = config.max_position_embeddings - config.pad_token_id - 1
    if length <= longest:
        return
    if input_ids is not None:  # padding does not count; a rare case, so that the device may wait
        if torch.compiler.is_compiling():
            return
        length = int((input_ids != config.pad_token_id).sum(dim=1).max())
    if length > longest:
        raise ValueError(
            f"A text of {length} tokens is longer than the {longest} that max_position_embeddings="
            f"{config.max_position_embeddings} and pad_token_id={config.pad_token_id} leave. Truncate it "
            "(`truncation=True` in the processor's call), or cut it into windows (`stride` and "
            "`return_overflowing_tokens=True`)."
        )


def _check_shape(name: str, tensor: torch.Tensor, *allowed: tuple[int, int]) -> None:
    if tuple(tensor.shape) not in allowed:
        shapes = " or ".join(str(shape) for shape in allowed)
        raise ValueError(f"`{name}` must be {shapes} like the tokens, got {_shape(tensor)}.")


def _check_values(name: str, tensor: torch.Tensor, least: int, end: int, limit: str) -> None:
    if tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return
    low, high = (int(value) for value in torch.aminmax(tensor))
    if low < least or high >= end:
        raise ValueError(f"`{name}` must be in [{least}, {limit}={end}), got values from {low} to {high}.")


def _shape(tensor: torch.Tensor) -> str:
    return f"shape {tuple(tensor.shape)}"


__all__ = ["check_choices", "check_inputs", "check_length"]
