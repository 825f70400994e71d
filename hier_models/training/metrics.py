"""The `compute_metrics` of `Seq2SeqTrainer`, for summaries."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from transformers import EvalPrediction, PreTrainedTokenizerBase, ProcessorMixin

from ..data.tokenizing import plain_tokenizer
from ..inspection.copying import words_of
from ..metrics import Rouge, RougeSu


def compute_summarization_metrics(
    eval_prediction: EvalPrediction | tuple[Any, Any],
    tokenizer: PreTrainedTokenizerBase | ProcessorMixin,
) -> dict[str, float]:
    """Score generated summaries; bind the tokenizer with `functools.partial` to make it Trainer's `compute_metrics`.

    The settings are those of the summarization papers and of Transformers' example: Porter stemmer, and rougeLsum with
    a newline after each sentence, here where English Punkt ends one.

    Args:
        eval_prediction: Generated token ids (documents, length) and labels (documents, length); either may be filled
            up with -100 or the padding token, and the predictions may be the first of a tuple.
        tokenizer: Decodes them; a processor is taken for its tokenizer.

    Returns:
        `rouge1`, `rouge2`, `rougeL`, `rougeLsum`, `rougeSU4`: mean F1 **times 100**; `gen_len`: mean number of
        generated tokens, special tokens counted but padding not.

    Raises:
        ValueError: If the predictions are no token ids, which is what Trainer gives without
            `predict_with_generate=True`, or if predictions and labels differ in number.
    """
    predictions, labels = first_of_tuples(eval_prediction)
    text_tokenizer = plain_tokenizer(tokenizer)
    if len(predictions) != len(labels):
        raise ValueError(f"eval_prediction: {len(predictions)} predictions but {len(labels)} labels")
    summaries, references = (decode(ids, text_tokenizer) for ids in (predictions, labels))
    scores, _ = score_summaries(summaries, references)
    return {**scores, "gen_len": mean_length(predictions, text_tokenizer)}


def first_of_tuples(eval_prediction: EvalPrediction | tuple[Any, Any]) -> tuple[Any, Any]:
    """Give predictions and labels, each of which may be the first of a tuple."""
    given = eval_prediction[0], eval_prediction[1]
    predictions, labels = (part[0] if isinstance(part, tuple) else part for part in given)
    return predictions, labels


def score_summaries(
    summaries: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Score summaries with every ROUGE that the papers report."""
    found, settings = score_documents(summaries, references)
    return {name: sum(values) / len(values) for name, values in found.items()}, settings


def score_documents(
    summaries: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Score each summary by itself; the means are what `score_summaries` gives."""
    # Of other scripts rouge-score's own tokenizer, which the papers use, keeps nothing.
    others = {"tokenizer": words_of} if _is_another_script(references) else {}
    texts = {"predictions": summaries, "references": references, "use_stemmer": True, "use_aggregator": False}
    rouge, skip_bigrams = Rouge(), RougeSu()
    scores = rouge.compute(**texts, **others, sentence_splitter="punkt")
    scores["rougeSU4"] = skip_bigrams.compute(**texts, **others, several_references="best")["rougeSU4"]
    settings = {**rouge.settings, "aggregation": "mean F1 over documents"}
    settings["rougeSU4"] = {**skip_bigrams.settings, "aggregation": "mean over documents"}
    return {name: [100 * value for value in values] for name, values in scores.items()}, settings


def _is_another_script(references: Sequence[str] | Sequence[Sequence[str]]) -> bool:
    """Tell whether most references are hardly written in a to z, with accents or without."""
    return sum(_has_other_letters("".join(reference)) for reference in references) > len(references) / 2


def _has_other_letters(text: str) -> bool:
    letters = [c for c in text if c.isalpha()]
    return sum("LATIN" not in unicodedata.name(c, "") for c in letters) > len(letters) / 2


def decode(ids: Iterable[Any], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Token ids to texts."""
    return [text.strip() for text in tokenizer.batch_decode(_rows(ids, tokenizer), skip_special_tokens=True)]


def mean_length(ids: Iterable[Any], tokenizer: PreTrainedTokenizerBase) -> float:
    """Mean number of tokens of what `generate` returns, as the examples of Transformers report it."""
    lengths = [sum(token != tokenizer.pad_token_id for token in row) for row in _rows(ids, tokenizer)]
    return float(np.mean(lengths))


def _rows(ids: Iterable[Any], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Lists of ids, with padding where there is no token: -100, also where results of batches were joined."""
    rows = [np.asarray(row) for row in ids]
    for row in rows:
        if row.ndim != 1 or not np.issubdtype(row.dtype, np.integer):
            raise ValueError(
                f"eval_prediction: predictions and labels must be token ids (documents, length), got {row.dtype} of "
                f"shape {(len(rows), *row.shape)}; with Seq2SeqTrainer set predict_with_generate=True"
            )
    return [np.where(row < 0, tokenizer.pad_token_id, row).tolist() for row in rows]
