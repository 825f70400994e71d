"""What the models of the Top-Down Transformer return."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput, TokenClassifierOutput
from transformers.utils import ModelOutput


@dataclass
class TopDownTransformerEncoderOutput(ModelOutput):
    """Output of the encoder. All tensors are batch-first, so that beam search can repeat them.

    Args:
        last_hidden_state: token states, `(batch, source, d_model)`.
        segment_hidden_states: states of the segments that the tokens attend to, `(batch, segments, d_model)`; `None`
            without top-down update.
        segment_attention_mask: 1 where there is a segment, 0 for padding, `(batch, segments)`.
        hidden_states: token states after the embedding and after each token layer.
        attentions: one `(batch, heads, source, source)` for each token layer, with eager attention.
        segment_attentions: one `(batch, heads, segments, segments)` for each attention over segments, the top level's
            first; with several levels, a lower one's layers have two, the second of which is to the level above.
        token_segment_attentions: one `(batch, heads, source, segments)` for each top-down layer.
    """

    last_hidden_state: torch.Tensor | None = None
    segment_hidden_states: torch.Tensor | None = None
    segment_attention_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    segment_attentions: tuple[torch.Tensor, ...] | None = None
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class TopDownTransformerModelOutput(Seq2SeqModelOutput):
    """BART's output, and the attentions of [`TopDownTransformerEncoderOutput`] over and to segments."""

    segment_attentions: tuple[torch.Tensor, ...] | None = None
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class TopDownTransformerLMOutput(Seq2SeqLMOutput):
    """Loss, logits and what is in [`TopDownTransformerModelOutput`]."""

    segment_attentions: tuple[torch.Tensor, ...] | None = None
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class TopDownTransformerTokenClassifierOutput(TokenClassifierOutput):
    """Loss, logits and the attentions of [`TopDownTransformerEncoderOutput`]."""

    segment_attentions: tuple[torch.Tensor, ...] | None = None
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None


__all__ = [
    "TopDownTransformerEncoderOutput",
    "TopDownTransformerLMOutput",
    "TopDownTransformerModelOutput",
    "TopDownTransformerTokenClassifierOutput",
]
