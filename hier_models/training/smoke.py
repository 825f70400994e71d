"""`--smoke`: a recipe on a few rows made on the spot, with a tiny model, to see that it runs at all.

Data, sizes, lengths and steps are small. All that makes a recipe what it is stays: optimizer, schedule, label
smoothing, dropout, hierarchy, segments, columns, fillers, how it generates.
"""

import dataclasses
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import datasets
import torch
import transformers
from transformers import AutoConfig, PretrainedConfig, PreTrainedTokenizerBase

from ..data.overlap import texts_in
from ..families import FAMILIES
from .arguments import ModelArguments, PrecisionError, Recipe, RecipeError
from .models import FROM_ROBERTA, PLAIN, reads_any_length, save_processor, source_length
from .recipe_files import Overrides, all_options, load_recipe
from .tasks import Task, task_class
from .train import run_training
from .twins import FEED_FORWARD


# Sizes of a tiny model, under all the names that configurations have for them.
SIZES = {
    **dict.fromkeys(("d_model", "hidden_size", "embedding_size", "coarse_filters"), 32),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_hidden_layers"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "num_attention_heads"), 4),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "intermediate_size"), 48),
    **{name: size for family in FAMILIES.values() for name, size in family.tiny.items() if size is not None},
}
# Numbers that are a part of one of these: of a tiny model they are the same part.
PARTS = {name: whole for family in FAMILIES.values() for name, whole in family.tiny_parts.items()}
# Positions of a tiny checkpoint, and of one that the recipe makes longer, in tokens.
POSITIONS, GROWN_POSITIONS = 96, 160
ENCODER_OFFSET = 2  # Roberta's positions begin after the padding token's
# Neurons of a block that is wider than the checkpoint's, and a window that both lengths above are multiples of.
WIDENED, LED_WINDOW = 64, 32
TARGET_LENGTH, MAX_LENGTH, MIN_LENGTH = 24, 8, 4
WORDS = 100
# The most of these, and how often something is done, in steps.
MOST = {
    "per_device_eval_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "dataloader_num_workers": 1,
}
EVERY = {"eval_steps": 2, "save_steps": 2, "logging_steps": 1}


def run_smoke(
    path: str | os.PathLike[str] | None = None,
    overrides: Overrides = (),
    variant: str | None = None,
) -> dict[str, Any]:
    """Run a recipe from beginning to end in seconds: few rows, a tiny random model of the recipe's architecture.

    Nothing is downloaded, and neither the recipe's data nor its checkpoint need be there. What is made is deleted,
    unless the overrides name an `output_dir`.

    Args:
        path: A YAML file, as for `load_recipe`.
        overrides: What to change in it, as for `load_recipe`.
        variant: Which variant of a sweep, as for `load_recipe`.

    Returns:
        What `run_training` returns, and under `smoke` what was changed: name -> (the recipe's value, the value here).

    Raises:
        RecipeError: If the recipe cannot run, or there are several processes.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RecipeError("smoke: runs in one process; start it without torchrun or accelerate launch")
    with tempfile.TemporaryDirectory(prefix="smoke-") as folder, _datasets_cache(Path(folder) / "cache"):
        recipe, changes = shrink(path, overrides, Path(folder), variant)
        return {**run_training(recipe), "smoke": changes}


def shrink(
    path: str | os.PathLike[str] | None,
    overrides: Overrides,
    folder: Path,
    variant: str | None = None,
) -> tuple[Recipe, dict[str, tuple[Any, Any]]]:
    """Make the small recipe of a recipe, with the data and the checkpoint that it needs."""
    given = all_options(overrides)

    def load(changes: Mapping[str, Any]) -> Recipe:
        return load_recipe(path, [*given, *all_options(changes)], variant)

    recipe, machine = _on_this_machine(load)
    task = task_class(recipe.run.task)(recipe, folder)
    data, model = task.smoke_data(folder), _model(recipe, task, folder)
    changes: dict[str, Any] = {**machine, **data, **model, **_lengths(recipe), **_training(recipe, task)}
    if not any(option.split("=")[0] in ("--output_dir", "--output-dir") for option in given):
        changes["output_dir"] = str(folder / "run")
    changes |= task.smoke_changes()
    small = load(changes)
    before, after = _values(recipe), _values(small)
    before |= {name: not value for name, value in machine.items()}  # `recipe` has them changed already
    return small, {name: (before[name], after[name]) for name in changes if before[name] != after[name]}


def _on_this_machine(load: Callable[[Mapping[str, Any]], Recipe]) -> tuple[Recipe, dict[str, bool]]:
    """The recipe, in a precision that there is here; and the switches turned for it."""
    changes: dict[str, bool] = {} if torch.accelerator.is_available() else {"use_cpu": True}
    try:
        recipe = load(changes)
    except PrecisionError:
        changes["bf16"] = False
        recipe = load(changes)
    if recipe.training.fp16 and recipe.training.device.type == "cpu":
        changes["fp16"] = False
    return recipe, changes


def _model(recipe: Recipe, task: Task, folder: Path) -> dict[str, Any]:
    """A tiny checkpoint in the place of the recipe's, or tiny sizes; and a tokenizer in the place of the recipe's."""
    model = recipe.model
    overrides = model.overrides()
    kept = {name: SIZES.get(name, value) for name, value in overrides.items() if name != "vocab_size"}
    for name, whole in PARTS.items():
        if isinstance(kept.get(name), int):  # of how many, only the checkpoint may say
            kept[name] = min(kept[name] * SIZES[whole] // overrides.get(whole, SIZES[whole]), SIZES[whole])
    sources = {
        "from_bart": ("bart", "AutoModelForSeq2SeqLM"),
        "from_roberta": ("roberta", "AutoModelForMaskedLM"),
        "from_encoder": ("roberta", "AutoModelForMaskedLM"),  # whose kind of tokenizer there is here
        "model_name_or_path": (_family(recipe, task), task.checkpoint_class or task.auto_class),
    }
    changes: dict[str, Any] = {}
    tokenizer = task.smoke_tokenizer()
    if model.tokenizer is not None:
        tokenizer.save_pretrained(folder / "tokenizer")
        changes["tokenizer"] = str(folder / "tokenizer")
    if model.tokenizer_words is not None:
        changes["tokenizer_words"] = min(model.tokenizer_words, WORDS)
    if model.word_vectors is not None:
        changes["word_vectors"] = str(_word_vectors(task.smoke_rows(), tokenizer, folder / "word_vectors.txt"))
    source = next((name for name in sources if getattr(model, name) is not None), None)
    if source is None:
        kept |= _sizes(model.model_type)
        if not reads_any_length(model.model_type):
            changes["max_position_embeddings"] = POSITIONS + (0 if _writes(task) else ENCODER_OFFSET)
    else:
        family, auto_class = sources[source]
        plain = PLAIN.get(family, {}) if model.plain else {}
        if family in FAMILIES:
            given = {name: kept.get(name) if value is None else value for name, value in FAMILIES[family].kept.items()}
            given = {name: getattr(_saved_config(recipe), name, value) for name, value in given.items()}
            plain = {name: value for name, value in given.items() if value is not None} | plain
        length = POSITIONS + (0 if _writes(task) and source != "from_encoder" else ENCODER_OFFSET)
        changes[source] = str(_tiny_checkpoint(folder / family, family, auto_class, tokenizer, length, **plain))
        if model.max_position_embeddings is not None:
            changes["max_position_embeddings"] = GROWN_POSITIONS
        if source != "from_roberta":
            kept |= dict.fromkeys(set(FEED_FORWARD) & set(kept), WIDENED)
        if source in ("from_bart", "from_encoder") and model.model_type == "led":
            kept["attention_window"] = LED_WINDOW
    if model.config_overrides is not None or kept:
        changes["config_overrides"] = kept
    return changes


def _word_vectors(rows: Sequence[Any], tokenizer: PreTrainedTokenizerBase, path: Path) -> Path:
    """Vectors as GloVe writes them, for the words of rows and for what the tokenizer has."""
    words = {word for text in texts_in(rows) for word in re.findall(r"\w+", text.lower())}
    words |= {token for token in tokenizer.get_vocab() if not re.search(r"\s", token)}
    numbers = " ".join(["0.1"] * SIZES["embedding_size"])
    path.write_text("".join(f"{word} {numbers}\n" for word in sorted(words)), encoding="utf-8")
    return path


def tiny_tagger(tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """Make a random importance tagger."""
    family = next(name for name, record in FAMILIES.items() if "importance_tagging" in record.tasks.values())
    return _tiny_checkpoint(folder, family, "AutoModelForTokenClassification", tokenizer, POSITIONS)


def _tiny_checkpoint(
    folder: Path, family: str, auto_class: str, tokenizer: PreTrainedTokenizerBase, length: int, **settings: Any
) -> Path:
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "pad_token_id", "eos_token_id")}
    sizes = {**_sizes(family), **ids, **settings, "vocab_size": len(tokenizer)}
    config = AutoConfig.for_model(family, **sizes, **source_length(family, length))
    torch.manual_seed(0)
    model = getattr(transformers, auto_class).from_config(config)
    if model.can_generate():
        model.generation_config.max_length = MAX_LENGTH  # which a recipe may leave to the checkpoint
    model.save_pretrained(folder)
    save_processor(config, tokenizer, folder)
    return folder


def _sizes(family: str) -> dict[str, int]:
    names = {item.name for item in dataclasses.fields(type(AutoConfig.for_model(family)))}
    if family in FAMILIES:
        names -= {name for name, size in FAMILIES[family].tiny.items() if size is None}
    return {name: size for name, size in SIZES.items() if name in names}


def _family(recipe: Recipe, task: Task) -> str:
    """The family of the checkpoint that a recipe goes on from: its own if it is here, else what the recipe says."""
    if (saved := _saved_config(recipe)) is not None:
        return str(saved.model_type)
    if not _writes(task) and recipe.model.model_type == ModelArguments().model_type:  # the default is no encoder
        return FROM_ROBERTA
    return recipe.model.model_type


def _saved_config(recipe: Recipe) -> PretrainedConfig | None:
    """The configuration of the checkpoint that a recipe goes on from, if it is here."""
    name = recipe.model.resolved().model_name_or_path
    if name is None or not (Path(name) / "config.json").is_file():
        return None
    return cast(PretrainedConfig, AutoConfig.from_pretrained(name))


def _writes(task: Task) -> bool:
    return task.auto_class == "AutoModelForSeq2SeqLM"


def _lengths(recipe: Recipe) -> dict[str, Any]:
    data, generation = recipe.data, recipe.generation
    sources = recipe.model.from_bart or recipe.model.from_encoder or recipe.model.model_name_or_path
    grown = recipe.model.max_position_embeddings is not None and sources is not None
    changes: dict[str, Any] = {
        "max_source_length": min(data.max_source_length, GROWN_POSITIONS if grown else POSITIONS),
        "max_target_length": min(data.max_target_length, TARGET_LENGTH),
    }
    for name, length in (("min_length", MIN_LENGTH), ("max_length", MAX_LENGTH)):
        if (value := getattr(generation, name)) is not None:
            changes[name] = min(value, length)
    return changes if data.num_proc is None else {**changes, "num_proc": 1}


def _training(recipe: Recipe, task: Task) -> dict[str, Any]:
    training = recipe.training
    changes: dict[str, Any] = {"report_to": "none", "push_to_hub": False}
    if training.max_steps > 0:
        changes["max_steps"] = min(training.max_steps, 3)
    else:
        changes["num_train_epochs"] = min(training.num_train_epochs, 2)
    if training.warmup_steps >= 1:  # below, it is a share of the steps
        changes["warmup_steps"] = 1
    most = {"per_device_train_batch_size": task.smoke_batch, **MOST}
    changes |= {name: min(getattr(training, name), number) for name, number in most.items()}
    changes |= {name: steps for name, steps in EVERY.items() if (getattr(training, name) or 0) >= 1}
    if (total := recipe.run.total_train_batch_size) is not None:
        at_once = changes["per_device_train_batch_size"] * max(1, training.n_gpu) * training.world_size
        several = total > training.train_batch_size * training.world_size
        changes["total_train_batch_size"] = at_once * (2 if several else 1)
    return changes


def _values(recipe: Recipe) -> dict[str, Any]:
    return {name: value for section in recipe.as_dict().values() for name, value in section.items()}


@contextmanager
def _datasets_cache(folder: Path) -> Iterator[None]:
    """Keep what is made on the spot out of the user's cache."""
    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = folder
    try:
        yield
    finally:
        datasets.config.HF_DATASETS_CACHE = before
