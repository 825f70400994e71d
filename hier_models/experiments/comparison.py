"""Comparisons: a sweep whose variants are each trained with several seeds, and compared with a twin, fairly."""

import gc
import logging
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState  # type: ignore[import-untyped]

from ..locks import held
from ..training.arguments import RecipeError
from ..training.recipe_files import Overrides, all_options, check_overrides, load_recipe, variant_names
from ..training.resuming import RunningError, finished_run
from ..training.run_metadata import DivergedError, TimeUpError, is_up
from ..training.smoke import run_smoke
from ..training.train import run_training
from .comparison_checks import (
    check_overlap,
    check_parameters,
    check_recipes,
    check_tasks,
    check_vocabularies,
    count_parameters,
)
from .comparison_report import write_report
from .comparison_settings import read_comparison
from .tables import table_of, write_tables


logger = logging.getLogger(__name__)


def run_comparison(
    path: str | os.PathLike[str],
    overrides: Overrides = (),
    *,
    smoke: bool = False,
    variant: str | None = None,
) -> dict[str, Any]:
    """Train all variants of a sweep with all seeds, and compare them.

    Before anything is trained it is checked that each variant has the recipe, the data and about the parameters of its
    twin. The runs are in folders `<variant>/seed_<n>`, first those of the first seed. What is finished is not run
    again; what was interrupted, or is to have more steps, goes on. After each run the report is written: `table.md`,
    `table.csv`, `results.json`, `curves.csv`, with matplotlib `learning_curves.png`, and `examples.md`, what the
    models wrote. With more steps the results of shorter runs are replaced one by one; copy the folder to keep them.

    Args:
        path: A YAML file with `variants:` and `comparison:`; see `Comparison`.
        overrides: What to change in all variants, as for `load_recipe`.
        smoke: Try each variant once with `run_smoke`, without its seeds, its size and its data.
        variant: Train this one only; all are checked, and all that are finished reported.

    Returns:
        `runs`, variant -> seed -> what `run_training` returned, now or earlier; and `folder`. In the first process
        also `results`, as in results.json, and `table`, in Markdown. With `smoke`, `variants` and `table` as
        `run_sweep` gives them.

    Raises:
        RecipeError: If the comparison would not be fair, or a variant cannot run; the message says what differs.
        TimeUpError: If the time was up before all was done; the same call goes on.
    """
    begun = time.monotonic()
    if (comparison := read_comparison(path)) is None:
        raise RecipeError(f"{path} has no comparison")
    names = variant_names(path)
    if variant is not None and variant not in names:
        raise RecipeError(f"{path} has no variant {variant!r}; its variants are {', '.join(names)}")
    twins = comparison.twins(names)
    check_overrides(path, overrides)
    _check_seeds(path, overrides)
    recipes = {(name, seed): load_recipe(path, overrides, name, seed) for seed in comparison.seeds for name in names}
    first = {name: recipes[name, comparison.seeds[0]] for name in names}
    check_tasks(comparison, first)
    differing = {
        key for name, twin in twins.items() for key in check_recipes(comparison, name, first[name], twin, first[twin])
    }
    if same := [key for key in comparison.differs if key not in differing]:
        raise RecipeError(f"comparison: differs: {same[0]} is the same for every variant and its twin")
    if smoke:
        return smoke_variants(path, overrides, names)

    if "perplexity" in comparison.metrics:
        for name, twin in twins.items():
            check_vocabularies(name, first[name], twin, first[twin])
    finished = {run: finished_run(recipe) for run, recipe in recipes.items()}
    of_data = {(r.data.train, r.data.train_split, r.data.test, r.data.test_split): r for r in first.values()}
    overlap = "; ".join(dict.fromkeys(check_overlap(comparison, recipe) for recipe in of_data.values()))
    sizes = {name: int(found["parameters"]) for (name, _), found in finished.items() if found}
    # Counting changes a recipe, so each is read anew.
    uncounted = [name for name in names if name not in sizes]
    sizes |= count_parameters({name: load_recipe(path, overrides, name, comparison.seeds[0]) for name in uncounted})
    for name, twin in twins.items():
        check_parameters(comparison, name, sizes[name], twin, sizes[twin])

    arguments, limit = first[names[0]].training, first[names[0]].run.stop_after_minutes
    deadline = None if limit is None else begun + 60 * limit
    folder = Path(arguments.output_dir or "").parent.parent

    def look() -> None:
        """Find what other calls have finished, of other variants say."""
        for run, recipe in recipes.items():
            finished[run] = finished[run] or finished_run(recipe)

    def report() -> dict[str, Any]:
        command = shlex.join(["hier-models", "train", os.fspath(path), *all_options(overrides)])
        folder.mkdir(parents=True, exist_ok=True)
        # One call at a time, so that the last to write knows all that is finished.
        with held(folder, wait=True) if arguments.process_index == 0 else nullcontext():
            look()
            found = {name: {seed: run for seed in comparison.seeds if (run := finished[name, seed])} for name in names}
            reported: dict[str, Any] = {"runs": found, "folder": folder}
            if arguments.process_index == 0:
                reported |= write_report(folder, comparison, twins, found, command, overlap)
        return reported

    reported: dict[str, Any] | None = None
    for number, ((name, seed), recipe) in enumerate(recipes.items(), start=1):
        if variant not in (None, name):
            continue
        look()
        done = ": done" if finished[name, seed] else ""
        logger.warning("variant %s, seed %d (run %d of %d)%s", name, seed, number, len(recipes), done)
        if done:
            continue
        if deadline is not None and is_up(deadline, arguments):
            count = sum(found is not None for found in finished.values())
            raise TimeUpError(f"the time is up: {count} of {len(recipes)} runs are done")
        recipe.training.include_num_input_tokens_seen = "non_padding"
        try:
            finished[name, seed] = run_training(recipe, deadline)
        except RunningError as error:
            if arguments.world_size > 1:  # the other processes wait for this one
                raise
            logger.warning("%s; going on with the next run", error)
            continue
        except DivergedError as error:
            logger.warning("%s; going on with the next run", error)
        free_memory()
        reported = report()
    return reported or report()


def _check_seeds(path: str | os.PathLike[str], overrides: Overrides) -> None:
    given = overrides if isinstance(overrides, Mapping) else [option.split("=")[0] for option in overrides]
    if "seed" in given or "--seed" in given:
        raise RecipeError(f"seed cannot be changed: {path} has its seeds under comparison: seeds")
    try:
        check_overrides(path, {"seed": 0})
    except RecipeError as error:
        raise RecipeError(f"{path}: a variant sets a seed; the seeds are under comparison: seeds") from error


def smoke_variants(path: str | os.PathLike[str], overrides: Overrides, names: Sequence[str]) -> dict[str, Any]:
    """Each variant of a sweep once, small."""
    results = {}
    for number, name in enumerate(names, start=1):
        logger.warning("variant %s (%d of %d)", name, number, len(names))
        results[name] = run_smoke(path, overrides, name)
        free_memory()
        folder = Path(results[name]["recipe"]["training"]["output_dir"]).parent
        write_tables(results, folder)
    return {"variants": results, "table": table_of(results), "folder": folder}


def free_memory() -> None:
    """Let go of the model of a run, whose parts know each other, so that it goes no sooner; and of its precision."""
    AcceleratorState._reset_state()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
