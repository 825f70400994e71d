"""Loading documents, turning them into model inputs, and batching these."""

from .collating import HierDataCollator
from .loading import BadLineError, LoadReport, load_documents
from .tokenizing import TruncationReport, tokenize_documents


__all__ = [
    "BadLineError",
    "HierDataCollator",
    "LoadReport",
    "TruncationReport",
    "load_documents",
    "tokenize_documents",
]
