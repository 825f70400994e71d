"""What lies in a run's folder: whether it is of the same run, and what that goes on with."""

import json
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, TrainerCallback, TrainerState
from transformers.trainer_callback import ExportableState

from ..families import FAMILIES
from .arguments import Recipe, RecipeError, set_accumulation
from .distributed import last_complete_checkpoint
from .run_metadata import data_version, named_sources


logger = logging.getLogger(__name__)

RESULTS_FILE = "results.json"
# What a run goes on with, once it has a checkpoint.
RECIPE_FILE = "recipe.json"

# What of the section `training` makes another experiment; the rest says how it is computed, and where.
EXPERIMENT = (
    *("adam_beta1", "adam_beta2", "adam_epsilon", "data_seed", "dataloader_drop_last", "label_smoothing_factor"),
    # Not `generation_max_length`, which summarization sets by the data where it is not given.
    *("generation_config", "generation_num_beams"),
    *("learning_rate", "load_best_model_at_end", "lr_scheduler_kwargs", "lr_scheduler_type", "max_grad_norm"),
    *("max_steps", "neftune_noise_alpha", "num_train_epochs", "optim", "optim_args", "optim_target_modules", "seed"),
    *("train_sampling_strategy", "warmup_steps", "weight_decay"),
)
# What besides, if the best model is kept: it decides which that is.
BEST = ("eval_strategy", "eval_steps", "eval_delay", "save_steps", "metric_for_best_model", "greater_is_better")
OF_EVALUATIONS = ("reduce_lr_on_plateau", "greedy")  # schedules of the learning rate
# What of the other sections does not; how many small batches make a step does not either.
HOW = ("overwrite", "num_proc", "stop_after_minutes", "bf16_where_fast")

# What of a configuration says how a model is trained or used, and not what its weights mean; and parts of such names.
NOT_THE_MODEL = {"use_cache", *(name for family in FAMILIES.values() for name in family.of_training)}
NOT_THE_MODEL_PARTS = ("drop", "init", "_prob", "_token_id")

LENGTH = ("max_steps", "num_train_epochs")

ANEW = "choose another output_dir, or set run: overwrite: true to start anew"


class RunningError(RecipeError):
    """A run that another process is training."""


def checkpoint_to_resume(recipe: Recipe, output_dir: Path) -> str | None:
    """Find what a run goes on with, and make room for one that is to begin anew."""
    asked = recipe.training.resume_from_checkpoint
    asked = None if asked in (False, "False", "false") else asked  # of Transformers, text
    if recipe.run.overwrite:
        if asked:
            raise RecipeError("run: overwrite and training: resume_from_checkpoint exclude each other")
        each = recipe.training.save_on_each_node
        with recipe.training.main_process_first(local=each, desc="deleting old checkpoints"):
            for folder in output_dir.glob("checkpoint-*"):
                shutil.rmtree(folder, ignore_errors=True)
            (output_dir / RESULTS_FILE).unlink(missing_ok=True)  # else it would be taken for that of this run
        return None
    if asked and asked not in ("True", "true"):
        if not Path(asked).is_dir():
            raise RecipeError(f"training: resume_from_checkpoint: there is no folder {asked!r}")
        is_of_run = Path(asked).resolve().parent == output_dir.resolve()
        newest = last_complete_checkpoint(output_dir, recipe.training.world_size)
        if newest is not None and not (is_of_run and _is_no_earlier(asked, newest)):
            remedy = f"leave it out to go on from that, or choose another output_dir for another run from {asked}"
            raise RecipeError(f"training: resume_from_checkpoint is {asked}, and there is {newest}; {remedy}")
        if (output_dir / RESULTS_FILE).is_file() and not is_of_run:
            raise RecipeError(f"training: {output_dir} holds a finished run; {ANEW}")
        return asked
    results, begun = _read(output_dir)
    checkpoint = last_complete_checkpoint(output_dir, recipe.training.world_size)
    if results is not None:
        if not _is_to_go_on(recipe, results, begun, output_dir):
            raise RecipeError(f"training: {output_dir} holds a finished run; {ANEW}")
    elif checkpoint is not None and begun is not None:
        what = f"{output_dir} holds an interrupted run"
        remedy = f"{ANEW}, or training: resume_from_checkpoint: {checkpoint} to go on with it all the same"
        _check_same(recipe, begun, what, remedy)
        if _has_weights_alone(begun, checkpoint):
            weights = "whose checkpoints are weights alone (save_only_model) or have lost optimizer.pt or scheduler.pt"
            raise RecipeError(f"training: {what} {weights}; {remedy}")
    if checkpoint is not None:
        logger.warning("resuming from %s; set run: overwrite: true to start anew", checkpoint)
    elif asked:
        raise RecipeError(f"training: resume_from_checkpoint is on, but {output_dir} holds no complete checkpoint")
    return checkpoint


def _is_no_earlier(checkpoint: str, than: str) -> bool:
    found, number = (re.fullmatch(r"checkpoint-(\d+)", Path(path).name) for path in (checkpoint, than))
    return found is not None and number is not None and int(found[1]) >= int(number[1])


def check_same_model(checkpoint: str, config: PreTrainedConfig) -> None:
    """Refuse to resume another model's run: what fits of its weights would be loaded, with a mere warning."""
    try:
        saved = json.loads((Path(checkpoint) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # the Trainer says what is wrong with it
    now = json.loads(config.to_json_string(use_diff=False))
    for name in ("model_type", *type(config).__annotations__):
        if name in NOT_THE_MODEL or any(part in name for part in NOT_THE_MODEL_PARTS):
            continue
        if name in saved and name in now and saved[name] != now[name]:
            differs = f"{name} is {saved[name]} there and {now[name]} here"
            raise RecipeError(f"training: {checkpoint} is of another model ({differs}); {ANEW}")


def finished_run(recipe: Recipe) -> dict[str, Any] | None:
    """Find what an earlier call found for this very recipe."""
    set_accumulation(recipe)
    if recipe.run.overwrite:
        return None
    folder = Path(recipe.training.output_dir or "")
    results, begun = _read(folder)
    if results is not None:
        if _is_to_go_on(recipe, results, begun, folder):
            return None
        held_out = getattr(recipe.options, "held_out_validation", 0)
        has_validation = recipe.data.source_of("validation")[0] is not None or held_out
        if recipe.training.predict_with_generate and has_validation and "evaluation" not in results:
            unscored = "that was not scored on validation, as predict_with_generate asks for"
            raise RecipeError(f"training: {folder} holds a finished run {unscored}; {ANEW}")
        return results
    if begun is not None:
        _check_same(recipe, begun, f"{folder} holds an interrupted run", ANEW)
    return None


class BestInFolder(TrainerCallback):
    """Finds the best checkpoint of a folder that was moved: the Trainer forgets one that is not where it was."""

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if state.best_model_checkpoint is None and state.best_global_step:
            found = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
            state.best_model_checkpoint = str(found) if found.is_dir() else None


class LengthInCheckpoint(TrainerCallback, ExportableState):
    """Keeps a run's length, and after how many steps it grew: rates that came down there rise again."""

    def __init__(self) -> None:
        self.made_longer_after: list[int] = []
        self._max_steps = 0

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        saved: Any = state.stateful_callbacks or {}
        if type(self).__name__ in saved:
            before = saved[type(self).__name__]["attributes"]
            is_longer = 0 < before["max_steps"] < state.max_steps  # 0 before the first step
            self.made_longer_after = before["made_longer_after"] + ([state.global_step] if is_longer else [])
        self._max_steps = state.max_steps

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"max_steps": self._max_steps, "made_longer_after": self.made_longer_after}}


def experiment(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Pick what makes a run another experiment, and not only computes it in another way."""
    values = {name: value for section in recipe if section != "training" for name, value in recipe[section].items()}
    training = recipe["training"]
    # So do evaluations that set the learning rate.
    by_evaluations = values.get("perplexity_decay") or training.get("lr_scheduler_type") in OF_EVALUATIONS
    for name in (*EXPERIMENT, *(BEST if training["load_best_model_at_end"] or by_evaluations else ())):
        values[name] = training.get(name)
    return {name: value for name, value in values.items() if name not in HOW}


def _read(folder: Path) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The results of a run that is finished, and the recipe of one that has a checkpoint."""
    files = {RESULTS_FILE: folder / RESULTS_FILE, RECIPE_FILE: folder / RECIPE_FILE}
    found = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.is_file()}
    return found.get(RESULTS_FILE), found.get(RECIPE_FILE) if any(folder.glob("checkpoint-*")) else None


def _is_to_go_on(recipe: Recipe, results: Mapping[str, Any], begun: Mapping[str, Any] | None, folder: Path) -> bool:
    """Whether a finished run is shorter than it is to be now; other differences are refused."""
    what = f"{folder} holds a finished run"
    _check_same(recipe, results, what, ANEW)
    if not _is_longer(recipe.training.to_dict(), results["recipe"]["training"]):
        return False
    if begun is not None:  # with which it was made longer before
        _check_same(recipe, begun, f"{folder} holds an interrupted run", ANEW)
    checkpoint = last_complete_checkpoint(folder, recipe.training.world_size)
    if checkpoint is None or _has_weights_alone(results, checkpoint):
        steps, epochs = recipe.training.max_steps, recipe.training.num_train_epochs
        length = f"{steps} steps" if steps > 0 else f"{epochs:g} epochs"
        raise RecipeError(f"training: {what} that left no checkpoint to go on from to {length}; {ANEW}")
    return True


def _has_weights_alone(found: Mapping[str, Any], checkpoint: str) -> bool:
    """Whether there is no optimizer to go on with, which the Trainer would silently begin anew."""
    if found["recipe"]["training"].get("save_only_model"):
        return True
    names = [path.name for path in Path(checkpoint).iterdir()]
    has_optimizer = any("optimizer" in name for name in names) and "scheduler.pt" in names  # FSDP's is a folder
    return not has_optimizer and not any(name.startswith("global_step") for name in names)  # where DeepSpeed's is


def _check_same(recipe: Recipe, found: Mapping[str, Any], what: str, remedy: str) -> None:
    """Refuse another recipe or other data; a run may be longer than it was to be."""
    if "recipe" not in found:
        raise RecipeError(f"training: {what}, but does not say of which recipe; {remedy}")
    before, now = experiment(found["recipe"]), experiment(json.loads(json.dumps(recipe.as_dict(), default=str)))
    if _is_longer(now, before):
        now |= {name: before[name] for name in LENGTH}
    # What only one of them has came or went with a version of hier_models.
    for name in (name for name in before if name in now):
        if _meaning(before[name]) != _meaning(now[name]):
            raise RecipeError(f"training: {what} with {name}={before[name]}, and here it is {now[name]}; {remedy}")
    digests = data_version(recipe)
    for name, digest in found.get("data", {}).items():
        if digests.get(name) != digest:
            section, sources = named_sources(recipe)[name]
            raise RecipeError(f"{section}: {name}: {what}, and {', '.join(sources)} has changed since; {remedy}")


def _meaning(value: Any) -> Any:
    """What a setting says; in whichever order, and with whichever spaces, a JSON object has its names."""
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _is_longer(training: Mapping[str, Any], than: Mapping[str, Any]) -> bool:
    """Whether it has more steps; or more epochs, where steps are not given."""
    in_steps, was_in_steps = (values["max_steps"] > 0 for values in (training, than))
    name = "max_steps" if in_steps else "num_train_epochs"
    return in_steps == was_in_steps and bool(training[name] > than[name])
