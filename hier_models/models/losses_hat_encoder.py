"""Losses of the heads, as in RoBERTa, and right when gradients are accumulated over several batches."""

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
    ignore_index: int = -100,
) -> torch.Tensor:
    """Mean cross entropy over the labels.

    Args:
        logits: scores, `(…, classes)`.
        labels: classes, `(…)`.
        num_items_in_batch: labels in the whole accumulated batch. The result is then this batch's share of the mean
            over all of them; without, the mean over this batch.
        ignore_index: label without loss.

    Returns:
        The loss, a scalar.
    """
    labels = labels.to(logits.device).reshape(-1)
    logits = logits.reshape(len(labels), -1)
    if num_items_in_batch is None:
        return nn.functional.cross_entropy(logits, labels, ignore_index=ignore_index)
    total = nn.functional.cross_entropy(logits, labels, ignore_index=ignore_index, reduction="sum")
    return total / num_items_in_batch


def classification_loss(
    config: PreTrainedConfig,
    logits: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Loss of sequence classification for any `problem_type`; one that is not set yet is told from the labels.

    Args:
        config: of the model. What was told from the labels is kept in it, where pipelines look for it.
        logits: scores, `(batch, num_labels)`.
        labels: classes, `(batch,)`; or numbers, or 0 and 1, as many as `logits`.
        num_items_in_batch: see `cross_entropy`.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: if numbers are needed, and there are not as many as `logits`.
    """
    labels = labels.to(logits.device)
    if config.problem_type is None:
        if logits.shape[-1] == 1:
            config.problem_type = "regression"
        elif labels.dtype in (torch.long, torch.int):
            config.problem_type = "single_label_classification"
        else:
            config.problem_type = "multi_label_classification"
    if config.problem_type == "single_label_classification":
        return cross_entropy(logits, labels, num_items_in_batch)
    if labels.numel() != logits.numel():
        raise ValueError(
            f"`labels` must hold {tuple(logits.shape)} values for problem_type={config.problem_type!r}, got shape "
            f"{tuple(labels.shape)}."
        )
    is_regression = config.problem_type == "regression"
    measure = nn.functional.mse_loss if is_regression else nn.functional.binary_cross_entropy_with_logits
    if num_items_in_batch is None:
        return measure(logits, labels.view_as(logits))
    return measure(logits, labels.view_as(logits), reduction="sum") / num_items_in_batch


__all__ = ["classification_loss", "cross_entropy"]
