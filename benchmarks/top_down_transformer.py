"""Speed and memory of the Top-Down Transformer's encoder beside the encoders that a user would otherwise pick.

    python benchmarks/top_down_transformer.py                     # all rows, about an hour on 2 cores
    python benchmarks/top_down_transformer.py --modes forward --dtypes bfloat16 --lengths 16384
    python benchmarks/top_down_transformer.py --update model_cards/top_down_transformer.md

All encoders have 6 layers of tokens (ours: 4 bottom-up, 2 top-down, beside 2 of segments, with the paper's windows of
32 tokens and with windows of 128), width 768, 12 heads, a window of 1024 tokens (blocks of 512 where a peer has
blocks), and dropout of attention weights where it says so alone. The document is one of random tokens. BART attends to
everything, with SDPA; the others have no SDPA. Every case runs in a process of its own: one run to warm up, then the
median of the runs that fit into ten seconds; a longer run is taken once. Memory is the peak of that process, less what
it had when model and document were made. Where the next length would take longer than `--limit` seconds, a model is
not measured. A GPU is used where there is one; on a CPU, torch is told to ask Linux for large pages, which helps every
model with long documents.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring import DEVICE, Run, dtype_name, machine, peak_so_far, seconds, table, update


WIDTH, LAYERS, HEADS, INNER, WINDOW = 768, 6, 12, 3072, 1024
OURS, COARSE = "Top-Down", "Top-Down 128/96"  # pooling kernel and stride; 32/24 by default, as in the paper
PEERS = ("BART", "LED", "LongT5 local", "LongT5 global", "BigBird-Pegasus", "PEGASUS-X")
# As bart-base and bart-large have it in their configurations; LongT5 has it in every training.
ATTENTION_DROPOUT = 0.1
DROPPED = "training with attention dropout"
MODES = ("forward", "training", DROPPED, "checkpointed training")
LENGTHS = tuple(2**power for power in range(10, 17))  # 1k to 64k
NAMES = (OURS, COARSE, *PEERS)
HEADER = ("", "dtype", "tokens", *NAMES)


def make_encoder(name: str, length: int, attention_dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(0)
    bart = {
        "attention_dropout": attention_dropout,
        "d_model": WIDTH,
        "encoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "encoder_ffn_dim": INNER,
        "decoder_layers": 1,
        "decoder_attention_heads": HEADS,
        "decoder_ffn_dim": INNER,
        "vocab_size": 50265,
    }
    encoder = _MAKERS[name](bart, length)
    return encoder.to(DEVICE)


def _top_down(**pooling: int) -> Callable[[dict[str, Any], int], torch.nn.Module]:
    def make(bart: dict[str, Any], length: int) -> torch.nn.Module:
        from hier_models import TopDownTransformerConfig, TopDownTransformerModel

        shape = {key: value for key, value in bart.items() if key != "encoder_layers"}
        config = TopDownTransformerConfig(
            **shape,
            **pooling,
            bottom_up_layers=4,
            top_down_layers=2,
            attention_window=WINDOW,
            max_encoder_position_embeddings=length,
            # FlexAttention has no dropout.
            attn_implementation="flex_attention" if DEVICE == "cuda" and not bart["attention_dropout"] else "sdpa",
        )
        return TopDownTransformerModel(config).get_encoder()

    return make


def _bart(bart: dict[str, Any], length: int) -> torch.nn.Module:
    from transformers import BartConfig, BartModel

    return BartModel(BartConfig(**bart, max_position_embeddings=length, attn_implementation="sdpa")).get_encoder()


def _led(bart: dict[str, Any], length: int) -> torch.nn.Module:
    from transformers import LEDConfig, LEDModel

    return LEDModel(LEDConfig(**bart, max_encoder_position_embeddings=length, attention_window=WINDOW)).get_encoder()


def _longt5(kind: str) -> Callable[[dict[str, Any], int], torch.nn.Module]:
    def make(bart: dict[str, Any], length: int) -> torch.nn.Module:
        from transformers import LongT5Config, LongT5EncoderModel

        config = LongT5Config(
            vocab_size=bart["vocab_size"],
            d_model=WIDTH,
            d_kv=WIDTH // HEADS,
            d_ff=INNER,
            num_layers=LAYERS,
            num_heads=HEADS,
            local_radius=WINDOW // 2 - 1,  # blocks of 512
            encoder_attention_type=kind,
        )
        return LongT5EncoderModel(config)

    return make


def _bigbird(bart: dict[str, Any], length: int) -> torch.nn.Module:
    from transformers import BigBirdPegasusConfig, BigBirdPegasusModel

    config = BigBirdPegasusConfig(
        **bart, max_position_embeddings=length, attention_type="block_sparse", block_size=512
    )
    return BigBirdPegasusModel(config).get_encoder()


def _pegasus_x(bart: dict[str, Any], length: int) -> torch.nn.Module:
    from transformers import PegasusXConfig, PegasusXModel

    return PegasusXModel(PegasusXConfig(**bart, max_position_embeddings=length, block_size=512)).get_encoder()


_MAKERS = {
    OURS: _top_down(),
    COARSE: _top_down(pooling_kernel=128, pooling_stride=96),
    "BART": _bart,
    "LED": _led,
    "LongT5 local": _longt5("local"),
    "LongT5 global": _longt5("transient-global"),
    "BigBird-Pegasus": _bigbird,
    "PEGASUS-X": _pegasus_x,
}


def measure(name: str, mode: str, dtype: torch.dtype, length: int) -> dict[str, float]:
    """Seconds and extra bytes of one case; call it in a fresh process."""
    encoder = make_encoder(name, length, ATTENTION_DROPOUT if mode == DROPPED else 0.0)
    tokens = torch.randint(5, 50000, (1, length), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    run = (
        _forward(encoder, inputs, dtype)
        if mode == "forward"
        else _training(encoder, inputs, dtype, mode == "checkpointed training")
    )
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if DEVICE == "cuda" else peak_so_far(reset=True)
    first = seconds(run)
    peak = (torch.cuda.max_memory_allocated() if DEVICE == "cuda" else peak_so_far()) - before
    times = [seconds(run) for _ in range(min(9, int(10 / first)))]
    return {"seconds": statistics.median(times or [first]), "bytes": peak}


def _forward(encoder: torch.nn.Module, inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> Run:
    encoder.eval().to(dtype)

    def run() -> None:
        with torch.no_grad():
            encoder(**inputs)

    return run


def _training(
    encoder: torch.nn.Module, inputs: dict[str, torch.Tensor], dtype: torch.dtype, checkpointed: bool
) -> Run:
    encoder.train()
    if checkpointed:
        encoder.gradient_checkpointing_enable()
    for parameter in encoder.parameters():  # so that gradients do not count as the run's memory
        parameter.grad = torch.zeros_like(parameter)

    def run() -> None:
        with torch.autocast(DEVICE, dtype=dtype, enabled=dtype != torch.float32):
            states = encoder(**inputs).last_hidden_state
        states.float().square().mean().backward()

    return run


def matrix_rate(dtype: torch.dtype) -> float:
    """Floating point operations a second in a plain matrix product."""
    factors = [torch.randn(4096, 4096, device=DEVICE).to(dtype) for _ in range(2)]
    best = min(seconds(lambda: factors[0] @ factors[1]) for _ in range(8))
    return 2 * 4096**3 / best


def operations(length: int) -> float:
    """Useful floating point operations of our forward pass: matrix products, over visible pairs only."""
    segments = math.ceil(max(length - 32, 0) / 24) + 1
    half = min(WINDOW // 2, length - 1)
    visible = length * (2 * half + 1) - half * (half + 1)
    projections, network = 8 * WIDTH**2, 4 * WIDTH * INNER
    tokens = LAYERS * (length * (projections + network) + 4 * WIDTH * visible)
    level = 2 * (segments * (projections + network) + 4 * WIDTH * segments**2)
    top_down = 2 * (4 * WIDTH**2 * (length + segments) + 4 * WIDTH * length * segments)
    return tokens + level + top_down


def measure_all(
    names: list[str], modes: list[str], dtypes: list[torch.dtype], lengths: list[int], limit: float
) -> list[list[str]]:
    rows = []
    for mode in modes:
        for dtype in dtypes:
            known: dict[str, dict[int, dict[str, float]]] = {name: {} for name in NAMES}
            rate = matrix_rate(dtype)
            for length in lengths:
                for name in names:
                    if _expected(known[name], length) < limit:
                        known[name][length] = _in_fresh_process(name, mode, dtype, length)
                rows += _rows(mode, dtype, length, known)
                if mode == "forward" and length in known[OURS]:
                    share = operations(length) / known[OURS][length]["seconds"] / rate
                    what = f"forward, share of the rate of a matrix product, {rate / 1e9:.0f} GFLOP/s"
                    rows.append([what, dtype_name(dtype), str(length), f"{share:.0%}", *[""] * (len(NAMES) - 1)])
            cells = [_growth(known[name]) for name in NAMES]
            if any(cells):
                what = f"{mode}, power of the length that time grows with, from 8192"
                rows.append([what, dtype_name(dtype), "all", *cells])
    return rows


def _expected(known: dict[int, dict[str, float]], length: int) -> float:
    if not known:
        return 0.0
    last = max(known)
    return known[last]["seconds"] * (length / last) ** 1.5


def _in_fresh_process(name: str, mode: str, dtype: torch.dtype, length: int) -> dict[str, float]:
    print(f"{mode}, {dtype_name(dtype)}, {length} tokens: {name} …", file=sys.stderr)
    result = subprocess.run(
        [sys.executable, __file__, "--case", json.dumps([name, mode, dtype_name(dtype), length])],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "THP_MEM_ALLOC_ENABLE": "1"},
    )
    if result.returncode:  # out of memory, say
        print(f"{name} failed", file=sys.stderr)
        return {"seconds": math.inf, "bytes": math.inf}
    found: dict[str, float] = json.loads(result.stdout)
    return found


def _rows(
    mode: str, dtype: torch.dtype, length: int, known: dict[str, dict[int, dict[str, float]]]
) -> list[list[str]]:
    rows = []
    for what, key, unit, scale in (("time", "seconds", "s", 1), ("extra memory", "bytes", "GiB", 2**30)):
        values = [known[name].get(length, {}).get(key, math.inf) for name in NAMES]
        cells = [f"{value / scale:.2f} {unit}" if value < math.inf else "–" for value in values]
        times = [f" ({value / values[0]:.1f}×)" if value < math.inf > values[0] else "" for value in values[1:]]
        cells = [cells[0], *map("".join, zip(cells[1:], times, strict=True))]
        rows.append([f"{mode}, {what}", dtype_name(dtype), str(length), *cells])
    return rows


def _growth(known: dict[int, dict[str, float]]) -> str:
    long = [length for length in sorted(known) if length >= 8192 and known[length]["seconds"] < math.inf]
    if len(long) < 2:
        return ""
    ratio = known[long[-1]]["seconds"] / known[long[0]]["seconds"]
    return f"{math.log(ratio) / math.log(long[-1] / long[0]):.2f} (to {long[-1]})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--dtypes", nargs="+", choices=("bfloat16", "float32"), default=["bfloat16", "float32"])
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), help="tokens")
    parser.add_argument("--limit", type=float, default=60, help="seconds that one run may take")
    parser.add_argument("--update", type=Path, metavar="CARD", help="write the table into this model card")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        name, mode, dtype, length = json.loads(arguments.case)
        print(json.dumps(measure(name, mode, getattr(torch, dtype), length)))
        return
    dtypes = [getattr(torch, name) for name in arguments.dtypes]
    rows = measure_all(arguments.models, arguments.modes, dtypes, sorted(arguments.lengths), arguments.limit)
    setting = f"Encoders alone, batch 1; {machine()}. In brackets, times ours."
    print(f"{setting}\n\n{table(HEADER, rows)}")
    if arguments.update:
        update(arguments.update, setting, HEADER, rows, keys=3)


if __name__ == "__main__":
    main()
