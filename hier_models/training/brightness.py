"""The brightness of highlighting, lower after each epoch."""

import json
import logging
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


logger = logging.getLogger(__name__)

# Fractions of an epoch are sums of roundings; a step is never as short as this.
ROUNDING = 1e-9


class BrightnessDecay(TrainerCallback):
    """Multiplies the brightness factor of a Highlight-Transformer by `decay` at the end of each epoch.

    The brightness stands in the model's config, so that what is saved has that of the epochs it was trained for. It is
    computed from the number of finished epochs, so that a resumed run goes on as it was, if its model was made as for
    a new run. With `load_best_model_at_end` the model ends with the brightness of the checkpoint that is loaded.

    A streamed dataset has no epochs that the Trainer could count: give `steps_per_epoch`.

    Args:
        initial: Brightness of the first epoch; by default that of the model when training begins.
        decay: Factor from one epoch to the next, above 0 and at most 1; by default the config's `brightness_decay`.
        steps_per_epoch: Optimizer steps that count as an epoch, in the place of the Trainer's epochs.

    Raises:
        ValueError: If a number is out of its range, or when training begins, if the model highlights nothing.

    Source: section 4.2 (the brightness factor progressively decreases at the end of each epoch).
    """

    def __init__(
        self, initial: float | None = None, decay: float | None = None, steps_per_epoch: int | None = None
    ) -> None:
        if initial is not None and not 0 <= initial < float("inf"):
            raise ValueError(f"initial must be a number of 0 or more, got {initial}")
        if decay is not None and not 0 < decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {decay}")
        if steps_per_epoch is not None and steps_per_epoch < 1:
            raise ValueError(f"steps_per_epoch must be at least 1, got {steps_per_epoch}")
        self.initial = initial
        self.decay = decay
        self.steps_per_epoch = steps_per_epoch
        self._first = 0.0
        self._factor = 1.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note where the brightness begins."""
        config = kwargs["model"].config
        if not hasattr(config, "brightness"):
            raise ValueError(
                f"BrightnessDecay is for models with a brightness in their config (Highlight-Transformer), and "
                f"{type(kwargs['model']).__name__} has none"
            )
        self._first = config.brightness if self.initial is None else self.initial
        self._factor = config.brightness_decay if self.decay is None else self.decay
        self._set(config, state)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Lower the brightness, before the epoch's model is evaluated and saved."""
        self._set(kwargs["model"].config, state)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Lower the brightness where epochs are counted in steps."""
        if self.steps_per_epoch is not None:
            self._set(kwargs["model"].config, state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
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
        if self.steps_per_epoch is not None:
            epochs = state.global_step // self.steps_per_epoch
        else:
            epochs = int((state.epoch or 0) + ROUNDING)
        config.brightness = self._first * self._factor**epochs
