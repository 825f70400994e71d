"""Metrics that load with no network."""

from .answers import AnswerOverlap
from .bleu import Bleu
from .document_scores import DocumentScores, DocumentStatistics, document_keys, paired_bootstrap
from .model_scores import bert_scores, entailment_scores
from .poem_bleu import PoemBleu
from .poem_form import poem_form
from .reference_free import ReferenceFreeCounts, reference_free_counts, reference_free_scores
from .rouge import Rouge
from .rouge_su import RougeSu
from .squad import Squad


__all__ = [
    "AnswerOverlap",
    "Bleu",
    "DocumentScores",
    "DocumentStatistics",
    "PoemBleu",
    "ReferenceFreeCounts",
    "Rouge",
    "RougeSu",
    "Squad",
    "bert_scores",
    "document_keys",
    "entailment_scores",
    "paired_bootstrap",
    "poem_form",
    "reference_free_counts",
    "reference_free_scores",
]
