"""Lookups in k hops: can the levels of a hierarchical attention chain them, and do its weights find k by themselves?

    python examples/mechanisms/ham.py

The source is a table in which each of 25 symbols leads to another, around one ring in an order that is new for every
example, so that nothing can be learned by heart. Keys are the symbols' embeddings, values those of the symbols that
they lead to, and the query is a symbol's: what is asked for is the symbol k steps on. One level finds the next symbol
and knows nothing of those behind it; level i can find the one i steps on, since what a level found is the next query.

The twin's keys are its values, one state for each pair, as an encoder makes them: where all are about as long, the
best match of a state that was found is this state itself, so that no level gets any further than the first. One hop is
asked for too, which the twin can learn.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import trials
from torch import nn

from hier_models import HierarchicalAttention


LEVELS = 6
# model -> its levels (None: as many as hops), and whether its keys are its values
MODELS: dict[str, tuple[int | None, bool]] = {
    "1 level": (1, False),
    "as many levels as hops": (None, False),
    f"{LEVELS} levels": (LEVELS, False),
    f"{LEVELS} levels, keys are values": (LEVELS, True),
}


class Lookup(nn.Module):
    """Looks a symbol up in a table with a hierarchical attention of one head, and names what it found."""

    def __init__(self, symbols: int, depth: int, one_state: bool, width: int = 64):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.pair = nn.Linear(2 * width, width) if one_state else None
        self.attention = HierarchicalAttention(width, depth)
        self.output = nn.Linear(width, symbols)

    def forward(self, table: torch.Tensor, query: torch.Tensor, labels: torch.Tensor) -> Any:
        """Answer; `table[b, s]` is the symbol that s leads to."""
        value = self.embedding(table)  # (batch, symbols, width)
        key = self.embedding.weight.expand_as(value)
        if self.pair is not None:
            key = value = self.pair(torch.cat([key, value], dim=-1))
        found, _ = self.attention(self.embedding(query)[:, None], key, value)
        logits = self.output(found[:, 0])  # (batch, symbols)
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


def tables(symbols: int, hops: int, size: int) -> Iterator[trials.Batch]:
    """Make tables, each with a query and what is so many hops on."""
    while True:
        ring = torch.rand(size, symbols).argsort(dim=1)
        start = torch.randint(symbols, (size, 1))
        yield {
            "table": torch.empty_like(ring).scatter(1, ring, ring.roll(-1, dims=1)),
            "query": ring.gather(1, start)[:, 0],
            "labels": ring.gather(1, (start + hops) % symbols)[:, 0],
        }


def trial(model: str, hops: int, symbols: int, steps: int) -> dict[str, Any]:
    """Train one model, and test it on a thousand new tables."""
    depth, one_state = MODELS[model]
    lookup = Lookup(symbols, depth or hops, one_state)
    trials.train(lookup, tables(symbols, hops, 64), steps, learning_rate=3e-3)
    with torch.no_grad():
        test = next(tables(symbols, hops, 1000))
        right = lookup(**test).logits.argmax(dim=-1) == test["labels"]
    weights = lookup.attention.mixture.tolist()
    return {
        "right answers": right.float().mean().item(),
        "weight of level k": weights[hops - 1] if hops <= len(weights) else 0.0,
        "weights": weights,
    }


def main() -> None:
    parser = trials.arguments(__doc__ or "")
    arguments = parser.parse_args()
    name = f"ham{trials.named_by(parser, arguments)}"
    all_hops, symbols, steps, seeds = (1, 2, 3, 5), 25, 200, arguments.seeds
    if arguments.quick:
        all_hops, steps, seeds = (3,), 100, 1
    rows = []
    for hops in all_hops:
        for model in MODELS:

            def of_seed(seed: int, model: str = model, hops: int = hops) -> dict[str, Any]:
                return trial(model, hops, symbols, steps)

            rows += trials.repeat(of_seed, seeds, hops=hops, model=model)
    trials.keep(rows, arguments.output / f"{name}.jsonl")
    print(trials.table(rows, ("hops", "model"), ("right answers", "weight of level k")))
    picture = arguments.output / f"{name}.svg"
    trials.figure(rows, "hops", "right answers", "model", picture, chance=1 / (symbols - 1))


if __name__ == "__main__":
    main()
