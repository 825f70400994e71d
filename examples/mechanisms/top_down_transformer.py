"""A needle across windows: what a token hears of a far place comes by way of the segments, and no other.

Documents of 96 made-up tokens: one of them, the needle, has a class, and each question must be tagged with it. A
tagger has no decoder that could pass the needle by. Its layers see a window of tokens, so that without segments a
question sees `layers * window / 2` tokens to each side, its field; "beyond" is accuracy over the questions whose
needle is farther.

    python examples/mechanisms/top_down_transformer.py

With --long, taggers that have learned on 96 tokens are grown to 16,384, as `from_bart` grows BART, and tested there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from trials import Batch, arguments, figure, keep, named_by, repeat, table, train

from hier_models import TopDownTransformerConfig, TopDownTransformerForTokenClassification


CLASSES = 9
QUESTION = CLASSES  # token ids: needles, the question, fillers
VOCABULARY = CLASSES + 1 + 16
LENGTH = 96
BATCH = 1536  # tokens
FARTHEST = (4, 8, 12, 16, 24, 32, 48, 64, LENGTH, 1024, 4096, 16384)  # bins of distances


def tagger(top_down_update: str, window: int, segment: int) -> TopDownTransformerForTokenClassification:
    """Make a tagger with one layer up and one down, of width 32; segments overlap by a quarter, as the paper's."""
    config = TopDownTransformerConfig(
        vocab_size=VOCABULARY,
        max_encoder_position_embeddings=LENGTH,
        d_model=32,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        bottom_up_layers=1,
        top_down_layers=1,
        segment_layers=1,
        attention_window=window,
        pooling_kernel=segment,
        pooling_stride=segment * 3 // 4,
        top_down_update=top_down_update,
        dropout=0.0,
        num_labels=CLASSES,
        init_std=0.1,
    )
    return TopDownTransformerForTokenClassification(config)


def field(config: TopDownTransformerConfig) -> int:
    """Tokens to each side that a token sees through the local layers alone."""
    return config.encoder_layers * config.attention_window // 2


def documents(size: int, length: int = LENGTH) -> tuple[Batch, torch.Tensor]:
    """Make documents, a quarter of them questions, and the distance of each token to the needle, (batch, tokens)."""
    ids = torch.randint(QUESTION + 1, VOCABULARY, (size, length))
    needle = torch.randint(length, (size, 1))
    distance = (torch.arange(length) - needle).abs()
    asked = (torch.rand(size, length) < 0.25) & (distance > 0)
    classes = torch.randint(CLASSES, (size, 1))
    ids = ids.masked_fill(asked, QUESTION).scatter(1, needle, classes)
    return {"input_ids": ids, "labels": classes.where(asked, -100)}, distance


def batches(size: int, length: int = LENGTH) -> Iterator[Batch]:
    """Make batches for training, without end."""
    while True:
        yield documents(size, length)[0]


@torch.no_grad()
def right(model: TopDownTransformerForTokenClassification, count: int, length: int = LENGTH) -> dict[str, Any]:
    """Accuracy over the questions of new documents: within the field, beyond it, and up to each of `FARTHEST`."""
    found, far = [], []
    for _ in range(count):
        batch, distance = documents(max(1, BATCH // length), length)
        asked = batch["labels"] >= 0
        found.append((model(**batch).logits.argmax(-1) == batch["labels"])[asked].float())
        far.append(distance[asked])
    is_right, distance = torch.cat(found), torch.cat(far)
    bins = torch.bucketize(distance, torch.tensor(FARTHEST))
    return {
        "within": is_right[distance <= field(model.config)].mean().item(),
        "beyond": is_right[distance > field(model.config)].mean().item(),
        "by_distance": {FARTHEST[number]: is_right[bins == number].mean().item() for number in bins.unique()},
    }


def learn(model: TopDownTransformerForTokenClassification, length: int, steps: int) -> int:
    """Train until all is right, or for so many steps, and give how many it took."""
    losses = train(
        model,
        batches(max(1, BATCH // length), length),
        steps,
        learning_rate=3e-3,
        watch=lambda step: step % 25 == 0 and right(model, 6, length)["beyond"] > 0.998,
    )
    return len(losses)


def trial(length: int, tested: int, steps: int, top_down_update: str, window: int, segment: int) -> dict[str, Any]:
    """Train a tagger on documents of a length, and test it on new ones, or grow it and test it on longer ones."""
    model = tagger(top_down_update, window, segment)
    taken = learn(model, length, steps)
    model.resize_position_embeddings(max(tested, LENGTH))
    return {"field": field(model.config), "steps": taken, **right(model, 32 if tested > BATCH else 16, tested)}


def main() -> None:
    """Run all trials, print their table, and draw accuracy by distance."""
    parser = arguments(__doc__)
    parser.add_argument("--long", action="store_true", help="test on documents of 16,384 tokens")
    given = parser.parse_args()
    if given.quick and given.long:
        parser.error("--quick is not with --long: the smallest form tests on short documents")
    length, tested, steps, seeds = LENGTH, LENGTH, 500, given.seeds
    settings = [
        *((update, 8, 8) for update in ("cross_attention", "concat", "none")),
        *(("none", window, 8) for window in (16, 32)),
        *(("cross_attention", 8, segment) for segment in (16, 32)),
    ]
    if given.quick:
        length, tested, steps, seeds = 32, 32, 250, 1
        settings = [("cross_attention", 8, 8), ("none", 8, 8)]
    elif given.long:
        tested = 16384
        settings = [("cross_attention", 8, 32)]
    rows = []
    for setting in settings:
        named = dict(zip(("top_down_update", "window", "segment"), setting, strict=True))
        rows += repeat(lambda seed, setting=setting: trial(length, tested, steps, *setting), seeds, **named)
    report(rows, given.output / f"top_down_transformer{named_by(parser, given)}")


def report(rows: list[dict[str, Any]], path: Path) -> None:
    """Print the table, and write rows and figure."""
    keep(rows, path.with_suffix(".jsonl"))
    print(table(rows, ("top_down_update", "window", "segment", "field"), ("within", "beyond")))
    x, y = "distance of the needle, in tokens", "accuracy"
    points = [
        {x: int(far), y: share, "tagger": f"{row['top_down_update']}, window {row['window']}"}
        for row in rows
        if row["segment"] == rows[0]["segment"]
        for far, share in row["by_distance"].items()
    ]
    figure(points, x, y, "tagger", path.with_suffix(".svg"), chance=1 / CLASSES)


if __name__ == "__main__":
    main()
