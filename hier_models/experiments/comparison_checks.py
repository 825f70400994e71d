"""What is checked before a comparison trains anything: that it is fair, and trains on nothing that it tests on."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoTokenizer

from ..data.overlap import documents_of_file, find_overlaps
from ..training.arguments import Recipe, RecipeError, set_accumulation
from ..training.own_tokenizer import TOKENS, what_a_tokenizer_is_made_of
from ..training.resuming import experiment
from ..training.tasks import task_class
from .comparison_settings import FIXED, PARAMETERS_WITHIN, Comparison


def check_tasks(comparison: Comparison, recipes: Mapping[str, Recipe]) -> None:
    """Refuse metrics that there are not, and runs without test data."""
    for name, recipe in recipes.items():
        if not (known := task_class(recipe.run.task).document_metrics):
            raise RecipeError(f"comparison: the task {recipe.run.task} gives no scores of single test documents")
        for metric in comparison.metrics:
            if metric not in known:
                missing = f"{recipe.run.task} gives no {metric!r} of single documents"
                raise RecipeError(f"comparison: metrics: {missing}; it gives {', '.join(known)}")
        held_out = bool(getattr(recipe.options, "held_out_test", 0))
        if not (held_out or recipe.data.test or recipe.data.test_split):
            raise RecipeError(f"comparison: variant {name!r} has no test data for the metrics; name data: test")


def check_recipes(comparison: Comparison, name: str, recipe: Recipe, twin: str, of_twin: Recipe) -> list[str]:
    """Refuse a variant that is trained in another way than its twin."""
    both = f"comparison: variant {name!r} and its twin {twin!r}"
    values, others = _compared(recipe), _compared(of_twin)
    different = [key for key in dict.fromkeys((*values, *others)) if values.get(key) != others.get(key)]

    def listed(keys: Sequence[str]) -> str:
        return "; ".join(f"{key} is {values.get(key)!r} and {others.get(key)!r}" for key in keys)

    if fixed := [key for key in different if key in FIXED]:
        raise RecipeError(f"{both} must have the same steps, batches and data: {listed(fixed)}")
    if unsaid := [key for key in different if key not in comparison.differs]:
        raise RecipeError(
            f"{both} have different recipes: {listed(unsaid)}. If that is what is compared, say why: "
            f"comparison: differs: {{{unsaid[0]}: the reason}}"
        )
    if "perplexity" in comparison.metrics:
        for key in TOKENS:  # perplexities of other tokens are other numbers
            own, other = getattr(recipe.model, key), getattr(of_twin.model, key)
            if own != other:
                raise _incomparable(name, twin, f"{key} is {own!r} and {other!r}")
    for arguments in (recipe.training, of_twin.training):
        in_steps = arguments.load_best_model_at_end and arguments.eval_strategy == "steps"
        if in_steps and arguments.save_steps != arguments.eval_steps:
            steps = f"save_steps={arguments.save_steps} must be eval_steps={arguments.eval_steps:g}"
            raise RecipeError(f"training: {steps}, since the best model is to be scored")
    return different


def _compared(recipe: Recipe) -> dict[str, Any]:
    """What must be the same, or be said to differ: all but the model, and of that what its weights begin with."""
    set_accumulation(recipe)
    values = experiment({**recipe.as_dict(), "model": {}})
    del values["seed"], values["bad_lines"]
    model, training = recipe.model, recipe.training
    values |= {name: getattr(model, name) for name in ("checkpoint", "word_vectors", "new_modules")}
    values |= {name: value for name, value in model.overrides().items() if "drop" in name or "init" in name}
    return {**values, "bf16": training.bf16, "fp16": training.fp16}


def check_vocabularies(name: str, recipe: Recipe, twin: str, of_twin: Recipe) -> None:
    """Refuse to compare perplexities where a variant begins with another tokenizer's checkpoint than its twin."""
    sources = [each.tokenizer or each.checkpoint for each in (recipe.model.resolved(), of_twin.model.resolved())]
    if sources[0] == sources[1]:
        return
    if None in sources:
        one = sources[0] or sources[1]
        raise _incomparable(name, twin, f"one begins with the tokenizer of {one}, the other makes its own")
    try:
        vocabularies = [AutoTokenizer.from_pretrained(source).get_vocab() for source in sources]
    except (OSError, ValueError):
        return  # what is wrong with a checkpoint is said where its model is loaded
    if vocabularies[0] != vocabularies[1]:
        sizes = " and ".join(f"{len(vocabulary):,}" for vocabulary in vocabularies)
        what = f"the tokenizers of {sources[0]} and {sources[1]} have different vocabularies ({sizes} tokens)"
        raise _incomparable(name, twin, what)


def _incomparable(name: str, twin: str, reason: str) -> RecipeError:
    start = f"comparison: perplexities of variant {name!r} and its twin {twin!r} cannot be compared"
    return RecipeError(f"{start}: {reason}")


def count_parameters(recipes: Mapping[str, Recipe]) -> dict[str, int]:
    """Make the models of recipes and count their parameters."""
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
    """Refuse a variant that is larger or smaller than its twin."""
    share = parameters / of_twin - 1
    within: Any = comparison.parameters_within
    if isinstance(within, dict):
        within = {str(variant): value for variant, value in within.items()}.get(name, PARAMETERS_WITHIN)
    if abs(share) > within:
        raise RecipeError(
            f"comparison: variant {name!r} has {parameters:,} parameters and its twin {twin!r} {of_twin:,}: "
            f"{share:+.1%}, where parameters_within allows {within:.1%}; make the smaller one's layers wider, such as "
            "config_overrides: encoder_ffn_dim and decoder_ffn_dim"
        )


def check_overlap(comparison: Comparison, recipe: Recipe) -> str:
    """Refuse training documents that share text with test documents."""
    if comparison.check_overlap is False:
        return "not checked"
    data = recipe.data
    test = _file(data.test if data.test is not None else data.train)
    train = _file(data.train)
    further = [] if comparison.check_overlap is True else [Path(file) for file in comparison.check_overlap]
    if gone := [file for file in further if not file.is_file()]:
        raise RecipeError(f"comparison: check_overlap: there is no file {str(gone[0])!r}")
    unchecked = "the training data are in no file" if train is None else None
    if test is None or (data.test is None and data.test_split is None):
        unchecked = "the test data are in no file of their own"
    if train is None or test is None or unchecked is not None:
        if further:
            raise RecipeError(f"comparison: check_overlap: {unchecked}")
        return f"not checked ({unchecked})"
    # Each by itself: the same text in several files would be in more documents, and be taken for a formula.
    documents = 0
    for file, own in [(train, data.train_split), *((file, None) for file in further)]:
        report = find_overlaps(documents_of_file(file, own), documents_of_file(test, data.test_split))
        documents += report.documents
        for what, found, name, split in (
            ("training", report.documents, file, own),
            ("test", report.held_out, test, data.test_split),
        ):
            if not found:
                where = name if split is None else f"the split {split!r}"
                raise RecipeError(f"comparison: check_overlap: no {what} documents were found for {where}")
        if report.overlaps:
            raise RecipeError(f"comparison: {file}: {report}. Take them out, or set check_overlap: false")
    return f"none of {documents} training documents shares text with {report.held_out} test documents"


def _file(source: str | None) -> Path | None:
    path = Path(source or "").expanduser()
    return path if path.is_file() else None
