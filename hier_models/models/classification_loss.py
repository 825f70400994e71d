"""Losses of the heads, as in RoBERTa, and right when gradients are accumulated over several batches."""

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig


def cross_entropy(
    logits: torch.Tensor,  # (…, classes)
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
    ignore_index: int = -100,
) -> torch.Tensor:
    """Mean cross entropy over the labels."""
    labels = labels.to(logits.device).reshape(-1)
    logits = logits.reshape(len(labels), -1)
    if num_items_in_batch is None:
        return nn.functional.cross_entropy(logits, labels, ignore_index=ignore_index)
    total = nn.functional.cross_entropy(logits, labels, ignore_index=ignore_index, reduction="sum")
    return total / num_items_in_batch


def classification_loss(
    config: PreTrainedConfig,
    logits: torch.Tensor,  # (batch, num_labels)
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Loss of sequence classification for any `problem_type`; one that is not set yet is told from the labels."""
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
