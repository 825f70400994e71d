"""The compiled kernels, for CPUs with AVX-512 or AVX2: where they are, and the threads that run them.

hatch_build.py compiles them when the package is installed, if there is a C compiler for it; where there was none,
operators of torch do.
"""

import ctypes
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch


_STARTED = os.getpid()
_MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # what each thread of a team does
INSTRUCTIONS = ("fma3", "avx512_f", "avx512_bw", "avx512_dq", "avx512_vl")  # that all of them need but those of AVX2
AVX2 = ("fma3", "avx2")


@functools.cache
def kernels() -> ctypes.CDLL | None:
    """The compiled kernels, or `None` where there are none."""
    try:
        return ctypes.CDLL(str(Path(__file__).with_name("libkernels.so")))
    except OSError:
        return None


def functions_of(library: Any, ending: str, signatures: Mapping[str, tuple[int, ...]]) -> Any:
    """Functions of a library, whose names there end so, unless it is an older one, without them.

    A signature counts the pointers of a function, then its whole numbers, then others.
    """
    found = SimpleNamespace()
    for name, counts in signatures.items():
        function = getattr(library, name + ending, None)
        if function is None:
            return None
        kinds = zip((ctypes.c_void_p, ctypes.c_long, ctypes.c_float), counts, strict=False)
        function.argtypes = [kind for kind, count in kinds for _ in range(count)]
        setattr(found, name, function)
    return found


def run_calls(run: Callable[[Any], None], calls: Sequence[Any]) -> None:
    """Run calls of a kernel on as many threads as torch has."""
    threads = torch.get_num_threads() if len(calls) > 1 else 1
    done: Iterator[None]
    if threads > 1 and _run_in_team(run, calls, threads):
        return
    try:
        done = map(run, calls) if threads == 1 else _pool(threads, os.getpid()).map(run, calls)
    except RuntimeError:  # the interpreter is about to end, and begins no more threads
        done = map(run, calls)
    for _ in done:
        pass


def _run_in_team(run: Callable[[Any], None], calls: Sequence[Any], threads: int) -> bool:
    """Run calls on the threads that torch's operators run on: these wait busily, and would be in the way of others."""
    openmp = _openmp()
    if openmp is None or os.getpid() != _STARTED:  # a fork has none of the threads, and waits for them forever
        return False
    numbers, failed = itertools.count(), list[BaseException]()

    def take_part(_: Any) -> None:
        try:
            while (number := next(numbers)) < len(calls):
                run(calls[number])
        except BaseException as error:  # raised behind the team, by who called
            failed.append(error)

    # As many as torch takes: of a smaller team OpenMP would end the other threads.
    openmp.GOMP_parallel(_MEMBER(take_part), None, threads, 0)
    if failed:
        raise failed[0]
    return True


@functools.cache
def _openmp() -> ctypes.CDLL | None:
    """GNU's OpenMP, where torch has loaded it."""
    try:
        library = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD)
        library.GOMP_parallel.argtypes = [_MEMBER, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        library.GOMP_parallel.restype = None
    except (OSError, AttributeError):
        return None
    return library


def run_parts(run: Callable[[tuple[int, int]], None], count: int, pieces: int) -> None:
    """Run a kernel on so many things, given from which to which, in pieces of about the same size."""
    if pieces == 1:  # as most of a step's: what a call costs counts there
        run((0, count))
        return
    run_calls(run, list(itertools.pairwise(count * piece // pieces for piece in range(pieces + 1))))


@functools.lru_cache(1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads of a process: a fork has none of them."""
    return ThreadPoolExecutor(threads)
