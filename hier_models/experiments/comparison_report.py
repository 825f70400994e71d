"""The report of a comparison: what its finished runs found, as tables, results and learning curves.

In the order of the work: reading the runs, summing them up, writing tables, writing curves.
"""

from __future__ import annotations

import json
import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from transformers.trainer import TRAINER_STATE_NAME

from ..inspection.pages import require_matplotlib
from ..metrics.document_scores import CONFIDENCE, DRAWS, DocumentScores, paired_bootstrap
from ..training.evaluation import write_json
from ..training.likelihood import READS
from ..training.tasks import PREDICTIONS_FILE, SCORES_FILE
from .comparison_examples import write_examples
from .comparison_settings import Comparison
from .tables import fill_in, has_diverged, made_longer, write_csv


logger = logging.getLogger(__name__)

# Variant -> seed -> what its run found.
Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]
# A training that its last third made better by so large a share was too short; falling rates alone make it a little.
IMPROVING = 0.02
MEMORY = {
    "CUDA": "what tensors took on the GPU",
    "resident": "the process' resident memory during the run, with Python and the libraries",
    "process": "the process' resident memory so far, of all its runs",
}
# What tells whether a model reads: a score, the same with another's source or question, and whether higher is better.
SOURCE_CHECKS = (("perplexity", "perplexity_of_another_source", False), ("f1", "f1_of_another_question", True))


def write_report(
    folder: Path, comparison: Comparison, twins: Mapping[str, str], runs: Runs, command: str, overlap: str
) -> dict[str, Any]:
    """Write what the finished runs of a comparison show."""
    scores = {
        name: {seed: DocumentScores.load(_folder(folder, name, seed) / SCORES_FILE) for seed in of_seeds}
        for name, of_seeds in runs.items()
    }
    curves = {
        name: {seed: _curve(_folder(folder, name, seed), run) for seed, run in of_seeds.items()}
        for name, of_seeds in runs.items()
    }
    variants = {name: _summary(comparison, name, twins, runs, scores, curves) for name, own in runs.items() if own}
    ended = {name: _ended(folder, name, set(comparison.seeds) - set(of_seeds)) for name, of_seeds in runs.items()}
    drawn = {name: curves[name] | ended[name] for name in runs}
    diverged = {
        name: sorted([*of_seeds, *variants.get(name, {}).get("diverged", [])]) for name, of_seeds in ended.items()
    }
    results = {
        "question": comparison.question,
        "command": command,
        "seeds": list(comparison.seeds),
        "finished_runs": sum(map(len, runs.values())),
        "runs": len(runs) * len(comparison.seeds),
        "interval": {"confidence": CONFIDENCE, "draws": DRAWS, "over": "test documents, paired"},
        "differs": dict(comparison.differs),
        "overlap": overlap,
        "diverged": {name: of_seeds for name, of_seeds in diverged.items() if of_seeds},
        "variants": variants,
        "made_by": _made_by(runs),
    }
    table = _table(comparison, results)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", results)
    (folder / "table.md").write_text(table + "\n", encoding="utf-8")
    write_csv(folder / "table.csv", [_row(name, found) for name, found in variants.items()])
    losses = [
        {"variant": name, "seed": seed, "part": part, "step": step, "loss": loss}
        for name, of_seeds in drawn.items()
        for seed, curve in of_seeds.items()
        for part in ("train", "validation")
        for step, loss in curve[part].items()
    ]
    write_csv(folder / "curves.csv", losses)
    _write_examples(folder, comparison, scores)
    try:
        draw_curves(folder / "learning_curves.png", comparison.question, drawn)
    except ImportError as error:
        logger.warning("no learning_curves.png: %s", error)
    return {"results": results, "table": table}


def _write_examples(folder: Path, comparison: Comparison, scores: Mapping[str, Mapping[int, DocumentScores]]) -> None:
    """What the models of the first seed wrote, as far as they are trained."""
    seed = comparison.seeds[0]
    done = {name: of_seeds[seed] for name, of_seeds in scores.items() if seed in of_seeds}
    metrics = [metric for metric in comparison.metrics if all(metric in found.metrics for found in done.values())]
    if done and metrics:
        files = {name: _folder(folder, name, seed) / PREDICTIONS_FILE for name in done}
        write_examples(folder / "examples.md", comparison.question, metrics[0], seed, done, files)


# Reading the runs


def _folder(folder: Path, variant: str, seed: int) -> Path:
    return folder / variant / f"seed_{seed}"


def _metric_of_best(training: Mapping[str, Any]) -> str:
    return str(training.get("metric_for_best_model") or "loss").removeprefix("eval_")


def _scored(runs: Mapping[int, Mapping[str, Any]], curves: Mapping[int, Mapping[str, Any]]) -> str:
    """Which model of a variant's runs was scored."""
    training = next(iter(runs.values()))["recipe"]["training"]
    if training["load_best_model_at_end"] and all(curve["best_step"] is not None for curve in curves.values()):
        return f"the model with the best validation {_metric_of_best(training)}"
    return "the last model"


def _curve(folder: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """The losses of a run by its steps, and which evaluation was the best."""
    training, history = run["recipe"]["training"], _history(folder)
    name = _metric_of_best(training)
    scored = {entry["step"]: entry[f"eval_{name}"] for entry in history if f"eval_{name}" in entry}
    found = {step: score for step, score in scored.items() if math.isfinite(score)}
    better = max if training.get("greater_is_better") else min  # a recipe that names no metric has the loss
    steps = max((entry["step"] for entry in history), default=0)
    best = better(found, key=lambda step: found[step]) if found else None
    before = [value for step, value in found.items() if step <= steps * 2 / 3]
    is_last = bool(before) and best == max(found)
    improves = is_last and abs(found[best] - better(before)) > IMPROVING * abs(better(before))
    return {
        **_losses(history),
        "steps": steps,
        "best_step": best,
        "still_improving": improves,
        "is_sound": _is_sound(history),
    }


def _history(folder: Path) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = json.loads((folder / TRAINER_STATE_NAME).read_text("utf-8"))["log_history"]
    return history


def _losses(history: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    parts = (("train", "loss"), ("validation", "eval_loss"))
    return {part: {entry["step"]: entry[key] for entry in history if key in entry} for part, key in parts}


def _ended(folder: Path, variant: str, unfinished: set[int]) -> dict[int, dict[str, Any]]:
    """The curves of the runs that were ended because they diverged."""
    files = {seed: _folder(folder, variant, seed) for seed in sorted(unfinished)}
    histories = {seed: _history(file) for seed, file in files.items() if (file / TRAINER_STATE_NAME).is_file()}
    return {seed: _losses(history) for seed, history in histories.items() if not _is_sound(history)}


def _is_sound(history: Sequence[Mapping[str, Any]]) -> bool:
    losses = (entry[key] for entry in history for key in ("loss", "train_loss", "eval_loss") if key in entry)
    return all(map(math.isfinite, losses))


def _made_by(runs: Runs) -> list[dict[str, Any]]:
    """On what and by which code and libraries the runs were made; one entry if it was the same for all."""
    made = [run["machine"] | run["code"] | run["versions"] for of_seeds in runs.values() for run in of_seeds.values()]
    return [entry for number, entry in enumerate(made) if entry not in made[:number]]


# Summing them up


def _summary(
    comparison: Comparison,
    name: str,
    twins: Mapping[str, str],
    runs: Runs,
    scores: Mapping[str, Mapping[int, DocumentScores]],
    curves: Mapping[str, Mapping[int, Mapping[str, Any]]],
) -> dict[str, Any]:
    own, costs = runs[name], [run["cost"] for run in runs[name].values()]
    seeds, twin = list(own), twins.get(name)
    both = [] if twin is None else [seed for seed in seeds if seed in runs[twin]]
    metrics: dict[str, Any] = {}
    for metric in comparison.metrics:
        if not all(metric in scores[name][seed].metrics for seed in seeds):
            continue  # such as those of a length of lines that the test poems do not have
        values = {seed: own[seed]["test"][metric] for seed in seeds}
        metrics[metric] = {
            "mean": statistics.fmean(values.values()),
            "standard_deviation": _deviation(list(values.values())),
            "values": values,
            "higher_is_better": scores[name][seeds[0]].metrics[metric].higher_is_better,
        }
        if twin is not None and both and all(metric in scores[twin][seed].metrics for seed in both):
            of_both = [[scores[variant][seed] for seed in both] for variant in (name, twin)]
            found = paired_bootstrap(of_both[0], of_both[1], metric)
            metrics[metric]["difference"] = {**asdict(found), "seeds": both}
    tokens = [cost["source_tokens"] for cost in costs if "source_tokens" in cost]
    return {
        "twin": twin,
        "seeds": seeds,
        "metrics": metrics,
        "documents": max(len(found.documents) for found in scores[name].values()),
        "parameters": next(iter(own.values()))["parameters"],
        "training_minutes": statistics.fmean(cost["training_seconds"] for cost in costs) / 60,
        "sittings": {seed: run["cost"]["sittings"] for seed, run in own.items()},
        "peak_memory": max(cost["peak_memory"] for cost in costs),
        "memory_of": sorted({cost["memory_of"] for cost in costs}),
        "source_tokens": statistics.fmean(tokens) if tokens else None,
        "steps": max(curves[name][seed]["steps"] for seed in seeds),
        "made_longer_after": {seed: run.get("made_longer_after", []) for seed, run in own.items()},
        "best_step": {seed: curves[name][seed]["best_step"] for seed in seeds},
        "diverged": [seed for seed, run in own.items() if has_diverged(run) or not curves[name][seed]["is_sound"]],
        "still_improving": [seed for seed in seeds if curves[name][seed]["still_improving"]],
        "scored_model": _scored(own, curves[name]),
        "label_smoothing": next(iter(own.values()))["recipe"]["training"].get("label_smoothing_factor", 0.0),
        **_source_checks(own),
    }


def _deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation; None of one value, or where a run has diverged."""
    return statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None


def _source_checks(runs: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What becomes of scores where the source or the question is another's, and which seeds hardly mind."""
    summary: dict[str, Any] = {"hardly_read": []}
    tests = {seed: run["test"] for seed, run in runs.items()}
    for score, exchanged, higher_is_better in SOURCE_CHECKS:
        pairs = {seed: (test[score], test[exchanged]) for seed, test in tests.items() if exchanged in test}
        if pairs:
            summary[exchanged] = statistics.fmean(other for _, other in pairs.values())
            ordered = {seed: pair if higher_is_better else pair[::-1] for seed, pair in pairs.items()}
            summary["hardly_read"] += [seed for seed, (better, worse) in ordered.items() if better < READS * worse]
    return summary


# Tables


def _table(comparison: Comparison, results: Mapping[str, Any]) -> str:
    variants = results["variants"]
    metrics = [name for name in comparison.metrics if any(name in found["metrics"] for found in variants.values())]
    return fill_in(
        "comparison_table.md.jinja",
        **results,
        asked=comparison.metrics,
        metrics=metrics,
        one_twin=comparison.twin if isinstance(comparison.twin, str) else None,
        best=_best(metrics[0], variants) if metrics else [],
        differing=_differing(variants),
        memory=MEMORY,
        longer=made_longer({name: found["made_longer_after"] for name, found in variants.items()}),
        improving=IMPROVING,
        source_checks=[check for check in SOURCE_CHECKS if any(check[1] in found for found in variants.values())],
        reads=READS - 1,
    )


def _best(metric: str, variants: Mapping[str, Any]) -> list[str]:
    found = {name: variant["metrics"][metric] for name, variant in variants.items() if metric in variant["metrics"]}
    found = {name: value for name, value in found.items() if math.isfinite(value["mean"])}
    higher = all(value["higher_is_better"] for value in found.values())
    best = (max if higher else min)((value["mean"] for value in found.values()), default=None)
    return [name for name, value in found.items() if value["mean"] == best]


def _differing(variants: Mapping[str, Any]) -> list[str]:
    """What was compared on fewer documents than one of both scored."""
    return sorted(
        f"{name} against {found['twin']} {metric}: {value['difference']['documents']}"
        for name, found in variants.items()
        for metric, value in found["metrics"].items()
        if "difference" in value
        and value["difference"]["documents"] < max(found["documents"], variants[found["twin"]]["documents"])
    )


def _row(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"variant": name, "twin": found["twin"] or "", "seeds": len(found["seeds"])}
    for metric, value in found["metrics"].items():
        row |= {metric: value["mean"], f"{metric}_standard_deviation": value["standard_deviation"]}
        difference = value.get("difference", {})
        row |= {f"{metric}_difference": difference.get("value")}
        row |= {f"{metric}_{part}": difference.get(part) for part in ("low", "high", "documents")}
    numbers = ("documents", "parameters", "training_minutes", "peak_memory", "source_tokens", "steps")
    row |= {key: found[key] for key in numbers} | {
        exchanged: found[exchanged] for _, exchanged, _ in SOURCE_CHECKS if exchanged in found
    }
    return {
        **row,
        "memory_of": " ".join(found["memory_of"]),
        "best_steps": " ".join(str(step) for step in found["best_step"].values()),
        "still_improving": " ".join(map(str, found["still_improving"])),
    }


# Learning curves


def draw_curves(path: Path, title: str, curves: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> None:
    """Draw the losses of training and validation over the steps, a line for each variant."""
    require_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    lines: dict[str, Any] = {}
    several = any(len(of_seeds) > 1 for of_seeds in curves.values())
    for axes, part in zip(figure.subplots(1, 2), ("train", "validation"), strict=True):
        for number, (name, of_seeds) in enumerate(curves.items()):
            of_steps = [pd.Series(curve[part], dtype=float) for curve in of_seeds.values()]
            if not of_steps:
                continue
            steps = pd.concat(of_steps, axis=1).index
            sound = [all(map(math.isfinite, curve["train"].values())) for curve in of_seeds.values()]
            of_steps = [own if is_sound else own.reindex(steps) for own, is_sound in zip(of_steps, sound, strict=True)]
            # A row for each step that all seeds have, a column for each seed; one that diverged hides no other.
            losses = pd.concat(of_steps, axis=1, join="inner").replace([math.inf, -math.inf], math.nan)
            losses = losses.dropna(how="all").dropna(how="all", axis=1).sort_index()
            if losses.empty:
                continue
            seeds = losses.shape[1]
            axes.plot(
                losses.index.tolist(),
                losses.mean(axis=1).tolist(),
                color=f"C{number}",
                label=name if seeds == 1 else f"{name} ({seeds} seeds)",
                marker="o" if len(losses) < 30 else None,
                markersize=3,
                linestyle="-" if number < 10 else "--",  # there are ten colors
            )
            if seeds > 1:
                band = losses.min(axis=1), losses.max(axis=1)
                axes.fill_between(losses.index, *band, color=f"C{number}", alpha=0.2, linewidth=0)
        axes.set(xlabel="step", ylabel="loss", title=f"{part} loss")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        handles, labels = axes.get_legend_handles_labels()
        lines |= dict(zip(labels, handles, strict=True))
    if lines:
        about = "mean of the seeds;\nband: all of them" if several else None
        small = {"fontsize": "small", "title_fontsize": "small"}
        figure.legend(list(lines.values()), list(lines), loc="outside right center", title=about, **small)
    figure.suptitle(title.replace("$", r"\$"), wrap=True)  # no formula; parse_math=False is forgotten where it wraps
    figure.savefig(path, dpi=120)
