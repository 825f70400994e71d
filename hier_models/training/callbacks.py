"""Callbacks of the Trainer for what models change while they train: brightness, dropout, hard attention."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerState


logger = logging.getLogger(__name__)

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
# Fractions of an epoch are sums of roundings; a step is never as short as this.
ROUNDING = 1e-9


def _epochs(state: TrainerState) -> float:
    """How many epochs are over."""
    return (state.epoch or 0) + ROUNDING


class BrightnessDecay(TrainerCallback):
    """Multiplies the brightness of a Highlight-Transformer by its `brightness_decay` before each epoch but the first.

    The brightness stands in the model's config, so that what is evaluated and saved has that it was trained with. It
    is computed from the number of finished epochs, so that a resumed run goes on as it was, if its model was made as
    for a new run. With `load_best_model_at_end` the model ends with the brightness of the checkpoint that is loaded.

    Raises:
        ValueError: When training begins, if the model highlights nothing.

    Source: section 4.2 (the brightness factor progressively decreases at the end of each epoch; here once the epoch's
    model is evaluated and saved).
    """

    def __init__(self) -> None:
        self._first = 0.0

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        config = kwargs["model"].config
        if not hasattr(config, "brightness"):
            raise ValueError(f"BrightnessDecay: {type(kwargs['model']).__name__} has no brightness in its config")
        self._first = config.brightness
        self._set(config, state)

    def on_epoch_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Lower the brightness, when the last epoch's model is evaluated and saved."""
        self._set(kwargs["model"].config, state)

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Give the best model, where that was loaded, the brightness that it was saved with."""
        if not args.load_best_model_at_end or state.best_model_checkpoint is None:
            return
        file = Path(state.best_model_checkpoint) / "config.json"
        if not file.is_file():  # adapters alone, say
            logger.warning("%s is not there; the brightness stays as it was at the end of training", file)
            return
        saved = json.loads(file.read_text(encoding="utf-8"))
        kwargs["model"].config.brightness = saved.get("brightness", self._first)

    def _set(self, config: Any, state: TrainerState) -> None:
        config.brightness = self._first * config.brightness_decay ** int(_epochs(state))


class DropoutSchedule(TrainerCallback):
    """Turns all dropout of a model off for the first epochs of a training run, and on again after them.

    The epoch is read from the Trainer's state at every step, so that a run that is resumed in the middle of an epoch
    goes on as it was. The configuration, and with it what is saved, keeps the model's own probabilities.

    Source: section 7, on RACE: no dropout in the first epoch, then 0.1; the model did not converge otherwise.

    Args:
        free_epochs: Epochs without dropout, counted from the beginning of the run.

    Raises:
        ValueError: If it is negative.
    """

    def __init__(self, free_epochs: int = 1) -> None:
        if free_epochs < 0:
            raise ValueError(f"free_epochs must be 0 or more, got {free_epochs}")
        self.free_epochs, self._on = free_epochs, True
        self._places: list[tuple[nn.Module, str, float]] = []  # (module, name of the attribute, probability)

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._places, self._on = list(_dropouts(kwargs["model"])), True

    def on_step_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._turn(on=_epochs(state) >= self.free_epochs)

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Leave the model with its own dropout, also where training ended before the first epoch did."""
        self._turn(on=True)

    def _turn(self, on: bool) -> None:
        if on == self._on:
            return
        self._on = on
        for module, name, probability in self._places:
            setattr(module, name, probability if on else 0.0)


def _dropouts(model: nn.Module) -> Iterator[tuple[nn.Module, str, float]]:
    """Dropout modules, and the numbers that attentions hand to functions, under names with dropout in them."""
    for module in model.modules():
        if isinstance(module, DROPOUTS):
            yield module, "p", module.p
            continue
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, int | float) and not isinstance(value, bool):
                yield module, name, float(value)


class SoftPretraining(TrainerCallback):
    """Lets a model with hard attention train with soft attention in its first epochs.

    It sets the attribute `soft_attention` of the model, by the Trainer's epoch at each step, so that a resumed run
    goes on as it was. Evaluation, and what is saved, is of the model with hard attention all along.

    Args:
        epochs: How many, counted from the beginning of the run; parts of an epoch are allowed.

    Raises:
        ValueError: If the number is out of its range; when training begins, if the model has no hard attention.

    Source: Coarse-to-Fine LSTM, section 5.3 (+PRETRAIN).
    """

    def __init__(self, epochs: float = 1) -> None:
        if not 0 <= epochs < float("inf"):
            raise ValueError(f"epochs must be a number of 0 or more, got {epochs}")
        self.epochs = epochs

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        check_hard_attention(kwargs["model"], type(self).__name__)

    def on_step_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        kwargs["model"].soft_attention = _epochs(state) < self.epochs

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Leave the model with hard attention, also where training ended before that began."""
        kwargs["model"].soft_attention = False


class SurrogateLog(TrainerCallback):
    """Logs the surrogate term of REINFORCE beside the loss, which is the likelihood alone.

    It is the mean over the steps since the last entry that drew rows, under the name `surrogate`, and not there where
    none did. Callbacks that stand before this one, such as those of `report_to`, have seen the entry without it by
    then; the Trainer's own log has it, and so have those that are given after it:
    `callbacks=[SurrogateLog(), TensorBoardCallback()]` with `report_to="none"`.

    Raises:
        ValueError: When training begins, if the model has no hard attention.

    Source: Coarse-to-Fine LSTM, section 4.4.1.
    """

    def __init__(self) -> None:
        self._hook: Any = None
        self._batches: list[Any] = []  # of this step
        self._steps: list[Any] = []  # since the last entry
        self._is_share = False

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        check_hard_attention(kwargs["model"], type(self).__name__)
        self._remove()
        self._hook = kwargs["model"].register_forward_hook(self._see, with_kwargs=True)

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self._batches:
            # Normalised by the step's labels, those of its batches add up; else each is a mean of its own.
            self._steps.append(sum(self._batches) / (1 if self._is_share else len(self._batches)))
            self._batches = []

    def on_log(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if "loss" not in kwargs["logs"]:
            return  # of an evaluation, or the last of the run
        found = torch.tensor([float(sum(self._steps)), len(self._steps)], dtype=torch.float64)
        if args.world_size > 1:
            found = found.to(args.device, torch.float32)
            torch.distributed.all_reduce(found)
            if self._is_share and args.average_tokens_across_devices:
                found[0] *= args.world_size  # of each process a share too
        self._steps = []
        if found[1] > 0:
            kwargs["logs"]["surrogate"] = (found[0] / found[1]).item()
            if state.log_history:
                state.log_history[-1]["surrogate"] = kwargs["logs"]["surrogate"]

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._remove()

    def _see(self, model: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        surrogate = getattr(output, "surrogate", None)
        if not model.training or surrogate is None:
            return
        self._is_share = kwargs.get("num_items_in_batch") is not None
        self._batches.append(surrogate.detach().float())

    def _remove(self) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook, self._batches, self._steps = None, [], []


def check_hard_attention(model: Any, what: str) -> None:
    """Refuse a model that has no hard attention."""
    attention = getattr(model.config, "attention", None)
    if attention != "hard":
        has = f"({type(model).__name__}) has {'no such setting' if attention is None else f'attention={attention!r}'}"
        raise ValueError(f"{what} is for a Coarse-to-Fine LSTM with attention='hard', and this model {has}")
