"""What the models of the Coarse-to-Fine LSTM return."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import ModelOutput


@dataclass
class CoarseToFineLstmEncoderOutput(ModelOutput):
    """Output of the encoder. All tensors are batch-first, so that beam search can repeat them.

    With hard attention and without gradient, the word LSTM has not read anything yet: there are `row_store`, which
    reads rows when they are selected, and `document_ids`, and no state in `last_hidden_state`.
    """

    # word states, zero outside of rows, (batch, source, hidden_size); (batch, source, 0) when rows are read on demand.
    last_hidden_state: torch.Tensor | None = None
    # row of each token in its document, -1 for what is not attended to, (batch, source).
    row_ids: torch.Tensor | None = None
    # what attention over rows multiplies with the decoder's state, (batch, rows, hidden_size); with
    # `attention="coarse_to_fine"` and `"hard"`.
    row_keys: torch.Tensor | None = None
    # place in the source of each token of each row, -1 pads, (batch, rows, words); as `row_keys`.
    row_tokens: torch.Tensor | None = None
    document_ids: torch.Tensor | None = None  # number of each document in the `row_store`, (batch,)
    # rows that are read on demand, once for all beams of a document. Not a tensor, so that beam search does not repeat
    # it.
    row_store: Any = None
    # word embeddings and the states of each layer, (batch, source, width) each.
    hidden_states: tuple[torch.Tensor, ...] | None = None


@dataclass
class CoarseToFineLstmDecoderOutput(ModelOutput):
    """Output of the decoder."""

    last_hidden_state: torch.Tensor | None = None  # contexts, (batch, target, hidden_size)
    cache: Any = None  # state for later decoding steps
    # word embeddings and the states of each layer, (batch, target, width) each.
    hidden_states: tuple[torch.Tensor, ...] | None = None
    cross_attentions: tuple[torch.Tensor, ...] | None = None  # see [`CoarseToFineLstmModelOutput`]
    row_attentions: torch.Tensor | None = None  # see there
    row_log_probabilities: torch.Tensor | None = None  # see there
    row_counts: torch.Tensor | None = None  # see there
    encoded_rows: torch.Tensor | None = None  # see there


@dataclass
class CoarseToFineLstmModelOutput(Seq2SeqModelOutput):
    """Output of encoder and decoder."""

    # attention over the rows at each target step, before hard attention selects, (batch, target, rows); without
    # attention over rows, the sum of `cross_attentions` in each row. With `output_attentions`.
    row_attentions: torch.Tensor | None = None
    # logarithm of the attention over rows that rows were drawn from, (batch, target, rows); when they were drawn.
    row_log_probabilities: torch.Tensor | None = None
    # how often each row was drawn, (batch, target, rows); as `row_log_probabilities`.
    row_counts: torch.Tensor | None = None
    # rows of each document that the word LSTM has read, (batch,); when it reads on demand.
    encoded_rows: torch.Tensor | None = None


@dataclass
class CoarseToFineLstmLMOutput(Seq2SeqLMOutput):
    """Loss, logits, and how the model attends.

    The value of `loss` is the negative log-likelihood. When rows were drawn, its gradient is that of the likelihood
    and of the surrogate.
    """

    # value of the surrogate term, without gradient; when rows were drawn and there are labels.
    surrogate: torch.Tensor | None = None
    row_attentions: torch.Tensor | None = None  # see [`CoarseToFineLstmModelOutput`]
    encoded_rows: torch.Tensor | None = None  # see there


__all__ = [
    "CoarseToFineLstmDecoderOutput",
    "CoarseToFineLstmEncoderOutput",
    "CoarseToFineLstmLMOutput",
    "CoarseToFineLstmModelOutput",
]
