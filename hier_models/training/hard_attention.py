"""Training with hard attention: soft attention in the first epochs, and the surrogate in the log."""

from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


# Fractions of an epoch are sums of roundings; a step is never as short as this.
ROUNDING = 1e-9


class SoftPretraining(TrainerCallback):
    """Lets a model with hard attention train with soft attention in its first epochs.

    It sets the attribute `soft_attention` of the model, by the Trainer's epoch at each step, so that a resumed run
    goes on as it was. Evaluation, and what is saved, is of the model with hard attention all along.

    Args:
        epochs: How many, counted from the beginning of the run; parts of an epoch are allowed.
        steps_per_epoch: Optimizer steps that count as an epoch, in the place of the Trainer's epochs: a streamed
            dataset has none.

    Raises:
        ValueError: If a number is out of its range; when training begins, if the model has no hard attention.

    Source: Coarse-to-Fine LSTM, section 5.3 (+PRETRAIN).
    """

    def __init__(self, epochs: float = 1, steps_per_epoch: int | None = None) -> None:
        if not 0 <= epochs < float("inf"):
            raise ValueError(f"epochs must be a number of 0 or more, got {epochs}")
        if steps_per_epoch is not None and steps_per_epoch < 1:
            raise ValueError(f"steps_per_epoch must be at least 1, got {steps_per_epoch}")
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse a model that has nothing to be soft instead of."""
        check_hard_attention(kwargs["model"], type(self).__name__)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attend softly or hard, as the epoch asks for."""
        done = state.epoch or 0 if self.steps_per_epoch is None else state.global_step / self.steps_per_epoch
        kwargs["model"].soft_attention = done + ROUNDING < self.epochs

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
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
        self._total: torch.Tensor | None = None
        self._in_step: torch.Tensor | None = None
        self._batches = 0
        self._is_share = False
        self._steps = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin to watch the model."""
        check_hard_attention(kwargs["model"], type(self).__name__)
        self._remove()
        self._hook = kwargs["model"].register_forward_hook(self._see, with_kwargs=True)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add up a step."""
        if self._in_step is None:
            return
        # Normalised by the step's labels, those of its batches add up; else each is a mean of its own.
        step = self._in_step if self._is_share else self._in_step / self._batches
        self._total = step if self._total is None else self._total + step
        self._steps += 1
        self._in_step, self._batches = None, 0

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Put it into the entry."""
        if "loss" not in kwargs["logs"]:
            return  # of an evaluation, or the last of the run
        found = torch.zeros(2, dtype=torch.float64)
        if self._total is not None:
            found = torch.tensor([self._total.item(), self._steps], dtype=torch.float64)
        if args.world_size > 1:
            found = found.to(args.device, torch.float32)
            torch.distributed.all_reduce(found)
            if self._is_share and args.average_tokens_across_devices:
                found[0] *= args.world_size  # of each process a share too
        self._total, self._steps = None, 0
        if found[1] > 0:
            kwargs["logs"]["surrogate"] = (found[0] / found[1]).item()
            if state.log_history:
                state.log_history[-1]["surrogate"] = kwargs["logs"]["surrogate"]

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the model alone."""
        self._remove()

    def _see(self, model: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        surrogate = getattr(output, "surrogate", None)
        if not model.training or surrogate is None:
            return
        self._is_share = kwargs.get("num_items_in_batch") is not None
        value = surrogate.detach().float()
        self._in_step = value if self._in_step is None else self._in_step + value
        self._batches += 1

    def _remove(self) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook, self._total, self._in_step, self._batches, self._steps = None, None, None, 0, 0


def check_hard_attention(model: Any, what: str) -> None:
    """Refuse a model that has no hard attention."""
    attention = getattr(model.config, "attention", None)
    if attention != "hard":
        raise ValueError(
            f"{what} is for a Coarse-to-Fine LSTM with attention='hard', and this model ({type(model).__name__}) has "
            f"{'no such setting' if attention is None else f'attention={attention!r}'}"
        )
