"""Speed and memory of HAT-BART beside plain BART, and of its processor beside the tokenizer, in one run.

    python benchmarks/hat_bart.py                                  # all rows, about 25 minutes on 2 cores
    python benchmarks/hat_bart.py --rows training --dtypes bfloat16
    python benchmarks/hat_bart.py --update model_cards/hat_bart.md # also write the table into the card

Both models have the same shape (6+6 layers, d 768, 12 heads), take the same documents and use SDPA. Times of the two
are taken in turn, and the median of each counts, so that a slow minute of the machine hurts both. Memory is the peak
of a process of its own, less what it had before the model was made. A GPU is used where there is one.
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
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedModel

import hier_models
from hier_models import HatBartConfig, HatBartForConditionalGeneration


BATCH, SOURCE, TARGET, SENTENCE = 4, 3072, 512, 25  # documents; tokens; tokens; mean tokens of a sentence
SHAPE = {
    "max_position_embeddings": SOURCE,
    "d_model": 768,
    "encoder_layers": 6,
    "encoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_layers": 6,
    "decoder_attention_heads": 12,
    "decoder_ffn_dim": 3072,
    "attn_implementation": "sdpa",
}
ROWS = ("sizes", "import", "processor", "training", "generation")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_model(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    if name == "BART":
        return BartForConditionalGeneration(BartConfig(**SHAPE)).to(DEVICE)
    return HatBartForConditionalGeneration(HatBartConfig(**SHAPE)).to(DEVICE)


def size_rows() -> list[list[str]]:
    rows = []
    for name, shape in (("base", SHAPE), ("large", {**BartConfig().to_dict(), "max_position_embeddings": SOURCE})):
        shape = {key: value for key, value in shape.items() if key != "model_type"}
        with torch.device("meta"):
            models = {
                "BART": BartForConditionalGeneration(BartConfig(**shape)),
                "HAT-BART": HatBartForConditionalGeneration(HatBartConfig(**shape)),
            }
        sizes = {key: model.num_parameters() / 1e6 for key, model in models.items()}
        rows.append(row(f"parameters, {name} shape, {SOURCE} positions", None, sizes, "M", None))
    return rows


def make_batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(5, 50265, (BATCH, SOURCE), generator=generator)
    source[torch.rand(BATCH, SOURCE, generator=generator) < 1 / SENTENCE] = 0
    source[:, 0] = 0
    batch = {
        "input_ids": source,
        "attention_mask": torch.ones_like(source),
        "labels": torch.randint(5, 50265, (BATCH, TARGET), generator=generator),
    }
    return {name: tensor.to(DEVICE) for name, tensor in batch.items()}


def make_training_step(name: str, dtype: torch.dtype) -> Callable[[], None]:
    model, batch = make_model(name).train(), make_batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        with torch.autocast(DEVICE, dtype=dtype, enabled=dtype != torch.float32):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def make_generation(name: str, dtype: torch.dtype, num_beams: int, new_tokens: int) -> Callable[[], None]:
    model, batch = make_model(name).eval().to(dtype), make_batch()
    batch.pop("labels")
    settings = {"num_beams": num_beams, "max_new_tokens": new_tokens, "min_new_tokens": new_tokens}
    return lambda: model.generate(**batch, **settings, do_sample=False)


def seconds(run: Callable[[], object]) -> float:
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def medians(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time the runs in turn, after one of each to warm up."""
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(seconds(run))
    return {name: statistics.median(values) for name, values in times.items()}


def peak_of_training(name: str, dtype: torch.dtype) -> int:
    """Peak bytes of two training steps; call it in a fresh process."""
    if DEVICE == "cuda":
        step = make_training_step(name, dtype)
        step()
        step()
        return torch.cuda.max_memory_allocated()
    before = peak_so_far()
    step = make_training_step(name, dtype)
    step()
    step()
    return peak_so_far() - before


def peak_so_far() -> int:
    """Peak bytes of this process."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not ru_maxrss: on Linux a process inherits that of the one that started it.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def peak_in_fresh_process(name: str, dtype: torch.dtype) -> int:
    command = [sys.executable, __file__, "--peak-of", name, "--dtypes", str(dtype).removeprefix("torch.")]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def training_rows(dtypes: list[torch.dtype], repeats: int) -> list[list[str]]:
    rows = []
    for dtype in dtypes:
        steps = {name: make_training_step(name, dtype) for name in ("BART", "HAT-BART")}
        times = medians(steps, repeats)
        steps.clear()
        gc.collect()
        peaks = {name: peak_in_fresh_process(name, dtype) / 2**30 for name in times}
        rows.append(row("training step, time", dtype, times, "s", 1.10))
        rows.append(row("training step, peak memory", dtype, peaks, "GiB", 1.10))
    return rows


def generation_rows(dtypes: list[torch.dtype], repeats: int, new_tokens: int) -> list[list[str]]:
    rows = []
    for dtype in dtypes:
        for num_beams in (1, 4):
            runs = {name: make_generation(name, dtype, num_beams, new_tokens) for name in ("BART", "HAT-BART")}
            times = medians(runs, repeats)
            what = f"generation of {new_tokens} tokens, {num_beams} beam{'s' if num_beams > 1 else ''}"
            rows.append(row(what, dtype, times, "s", 1.20))
            runs.clear()
            gc.collect()
    return rows


def processor_rows(repeats: int) -> list[list[str]]:
    import importlib.util
    import os

    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    if importlib.util.find_spec("aclsum") is None:
        sys.exit('The papers for the processor come with the demo: pip install "hier_models[demo]"')
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    from aclsum import ACLSum

    papers = [" ".join(document.get_all_sentences()) for document in ACLSum("train")]
    backend = ByteLevelBPETokenizer()
    backend.train_from_iterator(papers, vocab_size=30000, special_tokens=["<s>", "<pad>", "</s>"], show_progress=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend._tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>"
    )
    processor = hier_models.HatBartProcessor(tokenizer)
    characters = sum(map(len, papers))
    runs = {"BART": lambda: tokenizer(papers), "HAT-BART": lambda: processor(text=papers)}
    times = medians(runs, max(repeats, 5))
    speed = {name: characters / value / 1e6 for name, value in times.items()}
    what = f"processor on {len(papers)} papers ({speed['HAT-BART']:.2f} M characters/s) beside its tokenizer"
    return [row(what, None, times, "s", 1.5)]


def import_rows(repeats: int) -> list[list[str]]:
    def run(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    runs = {"BART": run("import transformers"), "HAT-BART": run("import transformers, hier_models")}
    times = medians(runs, max(repeats, 5))
    added = times["HAT-BART"] - times["BART"]
    cells = [f"{times[name]:.2f} s" for name in ("BART", "HAT-BART")]
    return [["import beside `import transformers`", "", *cells, f"+{added:.2f} s", "+0.50 s"]]


def row(what: str, dtype: torch.dtype | None, values: dict[str, float], unit: str, limit: float | None) -> list[str]:
    kind = str(dtype).removeprefix("torch.") if dtype else ""
    ratio = values["HAT-BART"] / values["BART"]
    cells = [f"{values[name]:.2f} {unit}" for name in ("BART", "HAT-BART")]
    return [what, kind, *cells, f"{ratio:.2f}", f"{limit:.2f}" if limit else ""]


def table(rows: list[list[str]]) -> str:
    header = ["", "dtype", "BART", "HAT-BART", "ratio", "aim: at most"]
    lines = ["| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *rows]]
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
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--dtypes", nargs="+", choices=("bfloat16", "float32"), default=["bfloat16", "float32"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=TARGET, help="tokens to generate")
    parser.add_argument("--update", type=Path, metavar="CARD", help="write the table into this model card")
    parser.add_argument("--peak-of", choices=("BART", "HAT-BART"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    dtypes = [getattr(torch, name) for name in arguments.dtypes]
    if arguments.peak_of:
        print(peak_of_training(arguments.peak_of, dtypes[0]))
        return

    makers: dict[str, Callable[[], list[list[str]]]] = {
        "sizes": size_rows,
        "import": lambda: import_rows(arguments.repeats),
        "processor": lambda: processor_rows(arguments.repeats),
        "training": lambda: training_rows(dtypes, arguments.repeats),
        "generation": lambda: generation_rows(dtypes, arguments.repeats, arguments.new_tokens),
    }
    rows = []
    for name in ROWS:
        if name in arguments.rows:
            print(f"measuring {name} …", file=sys.stderr)
            rows += makers[name]()
    text = f"Batch {BATCH}, source {SOURCE}, target {TARGET} tokens; {machine()}.\n\n{table(rows)}"
    print(text)
    if arguments.update:
        update(arguments.update, text)


if __name__ == "__main__":
    main()
