"""Training runs: everything around the stock Trainer that all tasks share."""

import copy
import logging
import shutil
import time
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from datasets import IterableDataset
from transformers import PreTrainedModel, TrainerCallback, set_seed
from transformers.integrations.integration_utils import get_reporting_integration_callbacks
from transformers.trainer import TRAINER_STATE_NAME

from ..locks import held
from ..metrics.base import version_of
from .arguments import Recipe, RecipeError, mistakes_of, set_accumulation
from .callbacks import BrightnessDecay, SoftPretraining, SurrogateLog, check_hard_attention
from .distributed import (
    ProcessesInCheckpoint,
    check_writing,
    has_loss_over_labels,
    loss_over_labels,
    prepare_streams,
    whole_weights,
)
from .evaluation import write_json
from .learning_rates import PerplexityDecay, optimizer_with_rates
from .resuming import (
    OF_EVALUATIONS,
    RECIPE_FILE,
    RESULTS_FILE,
    BestInFolder,
    LengthInCheckpoint,
    RunningError,
    check_same_model,
    checkpoint_to_resume,
)
from .run_metadata import (
    DivergedError,
    LogAtCheckpoints,
    RunCosts,
    StopDiverged,
    TimeLimit,
    TimeUpError,
    code_version,
    data_version,
    machine,
)
from .tasks import Task, task_class
from .trainer import HierTrainer


logger = logging.getLogger(__name__)

LIBRARIES = ("transformers", "torch", "datasets", "accelerate", "rouge-score")


def run_training(recipe: Recipe, deadline: float | None = None) -> dict[str, Any]:
    """Train a model by a recipe, save it with its processor, and score it on the validation data.

    A run that was interrupted goes on from its last complete checkpoint in `output_dir`, and on the CPU ends with the
    same weights, bit for bit, as if it had never stopped. The folder afterwards holds the model with its generation
    config, the processor, `recipe.json`, and `results.json` with what is returned.

    Args:
        recipe: What to train, from `load_recipe`. Its `run: task:` says for which task.
        deadline: When to stop at a checkpoint, in seconds of `time.monotonic`; by default after the recipe's
            `stop_after_minutes`.

    Returns:
        `train` (the Trainer's numbers; where a checkpoint was gone on from without its loss and its speed, which are
        those of the last sitting), `evaluation` (the task's scores, if there are validation data; for generated texts
        only with `predict_with_generate`), `test` (the same of the test data, if there are any), the task's reports
        (such as `truncation` and `set_aside` for each data set), `loading` (which weights a checkpoint did not give),
        `learning_rates` (each rate and of how many weights, where not all have the same), `resumed_from`,
        `made_longer_after` (steps; see `LengthInCheckpoint`), `parameters`, `cost` (time, memory, and source tokens
        with `include_num_input_tokens_seen`), the `machine`, the `code`, digests of the `data`, the `recipe` and the
        `versions` of the libraries.

    Raises:
        RecipeError: If parts of the recipe do not fit together, or `output_dir` holds a finished run that is not to be
            longer now, or one of another recipe or other data. A `RunningError` if another process is training it, a
            `DivergedError` if the loss is no finite number any more; no model is saved then.
        TimeUpError: If the run was stopped because its time was up; the same call goes on from there.
    """
    arguments = recipe.training
    if deadline is None and recipe.run.stop_after_minutes is not None:
        deadline = time.monotonic() + 60 * recipe.run.stop_after_minutes
    output_dir = Path(arguments.output_dir or "")
    task = task_class(recipe.run.task)(recipe, output_dir)
    if recipe.data.train is None:
        raise RecipeError("data: train is not given; it is the hub id, file or folder of the training documents")
    if recipe.data.streaming and arguments.max_steps <= 0:
        raise RecipeError("training: max_steps must be given with streaming: true, since a stream has no known length")
    if deadline is not None and (arguments.save_only_model or arguments.save_strategy == "best"):
        setting = "save_only_model" if arguments.save_only_model else "save_strategy: best"
        raise RecipeError(f"run: stop_after_minutes needs a checkpoint to go on from at any step; leave out {setting}")
    task.check()
    set_accumulation(recipe)
    is_new, is_first = not output_dir.exists(), arguments.process_index == 0
    output_dir.mkdir(parents=True, exist_ok=True)
    with held(output_dir) if is_first else nullcontext(True) as is_ours:
        if not is_ours:
            remedy = "wait for it, or choose another output_dir"
            raise RunningError(f"training: another process is training {output_dir}; {remedy}")
        try:
            return _train(recipe, task, deadline)
        finally:
            if is_new and is_first:
                with suppress(OSError):  # what was written stays; a mistake found before leaves no folder
                    output_dir.rmdir()


def _train(recipe: Recipe, task: Task, deadline: float | None) -> dict[str, Any]:
    arguments, output_dir = recipe.training, Path(recipe.training.output_dir or "")
    # Now, since files may be edited while the model is trained.
    code, data = code_version(), data_version(recipe)
    checkpoint = checkpoint_to_resume(recipe, output_dir)
    length, costs, limit = LengthInCheckpoint(), RunCosts(arguments), None if deadline is None else TimeLimit(deadline)
    # Weights that are not loaded are drawn here, so they depend on the seed and on nothing before.
    set_seed(arguments.seed)
    if arguments.device.type == "cpu":
        arguments.dataloader_pin_memory = False  # it would only warn that there is nothing to pin memory for
    with whole_weights(arguments):
        model, processor = task.load_model_and_processor()
    if checkpoint is not None:
        check_same_model(checkpoint, model.config)
    optimizer, callbacks = _optimizer(recipe, model), _callbacks(recipe, model)
    learning_rates = _learning_rates(optimizer)

    # The first process fills datasets' cache, the others read it.
    with arguments.main_process_first(desc="loading and tokenizing"):
        train_dataset = task.train_dataset(model, processor)
        validation_dataset = task.validation_dataset(model, processor)
    if task.word_vectors is not None:
        logger.warning("%s", task.word_vectors)
    if isinstance(train_dataset, IterableDataset):
        # Without end: after resuming in the second epoch of a stream, the Trainer would start that anew.
        prepare_streams(arguments)
        train_dataset = train_dataset.repeat(None).shuffle(seed=arguments.seed, buffer_size=recipe.data.shuffle_buffer)
    if validation_dataset is None and arguments.eval_strategy != "no":
        raise RecipeError("training: eval_strategy is on, but data: validation is not given")

    own = [
        ProcessesInCheckpoint(arguments.world_size),
        BestInFolder(),
        length,
        costs,
        LogAtCheckpoints(),
        StopDiverged(),
    ]
    trainer = HierTrainer(
        model=model,
        args=arguments,
        train_dataset=train_dataset,
        eval_dataset=validation_dataset,
        processing_class=processor,
        data_collator=task.collator(model, processor),
        compute_metrics=task.compute_metrics(processor),
        callbacks=[*callbacks, *task.callbacks(), *own, *([limit] if limit else [])],
        optimizer=optimizer,
        in_order=task.in_order,
        **task.trainer_options(),
    )
    check_writing(trainer, recipe)
    # Those that report behind those that add to the log.
    for kind in get_reporting_integration_callbacks(arguments.report_to):
        if (reporting := trainer.pop_callback(kind)) is not None:
            trainer.add_callback(reporting)
    if has_loss_over_labels(model, trainer):
        trainer.compute_loss_func = loss_over_labels
    generation_config = copy.deepcopy(getattr(model, "generation_config", None))  # encoders have none
    if trainer.is_world_process_zero():
        write_json(output_dir / RECIPE_FILE, {"recipe": recipe.as_dict(), "data": data})
        if checkpoint is None:
            (output_dir / TRAINER_STATE_NAME).unlink(missing_ok=True)  # of one that diverged
    # With 1, the Trainer ends with the best checkpoint alone: if scoring then failed, training would go on from there.
    if keeps_one := arguments.load_best_model_at_end and arguments.save_total_limit == 1:
        arguments.save_total_limit = 2
    try:
        outcome = trainer.train(resume_from_checkpoint=checkpoint)
    except DivergedError:
        trainer.save_state()  # the losses until then
        raise
    arguments.save_total_limit = 1 if keeps_one else arguments.save_total_limit
    if limit is not None and limit.stopped:
        # A launcher ends all processes with the first, and one may still be writing the checkpoint.
        trainer.accelerator.wait_for_everyone()
        steps = f"step {trainer.state.global_step} of {trainer.state.max_steps}"
        raise TimeUpError(f"the time is up: stopped at {steps} in {output_dir}")
    if trainer.state.global_step == 0:
        remedy = "leave out dataloader_drop_last where there are fewer rows than a batch has, or set max_steps"
        raise RecipeError(f"training: no step was made, so nothing was learned; {remedy} or num_train_epochs above 0")
    if trainer.is_world_process_zero():
        (output_dir / RESULTS_FILE).unlink(missing_ok=True)  # of a shorter run that this one went on with
    if generation_config is not None:
        model.generation_config = generation_config  # the Trainer's evaluation writes every default into it
    # Of a run in several sittings, loss and speed would be those of the last one, which may have made no step.
    of_all = {name: value for name, value in outcome.metrics.items() if not (checkpoint and name.startswith("train_"))}
    trainer.log_metrics("train", of_all)
    trainer.save_model()  # with the processor and the generation config
    trainer.save_state()

    scores = {"evaluation": task.evaluate(trainer, model, processor), "test": task.test(trainer, model, processor)}
    # Tokens of sources that were read in training, the same ones each time.
    is_counted = trainer.args.include_num_input_tokens_seen != "no"
    counted = {"source_tokens": int(trainer.state.num_input_tokens_seen)} if is_counted else {}
    results: dict[str, Any] = {
        "train": of_all,
        **{part: found for part, found in scores.items() if found is not None},
        **task.reports(),
        "loading": task.loading,
        **learning_rates,
        **({} if task.word_vectors is None else {"word_vectors": vars(task.word_vectors)}),
        "resumed_from": checkpoint,
        "made_longer_after": length.made_longer_after,
        # DeepSpeed leaves nothing of a weight in its place but this number.
        "parameters": sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in model.parameters()),
        "cost": costs.as_dict() | counted,
        "machine": machine(arguments),
        "code": code,
        "data": data,
        "recipe": recipe.as_dict(),
        "versions": {name: version_of(name) for name in LIBRARIES},
    }
    if trainer.is_world_process_zero():
        write_json(output_dir / RESULTS_FILE, results)
        if keeps_one and (best := trainer.state.best_model_checkpoint):
            for folder in output_dir.glob("checkpoint-*"):
                if not folder.samefile(best):
                    shutil.rmtree(folder)
    return results


def _optimizer(recipe: Recipe, model: PreTrainedModel) -> torch.optim.Optimizer | None:
    """The optimizer where parts or new modules have learning rates of their own; None for the Trainer's."""
    rates, factor = recipe.run.rates(), recipe.run.new_modules_rate
    if not rates and (factor == 1 or not getattr(model, "new_parameters", ())):
        return None
    setting = "learning_rates" if rates else "new_modules_rate (1 for no rate of their own)"
    with mistakes_of(f"run: {setting}"):
        return optimizer_with_rates(model, recipe.training, rates, factor)


def _learning_rates(optimizer: torch.optim.Optimizer | None) -> dict[str, dict[str, int]]:
    """How many weights begin with which rate, for the results."""
    found = Counter[str]()
    for group in () if optimizer is None else optimizer.param_groups:
        found[f"{group['lr']:g}"] += sum(parameter.numel() for parameter in group["params"])
    return {"learning_rates": dict(found)} if found else {}


def _callbacks(recipe: Recipe, model: PreTrainedModel) -> list[TrainerCallback]:
    """What a recipe and the model ask for, of any task: brightness that falls, the log of hard attention."""
    run, found = recipe.run, list[TrainerCallback]()
    if getattr(model.config, "highlighted_layers", None):
        found.append(BrightnessDecay())
        if recipe.data.streaming and model.config.brightness_decay < 1:
            logger.warning("a stream has no epochs: the brightness stays %s", model.config.brightness)
    is_hard = getattr(model.config, "attention", None) == "hard"
    if is_hard and recipe.training.label_smoothing_factor:
        raise RecipeError("training: label_smoothing_factor must be 0 with hard attention, whose loss is its own")
    if run.perplexity_decay is not None:
        if recipe.training.eval_strategy == "no":
            raise RecipeError("run: perplexity_decay needs evaluations; set training: eval_strategy: epoch")
        schedule: Any = recipe.training.lr_scheduler_type
        if schedule in OF_EVALUATIONS:
            raise RecipeError(
                f"run: perplexity_decay does what lr_scheduler_type: {schedule.value} does; leave out one"
            )
        with mistakes_of("run: perplexity_decay"):
            found.append(PerplexityDecay(run.perplexity_decay))
    if run.soft_epochs is not None:
        with mistakes_of("run: soft_epochs"):
            check_hard_attention(model, "it")
            found.append(SoftPretraining(run.soft_epochs))
        if recipe.data.streaming:
            raise RecipeError("run: soft_epochs does not go with streaming: true; a stream has no epochs")
    return [*found, SurrogateLog()] if is_hard else found
