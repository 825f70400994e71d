"""Copying: a mixture of the vocabulary's distribution and of attention to the source, in logarithms.

Source: Gehrmann, Deng and Rush 2018, "Bottom-Up Abstractive Summarization", section 3, after See, Liu and Manning
2017.

Axes in shape comments:
    batch       documents
    source      source tokens
    target      target tokens
"""

import torch
from torch import nn


def mix_log_probabilities(
    logits: torch.Tensor, gate: torch.Tensor, copy_attentions: torch.Tensor, source_ids: torch.Tensor
) -> torch.Tensor:
    """Logarithm of `(1 - p) softmax(logits) + p copied`, where `copied` sums attention over equal source tokens.

    Nothing of the vocabulary's size is held beside what the softmax needs: the mixture differs from it in one summand,
    and at the source's own tokens.

    Args:
        logits: scores of the vocabulary, (batch, target, vocabulary).
        gate: score of copying, whose sigmoid is p, (batch, target, 1).
        copy_attentions: weights that add up to one over the source, (batch, target, source).
        source_ids: token ids of the source, (batch, source).

    Returns:
        Log-probabilities, in float32 at least, (batch, target, vocabulary).
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    gate, weights = gate.to(wide), copy_attentions.to(wide)
    generated = logits.log_softmax(dim=-1, dtype=wide) + nn.functional.logsigmoid(-gate)
    if logits.shape[1] == 1:  # a step of generation: one more distribution is less work than sorting the source
        copied = torch.zeros_like(generated).scatter_add_(2, source_ids[:, None], weights)
        return _add(generated, copied, gate)
    ids, copied, is_token = _sum_over_equal_tokens(source_ids, weights)
    index = ids[:, None].expand_as(copied)
    mixed = _add(generated.gather(2, index), copied, gate)
    # What fills up writes again what the first token writes, and has no gradient of its own.
    mixed = mixed.where(is_token[:, None], mixed[:, :, :1].detach())
    return generated.scatter(2, index, mixed)  # not in place: gathering from it has its backward yet to come


def _add(generated: torch.Tensor, copied: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Add what is copied, a weight, to what is generated, a logarithm; without infinities where nothing is copied."""
    has_weight = copied > 0
    copied = copied.where(has_weight, 1.0).log() + nn.functional.logsigmoid(gate)
    return torch.logaddexp(generated, copied).where(has_weight, generated)


def _sum_over_equal_tokens(
    source_ids: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids of the source's tokens, each once, the weight of each, and which of them are not the first one again.

    Returns:
        (batch, source), (batch, target, source) and (batch, source).
    """
    ordered, order = source_ids.sort(dim=1, stable=True)
    is_new = ordered != ordered.roll(1, dims=1)
    is_new[:, 0] = False
    group = is_new.long().cumsum(dim=1)  # equal tokens are in the same
    ids = ordered[:, :1].expand_as(ordered).scatter(1, group, ordered)
    weights = weights.gather(2, order[:, None].expand_as(weights))
    weights = torch.zeros_like(weights).scatter_add(2, group[:, None].expand_as(weights), weights)
    is_token = torch.arange(ids.shape[1], device=ids.device) <= group[:, -1:]
    return ids, weights.where(is_token[:, None], weights[:, :, :1]), is_token


__all__ = ["mix_log_probabilities"]
