"""The highlighting matrix, held as a band: its rows inside of key phrases, in each the entries around the diagonal.

Source: Liu et al., "Highlight-Transformer", section 3.1.
Axes in shape comments: batch, tokens (of the source), phrases (occurrences in a document, padded), rows (tokens inside
of phrases, padded), width (entries of a row of the band).
"""

from typing import NamedTuple

import torch
from transformers.configuration_utils import PreTrainedConfig

from .input_checks import can_look_at, check_integers, check_shape, check_weights


class Band(NamedTuple):
    """The highlighting matrix times the brightness, in the rows that are highlighted (section 3.1)."""

    # the highlighted tokens, each once, (batch, rows). Where a document has fewer than another, others of its tokens
    # fill up; their entries are zero.
    rows: torch.Tensor
    # the tokens around each, in the order of the entries, (batch, rows, width); at the ends of the batch, the
    # outermost token stands in for those beyond it, with zero entries.
    columns: torch.Tensor
    values: torch.Tensor  # the entries, in float32 at least, (batch, rows, width)
    # the row that is each column's own, (batch, rows, width): whatever is highlighted for one token has a row itself.
    # 0 where the entry is zero.
    partners: torch.Tensor
    exists: torch.Tensor | None  # true for tokens, false for padding, (batch, tokens); `None` without padding

    def dense(self, tokens: int) -> torch.Tensor:
        """Return all of the matrix, (batch, tokens, tokens)."""
        rows = self.values.new_zeros(*self.rows.shape, tokens).scatter_add_(2, self.columns, self.values)
        whole = self.values.new_zeros(len(rows), tokens, tokens)
        return whole.scatter_(1, self.rows[:, :, None].expand_as(rows), rows)


def make_band(
    phrase_positions: torch.Tensor,  # (batch, phrases, 2)
    phrase_values: torch.Tensor,  # (batch, phrases)
    attention_mask: torch.Tensor | None,  # (batch, tokens)
    tokens: int,
    brightness: float,
    max_phrase_length: int,
    dtype: torch.dtype = torch.float32,
) -> Band | None:
    """Build the matrix: each phrase adds its value to the entries between its own tokens. Source: section 3.1."""
    batch, phrases = phrase_values.shape
    start, end = phrase_positions.unbind(-1)
    length = (end - start).clamp(min=0)
    values = (phrase_values.detach().to(dtype) * brightness).where(length > 0, 0.0)  # alpha v
    exists = None if attention_mask is None else attention_mask != 0
    if not phrases or not brightness:
        return None
    fixed = torch.compiler.is_compiling()  # shapes must then not depend on values
    longest = min(max_phrase_length, tokens) if fixed else int(length.max())
    if fixed:  # where values are not looked at, and room is not made for more
        torch._assert_async(
            (length <= longest).all(),
            f"`phrase_positions` has a phrase longer than max_phrase_length={max_phrase_length} or the source.",
        )
    if not longest:
        return None

    offsets = torch.arange(longest, device=start.device)
    place = start[:, :, None] + offsets  # (batch, phrases, longest)
    if exists is not None:
        place = place + exists.int().argmax(dim=1)[:, None, None]
    inside = (offsets < length[:, :, None]) & (place < tokens)
    place = place.where(inside, tokens).flatten(1)  # what is outside goes to a place behind the document
    covered = torch.zeros(batch, tokens + 1, dtype=torch.int32, device=start.device)
    covered = covered.scatter_(1, place, 1)[:, :tokens]
    count = min(tokens, phrases * longest) if fixed else int(covered.sum(dim=1).max())
    order = torch.arange(tokens, device=start.device) - tokens * covered  # no two alike: ONNX has no stable sort
    rows = order.sort(dim=1).indices[:, :count].sort(dim=1).values
    number = torch.full((batch, tokens + 1), count, device=start.device)  # of the row of each token
    number.scatter_(1, rows, torch.arange(count, device=start.device).expand(batch, -1))

    width = 2 * longest - 1
    row = number.gather(1, place).view(batch, phrases, longest, 1)
    entry = row * width + offsets - offsets[:, None] + longest - 1  # (batch, phrases, longest, longest)
    added = values[:, :, None, None] * (inside[:, :, :, None] & inside[:, :, None, :])
    sums = values.new_zeros(batch, (count + 1) * width).scatter_add_(1, entry.flatten(1), added.flatten(1))
    entries = sums.view(batch, count + 1, width)[:, :count]

    columns = rows[:, :, None] + torch.arange(1 - longest, longest, device=start.device)
    columns = columns.clamp(0, tokens - 1)  # (batch, rows, width)
    if exists is not None:
        entries = entries * exists.gather(1, columns.flatten(1)).view_as(columns)
    partners = number.gather(1, columns.flatten(1)).view_as(columns).where(entries != 0, 0)
    return Band(rows, columns, entries, partners, exists)


def softmax_of_entries(values: torch.Tensor) -> torch.Tensor:
    """Softmax over the nonzero entries of each row; zeros where a row has none. Source: equation 4a and footnote 1."""
    present = values != 0
    scores = values.masked_fill(~present, torch.finfo(values.dtype).min)
    return scores.softmax(dim=-1) * present


def check_phrases(
    config: PreTrainedConfig,
    positions: torch.Tensor | None,  # (batch, phrases, 2)
    values: torch.Tensor | None,  # (batch, phrases)
    shape: tuple[int, int],
    attention_mask: torch.Tensor | None,
) -> None:
    """Refuse phrases that are not inside of their documents, or too long, and values that cannot weigh."""
    if (positions is None) != (values is None):
        missing = "phrase_positions" if positions is None else "phrase_values"
        raise ValueError(f"Give both of `phrase_positions` and `phrase_values`, or none of them; no `{missing}` came.")
    if positions is None or values is None:
        return
    if positions.dim() != 3 or positions.shape[0] != shape[0] or positions.shape[2] != 2:
        raise ValueError(
            f"`phrase_positions` must be (batch={shape[0]}, phrases, 2), got shape {tuple(positions.shape)}."
        )
    check_integers("phrase_positions", positions)
    check_shape("phrase_values", values, positions.shape[:2], ", one for each phrase")
    if not (values.numel() and can_look_at(positions) and can_look_at(values)):
        return
    start, end = positions.unbind(-1)
    is_phrase = (start != -1) | (end != -1)
    lengths = torch.full(start.shape[:1], shape[1])
    if attention_mask is not None:  # from the first attended token to the last
        exists = (attention_mask != 0).cpu()
        spans = (torch.arange(shape[1]) * exists).amax(dim=1) + 1 - exists.int().argmax(dim=1)
        lengths = spans.where(exists.any(dim=1), lengths)  # in a row of padding there is nothing to highlight
    wrong = is_phrase & ((start < 0) | (end <= start) | (end > lengths[:, None]))
    if wrong.any():
        row, phrase = wrong.nonzero()[0].tolist()
        raise ValueError(
            "`phrase_positions` must hold the first token of each phrase and the one after its last, counted from the "
            f"document's first, inside of the document; -1 and -1 pad. Got {positions[row, phrase].tolist()} for "
            f"phrase {phrase} of row {row}, which has {lengths[row].item()} tokens."
        )
    longest = int((end - start).where(is_phrase, 0).max())
    if longest > config.max_phrase_length:
        raise ValueError(
            f"`phrase_positions` has a phrase of {longest} tokens, longer than max_phrase_length="
            f"{config.max_phrase_length}. Shorten it, leave it out, or set `model.config.max_phrase_length` to "
            f"{longest}."
        )
    check_weights("phrase_values", values.detach().float().where(is_phrase, 0.0))
