"""Loading documents, turning them into model inputs, and batching these."""

from .bad_lines import LoadReport
from .collator import HierDataCollator
from .importance import ImportanceLabels, importance_spans
from .key_phrases import fit_key_phrases
from .loading import BadLineError, load_documents
from .masking import MaskingCollator
from .packing import PackingReport, pack_documents
from .parallel import ChunkReport, chunk_parallel, load_parallel
from .poems import character_coverage, load_poems, tokenize_poems, write_quatrains
from .question_answering import Answer, Prediction, QuestionReport, find_answers, tokenize_questions
from .tokenizer_training import train_characters, train_joint_bpe, train_word_level
from .tokenizing import TruncationReport, tokenize_documents


__all__ = [
    "Answer",
    "BadLineError",
    "ChunkReport",
    "HierDataCollator",
    "ImportanceLabels",
    "LoadReport",
    "MaskingCollator",
    "PackingReport",
    "Prediction",
    "QuestionReport",
    "TruncationReport",
    "character_coverage",
    "chunk_parallel",
    "find_answers",
    "fit_key_phrases",
    "importance_spans",
    "load_documents",
    "load_parallel",
    "load_poems",
    "pack_documents",
    "tokenize_documents",
    "tokenize_poems",
    "tokenize_questions",
    "train_characters",
    "train_joint_bpe",
    "train_word_level",
    "write_quatrains",
]
