"""The kernel of int8_kernel.c: linear layers in int8 for few rows, on CPUs with AVX512-VNNI, where it was compiled.

It gives every bit that torch's operators give, so that a document gets in a batch what it gets alone. Where torch was
compiled in another way, so that it does not, it is not used.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..models.attention_products import cpu_has
from ..models.kernels import INSTRUCTIONS, kernels, run_parts
from ..models.torch_kernels import is_watched, tries_well
from .int8_hier import Int8Linear


FEW_ROWS = 64  # for which it is faster than torch's operators
FEW_ROWS_OF_AMX = 8  # which multiplies many rows faster; so few wait for the weights
LEAST_OF_THREAD = 2**21  # weights, for which it is worth waking one up
NEEDED = (*INSTRUCTIONS, "avx512_vnni")
Kernel = Callable[..., int]


def multiply_few(layer: Int8Linear, rows: torch.Tensor, found: torch.Tensor) -> bool:
    """Fill in (rows, outputs) for (rows, inputs), or leave it to torch's operators."""
    if torch.compiler.is_compiling() or is_watched() or not 0 < len(rows) <= FEW_ROWS:
        return False
    kernel, few_rows = find_kernel()
    threads = torch.get_num_threads()
    pieces = max(1, min(threads, layer.weight.numel() // LEAST_OF_THREAD))
    if kernel is None or len(rows) > max(1, few_rows * pieces // threads) or not _takes(layer, rows):
        return False
    _run(kernel, layer, rows.contiguous(), found, pieces)
    return True


@functools.cache
def find_kernel() -> tuple[Kernel | None, int]:
    """The kernel, where it runs and agrees with torch, and how many rows are few enough."""
    kernel = getattr(kernels(), "linear_int8", None)
    if kernel is None or not all(map(cpu_has, NEEDED)):
        return None, 0
    kernel.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_long] * 5
    if not tries_well(_agrees, kernel):
        return None, 0
    return kernel, FEW_ROWS_OF_AMX if cpu_has("amx_int8") else FEW_ROWS


@torch.no_grad()
def _agrees(kernel: Kernel) -> bool:
    """Whether a small layer finds with the kernel what it finds with torch's operators."""
    linear = nn.utils.skip_init(nn.Linear, 100, 24, dtype=torch.float32)
    for parameter in (linear.weight, linear.bias):
        parameter.copy_(torch.linspace(-9, 9, parameter.numel(), dtype=torch.float32).sin().view_as(parameter))
    layer, rows = (
        Int8Linear(linear, is_tied=False),
        torch.linspace(-50, 70, 500, dtype=torch.float32).cos().view(5, 100),
    )
    found, wanted = rows.new_empty(5, 24), rows.new_empty(5, 24)
    layer.multiply(rows, wanted)
    _run(kernel, layer, rows, found, pieces=1)
    return torch.equal(found, wanted)


def _takes(layer: Int8Linear, rows: torch.Tensor) -> bool:
    """Whether all numbers lie where, and are what, the kernel reads."""
    read = [(layer.weight.t(), torch.int8), (layer.weight_sum, torch.int32), (layer.weight_scale, torch.float32)]
    if layer.bias is not None:
        read.append((layer.bias, torch.float32))
    return (
        (type(rows), rows.dtype, rows.device.type) == (torch.Tensor, torch.float32, "cpu")
        and all(tensor.dtype == dtype and tensor.device == rows.device for tensor, dtype in read)
        and all(tensor.is_contiguous() for tensor, _ in read)
    )


def _run(kernel: Kernel, layer: Int8Linear, rows: torch.Tensor, found: torch.Tensor, pieces: int) -> None:
    tensors = rows, layer.weight, layer.weight_sum, layer.weight_scale, layer.bias, found
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    sizes = len(rows), layer.in_features, layer.out_features

    def run(part: tuple[int, int], held: Any = tensors) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        if kernel(*pointers, *sizes, *part):
            raise MemoryError(f"no memory for {len(rows)} rows of {layer.in_features} numbers in int8")

    run_parts(run, layer.out_features, pieces)
