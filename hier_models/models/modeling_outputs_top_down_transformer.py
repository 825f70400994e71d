"""What the models of the Top-Down Transformer return."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput


@dataclass
class TopDownTransformerEncoderOutput(ModelOutput):
    """Output of the encoder. All tensors are batch-first, so that beam search can repeat them."""

    last_hidden_state: torch.Tensor | None = None  # token states, (batch, source, d_model)
    # states of the segments that the tokens attend to, (batch, segments, d_model); `None` without top-down update.
    segment_hidden_states: torch.Tensor | None = None
    segment_attention_mask: torch.Tensor | None = None  # 1 where there is a segment, 0 for padding, (batch, segments)
    source_ids: torch.Tensor | None = None  # ids of the tokens, where the model copies them, (batch, source)
    # token states after the embedding and after each token layer.
    hidden_states: tuple[torch.Tensor, ...] | None = None
    # one (batch, heads, source, source) for each token layer, with eager attention.
    attentions: tuple[torch.Tensor, ...] | None = None
    # one (batch, heads, segments, segments) for each attention over segments, the top level's first; with several
    # levels, a lower one's layers have two, the second of which is to the level above.
    segment_attentions: tuple[torch.Tensor, ...] | None = None
    # one (batch, heads, source, segments) for each top-down layer.
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class TopDownTransformerDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """BART's decoder output and, where the model copies, `copy_attentions`, `(batch, target, source)`."""

    copy_attentions: torch.Tensor | None = None


@dataclass
class TopDownTransformerModelOutput(Seq2SeqModelOutput):
    """BART's output, and the attentions of [`TopDownTransformerEncoderOutput`] over and to segments."""

    segment_attentions: tuple[torch.Tensor, ...] | None = None  # see there
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None  # see there
    # how much of the copied probability each source token gets, (batch, target, source); `None` without copying.
    copy_attentions: torch.Tensor | None = None
    source_ids: torch.Tensor | None = None  # see there


@dataclass
class TopDownTransformerLMOutput(Seq2SeqLMOutput):
    """Loss, logits, what is in [`TopDownTransformerModelOutput`], and how the model copies."""

    segment_attentions: tuple[torch.Tensor, ...] | None = None  # see there
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None  # see there
    # probability that the token is copied, not generated, (batch, target).
    copy_probability: torch.Tensor | None = None
    copy_attentions: torch.Tensor | None = None  # see there


@dataclass
class TopDownTransformerTokenClassifierOutput(TokenClassifierOutput):
    """Loss, logits and the attentions of [`TopDownTransformerEncoderOutput`]."""

    segment_attentions: tuple[torch.Tensor, ...] | None = None
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None


__all__ = [
    "TopDownTransformerDecoderOutput",
    "TopDownTransformerEncoderOutput",
    "TopDownTransformerLMOutput",
    "TopDownTransformerModelOutput",
    "TopDownTransformerTokenClassifierOutput",
]
