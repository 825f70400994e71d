"""Copying: a mixture of the vocabulary's distribution and of attention to the source, in logarithms.

Source: Gehrmann, Deng and Rush 2018, "Bottom-Up Abstractive Summarization", section 3.
Axes in shape comments: batch (documents), source (source tokens), target (target tokens), d_model (width).
"""

from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling
from torch.nn.attention.flex_attention import BlockMask
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.bart.modeling_bart import BartAttention, BartDecoderLayer
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .bart_body import (
    BartBodyDecoder,
    BodyAttention,
    after,
    attend,
    attention_sizes,
    before,
    feed_forward,
    keys_and_values,
    recorded,
)
from .decoder_kernel import Attended, decoder_step, mix, multiply
from .losses import parts
from .model_outputs import CopyDecoderOutput


class CopyAttention(BartAttention):
    """BART's attention to the source, which also says what one of its heads looks at, before dropout."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(**attention_sizes(config, "decoder", layer_idx))
        self.copy_head = config.copy_head

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, target, d_model)
        key_value_states: torch.Tensor | None = None,  # (batch, source, d_model)
        cache: Cache | None = None,
        attention_mask: torch.Tensor | BlockMask | None = None,
        source_mask: torch.Tensor | None = None,  # of the tokens that may be copied, (batch, source)
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Attend."""
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = multiply(self.q_proj, hidden_states).view(shape).transpose(1, 2)  # (batch, heads, target, head_dim)
        key, value = keys_and_values(self, key_value_states, cache)
        attended, weights = attend(self, query, key, value, attention_mask, **kwargs)
        attended = multiply(self.out_proj, attended.reshape(*shape[:-2], -1))
        return attended, weights, self._copy_attention(query[:, self.copy_head], key[:, self.copy_head], source_mask)

    def _copy_attention(
        self, query: torch.Tensor, key: torch.Tensor, source_mask: torch.Tensor | None
    ) -> torch.Tensor:
        scores = (query * self.scaling) @ key.transpose(1, 2)  # (batch, target, source); unscaled, float16 overflows
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if source_mask is None:
            return scores.softmax(dim=-1)
        others = source_mask[:, None].to(scores.device) == 0
        weights = scores.masked_fill(others, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return weights.masked_fill(others, 0.0)  # also where there is nothing to copy


class CopyDecoderLayer(BartDecoderLayer):
    """BART's decoder layer, with norms before or after; where the model copies, the last one says what."""

    has_hierarchy = False  # whether there is a `hierarchical_attn` behind the attention to the source

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        self.normalize_before = getattr(config, "normalize_before", False)
        self.copies = config.use_copy and layer_idx == config.decoder_layers - 1
        self.self_attn.__class__ = self.encoder_attn.__class__ = BodyAttention  # with BART's random weights
        if self.copies:
            self.encoder_attn = CopyAttention(config, layer_idx)

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, target, d_model)
        attention_mask: torch.Tensor | BlockMask | None = None,
        encoder_hidden_states: torch.Tensor | None = None,  # (batch, source, d_model)
        hierarchical_hidden_states: torch.Tensor | None = None,  # (batch, sentences, d_model)
        encoder_attention_mask: torch.Tensor | BlockMask | None = None,
        hierarchical_attention_mask: torch.Tensor | BlockMask | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = True,
        source_mask: torch.Tensor | None = None,  # (batch, source)
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Update target tokens by those before them, by the source and its sentences, then each by itself."""
        if type(cache) is EncoderDecoderCache and not kwargs and not is_compiling() and hidden_states.shape[1] == 1:
            masks = attention_mask, encoder_attention_mask, hierarchical_attention_mask
            found = self._step(hidden_states, cache, *masks, source_mask)
            if found is not None:
                return found if self.copies else found[0]
        attention, norm = self.self_attn, self.self_attn_layer_norm
        hidden_states, *_ = self.attend(attention, norm, hidden_states, attention_mask, cache=cache, **kwargs)
        copied: list[torch.Tensor] = []  # (batch, target, source)
        if encoder_hidden_states is not None:
            attention, norm = self.encoder_attn, self.encoder_attn_layer_norm
            of_source: dict[str, Any] = {"key_value_states": encoder_hidden_states, "cache": cache}
            if self.copies:
                of_source["source_mask"] = source_mask
            hidden_states, *copied = self.attend(
                attention, norm, hidden_states, encoder_attention_mask, **of_source, **kwargs
            )
        if hierarchical_hidden_states is not None and self.has_hierarchy:
            attention, norm = self.hierarchical_attn, self.hierarchical_attn_layer_norm
            of_upper: dict[str, Any] = {"key_value_states": hierarchical_hidden_states, "cache": cache}
            hidden_states, *_ = self.attend(
                attention, norm, hidden_states, hierarchical_attention_mask, **of_upper, **kwargs
            )
        norm = self.final_layer_norm
        hidden_states = after(self, norm, hidden_states, feed_forward(self, before(self, norm, hidden_states)))
        return (hidden_states, *copied) if copied else hidden_states

    def _step(
        self,
        hidden_states: torch.Tensor,
        cache: EncoderDecoderCache,
        mask: Any,
        of_source: Any,
        of_upper: Any,
        copied: Any,
    ) -> tuple[torch.Tensor, ...] | None:
        """Update one token of each target by a kernel of the whole layer, if there is one that takes it."""
        copied = copied if self.copies else None
        attentions = [
            Attended(self.self_attn, self.self_attn_layer_norm, mask),
            Attended(self.encoder_attn, self.encoder_attn_layer_norm, of_source, copied),
        ]
        if self.has_hierarchy:
            attentions.append(Attended(self.hierarchical_attn, self.hierarchical_attn_layer_norm, of_upper))
        is_usual = all(type(of.attention) in (BodyAttention, CopyAttention) for of in attentions)
        return decoder_step(self, attentions, hidden_states, cache) if is_usual else None

    def attend(
        self, attention: nn.Module, norm: nn.LayerNorm, hidden_states: torch.Tensor, mask: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, ...]:
        """Add what an attention finds, with its norm: the states, and what is copied, if the attention says so."""
        queries, read = before(self, norm, hidden_states), kwargs.get("key_value_states")
        if read is not None:  # the targets of one source ask side by side: its keys are there once
            queries = queries.reshape(read.shape[0], -1, queries.shape[-1])
        attended, _, *copied = attention(queries, attention_mask=mask, **kwargs)
        attended, *copied = (found.reshape(*hidden_states.shape[:2], -1) for found in (attended, *copied))
        return after(self, norm, hidden_states, attended), *copied


class CopyDecoder(BartBodyDecoder):
    """BART's decoder, or the CopyTransformer's; stands before `PreTrainedModel` among its bases."""

    _can_record_outputs: Any = recorded(CopyDecoderLayer)
    layer_class: Any = CopyDecoderLayer
    shares_sources = True
    output_class = CopyDecoderOutput


# Score of copying with a closed gate: a probability of 0.0009.
CLOSED = -7.0


class CopyGate(nn.Linear):
    """Score of copying. Source: Gehrmann, Deng and Rush 2018, section 3."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return (batch, target, 1) for (batch, target, d_model)."""
        # As a product of vectors, its last digit would depend on where in memory a checkpoint puts the weight.
        return (hidden_states * self.weight[0]).sum(dim=-1, keepdim=True) + self.bias


def mix_log_probabilities(
    logits: torch.Tensor, gate: torch.Tensor, copy_attentions: torch.Tensor, source_ids: torch.Tensor
) -> torch.Tensor:
    """Logarithm of `(1 - p) softmax(logits) + p copied`: `copied` sums attention over equal source tokens."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    gate, weights = gate.to(wide), copy_attentions.to(wide)
    if logits.shape[1] > 1 and not is_compiling():
        mixed: torch.Tensor = _Mix.apply(logits, gate, weights, source_ids)
        return mixed
    found = mix(logits, gate, weights, source_ids) if logits.shape[1] == 1 else None
    if found is not None:
        return found
    generated = logits.log_softmax(dim=-1, dtype=wide)
    if logits.shape[1] == 1 and not generated.requires_grad:  # a step of generation: less work than sorting the source
        generated += nn.functional.logsigmoid(-gate)
        index = source_ids[:, None]
        copied = torch.zeros_like(generated).scatter_add_(2, index, weights).gather(2, index)
        return generated.scatter_(2, index, _add(generated.gather(2, index), copied, gate))  # of equal tokens, equals
    generated = generated + nn.functional.logsigmoid(-gate)
    ids, copied, is_token = _sum_over_equal_tokens(source_ids, weights)
    index = ids[:, None].expand_as(copied)
    mixed = _add(generated.gather(2, index), copied, gate)
    # What fills up writes again what the first token writes, and has no gradient of its own.
    mixed = mixed.where(is_token[:, None], mixed[:, :, :1].detach())
    return generated.scatter(2, index, mixed)  # not in place: gathering from it has its backward yet to come


class _Mix(torch.autograd.Function):
    """The same in chunks of target tokens: as large as the logits are the result alone, and their gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, gate: torch.Tensor, weights: torch.Tensor, source_ids: torch.Tensor
    ) -> torch.Tensor:
        ids, copied, is_token = _sum_over_equal_tokens(source_ids, weights)
        index = ids[:, None].expand_as(copied)
        mixed = torch.empty(logits.shape, dtype=gate.dtype, device=logits.device)
        generated = torch.empty_like(copied)  # of the source's tokens, (batch, target, source)
        for part in parts(logits.transpose(0, 1)):
            rows = mixed[:, part]
            rows.copy_(logits[:, part].log_softmax(dim=-1, dtype=gate.dtype))
            rows += nn.functional.logsigmoid(-gate[:, part])
            generated[:, part] = rows.gather(2, index[:, part])
            rows.scatter_(2, index[:, part], _add(generated[:, part], copied[:, part], gate[:, part]))
        ctx.save_for_backward(mixed, generated, gate, weights, source_ids, index, is_token)
        ctx.dtype = logits.dtype
        return mixed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        mixed, generated, gate, weights, source_ids, index, is_token = ctx.saved_tensors
        with torch.enable_grad():  # of what is as large as the source
            inputs = [tensor.detach().requires_grad_() for tensor in (generated, gate, weights)]
            copied = _sum_over_equal_tokens(source_ids, inputs[2])[1]
            of_source = grad.gather(2, index) * is_token[:, None]  # what fills up has none
            found = torch.autograd.grad(_add(inputs[0], copied, inputs[1]), inputs, of_source)
        of_generated, of_gate, of_weights = found
        of_generated = of_generated.where(is_token[:, None], of_generated[:, :, :1])
        of_logits = torch.empty(mixed.shape, dtype=ctx.dtype, device=mixed.device)
        for part in parts(mixed.transpose(0, 1)):
            shift = nn.functional.logsigmoid(-gate[:, part])
            chances = (mixed[:, part] - shift).scatter_(2, index[:, part], generated[:, part] - shift).exp_()
            rows = grad[:, part].scatter(2, index[:, part], of_generated[:, part])
            total = rows.sum(dim=-1, keepdim=True)
            of_logits[:, part] = rows.addcmul_(chances, total, value=-1)
            of_gate[:, part] -= total * gate[:, part].sigmoid()
        return of_logits, of_gate, of_weights, None


def _add(generated: torch.Tensor, copied: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Add what is copied, a weight, to what is generated, a logarithm; without infinities where nothing is copied."""
    has_weight = copied > 0
    copied = copied.where(has_weight, 1.0).log() + nn.functional.logsigmoid(gate)
    return torch.logaddexp(generated, copied).where(has_weight, generated)


def _sum_over_equal_tokens(
    source_ids: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids of the source's tokens, each once, the weight of each, and which of them are not the first one again."""
    ordered, order = source_ids.sort(dim=1, stable=True)
    is_new = ordered != ordered.roll(1, dims=1)
    is_new[:, 0] = False
    group = is_new.long().cumsum(dim=1)  # equal tokens are in the same
    ids = ordered[:, :1].expand_as(ordered).scatter(1, group, ordered)
    weights = weights.gather(2, order[:, None].expand_as(weights))
    weights = torch.zeros_like(weights).scatter_add(2, group[:, None].expand_as(weights), weights)
    is_token = torch.arange(ids.shape[1], device=ids.device) <= group[:, -1:]
    return ids, weights.where(is_token[:, None], weights[:, :, :1]), is_token
