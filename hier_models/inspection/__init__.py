"""Pictures of where a model looked: the hierarchical attention of a summary over the sentences of its document."""

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .capture import hierarchical_attention
    from .heatmap import HierarchicalAttentionMap, top_sentences


__all__ = ["HierarchicalAttentionMap", "hierarchical_attention", "top_sentences"]

_HOMES = {"hierarchical_attention": "capture", "HierarchicalAttentionMap": "heatmap", "top_sentences": "heatmap"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
