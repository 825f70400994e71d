"""Scores of single documents add up to the scores of all; and intervals of differences between models."""

import math
import random

import numpy as np
import pytest
import sacrebleu

from hier_models.metrics import DocumentScores, DocumentStatistics, document_keys, paired_bootstrap
from hier_models.metrics.document_bleu import bleu_statistics
from hier_models.metrics.document_scores import means


TEXTS = ["the cat sat on the mat", "a dog barked at the cat", "birds sing in the morning sun", "the mat was red"]
OTHERS = ["the cat sat on a red mat", "the dog barked at a cat", "in the morning birds sing", "the red mat"]


def scores(values, name="rouge1", documents=None):
    return DocumentScores(documents or [str(i) for i in range(len(values))], means({name: values}))


def test_the_score_of_all_follows_from_the_sums():
    assert scores([1.0, 2.0, 6.0]).metrics["rouge1"].score() == 3.0
    likelihoods = DocumentStatistics(np.array([[2.0, 4], [6.0, 2]]), "perplexity")
    assert likelihoods.score() == pytest.approx(math.exp(8 / 6))
    assert not likelihoods.higher_is_better
    for order, smoothing in ((4, "exp"), (1, "none"), (2, "exp")):
        bleu = sacrebleu.BLEU(max_ngram_order=order, smooth_method=smoothing, force=True)
        rows = [bleu_statistics(bleu, text, [other]) for text, other in zip(TEXTS, OTHERS, strict=True)]
        found = DocumentStatistics(np.array(rows, dtype=float), "bleu", order, smoothing)
        assert found.score() == pytest.approx(bleu.corpus_score(TEXTS, [OTHERS]).score, abs=1e-12)
        groups = DocumentStatistics(np.array(rows, dtype=float).reshape(2, -1), "bleu", order, smoothing, 0.01)
        halves = [bleu.corpus_score(TEXTS[i::2], [OTHERS[i::2]]).score / 100 for i in range(2)]
        assert groups.score() == pytest.approx(sum(halves) / 2, abs=1e-12)
    several = [OTHERS[0], "the cat sat on the mat today and tomorrow"]
    bleu = sacrebleu.BLEU()
    assert bleu_statistics(bleu, TEXTS[0], several)[1] == bleu.corpus_score(TEXTS[:1], [[s] for s in several]).ref_len


def slow_bootstrap(first, second, score, draws, seed):
    """Document by document, draw by draw, in plain Python; only the random numbers are numpy's."""
    generator = np.random.default_rng(seed)
    count = len(first[0])
    found = []
    for _ in range(draws):
        drawn = [int(number) for number in generator.integers(count, size=count)]
        models = [[score([seed_of_model[i] for i in drawn]) for seed_of_model in model] for model in (first, second)]
        found.append(sum(models[0]) / len(models[0]) - sum(models[1]) / len(models[1]))
    found.sort()

    def percentile(share):
        place = share * (len(found) - 1)
        below = math.floor(place)
        above = min(below + 1, len(found) - 1)
        return found[below] + (place - below) * (found[above] - found[below])

    return percentile(0.025), percentile(0.975)


def test_the_interval_is_that_of_a_slow_reference():
    random.seed(1)
    models = [[[random.gauss(20 + m, 4) for _ in range(13)] for _ in range(2 + m)] for m in range(2)]
    found = paired_bootstrap(*([scores(values) for values in model] for model in models), "rouge1", draws=200, seed=5)
    low, high = slow_bootstrap(*models, lambda values: sum(values) / len(values), 200, 5)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    averages = [np.mean(model) for model in models]
    assert found.value == pytest.approx(averages[0] - averages[1])
    assert found.low < found.value < found.high
    assert found.documents == 13


def test_the_interval_of_bleu_is_that_of_a_slow_reference():
    bleu = sacrebleu.BLEU(force=True)
    pairs = [
        list(zip(TEXTS, OTHERS, strict=True)),
        [(text.upper(), other) for text, other in zip(TEXTS, OTHERS, strict=True)],
    ]
    pairs[1][2] = (OTHERS[2], OTHERS[2])

    def of(model):
        rows = np.array([bleu_statistics(bleu, text, [other]) for text, other in model], dtype=float)
        return DocumentScores(document_keys(OTHERS), {"bleu": DocumentStatistics(rows, "bleu")})

    def score(drawn):
        return bleu.corpus_score([text for text, _ in drawn], [[other for _, other in drawn]]).score

    found = paired_bootstrap([of(pairs[0])], [of(pairs[1])], "bleu", draws=60, seed=2)
    assert (found.low, found.high) == pytest.approx(slow_bootstrap(pairs[:1], pairs[1:], score, 60, 2), abs=1e-9)


def test_the_interval_of_perplexity_is_that_of_a_slow_reference():
    random.seed(3)
    models = [[[(random.uniform(10, 90), random.randint(5, 20)) for _ in range(9)] for _ in range(2)] for _ in "ab"]

    def of(values):
        return DocumentScores(
            [str(i) for i in range(9)], {"perplexity": DocumentStatistics(np.array(values, dtype=float), "perplexity")}
        )

    def score(drawn):
        return math.exp(sum(a for a, _ in drawn) / sum(b for _, b in drawn))

    found = paired_bootstrap(*([of(values) for values in model] for model in models), "perplexity", draws=80)
    assert (found.low, found.high) == pytest.approx(slow_bootstrap(*models, score, 80, 0), rel=1e-9)


def test_a_model_that_diverged_is_not_excused():
    def of(*values):
        rows = np.array(values, dtype=float)
        return [DocumentScores(["a", "b", "c"], {"perplexity": DocumentStatistics(rows, "perplexity")})]

    diverged, sound = of((90000, 5), (3, 5), (0, 0)), of((10, 5), (5, 5), (0, 0))
    found = paired_bootstrap(diverged, sound, "perplexity", draws=200)
    assert (found.value, found.high) == (math.inf, math.inf)
    assert found.low == pytest.approx(math.exp(3 / 5) - math.e)  # of draws without the first
    found = paired_bootstrap(sound, diverged, "perplexity", draws=200)
    assert (found.low, found.high) == (-math.inf, pytest.approx(math.e - math.exp(3 / 5)))
    none = paired_bootstrap(diverged, of((90000, 5), (90000, 5), (90000, 5)), "perplexity", draws=200)
    assert math.isnan(none.value)


def test_how_often_the_interval_holds_the_truth():
    """Differences of a known mean: of 200 intervals of 95 %, about 190 hold it."""
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        of_document = generator.normal(30, 10, 60)  # hard and easy documents, the same for both
        first = of_document + generator.normal(1.0, 3, 60)
        second = of_document + generator.normal(0.5, 3, 60)
        found = paired_bootstrap([scores(first)], [scores(second)], "rouge1", draws=200)
        held += found.low <= 0.5 <= found.high
    assert 178 <= held <= 199


def test_documents_are_paired_by_what_they_are_compared_with():
    first = scores([1.0, 2.0, 30.0], documents=["a", "b", "c"])
    second = scores([2.0, 1.0, 50.0], documents=["b", "a", "z"])
    found = paired_bootstrap([first], [second], "rouge1", draws=10)
    assert (found.value, found.low, found.high, found.documents) == (0, 0, 0, 2)
    with pytest.raises(ValueError, match="no document has scores of both models, so their rouge1"):
        paired_bootstrap([first], [scores([1.0], documents=["y"])], "rouge1")
    with pytest.raises(ValueError, match="at least one seed"):
        paired_bootstrap([first], [], "rouge1")
    keys = document_keys(["x", "y", "x", ["x"]])
    assert len(set(keys)) == 4
    assert keys[:2] == document_keys(["x", "y"])


def test_the_same_each_time_and_in_bounded_memory(monkeypatch):
    values = [[float(i % 7) for i in range(50)], [float(i % 5) for i in range(50)]]
    found = paired_bootstrap([scores(values[0])], [scores(values[1])], "rouge1")
    monkeypatch.setattr("hier_models.metrics.document_scores._CELLS", 170)
    assert paired_bootstrap([scores(values[0])], [scores(values[1])], "rouge1") == found


def test_files(tmp_path):
    found = DocumentScores(
        ["a", "b"],
        {
            **means({"rouge1": [1 / 3, 2.0]}),
            "bleu": DocumentStatistics(np.arange(12.0).reshape(2, 6), "bleu", 2, "none", 0.01),
        },
    )
    found.save(tmp_path / "new" / "scores.json")
    again = DocumentScores.load(tmp_path / "new" / "scores.json")
    assert again.documents == found.documents
    for name, statistics in found.metrics.items():
        assert np.array_equal(again.metrics[name].values, statistics.values)
        assert again.metrics[name].scores(np.ones((1, 2))) == statistics.scores(np.ones((1, 2)))


@pytest.mark.parametrize(
    ("values", "kind", "says"),
    [
        (np.ones((3, 2)), "mean", r"1 numbers for each document \(mean\), got \(3, 2\)"),
        (np.ones(3), "mean", r"got \(3,\)"),
        (np.ones((3, 9)), "bleu", "10 numbers for each document"),
    ],
)
def test_numbers_that_are_no_statistics(values, kind, says):
    with pytest.raises(ValueError, match=says):
        DocumentStatistics(values, kind)
    with pytest.raises(ValueError, match="rouge1 has statistics of 3 documents, and there are 1"):
        DocumentScores(["a"], means({"rouge1": [1.0, 2.0, 3.0]}))
    with pytest.raises(ValueError, match="documents must have different names, and 'a' is there 2 times"):
        scores([1.0, 2.0, 3.0], documents=["b", "a", "a"])
