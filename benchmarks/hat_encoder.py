"""Speed and memory of the encoder-only HAT beside RoBERTa, in one run.

    python benchmarks/hat_encoder.py                                       # all rows, minutes on 2 cores
    python benchmarks/hat_encoder.py --update model_cards/hat_encoder.md   # also write the table into the card

All models have the shape of `roberta-base`, take the same texts with the same markers and use SDPA. Their times are
taken in turn, and the median of each counts, so that a slow minute of the machine hurts all. Memory is the peak of a
process of its own, less what it had before the model was made. A GPU is used where there is one.
"""

import argparse
from pathlib import Path

import torch
from measuring import (
    DEVICE,
    Run,
    dtype_name,
    machine,
    medians,
    peak_in_fresh_process,
    peak_of_training,
    publish,
    training_step,
)
from transformers import PreTrainedModel, RobertaConfig, RobertaForMaskedLM

from hier_models import HatEncoderConfig, HatEncoderForMaskedLM


BATCH, TOKENS, SENTENCE = 8, 512, 25  # texts; tokens; mean tokens of a sentence
SHAPE = {"max_position_embeddings": TOKENS + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
QUERIES = {"HAT, all query": "all", "HAT, BOS query": "bos"}
MODELS = ("RoBERTa", *QUERIES)
HEADER = ("", "dtype", *MODELS)


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


def make_training_step(name: str, dtype: torch.dtype) -> Run:
    return training_step(make_model(name).to(DEVICE), make_batch(), dtype)


def make_inference(name: str, dtype: torch.dtype) -> Run:
    model, batch = make_model(name).base_model.to(DEVICE, dtype).eval(), make_batch()
    batch.pop("labels")

    @torch.no_grad()
    def infer() -> None:
        model(**batch)

    return infer


def row(what: str, dtype: torch.dtype | None, values: dict[str, float], unit: str) -> list[str]:
    cells = [f"{value:.2f} {unit} ({value / values['RoBERTa']:.2f})" for value in values.values()]
    return [what, dtype_name(dtype) if dtype else "", *cells]


def measure(dtypes: list[torch.dtype], repeats: int) -> list[list[str]]:
    with torch.device("meta"):
        sizes = {name: make_model(name).num_parameters() / 1e6 for name in MODELS}
    rows = [row("parameters", None, sizes, "M")]
    for dtype in dtypes:
        steps = {name: make_training_step(name, dtype) for name in MODELS}
        rows.append(row("training step, time", dtype, medians(steps, repeats), "s"))
        peaks = {name: peak_in_fresh_process(__file__, name, dtype) for name in MODELS}
        rows.append(row("training step, peak memory", dtype, peaks, "GiB"))
        runs = {name: make_inference(name, dtype) for name in MODELS}
        rows.append(row("encoding, time", dtype, medians(runs, repeats), "s"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="+", choices=("bfloat16", "float32"), default=["bfloat16", "float32"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--update", type=Path, metavar="CARD", help="write the table into this model card")
    parser.add_argument("--peak-of", choices=MODELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    dtypes = [getattr(torch, name) for name in arguments.dtypes]
    if arguments.peak_of:
        print(peak_of_training(lambda: make_training_step(arguments.peak_of, dtypes[0])))
        return
    setting = f"Batch {BATCH}, {TOKENS} tokens, {SENTENCE} a sentence; {machine()}; in brackets: times RoBERTa's."
    publish(arguments.update, setting, HEADER, lambda: measure(dtypes, arguments.repeats))


if __name__ == "__main__":
    main()
