"""Loading documents, turning them into model inputs, and batching these."""

from .collating import HierDataCollator
from .joint_bpe import train_joint_bpe
from .loading import BadLineError, LoadReport, load_documents
from .parallel import ChunkReport, chunk_parallel, load_parallel
from .tokenizing import TruncationReport, tokenize_documents


__all__ = [
    "BadLineError",
    "ChunkReport",
    "HierDataCollator",
    "LoadReport",
    "TruncationReport",
    "chunk_parallel",
    "load_documents",
    "load_parallel",
    "tokenize_documents",
    "train_joint_bpe",
]
