"""The kernels of linear.h and decoder_layer.h: what a step of decoding takes, on CPUs with AVX-512 or AVX2.

Linear layers of few rows, norms, and all of a decoder's layer in one call. Numbers are float32, and no gradient is
wanted; other layers, such as those of pipelines/int8_kernel.py, say in `LINEARS` how a kernel reads them.
"""

import ctypes
import functools
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.activations import GELUActivation
from transformers.cache_utils import EncoderDecoderCache

from .attention_kernel import HEAD_DIMS, bytes_between, is_plain_mask, variant_of
from .attention_products import is_as_made
from .growing_cache import GrowingLayer
from .kernels import functions_of, kernels, run_parts
from .torch_kernels import is_watched


MOST_ROWS = 32  # with more, torch's products in float32 are as fast, but
MOST_OF_HEAD = 64  # where outputs are many times as many as inputs, as of a vocabulary
MOST_SHARED = 64  # of a layer, divided by the threads, of which it takes one
BEAMS = 4  # that are few for any number of threads
WHOLE = 16  # numbers; rows have a multiple of them
LEAST_OF_THREAD = 2**19  # weights, for which it is worth waking one up
LEAST_OF_NORMS = 2**16  # numbers, likewise
MOST_OF_LAYER = 2**21  # weights of its largest part, for which one thread is enough
SIGNATURES = {
    "linear_float32": (4, 5),
    "norm_float32": (5, 2, 1),
    "mix_float32": (5, 3),
    "decoder_layer": (2,),
    "gelu_float32": (1, 1),
}


Held = tuple[dict[str, Any], str, Any]  # a dictionary of a module's, a name in it, and what it has there


class Other(NamedTuple):
    """How kernels read a linear layer that is none of torch's."""

    tensors_of: Callable[[Any], Sequence[Held] | None]  # weight, sums, scales and bias, if they are what they read
    kernels: Callable[[], tuple[Any, int]]  # its own functions, and how many rows they take


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
    return functions_of(library, variant, SIGNATURES)


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


def _tensors_of(layer: nn.Module) -> Sequence[Held] | None:
    """What a kernel reads of a linear layer: weight, sums, scales and bias; None if it does not take it."""
    if not is_as_made(layer):
        return None
    if type(layer) is not nn.Linear:
        return LINEARS[type(layer)].tensors_of(layer) if type(layer) in LINEARS else None
    own = layer._parameters
    read = [tensor for tensor in (own["weight"], own["bias"]) if tensor is not None]
    if not read or layer.in_features % WHOLE or not all(_is_plain(of) and of.is_contiguous() for of in read):
        return None
    return (own, "weight", own["weight"]), (own, "sums", None), (own, "scales", None), (own, "bias", own["bias"])


def multiply(layer: nn.Module, states: torch.Tensor) -> torch.Tensor:
    """Ask a linear layer, (…, inputs) → (…, outputs): of few rows a kernel, which reads the weights faster."""
    library = None
    if not torch.compiler.is_compiling() and type(layer) is nn.Linear:  # a traced program must not depend on sizes
        inputs, outputs = layer.in_features, layer.out_features
        most = MOST_OF_HEAD if outputs >= 8 * inputs else MOST_ROWS
        is_few = 0 < states.numel() <= most * inputs and states.shape[-1] == inputs
        library = _kernels(states) if is_few else None
    if library is None or _tensors_of(layer) is None:
        found: torch.Tensor = layer(states)
        return found
    rows = states.contiguous()
    found = states.new_empty((*states.shape[:-1], outputs))

    def run(part: tuple[int, int], held: Any = (rows, layer.weight, layer.bias, found)) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        library.linear_float32(*map(_address, held), states.numel() // inputs, inputs, outputs, *part)

    run_parts(run, outputs, max(1, min(torch.get_num_threads(), inputs * outputs // LEAST_OF_THREAD)))
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
    """What a kernel reads of a norm; None if it does not take it."""
    if type(norm) is not nn.LayerNorm or norm.normalized_shape != (width,) or width % WHOLE or not is_as_made(norm):
        return None
    if not all(_is_plain(tensor) and tensor.is_contiguous() for tensor in (norm.weight, norm.bias)):
        return None
    return _Norm(_address(norm.weight), _address(norm.bias), norm.eps)


def mix(
    scores: torch.Tensor,  # (rows, 1, vocab_size)
    gate: torch.Tensor,  # (rows, 1, 1)
    weights: torch.Tensor,  # (rows, 1, source)
    source_ids: torch.Tensor,  # (rows, source)
) -> torch.Tensor | None:  # (rows, 1, vocab_size)
    """Logarithms of what is generated and what is copied, by `copying.h`, where a kernel takes them."""
    library, (rows, _, size), tokens = _kernels(scores), scores.shape, source_ids.shape[1]
    if library is None or not scores.numel() or not all(map(_is_plain, (gate, weights))):
        return None
    if gate.shape != (rows, 1, 1) or weights.shape != (rows, 1, tokens) or source_ids.shape != (rows, tokens):
        return None
    read, refused = [of.contiguous() for of in (scores, gate, weights, source_ids.long())], []
    held = *read, torch.empty_like(read[0])

    def run(part: tuple[int, int], held: Any = held) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        first, last = part
        pointers = (of.data_ptr() + first * of.stride(0) * of.element_size() for of in held)
        if library.mix_float32(*pointers, last - first, size, tokens):
            refused.append(part)

    run_parts(run, rows, max(1, min(torch.get_num_threads(), rows, scores.numel() // LEAST_OF_THREAD)))
    return None if refused else held[-1]  # torch says what is wrong


class Attended(NamedTuple):
    """An attention of a decoder's layer, with its norm and its mask, and what may be copied, where it copies."""

    attention: Any
    norm: nn.Module
    mask: torch.Tensor | None  # (documents, heads or 1, queries or 1, tokens)
    may_be_copied: torch.Tensor | None = None  # (documents, tokens)


class _NotTakenError(Exception):
    """Something that the kernel does not take."""


class _Plan:
    """What the kernel reads of a layer in each step, if it takes it, and what must still be so for that."""

    def __init__(self, layer: Any, attentions: Sequence[Attended], library: Any) -> None:
        self.held, self.modules, self.parts = list[Held](), list[nn.Module](), _parts(layer, attentions)
        self.most_rows, self.int8 = MOST_ROWS, None
        try:
            self.step: Any = self._made(layer, attentions, library)
        except _NotTakenError:
            self.step = None
        self.tensors = [of for *_, of in self.held if isinstance(of, torch.Tensor)]
        self.places = [(of.data_ptr(), of.dtype) for of in self.tensors]

    def holds(self, layer: Any, attentions: Sequence[Attended]) -> bool:
        """Whether nothing was changed since."""
        parts = _parts(layer, attentions)
        return (
            len(parts) == len(self.parts)
            and all(map(operator.is_, parts, self.parts))
            and all(own.get(name) is of for own, name, of in self.held)
            and [(of.data_ptr(), of.dtype) for of in self.tensors] == self.places
            and all(map(is_as_made, self.modules))
        )

    def _made(self, layer: Any, attentions: Sequence[Attended], library: Any) -> Any:
        first, other, activation = attentions[0].attention, LINEARS.get(type(layer.fc1)), layer.activation_fn
        width, heads = first.embed_dim, first.num_heads
        taken_in = layer.fc1._modules.get("activation")  # into the layer before it, and replaced by nothing
        self.held += (layer._modules, "activation_fn", activation), (layer.fc1._modules, "activation", taken_in)
        activation = taken_in if type(activation) is nn.Identity else activation
        if other is not None:
            self.int8, self.most_rows = other.kernels()
        is_usual = all(of.attention.num_heads == heads for of in attentions) and width // heads in HEAD_DIMS
        if not is_usual or type(activation) is not GELUActivation:
            raise _NotTakenError
        step = _Step(count=len(attentions), width=width, heads=heads, is_before=layer.normalize_before)
        step.gelu = _place(library if self.int8 is None else self.int8, "gelu_float32")
        step.linear_int8 = None if self.int8 is None else _place(self.int8, "linear_int8")
        step.expand = self._linear(layer, "fc1", width, getattr(layer.fc1, "out_features", 0))
        step.contract = self._linear(layer, "fc2", step.expand.outputs, width)
        step.norm = self._norm(layer.final_layer_norm, width)
        for number, of in enumerate(attentions):
            made, attention = step.attentions[number], of.attention
            made.norm, made.is_own, made.scale = self._norm(of.norm, width), number == 0, attention.scaling
            made.copy_head = getattr(attention, "copy_head", -1)
            names = {"query": "q_proj", "out": "out_proj"} | ({} if number else {"key": "k_proj", "value": "v_proj"})
            for name, own_name in names.items():
                setattr(made, name, self._linear(attention, own_name, width, width))
        return step

    def _linear(self, parent: nn.Module, name: str, inputs: int, outputs: int) -> Any:
        layer: Any = parent._modules[name]
        self.held.append((parent._modules, name, layer))
        self.modules.append(layer)
        held = _tensors_of(layer)
        if held is None or (layer.in_features, layer.out_features) != (inputs, outputs):
            raise _NotTakenError
        self.held += held
        if type(layer) is not nn.Linear and self.int8 is None:
            raise _NotTakenError
        return _Linear(*(_address(tensor) for *_, tensor in held), inputs, outputs)

    def _norm(self, norm: nn.Module, width: int) -> Any:
        found = _norm_of(norm, width)
        self.held += [(norm._parameters, name, norm._parameters.get(name)) for name in ("weight", "bias")]
        self.modules.append(norm)
        if found is None:
            raise _NotTakenError
        return found


def _parts(layer: Any, attentions: Sequence[Attended]) -> list[nn.Module]:
    return [layer.final_layer_norm, *(part for of in attentions for part in (of.attention, of.norm))]


_plans: "weakref.WeakKeyDictionary[nn.Module, tuple[Any, _Plan]]" = weakref.WeakKeyDictionary()


def decoder_step(
    layer: Any,
    attentions: Sequence[Attended],  # to its own tokens, to the source, and what else is there
    hidden_states: torch.Tensor,  # (rows, 1, width)
    cache: EncoderDecoderCache,
) -> tuple[torch.Tensor, ...] | None:  # (rows, 1, width), and what is copied, (rows, 1, tokens)
    """Update the targets of a step by a layer in one call, and write its cache; nothing where no kernel does so."""
    library, threads, (rows, _, width) = _kernels(hidden_states), torch.get_num_threads(), hidden_states.shape
    if library is None or layer.training or not rows or not all(_is_usual(of.attention) for of in attentions):
        return None
    layers, index = cache.self_attention_cache.layers, layer.self_attn.layer_idx
    own = layers[index] if index < len(layers) else None
    if type(own) is not GrowingLayer or not cache.is_updated.get(layer.encoder_attn.layer_idx):  # as in the first step
        return None
    made_for, plan = _plans.get(layer, (None, None))
    if plan is None or made_for is not library or not plan.holds(layer, attentions):
        plan = _Plan(layer, attentions, library)
        _plans[layer] = library, plan
    most_rows = plan.most_rows if threads == 1 else max(BEAMS, min(plan.most_rows, MOST_SHARED) // threads)
    if plan.step is None or rows > most_rows:
        return None
    step = _Step.from_buffer_copy(plan.step)  # other threads have their own
    if width != step.width or (threads > 1 and width * step.expand.outputs > MOST_OF_LAYER):
        return None
    found = hidden_states.clone(memory_format=torch.contiguous_format)
    step.rows = rows
    held: list[Any] = []
    copied = None
    for number, of in enumerate(attentions):
        made = step.attentions[number]
        if not _fill_in(made, of, rows, step.heads, cache, held):
            return None
        if made.copy_head >= 0:
            copied = found.new_empty(rows, 1, made.tokens)
            made.copied = copied.data_ptr()
    if library.decoder_layer(ctypes.byref(step), found.data_ptr()):
        raise MemoryError(f"no memory for a decoder's layer of {rows} rows")
    own.hold(step.attentions[0].tokens)
    return (found,) if copied is None else (found, copied)


def _is_usual(attention: Any) -> bool:
    """Whether an attention is what the kernel computes."""
    return not attention.training and attention.config._attn_implementation == "sdpa" and is_as_made(attention)


def _fill_in(made: Any, of: Attended, rows: int, heads: int, cache: EncoderDecoderCache, held: list[Any]) -> bool:
    """Say what an attention reads in this step, if the kernel takes it; what is `held` must stay in memory."""
    index = of.attention.layer_idx
    if made.is_own:
        stored: Any = cache.self_attention_cache.layers[index]
        states: Any = stored.make_room(1)
        tokens = stored.get_seq_length() + 1
    else:
        stored = cache.cross_attention_cache.layers[index]
        states = (stored.keys, stored.values) if cache.is_updated.get(index) else None
        tokens = 0 if states is None else stored.keys.shape[-2]
    if states is None or not tokens or not all(map(_is_plain, states)):
        return False
    keys, values = states
    documents, *others = keys.shape
    if (
        values.shape != keys.shape
        or (others[0], others[2]) != (heads, of.attention.head_dim)
        or (documents != rows if made.is_own else rows % documents)
        or keys.stride(-1) != 1
        or values.stride(-1) != 1
    ):
        return False
    strides = [*bytes_between(keys), *bytes_between(values)]
    mask, may_be_copied = of.mask, of.may_be_copied
    if mask is not None:
        if not is_plain_mask(mask, tokens, keys.device):
            return False
        mask = mask.expand(documents, heads, rows // documents, tokens)
        strides += bytes_between(mask)
    if may_be_copied is not None:
        may_be_copied = (may_be_copied != 0).contiguous()
        if may_be_copied.shape != (documents, tokens) or not may_be_copied.is_cpu:
            return False
    made.keys, made.values, made.documents, made.tokens = keys.data_ptr(), values.data_ptr(), documents, tokens
    made.mask, made.may_be_copied = _address(mask), _address(may_be_copied)
    made.strides[: len(strides)] = strides
    held += keys, values, mask, may_be_copied
    return True


def _place(functions: Any, name: str) -> int | None:
    return ctypes.cast(getattr(functions, name), ctypes.c_void_p).value


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
