"""Pictures of where a model looked, and reports of what it highlighted, and what it copied from where."""

from importlib import import_module
from typing import Any


# What type checkers see is `__init__.pyi`.
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
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
