"""What models return. All tensors of encoders' outputs are batch-first, so that beam search can repeat them.

Attentions are tuples with one tensor for each layer, (batch, heads, queries, keys), where nothing else is said.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPooling,
    QuestionAnsweringModelOutput,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput


def with_attentions(*names: str) -> Callable[[Any], Any]:
    """Have `output_attentions` of a forward collect further attentions, which Transformers does not know."""

    def decorate(forward: Any) -> Any:
        @functools.wraps(forward)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("output_attentions", self.config.output_attentions):
                kwargs |= {f"output_{name}": True for name in names}
            return forward(self, *args, **kwargs)

        return wrapped

    return decorate


def takes(model_class: Any, *also: str) -> Callable[[Any], Any]:
    """Have a head's forward take by name what its model's does, and more, so that generation and Trainer find it."""
    signature = inspect.signature(model_class.forward)
    *named, others = signature.parameters.values()
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in also]
    names = [parameter.name for parameter in named[1:]]

    def decorate(forward: Any) -> Any:
        @functools.wraps(forward)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(self, **dict(zip(names, args, strict=False)), **kwargs)

        wrapped.__signature__ = signature.replace(parameters=[*named, *added, others])  # type: ignore[attr-defined]
        del wrapped.__wrapped__  # accelerate takes decorators off after mixed precision; this one has to stay
        return wrapped

    return decorate


@dataclass
class CopyDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """BART's decoder output, and how much of the copied probability each source token gets."""

    copy_attentions: torch.Tensor | None = None  # (batch, target, source); in float32 at least


@dataclass
class CopyModelOutput(Seq2SeqModelOutput):
    """BART's output, and what is copied, which is `None` without copying."""

    copy_attentions: torch.Tensor | None = None  # (batch, target, source); adds up to one over the source
    source_ids: torch.Tensor | None = None  # ids of the tokens, (batch, source)


@dataclass
class CopyLMOutput(Seq2SeqLMOutput):
    """Loss, logits (with copying, logarithms of probabilities) and, if asked for, how the model copies."""

    copy_probability: torch.Tensor | None = None  # that the token is copied, not generated, (batch, target)
    copy_attentions: torch.Tensor | None = None  # see [`CopyModelOutput`]


@dataclass
class HatBartEncoderOutput(ModelOutput):
    """Output of the encoder."""

    last_hidden_state: torch.Tensor | None = None  # token states, (batch, source, d_model)
    hierarchical_hidden_state: torch.Tensor | None = None  # (batch, sentences, d_model); `None` without hierarchy
    hierarchical_attention_mask: torch.Tensor | None = None  # 1 where there is a sentence, (batch, sentences)
    # 1 for tokens that are attended to, 0 for padding and silent markers, (batch, source); `None` without silent ones
    read_mask: torch.Tensor | None = None
    source_ids: torch.Tensor | None = None  # ids of the tokens, where the model copies them, (batch, source)
    hidden_states: tuple[torch.Tensor, ...] | None = None  # token states after the embedding and after each layer
    attentions: tuple[torch.Tensor, ...] | None = None  # of the token-level layers
    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None  # of sentences to sentences


@dataclass
class HatBartDecoderOutput(CopyDecoderOutput):
    """BART's decoder output, the third attentions and what is copied."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None  # of the target to sentences


@dataclass
class HatBartModelOutput(CopyModelOutput):
    """BART's output, the attentions of the hierarchy and what is copied."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None  # of the target to sentences
    encoder_hierarchical_attentions: tuple[torch.Tensor, ...] | None = None  # of sentences to sentences


@dataclass
class HatBartLMOutput(CopyLMOutput):
    """Loss, logits, what is in [`HatBartModelOutput`], and how the model copies."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None
    encoder_hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HighlightTransformerEncoderOutput(ModelOutput):
    """Output of the encoder."""

    last_hidden_state: torch.Tensor | None = None  # token states, (batch, source, d_model)
    source_ids: torch.Tensor | None = None  # ids of the tokens, (batch, source); `None` if only embeddings were given
    hidden_states: tuple[torch.Tensor, ...] | None = None  # token states after the embedding and after each layer
    attentions: tuple[torch.Tensor, ...] | None = None  # with eager attention


@dataclass
class TopDownTransformerEncoderOutput(ModelOutput):
    """Output of the encoder."""

    last_hidden_state: torch.Tensor | None = None  # token states, (batch, source, d_model)
    # of the segments that the tokens attend to, (batch, segments, d_model); `None` without top-down update
    segment_hidden_states: torch.Tensor | None = None
    segment_attention_mask: torch.Tensor | None = None  # 1 where there is a segment, 0 for padding, (batch, segments)
    source_ids: torch.Tensor | None = None  # ids of the tokens, where the model copies them, (batch, source)
    hidden_states: tuple[torch.Tensor, ...] | None = None  # after the embedding and after each token layer
    attentions: tuple[torch.Tensor, ...] | None = None  # of each token layer, with eager attention
    # one (batch, heads, segments, segments) for each attention over segments, the top level's first; with several
    # levels, a lower one's layers have two, the second of which is to the level above
    segment_attentions: tuple[torch.Tensor, ...] | None = None
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None  # of tokens to segments, of each top-down layer


@dataclass
class TopDownTransformerModelOutput(CopyModelOutput):
    """BART's output, and the attentions of [`TopDownTransformerEncoderOutput`] over and to segments."""

    segment_attentions: tuple[torch.Tensor, ...] | None = None
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class TopDownTransformerLMOutput(CopyLMOutput):
    """Loss, logits, what is in [`TopDownTransformerModelOutput`], and how the model copies."""

    segment_attentions: tuple[torch.Tensor, ...] | None = None
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class TopDownTransformerTokenClassifierOutput(TokenClassifierOutput):
    """Loss, logits and the attentions of [`TopDownTransformerEncoderOutput`]."""

    segment_attentions: tuple[torch.Tensor, ...] | None = None
    token_segment_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HatEncoderModelOutput(BaseModelOutputWithPooling):
    """RoBERTa's output and the hierarchical attentions, whose queries are tokens or, with `"bos"`, sentences."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HatEncoderHeadOutput(TokenClassifierOutput):
    """RoBERTa's output with a head, whatever the logits are of; of multiple choice, choices are in the batch axis."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None  # see [`HatEncoderModelOutput`]


@dataclass
class HatEncoderQuestionAnsweringOutput(QuestionAnsweringModelOutput):
    """See [`HatEncoderModelOutput`]."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class CoarseToFineLstmEncoderOutput(ModelOutput):
    """Output of the encoder.

    With hard attention and without gradient, the word LSTM has not read anything yet: there are `row_store`, which
    reads rows when they are selected, and `document_ids`, and no state in `last_hidden_state`.
    """

    # word states, zero outside of rows, (batch, source, hidden_size); (batch, source, 0) when rows are read on demand
    last_hidden_state: torch.Tensor | None = None
    row_ids: torch.Tensor | None = None  # row of each token, -1 for what is not attended to, (batch, source)
    # what attention over rows multiplies with the decoder's state, (batch, rows, hidden_size); Models 2 and 3
    row_keys: torch.Tensor | None = None
    row_tokens: torch.Tensor | None = None  # place of each token of each row, -1 pads, (batch, rows, words); likewise
    document_ids: torch.Tensor | None = None  # number of each document in the `row_store`, (batch,)
    row_store: Any = None  # no tensor, so that beam search does not repeat it: all beams of a document share it
    hidden_states: tuple[torch.Tensor, ...] | None = None  # embeddings, then of each layer, (batch, source, width)


@dataclass
class CoarseToFineLstmDecoderOutput(ModelOutput):
    """Output of the decoder; the last seven are those of [`CoarseToFineLstmModelOutput`]."""

    last_hidden_state: torch.Tensor | None = None  # contexts, (batch, target, hidden_size)
    cache: Any = None  # state for later decoding steps
    hidden_states: tuple[torch.Tensor, ...] | None = None  # embeddings, then of each layer, (batch, target, width)
    cross_attentions: tuple[torch.Tensor, ...] | None = None
    row_attentions: torch.Tensor | None = None
    row_log_probabilities: torch.Tensor | None = None
    row_counts: torch.Tensor | None = None
    left_out_rows: torch.Tensor | None = None
    left_out_contexts: torch.Tensor | None = None
    encoded_rows: torch.Tensor | None = None


@dataclass
class CoarseToFineLstmModelOutput(Seq2SeqModelOutput):
    """Output of encoder and decoder."""

    # attention over the rows at each target step, before hard attention selects, (batch, target, rows); without
    # attention over rows, the sum of `cross_attentions` in each row; with `output_attentions`
    row_attentions: torch.Tensor | None = None
    row_log_probabilities: torch.Tensor | None = None  # of the attention that rows were drawn from, likewise
    row_counts: torch.Tensor | None = None  # how often each row was drawn, (batch, target, rows)
    left_out_rows: torch.Tensor | None = None  # rows that were drawn, (batch, target, samples); of "leave_one_out"
    left_out_contexts: torch.Tensor | None = None  # contexts without one draw of it, (…, samples, hidden_size)
    encoded_rows: torch.Tensor | None = None  # rows that the word LSTM has read, (batch,); when it reads on demand


@dataclass
class CoarseToFineLstmLMOutput(Seq2SeqLMOutput):
    """Loss (of the likelihood; its gradient also the surrogate's), logits, and how the model attends."""

    surrogate: torch.Tensor | None = None  # value of the surrogate term, without gradient; when rows were drawn
    row_attentions: torch.Tensor | None = None
    encoded_rows: torch.Tensor | None = None


@dataclass
class HamEncoderOutput(ModelOutput):
    """Output of the encoder."""

    # what the decoder attends to, (batch, source, d_model); of the GRU body, a keyword stands at its first token
    last_hidden_state: torch.Tensor | None = None
    # 1 where there is something to attend to, 0 at padding and a keyword's further tokens, (batch, source); GRU body
    memory_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None  # embeddings, then of each layer, (batch, source, width)
    # of the Transformer body. With several levels, what comes of all of them: how much of each token is in the result
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HamDecoderOutput(ModelOutput):
    """Output of the decoder."""

    last_hidden_state: torch.Tensor | None = None  # what the head reads, (batch, target, embedding_size)
    cache: Any = None  # what later decoding steps need
    hidden_states: tuple[torch.Tensor, ...] | None = None  # embeddings, then of each layer, (batch, target, width)
    attentions: tuple[torch.Tensor, ...] | None = None  # to the target; Transformer body
    cross_attentions: tuple[torch.Tensor, ...] | None = None  # to the source, of each layer or, in the GRU body, one
    level_attentions: torch.Tensor | None = None  # see [`HamModelOutput`]


@dataclass
class HamModelOutput(Seq2SeqModelOutput):
    """Output of encoder and decoder."""

    # weight of each level in each hierarchical attention, in the order that data flows, (batch, attentions, depth);
    # the same for the whole batch, they sum to one
    level_weights: torch.Tensor | None = None
    # to the source at each level, (batch, depth, heads, target, source); GRU body, with `output_attentions`
    level_attentions: torch.Tensor | None = None


@dataclass
class HamLMOutput(Seq2SeqLMOutput):
    """Loss, logits, and how the model attends, see [`HamModelOutput`]."""

    level_weights: torch.Tensor | None = None
    level_attentions: torch.Tensor | None = None
