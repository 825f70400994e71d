"""Highlighting attention on top of a flash kernel, whose output is corrected in the few highlighted rows.

Source: Liu et al., "Highlight-Transformer", equations 2 to 4. With the output `o` of plain attention and the logarithm
`l` of the sum of its exponentials, a row that gets `b` added to its scores `z` in the band has the output (e^l o + sum
over the band of (e^b - 1) e^z v) / (e^l + sum over the band of (e^b - 1) e^z). Backwards, the kernel gets the
corrected output and logarithm: its gradients are then right outside of the band, where the weights are e^(z - l), and
the band lacks the difference between its weights and these.

Axes in shape comments: batch, heads (of rows, the highlighted ones), tokens (of the source), head_dim, rows (tokens
inside of phrases), width (entries of a row of the band).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .highlight_band import Band, softmax_of_entries
from .torch_kernels import flash_attention, flash_attention_backward


# Numbers of keys and values around highlighted tokens that are held at once.
NUMBERS_AT_ONCE = 2**23


def attend_on_cpu(
    query: torch.Tensor,  # (batch, heads, tokens, head_dim)
    key: torch.Tensor,  # (batch, heads, tokens, head_dim)
    value: torch.Tensor,  # (batch, heads, tokens, head_dim)
    band: Band,
    highlighted_heads: int,
    highlighting: str,
    scale: float | None = None,
) -> torch.Tensor:
    """Attend with highlighted heads, at the cost of plain attention and of the band. Source: equations 2 to 4."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    mask = None
    if band.exists is not None and not band.exists.all():  # not infinite: softmax over nothing is not a number
        mask = torch.zeros(band.exists.shape, dtype=query.dtype)
        mask = mask.masked_fill_(~band.exists, torch.finfo(query.dtype).min)[:, None, None]
    function = _Weighted if highlighting == "weighted" else _Mixed
    share = {"weighted": 1.0, "additive": 0.5, "only": 0.0}[highlighting]  # of plain attention in a highlighted row
    attended: torch.Tensor = function.apply(query, key, value, _Asked(band, mask, highlighted_heads, scale, share))
    return attended  # (batch, heads, tokens, head_dim)


class _Rows:
    """Reads and writes the highlighted rows of (batch, heads, tokens, head_dim), in highlighted heads."""

    def __init__(self, rows: torch.Tensor, heads: int, head_dim: int):
        self.heads = heads
        self.index = rows[:, None, :, None].expand(-1, heads, -1, head_dim)

    def take(self, states: torch.Tensor) -> torch.Tensor:
        """Return (batch, heads, rows, head_dim) in float32 at least."""
        taken = states[:, : self.heads].gather(2, self.index)
        return taken.to(torch.promote_types(states.dtype, torch.float32))

    def put(self, states: torch.Tensor, rows: torch.Tensor) -> None:
        states[:, : self.heads].scatter_(2, self.index, rows.to(states.dtype))

    def add(self, states: torch.Tensor, rows: torch.Tensor) -> None:
        self.put(states, self.take(states) + rows)


class _Asked(NamedTuple):
    """What is asked of a kernel, beside queries, keys and values."""

    band: Band
    mask: torch.Tensor | None
    heads: int  # highlighted ones
    scale: float
    share: float  # of plain attention in a highlighted row

    def attend(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Plain attention, and the logarithm of the sum of its exponentials."""
        return flash_attention(*tensors, mask=self.mask, scale=self.scale)

    def rows(self, head_dim: int) -> _Rows:
        return _Rows(self.band.rows, self.heads, head_dim)

    def backward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gradients of queries, keys and values that the kernel gives."""
        return flash_attention_backward(*tensors, mask=self.mask, scale=self.scale)


def _near(rows: torch.Tensor, partners: torch.Tensor) -> torch.Tensor:
    """Gather what each entry of the band refers to, (batch, heads, rows, width, head_dim)."""
    index = partners.flatten(1)[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[-1])
    return rows.gather(2, index).unflatten(2, partners.shape[1:])


def _add_near(total: torch.Tensor, partners: torch.Tensor, parts: torch.Tensor) -> None:
    """Add (batch, heads, rows, width, head_dim) to the rows that each entry refers to."""
    index = partners.flatten(1)[:, None, :, None].expand(-1, total.shape[1], -1, total.shape[-1])
    total.scatter_add_(2, index, parts.flatten(2, 3))


def _parts(partners: torch.Tensor, heads: int, head_dim: int) -> Iterator[slice]:
    """Divide the rows, so that not too much is gathered for them at once."""
    batch, rows, width = partners.shape
    at_once = max(1, NUMBERS_AT_ONCE // max(1, batch * heads * width * head_dim))
    return (slice(first, first + at_once) for first in range(0, rows, at_once))


def _correct(
    query: torch.Tensor,  # (batch, heads, rows, head_dim)
    key: torch.Tensor,  # (batch, heads, rows, width, head_dim)
    value: torch.Tensor,  # (batch, heads, rows, width, head_dim)
    plain: torch.Tensor,  # (batch, heads, rows, head_dim)
    log_sum: torch.Tensor,  # (batch, heads, rows)
    entries: torch.Tensor,  # (batch, 1, rows, width)
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the band's entries to the scores of rows whose plain attention is known."""
    scores = torch.einsum("bhrd,bhrwd->bhrw", query, key) * scale - log_sum[..., None]
    scores = scores.masked_fill(entries == 0, -torch.inf)
    highest = (scores + entries).detach().amax(dim=-1, keepdim=True).clamp(min=0)  # no exponential overflows
    gain = (scores + entries - highest).exp() - (scores - highest).exp()
    total = (-highest).exp() + gain.sum(dim=-1, keepdim=True)
    gained = torch.einsum("bhrw,bhrwd->bhrd", gain, value)
    return ((-highest).exp() * plain + gained) / total, log_sum + (highest + total.log()).squeeze(-1)


def correct_rows(
    attended: torch.Tensor,  # (batch, heads, tokens, head_dim)
    normalizer: torch.Tensor,  # (batch, heads, tokens)
    query: torch.Tensor,  # (batch, heads, tokens, head_dim)
    key: torch.Tensor,  # (batch, heads, tokens, head_dim)
    value: torch.Tensor,  # (batch, heads, tokens, head_dim)
    band: Band,
    highlighted_heads: int,
    scale: float | None = None,
) -> torch.Tensor:
    """Put weighted rows in the place of a kernel's plain ones; both its results have gradients. Source: equation 2."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    at = _Rows(band.rows, highlighted_heads, query.shape[-1])
    with torch.autocast(query.device.type, enabled=False):
        row_query, row_key, row_value, plain = (at.take(states) for states in (query, key, value, attended))
        log_sum = normalizer[:, :highlighted_heads].gather(2, band.rows[:, None].expand(-1, highlighted_heads, -1))
        near_key, near_value = _near(row_key, band.partners), _near(row_value, band.partners)
        rows, _ = _correct(row_query, near_key, near_value, plain, log_sum, band.values[:, None], scale)
        return attended.scatter(2, at.index, rows.to(attended.dtype))  # (batch, heads, tokens, head_dim)


class _Weighted(torch.autograd.Function):
    """Entries of the band are added to scores. Source: equation 2."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, asked: _Asked) -> torch.Tensor:
        attended, normalizer = asked.attend(query, key, value)
        at, heads, partners = asked.rows(query.shape[-1]), asked.heads, asked.band.partners
        row_index = asked.band.rows[:, None].expand(-1, heads, -1)
        with torch.autocast("cpu", enabled=False):
            row_query, row_key, row_value, plain = (at.take(states) for states in (query, key, value, attended))
            plain_normalizer = normalizer[:, :heads].gather(2, row_index)  # (batch, heads, rows)
            corrected, corrected_normalizer = [], []
            for part in _parts(partners, heads, query.shape[-1]):
                output, log_sum = _correct(
                    row_query[:, :, part],
                    _near(row_key, partners[:, part]),
                    _near(row_value, partners[:, part]),
                    plain[:, :, part],
                    plain_normalizer[:, :, part],
                    asked.band.values[:, None, part],
                    asked.scale,
                )
                corrected.append(output)
                corrected_normalizer.append(log_sum)
            at.put(attended, torch.cat(corrected, dim=2))
            normalizer[:, :heads].scatter_(2, row_index, torch.cat(corrected_normalizer, dim=2).to(normalizer.dtype))
        ctx.save_for_backward(query, key, value, attended, normalizer)
        ctx.asked = asked
        return attended

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, attended, normalizer = ctx.saved_tensors
        asked: _Asked = ctx.asked
        grads = asked.backward(grad, query, key, value, attended, normalizer)
        at, heads, scale = asked.rows(query.shape[-1]), asked.heads, asked.scale
        rows, values, partners = asked.band.rows, asked.band.values, asked.band.partners
        with torch.autocast("cpu", enabled=False):
            row_query, row_key, row_value, row_attended, row_grad = (
                at.take(states) for states in (query, key, value, attended, grad)
            )
            log_sums = normalizer[:, :heads].gather(2, rows[:, None].expand(-1, heads, -1))[..., None]
            delta = (row_grad * row_attended).sum(dim=-1, keepdim=True)
            grad_query = []
            grad_key, grad_value = torch.zeros_like(row_key), torch.zeros_like(row_value)
            for part in _parts(partners, heads, query.shape[-1]):
                entries, partner = values[:, None, part], partners[:, part]
                part_query, part_grad = row_query[:, :, part], row_grad[:, :, part]
                near_key = _near(row_key, partner)
                scores = torch.einsum("bhrd,bhrwd->bhrw", part_query, near_key) * scale - log_sums[:, :, part]
                scores = scores.masked_fill(entries == 0, -torch.inf)
                lacking = (scores + entries).exp() - scores.exp()  # of the weight that the kernel knows
                grad_weight = torch.einsum("bhrd,bhrwd->bhrw", part_grad, _near(row_value, partner))
                grad_score = lacking * (grad_weight - delta[:, :, part]) * scale
                grad_query.append(torch.einsum("bhrw,bhrwd->bhrd", grad_score, near_key))
                _add_near(grad_key, partner, grad_score[..., None] * part_query[:, :, :, None])
                _add_near(grad_value, partner, lacking[..., None] * part_grad[:, :, :, None])
            for whole, change in zip(grads, (torch.cat(grad_query, dim=2), grad_key, grad_value), strict=True):
                at.add(whole, change)
        return (*grads, None)


class _Mixed(torch.autograd.Function):
    """Highlighted rows are a share of plain attention and a softmax over their entries. Source: equation 4."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, asked: _Asked) -> torch.Tensor:
        attended, normalizer = asked.attend(query, key, value)
        at, heads, partners = asked.rows(query.shape[-1]), asked.heads, asked.band.partners
        with torch.autocast("cpu", enabled=False):
            weights, shares = _mixture(asked.band.values, asked.share)
            plain, row_value = at.take(attended), at.take(value)
            mixed = [
                torch.einsum("brw,bhrwd->bhrd", weights[:, part], _near(row_value, partners[:, part]))
                for part in _parts(partners, heads, query.shape[-1])
            ]
            at.put(attended, shares * plain + torch.cat(mixed, dim=2))
        ctx.save_for_backward(query, key, value, attended, plain.to(attended.dtype), normalizer)
        ctx.asked = asked
        return attended

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, attended, plain, normalizer = ctx.saved_tensors
        asked: _Asked = ctx.asked
        at, partners = asked.rows(query.shape[-1]), asked.band.partners
        with torch.autocast("cpu", enabled=False):
            weights, shares = _mixture(asked.band.values, asked.share)
            row_grad = at.take(grad)
            grad_value = torch.zeros_like(row_grad)
            for part in _parts(partners, asked.heads, query.shape[-1]):
                parts = weights[:, None, part, :, None] * row_grad[:, :, part, None]
                _add_near(grad_value, partners[:, part], parts)
            # The kernel is to see plain attention, and its share of the gradient.
            grad, attended = grad.clone(), attended.clone()
            at.put(grad, shares * row_grad)
            at.put(attended, plain)
            grads = asked.backward(grad, query, key, value, attended, normalizer)
            at.add(grads[2], grad_value)
        return (*grads, None)


def _mixture(values: torch.Tensor, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights of the entries of each row, (batch, rows, width), and its share of plain attention."""
    has_entries = (values != 0).any(dim=-1)[:, None, :, None]  # (batch, 1, rows, 1)
    return softmax_of_entries(values) * (1 - share), torch.where(has_entries, share, 1.0).to(values.dtype)
