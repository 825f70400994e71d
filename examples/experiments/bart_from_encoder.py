"""How the decoder of `bart_from_encoder` begins: losses of short trainings that differ in nothing else.

    python examples/experiments/bart_from_encoder.py --encoder MiniLM_FOLDER --data pairs.jsonl.xz

Pairs are JSON lines with `document` and `summary`. Decoder layers begin as the first, the last or evenly spaced
encoder layers, their attention to the source as those layers' self-attention or randomly. Order of the data, dropout
and random weights are the same in all trainings of one seed.
"""

import argparse
import json
import lzma
import random
import time

import torch

from hier_models import bart_from_encoder


SOURCE, TARGET, BATCH, LEARNING_RATE, WARM_UP, VALIDATION = 128, 40, 8, 2e-4, 20, 96


def read(path, tokenizer, most):
    """Ids of the first pairs of a file, cut."""
    pairs = []
    with lzma.open(path, "rt", encoding="utf-8") if path.endswith(".xz") else open(path, encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            cut = {"truncation": True}
            source = tokenizer(row["document"], max_length=SOURCE, **cut)["input_ids"]
            pairs.append((source, tokenizer(row["summary"], max_length=TARGET, **cut)["input_ids"]))
            if len(pairs) == most:
                break
    return pairs


def batch_of(pairs, tokenizer):
    """Pad pairs."""
    sources, targets = (
        tokenizer.pad({"input_ids": list(ids)}, return_tensors="pt") for ids in zip(*pairs, strict=True)
    )
    return {**sources, "labels": targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)}


@torch.no_grad()
def begin_decoder(model, layers, cross):
    """Begin the decoder as encoder layers of these numbers; `cross` as "self" or "random"."""
    for layer, number in zip(model.model.decoder.layers, layers, strict=True):
        source = model.model.encoder.layers[number]
        for name, part in source.named_children():
            if name != "activation_fn":
                getattr(layer, name).load_state_dict(part.state_dict())
        layer.encoder_attn.load_state_dict(source.self_attn.state_dict())
        layer.encoder_attn_layer_norm.load_state_dict(source.self_attn_layer_norm.state_dict())
        if cross == "random":
            layer.encoder_attn.apply(lambda part: draw(part, model.config.init_std))
            layer.encoder_attn_layer_norm.reset_parameters()


def draw(part, std):
    """Random weights, as BART's are before any training."""
    if isinstance(part, torch.nn.Linear):
        part.weight.normal_(std=std)
        part.bias.zero_()


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
    losses = {0: loss_of(model, validation)} if 0 in at else {}
    for step, batch in enumerate(batches, 1):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1, step / WARM_UP)
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
    parser.add_argument("--at", type=int, nargs="+", default=[0, 50, 100, 150], help="steps to validate at")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--begin", nargs="+", default=["first", "last", "even"])
    parser.add_argument("--cross", nargs="+", default=["self", "random"])
    arguments = parser.parse_args()
    count, steps = arguments.decoder_layers, max(arguments.at)
    _, tokenizer = bart_from_encoder(arguments.encoder, decoder_layers=count)
    pairs = read(arguments.data, tokenizer, VALIDATION + BATCH * steps)
    cut = [batch_of(pairs[i : i + BATCH], tokenizer) for i in range(0, VALIDATION, BATCH)]
    for begin in arguments.begin:
        for cross in arguments.cross:
            for seed in arguments.seeds:
                torch.manual_seed(seed)
                model, _ = bart_from_encoder(arguments.encoder, decoder_layers=count)
                total = model.config.encoder_layers
                even = [round(i * (total - 1) / max(1, count - 1)) for i in range(count)]
                layers = {"first": range(count), "last": range(total - count, total), "even": even}[begin]
                begin_decoder(model, layers, cross)
                rows = random.Random(seed).sample(pairs[VALIDATION:], BATCH * steps)
                batches = (batch_of(rows[i : i + BATCH], tokenizer) for i in range(0, len(rows), BATCH))
                start = time.process_time()
                losses = train(model, batches, cut, arguments.at)
                print(
                    f"{begin} {list(layers)} cross {cross} seed {seed}: "
                    + ", ".join(f"{loss:.3f} at {step}" for step, loss in losses.items())
                    + f" ({time.process_time() - start:.0f} s)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
