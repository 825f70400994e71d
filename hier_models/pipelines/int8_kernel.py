"""The kernel of int8_kernel.c: linear layers in int8 for few rows, on CPUs with AVX512-VNNI, where it was compiled.

It gives every bit that torch's operators give, so that a document gets in a batch what it gets alone.
"""

import ctypes
import functools
import itertools
from typing import Any

import torch

from ..models.attention_products import cpu_has
from ..models.kernels import kernels, run_calls
from ..models.torch_kernels import is_watched
from .int8_hier import Int8Linear


FEW_ROWS = 64  # for which it is faster than torch's operators
FEW_ROWS_OF_AMX = 8  # which multiplies many rows faster; so few wait for the weights
LEAST_OF_THREAD = 2**21  # weights, for which it is worth waking one up
INSTRUCTIONS = ("fma3", "avx512_f", "avx512_bw", "avx512_dq", "avx512_vl", "avx512_vnni")


def multiply_few(layer: Int8Linear, rows: torch.Tensor, found: torch.Tensor) -> bool:
    """Fill in (rows, outputs) for (rows, inputs), or leave it to torch's operators."""
    if torch.compiler.is_compiling() or not 0 < len(rows) <= few_rows():
        return False
    threads = torch.get_num_threads()
    pieces = max(1, min(threads, layer.weight.numel() // LEAST_OF_THREAD))
    if (
        len(rows) > few_rows() * pieces // threads
        or (type(rows), rows.dtype, rows.device.type) != (torch.Tensor, torch.float32, "cpu")
        or layer.weight.device != rows.device
        or not layer.weight.t().is_contiguous()
        or is_watched()
    ):
        return False
    tensors = rows.contiguous(), layer.weight, layer.weight_sum, layer.weight_scale, layer.bias, found
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    sizes = len(rows), layer.in_features, layer.out_features
    bounds = [layer.out_features * piece // pieces for piece in range(pieces + 1)]
    kernel: Any = kernels()

    def run(part: tuple[int, int], held: Any = tensors) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        if kernel.linear_int8(*pointers, *sizes, *part):
            raise MemoryError(f"no memory for {len(rows)} rows of {layer.in_features} numbers in int8")

    run_calls(run, list(itertools.pairwise(bounds)))
    return True


@functools.cache
def few_rows() -> int:
    """How many rows are few enough; none where the kernel cannot run."""
    kernel = getattr(kernels(), "linear_int8", None)
    if kernel is None or not all(map(cpu_has, INSTRUCTIONS)):
        return 0
    kernel.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_long] * 5
    return FEW_ROWS_OF_AMX if cpu_has("amx_int8") else FEW_ROWS
