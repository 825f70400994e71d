"""What several commands print."""

from __future__ import annotations

from typing import Any


ROUGE_NAMES = ("rouge1", "rouge2", "rougeL", "rougeLsum", "rougeSU4")
# Scores of models, if they are asked for.
MODEL_SCORES = {"bert_score": "BERTScore", "entailment": "entailed (NLI)"}


def tokens_were(count: int) -> str:
    """Say how many tokens were, in numbers and grammar."""
    return "1 token was" if count == 1 else f"{count:,} tokens were"


def selected_rows_table(results: list[dict[str, Any]]) -> str:
    """Lay out scores and cost by how many rows were attended to at a step, as Markdown."""
    import pandas as pd

    from ..experiments.tables import markdown

    labels = {name: name for name in (*ROUGE_NAMES, "perplexity")} | MODEL_SCORES
    names = {name: label for name, label in labels.items() if name in results[0]}
    rows = [
        {
            "rows a step": str(found["selected_rows"]),
            **{label: f"{found[name]:.2f}" for name, label in names.items()},
            "rows read": f"{found['encoded_rows'] / max(1, found['rows']):.1%}",
            "a document": f"{found['encoded_rows'] / found['documents']:.1f}",
            "seconds": f"{found['seconds'] / found['documents']:.3f}",
        }
        for found in results
    ]
    return markdown(pd.DataFrame(rows))


def rouge_table(results: dict[str, Any]) -> str:
    """Lay out scores, length and number of the summaries."""
    rows = [(name, f"{results[name]:.2f}") for name in ROUGE_NAMES]
    of_references = {"perplexity": "perplexity", "perplexity_of_another_source": "… with another source"}
    of_references |= MODEL_SCORES
    rows += [(what, f"{results[name]:.2f}") for name, what in of_references.items() if name in results]
    from ..metrics.reference_free import reference_free_rows

    length = f"{results['gen_len']:.1f} tokens" if "gen_len" in results else f"{results['gen_words']:.1f} words"
    rows += [
        *reference_free_rows(results["reference_free"]),
        ("summary length", length),
        ("documents", str(results["documents"])),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value:>6}" for name, value in rows)
