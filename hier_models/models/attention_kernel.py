"""The kernels of attention_kernel.c, forwards on CPUs with AVX-512, and in float32 those of avx2_kernel.c."""

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .attention_products import cpu_has
from .kernels import AVX2, INSTRUCTIONS, kernels, run_calls, run_parts
from .torch_kernels import is_watched


HEAD_DIMS = (32, 64)
QUERIES = 2048  # of a call, at most: with windows of some 1,000 tokens its keys and values stay in the cache
FEWEST_QUERIES = 256  # for which keys are laid out
CALLS = 4  # of a thread, at least, so that all end at about the same time
MOST_OF_STEP = 16  # queries of a document, such as those of its beams, for which keys are read as they lie
LEAST_OF_THREAD = 2**19  # numbers of keys that it is worth waking a thread for


def _kernel(query: torch.Tensor, what: str = "attend") -> Callable[..., int] | None:
    """The one for a type and a head_dim, unless the file is an older one, without it."""
    name = f"{what}_{str(query.dtype).removeprefix('torch.')}_{query.shape[-1]}{variant_of(query.dtype) or ''}"
    return getattr(kernels(), name, None)


def variant_of(dtype: torch.dtype) -> str | None:
    """What the name of a kernel for a type ends in that this CPU runs, if it runs any."""
    needed = {torch.float32: INSTRUCTIONS, torch.bfloat16: (*INSTRUCTIONS, "avx512_bf16")}.get(dtype)
    if needed is not None and all(map(cpu_has, needed)):
        return ""
    return "_avx2" if dtype == torch.float32 and all(map(cpu_has, AVX2)) else None


def kernel_takes(*states: torch.Tensor, what: str = "attend") -> bool:
    """Whether a kernel takes states (batch, heads, tokens, head_dim) of a type; AMX is faster, but for a step."""
    query = states[0]
    for of in states:
        if type(of) is not torch.Tensor or not of.is_cpu or of.dtype != query.dtype or of.stride(-1) != 1:
            return False
    return (
        query.shape[-1] in HEAD_DIMS
        and variant_of(query.dtype) is not None
        and (what == "step" or query.dtype != torch.bfloat16 or not cpu_has("amx_bf16"))
        and _kernel(query, what) is not None
        and not is_watched()
    )


def kernel_is_fast(
    attention: Any, mask: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **kwargs: Any
) -> bool:
    """Whether the kernel is to take the place of torch's in a module: without AMX, in bfloat16, for many queries."""
    return (
        not torch.compiler.is_compiling()  # first: a traced program must not depend on the sizes below
        and query.dtype == torch.bfloat16
        and query.shape[2] >= FEWEST_QUERIES  # most steps of decoding end here
        and mask is None
        and not (attention.is_causal or kwargs.get("is_causal"))
        and _is_usual(attention, query, key, value, **kwargs)
        and kernel_takes(query, key, value)
    )


def step_is_fast(
    attention: Any, mask: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **kwargs: Any
) -> bool:
    """Whether `attend_step` is to take the place of torch's attention in a module: for the few queries of a step."""
    if torch.compiler.is_compiling():  # a traced program must not depend on the sizes below
        return False
    queries, keys = query.shape[2], key.shape[2]
    return (
        queries <= MOST_OF_STEP
        and (mask is None or is_plain_mask(mask, keys, query.device))
        and (queries == 1 or mask is not None or not (attention.is_causal or kwargs.get("is_causal")))
        and _is_usual(attention, query, key, value, **kwargs)
        and kernel_takes(query, key, value, what="step")
    )


def is_plain_mask(mask: Any, keys: int, device: torch.device) -> bool:
    """Whether the kernels of a step read a mask: a byte for each key, side by side."""
    is_plain = type(mask) is torch.Tensor and mask.dtype == torch.bool and mask.device == device
    return is_plain and mask.dim() == 4 and mask.shape[3] == keys and mask.stride(3) == 1


def _is_usual(attention: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **kwargs: Any) -> bool:
    """Whether an attention is what the kernels compute: without gradients, dropout and bias."""
    return (
        not torch.is_grad_enabled()
        and not (attention.training and attention.dropout > 0)
        and kwargs.get("position_bias") is None
        and attention.config._attn_implementation == "sdpa"
        and key.shape == value.shape == (*query.shape[:2], key.shape[2], query.shape[3])
        and key.shape[2] > 0
    )


def attend_with_kernel(
    query: torch.Tensor,  # (batch, heads, tokens, head_dim)
    key: torch.Tensor,  # likewise, or without window (batch, heads, keys, head_dim), as value
    value: torch.Tensor,
    attended: torch.Tensor,  # as query: what is to be written
    spans: Iterable[tuple[int, int]],  # of the documents
    half: int | None,
    scale: float,
) -> torch.Tensor:  # log-sum-exp of the scores, (batch, heads, tokens), of what is in a span
    """Attend to `half` tokens on each side, or, if none, to all keys."""
    batch, heads, tokens, _ = query.shape
    normalizer = query.new_empty(batch, heads, tokens, dtype=torch.float32)
    states = query, key, value, attended, normalizer
    attend: Any = _kernel(query)
    places = [(of.data_ptr(), *bytes_between(of)) for of in states]  # of the first number, and what is between others
    strides = (ctypes.c_long * 4)(*(of_token for *_, of_token in places[:4]))
    pieces = -(-CALLS * torch.get_num_threads() // max(1, batch * heads))  # of a head's document

    def run(call: tuple[int, int, int, int, int, int], held: Any = states) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        document, head, start, end, first, last = call
        pointers = (
            ctypes.c_void_p(first_number + document * of_document + head * of_head + start * of_token)
            for first_number, of_document, of_head, of_token in places
        )
        seen = end - start if half is not None else key.shape[2]
        near = min(half, seen) if half is not None else end + seen
        numbers = map(ctypes.c_long, (seen, first, last, near))
        if attend(*pointers, strides, *numbers, ctypes.c_float(scale)):
            raise MemoryError(f"no memory for the keys of {last - first} tokens")

    calls = []
    for document, (start, end) in enumerate(spans):
        size = min(QUERIES, max(FEWEST_QUERIES, -(-(end - start) // pieces)))
        for head in range(heads):
            for first in range(0, end - start, size):
                calls.append((document, head, start, end, first, min(first + size, end - start)))
    run_calls(run, calls)
    return normalizer


def attend_step(
    query: torch.Tensor,  # (batch, heads, queries, head_dim)
    key: torch.Tensor,  # (batch, heads, keys, head_dim), as value
    value: torch.Tensor,
    mask: torch.Tensor | None,  # what is seen, (batch or 1, heads or 1, queries or 1, keys)
    scale: float,
) -> torch.Tensor:  # (batch, queries, heads, head_dim)
    """Attend from few queries to keys that are read once, as they lie. What sees nothing gets zeros, as in torch."""
    batch, heads, queries, head_dim = query.shape
    keys, pairs = key.shape[2], batch * heads
    attended = query.new_empty(batch, queries, heads, head_dim)
    states = [query, key, value, attended.transpose(1, 2)]
    if mask is not None:
        states.append(mask.expand(batch, heads, queries, keys))
    step: Any = _kernel(query, "step")
    pointers = [ctypes.c_void_p(of.data_ptr()) for of in states] + [ctypes.c_void_p()] * (mask is None)
    strides = (ctypes.c_long * 15)(*[stride for of in states for stride in bytes_between(of)])
    pieces = max(1, min(torch.get_num_threads(), pairs, key.numel() // LEAST_OF_THREAD))

    def run(part: tuple[int, int], held: Any = states) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        numbers = map(ctypes.c_long, (heads, queries, keys, *part))
        if step(*pointers, strides, *numbers, ctypes.c_float(scale)):
            raise MemoryError(f"no memory for the scores of {keys} keys")

    run_parts(run, pairs, pieces)
    return attended


def bytes_between(states: torch.Tensor) -> tuple[int, ...]:
    """How many bytes further the next document, head and token are."""
    size, (of_document, of_head, of_token, *_) = states.element_size(), states.stride()
    return size * of_document, size * of_head, size * of_token
