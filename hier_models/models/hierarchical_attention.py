"""Hierarchical attention: each level's result is the next level's query, and the output is a weighted sum of levels.

Source: "Hierarchical Attention: What Really Counts in Various NLP Tasks", section 3.

Axes in shape comments: batch (sequences), heads (attention heads), queries (queries of a sequence), keys (what is
attended to), depth (levels), head_dim (width of a head).
"""

import math
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import initialization as init

from .input_checks import check_shape


# Levels are fused up to this many keys for each unit of a head: a level then costs `keys` multiplications for each
# query and key, instead of two times `head_dim`.
_FUSED_KEYS = 2
# How many times as fast as all else the numbers behind the levels' weights learn: those of the mixture are few, and at
# the usual rate stay for a whole training about where they begin.
LEVEL_RATE = 25.0


class HamMemory(NamedTuple):
    """What is attended to, made once for any number of queries."""

    key: torch.Tensor  # keys as scores need them, (batch * heads, keys, head_dim)
    value: torch.Tensor  # values, zero at padding, (batch * heads, keys, head_dim)
    # multiplied with the weights of a level, what the next level's scores are made of: with dot products the scores,
    # (batch * heads, keys, keys), with additive scoring the projected query, (batch * heads, keys, head_dim). `None`
    # where levels are not fused.
    step: torch.Tensor | None = None
    # added to scores, 0 or a large negative number at padding, (batch * heads, 1, keys); `None` without padding.
    penalty: torch.Tensor | None = None


class HamLevelWeights(nn.Module):
    """How much each level counts; a module, so that hooks which bring weights in see it. Source: section 3.1.

    The parameter is w / `LEVEL_RATE` and gets the gradient of w, so that w moves `LEVEL_RATE` times as fast as another
    parameter would, under any optimizer. It is called a bias because `Trainer` spares biases of weight decay, which
    would draw levels together.
    """

    def __init__(self, depth: int, weighing: str = "learned", begin: str = "first"):
        super().__init__()
        self.depth, self.weighing, self.begin = depth, weighing, begin
        self.bias = nn.Parameter(torch.empty(depth)) if weighing == "learned" and depth > 1 else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Give the first level nine tenths of the weight, and the others alike; or all alike."""
        if self.bias is not None:
            w = torch.zeros(self.depth)
            if self.begin == "first":
                w[0] = math.log(9 * (self.depth - 1))
            init.copy_(self.bias, w / LEVEL_RATE)

    @property
    def computed(self) -> int:
        """Levels that are computed: those after the last that counts are not."""
        return 1 if self.weighing == "first" else self.depth

    def forward(self) -> torch.Tensor:
        """Return the weights, `(depth,)`; they sum to one."""
        if self.bias is not None:
            w = self.bias + (LEVEL_RATE - 1) * self.bias.detach()  # w_1 … w_d
            return w.softmax(dim=0)
        one = torch.zeros(self.depth)
        one[-1 if self.weighing == "last" else 0] = 1.0
        return one

    def sum(self, levels: list[torch.Tensor]) -> torch.Tensor:
        """Sum what levels gave, weighed; if nothing is learned, the last one that was computed is all that counts."""
        if self.bias is None:
            return levels[-1]
        return torch.matmul(torch.stack(levels, dim=-1), self().to(levels[0].dtype))


class WeighsLevels:
    """A model with hierarchical attentions, which tells how much their levels count."""

    def get_level_weights(self) -> dict[str, list[float]]:
        """Return how much each level counts in each hierarchical attention, by its module's name; they sum to one."""
        return {name: weights().tolist() for name, weights in self._level_modules()}

    def _level_modules(self) -> list[tuple[str, HamLevelWeights]]:
        """Weights of levels, with the names of the attentions that they are of, in the order that data flows."""
        modules: Any = self
        found = [(name, module) for name, module in modules.named_modules() if isinstance(module, HamLevelWeights)]
        return [(name.removesuffix(".level_weights"), module) for name, module in found]

    def _level_weights(self, states: torch.Tensor) -> torch.Tensor:
        """Weights of the levels of every attention, `(batch, attentions, depth)`, without gradient."""
        mixtures = [weights().detach().to(states.device) for _, weights in self._level_modules()]
        return torch.stack(mixtures).expand(len(states), -1, -1)


class HamHeadProjection(nn.Module):
    """A matrix for each head."""

    def __init__(self, heads: int, size: int, new_size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, size, new_size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new weights."""
        bound = (3.0 / self.weight.shape[1]) ** 0.5
        init.uniform_(self.weight, -bound, bound)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Multiply `(batch * heads, tokens, size)`: `(batch * heads, tokens, new_size)`."""
        if len(self.weight) == 1:
            return states @ self.weight[0]
        return torch.matmul(states.unflatten(0, (-1, len(self.weight))), self.weight).flatten(0, 1)


class HierarchicalAttention(nn.Module):
    r"""Attention of several levels: HAM-V with keys, HAM-S without.

    Level i attends with the result of level i - 1 as its query; the output is the sum of all levels' results, weighed
    by the softmax of learned numbers. One level is plain attention. With one head nothing is projected and, with
    scaled dot products, these numbers are all that is learned, as in the paper. Several heads project queries, keys
    and values once, run all levels, and are put together once.

    A chain of levels can look up in hops, each with what the last one found (`examples/mechanisms/ham.py`), only where
    values are not the keys: of keys of one length, the one that fits another key best is that key itself.

    With dot products and few keys, levels are fused: each is a product of weights with the keys' scores of the values,
    made once, and a softmax. The result is the same up to rounding.

    With one head and values that are the keys, no result is longer than the longest key, and each coordinate lies
    between those of the keys. The paper's Theorem 1 says also that none is shorter than the shortest key, which is not
    so: of the keys (1, 0) and (-1, 0), the query (0, 1) gets (0, 0).

    Source: sections 3.1 (HAM-V), 3.2 (HAM-S) and 4 (Theorem 1). Several heads, bilinear scoring and `keys` are ours.

    Args:
        embed_dim: width of queries and output.
        depth: levels.
        num_heads: attention heads.
        scoring: `"scaled_dot_product"`, `"additive"` (Bahdanau et al.) or `"bilinear"`.
        keys: what levels of HAM-S attend to: `"level"`, the last level's result, or `"input"`, as with keys of their
            own.
        level_weights: `"learned"`; `"first"` is plain attention, `"last"` is multi-level attention.
        dropout: of the weights of each level.
        kdim: width of keys, `embed_dim` when not given. Another needs several heads, or scoring that is not
            `"scaled_dot_product"`.
        vdim: width of values, `embed_dim` when not given. Another needs several heads.
        level_weights_init: what learned weights begin with: `"first"`, 0.9 for the first level and the rest alike, or
            `"equal"`. They learn 25 times as fast as other parameters, and without `Trainer`'s weight decay.

    Raises:
        ValueError: if a size or the depth is below one, heads do not divide the width, `dropout` is outside of 0 to 1,
            or a choice is none of those.

    Example:
        >>> attention = HierarchicalAttention(512, depth=10)
        >>> output, _ = attention(torch.randn(2, 7, 512), torch.randn(2, 30, 512))
    """

    def __init__(
        self,
        embed_dim: int,
        depth: int,
        num_heads: int = 1,
        scoring: str = "scaled_dot_product",
        keys: str = "level",
        level_weights: str = "learned",
        dropout: float = 0.0,
        kdim: int | None = None,
        vdim: int | None = None,
        level_weights_init: str = "first",
    ):
        super().__init__()
        kdim, vdim = (embed_dim if size is None else size for size in (kdim, vdim))
        sizes = {"embed_dim": embed_dim, "depth": depth, "num_heads": num_heads, "kdim": kdim, "vdim": vdim}
        _check_arguments(sizes, scoring, keys, level_weights, level_weights_init, dropout)
        self.embed_dim, self.depth, self.num_heads = embed_dim, depth, num_heads
        self.scoring, self.keys, self.dropout = scoring, keys, dropout
        self.kdim, self.vdim = kdim, vdim
        self.head_dim = embed_dim // num_heads
        self.level_weights = HamLevelWeights(depth, level_weights, level_weights_init)
        if num_heads > 1:
            self.q_proj = nn.Linear(embed_dim, embed_dim)
            self.k_proj = nn.Linear(kdim, embed_dim)
            self.v_proj = nn.Linear(vdim, embed_dim)
            self.out_proj = nn.Linear(embed_dim, embed_dim)
            kdim = embed_dim
        size = self.head_dim
        if scoring == "bilinear":
            self.score_key = HamHeadProjection(num_heads, kdim // num_heads, size)
        elif scoring == "additive":
            self.score_key = HamHeadProjection(num_heads, kdim // num_heads, size)
            self.score_query = HamHeadProjection(num_heads, size, size)
            self.score_sum = HamHeadProjection(num_heads, size, 1)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new weights, and begin those of the levels."""
        for part in self.children():
            if isinstance(part, nn.Linear):
                init.xavier_uniform_(part.weight)
                init.zeros_(part.bias)
            else:
                part.reset_parameters()  # type: ignore[operator]  # ours

    @property
    def mixture(self) -> torch.Tensor:
        """Weight of each level in the output, `(depth,)`; they sum to one."""
        return self.level_weights()  # type: ignore[no-any-return]

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        value: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend at every level.

        Args:
            query: `(batch, queries, embed_dim)`.
            key: `(batch, keys, kdim)`. Without it, the sequence attends to itself (HAM-S).
            value: `(batch, keys, vdim)`; `key` when not given.
            attention_mask: 1 or true where a query attends to a key, 0 or false where not, or floating-point numbers
                that are added to scores; `(queries, keys)`, `(batch, queries, keys)`, `(batch, 1, queries, keys)`, as
                Transformers makes them, or `(batch, heads, queries, keys)`. The same at every level.
            key_padding_mask: 1 for keys, 0 for padding, `(batch, keys)`.
            need_weights: return the weights of every level too.

        Returns:
            The output, `(batch, queries, embed_dim)`, zero (of several heads: their projection's bias) where nothing
            may be attended to; and the weights of every level, `(batch, depth, heads, queries, keys)`, or `None`. With
            `level_weights="first"` there is one level.

        Raises:
            ValueError: if shapes do not fit, there is a value without a key, or no key where keys have another width.
        """
        if query.dim() != 3 or query.shape[-1] != self.embed_dim:
            raise ValueError(
                f"`query` must be (batch, queries, embed_dim={self.embed_dim}), got shape {tuple(query.shape)}."
            )
        if key is None:
            if value is not None:
                raise ValueError("`value` must come with `key`, got a value alone.")
            if (self.kdim, self.vdim) != (self.embed_dim, self.embed_dim):
                raise ValueError(
                    f"`key` must be given, got none: queries of embed_dim={self.embed_dim} are no keys and values of "
                    f"kdim={self.kdim} and vdim={self.vdim}."
                )
            key = query
            if self.keys == "level" and self.levels > 1:
                return self._attend_to_levels(query, attention_mask, key_padding_mask, need_weights)
        memory = self.prepare(key, value, key_padding_mask)
        return self.attend(query, memory, attention_mask, need_weights)

    @property
    def levels(self) -> int:
        """Levels that are computed: with `level_weights="first"`, those after the first do not count."""
        return self.level_weights.computed

    def prepare(
        self, key: torch.Tensor, value: torch.Tensor | None = None, key_padding_mask: torch.Tensor | None = None
    ) -> HamMemory:
        """Make what [`attend`] needs of keys and values, once for any queries; arguments as in [`forward`]."""
        value = key if value is None else value
        _check_memory((self.kdim, self.vdim), key, value, key_padding_mask)
        if self.num_heads > 1:
            key, value = self._split(self.k_proj(key)), self._split(self.v_proj(value))
        return self._memory(key, value, self._penalty(key_padding_mask, key))

    def attend(
        self,
        query: torch.Tensor,
        memory: HamMemory,
        attention_mask: torch.Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend to what [`prepare`] made; other arguments and results as in [`forward`]."""
        if query.dim() != 3 or query.shape[-1] != self.embed_dim or len(query) * self.num_heads != len(memory.key):
            raise ValueError(
                f"`query` must be (batch={len(memory.key) // self.num_heads}, queries, embed_dim={self.embed_dim}), "
                f"got shape {tuple(query.shape)}."
            )
        states = self._split(self.q_proj(query)) if self.num_heads > 1 else query
        penalty, blocked = self._with_mask(memory.penalty, attention_mask, len(query), query.shape[1], memory.key)
        if memory.step is not None or need_weights or self.scoring == "additive":
            weights = self._level_weights(states, memory, penalty)
            # Values are the same at every level, so that weights can be summed in the place of results.
            output = torch.bmm(self.level_weights.sum(weights), memory.value)
        else:
            weights, results = [], [states]
            for _ in range(self.levels):
                results.append(self._result(results[-1], memory, penalty))
            output = self.level_weights.sum(results[1:])
        return self._join(_blank(output, blocked)), self._report(weights) if need_weights else None

    def _attend_to_levels(
        self,
        query: torch.Tensor,
        attention_mask: torch.Tensor | None,
        key_padding_mask: torch.Tensor | None,
        need_weights: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """HAM-S where each level attends to the last one's result; arguments and results as in [`forward`]."""
        _check_memory((self.kdim, self.vdim), query, query, key_padding_mask)
        states = key = value = query
        if self.num_heads > 1:
            states, key, value = (self._split(part(query)) for part in (self.q_proj, self.k_proj, self.v_proj))
        batch, queries = query.shape[:2]
        padding = self._penalty(key_padding_mask, key)
        penalty, blocked = self._with_mask(padding, attention_mask, batch, queries, key)
        weights, results = [], []
        for _ in range(self.levels):
            memory = self._memory(key, value, padding, fuse=False)
            if need_weights or self.scoring == "additive":
                scores = self._scores(self._scored_query(states), memory, penalty)
                weights.append(self._drop(scores.softmax(dim=-1)))
                states = torch.bmm(weights[-1], memory.value)
            else:
                states = self._result(states, memory, penalty)
            states = _blank(states, blocked)
            results.append(states)
            key = value = states
        return self._join(self.level_weights.sum(results)), self._report(weights) if need_weights else None

    def _memory(
        self, key: torch.Tensor, value: torch.Tensor, penalty: torch.Tensor | None, fuse: bool = True
    ) -> HamMemory:
        """Take keys and values of heads, `(batch * heads, keys, head_dim)`, as scores need them."""
        if penalty is not None:
            # Nothing of what stands at padding gets anywhere, be it infinite.
            is_padding = (penalty < 0).transpose(1, 2)
            is_same = key is value
            key = key.masked_fill(is_padding, 0.0)
            value = key if is_same else value.masked_fill(is_padding, 0.0)
        fuse = fuse and self.levels > 1
        step = None
        if self.scoring == "additive":
            key = self.score_key(key)
            step = self.score_query(value) if fuse else None
        else:
            if self.scoring == "bilinear":
                key = self.score_key(key)  # q (W k)
            if fuse and key.shape[1] <= _FUSED_KEYS * self.head_dim:
                # q_i = P_i V, so q_i Kᵀ = P_i (V Kᵀ); scaled first, as the products may be too large for float16.
                step = torch.bmm(value * self._scale, key.transpose(1, 2))
        return HamMemory(key, value, step, penalty)

    @property
    def _scale(self) -> float:
        return self.head_dim**-0.5 if self.scoring == "scaled_dot_product" else 1.0

    def _level_weights(
        self, states: torch.Tensor, memory: HamMemory, penalty: torch.Tensor | None
    ) -> list[torch.Tensor]:
        """Weights of each level, each `(batch * heads, queries, keys)`."""
        scores = self._scores(self._scored_query(states), memory, penalty)
        weights = [self._drop(scores.softmax(dim=-1))]
        for _ in range(1, self.levels):
            if memory.step is None:
                scores = self._scores(torch.bmm(weights[-1], memory.value), memory, penalty)
            elif self.scoring == "additive":
                scores = self._scores(torch.bmm(weights[-1], memory.step), memory, penalty)
            else:
                scores = _product(weights[-1], memory.step, penalty)
            weights.append(self._drop(scores.softmax(dim=-1)))
        return weights

    def _scored_query(self, states: torch.Tensor) -> torch.Tensor:
        return self.score_query(states) if self.scoring == "additive" else states  # type: ignore[no-any-return]

    def _scores(self, query: torch.Tensor, memory: HamMemory, penalty: torch.Tensor | None) -> torch.Tensor:
        """Scores of queries and keys, `(batch * heads, queries, keys)`."""
        if self.scoring != "additive":
            return _product(query * self._scale, memory.key.transpose(1, 2), penalty)
        sums = (query.unsqueeze(2) + memory.key.unsqueeze(1)).tanh()  # (batch * heads, queries, keys, head_dim)
        scores: torch.Tensor = self.score_sum(sums.flatten(1, 2)).view(sums.shape[:3])
        return scores if penalty is None else scores + penalty

    def _result(self, query: torch.Tensor, memory: HamMemory, penalty: torch.Tensor | None) -> torch.Tensor:
        """One level by torch's own attention, `(batch * heads, queries, head_dim)`."""
        result: torch.Tensor = nn.functional.scaled_dot_product_attention(
            query.unsqueeze(1),
            memory.key.unsqueeze(1),
            memory.value.unsqueeze(1),
            attn_mask=None if penalty is None else penalty.unsqueeze(1),
            dropout_p=self.dropout if self.training else 0.0,
            scale=self._scale,
        )
        return result.squeeze(1)

    def _report(self, weights: list[torch.Tensor]) -> torch.Tensor:
        found: torch.Tensor = torch.stack(weights, dim=1).unflatten(0, (-1, self.num_heads)).transpose(1, 2)
        return found

    def _penalty(self, key_padding_mask: torch.Tensor | None, states: torch.Tensor) -> torch.Tensor | None:
        """What padding adds to scores, `(batch * heads, 1, keys)`."""
        if key_padding_mask is None:
            return None
        return _as_penalty(key_padding_mask != 0, states).unsqueeze(1).repeat_interleave(self.num_heads, dim=0)

    def _with_mask(
        self,
        penalty: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        batch: int,
        queries: int,
        key: torch.Tensor,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Add the mask of pairs to the penalty of padding, and find queries that may attend to nothing."""
        if attention_mask is None:
            return penalty, None
        shape = (batch, self.num_heads, queries, key.shape[1])
        allowed = (shape[2:], (batch, *shape[2:]), (batch, 1, *shape[2:]), shape)
        if tuple(attention_mask.shape) not in allowed:
            *others, last = dict.fromkeys(map(str, allowed))  # with one head, the last two are the same
            raise ValueError(
                f"`attention_mask` must be {', '.join(others)} or {last}, got shape {tuple(attention_mask.shape)}."
            )
        mask = attention_mask.unsqueeze(1) if attention_mask.dim() == 3 else attention_mask
        mask = mask.expand(shape).flatten(0, 1)
        limit = _least(key)
        pairs = mask.to(key.dtype).clamp(min=limit) if mask.is_floating_point() else _as_penalty(mask != 0, key)
        total = pairs if penalty is None else (pairs + penalty).clamp(min=limit)
        return total, (total <= limit).all(dim=-1, keepdim=True)

    def _drop(self, weights: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(weights, self.dropout, self.training) if self.dropout else weights

    def _split(self, states: torch.Tensor) -> torch.Tensor:
        """Take heads apart: `(batch * heads, tokens, head_dim)`."""
        return states.unflatten(-1, (self.num_heads, -1)).transpose(1, 2).flatten(0, 1)  # type: ignore[no-any-return]

    def _join(self, states: torch.Tensor) -> torch.Tensor:
        """Put heads together: `(batch, queries, embed_dim)`."""
        if self.num_heads == 1:
            return states
        output: torch.Tensor = self.out_proj(states.unflatten(0, (-1, self.num_heads)).transpose(1, 2).flatten(2))
        return output


def _check_arguments(
    sizes: dict[str, int], scoring: str, keys: str, level_weights: str, level_weights_init: str, dropout: float
) -> None:
    """Refuse what no [`HierarchicalAttention`] can be made of."""
    for name, value in sizes.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}.")
    for name, choice, allowed in (
        ("scoring", scoring, ("scaled_dot_product", "additive", "bilinear")),
        ("keys", keys, ("level", "input")),
        ("level_weights", level_weights, ("learned", "first", "last")),
        ("level_weights_init", level_weights_init, ("first", "equal")),
    ):
        if choice not in allowed:
            raise ValueError(f"`{name}` must be one of {', '.join(map(repr, allowed))}, got {choice!r}.")
    if not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise ValueError(f"`dropout` must be between 0 and 1, got {dropout!r}.")
    embed_dim, _, num_heads, kdim, vdim = sizes.values()
    if embed_dim % num_heads:
        raise ValueError(f"`num_heads` must divide embed_dim={embed_dim}, got {num_heads}.")
    if num_heads == 1 and vdim != embed_dim:
        raise ValueError(
            f"`vdim` must be embed_dim={embed_dim} with one head, got {vdim}: nothing is projected, and a level's "
            "result is the next level's query."
        )
    if num_heads == 1 and scoring == "scaled_dot_product" and kdim != embed_dim:
        raise ValueError(
            f"`kdim` must be embed_dim={embed_dim} with one head and scaled dot products, got {kdim}: nothing is "
            "projected."
        )


def _check_memory(
    widths: tuple[int, int], key: torch.Tensor, value: torch.Tensor, key_padding_mask: torch.Tensor | None
) -> None:  # key (batch, keys, kdim), value (batch, keys, vdim), key_padding_mask (batch, keys)
    """Refuse keys and values that do not fit an attention or each other."""
    kdim, vdim = widths
    if key.dim() != 3 or key.shape[-1] != kdim:
        raise ValueError(f"`key` must be (batch, keys, kdim={kdim}), got shape {tuple(key.shape)}.")
    if value.shape != (*key.shape[:2], vdim):
        raise ValueError(f"`value` must be {(*key.shape[:2], vdim)} for the keys, got shape {tuple(value.shape)}.")
    check_shape("key_padding_mask", key_padding_mask, key.shape[:2], " like the keys")


def _product(left: torch.Tensor, right: torch.Tensor, penalty: torch.Tensor | None) -> torch.Tensor:
    return torch.bmm(left, right) if penalty is None else torch.baddbmm(penalty, left, right)


def _least(states: torch.Tensor) -> float:
    """Half of the least number of the type that scores get: with a score added it is still finite."""
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    return max(torch.finfo(dtype).min, torch.finfo(states.dtype).min) / 2


def _as_penalty(allowed: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """0 where it is allowed, a large negative number elsewhere, of the type of the states."""
    penalty = torch.zeros(allowed.shape, dtype=states.dtype, device=allowed.device)
    return penalty.masked_fill(~allowed, _least(states))


def _blank(states: torch.Tensor, blocked: torch.Tensor | None) -> torch.Tensor:
    return states if blocked is None else states.masked_fill(blocked, 0.0)
