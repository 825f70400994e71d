"""Speed and memory of the encoder-only HAT beside RoBERTa, in one run.

    python benchmarks/hat_encoder.py                                       # all rows, minutes on 2 cores
    python benchmarks/hat_encoder.py --update model_cards/hat_encoder.md   # also write the table into the card

All models have the shape of `roberta-base`, take the same texts with the same markers and use SDPA. Their times are
taken in turn, and the median of each counts, so that a slow minute of the machine hurts all. Memory is the peak of a
process of its own, less what it had before the model was made. A GPU is used where there is one.
"""

import argparse
import gc
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedModel, RobertaConfig, RobertaForMaskedLM

from hier_models import HatEncoderConfig, HatEncoderForMaskedLM


BATCH, TOKENS, SENTENCE = 8, 512, 25  # texts; tokens; mean tokens of a sentence
SHAPE = {"max_position_embeddings": TOKENS + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
QUERIES = {"HAT, all query": "all", "HAT, BOS query": "bos"}
MODELS = ("RoBERTa", *QUERIES)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_model(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    if name in QUERIES:
        config = HatEncoderConfig(**SHAPE, hierarchical_queries=QUERIES[name], attn_implementation="sdpa")
        return HatEncoderForMaskedLM(config)
    return RobertaForMaskedLM(RobertaConfig(**SHAPE, attn_implementation="sdpa"))


def make_batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 50265, (BATCH, TOKENS), generator=generator)
    ids[torch.rand(BATCH, TOKENS, generator=generator) < 1 / SENTENCE] = 0
    ids[:, 0] = 0
    mask = torch.ones_like(ids)
    for row in range(1, BATCH, 2):  # every other text is shorter
        ids[row, TOKENS * 3 // 4 :], mask[row, TOKENS * 3 // 4 :] = 1, 0
    labels = torch.where((torch.rand(BATCH, TOKENS, generator=generator) < 0.15) & (mask > 0), ids, -100)
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: tensor.to(DEVICE) for name, tensor in batch.items()}


def make_training_step(name: str, dtype: torch.dtype) -> Callable[[], None]:
    model, batch = make_model(name).to(DEVICE).train(), make_batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        with torch.autocast(DEVICE, dtype=dtype, enabled=dtype != torch.float32):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def make_inference(name: str, dtype: torch.dtype) -> Callable[[], None]:
    model, batch = make_model(name).base_model.to(DEVICE, dtype).eval(), make_batch()
    batch.pop("labels")

    @torch.no_grad()
    def infer() -> None:
        model(**batch)

    return infer


def seconds(run: Callable[[], None]) -> float:
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def medians(make: Callable[[str, torch.dtype], Callable[[], None]], dtype: torch.dtype, repeats: int) -> list[float]:
    """Time the models in turn, after one run of each to warm up."""
    runs = [make(name, dtype) for name in MODELS]
    for run in runs:
        run()
    times = [[seconds(run) for run in runs] for _ in range(repeats)]
    runs.clear()
    gc.collect()
    return [statistics.median(values) for values in zip(*times, strict=True)]


def peak_of_training(name: str, dtype: torch.dtype) -> float:
    """Peak GiB of two training steps; call it in a fresh process."""
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes on macOS, in KiB on Linux
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = make_training_step(name, dtype)
    step()
    step()
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit / 2**30


def peak_in_fresh_process(name: str, dtype: torch.dtype) -> float:
    command = [sys.executable, __file__, "--peak-of", name, "--dtypes", str(dtype).removeprefix("torch.")]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def row(what: str, dtype: str, values: list[float], unit: str) -> str:
    cells = [f"{value:.2f} {unit} ({value / values[0]:.2f})" for value in values]
    return " | ".join([f"| {what}", dtype, *cells]) + " |"


def table(dtypes: list[torch.dtype], repeats: int) -> str:
    lines = [f"| time or size (beside RoBERTa) | dtype | {' | '.join(MODELS)} |", "|" + "---|" * (2 + len(MODELS))]
    with torch.device("meta"):
        lines.append(row("parameters", "", [make_model(name).num_parameters() / 1e6 for name in MODELS], "M"))
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        lines.append(row("training step", name, medians(make_training_step, dtype, repeats), "s"))
        peaks = [peak_in_fresh_process(model, dtype) for model in MODELS]
        lines.append(row("training step, peak memory", name, peaks, "GiB"))
        lines.append(row("encoding", name, medians(make_inference, dtype, repeats), "s"))
    return "\n".join(lines)


def machine() -> str:
    if DEVICE == "cuda":
        return torch.cuda.get_device_name()
    return f"{torch.get_num_threads()} threads of {platform.machine()}, torch {torch.__version__}"


def update(card: Path, text: str) -> None:
    """Put the table between the card's benchmark marks."""
    begin, end = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"
    content = card.read_text()
    if begin not in content or end not in content:
        sys.exit(f"{card} has no marks {begin} and {end}")
    head, tail = content.split(begin)[0], content.split(end)[1]
    card.write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="+", choices=("bfloat16", "float32"), default=["bfloat16", "float32"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--update", type=Path, metavar="CARD", help="write the table into this model card")
    parser.add_argument("--peak-of", choices=MODELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    dtypes = [getattr(torch, name) for name in arguments.dtypes]
    if arguments.peak_of:
        print(peak_of_training(arguments.peak_of, dtypes[0]))
        return
    text = f"Batch {BATCH}, {TOKENS} tokens, {SENTENCE} a sentence; {machine()}.\n\n"
    text += table(dtypes, arguments.repeats)
    print(text)
    if arguments.update:
        update(arguments.update, text)


if __name__ == "__main__":
    main()
