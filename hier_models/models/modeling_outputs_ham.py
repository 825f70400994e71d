"""What the models of HAM return."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import ModelOutput


@dataclass
class HamEncoderOutput(ModelOutput):
    """Output of the encoder. All tensors are batch-first, so that beam search can repeat them.

    Args:
        last_hidden_state: what the decoder attends to, `(batch, source, d_model)`. In the GRU body the state of a
            keyword stands at its first token.
        memory_mask: 1 where there is something to attend to, 0 at padding and at a keyword's further tokens,
            `(batch, source)`; GRU body.
        hidden_states: embeddings and the states of each layer, `(batch, source, width)` each.
        attentions: of each layer, `(batch, heads, source, source)`; Transformer body. With several levels, what comes
            of all of them: how much of each token is in the result.
    """

    last_hidden_state: torch.Tensor | None = None
    memory_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HamDecoderOutput(ModelOutput):
    """Output of the decoder.

    Args:
        last_hidden_state: what the head reads, `(batch, target, embedding_size)`.
        cache: what later decoding steps need.
        hidden_states: embeddings and the states of each layer, `(batch, target, width)` each.
        attentions: to the target, of each layer, `(batch, heads, target, target)`; Transformer body.
        cross_attentions: to the source, `(batch, heads, target, source)`, of each layer or, in the GRU body, one.
        level_attentions: see [`HamModelOutput`].
    """

    last_hidden_state: torch.Tensor | None = None
    cache: Any = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    cross_attentions: tuple[torch.Tensor, ...] | None = None
    level_attentions: torch.Tensor | None = None


@dataclass
class HamModelOutput(Seq2SeqModelOutput):
    """Output of encoder and decoder.

    Args:
        level_weights: weight of each level in each hierarchical attention, in the order that data flows,
            `(batch, attentions, depth)`; the same for the whole batch, they sum to one.
        level_attentions: to the source at each level, `(batch, depth, heads, target, source)`; GRU body, with
            `output_attentions`.
    """

    level_weights: torch.Tensor | None = None
    level_attentions: torch.Tensor | None = None


@dataclass
class HamLMOutput(Seq2SeqLMOutput):
    """Loss, logits, and how the model attends.

    Args:
        level_weights: see [`HamModelOutput`].
        level_attentions: see there.
    """

    level_weights: torch.Tensor | None = None
    level_attentions: torch.Tensor | None = None


__all__ = ["HamDecoderOutput", "HamEncoderOutput", "HamLMOutput", "HamModelOutput"]
