"""From tokens to segments: windows of tokens, pooled into one state each.

Source: Pang et al., "Long Document Summarization with Top-down and Bottom-up Inference", section 2.3. Tokens are cut
into pieces as long as the stride; each is summed whole and up to where a window ends inside of it, and a window is a
sum of such sums. So time and memory are linear, and no token is copied, however much windows overlap.

Axes in shape comments: batch, units (tokens, or the segments of the level below), segments (windows over them), pieces
(of `stride` units), sums (of a piece: whole, and up to the end of a window, for each kind of weight).
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils.generic import maybe_autocast

from .input_checks import can_look_at, check_shape, check_weights


class Segments(NamedTuple):
    """One level of segments, or the tokens."""

    states: torch.Tensor  # (batch, units, d_model)
    exists: torch.Tensor  # true for units, false for padding, (batch, units)
    # weight of each unit in the segment that it is pooled into, or `None` for equal ones, (batch, units).
    importance: torch.Tensor | None


def align(units: Segments) -> Segments:
    """Move each document to the beginning of its row, so that padding on the left does not move its segments."""
    if not torch.compiler.is_compiling() and bool(units.exists[:, 0].all()):
        return units
    batch, length = units.exists.shape
    first = units.exists.int().argmax(dim=1, keepdim=True)  # 0 where there is none
    source = first + torch.arange(length, device=first.device)  # (batch, units)
    inside, source = source < length, source.clamp(max=length - 1)
    rows = source + length * torch.arange(batch, device=first.device)[:, None]
    states = units.states.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, (batch, length))
    importance = None if units.importance is None else units.importance.gather(1, source)
    return Segments(states, units.exists.gather(1, source) & inside, importance)


def count_segments(lengths: torch.Tensor, kernel: int, stride: int) -> torch.Tensor:
    """Count the windows that begin at 0, stride, 2 · stride, … until one reaches the end of the document."""
    return ((lengths - kernel).clamp(min=0) + stride - 1) // stride + 1


def pool(units: Segments, kernel: int, stride: int) -> Segments:
    """Pool windows of units; equations 2 and 3. One whose weights are all zero takes the average of its units."""
    exists = units.exists
    ones = exists.to(_wide(units.states))  # (batch, units)
    kinds = [ones]
    if units.importance is not None:
        # The largest weight becomes 1, so that half precision neither overflows nor loses the small ones.
        weights = units.importance.to(ones.dtype).masked_fill(~exists, 0.0)
        kinds.append(weights / _positive(weights.amax(dim=1, keepdim=True)))
    kinds = [kind.to(units.states.dtype) for kind in kinds]

    # Of no negative number, whose quotient ONNX rounds up; and no branch, so that exported programs take any length.
    count = torch.sym_max(0, exists.shape[1] - kernel + stride - 1) // stride + 1
    weights = _split_weights(torch.stack(kinds, dim=1), kernel, stride)  # (batch, pieces, sums, stride)
    totals = _add_pieces(weights.to(_wide(weights)).sum(-1, keepdim=True), count, kernel, stride).squeeze(-1)
    # Autocast would round weights behind the back of their totals, in half precision even to zero.
    with maybe_autocast(units.states.device.type, enabled=False):
        pieces = _sum_pieces(units.states, weights)
    sums = _add_pieces(pieces, count, kernel, stride)  # (batch, segments, kinds, d_model)
    number, average = totals[..., 0], sums[:, :, 0] / _positive(totals[..., :1])
    states, importance = average, None
    if units.importance is not None:
        total = totals[..., 1:]  # (batch, segments, 1)
        states = torch.where(total > 0, sums[:, :, 1] / _positive(total), average)
        importance = total.squeeze(-1) / _positive(number)

    numbered = torch.arange(exists.shape[1], device=exists.device)
    lengths = (exists * (numbered + 1)).amax(dim=1, keepdim=True)  # up to the last unit, (batch, 1)
    place = torch.arange(count, device=exists.device)
    is_segment = (place < count_segments(lengths, kernel, stride)) & (number > 0)
    return Segments(states.to(units.states.dtype), is_segment | (place == 0), importance)


def segment_of_units(exists: torch.Tensor, segments: Segments, stride: int) -> torch.Tensor:
    """Find the segment that each unit begins in, the last one for those behind it, (batch, units)."""
    first = exists.int().argmax(dim=1, keepdim=True)
    place = (torch.arange(exists.shape[1], device=exists.device) - first).clamp(min=0)
    numbered = torch.arange(segments.exists.shape[1], device=exists.device)
    last = (segments.exists.to(exists.device) * numbered).amax(dim=1, keepdim=True)
    return torch.minimum(place // stride, last)


def _split_weights(weights: torch.Tensor, kernel: int, stride: int) -> torch.Tensor:
    """Cut weights (batch, kinds, units) into those of whole pieces and of their beginnings."""
    beginning = kernel - _whole_pieces(kernel, stride) * stride  # units of a window's last piece
    lacking = -weights.shape[-1] % stride
    whole = nn.functional.pad(weights, (0, lacking)).unflatten(-1, (-1, stride)).transpose(1, 2)
    inside = torch.arange(stride, device=weights.device) < beginning
    return torch.cat([whole, whole * inside], dim=2)  # (batch, pieces, 2 * kinds, stride)


def _sum_pieces(states: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Sum the states of each piece with each of its weights, (batch, pieces, sums, d_model)."""
    stride = weights.shape[-1]
    if torch.compiler.is_exporting():  # a copy, in place of branches that a length would decide
        states = nn.functional.pad(states, (0, 0, 0, weights.shape[1] * stride - states.shape[1]))
        found = torch.matmul(weights, states.unflatten(1, (-1, stride)))
        return found.to(_wide(found))
    full = states.shape[1] // stride
    sums = []
    if full:
        pieces = states[:, : full * stride].unflatten(1, (full, stride))
        sums.append(torch.matmul(weights[:, :full], pieces))
    if full * stride < states.shape[1]:
        rest = states[:, full * stride :]
        sums.append(torch.matmul(weights[:, full, :, : rest.shape[1]], rest).unsqueeze(1))
    found = torch.cat(sums, dim=1)
    return found.to(_wide(found))


def _add_pieces(pieces: torch.Tensor, count: int, kernel: int, stride: int) -> torch.Tensor:
    """Add up the sums of pieces (batch, pieces, sums, …) to those of windows, (batch, segments, kinds, …)."""
    whole_pieces = _whole_pieces(kernel, stride)
    lacking = count + whole_pieces - pieces.shape[1]
    padding = pieces.new_zeros(pieces.shape[0], lacking, *pieces.shape[2:])
    whole, beginning = torch.cat([pieces, padding], dim=1).chunk(2, dim=2)
    windows = beginning[:, whole_pieces : whole_pieces + count]
    for number in range(whole_pieces):
        windows = windows + whole[:, number : number + count]
    return windows


def _whole_pieces(kernel: int, stride: int) -> int:
    """Count the pieces of a window before its last one."""
    return -(-kernel // stride) - 1


def _positive(numbers: torch.Tensor) -> torch.Tensor:
    """Make a divisor of numbers that are not negative: where one is zero, so is what it divides."""
    return torch.where(numbers > 0, numbers, 1.0)


def _wide(numbers: torch.Tensor) -> torch.dtype:
    return torch.promote_types(numbers.dtype, torch.float32)


def check_importance(
    config: PreTrainedConfig, importance: torch.Tensor, shape: tuple[int, int], attention_mask: torch.Tensor | None
) -> None:
    """Refuse weights of tokens, (batch, source), that the model does not read, or that cannot weigh."""
    if config.pooling != "importance" or config.top_down_update == "none":
        wrong = "pooling" if config.pooling != "importance" else "top_down_update"
        raise ValueError(
            f"`token_importance` was given to a model with {wrong}={getattr(config, wrong)!r}, which does not read "
            'it. Load the model with `pooling="importance"` and a `top_down_update`, or leave it out.'
        )
    check_shape("token_importance", importance, shape)
    if not can_look_at(importance):
        return
    is_token = torch.ones_like(importance, dtype=torch.bool) if attention_mask is None else attention_mask != 0
    weights = importance.detach().float()
    check_weights("token_importance", weights.where(is_token, 1.0))
    nothing = ~((weights > 0) & is_token).any(dim=1)
    empty = (nothing & is_token.any(dim=1)).nonzero().flatten().tolist()
    if empty:
        raise ValueError(
            f"`token_importance` is zero for every token of row {empty[0]}, so there is nothing to weigh by. Give "
            "ones for this document, which take the average."
        )
