"""The kernels of linear.h and decoder_layer.h: what a step of decoding takes, on CPUs with AVX-512 or AVX2.

Linear layers of few rows, norms, and all of a decoder's layer in one call. Numbers are float32, and no gradient is
wanted; other layers, such as those of pipelines/int8_kernel.py, say in `LINEARS` how a kernel reads them.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.activations import GELUActivation
from transformers.cache_utils import EncoderDecoderCache

from .attention_kernel import HEAD_DIMS, bytes_between, variant_of
from .growing_cache import GrowingLayer
from .kernels import kernels, run_parts
from .torch_kernels import is_watched


MOST_ROWS = 16  # with more, torch's products in float32 are as fast
BEAMS = 4  # that are few for any number of threads
WHOLE = 16  # numbers; rows have a multiple of them
LEAST_OF_THREAD = 2**19  # weights, for which it is worth waking one up
LEAST_OF_NORMS = 2**16  # numbers, likewise
MOST_OF_LAYER = 2**21  # weights of its largest part, for which one thread is enough


class Weights(NamedTuple):
    """What a kernel reads of a linear layer, as addresses, and what it multiplies; of float32 the bias alone."""

    weight: int | None
    sums: int | None
    scales: int | None
    bias: int | None
    inputs: int
    outputs: int


class Other(NamedTuple):
    """How kernels read a linear layer that is none of torch's."""

    weights_of: Callable[[Any], Weights | None]
    kernels: Callable[[], tuple[Any, int]]  # its own functions, and how many rows they take
    activation_of: Callable[[Any], Any]


LINEARS: dict[type, Other] = {}


class _Linear(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weight", "sums", "scales", "bias")),
        *((name, ctypes.c_long) for name in ("inputs", "outputs")),
    ]


class _Norm(ctypes.Structure):
    _fields_ = [("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("epsilon", ctypes.c_double)]


class _Attention(ctypes.Structure):
    _fields_ = [
        *((name, _Linear) for name in ("query", "key", "value", "out")),
        ("norm", _Norm),
        *((name, ctypes.c_void_p) for name in ("keys", "values", "mask")),
        ("strides", ctypes.c_long * 9),
        *((name, ctypes.c_long) for name in ("documents", "tokens", "is_own")),
        *((name, ctypes.c_void_p) for name in ("copied", "may_be_copied")),
        ("copy_head", ctypes.c_long),
        ("scale", ctypes.c_double),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        ("attentions", _Attention * 3),
        *((name, _Linear) for name in ("expand", "contract")),
        ("norm", _Norm),
        *((name, ctypes.c_void_p) for name in ("linear_int8", "gelu")),
        *((name, ctypes.c_long) for name in ("count", "rows", "width", "heads", "is_before")),
    ]


@functools.lru_cache(2)
def _functions(library: Any, variant: str) -> Any:
    """The kernels of a variant, unless the library is an older one, without them."""
    arguments = {
        "linear_float32": [ctypes.c_void_p] * 4 + [ctypes.c_long] * 5,
        "norm_float32": [ctypes.c_void_p] * 5 + [ctypes.c_long] * 2 + [ctypes.c_float],
        "decoder_layer": [ctypes.c_void_p] * 2,
        "gelu_float32": [ctypes.c_void_p, ctypes.c_long],
    }
    found = SimpleNamespace()
    for name, types in arguments.items():
        function = getattr(library, name + variant, None)
        if function is None:
            return None
        function.argtypes = types
        setattr(found, name, function)
    return found


def _kernels(states: torch.Tensor) -> Any:
    """The kernels that take states, if any does: float32 on a CPU, and nothing that wants to know what torch does."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or not _is_plain(states):
        return None
    variant = variant_of(torch.float32)
    if variant is None or is_watched() or torch.is_autocast_enabled("cpu"):
        return None
    return _functions(kernels(), variant)


def _is_plain(tensor: Any) -> bool:
    return type(tensor) in (torch.Tensor, nn.Parameter) and tensor.is_cpu and tensor.dtype == torch.float32


def _is_as_made(module: nn.Module) -> bool:
    """Whether nothing was put before, behind or in the place of what a module does."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


def _weights_of(layer: nn.Module) -> Weights | None:
    """What a kernel reads of a linear layer; None if it does not take it."""
    if type(layer) is not nn.Linear:
        return LINEARS[type(layer)].weights_of(layer) if type(layer) in LINEARS and _is_as_made(layer) else None
    weight, bias = layer._parameters["weight"], layer._parameters["bias"]
    if (
        weight is None
        or layer.in_features % WHOLE
        or not all(_is_plain(tensor) and tensor.is_contiguous() for tensor in (weight, bias) if tensor is not None)
        or not _is_as_made(layer)
    ):
        return None
    return Weights(weight.data_ptr(), None, None, _address(bias), layer.in_features, layer.out_features)


def multiply(layer: nn.Module, states: torch.Tensor) -> torch.Tensor:
    """Ask a linear layer, (…, inputs) → (…, outputs): of few rows a kernel, which reads the weights faster."""
    library = weights = None
    if not torch.compiler.is_compiling() and type(layer) is nn.Linear:  # a traced program must not depend on sizes
        is_few = 0 < states.numel() <= MOST_ROWS * layer.in_features and states.shape[-1] == layer.in_features
        library = _kernels(states) if is_few else None
        weights = None if library is None else _weights_of(layer)
    if library is None or weights is None:
        found: torch.Tensor = layer(states)
        return found
    rows = states.contiguous()
    found = states.new_empty((*states.shape[:-1], weights.outputs))
    count = states.numel() // weights.inputs

    def run(part: tuple[int, int], held: Any = (layer.weight, layer.bias, rows, found)) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        given = (rows.data_ptr(), weights.weight, weights.bias, found.data_ptr())
        library.linear_float32(*given, count, weights.inputs, weights.outputs, *part)

    run_parts(
        run, weights.outputs, max(1, min(torch.get_num_threads(), weights.inputs * weights.outputs // LEAST_OF_THREAD))
    )
    return found


def add_and_norm(norm: nn.LayerNorm, states: torch.Tensor, update: torch.Tensor | None = None) -> torch.Tensor:
    """Norm states, (…, width), or the sum of them and of their update."""
    library = _kernels(states)
    own = None if library is None or not states.numel() else _norm_of(norm, states.shape[-1])
    if own is None or not (update is None or (update.shape == states.shape and _is_plain(update))):
        total: torch.Tensor = norm(states if update is None else states + update)
        return total
    rows, others = states.contiguous(), None if update is None else update.contiguous()
    found, width = torch.empty_like(rows), rows.shape[-1]

    def run(part: tuple[int, int], held: Any = (found, rows, others, norm.weight, norm.bias)) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        first, last = part
        pointers = (None if of is None else of.data_ptr() + 4 * first * width for of in held[:3])
        library.norm_float32(*pointers, own.weight, own.bias, last - first, width, own.epsilon)

    count = rows.numel() // width
    run_parts(run, count, max(1, min(torch.get_num_threads(), count, rows.numel() // LEAST_OF_NORMS)))
    return found


def _norm_of(norm: nn.Module, width: int) -> Any:
    parameters = norm._parameters.get("weight"), norm._parameters.get("bias")
    if (
        type(norm) is not nn.LayerNorm
        or norm.normalized_shape != (width,)
        or width % WHOLE
        or not all(_is_plain(tensor) and tensor.is_contiguous() for tensor in parameters)  # type: ignore[union-attr]
        or not _is_as_made(norm)
    ):
        return None
    return _Norm(*map(_address, parameters), norm.eps)


class Attended(NamedTuple):
    """An attention of a decoder's layer, with its norm and its mask, and what may be copied, where it copies."""

    attention: Any
    norm: nn.Module
    mask: torch.Tensor | None  # (documents, heads or 1, queries or 1, tokens)
    may_be_copied: torch.Tensor | None = None  # (documents, tokens)


def decoder_step(
    layer: Any,
    attentions: Sequence[Attended],  # to its own tokens, to the source, and what else is there
    hidden_states: torch.Tensor,  # (rows, 1, width)
    cache: EncoderDecoderCache,
) -> tuple[torch.Tensor, ...] | None:  # (rows, 1, width), and what is copied, (rows, 1, tokens)
    """Update the targets of a step by a layer in one call, and write its cache; nothing where no kernel does so."""
    (rows, _, width), heads = hidden_states.shape, layer.self_attn.num_heads
    library = _kernels(hidden_states)
    if library is None or layer.training or width // heads not in HEAD_DIMS or width % WHOLE or not rows:
        return None
    if not cache.is_updated.get(layer.encoder_attn.layer_idx) or not cache.get_seq_length():  # the first step
        return None
    expand, contract, activation = _weights_of(layer.fc1), _weights_of(layer.fc2), layer.activation_fn
    other = LINEARS.get(type(layer.fc1))
    int8, most = (None, MOST_ROWS) if other is None else other.kernels()
    if other is not None and type(activation) is nn.Identity:
        activation = other.activation_of(layer.fc1)
    norm, threads = _norm_of(layer.final_layer_norm, width), torch.get_num_threads()
    if (
        expand is None
        or contract is None
        or norm is None
        or not width == expand.inputs == contract.outputs
        or expand.outputs != contract.inputs
        or type(activation) is not GELUActivation
        or rows > max(BEAMS, most // threads)
        or (threads > 1 and width * expand.outputs > MOST_OF_LAYER)
        or (int8 is None and contract.sums is not None)
    ):
        return None
    found = hidden_states.clone(memory_format=torch.contiguous_format)
    step = _Step(expand=_Linear(*expand), contract=_Linear(*contract), norm=norm)
    step.count, step.rows, step.width, step.heads = len(attentions), rows, width, heads
    step.is_before, step.gelu = layer.normalize_before, _place(library if int8 is None else int8, "gelu_float32")
    step.linear_int8 = None if int8 is None else _place(int8, "linear_int8")
    held: list[Any] = [found]
    copied = None
    for number, of in enumerate(attentions):
        copies = getattr(of.attention, "copy_head", None)
        made = _attention(of, (rows, width, heads), cache, held, is_own=number == 0, has_int8=int8 is not None)
        if made is None:
            return None
        if copies is not None:
            copied = found.new_empty(rows, 1, made.tokens)
            made.copied, made.copy_head = copied.data_ptr(), copies
        step.attentions[number] = made
    if library.decoder_layer(ctypes.byref(step), found.data_ptr()):
        raise MemoryError(f"no memory for a decoder's layer of {rows} rows")
    own = cache.self_attention_cache.layers[layer.self_attn.layer_idx]
    own.hold(step.attentions[0].tokens)
    return (found,) if copied is None else (found, copied)


def _attention(
    of: Attended,
    sizes: tuple[int, int, int],
    cache: EncoderDecoderCache,
    held: list[Any],
    is_own: bool,
    has_int8: bool,
) -> Any:
    """What the kernel reads of an attention; None if it does not take it."""
    (rows, width, heads), attention, norm = sizes, of.attention, _norm_of(of.norm, sizes[1])
    if norm is None or attention.training or not _is_as_made(attention):
        return None
    if attention.num_heads != heads or attention.config._attn_implementation != "sdpa":
        return None
    made = _Attention(norm=norm)
    names = {"query": "q_proj", "out": "out_proj"} | ({"key": "k_proj", "value": "v_proj"} if is_own else {})
    for name, own_name in names.items():
        part = _weights_of(attention._modules[own_name])
        if part is None or (part.inputs, part.outputs) != (width, width) or (part.sums is not None and not has_int8):
            return None
        setattr(made, name, _Linear(*part))
    if is_own:
        stored: Any = cache.self_attention_cache.layers[attention.layer_idx]
        states: Any = stored.make_room(1) if type(stored) is GrowingLayer else None
        tokens = stored.get_seq_length() + 1
    else:
        stored = cache.cross_attention_cache.layers[attention.layer_idx]
        states = (stored.keys, stored.values) if cache.is_updated.get(attention.layer_idx) else None
        tokens = stored.get_seq_length()
    if states is None or not all(map(_is_plain, states)) or not tokens:
        return None
    shape, documents = states[0].shape, states[0].shape[0]
    if (
        states[1].shape != shape
        or (shape[1], shape[3]) != (heads, attention.head_dim)
        or (documents != rows if is_own else rows % documents)
        or any(tensor.stride(-1) != 1 for tensor in states)
    ):
        return None
    strides = [*bytes_between(states[0]), *bytes_between(states[1])]
    made.keys, made.values = (tensor.data_ptr() for tensor in states)
    held += states
    if of.mask is not None:
        mask = of.mask
        if type(mask) is not torch.Tensor or mask.dtype != torch.bool or not mask.is_cpu or mask.shape[-1] != tokens:
            return None
        mask = mask.expand(documents, heads, rows // documents, tokens)
        if mask.stride(-1) != 1:
            return None
        strides += bytes_between(mask)
        made.mask = mask.data_ptr()
        held.append(mask)
    if of.may_be_copied is not None:
        may_be = (of.may_be_copied != 0).contiguous()
        if may_be.shape != (documents, tokens) or not may_be.is_cpu:
            return None
        made.may_be_copied = may_be.data_ptr()
        held.append(may_be)
    made.strides[: len(strides)] = strides
    made.documents, made.tokens, made.is_own, made.scale = documents, tokens, is_own, attention.scaling
    return made


def _place(functions: Any, name: str) -> int | None:
    return ctypes.cast(getattr(functions, name), ctypes.c_void_p).value


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
