"""What makes a run on several processes the same run as on one: equal loss, whole checkpoints, errors that end it."""

import json
import logging
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from ..models.losses import cross_entropy
from .arguments import Recipe, RecipeError


logger = logging.getLogger(__name__)

NO_LOSS = -100


def loss_over_labels(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Compute the cross entropy over `num_items_in_batch`, which BART and RoBERTa take and do not use."""
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    count = (labels != NO_LOSS).sum() if num_items_in_batch is None else num_items_in_batch
    # A step of masked language modeling in which nothing was drawn has no label, and 0 / 0 would spoil all weights.
    return cross_entropy(logits, labels, torch.as_tensor(count, device=logits.device).clamp(min=1))


def has_loss_over_labels(model: PreTrainedModel, trainer: Trainer) -> bool:
    """Tell whether `loss_over_labels` is the loss of a model."""
    config = model.config
    makes_inputs = hasattr(model, "prepare_decoder_input_ids_from_labels")  # the collator then makes them
    return (
        trainer.label_smoother is None
        and trainer.compute_loss_func is None
        and trainer.label_names == ["labels"]
        and getattr(config, "attention", None) != "hard"
        and getattr(config, "problem_type", None) in (None, "single_label_classification")
        and not ("Classification" in type(model).__name__ and config.num_labels == 1)
        and (makes_inputs or not config.is_encoder_decoder)
    )


class ProcessesInCheckpoint(TrainerCallback, ExportableState):
    """Writes into each checkpoint how many processes made it, since each of them writes a file of its own."""

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes

    def state(self) -> dict[str, Any]:
        return {"args": {"processes": self.processes}, "attributes": {}}


def last_complete_checkpoint(output_dir: str | os.PathLike[str], processes: int = 1) -> str | None:
    """Find the newest checkpoint of a run that was written to its end, by every process.

    Args:
        output_dir: Folder of the run.
        processes: How many processes go on; a checkpoint of another number is used, with a warning.

    Returns:
        The checkpoint's folder, or None.
    """
    folders = [
        (int(match[1]), path)
        for path in Path(output_dir).glob("checkpoint-*")
        if path.is_dir() and (match := re.fullmatch(r"checkpoint-(\d+)", path.name))
    ]
    for _, folder in sorted(folders, reverse=True):
        if (made_by := _processes_of(folder)) is None:
            logger.warning("%s was not written to its end (the run was stopped while saving); it is left out", folder)
            continue
        if made_by not in (0, processes):
            went_on = f"{folder} was made by {made_by} process(es) and {processes} go on"
            logger.warning("%s: random numbers begin anew, so the run differs from one without a stop", went_on)
        return str(folder)
    return None


def _processes_of(folder: Path) -> int | None:
    """Read how many processes made a checkpoint: 0 if it does not say, None if one of them did not finish it."""
    try:
        # The first process writes this file last of its own.
        state = json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        entry = state.get("stateful_callbacks", {}).get(ProcessesInCheckpoint.__name__)
        processes = int(entry["args"]["processes"]) if entry else 0
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if processes < 2:
        return processes
    files = [folder / f"rng_state_{number}.pth" for number in range(processes)]
    # The end of the file is where the list of a zip archive's parts stands: what has one was written to its end.
    return processes if all(zipfile.is_zipfile(file) for file in files) else None


def prepare_streams(arguments: TrainingArguments) -> None:
    """Let each process read a stream by itself: accelerate would join batches of all, whose lengths differ."""
    config: Any = arguments.accelerator_config  # a dict or a file's name until the arguments are made
    if arguments.world_size > 1 and config.dispatch_batches is None:
        config.dispatch_batches = False


@contextmanager
def whole_weights(arguments: TrainingArguments) -> Iterator[None]:
    """Load and draw weights as one process does, unless DeepSpeed's `zero3_init_flag` asks for parts."""
    plugin = arguments.deepspeed_plugin
    if plugin is None or plugin.zero3_init_flag:
        yield
        return
    unset_hf_deepspeed_config()  # Transformers overlooks the flag
    try:
        yield
    finally:
        plugin.set_deepspeed_weakref()


def check_zero3(model: PreTrainedModel) -> None:
    """Refuse models whose processes would gather different weights at the same time, and wait for ever."""
    listed = {layer for part in model.modules() if isinstance(part, torch.nn.ModuleList) for layer in part}
    for part in model.modules():
        is_step = isinstance(part, GradientCheckpointingLayer) and part not in listed
        if is_step or isinstance(part, torch.nn.RNNCellBase):
            raise RecipeError(
                f"training: ZeRO-3 gathers weights whenever they are used, and {type(part).__name__} uses them for "
                "each token, of which the processes have unlike numbers; use ZeRO-2 or FSDP2 (examples/accelerate)"
            )


def check_writing(trainer: Trainer, recipe: Recipe) -> None:
    """Refuse, before the first step, what would fail after the last one: to write texts with what is shared out."""
    writes = recipe.training.predict_with_generate or recipe.data.test is not None
    is_shared_out = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    if is_shared_out and writes and cast(PreTrainedModel, trainer.model).can_generate():
        raise RecipeError(
            "training: nothing is generated with FSDP or DeepSpeed; set predict_with_generate: false, leave out "
            "data: test, and score the model afterwards with hier-models evaluate"
        )


def prepare_sharding(model: PreTrainedModel, plugin: Any) -> None:
    """Make a model one that FSDP2 can share out: each embedding is one module, and what is gathered runs once."""
    # accelerate takes input and output embeddings as one group, and torch refuses their weight in modules besides,
    # such as BART's encoder and decoder have. They go on with the same embedding, which is no part of theirs.
    kept = (embeddings := model.get_input_embeddings()), model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, part in list(parent.named_children()):
            if part not in kept and getattr(part, "weight", None) is embeddings.weight:
                delattr(parent, name)
                object.__setattr__(parent, name, embeddings)
    if plugin.transformer_cls_names_to_wrap is None:
        # Not the other modules that are not to be split: a recurrent decoder's step runs for each token, of which
        # another process may have more, and would wait for it for ever; and embeddings are a group already.
        stacks = [part for part in model.modules() if isinstance(part, torch.nn.ModuleList)]
        layers = {type(layer).__name__ for stack in stacks for layer in stack}
        plugin.transformer_cls_names_to_wrap = sorted(layers.intersection(model._no_split_modules or ()))


def own_file(path: Path, arguments: TrainingArguments, *, streaming: bool) -> Path:
    """Name a file for lines set aside, which every process writes for itself."""
    number = arguments.process_index
    if number == 0:
        return path
    return path.with_name(f"{path.stem}_process{number}{path.suffix}") if streaming else Path(os.devnull)
