"""The kernel of local_attention.c: forwards on CPUs with AVX-512, where it was compiled.

hatch_build.py compiles it when the package is installed, if there is a C compiler for it; where there was none, local
attention does without.
"""

import ctypes
import functools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from .attention_products import cpu_has


HEAD_DIMS = (32, 64)
QUERIES = 2048  # of a call, at most: their keys and values stay in the cache
FEWEST_QUERIES = 256  # for which keys are laid out
CALLS = 4  # of a thread, at least, so that all end at about the same time
INSTRUCTIONS = ("fma3", "avx512_f", "avx512_bw", "avx512_dq", "avx512_vl")


@functools.cache
def kernels() -> ctypes.CDLL | None:
    """The compiled kernels, or `None` where there are none."""
    try:
        return ctypes.CDLL(str(Path(__file__).with_name("liblocal_attention.so")))
    except OSError:
        return None


def kernel_takes(*states: torch.Tensor) -> bool:
    """Whether there is a kernel for states (batch, heads, tokens, head_dim) of such a type, on this CPU."""
    query = states[0]
    needed = {torch.float32: INSTRUCTIONS, torch.bfloat16: (*INSTRUCTIONS, "avx512_bf16")}.get(query.dtype)
    return (
        needed is not None
        and query.shape[-1] in HEAD_DIMS
        and all(type(of) is torch.Tensor and of.dtype == query.dtype and of.stride(-1) == 1 for of in states)
        and all(map(cpu_has, needed))
        and kernels() is not None
    )


def attend_with_kernel(
    query: torch.Tensor,  # (batch, heads, tokens, head_dim), as key and value
    key: torch.Tensor,
    value: torch.Tensor,
    attended: torch.Tensor,  # likewise: what is to be written
    spans: Iterable[tuple[int, int]],  # of the documents
    half: int,
    scale: float,
) -> torch.Tensor:  # log-sum-exp of the scores, (batch, heads, tokens)
    """Attend to `half` tokens on each side."""
    states = (query, key, value, attended)
    batch, heads, tokens, head_dim = query.shape
    normalizer = torch.zeros(batch, heads, tokens)
    attend = getattr(kernels(), f"local_attention_{str(query.dtype).removeprefix('torch.')}_{head_dim}")
    strides = (ctypes.c_long * 4)(*(of.stride(2) * of.element_size() for of in states))
    threads = torch.get_num_threads()
    pieces = -(-CALLS * threads // max(1, batch * heads))  # of a head's document

    def run(call: tuple[int, int, int, int, int, int]) -> None:
        document, head, start, end, first, last = call
        places = (of[document, head, start:].data_ptr() for of in (*states, normalizer))
        numbers = map(ctypes.c_long, (end - start, first, last, half))
        if attend(*map(ctypes.c_void_p, places), strides, *numbers, ctypes.c_float(scale)):
            raise MemoryError(f"no memory for the keys of {last - first} tokens")

    calls = []
    for document, (start, end) in enumerate(spans):
        size = min(QUERIES, max(FEWEST_QUERIES, -(-(end - start) // pieces)))
        for head in range(heads):
            for first in range(0, end - start, size):
                calls.append((document, head, start, end, first, min(first + size, end - start)))
    run_all = map if threads == 1 else _pool(threads, os.getpid()).map
    list(run_all(run, calls))
    return normalizer


@functools.cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads of a process: a fork has none of them."""
    return ThreadPoolExecutor(threads)
