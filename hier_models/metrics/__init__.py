"""Metrics that load with no network."""

from .answers import AnswerOverlap
from .bleu import Bleu
from .poem_bleu import PoemBleu
from .rouge import Rouge
from .rouge_su import RougeSu
from .squad import Squad


__all__ = ["AnswerOverlap", "Bleu", "PoemBleu", "Rouge", "RougeSu", "Squad"]
