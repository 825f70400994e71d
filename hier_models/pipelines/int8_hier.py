"""Linear layers in int8 on CPUs: `dtype="int8"`.

A layer's weights are brought to int8 once, output by output; what it reads, as it comes, row by row, so that it gives
a document in a batch what it gives it alone. Embeddings of tokens are int8 too, a row for each: those of the head,
where they are its weights. The rest stays float32, but for what encoders of long documents attend with, where bfloat16
is faster.
"""

import contextlib
import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.activations import GELUActivation
from transformers.utils import logging


logger = logging.get_logger(__name__)

LEAST = 16  # inputs and outputs; a smaller layer costs nothing
LARGEST = 127
ROWS_AT_ONCE = 256  # whose products stay in the processor's cache until they are numbers again
_TRIED = (16, 1024, 1024)  # rows, inputs and outputs of the trial

# What the package puts here: it fills in what a layer finds in rows, and says whether it did; and it says whether an
# attention is faster with queries, keys and values in bfloat16.
multiply_fast: "Callable[[Int8Linear, torch.Tensor, torch.Tensor], bool] | None" = None
is_faster_in_bfloat16: "Callable[[nn.Module], bool] | None" = None


def int8_product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply int8 (rows, inputs) by (inputs, outputs) into int32: an operator of torch that is not public."""
    return torch._int_mm(rows, weight)


class Int8Linear(nn.Module):
    """A linear layer that multiplies in int8, for inference; a checkpoint saved with it has float32 weights."""

    def __init__(self, linear: nn.Linear, room: torch.Tensor | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight, scale, sums = _quantize_weight(linear.weight, room)
        # A view, with which the operator is faster than with a tensor of this shape.
        self.weight = nn.Buffer(weight.t(), persistent=False)  # (inputs, outputs)
        self.weight_scale = nn.Buffer(scale, persistent=False)  # (outputs,)
        self.weight_sum = nn.Buffer(sums, persistent=False)  # (outputs,)
        self.bias = linear.bias
        self.attends: Any = None  # the configuration of the attention that is to have bfloat16, but for its weights
        self.activation: nn.Module | None = None  # GELU, where it is what comes next
        self.checked: Any = None  # what kernels have looked at of the above, and whether they take it

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Multiply (…, inputs): (…, outputs)."""
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self.forward(states)
        narrows = self.attends is not None and self.attends._attn_implementation == "sdpa"
        dtype = torch.bfloat16 if narrows else self.weight_scale.dtype
        found = states.new_empty((*states.shape[:-1], self.out_features), dtype=dtype)
        if multiply_fast is None or not multiply_fast(self, states, found):
            self.multiply(states.reshape(-1, self.in_features), found.view(-1, self.out_features))
            found = found if self.activation is None else self.activation(found)
        return found

    def multiply(self, rows: torch.Tensor, found: torch.Tensor) -> None:
        """Fill in (rows, outputs) for (rows, inputs), by operators of torch."""
        wide = self.weight_scale.dtype
        for part, kept in zip(rows.split(ROWS_AT_ONCE), found.split(ROWS_AT_ONCE), strict=True):
            numbers, scale = _quantize(part.to(wide))
            product = kept if kept.dtype == wide else torch.empty_like(kept, dtype=wide)
            torch.mul(int8_product(numbers, self.weight), scale, out=product)
            if self.bias is None:
                product *= self.weight_scale
            else:
                torch.addcmul(self.bias, product, self.weight_scale, out=product)
            if product is not kept:
                kept.copy_(product)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.weight.t() * self.weight_scale[:, None]


def to_int8(model: Any) -> Any:
    """Make int8 of a model's linear layers, in place; where that would not be faster, say so and leave them.

    Args:
        model: a model on the CPU. All that is no linear layer becomes float32, but for the embeddings of tokens, which
            are int8 as buffers, and give float32.

    Returns:
        The model.

    Raises:
        ValueError: If the model is on another device.
    """
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise ValueError(
            f'dtype="int8" is for CPUs, and the model is on {device}. Give device="cpu", or there dtype="bfloat16".'
        )
    if reason := why_no_int8():
        logger.warning(f'dtype="int8" changes nothing here, where {reason}: float32 is used.')
        model.float()
    else:
        _replace_layers(model)
        model.float()  # now, since what was replaced may have had half of its size
    if hasattr(model, "config"):
        model.config.dtype = torch.float32
    hand_back_memory()
    return model


def hand_back_memory() -> None:
    """Give the system what was freed and GNU's C library keeps; other systems' libraries have no such function."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _replace_layers(model: Any) -> None:
    from transformers.models.bart.modeling_bart import BartDecoderLayer, BartEncoderLayer

    embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    table = getattr(embedding, "weight", None)
    named = model.named_modules(remove_duplicate=False)
    tied = [name for name, module in named if table is not None and getattr(module, "weight", None) is table]
    linear = [name for name, module in model.named_modules() if type(module) is nn.Linear]
    room = torch.empty(0)
    for name in linear:  # one by one, so that the weights of each are let go of
        if min((module := model.get_submodule(name)).weight.shape) >= LEAST:
            model.set_submodule(name, Int8Linear(module, room))
    if table is not None and table.dtype != torch.int8 and min(table.shape) >= LEAST:
        _replace_table(model, table, tied, room)
    for module in model.modules():
        if is_faster_in_bfloat16 is not None and is_faster_in_bfloat16(module):
            for part in (module.q_proj, module.k_proj, module.v_proj):
                part.attends = module.config
        is_layer = isinstance(module, BartEncoderLayer | BartDecoderLayer)  # else it may stand elsewhere
        if is_layer and type(module.fc1) is Int8Linear and type(module.activation_fn) is GELUActivation:
            module.fc1.activation, module.activation_fn = module.activation_fn, nn.Identity()


def _replace_table(model: Any, table: torch.Tensor, names: list[str], room: torch.Tensor) -> None:
    """Look tokens up in int8, in what a head has made of a table, (vocab, width), if it has the same."""
    tied = list({id(module): module for module in map(model.get_submodule, names)}.values())
    head = next((module for module in tied if isinstance(module, Int8Linear)), None)
    embeddings = [module for module in tied if isinstance(module, nn.Embedding)]
    if len(embeddings) + (head is not None) != len(tied):
        return  # who knows what others do with it
    numbers, scale, _ = _quantize_weight(table, room) if head is None else (head.weight.t(), head.weight_scale, None)
    for module in embeddings:
        del module.weight
        module.weight = nn.Buffer(numbers)  # no parameter, whose type would be taken for the model's
        module.weight_scale = nn.Buffer(scale, persistent=False)
        module.register_forward_hook(_scale)
    model.register_state_dict_post_hook(functools.partial(_save_table, names=names))


def _scale(module: nn.Module, inputs: Any, looked_up: torch.Tensor) -> torch.Tensor:
    scale: torch.Tensor = module.get_buffer("weight_scale")
    return looked_up * scale[inputs[0]][..., None]


def _save_table(model: Any, state: dict[str, Any], prefix: str, metadata: Any, names: list[str]) -> None:
    table = model.get_input_embeddings()
    state |= dict.fromkeys((f"{prefix}{name}.weight" for name in names), table.weight * table.weight_scale[:, None])


@functools.cache
def why_no_int8() -> str | None:
    """Why layers in int8 are no gain on this machine, or nothing; tried once."""
    count, inputs, outputs = _TRIED
    linear = nn.Linear(inputs, outputs)
    rows = torch.linspace(-1, 1, count * inputs).sin().view(count, inputs)
    try:
        with torch.no_grad():
            layer = Int8Linear(linear)
            numbers, _ = _quantize(rows)
            if not torch.equal(int8_product(numbers, layer.weight), numbers.int() @ layer.weight.int()):
                return "torch multiplies int8 wrongly"
            many = rows.repeat(8, 1)  # which kernels that leave something to torch's operators leave to them
            if multiply_fast is not None and multiply_fast(layer, many, many.new_empty(len(many), outputs)):
                return None
            found = rows.new_empty(count, outputs)
            wide, narrow = _seconds(lambda: linear(rows), lambda: layer.multiply(rows, found))
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return "torch does not multiply int8"
    return "the processor is no faster with int8 than with float32" if wide < narrow else None


def _seconds(*runs: Callable[[], Any], times: int = 50) -> list[float]:
    """The fastest of some times that each was run, in turns, so that other programs do not count, or for all."""
    fastest = [float("inf")] * len(runs)
    for _ in range(times):
        for number, run in enumerate(runs):
            begun = time.perf_counter()
            run()
            fastest[number] = min(fastest[number], time.perf_counter() - begun)
    return fastest


def _quantize_weight(
    weight: torch.Tensor,  # (outputs, inputs)
    room: torch.Tensor | None = None,  # where its parts are made numbers in, for one weight after the other
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A weight as int8, and the scale and the sum of each output."""
    floats, (outputs, inputs) = weight.detach(), weight.shape
    whole = floats.new_empty(floats.shape, dtype=torch.int8)
    scale = floats.new_empty(outputs, 1, dtype=torch.float32)
    sums = floats.new_empty(outputs, dtype=torch.int32)
    room = floats.new_empty(0, dtype=torch.float32) if room is None else room
    # Nothing large comes and goes between what stays, where it would leave holes.
    room.resize_(max(room.numel(), min(outputs, ROWS_AT_ONCE) * inputs))
    for rows in zip(*(of.split(ROWS_AT_ONCE) for of in (floats, whole, scale, sums)), strict=True):
        part, own, own_scale, own_sums = rows
        numbers = room[: part.numel()].view(part.shape).copy_(part)
        low, high = numbers.aminmax(dim=1, keepdim=True)
        own_scale.copy_(_scale_of(torch.maximum(high, -low)))
        own.copy_(numbers.div_(own_scale).round_())
        own_sums.copy_(numbers.sum(dim=1))  # whole numbers, of which float32 holds all that they can add up to
    return whole, scale[:, 0], sums


def _quantize(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as int8, and what each is to be multiplied with, (rows, 1)."""
    scale = _scale_of(numbers.abs().amax(dim=1, keepdim=True))
    return (numbers / scale).round_().to(torch.int8), scale


def _scale_of(largest: torch.Tensor) -> torch.Tensor:
    return largest.div_(LARGEST).clamp_(min=torch.finfo(torch.float32).tiny)
