"""`hier-models train`."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from .errors import NOT_FINISHED, MistakeError, mistakes, say, state
from .options import command
from .reporting import rouge_table


@command("train", context_settings={"ignore_unknown_options": True})
def train(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="RECIPE")] = None,
    smoke: Annotated[bool, typer.Option("--smoke")] = False,
    variant: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    flags: Annotated[bool, typer.Option("--flags")] = False,
) -> None:
    """Train a model by a recipe."""
    if flags:
        _list_flags()
        return
    given = list(arguments or [])
    recipe_file = given.pop(0) if given and not given[0].startswith("-") else None
    if recipe_file is None and not given:
        raise MistakeError("train: give a recipe file, or flags; `hier-models train --help` shows how")
    if recipe_file is not None and not Path(recipe_file).is_file():
        raise MistakeError(f"RECIPE: there is no file {recipe_file!r}")
    if recipe_file is None and variant is not None:
        raise MistakeError("--variant: give a recipe file with variants, and that first: train RECIPE --variant NAME")
    from ..training import load_recipe, run_smoke, run_training, task_class, variant_names
    from ..training.recipe_files import check_overrides, comparison_section

    if not state.debug:
        warnings.filterwarnings("ignore")
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    if recipe_file is not None and variant is not None and (smoke or comparison_section(recipe_file) is None):
        check_overrides(recipe_file, given)
    elif recipe_file is not None and variant_names(recipe_file):
        _sweep(recipe_file, given, smoke, variant)
        return
    if smoke:
        with mistakes("model", OSError):
            results = run_smoke(recipe_file, given, variant)
        say("Small for --smoke, all else as in the recipe:")
        for name, (before, after) in results["smoke"].items():
            say(f"  {name}: {before} -> {after}")
    else:
        recipe = load_recipe(recipe_file, given, variant)
        output_dir = recipe.training.output_dir
        state.when_interrupted = f"The same command goes on from the last checkpoint in {output_dir}, if there is one."
        with mistakes("model", OSError), _time_limit():
            results = run_training(recipe)
        if recipe.training.process_index > 0:  # of several processes, one speaks
            return
    tables = {title: results[title] for title in ("evaluation", "test") if results.get(title)}
    for title, evaluation in tables.items():
        task = results["recipe"]["run"]["task"]
        if len(tables) > 1:
            print({"evaluation": "Validation", "test": "Test"}[title])
        print(rouge_table(evaluation) if "rougeLsum" in evaluation else task_class(task).table(evaluation))
    folder = results["recipe"]["training"]["output_dir"]
    deleted = smoke and not Path(folder).exists()
    made = f"Model, processor and results.json are in {folder}"
    print("The recipe runs. What it made is deleted." if deleted else made)


@contextmanager
def _time_limit() -> Iterator[None]:
    """A run whose time is up is neither done nor has it failed."""
    from ..training import TimeUpError

    try:
        yield
    except TimeUpError as error:
        say(f"Not finished: {error}. The same command goes on.")
        raise typer.Exit(NOT_FINISHED) from None


def _sweep(recipe_file: str, given: list[str], smoke: bool, variant: str | None) -> None:
    from ..experiments import run_comparison, run_sweep

    if not smoke:
        state.when_interrupted = "The same command goes on with the sweep; finished variants are not repeated."
    with mistakes("model", OSError), _time_limit():
        if variant is None:
            results = run_sweep(recipe_file, given, smoke=smoke)
        else:
            results = run_comparison(recipe_file, given, variant=variant)
    if int(os.environ.get("RANK", "0")) > 0:  # of several processes, one speaks
        return
    print(results["table"])
    if "runs" in results:
        print(f"\nA folder for each run, tables, results.json and learning curves are in {results['folder']}")
    elif results["folder"].is_dir():
        print(f"A folder for each variant, table.md and table.csv are in {results['folder']}")
    else:
        print("All variants run. What they made is deleted.")


def _list_flags() -> None:
    import argparse

    from transformers import HfArgumentParser

    from ..training import DataArguments, GenerationArguments, ModelArguments, RunArguments

    sections = [ModelArguments, DataArguments, GenerationArguments, RunArguments]
    HfArgumentParser(
        sections,  # type: ignore[arg-type]  # it takes any dataclass types
        add_help=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        usage="hier-models train [RECIPE] [--NAME VALUE]...",
        epilog="And all that transformers.Seq2SeqTrainingArguments takes: --output_dir, --learning_rate, --bf16, …",
    ).print_help()
