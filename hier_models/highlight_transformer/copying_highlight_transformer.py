"""Copying: a mixture of the vocabulary's distribution and of attention to the source, in logarithms.

Source: Gehrmann, Deng and Rush 2018, "Bottom-Up Abstractive Summarization", section 3, after See, Liu and Manning
2017.

Axes in shape comments:
    batch       documents
    source      source tokens
    target      target tokens
"""

import torch


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
    gate = gate.to(wide)
    generated = logits.log_softmax(dim=-1, dtype=wide) + torch.nn.functional.logsigmoid(-gate)

    # Every token of the source gets a group, equal ones the same; groups past the last are empty.
    ordered, order = source_ids.sort(dim=1, stable=True)
    is_new = ordered != ordered.roll(1, dims=1)
    is_new[:, 0] = False
    group = is_new.long().cumsum(dim=1)  # (batch, source)
    ids = torch.zeros_like(ordered).scatter(1, group, ordered)  # of each group
    shape = copy_attentions.shape
    weights = copy_attentions.to(wide).gather(2, order[:, None].expand(shape))
    copied = torch.zeros_like(weights).scatter_add(2, group[:, None].expand(shape), weights)  # (batch, target, source)

    has_weight = copied > 0
    copied = copied.where(has_weight, 1.0).log() + torch.nn.functional.logsigmoid(gate)
    index = ids[:, None].expand(shape)
    present = generated.gather(2, index)
    # What copying adds to the logarithm: nothing where nothing is copied.
    gain = (torch.logaddexp(present, copied) - present).where(has_weight, 0.0)
    return generated.scatter_add(2, index, gain)


__all__ = ["mix_log_probabilities"]
