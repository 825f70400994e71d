"""Pictures of where a model looked, and reports of what it highlighted, and what it copied from where."""

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .capture import hierarchical_attention
    from .copying import Copy, CopyRule, find_copies, source_text
    from .copying_report import CopyingReport
    from .heatmap import HierarchicalAttentionMap, top_sentences
    from .highlighting import HighlightingReport, highlighting_report
    from .levels import LevelWeights, level_weights
    from .row_attention import RowEntropy, row_entropy
    from .summary_sources import save_sources_page, sources_page


__all__ = [
    "Copy",
    "CopyRule",
    "CopyingReport",
    "HierarchicalAttentionMap",
    "HighlightingReport",
    "LevelWeights",
    "RowEntropy",
    "find_copies",
    "hierarchical_attention",
    "highlighting_report",
    "level_weights",
    "row_entropy",
    "save_sources_page",
    "source_text",
    "sources_page",
    "top_sentences",
]

_HOMES = {
    "Copy": "copying",
    "CopyRule": "copying",
    "CopyingReport": "copying_report",
    "HierarchicalAttentionMap": "heatmap",
    "HighlightingReport": "highlighting",
    "LevelWeights": "levels",
    "RowEntropy": "row_attention",
    "find_copies": "copying",
    "hierarchical_attention": "capture",
    "highlighting_report": "highlighting",
    "level_weights": "levels",
    "row_entropy": "row_attention",
    "save_sources_page": "summary_sources",
    "source_text": "copying",
    "sources_page": "summary_sources",
    "top_sentences": "heatmap",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
