"""Speed and memory of HAT-BART beside plain BART, and of its processor beside the tokenizer, in one run.

    python benchmarks/hat_bart.py                                  # all rows, about 40 minutes on 2 cores
    python benchmarks/hat_bart.py --rows training --dtypes bfloat16
    python benchmarks/hat_bart.py --rows tokens --dtypes bfloat16  # training in one and in two processes, by gloo
    python benchmarks/hat_bart.py --update model_cards/hat_bart.md # also write the rows into the card's table

Both models have the same shape (6+6 layers, d 768, 12 heads), take the same documents and use SDPA. Times of the two
are taken in turn, and the median of each counts, so that a slow minute of the machine hurts both. Memory is the peak
of a process of its own, less what it had before the model was made. A GPU is used where there is one.

Tokens a second, of source and target, are those of a training step of mini as it is (copy head, 12 documents) and of
the shape of bart-base (4 documents), beside a BART of that shape: in one process with all threads, and in two of DDP
with half of them and a batch each. Medians of rounds in turn, with the least and the most in brackets.
"""

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import (
    DEVICE,
    Run,
    dtype_name,
    machine,
    medians,
    peak_in_fresh_process,
    peak_of_training,
    prepare,
    publish,
    rounds,
    spread,
    together,
    training_step,
)
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
# Of tokens a second: documents, tokens of source and target.
BATCHES = {"mini": (12, 256, 56), "base": (BATCH, 1024, 128)}
ROWS = ("sizes", "import", "processor", "training", "tokens", "generation")
MODELS = ("BART", "HAT-BART")
HEADER = ("", "dtype", "BART", "HAT-BART", "ratio", "aim: at most")


def make_model(name: str, size: str = "base", attention_dropout: float = 0.0) -> PreTrainedModel:
    torch.manual_seed(0)
    shape = {**(SHAPE if size == "base" else mini_shape()), "attention_dropout": attention_dropout}
    if name == "BART":
        return BartForConditionalGeneration(BartConfig(**shape)).to(DEVICE)
    config = HatBartConfig(**shape) if size == "base" else HatBartConfig.from_pretrained(hier_models.MINI)
    return HatBartForConditionalGeneration(config).to(DEVICE)


def mini_shape() -> dict[str, object]:
    mini = HatBartConfig.from_pretrained(hier_models.MINI).to_dict()
    ids = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    return {"attn_implementation": "sdpa"} | {key: mini[key] for key in (*SHAPE, *ids) if key in mini}


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


def make_batch(
    documents: int = BATCH,
    source_tokens: int = SOURCE,
    target_tokens: int = TARGET,
    vocabulary: int = 50265,
    bos: int = 0,
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(5, vocabulary, (documents, source_tokens), generator=generator)
    source[torch.rand(source.shape, generator=generator) < 1 / SENTENCE] = bos
    source[:, 0] = bos
    batch = {
        "input_ids": source,
        "attention_mask": torch.ones_like(source),
        "labels": torch.randint(5, vocabulary, (documents, target_tokens), generator=generator),
    }
    return {name: tensor.to(DEVICE) for name, tensor in batch.items()}


def make_training_step(name: str, dtype: torch.dtype, attention_dropout: float = 0.0) -> Run:
    # BART that drops attention weights keeps all of them: of four documents, more than 20 GiB.
    batch = make_batch(1 if attention_dropout else BATCH)
    return training_step(make_model(name, attention_dropout=attention_dropout), batch, dtype)


def make_generation(name: str, dtype: torch.dtype, num_beams: int, new_tokens: int) -> Run:
    model, batch = make_model(name).eval().to(dtype), make_batch()
    batch.pop("labels")
    settings = {"num_beams": num_beams, "max_new_tokens": new_tokens, "min_new_tokens": new_tokens}
    return lambda: model.generate(**batch, **settings, do_sample=False)


def training_rows(dtypes: list[torch.dtype], repeats: int) -> list[list[str]]:
    rows = []
    for dtype in dtypes:
        times = medians({name: make_training_step(name, dtype) for name in MODELS}, repeats)
        peaks = {name: peak_in_fresh_process(__file__, name, dtype) for name in times}
        rows.append(row("training step, time", dtype, times, "s", 1.10))
        of_dropout = medians({name: make_training_step(name, dtype, 0.1) for name in MODELS}, repeats)
        what = "training step of one document, a tenth of attention weights dropped, time"
        rows.append(row(what, dtype, of_dropout, "s", 1.10))
        rows.append(row("training step, peak memory", dtype, peaks, "GiB", 1.10))
    return rows


def make_shared_step(name: str, size: str, dtype: torch.dtype, rank: int, processes: int, meeting: str) -> Run:
    """A training step of one of some processes."""
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    model = make_model(name, size)
    batch = make_batch(*BATCHES[size], model.config.vocab_size, model.config.bos_token_id)
    if processes == 1:
        return training_step(model, batch, dtype)
    torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=processes)
    return training_step(torch.nn.parallel.DistributedDataParallel(model), batch, dtype)


def token_rows(dtypes: list[torch.dtype], repeats: int) -> list[list[str]]:
    rows = []
    for dtype in dtypes:
        for size, (documents, source, target) in BATCHES.items():
            for processes in (1, 2):
                tokens = processes * documents * (source + target)
                costs = shared_costs(size, dtype, processes, repeats)
                for kind, what in enumerate(("tokens / s of processor", "tokens / s")):
                    speed = [tokens / costs[name][:, kind] for name in MODELS]
                    cells = [*(spread(values, 0) for values in speed), spread(speed[1] / speed[0], 2), ""]
                    shape = f"{size}, {documents} x {source} + {target}"
                    count = "1 process" if processes == 1 else f"{processes} processes"
                    rows.append([f"training, {shape}, {count}, {what}", dtype_name(dtype), *cells])
                    print(*rows[-1], sep=" | ", file=sys.stderr)  # so that a run broken off is not lost
    return rows


def shared_costs(size: str, dtype: torch.dtype, processes: int, repeats: int) -> dict[str, np.ndarray]:
    """What steps of the models cost, each in so many processes."""
    context, runs = multiprocessing.get_context("spawn"), {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for name in MODELS:
            workers = [stack.enter_context(ProcessPoolExecutor(1, context)) for _ in range(processes)]
            shared = (processes, f"{folder}/{name}")
            made = [
                worker.submit(prepare, make_shared_step, name, size, dtype, rank, *shared)
                for rank, worker in enumerate(workers)
            ]
            for future in made:
                future.result()
            runs[name] = partial(together, workers)
        return rounds(runs, repeats)


def generation_rows(dtypes: list[torch.dtype], repeats: int, new_tokens: int) -> list[list[str]]:
    rows = []
    for dtype in dtypes:
        for num_beams in (1, 4):
            runs = {name: make_generation(name, dtype, num_beams, new_tokens) for name in MODELS}
            times = medians(runs, repeats)
            what = f"generation of {new_tokens} tokens, {num_beams} beam{'s' if num_beams > 1 else ''}"
            rows.append(row(what, dtype, times, "s", 1.20))
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
    [what, kind, *cells, ratio, aim] = row(
        f"processor on {len(papers)} papers beside its tokenizer", None, times, "s", 1.5
    )
    # Not in the first cell, which tells the row from others.
    cells = [
        f"{cell} ({characters / times[name] / 1e6:.2f} M characters/s)"
        for name, cell in zip(MODELS, cells, strict=True)
    ]
    return [[what, kind, *cells, ratio, aim]]


def import_rows(repeats: int) -> list[list[str]]:
    def run(code: str) -> Run:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    runs = {"BART": run("import transformers"), "HAT-BART": run("import transformers, hier_models")}
    times = medians(runs, max(repeats, 5))
    added = times["HAT-BART"] - times["BART"]
    cells = [f"{times[name]:.2f} s" for name in MODELS]
    return [["import beside `import transformers`", "", *cells, f"+{added:.2f} s", "+0.50 s"]]


def row(what: str, dtype: torch.dtype | None, values: dict[str, float], unit: str, limit: float | None) -> list[str]:
    kind = dtype_name(dtype) if dtype else ""
    ratio = values["HAT-BART"] / values["BART"]
    cells = [f"{values[name]:.2f} {unit}" for name in MODELS]
    return [what, kind, *cells, f"{ratio:.2f}", f"{limit:.2f}" if limit else ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--dtypes", nargs="+", choices=("bfloat16", "float32"), default=["bfloat16", "float32"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=TARGET, help="tokens to generate")
    parser.add_argument("--update", type=Path, metavar="CARD", help="write the table into this model card")
    parser.add_argument("--peak-of", choices=MODELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    dtypes = [getattr(torch, name) for name in arguments.dtypes]
    if arguments.peak_of:
        print(peak_of_training(lambda: make_training_step(arguments.peak_of, dtypes[0])))
        return

    makers: dict[str, Callable[[], list[list[str]]]] = {
        "sizes": size_rows,
        "import": lambda: import_rows(arguments.repeats),
        "processor": lambda: processor_rows(arguments.repeats),
        "training": lambda: training_rows(dtypes, arguments.repeats),
        "tokens": lambda: token_rows(dtypes, arguments.repeats),
        "generation": lambda: generation_rows(dtypes, arguments.repeats, arguments.new_tokens),
    }

    def measure() -> list[list[str]]:
        rows = []
        for name in ROWS:
            if name in arguments.rows:
                print(f"measuring {name} …", file=sys.stderr)
                rows += makers[name]()
        return rows

    setting = f"Batch {BATCH}, source {SOURCE}, target {TARGET} tokens; {machine()}."
    publish(arguments.update, setting, HEADER, measure)


if __name__ == "__main__":
    main()
