"""Refuses inputs that the encoder-only HAT cannot read."""

import torch
from transformers.configuration_utils import PreTrainedConfig

from .input_checks import check_shape, check_source, check_values


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_inputs(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, tokens)
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    bos_positions: torch.Tensor | None,  # (batch, sentences)
    inputs_embeds: torch.Tensor | None,  # (batch, tokens, hidden_size)
) -> None:
    """Refuse inputs that are missing, given twice, of a wrong shape, out of range or too long."""
    batch, length = check_source(
        config, input_ids, inputs_embeds, attention_mask, width="hidden_size", axis="tokens", takes_made_masks=True
    )
    if token_type_ids is not None:
        check_shape("token_type_ids", token_type_ids, (batch, length))
        check_values("token_type_ids", token_type_ids, config.type_vocab_size, "type_vocab_size")
    if position_ids is not None:
        if tuple(position_ids.shape) != (1, length):
            check_shape("position_ids", position_ids, (batch, length), f" or {(1, length)} like the tokens")
        check_values("position_ids", position_ids, config.max_position_embeddings, "max_position_embeddings")
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
                f"shape {tuple(bos_positions.shape)} of {bos_positions.dtype}."
            )
        check_values("bos_positions", bos_positions, length, "number of tokens", least=-1)


def check_choices(name: str, tensor: torch.Tensor | None, dimensions: int) -> None:
    """Refuse an input of multiple choice without an axis of choices."""
    if tensor is not None and tensor.dim() != dimensions:
        axes = "(batch, choices, tokens)" if dimensions == 3 else "(batch, choices, tokens, hidden_size)"
        axes = "(batch, choices, sentences)" if name == "bos_positions" else axes
        raise ValueError(f"`{name}` must be {axes}, got shape {tuple(tensor.shape)}.")


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
