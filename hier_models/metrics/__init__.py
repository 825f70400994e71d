"""Metrics that load with no network."""

from .bleu import Bleu
from .rouge import Rouge
from .squad import Squad


__all__ = ["Bleu", "Rouge", "Squad"]
