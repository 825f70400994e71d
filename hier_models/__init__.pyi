"""The public names as a type checker or an editor sees them; `__init__.py` finds them when they are asked for."""

from .books.summarizing import summarize_book as summarize_book
from .checkpoints import MINI as MINI
from .data import HierDataCollator as HierDataCollator
from .data import MaskingCollator as MaskingCollator
from .hub import export as export
from .hub import push_to_hub as push_to_hub
from .models.configuration_coarse_to_fine_lstm import CoarseToFineLstmConfig as CoarseToFineLstmConfig
from .models.configuration_ham import HamConfig as HamConfig
from .models.configuration_ham_reader import HamReaderConfig as HamReaderConfig
from .models.configuration_hat_bart import HatBartConfig as HatBartConfig
from .models.configuration_hat_encoder import HatEncoderConfig as HatEncoderConfig
from .models.configuration_highlight_transformer import HighlightTransformerConfig as HighlightTransformerConfig
from .models.configuration_top_down_transformer import TopDownTransformerConfig as TopDownTransformerConfig
from .models.hierarchical_attention import HierarchicalAttention as HierarchicalAttention
from .models.key_phrase_extraction import KeyPhraseExtractor as KeyPhraseExtractor
from .models.keywords import PoemKeywords as PoemKeywords
from .models.modeling_coarse_to_fine_lstm import (
    CoarseToFineLstmForConditionalGeneration as CoarseToFineLstmForConditionalGeneration,
)
from .models.modeling_coarse_to_fine_lstm import CoarseToFineLstmModel as CoarseToFineLstmModel
from .models.modeling_ham import HamForConditionalGeneration as HamForConditionalGeneration
from .models.modeling_ham import HamModel as HamModel
from .models.modeling_ham_reader import HamReaderForQuestionAnswering as HamReaderForQuestionAnswering
from .models.modeling_hat_bart import HatBartForConditionalGeneration as HatBartForConditionalGeneration
from .models.modeling_hat_bart import HatBartModel as HatBartModel
from .models.modeling_hat_encoder import HatEncoderForMaskedLM as HatEncoderForMaskedLM
from .models.modeling_hat_encoder import HatEncoderForMultipleChoice as HatEncoderForMultipleChoice
from .models.modeling_hat_encoder import HatEncoderForQuestionAnswering as HatEncoderForQuestionAnswering
from .models.modeling_hat_encoder import HatEncoderForSequenceClassification as HatEncoderForSequenceClassification
from .models.modeling_hat_encoder import HatEncoderForTokenClassification as HatEncoderForTokenClassification
from .models.modeling_hat_encoder import HatEncoderModel as HatEncoderModel
from .models.modeling_highlight_transformer import (
    HighlightTransformerForConditionalGeneration as HighlightTransformerForConditionalGeneration,
)
from .models.modeling_highlight_transformer import HighlightTransformerModel as HighlightTransformerModel
from .models.modeling_top_down_transformer import TopDownTransformerEncoderModel as TopDownTransformerEncoderModel
from .models.modeling_top_down_transformer import (
    TopDownTransformerForConditionalGeneration as TopDownTransformerForConditionalGeneration,
)
from .models.modeling_top_down_transformer import (
    TopDownTransformerForTokenClassification as TopDownTransformerForTokenClassification,
)
from .models.modeling_top_down_transformer import TopDownTransformerModel as TopDownTransformerModel
from .models.phrase_finder import PhraseFinder as PhraseFinder
from .models.phrase_finder import PhraseFunction as PhraseFunction
from .models.processing_coarse_to_fine_lstm import CoarseToFineLstmProcessor as CoarseToFineLstmProcessor
from .models.processing_ham import HamProcessor as HamProcessor
from .models.processing_ham_reader import HamReaderProcessor as HamReaderProcessor
from .models.processing_hat_bart import HatBartProcessor as HatBartProcessor
from .models.processing_hat_encoder import HatEncoderProcessor as HatEncoderProcessor
from .models.processing_highlight_transformer import HighlightTransformerProcessor as HighlightTransformerProcessor
from .models.processing_top_down_transformer import TopDownTransformerProcessor as TopDownTransformerProcessor
from .models.tokenization_hat_bart import HatBartTokenizer as HatBartTokenizer
from .models.tokenization_hat_encoder import HatEncoderTokenizer as HatEncoderTokenizer
from .pipelines.importance_tagger_hier import ImportanceTagger as ImportanceTagger
from .training import compute_summarization_metrics as compute_summarization_metrics
from .training import compute_translation_metrics as compute_translation_metrics
from .training.bart_from_encoder import bart_from_encoder as bart_from_encoder

__version__: str
__all__: list[str]
