"""The public names as a type checker sees them; `__init__.py` finds them when they are asked for."""

from .capture import hierarchical_attention as hierarchical_attention
from .copying import Copy as Copy
from .copying import CopyRule as CopyRule
from .copying import find_copies as find_copies
from .copying import source_text as source_text
from .copying_report import CopyingReport as CopyingReport
from .heatmap import HierarchicalAttentionMap as HierarchicalAttentionMap
from .heatmap import top_sentences as top_sentences
from .highlighting import HighlightingReport as HighlightingReport
from .highlighting import highlighting_report as highlighting_report
from .levels import LevelWeights as LevelWeights
from .levels import level_weights as level_weights
from .row_attention import RowEntropy as RowEntropy
from .row_attention import row_entropy as row_entropy
from .summary_sources import sources_page as sources_page

__all__: list[str]
