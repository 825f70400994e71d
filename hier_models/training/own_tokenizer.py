"""A tokenizer that a run makes of its own training documents, and keeps in its folder."""

import shutil
from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from .arguments import Recipe


TOKENIZER_FOLDER = "tokenizer"


def own_tokenizer(recipe: Recipe, output_dir: Path, make: Callable[[], PreTrainedTokenizerBase]) -> Path:
    """Make a run's tokenizer; an interrupted run finds the one that it began with.

    Args:
        recipe: The whole recipe.
        output_dir: Folder of the run.
        make: Makes the tokenizer, of the training documents.

    Returns:
        The folder with it.
    """
    folder = output_dir / TOKENIZER_FOLDER
    # The first process makes it, the others wait and find it.
    with recipe.training.main_process_first(desc="making the tokenizer"):
        first = recipe.training.process_index == 0
        if folder.exists() and not (recipe.run.overwrite and first):
            return folder
        # Under another name until it is complete, so that a killed run leaves no half of one.
        unfinished = folder.with_name(f"{TOKENIZER_FOLDER}.unfinished")
        for leftover in (folder, unfinished):
            shutil.rmtree(leftover, ignore_errors=True)
        make().save_pretrained(unfinished)
        unfinished.rename(folder)
    return folder
