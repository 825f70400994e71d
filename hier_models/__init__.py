"""Hierarchical encoder-decoder models for Hugging Face Transformers.

Importing this package makes its models known to the Auto classes and to `transformers.pipeline`. The import itself is
light: torch and the model files are loaded when something of theirs is first used.
"""

import importlib
from typing import Any

from .families import FAMILIES
from .registration import register


__version__ = "0.1.0"

# Public names that are of no family -> module that defines them. What type checkers see is `__init__.pyi`.
_OTHERS = {
    "HierDataCollator": "hier_models.data",
    "HierarchicalAttention": "hier_models.models.hierarchical_attention",
    "ImportanceTagger": "hier_models.pipelines.importance_tagger_hier",
    "KeyPhraseExtractor": "hier_models.models.key_phrase_extraction",
    "PhraseFinder": "hier_models.models.phrase_finder",
    "PhraseFunction": "hier_models.models.phrase_finder",
    "MINI": "hier_models.checkpoints",
    "MaskingCollator": "hier_models.data",
    "PoemKeywords": "hier_models.models.keywords",
    "bart_from_encoder": "hier_models.training.bart_from_encoder",
    "compute_summarization_metrics": "hier_models.training",
    "compute_translation_metrics": "hier_models.training",
    "export": "hier_models.hub",
    "push_to_hub": "hier_models.hub",
    "summarize_book": "hier_models.books.summarizing",
}


def _homes() -> dict[str, str]:
    """Public name -> module that defines it."""
    return {name: home for family in FAMILIES.values() for name, home in family.classes.items()} | _OTHERS


__all__ = sorted(_homes(), key=lambda name: (not name.isupper(), name))


def __getattr__(name: str) -> Any:
    if name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_homes()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register()
