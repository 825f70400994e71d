"""What a training run can be for: the tasks by name.

`run_training` does what all tasks share: resuming, seeds, accumulation, checkpoints, saving, results. To add a task,
write a subclass of `Task` and its line in `TASKS`.
"""

import importlib

from ..arguments import RecipeError
from .base import PREDICTIONS_FILE, SCORES_FILE, Task


__all__ = ["PREDICTIONS_FILE", "SCORES_FILE", "TASKS", "Task", "task_class"]

# Name in a recipe's `run: task:`, and of the module here -> class.
TASKS = {
    "summarization": "SummarizationTask",
    "book_summarization": "BookSummarizationTask",
    "translation": "TranslationTask",
    "denoising": "DenoisingTask",
    "masked_lm": "MaskedLMTask",
    "question_answering": "QuestionAnsweringTask",
    "classification": "ClassificationTask",
    "multiple_choice": "MultipleChoiceTask",
    "poem_generation": "PoemGenerationTask",
    "reading_comprehension": "ReadingComprehensionTask",
    "importance_tagging": "ImportanceTaggingTask",
}


def task_class(name: str) -> type[Task]:
    """Find a task.

    Args:
        name: As in `run: task:`.

    Returns:
        Its class.

    Raises:
        RecipeError: If there is none of this name.
    """
    if name not in TASKS:
        raise RecipeError(f"run: task must be one of {', '.join(TASKS)}, got {name!r}")
    found: type[Task] = getattr(importlib.import_module(f".{name}", __package__), TASKS[name])
    return found
