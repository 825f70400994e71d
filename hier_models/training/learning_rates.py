"""Learning rates: other ones for parts of a model, and lower ones once the validation perplexity stopped falling."""

import itertools
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainerState, TrainingArguments

from .arguments import NEW_MODULES_RATE


logger = logging.getLogger(__name__)

# What PEFT puts into the names of a model's parameters.
OF_PEFT = re.compile(r"^base_model\.model\.|modules_to_save\.\w+\.")
# Weights of the layers that `new_modules="identity"` sets to zero.
CLOSED_OUTPUT = re.compile(
    r"(hierarchical_attn\.out_proj|hierarchical_attention\.output\.dense|segment_attn\.out_proj|segment_concat)\.weight$"
)


def optimizer_with_rates(
    model: PreTrainedModel,
    arguments: TrainingArguments,
    rates: Mapping[str, float] | None = None,
    new_modules_rate: float = NEW_MODULES_RATE,
) -> torch.optim.Optimizer:
    """Give parts of a model learning rates of their own, and new modules that began as identity a higher one.

    The optimizer is the one that the arguments name, with their weight decay of matrices; biases and what normalizes
    have none. A schedule multiplies all rates alike. Frozen parameters are left out; of a model in PEFT, copies that
    are trained (`modules_to_save`) count as what they are copies of.

    Args:
        model: The model that is trained.
        arguments: Of the Trainer; what no rate is given for learns with `learning_rate`.
        rates: Name of a part -> its learning rate. A part is named as in the names of its parameters, at whatever
            depth: "encoder.coarse" is the sentence encoder of a Coarse-to-Fine LSTM. Of names that hold each other,
            the longest counts.
        new_modules_rate: How many times `learning_rate` is that of the model's `new_parameters`, which a checkpoint
            lacked and `new_modules="identity"` began; where `rates` name them, those count. 1 for no difference.

    Returns:
        The optimizer, for the Trainer's argument `optimizers=(optimizer, None)`.

    Raises:
        ValueError: If a rate is not a finite number of 0 or more, a name is of no parameter that is trained, or the
            optimizer that the arguments name does not take groups of parameters.

    Source: Coarse-to-Fine LSTM, section 5.4.
    """
    rates = rates or {}
    for name, rate in (*rates.items(), ("new_modules_rate", new_modules_rate)):
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < math.inf:
            raise ValueError(f"the learning rate of {name!r} must be a number of 0 or more, got {rate!r}")
    new = set(getattr(model, "new_parameters", ()))
    groups: dict[tuple[str | None, bool, bool], list[torch.nn.Parameter]] = {}
    for parameter_name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        part = max((name for name in rates if f".{name}." in f".{parameter_name}."), key=len, default=None)
        is_new = part is None and OF_PEFT.sub("", parameter_name) in new
        groups.setdefault((part, is_new, parameter.dim() <= 1), []).append(parameter)
    _warn_of_closed_modules(model, new)
    if unused := [name for name in rates if name not in {part for part, _, _ in groups}]:
        raise ValueError(f"{unused[0]!r} is of no parameter of {type(model).__name__} that is trained")
    optimizer_class, options = Trainer.get_optimizer_cls_and_kwargs(arguments, model)
    is_plain = isinstance(optimizer_class, type) and issubclass(optimizer_class, torch.optim.Optimizer)
    if not is_plain or {"params", "model", "optimizer_dict"} & set(options):
        raise ValueError(f"optim={arguments.optim} takes no learning rates of parts; use sgd or adamw_torch, say")
    new_rate = new_modules_rate * arguments.learning_rate
    listed = [
        {
            "params": parameters,
            "weight_decay": 0.0 if is_vector else arguments.weight_decay,
            **({"lr": float(rates[part])} if part is not None else {"lr": new_rate} if is_new else {}),
        }
        for (part, is_new, is_vector), parameters in sorted(
            groups.items(), key=lambda item: (item[0][0] or "", *item[0][1:])
        )
    ]
    optimizer: torch.optim.Optimizer = optimizer_class(listed, **options)
    return optimizer


def _warn_of_closed_modules(model: PreTrainedModel, new: set[str]) -> None:
    """Warn where the outputs of new modules, which are zero, are neither trained nor adapted."""
    outputs = {name.rpartition(".")[0] for name in new if CLOSED_OUTPUT.search(name)}
    opens = (
        parameter.requires_grad and any(f"{output}." in OF_PEFT.sub("", name) for output in outputs)
        for name, parameter in model.named_parameters()
    )
    if outputs and not any(opens):
        logger.warning(
            "new modules began with outputs of zero, which are frozen, such as %s: they will add nothing. Train them "
            '(in PEFT, name them in target_modules or modules_to_save), or begin with new_modules="random"',
            sorted(outputs)[0],
        )


class PerplexityDecay(TrainerCallback):
    """Multiplies all learning rates by `factor` at every evaluation, once the loss has stopped falling.

    That is, from the first evaluation whose loss is not below that of the one before it; later ones may fall again. It
    goes with evaluation at the end of each epoch, and with a constant learning rate (or any schedule, which it
    multiplies). What was decayed is a part of the optimizer's and the schedule's state, and when it began is read from
    the log, so that a resumed run goes on as it was. Save when you evaluate (`save_strategy` as `eval_strategy`): the
    Trainer never makes up for an evaluation that was due right after a checkpoint.

    Args:
        factor: Above 0 and at most 1.

    Raises:
        ValueError: If the factor is out of its range; when training begins, if nothing is evaluated; at an evaluation
            without a loss.

    Source: Coarse-to-Fine LSTM, section 5.4.
    """

    def __init__(self, factor: float = 0.5) -> None:
        if not 0 < factor <= 1:
            raise ValueError(f"factor must be above 0 and at most 1, got {factor}")
        self.factor = factor

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if args.eval_strategy == "no":
            raise ValueError("eval_strategy must be 'epoch' or 'steps': learning rates decay by evaluation, got 'no'")

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if kwargs.get("optimizer") is None or kwargs.get("lr_scheduler") is None:
            return  # not in training
        losses = {entry["step"]: entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry}
        if state.global_step not in losses:
            raise ValueError("the evaluation has no eval_loss, by which learning rates decay")
        # A loss that is not a number has not fallen either.
        if all(later < earlier for earlier, later in itertools.pairwise(losses.values())):
            return
        schedule = getattr(kwargs["lr_scheduler"], "scheduler", kwargs["lr_scheduler"])  # out of accelerate's
        schedule.base_lrs = [rate * self.factor for rate in schedule.base_lrs]
        for group in kwargs["optimizer"].param_groups:
            group["lr"] = group["lr"] * self.factor
        logger.info("learning rates, lowered: %s", ", ".join(f"{rate:g}" for rate in schedule.base_lrs))
