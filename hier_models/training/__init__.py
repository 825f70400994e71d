"""Training and evaluation over `Seq2SeqTrainer`: recipes, tasks, metrics, resuming."""

from .arguments import DataArguments, GenerationArguments, ModelArguments, Recipe, RecipeError, RunArguments
from .callbacks import BrightnessDecay, DropoutSchedule, SoftPretraining, SurrogateLog
from .distributed import last_complete_checkpoint
from .encoder_evaluation import run_encoder_evaluation
from .learning_rates import PerplexityDecay, optimizer_with_rates
from .likelihood import perplexity
from .metrics import compute_summarization_metrics
from .models import load_model_and_processor
from .recipe_files import load_recipe, variant_names
from .run_metadata import TimeUpError, has_fast_bfloat16
from .smoke import run_smoke
from .tasks import TASKS, Task, task_class
from .tasks.importance_tagging import compute_tagging_metrics, importance_probabilities
from .tasks.poem_generation import run_poem_evaluation
from .tasks.summarization import run_evaluation
from .tasks.translation import compute_translation_metrics, run_translation_evaluation
from .train import run_training
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
    "TimeUpError",
    "WordVectorCoverage",
    "compute_summarization_metrics",
    "compute_tagging_metrics",
    "compute_translation_metrics",
    "has_fast_bfloat16",
    "importance_probabilities",
    "last_complete_checkpoint",
    "load_model_and_processor",
    "load_recipe",
    "optimizer_with_rates",
    "perplexity",
    "read_word_vectors",
    "run_encoder_evaluation",
    "run_evaluation",
    "run_poem_evaluation",
    "run_smoke",
    "run_training",
    "run_translation_evaluation",
    "set_word_vectors",
    "task_class",
    "variant_names",
]
