"""Refuses inputs that the Coarse-to-Fine LSTM cannot read, before they end in an index error inside it."""

import torch
from transformers.configuration_utils import PreTrainedConfig


def check_inputs(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, source)
    inputs_embeds: torch.Tensor | None,  # (batch, source, embedding_size)
    attention_mask: torch.Tensor | None,  # (batch, source)
    row_ids: torch.Tensor | None,  # (batch, source)
) -> None:
    """Refuse inputs of the encoder that are missing, given twice, of a wrong shape or out of range.

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
        width = config.embedding_size
        if inputs_embeds.dim() != 3 or 0 in inputs_embeds.shape or inputs_embeds.shape[-1] != width:
            raise ValueError(
                f"`inputs_embeds` must be (batch, source, embedding_size={width}), got shape "
                f"{tuple(inputs_embeds.shape)}."
            )
        if config.attends_to_rows and config.coarse_representation == "bag_of_words":
            raise ValueError(
                "`inputs_embeds` must not be given with coarse_representation='bag_of_words', which has embeddings of "
                "its own and needs the words. Give `input_ids`."
            )
        shape = inputs_embeds.shape[:2]
    if attention_mask is not None and attention_mask.shape != shape:
        raise ValueError(
            f"`attention_mask` must be {tuple(shape)} like the tokens, got shape {tuple(attention_mask.shape)}."
        )
    if row_ids is not None:
        _check_row_ids(row_ids, shape)


def check_num_rows(config: PreTrainedConfig, num_rows: int) -> None:
    """Refuse more rows than there are row positions."""
    if config.attends_to_rows and config.row_position_size and num_rows > config.max_rows:
        raise ValueError(
            f"`row_ids` has {num_rows} rows, more than max_rows={config.max_rows} row positions. Truncate the "
            "document (`truncation=True` with the processor's `num_rows`), or train a model with a larger `max_rows`, "
            "or without row positions (`row_position_size=0`)."
        )


def check_target(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, target)
    inputs_embeds: torch.Tensor | None,  # (batch, target, embedding_size)
    attention_mask: torch.Tensor | None,  # (batch, target)
) -> None:
    """Refuse a target that is missing or given twice, has no tokens, or does not fit its mask."""
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
    if attention_mask is None:
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


def _check_row_ids(row_ids: torch.Tensor, shape: torch.Size) -> None:
    if row_ids.shape != shape:
        raise ValueError(f"`row_ids` must be {tuple(shape)} like the tokens, got shape {tuple(row_ids.shape)}.")
    if row_ids.is_floating_point() or row_ids.dtype == torch.bool:
        raise ValueError(f"`row_ids` must be integers, got {row_ids.dtype}.")
    if not _can_look_at(row_ids):
        return
    if (row_ids < -1).any():
        raise ValueError(f"`row_ids` must count from 0, or be -1 for padding; got {int(row_ids.min())}.")
    before = row_ids.cummax(dim=1).values
    falls = (row_ids >= 0) & (row_ids < before)
    if falls.any():
        document, token = falls.nonzero()[0].tolist()
        raise ValueError(
            f"`row_ids` must not decrease in a document, got {int(row_ids[document, token])} after "
            f"{int(before[document, token])} at token {token} of document {document}."
        )


def _can_look_at(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


__all__ = ["check_inputs", "check_labels", "check_num_rows", "check_target"]
