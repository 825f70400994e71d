"""Evaluation of the extractive baselines, on the same data and with the same metrics as models."""

import os
from typing import Any

from datasets import Dataset, IterableDataset
from transformers.utils import logging

from ..extractive import ExtractiveSummarizer
from ..training.evaluation import all_rows, write_json, write_json_lines
from ..training.metrics import score_summaries
from ..training.tasks.summarization import against_documents, references_of, scores_of_models, summary_rows


def run_extractive_evaluation(
    summarizer: ExtractiveSummarizer,
    dataset: Dataset | IterableDataset,
    *,
    predictions_file: str | os.PathLike[str] | None = None,
    results_file: str | os.PathLike[str] | None = None,
    bert_score: str | None = None,
    nli: str | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Summarize documents by their own sentences, and score the summaries.

    Args:
        summarizer: What chooses the sentences.
        dataset: Documents with `summary`, from `load_documents`; of several references (`references`) the best counts.
        predictions_file: JSON lines to write the summaries to: `id` if there is one, `summary`, `reference`.
        results_file: JSON file to write what is returned to.
        bert_score: Also give BERTScore with this encoder; see `hier_models.metrics.bert_scores`.
        nli: Also judge the summaries with this model of inference; see `hier_models.metrics.entailment_scores`.
        device: Where these two run; "cpu" if None.

    Returns:
        `rouge1`, `rouge2`, `rougeL`, `rougeLsum`, `rougeSU4` (mean F1 times 100), `gen_words` (mean length in words
        between spaces), `reference_free` (see `hier_models.metrics.reference_free_scores`), `documents`, `settings` of
        ROUGE, with `bert_score` and `nli` also by which models, and `extractive`: the method and its settings; with
        `bert_score` and `nli` also `bert_score` and `entailment` (means, times 100).

    Raises:
        ValueError: If the dataset has no summaries to compare with.
    """
    documents = all_rows(dataset)
    references = references_of(documents)
    summaries = [summarizer(document) for document in logging.tqdm(documents, desc="Summarizing")]
    scores, settings = score_summaries(summaries, references)
    asked: dict[str, Any] = {"bert_score": bert_score, "nli": nli, "language": summarizer.language}
    of_models, judges = scores_of_models(documents, summaries, references, **asked, device=device or "cpu")
    scores |= {name: sum(values) / len(values) for name, values in of_models.items()}
    results = {
        **scores,
        "gen_words": sum(len(summary.split()) for summary in summaries) / len(summaries),
        "reference_free": against_documents(documents, summaries),
        "documents": len(documents),
        "settings": settings | judges,
        "extractive": {
            "method": summarizer.method,
            "max_words": summarizer.max_words,
            **({} if summarizer.max_sentences is None else {"max_sentences": summarizer.max_sentences}),
            "language": summarizer.language,
        },
    }
    if predictions_file is not None:
        write_json_lines(predictions_file, summary_rows(documents, summaries))
    if results_file is not None:
        write_json(results_file, results)
    return results
