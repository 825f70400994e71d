"""What the models of HAT-BART return."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.utils import ModelOutput


@dataclass
class HatBartEncoderOutput(ModelOutput):
    """Output of the encoder. All tensors are batch-first, so that beam search can repeat them."""

    last_hidden_state: torch.Tensor | None = None  # token states, (batch, source, d_model)
    # sentence states, (batch, sentences, d_model); `None` without hierarchy.
    hierarchical_hidden_state: torch.Tensor | None = None
    # 1 where there is a sentence, 0 for padding, (batch, sentences).
    hierarchical_attention_mask: torch.Tensor | None = None
    # 1 for tokens that are attended to, 0 for padding and silent markers, (batch, source); `None` without silent
    # markers.
    read_mask: torch.Tensor | None = None
    source_ids: torch.Tensor | None = None  # ids of the tokens, where the model copies them, (batch, source)
    hidden_states: tuple[torch.Tensor, ...] | None = None  # token states after the embedding and after each layer
    attentions: tuple[torch.Tensor, ...] | None = None  # one (batch, heads, source, source) for each token-level layer
    # one (batch, heads, sentences, sentences) for each hierarchical layer.
    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HatBartDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """BART's decoder output, `hierarchical_attentions`, one `(batch, heads, target, sentences)` for each layer, and
    `copy_attentions`, `(batch, target, source)`, where the model copies.
    """  # noqa: D205

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None
    copy_attentions: torch.Tensor | None = None


@dataclass
class HatBartModelOutput(Seq2SeqModelOutput):
    """BART's output and the attentions of the hierarchy."""

    # one (batch, heads, target, sentences) for each decoder layer: the third attention.
    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None
    # one (batch, heads, sentences, sentences) for each hierarchical layer.
    encoder_hierarchical_attentions: tuple[torch.Tensor, ...] | None = None
    # how much of the copied probability each source token gets, (batch, target, source); `None` without copying.
    copy_attentions: torch.Tensor | None = None
    source_ids: torch.Tensor | None = None  # see [`HatBartEncoderOutput`]


@dataclass
class HatBartLMOutput(Seq2SeqLMOutput):
    """Loss, logits, what is in [`HatBartModelOutput`], and how the model copies."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None  # see there
    encoder_hierarchical_attentions: tuple[torch.Tensor, ...] | None = None  # see there
    # probability that the token is copied, not generated, (batch, target).
    copy_probability: torch.Tensor | None = None
    copy_attentions: torch.Tensor | None = None  # see there


__all__ = ["HatBartDecoderOutput", "HatBartEncoderOutput", "HatBartLMOutput", "HatBartModelOutput"]
