"""Pictures of where a model looked, and reports of what it highlighted, and what it copied from where."""

from importlib import import_module
from typing import Any


# What type checkers see is `__init__.pyi`.
_NAMES = {
    "capture": ("hierarchical_attention",),
    "copying": ("Copy", "CopyRule", "find_copies", "source_text"),
    "copying_report": ("CopyingReport",),
    "heatmap": ("HierarchicalAttentionMap", "top_sentences"),
    "highlighting": ("HighlightingReport", "highlighting_report"),
    "levels": ("LevelWeights", "level_weights"),
    "row_attention": ("RowEntropy", "row_entropy"),
    "summary_sources": ("save_sources_page", "sources_page"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
