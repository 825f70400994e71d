"""Training and evaluation over the stock `Seq2SeqTrainer`: recipes, metrics, resuming."""

from .arguments import (
    DataArguments,
    GenerationArguments,
    ModelArguments,
    Recipe,
    RecipeError,
    RunArguments,
    load_recipe,
)
from .metrics import compute_summarization_metrics
from .running import last_complete_checkpoint, run_evaluation, run_training


__all__ = [
    "DataArguments",
    "GenerationArguments",
    "ModelArguments",
    "Recipe",
    "RecipeError",
    "RunArguments",
    "compute_summarization_metrics",
    "last_complete_checkpoint",
    "load_recipe",
    "run_evaluation",
    "run_training",
]
