"""Speed and memory of the Top-Down Transformer's encoder beside the encoders that a user would otherwise pick.

    python benchmarks/top_down_transformer.py                     # beside the peers, ten minutes on 2 cores
    python benchmarks/top_down_transformer.py --models "Top-Down int8" LED --lengths 16384
    python benchmarks/top_down_transformer.py --modes training --lengths 8192 \\
        --models Top-Down "Top-Down with attention dropout" LED BART
    python benchmarks/top_down_transformer.py --modes generation --models Top-Down BART LED PEGASUS-X
    python benchmarks/top_down_transformer.py --update model_cards/top_down_transformer.md

All encoders have 6 layers of tokens (ours: 4 bottom-up, 2 top-down, beside 2 of segments, with the paper's windows of
32 tokens, 24 apart, or of 128, 96 apart), width 768, 12 heads, a window of 1024 tokens (blocks of 512 where a peer has
blocks), and dropout of attention weights where the name says so. The document is one of random tokens. BART attends to
everything, with SDPA; the others have no SDPA. "int8" is of linear layers, the rest is float32 then. "Matrix products"
is the time that as many operations as our forward pass has to do (three times as many in training) take in products of
2048 by 2048: what a perfect program would take. "Generation" is that of 16 tokens with 4 beams, of a document that is
encoded already, by 6 decoder layers.

Each model has a process of its own (on a GPU all have one), which runs it once to warm up, and all then run in turn,
`--repeats` times. The table has the medians, with the least and the most in brackets; a ratio is taken within each
round, and to the model that is named first. Processor time is that of all threads, so that it says something on a busy
machine too. Memory is the peak of the process, less what it had when model and document were made. Growth is the power
of the length that fits a round's processor times best. A GPU is used where there is one; on a CPU, torch is told to
ask Linux for large pages, which helps every model with long documents.
"""

import argparse
import itertools
import math
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import (
    DEVICE,
    Cost,
    Run,
    cost,
    dtype_name,
    machine,
    peak_of,
    prepare,
    publish,
    rounds,
    spread,
    together,
)
from tqdm import tqdm
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartModel,
    BigBirdPegasusConfig,
    BigBirdPegasusModel,
    LEDConfig,
    LEDForConditionalGeneration,
    LEDModel,
    LongT5Config,
    LongT5EncoderModel,
    PegasusXConfig,
    PegasusXForConditionalGeneration,
    PegasusXModel,
)
from transformers.modeling_outputs import BaseModelOutput

from hier_models import (
    TopDownTransformerConfig,
    TopDownTransformerForConditionalGeneration,
    TopDownTransformerModel,
)
from hier_models.pipelines.int8_hier import to_int8


WIDTH, LAYERS, HEADS, INNER, WINDOW = 768, 6, 12, 3072, 1024
OURS, PRODUCTS = "Top-Down", "matrix products"
INT8, DROPOUT = " int8", " with attention dropout"
ATTENTION_DROPOUT = 0.1  # as bart-base and bart-large have it in their configurations
SIDE = 2048  # of the matrices
LENGTHS = (4096, 8192, 16384)
MODES = ("forward", "training", "checkpointed training", "generation")
BEAMS, WRITTEN = 4, 16
HEADER = ("", "dtype", "tokens", "model", "processor, s", "time, s", "extra memory, GiB")
HEADER += ("ratio of processor", "of time", "of memory")


def make_bart(name: str) -> dict[str, Any]:
    return {
        "attention_dropout": ATTENTION_DROPOUT if name.endswith(DROPOUT) else 0.0,
        "d_model": WIDTH,
        "encoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "encoder_ffn_dim": INNER,
        "decoder_layers": 1,
        "decoder_attention_heads": HEADS,
        "decoder_ffn_dim": INNER,
        "vocab_size": 50265,
    }


def make_encoder(name: str, length: int) -> torch.nn.Module:
    torch.manual_seed(0)
    bart = make_bart(name)
    encoder = MAKERS[name.removesuffix(INT8).removesuffix(DROPOUT)](bart, length).to(DEVICE)
    return to_int8(encoder) if name.endswith(INT8) else encoder


def _top_down(flex: bool = False, **settings: int) -> Callable[[dict[str, Any], int], torch.nn.Module]:
    def make(bart: dict[str, Any], length: int) -> torch.nn.Module:
        shape = {key: value for key, value in bart.items() if key != "encoder_layers"}
        config = TopDownTransformerConfig(
            **shape,
            **{"attention_window": WINDOW, **settings},
            bottom_up_layers=4,
            top_down_layers=2,
            max_encoder_position_embeddings=length,
            attn_implementation="flex_attention" if flex else "sdpa",
        )
        return TopDownTransformerModel(config).get_encoder()

    return make


def _bart(bart: dict[str, Any], length: int) -> torch.nn.Module:
    return BartModel(BartConfig(**bart, max_position_embeddings=length, attn_implementation="sdpa")).get_encoder()


def _led(bart: dict[str, Any], length: int) -> torch.nn.Module:
    positions = max(length, WINDOW)  # documents are padded to a window
    return LEDModel(
        LEDConfig(**bart, max_encoder_position_embeddings=positions, attention_window=WINDOW)
    ).get_encoder()


def _longt5(kind: str) -> Callable[[dict[str, Any], int], torch.nn.Module]:
    def make(bart: dict[str, Any], length: int) -> torch.nn.Module:
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
        encoder = LongT5EncoderModel(config)
        for module in encoder.modules():  # its configuration has one dropout for attention weights and all else
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = bart["attention_dropout"]
        return encoder

    return make


def _bigbird(bart: dict[str, Any], length: int) -> torch.nn.Module:
    config = BigBirdPegasusConfig(
        **bart, max_position_embeddings=length, attention_type="block_sparse", block_size=512
    )
    return BigBirdPegasusModel(config).get_encoder()


def _pegasus_x(bart: dict[str, Any], length: int) -> torch.nn.Module:
    return PegasusXModel(PegasusXConfig(**bart, max_position_embeddings=length, block_size=512)).get_encoder()


MAKERS = {
    OURS: _top_down(),
    f"{OURS} 128/96": _top_down(pooling_kernel=128, pooling_stride=96),
    f"{OURS} window 512": _top_down(attention_window=512),
    f"{OURS} FlexAttention": _top_down(flex=True),  # for GPUs
    "BART": _bart,
    "LED": _led,
    "LongT5 local": _longt5("local"),
    "LongT5 global": _longt5("transient-global"),
    "BigBird-Pegasus": _bigbird,
    "PEGASUS-X": _pegasus_x,
}
DEFAULTS = (OURS, PRODUCTS, "BART", "LED", "PEGASUS-X")
NAMES = (PRODUCTS, *(f"{name}{kind}" for kind in ("", INT8, DROPOUT) for name in MAKERS))
HELP = f"{PRODUCTS}, {', '.join(MAKERS)}, each of them with '{INT8}' or '{DROPOUT}' behind its name too"


GENERATORS: dict[str, tuple[Any, Any]] = {
    OURS: (TopDownTransformerConfig, TopDownTransformerForConditionalGeneration),
    "BART": (BartConfig, BartForConditionalGeneration),
    "LED": (LEDConfig, LEDForConditionalGeneration),
    "PEGASUS-X": (PegasusXConfig, PegasusXForConditionalGeneration),
}


def _generation(name: str, dtype: torch.dtype, length: int) -> Run:
    torch.manual_seed(0)
    make_config, make_model = GENERATORS[name]
    settings = {**make_bart(name), "encoder_layers": 1, "decoder_layers": LAYERS, "forced_eos_token_id": None}
    if name == OURS:
        del settings["encoder_layers"]
        settings |= {"bottom_up_layers": 1, "top_down_layers": 1, "top_down_update": "none"}
    model = make_model(make_config(**settings)).eval().to(DEVICE, dtype)
    states = torch.randn(1, length, WIDTH, dtype=dtype, device=DEVICE)
    mask = torch.ones(1, length, dtype=torch.long, device=DEVICE)
    written = {"max_new_tokens": WRITTEN, "min_new_tokens": WRITTEN, "num_beams": BEAMS, "do_sample": False}

    def run() -> None:  # encoder outputs anew, for `generate` repeats them in place
        model.generate(encoder_outputs=BaseModelOutput(last_hidden_state=states), attention_mask=mask, **written)

    return run


def _make(name: str, mode: str, dtype: torch.dtype, length: int) -> Run:
    if name == PRODUCTS:
        return _products(operations(length) * (1 if mode == "forward" else 3), dtype)
    if mode == "generation":
        return _generation(name, dtype, length)
    encoder = make_encoder(name, length)
    tokens = torch.randint(5, 50000, (1, length), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if mode == "forward":
        return _forward(encoder if name.endswith(INT8) else encoder.to(dtype), inputs)
    return _training(encoder, inputs, dtype, mode == "checkpointed training")


def _products(number: float, dtype: torch.dtype) -> Run:
    left, right = (torch.randn(SIDE, SIDE, device=DEVICE).to(dtype) for _ in range(2))
    rows = round(number / (2 * SIDE**2))

    def run() -> None:
        for start in range(0, rows, SIDE):
            left[: rows - start] @ right

    return run


def _forward(encoder: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Run:
    encoder.eval()

    @torch.no_grad()
    def run() -> None:
        encoder(**inputs)

    return run


def _training(
    encoder: torch.nn.Module, inputs: dict[str, torch.Tensor], dtype: torch.dtype, checkpointed: bool
) -> Run:
    encoder.train()
    if checkpointed:
        encoder.activation_checkpointing_enable()
    for parameter in encoder.parameters():  # so that gradients do not count as the run's memory
        parameter.grad = torch.zeros_like(parameter)

    def run() -> None:
        with torch.autocast(DEVICE, dtype=dtype, enabled=dtype != torch.float32):
            states = encoder(**inputs).last_hidden_state
        states.float().square().mean().backward()

    return run


def operations(length: int) -> float:
    """Useful operations of our forward pass with the paper's segments: matrix products, over visible pairs only."""
    segments = math.ceil(max(length - 32, 0) / 24) + 1
    half = min(WINDOW // 2, length - 1)
    visible = length * (2 * half + 1) - half * (half + 1)
    projections, network = 8 * WIDTH**2, 4 * WIDTH * INNER
    tokens = LAYERS * (length * (projections + network) + 4 * WIDTH * visible)
    level = 2 * (segments * (projections + network) + 4 * WIDTH * segments**2)
    top_down = 2 * (4 * WIDTH**2 * (length + segments) + 4 * WIDTH * length * segments)
    return tokens + level + top_down


def in_turn(
    names: list[str], mode: str, dtype: torch.dtype, length: int, repeats: int
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Costs, and peak bytes, of the models that have enough memory, each in a process of its own; not so on a GPU."""
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        runs: dict[str, Callable[[], Cost]] = {}
        peaks: dict[str, float] = {}
        for name in tqdm(names, disable=None, leave=False):
            try:
                if DEVICE == "cuda":
                    run = _make(name, mode, dtype, length)
                    peaks[name], runs[name] = peak_of(run), partial(cost, run)
                else:
                    worker = stack.enter_context(ProcessPoolExecutor(1, context))
                    peaks[name] = worker.submit(prepare, _make, name, mode, dtype, length).result()
                    runs[name] = partial(together, [worker])
            except RuntimeError as error:  # of torch, or as the process was killed
                print(f"{name}, {length} tokens, failed: {error}", file=sys.stderr)
        return rounds(runs, repeats), peaks


def measure_all(names: list[str], mode: str, dtype: torch.dtype, lengths: list[int], repeats: int) -> list[list[str]]:
    """Rows of all models at all lengths, and of their growth."""
    rows: list[list[str]] = []
    known: dict[str, dict[int, np.ndarray]] = {name: {} for name in names}
    for length in lengths:
        costs, peaks = in_turn(names, mode, dtype, length, repeats)
        for name, own in costs.items():
            known[name][length] = own
            cells = [*(spread(kind, 3) for kind in own.T), f"{peaks[name] / 2**30:.2f}"]
            if names[0] in costs:
                ratios = (own / costs[names[0]]).T
                cells += [*(spread(kind, 2) for kind in ratios), f"{peaks[name] / peaks[names[0]]:.2f}"]
            rows.append([f"{mode} beside {names[0]}", dtype_of(name, dtype), str(length), name, *cells])
            print(*rows[-1], sep=" | ", file=sys.stderr)  # so that a run broken off is not lost
    for name, by_length in known.items():
        if len(by_length) > 1:
            times = np.stack([*by_length.values()])  # (lengths, rounds, 2)
            powers = np.polyfit(np.log([*by_length]), np.log(times).reshape(len(times), -1), 1)[0].reshape(-1, 2)
            between = f"{min(by_length)} to {max(by_length)}"
            cells = [spread(kind, 2) for kind in powers.T]
            rows.append([f"{mode}, power of the length", dtype_of(name, dtype), between, name, *cells])
    return [cells + [""] * (len(HEADER) - len(cells)) for cells in rows]


def heading(modes: list[str]) -> str:
    """What is measured, as the table is headed."""
    encoding, generation = {*modes} != {"generation"}, "generation" in modes
    parts = ["Encoders alone"] * encoding + ["Generation from what is encoded"] * generation
    return "; ".join(parts)


def dtype_of(name: str, dtype: torch.dtype) -> str:
    """Of the model, as the table has it."""
    return "int8" if name.endswith(INT8) else dtype_name(dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=NAMES, metavar="MODEL", default=list(DEFAULTS), help=HELP)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["forward"])
    parser.add_argument("--dtypes", nargs="+", choices=("bfloat16", "float32"), default=["bfloat16"])
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), help="tokens")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--update", type=Path, metavar="CARD", help="write the table into this model card")
    arguments = parser.parse_args()
    if "generation" in arguments.modes and not GENERATORS.keys() >= {*arguments.models}:
        parser.error(f"--modes generation is for --models {', '.join(GENERATORS)}")
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # of the processes that measure

    def measure() -> list[list[str]]:
        rows = []
        for mode, dtype in itertools.product(arguments.modes, arguments.dtypes):
            kind = getattr(torch, dtype)
            rows += measure_all(arguments.models, mode, kind, sorted(arguments.lengths), arguments.repeats)
        return rows

    setting = f"{heading(arguments.modes)}, batch 1; {machine()}."
    publish(arguments.update, setting, HEADER, measure, keys=4)


if __name__ == "__main__":
    main()
