"""Experiments on top of training: sweeps, comparisons of variants with their twins, extractive baselines."""

from .comparison import run_comparison
from .comparison_settings import Comparison, read_comparison
from .extractive_evaluation import run_extractive_evaluation
from .sweeps import run_sweep


__all__ = ["Comparison", "read_comparison", "run_comparison", "run_extractive_evaluation", "run_sweep"]
