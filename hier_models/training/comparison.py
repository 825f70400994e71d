"""Comparisons: a sweep whose variants are each trained with several seeds, and compared with a twin, fairly.

In the order of a comparison: what the file says, the checks before any training, the runs, and their report.
"""

import dataclasses
import gc
import logging
import os
import shlex
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer

from ..data.data_files import files_of_split
from ..data.loading import in_split
from ..data.overlap import Document, documents_of_file, find_overlaps, texts_of_record
from ..data.record_readers import read_records
from . import sweeps
from .arguments import Recipe, RecipeError, set_accumulation
from .comparison_report import write_report
from .costs import TimeUpError, is_up
from .own_tokenizer import TOKENS, what_a_tokenizer_is_made_of
from .recipe_files import as_options, check_overrides, comparison_section, load_recipe, variant_names
from .resuming import experiment, finished_run
from .running import run_training
from .smoke import run_smoke
from .tasks import task_class


logger = logging.getLogger(__name__)

# What a variant and its twin must have in common; a comparison with anything else of these would be of two things.
FIXED = (
    *("task", "total_train_batch_size", "max_steps", "num_train_epochs", "train", "train_split", "validation"),
    *("validation_split", "test", "test_split", "config_name", "revision", "max_train_documents"),
    *("max_validation_documents", "max_test_documents", "held_out_validation", "held_out_test", "split_seed"),
)
MOST_SEED = 2**32 - 1  # that numpy takes
PARAMETERS_WITHIN = 0.03


@dataclass(frozen=True)
class Comparison:
    """The section `comparison` of a sweep.

    Args:
        question: Stands above the table.
        seeds: Each variant is trained with each of them, in place of the recipe's `seed`.
        twin: The variant that all others are compared with; or a mapping, variant -> its twin.
        metrics: Scores of the test part, as the task gives them; learning curves are titled by the question, and of
            the first metric the best value is bold.
        parameters_within: By how much, as a share, a variant's number of parameters may differ from its twin's; or a
            mapping, variant -> share, where the others have the default.
        differs: What else than the model a variant and its twin differ in, and why: name -> reason.
        check_overlap: Whether the training documents may share no text with the test documents; or further files,
            such as those of a warm-up, that may not either.
    """

    question: str
    seeds: Sequence[int]
    twin: str | Mapping[str, str]
    metrics: Sequence[str]
    parameters_within: float | Mapping[str, float] = PARAMETERS_WITHIN
    differs: Mapping[str, str] = field(default_factory=dict)
    check_overlap: bool | Sequence[str] = True

    def __post_init__(self) -> None:
        if not isinstance(self.question, str) or not self.question.strip():
            raise RecipeError(f"comparison: question must be a text, got {self.question!r}")
        for name, kind, what in (("seeds", int, "different whole numbers"), ("metrics", str, "different names")):
            values = getattr(self, name)
            if (
                not isinstance(values, list | tuple)
                or not values
                or any(type(value) is not kind for value in values)
                or len(set(values)) < len(values)
            ):
                raise RecipeError(f"comparison: {name} must be a list of {what}, got {values!r}")
        if any(not 0 <= seed <= MOST_SEED for seed in self.seeds):
            raise RecipeError(f"comparison: seeds must be from 0 to {MOST_SEED}, got {self.seeds!r}")
        shares: Any = self.parameters_within
        for share in shares.values() if isinstance(shares, dict) else [shares]:
            if type(share) not in (int, float) or not share >= 0:  # nor NaN
                raise RecipeError(
                    "comparison: parameters_within must be a share, such as 0.03, or a mapping of variants to theirs; "
                    f"got {shares!r}"
                )
        if not isinstance(self.differs, dict) or any(
            not str(reason or "").strip() for reason in self.differs.values()
        ):
            raise RecipeError(f"comparison: differs must be a mapping of names to reasons, got {self.differs!r}")
        if fixed := [name for name in self.differs if name in FIXED]:
            raise RecipeError(f"comparison: differs: {fixed[0]} must be the same for a variant and its twin")
        if not isinstance(self.check_overlap, bool | list | tuple):
            raise RecipeError(
                f"comparison: check_overlap must be true, false or a list of files, got {self.check_overlap!r}"
            )

    def twins(self, variants: Sequence[str]) -> dict[str, str]:
        """Pair the variants.

        Args:
            variants: All variants of the sweep.

        Returns:
            Variant -> twin, in the order of the variants; without those that have none.

        Raises:
            RecipeError: If one of the names is of no variant, or nothing is compared.
        """
        if isinstance(self.twin, str):
            pairs = {name: self.twin for name in variants if name != self.twin}
        elif isinstance(self.twin, dict):
            pairs = {str(name): str(self.twin[name]) for name in self.twin}
        else:
            raise RecipeError(
                f"comparison: twin must be a variant, or a mapping of variants to theirs; got {self.twin!r}"
            )
        for name in (*pairs, *pairs.values(), *([self.twin] if isinstance(self.twin, str) else [])):
            if name not in variants:
                raise RecipeError(f"comparison: twin: there is no variant {name!r}; there are {', '.join(variants)}")
        for name in map(str, self.parameters_within if isinstance(self.parameters_within, dict) else ()):
            if name not in pairs:
                raise RecipeError(f"comparison: parameters_within: there is no variant {name!r} that has a twin")
        if alone := [name for name, other in pairs.items() if name == other]:
            raise RecipeError(f"comparison: twin: {alone[0]} is its own")
        if not pairs:
            raise RecipeError("comparison: twin: there is no other variant to compare with it")
        return {name: pairs[name] for name in variants if name in pairs}


def read_comparison(path: str | os.PathLike[str]) -> Comparison | None:
    """Read what a sweep compares.

    Args:
        path: A YAML file with `variants:`.

    Returns:
        Its section `comparison`, or None if there is none.

    Raises:
        RecipeError: If something in it cannot be used.
    """
    section = comparison_section(path)
    if section is None:
        return None
    items = dataclasses.fields(Comparison)
    known = [item.name for item in items]
    for name in section:
        if name not in known:
            raise RecipeError(f"{path}: comparison: unknown name {name!r}; allowed are {', '.join(known)}")
    needed = [item.name for item in items if item.default is item.default_factory is dataclasses.MISSING]
    if missing := [name for name in needed if name not in section]:
        raise RecipeError(f"{path}: comparison: {missing[0]} is missing")
    return Comparison(**section)


def run_comparison(
    path: str | os.PathLike[str],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    smoke: bool = False,
    variant: str | None = None,
) -> dict[str, Any]:
    """Train all variants of a sweep with all seeds, and compare them.

    Before anything is trained it is checked that each variant has the recipe, the data and about the parameters of its
    twin. The runs are in folders `<variant>/seed_<n>`, first those of the first seed. What is finished is not run
    again; what was interrupted, or is to have more steps, goes on. After each run the report is written: `table.md`,
    `table.csv`, `results.json`, `curves.csv`, with matplotlib `learning_curves.png`, and `examples.md`, what the
    models wrote. With more steps the
    results of shorter runs are replaced, one after the other; copy the folder to keep them.

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
    comparison = read_comparison(path)
    if comparison is None:
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
        return _smoke(path, overrides, comparison, names)

    if "perplexity" in comparison.metrics:
        for name, twin in twins.items():
            check_vocabularies(name, first[name], twin, first[twin])
    finished = {run: finished_run(recipe) for run, recipe in recipes.items()}
    overlap = "; ".join(dict.fromkeys(check_overlap(comparison, recipe) for recipe in _with_own_data(first.values())))
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
        look()
        found = {name: {seed: run for seed in comparison.seeds if (run := finished[name, seed])} for name in names}
        reported: dict[str, Any] = {"runs": found, "folder": folder}
        if arguments.process_index == 0:
            reported |= write_report(folder, comparison, twins, found, command_of(path, overrides), overlap)
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
        finished[name, seed] = run_training(recipe, deadline)
        gc.collect()  # a model's parts know each other, so it goes no sooner
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        reported = report()
    return reported or report()


# The checks


def _check_seeds(path: str | os.PathLike[str], overrides: Sequence[str] | Mapping[str, Any]) -> None:
    given = overrides if isinstance(overrides, Mapping) else [option.split("=")[0] for option in overrides]
    if "seed" in given or "--seed" in given:
        raise RecipeError(f"seed cannot be changed: {path} has its seeds under comparison: seeds")
    try:
        check_overrides(path, {"seed": 0})
    except RecipeError as error:
        raise RecipeError(f"{path}: a variant sets a seed; the seeds are under comparison: seeds") from error


def check_tasks(comparison: Comparison, recipes: Mapping[str, Recipe]) -> None:
    """Refuse metrics that there are not, and runs without test data.

    Args:
        comparison: What is compared.
        recipes: The recipe of each variant.

    Raises:
        RecipeError: If a variant's test part has no such scores of single documents.
    """
    for name, recipe in recipes.items():
        known = task_class(recipe.run.task).document_metrics
        if not known:
            raise RecipeError(f"comparison: the task {recipe.run.task} gives no scores of single test documents")
        for metric in comparison.metrics:
            if metric not in known:
                raise RecipeError(
                    f"comparison: metrics: {recipe.run.task} gives no {metric!r} of single documents; it gives "
                    f"{', '.join(known)}"
                )
        held_out = bool(getattr(recipe.options, "held_out_test", 0))
        if not (held_out or recipe.data.test or recipe.data.test_split):
            raise RecipeError(
                f"comparison: variant {name!r} has no test data, which the metrics are of; name them in data: test"
            )


def check_recipes(comparison: Comparison, name: str, recipe: Recipe, twin: str, of_twin: Recipe) -> list[str]:
    """Refuse a variant that is trained in another way than its twin.

    Args:
        comparison: What is compared.
        name: The variant.
        recipe: Its recipe.
        twin: Its twin.
        of_twin: The twin's recipe.

    Returns:
        What besides the model differs, with the file's reason.

    Raises:
        RecipeError: If anything but the model differs, and the file gives no reason; or if the best model would not
            be there to be scored.
    """
    values, others = _compared(recipe), _compared(of_twin)
    different = [key for key in dict.fromkeys((*values, *others)) if values.get(key) != others.get(key)]

    def listed(keys: Sequence[str]) -> str:
        return "; ".join(f"{key} is {values.get(key)!r} and {others.get(key)!r}" for key in keys)

    if fixed := [key for key in different if key in FIXED]:
        raise RecipeError(
            f"comparison: variant {name!r} and its twin {twin!r} must have the same steps, batches and data: "
            f"{listed(fixed)}"
        )
    if unsaid := [key for key in different if key not in comparison.differs]:
        raise RecipeError(
            f"comparison: variant {name!r} and its twin {twin!r} have different recipes: {listed(unsaid)}. If that is "
            f"what is compared, say why: comparison: differs: {{{unsaid[0]}: the reason}}"
        )
    if "perplexity" in comparison.metrics:
        for key in TOKENS:  # perplexities of other tokens are other numbers
            of_both = getattr(recipe.model, key), getattr(of_twin.model, key)
            if of_both[0] != of_both[1]:
                raise RecipeError(
                    f"comparison: perplexities of variant {name!r} and its twin {twin!r} cannot be compared: {key} is "
                    f"{of_both[0]!r} and {of_both[1]!r}"
                )
    for arguments in (recipe.training, of_twin.training):
        in_steps = arguments.load_best_model_at_end and arguments.eval_strategy == "steps"
        if in_steps and arguments.save_steps != arguments.eval_steps:
            raise RecipeError(
                f"training: save_steps={arguments.save_steps} must be eval_steps={arguments.eval_steps:g}, since the "
                "best model is to be scored"
            )
    return different


def _compared(recipe: Recipe) -> dict[str, Any]:
    """What must be the same, or be said to differ: all but the model, and of that what its weights begin with."""
    set_accumulation(recipe)
    values = experiment({**recipe.as_dict(), "model": {}})
    del values["seed"], values["bad_lines"]
    model, training = recipe.model, recipe.training
    values["checkpoint"] = model.checkpoint
    values["word_vectors"] = model.word_vectors
    values["new_modules"] = model.new_modules
    values |= {name: value for name, value in model.overrides().items() if "drop" in name or "init" in name}
    return {**values, "bf16": training.bf16, "fp16": training.fp16}


def _with_own_data(recipes: Iterable[Recipe]) -> list[Recipe]:
    """The first of those that have the same data."""
    found: dict[Any, Recipe] = {}
    for recipe in recipes:
        data = recipe.data
        found.setdefault((data.train, data.train_split, data.test, data.test_split), recipe)
    return list(found.values())


def check_vocabularies(name: str, recipe: Recipe, twin: str, of_twin: Recipe) -> None:
    """Refuse to compare perplexities where a variant begins with another tokenizer's checkpoint than its twin.

    Args:
        name: The variant.
        recipe: Its recipe.
        twin: Its twin.
        of_twin: The twin's recipe.

    Raises:
        RecipeError: If the vocabularies differ.
    """
    sources = [each.tokenizer or each.checkpoint for each in (recipe.model.resolved(), of_twin.model.resolved())]
    if sources[0] == sources[1]:
        return
    if None in sources:
        raise RecipeError(
            f"comparison: perplexities of variant {name!r} and its twin {twin!r} cannot be compared: one begins with "
            f"the tokenizer of {sources[0] or sources[1]}, the other makes its own"
        )
    try:
        vocabularies = [AutoTokenizer.from_pretrained(source).get_vocab() for source in sources]
    except (OSError, ValueError):
        return  # what is wrong with a checkpoint is said where its model is loaded
    if vocabularies[0] != vocabularies[1]:
        raise RecipeError(
            f"comparison: perplexities of variant {name!r} and its twin {twin!r} cannot be compared: the tokenizers "
            f"of {sources[0]} and {sources[1]} have different vocabularies ({len(vocabularies[0]):,} and "
            f"{len(vocabularies[1]):,} tokens)"
        )


def count_parameters(recipes: Mapping[str, Recipe]) -> dict[str, int]:
    """Make the models of recipes and count their parameters.

    Args:
        recipes: Variant -> its recipe; what a task fills in is filled in afterwards.

    Returns:
        Variant -> the parameters, tied ones once.
    """
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # which weights are new is said when the variant is trained
    sizes, folders = dict[str, int](), dict[str, Path]()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for name, recipe in recipes.items():
                # Variants that fit a tokenizer to the same documents share a folder, and so find the first one's.
                folder = folders.setdefault(what_a_tokenizer_is_made_of(recipe), Path(scratch) / name)
                task = task_class(recipe.run.task)(recipe, folder)
                task.check()
                model, _ = task.load_model_and_processor()
                sizes[name] = sum(parameter.numel() for parameter in model.parameters())
    finally:
        transformers.logging.set_verbosity(verbosity)
    return sizes


def check_parameters(comparison: Comparison, name: str, parameters: int, twin: str, of_twin: int) -> None:
    """Refuse a variant that is larger or smaller than its twin.

    Args:
        comparison: What is compared.
        name: The variant.
        parameters: How many it has.
        twin: Its twin.
        of_twin: How many that has.

    Raises:
        RecipeError: If they differ by more than `parameters_within`.
    """
    share = parameters / of_twin - 1
    within: Any = comparison.parameters_within
    if isinstance(within, dict):
        within = {str(variant): value for variant, value in within.items()}.get(name, PARAMETERS_WITHIN)
    if abs(share) > within:
        raise RecipeError(
            f"comparison: variant {name!r} has {parameters:,} parameters and its twin {twin!r} {of_twin:,}: "
            f"{share:+.1%}, where parameters_within allows {within:.1%}; make the smaller "
            "one's layers wider, such as config_overrides: encoder_ffn_dim and decoder_ffn_dim"
        )


def check_overlap(comparison: Comparison, recipe: Recipe) -> str:
    """Refuse training documents that share text with test documents.

    Args:
        comparison: What is compared.
        recipe: A variant's recipe.

    Returns:
        What was checked, for the table.

    Raises:
        RecipeError: If there are such documents; the message names some.
    """
    if comparison.check_overlap is False:
        return "not checked"
    data = recipe.data
    test = _file(data.test if data.test is not None else data.train)
    train = _file(data.train)
    further = [] if comparison.check_overlap is True else [Path(file) for file in comparison.check_overlap]
    if gone := [file for file in further if not file.is_file()]:
        raise RecipeError(f"comparison: check_overlap: there is no file {str(gone[0])!r}")
    if test is None or (data.test is None and data.test_split is None):
        if further:
            raise RecipeError("comparison: check_overlap: the test data are in no file of their own")
        return "not checked (the test data are in no file of their own)"

    if train is None:
        if further:
            raise RecipeError("comparison: check_overlap: the training data are in no file; they cannot be looked at")
        return "not checked (the training data are in no file)"

    # Each by itself: the same text in several files would be in more documents, and be taken for a formula.
    searched = [(train, _documents(train, data.train_split)), *((file, documents_of_file(file)) for file in further)]
    documents = 0
    for file, training in searched:
        report = find_overlaps(training, _documents(test, data.test_split))
        documents += report.documents
        for what, found, name, split in (
            ("training", report.documents, file, data.train_split if file is train else None),
            ("test", report.held_out, test, data.test_split),
        ):
            if not found:
                where = name if split is None else f"the split {split!r}"
                raise RecipeError(f"comparison: check_overlap: no {what} documents were found for {where}")
        if report.overlaps:
            raise RecipeError(
                f"comparison: {file}: {report}. Take them out of the training data; or check_overlap: false, if it "
                "must be so"
            )
    return f"none of {documents} training documents shares text with {report.held_out} test documents"


def _file(source: str | None) -> Path | None:
    path = Path(source or "").expanduser()
    return path if path.is_file() else None


def _documents(file: Path, split: str | None) -> Iterator[Document]:
    """The documents of a split, as they are loaded: all where the file's name says that it is one of them."""
    _, split = files_of_split([(file, file.name)], split)
    if split is None:
        yield from documents_of_file(file)
        return
    for record in read_records(file, file.name):
        if record.row is not None and in_split(record.row, split):
            yield str(record.row.get("id") or f"{file.name}:{record.line}"), texts_of_record(record.row)


# The runs


def _smoke(
    path: str | os.PathLike[str],
    overrides: Sequence[str] | Mapping[str, Any],
    comparison: Comparison,
    names: Sequence[str],
) -> dict[str, Any]:
    """Each variant once, small."""
    results = {}
    for number, name in enumerate(names, start=1):
        logger.warning("variant %s (%d of %d)", name, number, len(names))
        results[name] = run_smoke(path, overrides, name)
        gc.collect()
        folder = Path(results[name]["recipe"]["training"]["output_dir"]).parent
        if folder.is_dir():
            sweeps.write_tables(folder, results)
    return {"variants": results, "table": sweeps.table_of(results)}


def command_of(path: str | os.PathLike[str], overrides: Sequence[str] | Mapping[str, Any] = ()) -> str:
    """Write the command that runs a comparison.

    Args:
        path: Its file.
        overrides: What is changed, as for `load_recipe`.

    Returns:
        A line for the shell.
    """
    if isinstance(overrides, Mapping):
        options = [option for name, value in overrides.items() for option in as_options(str(name), value)]
    else:
        options = list(overrides)
    return shlex.join(["hier-models", "train", os.fspath(path), *options])
