"""Does HAT learn to translate documents from scratch sooner than its markers alone, or than neither?

Documents of made-up sentences, of three to five words each and a full stop. Each word is mapped to another, and a
sentence's words are reversed: what is to be learned is which sentence is next, and where in it the decoder is. "Steps"
is when 90 % of a new batch's tokens are right, given those before them; a run that ends before has learned it.

    python examples/mechanisms/hat_bart.py --sentences 6 12 24 48

The twins have one more encoder layer for the hierarchical one, and wider decoder blocks for its third attentions.
"""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from trials import Batch, arguments, keep, repeat, table, train

from hier_models import HatBartConfig, HatBartForConditionalGeneration


BOS, PAD, EOS, STOP = 0, 1, 2, 3
WORDS = range(STOP + 1, STOP + 17)
ENOUGH = 0.9
RATES = (1.5e-3, 3e-3, 6e-3)


def model_of(kind: str, sentences: int) -> HatBartForConditionalGeneration:
    """Make one of the three models, of width 32 and of as many parameters as the others, within a hundredth."""
    has_hierarchy, width = kind == "hat", 32
    config = HatBartConfig(
        vocab_size=100,  # more than there are
        max_position_embeddings=7 * sentences + 2,
        d_model=width,
        encoder_layers=1 if has_hierarchy else 2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64 if has_hierarchy else 64 + 2 * width,
        hierarchical_layers=1 if has_hierarchy else 0,
        dropout=0.0,
        init_std=0.1,
    )
    model = HatBartForConditionalGeneration(config)
    for part in (model.model.encoder, model.model.decoder):  # positions begin as sinusoids: places are learned sooner
        weight = part.embed_positions.weight
        angle = torch.arange(len(weight))[:, None] * 1000.0 ** (-torch.arange(0, width, 2) / width)
        weight.data = torch.cat([angle.sin(), angle.cos()], dim=1) / 2
    return model


def batch_of(size: int, sentences: int, marked: bool) -> Batch:
    """Make documents and their translations, with a marker before each sentence or without."""
    marker = [BOS] if marked else []
    sources, targets = [], []
    for _ in range(size):
        document = [random.choices(WORDS, k=random.randint(3, 5)) for _ in range(sentences)]
        sources.append([token for words in document for token in [*marker, *words, STOP]])
        translated = [[word + len(WORDS) for word in reversed(words)] for words in document]
        targets.append([token for words in translated for token in [*words, STOP]])
    rows = {
        "input_ids": (sources, PAD),
        "decoder_input_ids": ([[EOS, *target] for target in targets], PAD),
        "labels": ([[*target, EOS] for target in targets], -100),
    }
    batch = {
        name: pad_sequence([torch.tensor(row) for row in lists], batch_first=True, padding_value=padding)
        for name, (lists, padding) in rows.items()
    }
    return {**batch, "attention_mask": (batch["input_ids"] != PAD).long()}


def batches(kind: str, sentences: int) -> Iterator[Batch]:
    """Make batches of about a hundred sentences, without end."""
    while True:
        yield batch_of(max(1, 96 // sentences), sentences, marked=kind != "plain")


@torch.no_grad()
def right(model: HatBartForConditionalGeneration, batch: Batch) -> float:
    """Share of the tokens that are right when those before them are given."""
    labels = batch["labels"]
    return float((model(**batch).logits.argmax(-1) == labels)[labels >= 0].float().mean())


def trial(seed: int, kind: str, sentences: int, steps: int, learning_rate: float = 3e-3) -> dict[str, Any]:
    """Train one of the models until enough is right, or for so many steps."""
    random.seed(seed)
    model = model_of(kind, sentences)
    new = batches(kind, sentences)

    def is_enough(step: int) -> bool:
        return step % 50 == 0 and right(model, next(new)) >= ENOUGH

    taken = len(train(model, new, steps, learning_rate, watch=is_enough))
    accuracy = sum(right(model, next(new)) for _ in range(8)) / 8
    return {"steps": taken, "accuracy": accuracy, "learned": float(taken < steps)}


def main() -> None:
    """Run all trials and print their table."""
    parser = arguments(__doc__)
    parser.add_argument("--sentences", type=int, nargs="+", default=[6, 12, 24, 48], help="sentences of a document")
    given = parser.parse_args()
    lengths, rates, steps, seeds = (given.sentences, RATES, 4000, given.seeds)
    if given.quick:
        lengths, rates, steps, seeds = [2], RATES[1:2], 300, 1
    rows = []
    for sentences in lengths:
        for kind in ("hat", "markers", "plain"):
            run = partial(trial, kind=kind, sentences=sentences, steps=steps)
            # Each model has the rate with which its first seed is the soonest; other seeds then have the same.
            tried = {rate: repeat(partial(run, learning_rate=rate), 1, rate=rate) for rate in rates}
            best = min(tried, key=lambda rate: (tried[rate][0]["steps"], -tried[rate][0]["accuracy"]))
            others = repeat(partial(run, learning_rate=best), seeds, first=1, rate=best)
            rows += [{"model": kind, "sentences": sentences, **row} for row in (*tried[best], *others)]
            keep(rows, given.output / "hat_bart.jsonl")
    print(table(rows, ("model", "sentences", "rate"), ("steps", "learned", "accuracy")))


if __name__ == "__main__":
    main()
