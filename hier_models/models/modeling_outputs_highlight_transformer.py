"""What the models of the Highlight-Transformer return."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.utils import ModelOutput


@dataclass
class HighlightTransformerEncoderOutput(ModelOutput):
    """Output of the encoder. All tensors are batch-first, so that beam search can repeat them."""

    last_hidden_state: torch.Tensor | None = None  # token states, (batch, source, d_model)
    # ids of the tokens, which the decoder copies, (batch, source); `None` if only embeddings were given.
    source_ids: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None  # token states after the embedding and after each layer
    # one (batch, heads, source, source) for each layer, with eager attention.
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HighlightTransformerDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """BART's decoder output and `copy_attentions`, `(batch, target, source)`, in float32 at least."""

    copy_attentions: torch.Tensor | None = None


@dataclass
class HighlightTransformerModelOutput(Seq2SeqModelOutput):
    """BART's output, and what is copied."""

    # how much of the copied probability each source token gets, (batch, target, source); it adds up to one over the
    # source. `None` without copying.
    copy_attentions: torch.Tensor | None = None
    source_ids: torch.Tensor | None = None  # see [`HighlightTransformerEncoderOutput`]


@dataclass
class HighlightTransformerLMOutput(Seq2SeqLMOutput):
    """Loss, logits, and how the model copies.

    With copying, `logits` are the logarithms of probabilities.
    """

    # probability that the token is copied, not generated, (batch, target); with `output_copying=True` or
    # `output_attentions=True`.
    copy_probability: torch.Tensor | None = None
    copy_attentions: torch.Tensor | None = None  # see [`HighlightTransformerModelOutput`]; as `copy_probability`


__all__ = [
    "HighlightTransformerDecoderOutput",
    "HighlightTransformerEncoderOutput",
    "HighlightTransformerLMOutput",
    "HighlightTransformerModelOutput",
]
