"""Sweeps: one recipe in several variants, each a run in a folder of its own, and one table of all."""

import logging
import os
import time
from pathlib import Path
from typing import Any

from ..training.arguments import RecipeError
from ..training.recipe_files import Overrides, check_overrides, comparison_section, load_recipe, variant_names
from ..training.resuming import finished_run
from ..training.run_metadata import DivergedError, TimeUpError, is_up
from ..training.train import run_training
from .comparison import free_memory, run_comparison, smoke_variants
from .tables import table_of, write_tables


logger = logging.getLogger(__name__)


def run_sweep(path: str | os.PathLike[str], overrides: Overrides = (), *, smoke: bool = False) -> dict[str, Any]:
    """Run all variants of a sweep, one after the other, and put their scores into one table.

    A variant that has been finished is not run again, and one that was interrupted, or is to have more steps than it
    was finished with, goes on from its last checkpoint: the same call continues a sweep. The table is written after
    each variant, as `table.md` and `table.csv`, into the folder that holds those of the variants. With `comparison:`
    it is a comparison; see `run_comparison`.

    Args:
        path: A YAML file with `variants:`; see `load_recipe`.
        overrides: What to change in all variants, as for `load_recipe`.
        smoke: Try each variant with `run_smoke`.

    Returns:
        `variants`, name -> what `run_training` returned for it, now or earlier, or `diverged`, why it was ended;
        `table`, in Markdown; and `folder`, of the variants' folders.

    Raises:
        RecipeError: If a variant cannot run, its folder holds the finished run of another recipe, or an override is of
            what the variants differ in.
        TimeUpError: If the time was up before all was done; the same call goes on.
    """
    begun = time.monotonic()
    if not (names := variant_names(path)):
        raise RecipeError(f"{path} has no variants")
    check_overrides(path, overrides)
    if comparison_section(path) is not None:
        return run_comparison(path, overrides, smoke=smoke)
    if smoke:
        return smoke_variants(path, overrides, names)
    # All of them are read, and compared with what is there, before the first takes its hours.
    recipes = {name: load_recipe(path, overrides, name) for name in names}
    finished = {name: finished_run(recipe) for name, recipe in recipes.items()}
    # Not that of the results, which may have been made elsewhere, and moved here.
    folder = Path(recipes[names[0]].training.output_dir or "").parent
    results: dict[str, Any] = {}
    for number, (name, recipe) in enumerate(recipes.items(), start=1):
        logger.warning("variant %s (%d of %d)%s", name, number, len(names), ": done" if finished[name] else "")
        limit = recipe.run.stop_after_minutes
        deadline = None if limit is None else begun + 60 * limit
        if deadline is not None and not finished[name] and is_up(deadline, recipe.training):
            raise TimeUpError(f"the time is up: {number - 1} of {len(names)} variants are done")
        try:
            results[name] = finished[name] or run_training(recipe, deadline)
        except DivergedError as error:
            logger.warning("%s; going on with the next variant", error)
            results[name] = {"diverged": str(error)}
        free_memory()
        if recipe.training.process_index == 0:
            write_tables(results, folder)
    return {"variants": results, "table": table_of(results), "folder": folder}
