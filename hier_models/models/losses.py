"""Losses of tokens and of texts: means over a batch, or over the whole accumulated one that a Trainer counts."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling
from transformers.configuration_utils import PreTrainedConfig


# Numbers of scores that are worked on at once, beside the logits.
NUMBERS_AT_ONCE = 2**22


def token_loss(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: Any = None, are_logs: bool = False
) -> torch.Tensor:  # logits (batch, tokens, classes), labels (batch, tokens)
    """Cross entropy of tokens, or what is left of it where the logits are logarithms of probabilities."""
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"`labels` must be {tuple(logits.shape[:-1])}, one for each token, got shape {tuple(labels.shape)}."
        )
    return cross_entropy(logits, labels, num_items_in_batch, are_logs)


def cross_entropy(
    logits: torch.Tensor,  # (…, classes)
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
    are_logs: bool = False,
) -> torch.Tensor:
    """Mean over labels that are not -100."""
    labels, logits = labels.to(logits.device, torch.long).reshape(-1), logits.flatten(0, -2)
    reduction = "mean" if num_items_in_batch is None else "sum"
    if are_logs:
        loss = nn.functional.nll_loss(logits, labels, reduction=reduction)
    elif is_compiling() or logits.numel() <= NUMBERS_AT_ONCE:
        wide = torch.promote_types(logits.dtype, torch.float32)
        loss = nn.functional.cross_entropy(logits.to(wide), labels, reduction=reduction)
    else:
        chosen: torch.Tensor = _LogProbabilities.apply(logits, labels)
        loss = nn.functional.nll_loss(chosen, labels.clamp(max=0), reduction=reduction)
    return loss if num_items_in_batch is None else per_item(loss, num_items_in_batch)


def per_item(total: torch.Tensor, number: torch.Tensor | int) -> torch.Tensor:
    """Divide by a number of items, which the Trainer may have on another device."""
    return total / (number.to(total.device) if isinstance(number, torch.Tensor) else number)


class _LogProbabilities(torch.autograd.Function):
    """That of each label, in chunks of tokens: nothing is as large as the logits but their gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        index = labels.clamp(min=0)[:, None]
        wide = torch.promote_types(logits.dtype, torch.float32)
        chosen = torch.empty(index.shape, dtype=wide, device=logits.device)
        sums = torch.empty_like(chosen)
        for part in parts(logits):
            rows = logits[part].to(wide)
            sums[part] = rows.logsumexp(dim=-1, keepdim=True)
            chosen[part] = rows.gather(1, index[part]) - sums[part]
        ctx.save_for_backward(logits, index, sums)
        return chosen  # (tokens, 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        logits, index, sums = ctx.saved_tensors
        of_logits = torch.empty_like(logits)
        for part in parts(logits):
            rows = (logits[part] - sums[part]).exp_().mul_(-grad[part])  # in the type of the sums
            of_logits[part] = rows.scatter_add_(1, index[part], grad[part])
        return of_logits, None


def parts(logits: torch.Tensor) -> Iterator[slice]:
    """Divide the first axis, of target tokens, so that not too much beside the logits is held at once."""
    at_once = max(1, NUMBERS_AT_ONCE * len(logits) // max(1, logits.numel()))
    return (slice(first, first + at_once) for first in range(0, len(logits), at_once))


def span_loss(
    start: torch.Tensor,  # (batch, tokens)
    end: torch.Tensor,
    start_positions: torch.Tensor,  # (batch,)
    end_positions: torch.Tensor,
) -> torch.Tensor:
    """Mean of the losses of starts and of ends; positions outside of the text count for nothing."""
    losses = []
    for name, logits, places in (("start_positions", start, start_positions), ("end_positions", end, end_positions)):
        if places.numel() != len(logits):
            raise ValueError(f"`{name}` must be one for each of {len(logits)} texts, got {tuple(places.shape)}.")
        places = torch.where((places >= 0) & (places < logits.shape[1]), places, -100)
        losses.append(cross_entropy(logits, places, (places != -100).sum().clamp(min=1).to(logits.device)))
    return (losses[0] + losses[1]) / 2


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
    return per_item(measure(logits, labels.view_as(logits), reduction="sum"), num_items_in_batch)
