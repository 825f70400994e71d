"""Sweeps: one recipe in several variants, each a run in a folder of its own, and one table of all."""

import csv
import gc
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .arguments import Recipe, RecipeError
from .recipe_files import check_overrides, load_recipe, variant_names
from .running import RESULTS_FILE, run_training
from .smoke import run_smoke


logger = logging.getLogger(__name__)

# What of the section `training` makes another experiment; the rest says how it is computed, and where.
EXPERIMENT = (
    "adam_beta1",
    "adam_beta2",
    "label_smoothing_factor",
    "learning_rate",
    "lr_scheduler_type",
    "max_grad_norm",
    "max_steps",
    "num_train_epochs",
    "optim",
    "seed",
    "warmup_steps",
    "weight_decay",
)


def run_sweep(
    path: str | os.PathLike[str], overrides: Sequence[str] | Mapping[str, Any] = (), *, smoke: bool = False
) -> dict[str, Any]:
    """Run all variants of a sweep, one after the other, and put their scores into one table.

    A variant that has been finished is not run again, and one that was interrupted goes on from its last checkpoint:
    the same call continues a sweep. The table is written after each variant, as `table.md` and `table.csv`, into the
    folder that holds those of the variants.

    Args:
        path: A YAML file with `variants:`; see `load_recipe`.
        overrides: What to change in all variants, as for `load_recipe`.
        smoke: Try each variant with `run_smoke`.

    Returns:
        `variants`, name -> what `run_training` returned for it, now or earlier; and `table`, in Markdown.

    Raises:
        RecipeError: If a variant cannot run, its folder holds the finished run of another recipe, or an override is of
            what the variants differ in.
    """
    names = variant_names(path)
    if not names:
        raise RecipeError(f"{path} has no variants")
    check_overrides(path, overrides)
    # All of them are read, and compared with what is there, before the first takes its hours.
    recipes = {} if smoke else {name: load_recipe(path, overrides, name) for name in names}
    finished = {name: _finished(recipe) for name, recipe in recipes.items()}
    results: dict[str, Any] = {}
    for number, name in enumerate(names, start=1):
        logger.warning("variant %s (%d of %d)%s", name, number, len(names), ": done" if finished.get(name) else "")
        if smoke:
            results[name] = run_smoke(path, overrides, name)
        else:
            results[name] = finished[name] or run_training(recipes[name])
        gc.collect()  # a model's parts know each other, so it goes no sooner
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        folder = Path(results[name]["recipe"]["training"]["output_dir"]).parent
        if folder.is_dir() and (smoke or recipes[name].training.process_index == 0):
            _write_tables(folder, _scores(results))
    return {"variants": results, "table": _markdown(_scores(results))}


def _finished(recipe: Recipe) -> dict[str, Any] | None:
    """What an earlier call found for this very recipe."""
    file = Path(recipe.training.output_dir or "") / RESULTS_FILE
    if recipe.run.overwrite or not file.is_file():
        return None
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    before, now = _experiment(results["recipe"]), _experiment(json.loads(json.dumps(recipe.as_dict(), default=str)))
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            raise RecipeError(
                f"training: {file.parent} holds a finished run with {name}={before.get(name)}, and here it is "
                f"{now.get(name)}; choose another output_dir, or set run: overwrite: true to start anew"
            )
    return results


def _experiment(recipe: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value for section in recipe if section != "training" for name, value in recipe[section].items()}
    values |= {name: recipe["training"].get(name) for name in EXPERIMENT}
    return {name: value for name, value in values.items() if name not in ("overwrite", "num_proc")}


def _scores(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each variant: its numbers on the test data, or on the validation data where there are no others."""
    rows = []
    for name, found in results.items():
        scores = found.get("test") or found.get("evaluation") or {}
        rows.append(
            {"variant": name, **{key: value for key, value in scores.items() if isinstance(value, int | float)}}
        )
    return rows


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


def _write_tables(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    (folder / "table.md").write_text(_markdown(rows) + "\n", encoding="utf-8")
    with (folder / "table.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, _columns(rows))
        writer.writeheader()
        writer.writerows(rows)
