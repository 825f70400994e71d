"""Hierarchical encoder-decoder models for Hugging Face Transformers.

Importing this package makes its models known to the Auto classes and to `transformers.pipeline`. The import itself is
light: torch and the model files are loaded when something of theirs is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .registration import register


if TYPE_CHECKING:
    from .coarse_to_fine_lstm.configuration_coarse_to_fine_lstm import CoarseToFineLstmConfig
    from .coarse_to_fine_lstm.modeling_coarse_to_fine_lstm import (
        CoarseToFineLstmForConditionalGeneration,
        CoarseToFineLstmModel,
    )
    from .coarse_to_fine_lstm.processing_coarse_to_fine_lstm import CoarseToFineLstmProcessor
    from .data import HierDataCollator, MaskingCollator
    from .ham.attention_ham import HierarchicalAttention
    from .ham.configuration_ham import HamConfig
    from .ham.keywords_ham import PoemKeywords
    from .ham.modeling_ham import HamForConditionalGeneration, HamModel
    from .ham.processing_ham import HamProcessor
    from .ham_reader.configuration_ham_reader import HamReaderConfig
    from .ham_reader.modeling_ham_reader import HamReaderForQuestionAnswering
    from .ham_reader.processing_ham_reader import HamReaderProcessor
    from .hat_bart.configuration_hat_bart import HatBartConfig
    from .hat_bart.modeling_hat_bart import HatBartForConditionalGeneration, HatBartModel
    from .hat_bart.processing_hat_bart import HatBartProcessor
    from .hat_encoder.configuration_hat_encoder import HatEncoderConfig
    from .hat_encoder.modeling_hat_encoder import (
        HatEncoderForMaskedLM,
        HatEncoderForMultipleChoice,
        HatEncoderForQuestionAnswering,
        HatEncoderForSequenceClassification,
        HatEncoderForTokenClassification,
        HatEncoderModel,
    )
    from .hat_encoder.processing_hat_encoder import HatEncoderProcessor
    from .hat_encoder.tokenization_hat_encoder import HatEncoderTokenizer
    from .highlight_transformer.configuration_highlight_transformer import HighlightTransformerConfig
    from .highlight_transformer.key_phrases_highlight_transformer import KeyPhraseExtractor
    from .highlight_transformer.modeling_highlight_transformer import (
        HighlightTransformerForConditionalGeneration,
        HighlightTransformerModel,
    )
    from .highlight_transformer.processing_highlight_transformer import HighlightTransformerProcessor
    from .hub import export, push_to_hub
    from .pipelines.book_summaries import summarize_book
    from .pipelines.importance_tagger_hier import ImportanceTagger
    from .top_down_transformer.configuration_top_down_transformer import TopDownTransformerConfig
    from .top_down_transformer.modeling_top_down_transformer import (
        TopDownTransformerEncoderModel,
        TopDownTransformerForConditionalGeneration,
        TopDownTransformerForTokenClassification,
        TopDownTransformerModel,
    )
    from .top_down_transformer.processing_top_down_transformer import TopDownTransformerProcessor
    from .training import compute_summarization_metrics, compute_translation_metrics


__version__ = "0.1.0"

# Public name -> module that defines it.
_PUBLIC = {
    "CoarseToFineLstmConfig": "hier_models.coarse_to_fine_lstm.configuration_coarse_to_fine_lstm",
    "CoarseToFineLstmForConditionalGeneration": "hier_models.coarse_to_fine_lstm.modeling_coarse_to_fine_lstm",
    "CoarseToFineLstmModel": "hier_models.coarse_to_fine_lstm.modeling_coarse_to_fine_lstm",
    "CoarseToFineLstmProcessor": "hier_models.coarse_to_fine_lstm.processing_coarse_to_fine_lstm",
    "HamConfig": "hier_models.ham.configuration_ham",
    "HamForConditionalGeneration": "hier_models.ham.modeling_ham",
    "HamModel": "hier_models.ham.modeling_ham",
    "HamProcessor": "hier_models.ham.processing_ham",
    "HamReaderConfig": "hier_models.ham_reader.configuration_ham_reader",
    "HamReaderForQuestionAnswering": "hier_models.ham_reader.modeling_ham_reader",
    "HamReaderProcessor": "hier_models.ham_reader.processing_ham_reader",
    "HatBartConfig": "hier_models.hat_bart.configuration_hat_bart",
    "HatBartForConditionalGeneration": "hier_models.hat_bart.modeling_hat_bart",
    "HatBartModel": "hier_models.hat_bart.modeling_hat_bart",
    "HatBartProcessor": "hier_models.hat_bart.processing_hat_bart",
    "HatEncoderConfig": "hier_models.hat_encoder.configuration_hat_encoder",
    "HatEncoderForMaskedLM": "hier_models.hat_encoder.modeling_hat_encoder",
    "HatEncoderForMultipleChoice": "hier_models.hat_encoder.modeling_hat_encoder",
    "HatEncoderForQuestionAnswering": "hier_models.hat_encoder.modeling_hat_encoder",
    "HatEncoderForSequenceClassification": "hier_models.hat_encoder.modeling_hat_encoder",
    "HatEncoderForTokenClassification": "hier_models.hat_encoder.modeling_hat_encoder",
    "HatEncoderModel": "hier_models.hat_encoder.modeling_hat_encoder",
    "HatEncoderProcessor": "hier_models.hat_encoder.processing_hat_encoder",
    "HatEncoderTokenizer": "hier_models.hat_encoder.tokenization_hat_encoder",
    "HierDataCollator": "hier_models.data",
    "HierarchicalAttention": "hier_models.ham.attention_ham",
    "HighlightTransformerConfig": "hier_models.highlight_transformer.configuration_highlight_transformer",
    "HighlightTransformerForConditionalGeneration": (
        "hier_models.highlight_transformer.modeling_highlight_transformer"
    ),
    "HighlightTransformerModel": "hier_models.highlight_transformer.modeling_highlight_transformer",
    "HighlightTransformerProcessor": "hier_models.highlight_transformer.processing_highlight_transformer",
    "ImportanceTagger": "hier_models.pipelines.importance_tagger_hier",
    "KeyPhraseExtractor": "hier_models.highlight_transformer.key_phrases_highlight_transformer",
    "MaskingCollator": "hier_models.data",
    "PoemKeywords": "hier_models.ham.keywords_ham",
    "TopDownTransformerConfig": "hier_models.top_down_transformer.configuration_top_down_transformer",
    "TopDownTransformerEncoderModel": "hier_models.top_down_transformer.modeling_top_down_transformer",
    "TopDownTransformerForConditionalGeneration": "hier_models.top_down_transformer.modeling_top_down_transformer",
    "TopDownTransformerForTokenClassification": "hier_models.top_down_transformer.modeling_top_down_transformer",
    "TopDownTransformerModel": "hier_models.top_down_transformer.modeling_top_down_transformer",
    "TopDownTransformerProcessor": "hier_models.top_down_transformer.processing_top_down_transformer",
    "compute_summarization_metrics": "hier_models.training",
    "compute_translation_metrics": "hier_models.training",
    "export": "hier_models.hub",
    "push_to_hub": "hier_models.hub",
    "summarize_book": "hier_models.pipelines.book_summaries",
}

__all__ = [
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
