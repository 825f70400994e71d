"""Sweeps: one recipe in several variants, each a run in a folder of its own, and one table of all."""

import csv
import gc
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .arguments import RecipeError
from .costs import TimeUpError, is_up
from .recipe_files import check_overrides, comparison_section, load_recipe, variant_names
from .resuming import finished_run
from .running import run_training
from .smoke import run_smoke


logger = logging.getLogger(__name__)


def run_sweep(
    path: str | os.PathLike[str], overrides: Sequence[str] | Mapping[str, Any] = (), *, smoke: bool = False
) -> dict[str, Any]:
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
        `variants`, name -> what `run_training` returned for it, now or earlier; and `table`, in Markdown.

    Raises:
        RecipeError: If a variant cannot run, its folder holds the finished run of another recipe, or an override is of
            what the variants differ in.
        TimeUpError: If the time was up before all was done; the same call goes on.
    """
    begun = time.monotonic()
    names = variant_names(path)
    if not names:
        raise RecipeError(f"{path} has no variants")
    check_overrides(path, overrides)
    if comparison_section(path) is not None:
        from .comparison import run_comparison

        return run_comparison(path, overrides, smoke=smoke)
    # All of them are read, and compared with what is there, before the first takes its hours.
    recipes = {} if smoke else {name: load_recipe(path, overrides, name) for name in names}
    finished = {name: finished_run(recipe) for name, recipe in recipes.items()}
    results: dict[str, Any] = {}
    for number, name in enumerate(names, start=1):
        logger.warning("variant %s (%d of %d)%s", name, number, len(names), ": done" if finished.get(name) else "")
        if smoke:
            results[name] = run_smoke(path, overrides, name)
        else:
            limit = recipes[name].run.stop_after_minutes
            deadline = None if limit is None else begun + 60 * limit
            if deadline is not None and not finished[name] and is_up(deadline, recipes[name].training):
                raise TimeUpError(f"the time is up: {number - 1} of {len(names)} variants are done")
            results[name] = finished[name] or run_training(recipes[name], deadline)
        gc.collect()  # a model's parts know each other, so it goes no sooner
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        folder = Path(results[name]["recipe"]["training"]["output_dir"]).parent
        if folder.is_dir() and (smoke or recipes[name].training.process_index == 0):
            write_tables(folder, results)
    return {"variants": results, "table": table_of(results)}


def _scores(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each variant: its numbers on the test data, or on the validation data where there are no others."""
    rows = []
    for name, found in results.items():
        scores = found.get("test") or found.get("evaluation") or {}
        rows.append(
            {"variant": name, **{key: value for key, value in scores.items() if isinstance(value, int | float)}}
        )
    return rows


def table_of(results: Mapping[str, Any]) -> str:
    """Lay out the scores of variants."""
    longer = made_longer({name: {0: found.get("made_longer_after", [])} for name, found in results.items()})
    return _markdown(_scores(results)) + (f"\n\n{longer}" if longer else "")


def made_longer(after: Mapping[str, Mapping[int, Sequence[int]]]) -> str:
    """Say of a table which runs were made longer."""
    groups: dict[str, list[str]] = {}
    for name, of_seeds in after.items():
        by_steps: dict[str, list[str]] = {}
        for seed, steps in of_seeds.items():
            by_steps.setdefault(" and ".join(map(str, steps)) or "never", []).append(str(seed))
        for steps_of, seeds in by_steps.items():
            groups.setdefault(steps_of, []).append(f"{name} ({', '.join(seeds)})" if len(by_steps) > 1 else name)
    if not groups.keys() - {"never"}:
        return ""
    said = "; ".join(f"{steps} ({', '.join(names)})" for steps, names in groups.items())
    return (
        f"**Made longer** after so many steps: {said}. Unless its learning rate is constant, a run that is as long "
        "from the beginning is another one."
    )


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    def cell(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        return f"{value:.3f}" if 0 < abs(value) < 1 else f"{value:.2f}"  # of scores up to 1, as papers print them

    columns = _columns(rows)
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    lines += [[cell(row.get(column, "")) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_tables(folder: Path, results: Mapping[str, Any]) -> None:
    """Write the scores of variants as table.md and table.csv."""
    rows = _scores(results)
    (folder / "table.md").write_text(table_of(results) + "\n", encoding="utf-8")
    with (folder / "table.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, _columns(rows))
        writer.writeheader()
        writer.writerows(rows)
