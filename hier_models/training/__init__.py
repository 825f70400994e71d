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
from .distributed import last_complete_checkpoint
from .metrics import compute_summarization_metrics
from .models import load_model_and_processor
from .running import run_training
from .summarization import run_evaluation
from .tasks import TASKS, Task, task_class


__all__ = [
    "TASKS",
    "DataArguments",
    "GenerationArguments",
    "ModelArguments",
    "Recipe",
    "RecipeError",
    "RunArguments",
    "Task",
    "compute_summarization_metrics",
    "last_complete_checkpoint",
    "load_model_and_processor",
    "load_recipe",
    "run_evaluation",
    "run_training",
    "task_class",
]
