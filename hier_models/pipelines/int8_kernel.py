"""The kernels of int8_kernel.c and avx2_kernel.c: linear layers in int8, on CPUs with AVX512-VNNI or AVX2.

Where they were compiled, they give every bit that torch's operators give, so that a document gets in a batch what it
gets alone, but for GELU (1e-6), which is theirs for any number of rows. Where torch was compiled in another way, they
are not used.
"""

import functools
import operator
from typing import Any, NamedTuple

import torch
from torch import nn

from ..models.attention_kernel import kernel_takes
from ..models.attention_products import cpu_has
from ..models.decoder_kernel import LINEARS, Held, Other
from ..models.kernels import AVX2, INSTRUCTIONS, functions_of, kernels, run_parts
from ..models.torch_kernels import is_watched, tries_well
from .int8_hier import Int8Linear


FEW_ROWS = 64  # for which weights are read as they lie
FEW_ROWS_OF_AMX = 16  # which multiplies many rows faster; so few wait for the weights
MANY_ROWS = 256  # for which weights are laid out; with those between, torch's operators are as fast
FEW_ROWS_OF_AVX2 = 192  # what are not few are many
LEAST_OF_THREAD = 2**21  # weights of four rows, for which it is worth waking one up
LEAST_OF_GELU = 2**16  # numbers, likewise
SIDE = 64  # outputs, and inputs, that are laid out together
TOGETHER = 6  # rows, of many
WIDTHS = {torch.float32, torch.bfloat16}  # types of numbers in rows
PIECES = 4  # of the rows, for each thread: who has done its own takes another's
VARIANTS = {"": (*INSTRUCTIONS, "avx512_vnni"), "_avx2": AVX2}  # what names of functions end in, and need; best first
# Pointers, then numbers.
SIGNATURES = {"linear_int8": (6, 5), "lay_out_int8": (2, 4), "linear_int8_rows": (6, 6), "gelu_float32": (1, 1)}


class Kernels(NamedTuple):
    """Functions by their names in `SIGNATURES`, if there are any, and how many rows are few and many."""

    library: Any = None
    few_rows: int = 0
    many_rows: float = float("inf")


def multiply_fast(layer: Int8Linear, states: torch.Tensor, found: torch.Tensor) -> bool:
    """Fill in (…, outputs) for (…, inputs), or leave it to torch's operators, but for GELU after these.

    Layers of a step take less time than Python takes for a dozen lines, so that every one counts.
    """
    if torch.compiler.is_compiling() or is_watched():
        return False
    count, (library, few_rows, many_rows) = states.numel() // layer.in_features, find_kernels()
    threads = torch.get_num_threads()
    weights = layer.in_features * layer.out_features * max(1, count // 4)
    pieces = max(1, min(threads, weights // LEAST_OF_THREAD))
    is_few = count <= max(1, few_rows * pieces // threads)
    is_many = count >= many_rows and not is_few
    has_gelu = layer.activation is not None  # that of other numbers of rows must be the same to the bit
    if library is None or not count or not (is_many or is_few or has_gelu) or not _takes(layer, states, found):
        return False
    if is_few:
        wide = found if found.dtype == torch.float32 else torch.empty_like(found, dtype=torch.float32)
        _run_few(library, layer, states.float().contiguous(), wide, pieces)
        if wide is not found:
            found.copy_(wide)
    else:
        rows, of_rows = states.reshape(-1, layer.in_features), found.view(-1, layer.out_features)
        if is_many:
            _run_many(library, layer, rows.contiguous(), of_rows, threads)
            return True
        layer.multiply(rows, of_rows)
    if has_gelu:
        _run_gelu(library, found, threads)
    return True


def is_faster_in_bfloat16(attention: nn.Module) -> bool:
    """Whether an attention is one of long documents, whose states no cache keeps, and has a kernel in bfloat16."""
    from ..models.local_attention import TopDownTransformerLocalAttention
    from ..models.top_down_layers import TopDownTransformerSegmentAttention

    if not isinstance(attention, TopDownTransformerLocalAttention | TopDownTransformerSegmentAttention):
        return False
    heads = torch.empty(1, 1, 1, attention.head_dim, dtype=torch.bfloat16)
    return cpu_has("amx_bf16") or kernel_takes(heads, heads, heads)


@functools.cache
def find_kernels() -> Kernels:
    """The kernels that this CPU runs, if they agree with torch."""
    variant = next((ending for ending, needed in VARIANTS.items() if all(map(cpu_has, needed))), None)
    library = None if variant is None else functions_of(kernels(), variant, SIGNATURES)
    if library is None or not tries_well(_agree, library):
        return Kernels()
    if variant == "_avx2":
        return Kernels(library, FEW_ROWS_OF_AVX2, 0)
    return Kernels(library, FEW_ROWS_OF_AMX) if cpu_has("amx_int8") else Kernels(library, FEW_ROWS, MANY_ROWS)


@torch.no_grad()
def _agree(library: Any) -> bool:
    """Whether a small layer finds with the kernels what it finds with torch's operators."""
    linear = nn.utils.skip_init(nn.Linear, 100, 24, dtype=torch.float32)
    for parameter in (linear.weight, linear.bias):
        parameter.copy_(torch.linspace(-9, 9, parameter.numel(), dtype=torch.float32).sin().view_as(parameter))
    layer = Int8Linear(linear)
    rows = torch.linspace(-50, 70, 1000, dtype=torch.float32).cos().view(10, 100)
    wanted, found = torch.empty(10, 24), torch.empty(10, 24)
    layer.multiply(rows, wanted)
    for run, some in ((_run_few, 4), (_run_few, len(rows)), (_run_many, len(rows))):  # very few go a way of their own
        run(library, layer, rows[:some], found[:some].zero_(), pieces=1)
        if not torch.equal(found[:some], wanted[:some]):
            return False
    _run_gelu(library, found, threads=1)
    return torch.allclose(found, nn.functional.gelu(wanted), rtol=0, atol=1e-6)


def _takes(layer: Int8Linear, states: torch.Tensor, found: torch.Tensor) -> bool:
    """Whether all numbers lie where, and are what, the kernels read; of a layer's own, looked at once."""
    return (
        _looked_at(layer) and type(states) is torch.Tensor and states.is_cpu and {states.dtype, found.dtype} <= WIDTHS
    )


def _looked_at(layer: Int8Linear) -> bool:
    """Whether a layer's own numbers are what kernels read."""
    read = _own(layer)
    if layer.checked is None or any(map(operator.is_not, read, layer.checked)):
        layer.checked = *read, _are_as_made(*read)
    takes: bool = layer.checked[-1]
    return takes


def _own(layer: Int8Linear) -> Any:
    """Weights, their sums and scales, and the bias, if there is one: attributes would take four times as long."""
    buffers = layer._buffers
    return buffers["weight"], buffers["weight_sum"], buffers["weight_scale"], layer._parameters.get("bias")


def _tensors_of(layer: Int8Linear) -> list[Held] | None:
    """What a kernel of a whole layer reads."""
    if layer.attends is not None or not _looked_at(layer):
        return None
    buffers, parameters = layer._buffers, layer._parameters
    held: list[Held] = [(buffers, name, buffers[name]) for name in ("weight", "weight_sum", "weight_scale")]
    return [*held, (parameters, "bias", parameters.get("bias"))]


def _few() -> tuple[Any, int]:
    return find_kernels()[:2]


LINEARS[Int8Linear] = Other(_tensors_of, _few)


def _are_as_made(
    weight: torch.Tensor, weight_sum: torch.Tensor, weight_scale: torch.Tensor, bias: torch.Tensor | None
) -> bool:
    """Whether a layer's own numbers have their types, and lie in a row, on the CPU."""
    read = [(weight.t(), torch.int8), (weight_sum, torch.int32), (weight_scale, torch.float32)]
    read += [] if bias is None else [(bias, torch.float32)]
    return all(tensor.is_cpu and tensor.dtype == dtype and tensor.is_contiguous() for tensor, dtype in read)


def _run_few(library: Any, layer: Int8Linear, states: torch.Tensor, found: torch.Tensor, pieces: int) -> None:
    """Share a layer's outputs out among threads, each of which brings all rows to int8."""
    tensors = states, *_own(layer), found
    pointers = list(map(_pointer, tensors))
    sizes = states.numel() // layer.in_features, layer.in_features, layer.out_features

    def run(part: tuple[int, int], held: Any = tensors) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        _check_memory(library.linear_int8(*pointers, *sizes, *part), sizes[0], layer)

    run_parts(run, layer.out_features, pieces)


def _run_many(library: Any, layer: Int8Linear, rows: torch.Tensor, found: torch.Tensor, pieces: int) -> None:
    """Lay the weights out, then share the rows out among threads."""
    inputs, outputs = layer.in_features, layer.out_features
    panels = -(-outputs // SIDE)
    laid_out = torch.empty(panels * SIDE, -(-inputs // SIDE) * SIDE, dtype=torch.int8)
    weight, *others = _own(layer)
    tensors = rows, laid_out, weight, *others, found
    halves = [int(tensor.dtype == torch.bfloat16) for tensor in (rows, found)]

    def lay_out(part: tuple[int, int], held: Any = tensors) -> None:
        library.lay_out_int8(_pointer(weight), _pointer(laid_out), inputs, outputs, *part)

    def run(part: tuple[int, int], held: Any = tensors) -> None:
        first, last = (min(number * TOGETHER, len(rows)) for number in part)
        pointers = map(_pointer, (rows[first:last], laid_out, *others, found[first:last]))
        sizes = last - first, inputs, outputs
        failed = library.linear_int8_rows(*pointers, *halves, layer.activation is not None, *sizes)
        _check_memory(failed, last - first, layer)

    run_parts(lay_out, panels, pieces)
    run_parts(run, -(-len(rows) // TOGETHER), 1 if pieces == 1 else PIECES * pieces)


def _run_gelu(library: Any, found: torch.Tensor, threads: int) -> None:
    """Put what GELU makes of (…, outputs) in their place."""
    rows = found.view(-1, found.shape[-1])

    def run(part: tuple[int, int], held: Any = found) -> None:
        some = rows[slice(*part)]
        library.gelu_float32(_pointer(some), some.numel())

    run_parts(run, rows.shape[0], max(1, min(threads, found.numel() // LEAST_OF_GELU)))


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _check_memory(failed: int, rows: int, layer: Int8Linear) -> None:
    if failed:
        raise MemoryError(f"no memory for {rows} rows of {layer.in_features} numbers in int8")
