"""How the decoder of `bart_from_encoder` begins: losses of short trainings that differ in nothing else.

    python examples/experiments/bart_from_encoder.py --encoder MiniLM_FOLDER --data pairs.jsonl.xz

Pairs are JSON lines with `document` and `summary`. Decoder layers begin as the first, the last or evenly spaced
encoder layers, their attention to the source as those layers' self-attention or randomly. The data, and their order,
are the same in all trainings of a seed.
"""

import argparse
import json
import lzma
import random
import time
from itertools import islice

import torch

from hier_models import bart_from_encoder


SOURCE, TARGET, BATCH, TRAIN, VALIDATION = 128, 40, 8, 1600, 96  # tokens, tokens, and pairs
LEARNING_RATE, WARM_UP = 2e-4, 20


def read(path):
    """The first pairs of a file."""
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, VALIDATION + TRAIN)]


def tokenized(rows, tokenizer):
    """Pairs as token ids, cut."""
    lengths = {"document": SOURCE, "summary": TARGET}
    return [
        [tokenizer(row[name], truncation=True, max_length=most)["input_ids"] for name, most in lengths.items()]
        for row in rows
    ]


def batches_of(pairs, tokenizer):
    """Pad pairs."""
    for i in range(0, len(pairs), BATCH):
        sources, targets = (
            tokenizer.pad({"input_ids": list(ids)}, return_tensors="pt")
            for ids in zip(*pairs[i : i + BATCH], strict=True)
        )
        yield {**sources, "labels": targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)}


@torch.no_grad()
def begin_decoder(model, layers, cross):
    """Begin the decoder as encoder layers of these numbers; attention to the source as "self" or "random"."""
    for layer, number in zip(model.model.decoder.layers, layers, strict=True):
        source = model.model.encoder.layers[number]
        for name in ("self_attn", "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"):
            getattr(layer, name).load_state_dict(getattr(source, name).state_dict())
        layer.encoder_attn.load_state_dict(source.self_attn.state_dict())
        layer.encoder_attn_layer_norm.load_state_dict(source.self_attn_layer_norm.state_dict())
        if cross == "random":
            for name, part in layer.encoder_attn.named_parameters():
                part.normal_(std=model.config.init_std) if name.endswith("weight") else part.zero_()
            layer.encoder_attn_layer_norm.reset_parameters()


@torch.no_grad()
def loss_of(model, batches):
    """Mean loss of a target token."""
    model.eval()
    losses = [(model(**batch).loss.item(), (batch["labels"] != -100).sum().item()) for batch in batches]
    model.train()
    return sum(loss * tokens for loss, tokens in losses) / sum(tokens for _, tokens in losses)


def train(model, batches, validation, at):
    """Train; the losses at some steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    losses = {0: loss_of(model, validation)}
    for step, batch in enumerate(batches, 1):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(1, step / WARM_UP)
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step in at:
            losses[step] = loss_of(model, validation)
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--decoder_layers", type=int, default=3)
    parser.add_argument("--at", type=int, nargs="+", default=[50, 100], help="steps to validate at")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--begin", nargs="+", default=["first", "last", "even"])
    parser.add_argument("--cross", nargs="+", default=["self", "random"])
    arguments = parser.parse_args()
    # At the start: a training without the steps that are asked for would end as if nothing were missing.
    if not 0 <= min(arguments.at) <= max(arguments.at) <= TRAIN // BATCH:
        parser.error(f"--at: trainings have {TRAIN // BATCH} steps ({TRAIN} pairs, {BATCH} a step)")
    read_pairs = read(arguments.data)
    if (number := len(read_pairs)) < VALIDATION + TRAIN:
        parser.error(f"--data: {number} pairs, and {VALIDATION + TRAIN} are needed ({VALIDATION} to validate on)")
    runs = [(b, c, s) for b in arguments.begin for c in arguments.cross for s in arguments.seeds]
    for begin, cross, seed in runs:
        start = time.process_time()
        torch.manual_seed(seed)
        model, tokenizer = bart_from_encoder(arguments.encoder, decoder_layers=arguments.decoder_layers)
        total, count = model.config.encoder_layers, model.config.decoder_layers
        even = [round(i * (total - 1) / max(1, count - 1)) for i in range(count)]
        begin_decoder(model, {"first": range(count), "last": range(total - count, total), "even": even}[begin], cross)
        pairs = tokenized(read_pairs, tokenizer)
        validation = list(batches_of(pairs[:VALIDATION], tokenizer))
        rows = random.Random(seed).sample(pairs[VALIDATION:], TRAIN)[: BATCH * max(arguments.at)]
        losses = train(model, batches_of(rows, tokenizer), validation, arguments.at)
        shown = ", ".join(f"{loss:.3f} at {step}" for step, loss in losses.items())
        for batch in validation:  # where the loss is no higher with others' sources, a model does not read
            batch |= {name: batch[name].roll(1, 0) for name in ("input_ids", "attention_mask")}
        other = loss_of(model, validation)
        seconds = time.process_time() - start
        print(
            f"{begin}, {cross}, seed {seed}: {shown}, {other:.3f} with others' sources ({seconds:.0f} s)", flush=True
        )


if __name__ == "__main__":
    main()
