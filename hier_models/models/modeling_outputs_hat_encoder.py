"""What the models of the encoder-only HAT return: RoBERTa's outputs, and the hierarchical attention.

In all of them `hierarchical_attentions` holds one `(batch, heads, queries, sentences)` for each layer; the queries are
the tokens, or with `hierarchical_queries="bos"` the sentences.
"""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)


@dataclass
class HatEncoderModelOutput(BaseModelOutputWithPooling):
    """RoBERTa's output and the hierarchical attention of each layer."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HatEncoderMaskedLMOutput(MaskedLMOutput):
    """RoBERTa's output and the hierarchical attention of each layer."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HatEncoderSequenceClassifierOutput(SequenceClassifierOutput):
    """RoBERTa's output and the hierarchical attention of each layer."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HatEncoderMultipleChoiceOutput(MultipleChoiceModelOutput):
    """RoBERTa's output and the hierarchical attention of each layer; the choices stand in the batch axis there."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HatEncoderQuestionAnsweringOutput(QuestionAnsweringModelOutput):
    """RoBERTa's output and the hierarchical attention of each layer."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class HatEncoderTokenClassifierOutput(TokenClassifierOutput):
    """RoBERTa's output and the hierarchical attention of each layer."""

    hierarchical_attentions: tuple[torch.Tensor, ...] | None = None


__all__ = [
    "HatEncoderMaskedLMOutput",
    "HatEncoderModelOutput",
    "HatEncoderMultipleChoiceOutput",
    "HatEncoderQuestionAnsweringOutput",
    "HatEncoderSequenceClassifierOutput",
    "HatEncoderTokenClassifierOutput",
]
