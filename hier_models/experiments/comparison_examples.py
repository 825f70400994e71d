"""What the models of a comparison write: a few test documents, chosen by a rule, and every variant's words on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..metrics.document_scores import DocumentScores
from .tables import fill_in


# How far up the documents are, in the order of their scores.
QUANTILES = (0.25, 0.5, 0.75)
# What a variant wrote, and never what it was given, even where all of them wrote the same.
WRITTEN = ("summary", "translation", "written", "prediction", "score")


def choose_documents(scores: Mapping[str, DocumentScores], metric: str) -> list[tuple[str, dict[str, float]]]:
    """Choose documents unseen: those at the `QUANTILES` of the mean score that all variants have on them."""
    common = set.intersection(*(set(found.documents) for found in scores.values()))
    keys = [key for key in next(iter(scores.values())).documents if key in common]
    if not keys:
        return []
    chosen = {name: found.select(keys).metrics[metric] for name, found in scores.items()}
    single = {name: [replace(each, values=own[None]).score() for own in each.values] for name, each in chosen.items()}
    mean = np.mean(list(single.values()), axis=0)
    order = np.argsort(mean, kind="stable")[: np.count_nonzero(~np.isnan(mean))]  # nan is last
    if not len(order):
        return []
    places = dict.fromkeys(int(order[round(quantile * (len(order) - 1))]) for quantile in QUANTILES)
    return [(keys[place], {name: float(of_all[place]) for name, of_all in single.items()}) for place in places]


def write_examples(
    path: Path, question: str, metric: str, seed: int, scores: Mapping[str, DocumentScores], files: Mapping[str, Path]
) -> None:
    """Write what the variants make of the documents of `choose_documents`, side by side."""
    rows = {name: _rows(files[name], scores[name]) for name in scores}
    documents = []
    for key, of_variants in choose_documents(scores, metric):
        texts = {name: rows[name][key] for name in scores}
        first = next(iter(texts.values()))
        given = {
            name: value
            for name, value in first.items()
            if name not in WRITTEN and all(row.get(name) == value for row in texts.values())
        }
        own = {name: {key: value for key, value in row.items() if key not in given} for name, row in texts.items()}
        given.pop("id", None)
        documents.append({"title": first.get("id", key), "given": given, "written": own, "scores": of_variants})
    text = fill_in("comparison_examples.md.jinja", question=question, metric=metric, seed=seed, documents=documents)
    path.write_text(text + "\n", encoding="utf-8")


def _rows(path: Path, scores: DocumentScores) -> dict[str, dict[str, Any]]:
    """The lines of a file by the keys of their documents."""
    with path.open(encoding="utf-8") as lines:  # which ends no line at U+2028, as `splitlines` does
        rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if row.get("references") != []]  # which have no score
    return dict(zip(scores.documents, rows, strict=True))
