"""Exact match and F1 of extracted answers, with questions that have none, as SQuAD 2.0 defines them."""

import itertools
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import datasets

from .base import TEXT, NumbersMetric


ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """An answer as it is compared: lower case, without ASCII punctuation and English articles, single spaces."""
    text = text.lower().translate(WITHOUT_PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", text).split())


def exact_score(answer: str, reference: str) -> float:
    """Whether two answers are the same."""
    return float(normalize_answer(answer) == normalize_answer(reference))


def f1_score(answer: str, reference: str) -> float:
    """How many words two answers share."""
    words, reference_words = normalize_answer(answer).split(), normalize_answer(reference).split()
    if not words or not reference_words:
        return float(words == reference_words)
    shared = (Counter(words) & Counter(reference_words)).total()
    return 2 * shared / (len(words) + len(reference_words))


class Squad(NumbersMetric):
    """The scores of SQuAD 2.0, in percent.

    exact: the answer is one of the references, letter case, punctuation, the articles a, an, the and spaces aside. f1:
    mean overlap of its words with those of the best reference. For a question without an answer the empty prediction
    is right and everything else wrong. `compute(predictions=…, references=…)` returns them; `inputs_description` lists
    inputs and results. Questions are matched by their id. Every question needs a prediction.
    """

    PAPER = "Rajpurkar et al. (2018): Know What You Don't Know. https://aclanthology.org/P18-2124"
    FEATURES = datasets.Features(
        predictions={"id": TEXT, "prediction_text": TEXT, "no_answer_probability": datasets.Value("float64")},
        references={"id": TEXT, "answers": {"text": datasets.Sequence(TEXT)}},
    )

    def add(self, *, prediction: Any = None, reference: Any = None, **kwargs: Any) -> None:
        """Add one question."""
        super().add(prediction=_prediction(0, prediction), reference=_reference(0, reference), **kwargs)

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add several questions."""
        predictions = [_prediction(number, item) for number, item in enumerate(predictions)]
        references = [_reference(number, item) for number, item in enumerate(references)]
        super().add_batch(predictions=predictions, references=references, **kwargs)

    def _compute(  # type: ignore[override]
        self,
        predictions: Sequence[Mapping[str, Any]],
        references: Sequence[Mapping[str, Any]],
        no_answer_threshold: float = 1.0,
    ) -> dict[str, float]:
        """Score answers.

        Args:
            predictions: {"id", "prediction_text"} each and, for all or none, "no_answer_probability" (any number that
                grows with the belief that there is no answer).
            references: {"id", "answers"} each, in any order; answers is {"text": [...]} (answer_start may be there
                too), with an empty list where there is no answer.
            no_answer_threshold: A prediction whose no_answer_probability is above it counts as "no answer".

        Returns:
            exact, f1 and total; HasAns_exact, HasAns_f1, HasAns_total over the questions with an answer and
            NoAns_exact, NoAns_f1, NoAns_total over the others, where there are any; and with no_answer_probability
            also best_exact, best_exact_thresh, best_f1, best_f1_thresh: the best scores that any threshold could give
            on these very questions, which is a bound and no result. `settings` is then the threshold, None where it
            decided nothing.
        """
        predicted = {item["id"]: item for item in predictions}
        golds = {item["id"]: item["answers"]["text"] for item in references}
        for name, found, items in (("predictions", predicted, predictions), ("references", golds, references)):
            if len(found) < len(items):
                twice, _ = Counter(item["id"] for item in items).most_common(1)[0]
                raise ValueError(f"{name}: the id {twice!r} occurs more than once; every question needs its own")
        if predicted.keys() != golds.keys():
            (one, *_) = sorted(predicted.keys() ^ golds.keys())
            raise ValueError(f"the ids of predictions and references must be the same; {one!r} is only in one of them")
        beliefs = {key: item["no_answer_probability"] for key, item in predicted.items()}
        have = sum(belief is not None for belief in beliefs.values())
        if have not in (0, len(beliefs)):
            raise ValueError(f"predictions: {have} of {len(beliefs)} have a no_answer_probability; give all or none")
        # A reference of which nothing is left, such as "the", stands for no answer.
        answers = {key: [gold for gold in several if normalize_answer(gold)] or [""] for key, several in golds.items()}

        def scores(score: Callable[[str, str], float]) -> dict[str, float]:
            return {key: max(score(predicted[key]["prediction_text"], gold) for gold in answers[key]) for key in golds}

        raw = {"exact": scores(exact_score), "f1": scores(f1_score)}
        decided = raw
        if have:
            silent = {key for key, belief in beliefs.items() if belief > no_answer_threshold}
            decided = {
                name: {key: float(not golds[key]) if key in silent else value for key, value in values.items()}
                for name, values in raw.items()
            }
        self._settings = {"no_answer_threshold": no_answer_threshold if have else None}
        result = _means(decided, list(golds))
        for prefix, answered in (("HasAns", True), ("NoAns", False)):
            if keys := [key for key in golds if bool(golds[key]) is answered]:
                result |= {f"{prefix}_{name}": value for name, value in _means(decided, keys).items()}
        if have:
            texts = {key: item["prediction_text"] for key, item in predicted.items()}
            for name, values in raw.items():
                result |= _best_threshold(name, values, texts, golds, beliefs)
        return result


def _prediction(number: int, item: Any) -> dict[str, Any]:
    if not isinstance(item, Mapping) or not isinstance(item.get("prediction_text"), str) or "id" not in item:
        wanted = '{"id": …, "prediction_text": a string}, perhaps with "no_answer_probability"'
        raise ValueError(f"predictions: number {number} must be {wanted}, got {str(item)[:80]}")
    return {"id": str(item["id"]), **{name: item.get(name) for name in ("prediction_text", "no_answer_probability")}}


def _reference(number: int, item: Any) -> dict[str, Any]:
    answers = item.get("answers") if isinstance(item, Mapping) and "id" in item else None
    texts = answers.get("text") if isinstance(answers, Mapping) else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        wanted = '{"id": …, "answers": {"text": a list of strings}}'
        raise ValueError(f"references: number {number} must be {wanted}, got {str(item)[:80]}")
    return {"id": str(item["id"]), "answers": {"text": texts}}


def _means(scores: Mapping[str, Mapping[str, float]], keys: Sequence[str]) -> dict[str, float]:
    means = {name: 100 * sum(values[key] for key in keys) / len(keys) for name, values in scores.items()}
    return {**means, "total": len(keys)}


def _best_threshold(
    name: str,
    scores: Mapping[str, float],
    texts: Mapping[str, str],
    golds: Mapping[str, Sequence[str]],
    beliefs: Mapping[str, float],
) -> dict[str, float]:
    """The threshold that would have been best: start with no answer to anything, let in one belief at a time."""
    current = best = float(sum(not gold for gold in golds.values()))
    ordered = sorted(beliefs, key=lambda key: beliefs[key])
    threshold = min(0.0, math.nextafter(beliefs[ordered[0]], -math.inf))  # 0, or below all beliefs
    for belief, keys in itertools.groupby(ordered, key=lambda key: beliefs[key]):  # equal ones are let in together
        # An empty prediction of a question without an answer stays right.
        current += sum(scores[key] if golds[key] else (-1.0 if texts[key] else 0.0) for key in keys)
        if current > best:
            best, threshold = current, belief
    return {f"best_{name}": 100 * best / len(scores), f"best_{name}_thresh": threshold}
