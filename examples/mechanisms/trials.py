"""What the proofs of mechanisms share: training on batches that are made up, repeats over seeds, a table, a figure."""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from hier_models.experiments.tables import markdown


Batch = dict[str, torch.Tensor]


def train(
    model: torch.nn.Module,
    batches: Iterator[Batch],
    steps: int,
    learning_rate: float | None = None,
    groups: Sequence[dict[str, Any]] | None = None,
    watch: Callable[[int], bool] | None = None,
) -> list[float]:
    """Train a model that returns a loss, and give the loss of each step.

    AdamW after a tenth of warm-up (fused; the numbers in docs/results/mechanisms were made without); `groups` are its
    parameters with rates of their own; `watch` is called with the number of each step, from 1, and ends the training
    when it is True.
    """
    optimizer = torch.optim.AdamW(groups or model.parameters(), lr=learning_rate or 1e-3, fused=True)
    warm_up = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warm_up))
    losses = []
    model.train()
    for step in tqdm(range(1, steps + 1), leave=False, disable=None):
        loss = model(**next(batches)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if watch is not None and watch(step):
            break
    return losses


def repeat(trial: Callable[[int], dict[str, Any]], seeds: int, first: int = 0, **setting: Any) -> list[dict[str, Any]]:
    """One row for each seed: the setting, the seed, and what the trial found."""
    rows = []
    for seed in range(first, seeds):
        torch.manual_seed(seed)
        rows.append({**setting, "seed": seed, **trial(seed)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def table(rows: list[dict[str, Any]], by: Sequence[str], values: Sequence[str]) -> str:
    """Lay out the mean of each value over the seeds, with the least and the most, as Markdown."""
    groups = pd.DataFrame(rows).groupby(list(by), sort=False)
    lines = []
    for setting, own in groups:
        seen = {value: (own[value].mean(), own[value].min(), own[value].max()) for value in values}
        cells = {value: f"{mean:.2f} ({least:.2f} to {most:.2f})" for value, (mean, least, most) in seen.items()}
        lines.append({**dict(zip(by, map(str, setting), strict=True)), **cells})
    return markdown(pd.DataFrame(lines))


def figure(rows: list[dict[str, Any]], x: str, y: str, by: str, path: Path, chance: float | None = None) -> None:
    """Draw the mean of y over the seeds against x, a line for each value of `by`, between the least and the most."""
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for name, own in pd.DataFrame(rows).groupby(by, sort=False):
        spread = own.groupby(x)[y].agg(["mean", "min", "max"])
        (line,) = axes.plot(spread.index, spread["mean"], marker="o", label=str(name))
        axes.fill_between(spread.index, spread["min"], spread["max"], alpha=0.2, color=line.get_color())
    if chance is not None:
        axes.axhline(chance, linestyle=":", color="gray", label="chance")
    axes.set(xlabel=x, ylabel=y)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path)
    plt.close(drawn)


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that all proofs have; further ones may be added."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="how often each trial is repeated")
    parser.add_argument("--quick", action="store_true", help="the smallest form, in seconds, as the tests run it")
    parser.add_argument("--output", type=Path, default=Path("outputs/mechanisms"), help="where rows and figures go")
    return parser


def named_by(parser: argparse.ArgumentParser, given: argparse.Namespace, *others: str) -> str:
    """What stands in the names of a run's files, so that none replaces another's: the options that are no default.

    Args:
        parser: The options.
        given: What was given.
        *others: Options that say what is run, and not with which settings.

    Returns:
        Such as "_quick" or "_seeds_5_sentences_12-24"; nothing for a run without options.
    """
    others += ("output", *(["seeds"] if given.quick else []))  # the smallest form has one seed
    parts = ""
    for name, value in vars(given).items():
        default = parser.get_default(name)
        values, defaults = (list(own) if isinstance(own, list | tuple) else [own] for own in (value, default))
        if name not in others and values != defaults:
            parts += f"_{name}" if value is True else f"_{name}_{'-'.join(map(str, values))}"
    return parts.replace(" ", "-").replace(",", "")


def keep(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
