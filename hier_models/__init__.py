"""Hierarchical encoder-decoder models for Hugging Face Transformers.

Importing this package makes its models known to the Auto classes and to `transformers.pipeline`. The import itself is
light: torch and the model files are loaded when something of theirs is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .registration import register


if TYPE_CHECKING:
    from .books.summarizing import summarize_book
    from .data import HierDataCollator, MaskingCollator
    from .hub import export, push_to_hub
    from .hub_texts import MINI
    from .models.configuration_coarse_to_fine_lstm import CoarseToFineLstmConfig
    from .models.configuration_ham import HamConfig
    from .models.configuration_ham_reader import HamReaderConfig
    from .models.configuration_hat_bart import HatBartConfig
    from .models.configuration_hat_encoder import HatEncoderConfig
    from .models.configuration_highlight_transformer import HighlightTransformerConfig
    from .models.configuration_top_down_transformer import TopDownTransformerConfig
    from .models.hierarchical_attention import HierarchicalAttention
    from .models.key_phrase_extraction import KeyPhraseExtractor
    from .models.keywords import PoemKeywords
    from .models.modeling_coarse_to_fine_lstm import (
        CoarseToFineLstmForConditionalGeneration,
        CoarseToFineLstmModel,
    )
    from .models.modeling_ham import HamForConditionalGeneration, HamModel
    from .models.modeling_ham_reader import HamReaderForQuestionAnswering
    from .models.modeling_hat_bart import HatBartForConditionalGeneration, HatBartModel
    from .models.modeling_hat_encoder import (
        HatEncoderForMaskedLM,
        HatEncoderForMultipleChoice,
        HatEncoderForQuestionAnswering,
        HatEncoderForSequenceClassification,
        HatEncoderForTokenClassification,
        HatEncoderModel,
    )
    from .models.modeling_highlight_transformer import (
        HighlightTransformerForConditionalGeneration,
        HighlightTransformerModel,
    )
    from .models.modeling_top_down_transformer import (
        TopDownTransformerEncoderModel,
        TopDownTransformerForConditionalGeneration,
        TopDownTransformerForTokenClassification,
        TopDownTransformerModel,
    )
    from .models.processing_coarse_to_fine_lstm import CoarseToFineLstmProcessor
    from .models.processing_ham import HamProcessor
    from .models.processing_ham_reader import HamReaderProcessor
    from .models.processing_hat_bart import HatBartProcessor
    from .models.processing_hat_encoder import HatEncoderProcessor
    from .models.processing_highlight_transformer import HighlightTransformerProcessor
    from .models.processing_top_down_transformer import TopDownTransformerProcessor
    from .models.tokenization_hat_bart import HatBartTokenizer
    from .models.tokenization_hat_encoder import HatEncoderTokenizer
    from .pipelines.importance_tagger_hier import ImportanceTagger
    from .training import compute_summarization_metrics, compute_translation_metrics
    from .training.bart_from_encoder import bart_from_encoder


__version__ = "0.1.0"

# Public name -> module that defines it.
_PUBLIC = {
    "CoarseToFineLstmConfig": "hier_models.models.configuration_coarse_to_fine_lstm",
    "CoarseToFineLstmForConditionalGeneration": "hier_models.models.modeling_coarse_to_fine_lstm",
    "CoarseToFineLstmModel": "hier_models.models.modeling_coarse_to_fine_lstm",
    "CoarseToFineLstmProcessor": "hier_models.models.processing_coarse_to_fine_lstm",
    "HamConfig": "hier_models.models.configuration_ham",
    "HamForConditionalGeneration": "hier_models.models.modeling_ham",
    "HamModel": "hier_models.models.modeling_ham",
    "HamProcessor": "hier_models.models.processing_ham",
    "HamReaderConfig": "hier_models.models.configuration_ham_reader",
    "HamReaderForQuestionAnswering": "hier_models.models.modeling_ham_reader",
    "HamReaderProcessor": "hier_models.models.processing_ham_reader",
    "HatBartConfig": "hier_models.models.configuration_hat_bart",
    "HatBartForConditionalGeneration": "hier_models.models.modeling_hat_bart",
    "HatBartModel": "hier_models.models.modeling_hat_bart",
    "HatBartProcessor": "hier_models.models.processing_hat_bart",
    "HatBartTokenizer": "hier_models.models.tokenization_hat_bart",
    "HatEncoderConfig": "hier_models.models.configuration_hat_encoder",
    "HatEncoderForMaskedLM": "hier_models.models.modeling_hat_encoder",
    "HatEncoderForMultipleChoice": "hier_models.models.modeling_hat_encoder",
    "HatEncoderForQuestionAnswering": "hier_models.models.modeling_hat_encoder",
    "HatEncoderForSequenceClassification": "hier_models.models.modeling_hat_encoder",
    "HatEncoderForTokenClassification": "hier_models.models.modeling_hat_encoder",
    "HatEncoderModel": "hier_models.models.modeling_hat_encoder",
    "HatEncoderProcessor": "hier_models.models.processing_hat_encoder",
    "HatEncoderTokenizer": "hier_models.models.tokenization_hat_encoder",
    "HierDataCollator": "hier_models.data",
    "HierarchicalAttention": "hier_models.models.hierarchical_attention",
    "HighlightTransformerConfig": "hier_models.models.configuration_highlight_transformer",
    "HighlightTransformerForConditionalGeneration": ("hier_models.models.modeling_highlight_transformer"),
    "HighlightTransformerModel": "hier_models.models.modeling_highlight_transformer",
    "HighlightTransformerProcessor": "hier_models.models.processing_highlight_transformer",
    "ImportanceTagger": "hier_models.pipelines.importance_tagger_hier",
    "KeyPhraseExtractor": "hier_models.models.key_phrase_extraction",
    "MINI": "hier_models.hub_texts",
    "MaskingCollator": "hier_models.data",
    "PoemKeywords": "hier_models.models.keywords",
    "TopDownTransformerConfig": "hier_models.models.configuration_top_down_transformer",
    "TopDownTransformerEncoderModel": "hier_models.models.modeling_top_down_transformer",
    "TopDownTransformerForConditionalGeneration": "hier_models.models.modeling_top_down_transformer",
    "TopDownTransformerForTokenClassification": "hier_models.models.modeling_top_down_transformer",
    "TopDownTransformerModel": "hier_models.models.modeling_top_down_transformer",
    "TopDownTransformerProcessor": "hier_models.models.processing_top_down_transformer",
    "bart_from_encoder": "hier_models.training.bart_from_encoder",
    "compute_summarization_metrics": "hier_models.training",
    "compute_translation_metrics": "hier_models.training",
    "export": "hier_models.hub",
    "push_to_hub": "hier_models.hub",
    "summarize_book": "hier_models.books.summarizing",
}

__all__ = [
    "MINI",
    "CoarseToFineLstmConfig",
    "CoarseToFineLstmForConditionalGeneration",
    "CoarseToFineLstmModel",
    "CoarseToFineLstmProcessor",
    "HamConfig",
    "HamForConditionalGeneration",
    "HamModel",
    "HamProcessor",
    "HamReaderConfig",
    "HamReaderForQuestionAnswering",
    "HamReaderProcessor",
    "HatBartConfig",
    "HatBartForConditionalGeneration",
    "HatBartModel",
    "HatBartProcessor",
    "HatBartTokenizer",
    "HatEncoderConfig",
    "HatEncoderForMaskedLM",
    "HatEncoderForMultipleChoice",
    "HatEncoderForQuestionAnswering",
    "HatEncoderForSequenceClassification",
    "HatEncoderForTokenClassification",
    "HatEncoderModel",
    "HatEncoderProcessor",
    "HatEncoderTokenizer",
    "HierDataCollator",
    "HierarchicalAttention",
    "HighlightTransformerConfig",
    "HighlightTransformerForConditionalGeneration",
    "HighlightTransformerModel",
    "HighlightTransformerProcessor",
    "ImportanceTagger",
    "KeyPhraseExtractor",
    "MaskingCollator",
    "PoemKeywords",
    "TopDownTransformerConfig",
    "TopDownTransformerEncoderModel",
    "TopDownTransformerForConditionalGeneration",
    "TopDownTransformerForTokenClassification",
    "TopDownTransformerModel",
    "TopDownTransformerProcessor",
    "bart_from_encoder",
    "compute_summarization_metrics",
    "compute_translation_metrics",
    "export",
    "push_to_hub",
    "summarize_book",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register()
