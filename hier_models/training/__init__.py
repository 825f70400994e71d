"""Training and evaluation over the stock `Seq2SeqTrainer`: recipes, metrics, resuming."""

from .arguments import (
    DataArguments,
    GenerationArguments,
    ModelArguments,
    Recipe,
    RecipeError,
    RunArguments,
)
from .brightness import BrightnessDecay
from .distributed import last_complete_checkpoint
from .dropout_schedule import DropoutSchedule
from .encoder_evaluation import run_encoder_evaluation
from .encoder_tasks_importance_tagging import compute_tagging_metrics, importance_probabilities
from .extractive_evaluation import run_extractive_evaluation
from .hard_attention import SoftPretraining, SurrogateLog
from .learning_rates import PerplexityDecay, optimizer_with_rates
from .likelihood import perplexity
from .metrics import compute_summarization_metrics
from .models import load_model_and_processor
from .poem_generation import run_poem_evaluation
from .recipe_files import load_recipe, variant_names
from .running import run_training
from .smoke import run_smoke
from .summarization import run_evaluation
from .sweeps import run_sweep
from .tasks import TASKS, Task, task_class
from .translation import compute_translation_metrics, run_translation_evaluation
from .word_vectors import WordVectorCoverage, read_word_vectors, set_word_vectors


__all__ = [
    "TASKS",
    "BrightnessDecay",
    "DataArguments",
    "DropoutSchedule",
    "GenerationArguments",
    "ModelArguments",
    "PerplexityDecay",
    "Recipe",
    "RecipeError",
    "RunArguments",
    "SoftPretraining",
    "SurrogateLog",
    "Task",
    "WordVectorCoverage",
    "compute_summarization_metrics",
    "compute_tagging_metrics",
    "compute_translation_metrics",
    "importance_probabilities",
    "last_complete_checkpoint",
    "load_model_and_processor",
    "load_recipe",
    "optimizer_with_rates",
    "perplexity",
    "read_word_vectors",
    "run_encoder_evaluation",
    "run_evaluation",
    "run_extractive_evaluation",
    "run_poem_evaluation",
    "run_smoke",
    "run_sweep",
    "run_training",
    "run_translation_evaluation",
    "set_word_vectors",
    "task_class",
    "variant_names",
]
