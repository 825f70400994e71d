"""A tokenizer that a run makes of its own training documents, and keeps in its folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from .arguments import Recipe
from .distributed import last_complete_checkpoint
from .resuming import HOW
from .run_metadata import data_version


TOKENIZER_FOLDER = "tokenizer"
MADE_OF_FILE = "made_of.json"
# What of the section `model` decides which tokens there are.
TOKENS = ("tokenizer", "tokenizer_words", "language")


def own_tokenizer(recipe: Recipe, output_dir: Path, make: Callable[[], PreTrainedTokenizerBase]) -> Path:
    """Make a run's tokenizer; one with a checkpoint keeps its own, one stopped before if it would make the same."""
    folder = output_dir / TOKENIZER_FOLDER
    made_of = what_a_tokenizer_is_made_of(recipe)
    # The first process makes it, the others wait and find it.
    arguments = recipe.training
    with arguments.main_process_first(local=arguments.save_on_each_node, desc="making the tokenizer"):
        if not (recipe.run.overwrite and arguments.should_save) and _is_kept(
            folder, made_of, recipe.training.world_size
        ):
            return folder
        # Under another name until it is complete, so that a killed run leaves no half of one.
        unfinished = folder.with_name(f"{TOKENIZER_FOLDER}.unfinished")
        for leftover in (folder, unfinished):
            shutil.rmtree(leftover, ignore_errors=True)
        make().save_pretrained(unfinished)
        (unfinished / MADE_OF_FILE).write_text(made_of, encoding="utf-8")
        unfinished.rename(folder)
    return folder


def what_a_tokenizer_is_made_of(recipe: Recipe) -> str:
    """Say what a tokenizer that a run makes may depend on: all of a recipe but the model and how it is trained."""
    sections = {
        name: {key: value for key, value in section.items() if key in TOKENS or (name != "model" and key not in HOW)}
        for name, section in recipe.as_dict().items()
        if name != "training"
    }
    return json.dumps([sections, data_version(recipe)], sort_keys=True, default=str)


def _is_kept(folder: Path, made_of: str, processes: int) -> bool:
    if not folder.is_dir():
        return False
    note = folder / MADE_OF_FILE
    if note.is_file() and note.read_text(encoding="utf-8") == made_of:
        return True
    return last_complete_checkpoint(folder.parent, processes) is not None
