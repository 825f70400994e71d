"""Metrics that load with no network."""

from .answers import AnswerOverlap
from .bleu import Bleu
from .document_scores import DocumentScores, DocumentStatistics, document_keys, paired_bootstrap
from .poem_bleu import PoemBleu
from .poem_form import poem_form
from .rouge import Rouge
from .rouge_su import RougeSu
from .squad import Squad


__all__ = [
    "AnswerOverlap",
    "Bleu",
    "DocumentScores",
    "DocumentStatistics",
    "PoemBleu",
    "Rouge",
    "RougeSu",
    "Squad",
    "document_keys",
    "paired_bootstrap",
    "poem_form",
]
