"""What the models of HAM return."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import ModelOutput


@dataclass
class HamEncoderOutput(ModelOutput):
    """Output of the encoder. All tensors are batch-first, so that beam search can repeat them."""

    # what the decoder attends to, (batch, source, d_model). In the GRU body the state of a keyword stands at its first
    # token.
    last_hidden_state: torch.Tensor | None = None
    # 1 where there is something to attend to, 0 at padding and at a keyword's further tokens, (batch, source); GRU
    # body.
    memory_mask: torch.Tensor | None = None
    # embeddings and the states of each layer, (batch, source, width) each.
    hidden_states: tuple[torch.Tensor, ...] | None = None
    # of each layer, (batch, heads, source, source); Transformer body. With several levels, what comes of all of them:
    # how much of each token is in the result.
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HamDecoderOutput(ModelOutput):
    """Output of the decoder."""

    last_hidden_state: torch.Tensor | None = None  # what the head reads, (batch, target, embedding_size)
    cache: Any = None  # what later decoding steps need
    # embeddings and the states of each layer, (batch, target, width) each.
    hidden_states: tuple[torch.Tensor, ...] | None = None
    # to the target, of each layer, (batch, heads, target, target); Transformer body.
    attentions: tuple[torch.Tensor, ...] | None = None
    # to the source, (batch, heads, target, source), of each layer or, in the GRU body, one.
    cross_attentions: tuple[torch.Tensor, ...] | None = None
    level_attentions: torch.Tensor | None = None  # see [`HamModelOutput`]


@dataclass
class HamModelOutput(Seq2SeqModelOutput):
    """Output of encoder and decoder."""

    # weight of each level in each hierarchical attention, in the order that data flows, (batch, attentions, depth);
    # the same for the whole batch, they sum to one.
    level_weights: torch.Tensor | None = None
    # to the source at each level, (batch, depth, heads, target, source); GRU body, with `output_attentions`.
    level_attentions: torch.Tensor | None = None


@dataclass
class HamLMOutput(Seq2SeqLMOutput):
    """Loss, logits, and how the model attends."""

    level_weights: torch.Tensor | None = None  # see [`HamModelOutput`]
    level_attentions: torch.Tensor | None = None  # see there


__all__ = ["HamDecoderOutput", "HamEncoderOutput", "HamLMOutput", "HamModelOutput"]
