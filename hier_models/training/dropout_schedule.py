"""Dropout that is off in the first epochs."""

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


MODULES = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


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
        self.free_epochs = free_epochs
        # (module, name of the attribute, probability)
        self._places: list[tuple[nn.Module, str, float]] = []
        self._on = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note every dropout of the model."""
        self._places = list(_dropouts(kwargs["model"]))
        self._on = True

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Turn dropout off or on, as the epoch asks for."""
        # Fractions of an epoch are sums of roundings; a step is never as short as this.
        self._turn(on=(state.epoch or 0) + 1e-9 >= self.free_epochs)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the model with its own dropout, also where training ended before the first epoch did."""
        self._turn(on=True)

    def _turn(self, on: bool) -> None:
        if on == self._on:
            return
        self._on = on
        for module, name, probability in self._places:
            setattr(module, name, probability if on else 0.0)


def _dropouts(model: nn.Module) -> list[tuple[nn.Module, str, float]]:
    """Dropout modules, and the numbers that attentions hand to functions, under names with dropout in them."""
    places: list[tuple[nn.Module, str, float]] = []
    for module in model.modules():
        if isinstance(module, MODULES):
            places.append((module, "p", module.p))
            continue
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, int | float) and not isinstance(value, bool):
                places.append((module, name, float(value)))
    return places
