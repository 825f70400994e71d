import math
import tracemalloc

import numpy as np
import pytest

from hier_models.extractive import METHODS, lexrank, pagerank, textrank, tf_idf_sums
from hier_models.inspection.copying import source_text, words_of
from hier_models.pipelines import ExtractiveSummarizer
from tests.conftest import DOCUMENTS, TURNS


ARTICLES = [
    "A storm hit the coast on Monday. Two bridges were closed. The mayor asked people to stay at home.",
    "The storm closed two bridges on the coast. Trains did not run. A school served as a shelter.",
    "On Monday the storm reached the coast. The mayor thanked the helpers. Trains will run again on Tuesday.",
]


def sentences_of(articles):
    return [words_of(sentence) for sentence in source_text({"documents": articles}).sentences]


def cosine(one, other, sentences):
    """Equation 1 of LexRank, word by word."""

    def idf(word):
        return math.log(len(sentences) / sum(word in words for words in sentences))

    shared = sum(one.count(w) * other.count(w) * idf(w) ** 2 for w in set(one) & set(other))
    lengths = [math.sqrt(sum((s.count(w) * idf(w)) ** 2 for w in set(s))) for s in (one, other)]
    return shared / math.prod(lengths)


def stationary(links):
    """Where the surfer is in the long run, as the solution of linear equations; links are (from, to) -> weight."""
    size = 1 + max(max(pair) for pair in links)
    matrix = np.zeros((size, size))
    for one in range(size):
        total = sum(weight for (start, _), weight in links.items() if start == one)
        for other in range(size):
            follow = links.get((one, other), 0.0) / total if total else 1 / size
            matrix[other, one] = 0.85 * follow
    return np.linalg.solve(np.eye(size) - matrix, np.full(size, 0.15 / size))


def test_lexrank_is_pagerank_over_alike_sentences():
    sentences = sentences_of(ARTICLES)
    links = {
        (i, j): 1.0
        for i, one in enumerate(sentences)
        for j, other in enumerate(sentences)
        if i == j or cosine(one, other, sentences) > 0.1
    }
    assert len(links) > len(sentences) + 6
    np.testing.assert_allclose(lexrank(sentences), stationary(links), atol=1e-9)


def test_textrank_is_pagerank_over_shared_words():
    sentences = sentences_of(ARTICLES)
    links = {
        (i, j): len(set(one) & set(other)) / (math.log(len(one)) + math.log(len(other)))
        for i, one in enumerate(sentences)
        for j, other in enumerate(sentences)
        if i != j
    }
    assert 0 in links.values()
    np.testing.assert_allclose(textrank(sentences), stationary(links), atol=1e-9)


def test_tf_idf_sums():
    sentences = [["a", "b", "b", "the"], ["a", "c", "the"], ["the"]]
    expected = [math.log(1.5) + 2 * math.log(3), math.log(1.5) + math.log(3), 0.0]
    np.testing.assert_allclose(tf_idf_sums(sentences), expected)
    np.testing.assert_allclose(tf_idf_sums(sentences, frozenset(["b"])), [math.log(1.5), expected[1], 0.0])


def test_the_surfer_jumps_from_a_sentence_without_links():
    weights = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    expected = stationary({(i, j): weights[i, j] for i in range(3) for j in range(3)})
    np.testing.assert_allclose(pagerank(weights), expected, atol=1e-9)
    assert expected[2] < expected[0]
    assert pagerank(np.zeros((0, 0))).shape == (0,)


def test_lead_takes_the_beginning():
    lead = ExtractiveSummarizer("lead", max_words=12)
    assert lead(text=DOCUMENTS[2]) == "The library opens at nine. It closes at six."
    assert lead(text=DOCUMENTS[1]) == "Bees find their way home by the sun."
    assert lead({"sentences": ["One two.", "Three."], "id": "x"}) == "One two. Three."
    assert lead(turns=TURNS) == "Did you book the room? Not yet. I will do it today."


def test_lead_takes_of_each_article():
    lead = ExtractiveSummarizer("lead", max_words=26)
    assert lead(documents=ARTICLES) == (
        "A storm hit the coast on Monday. Two bridges were closed. The storm closed two bridges on the coast. "
        "On Monday the storm reached the coast."
    )


@pytest.mark.parametrize("method", METHODS)
def test_summaries_are_sentences_of_the_source_in_its_order(method):
    summarizer = ExtractiveSummarizer(method, max_words=25)
    summary = summarizer(documents=ARTICLES)
    sentences = source_text({"documents": ARTICLES}).sentences
    chosen = [sentence for sentence in sentences if sentence in summary]
    assert summary == " ".join(chosen)
    assert 10 < len(summary.split()) <= 25
    assert summarizer(documents=ARTICLES) == summary


@pytest.mark.parametrize("method", ["lexrank", "textrank", "tf-idf", "salience"])
def test_nothing_is_said_twice(method):
    summary = ExtractiveSummarizer(method, max_words=100)(documents=[ARTICLES[0], ARTICLES[0]])
    assert sorted(summary.split()) == sorted(ARTICLES[0].split())


@pytest.mark.parametrize("method", METHODS)
def test_little_or_nothing(method):
    summarizer = ExtractiveSummarizer(method, max_words=3)
    assert summarizer(text="") == ""
    assert summarizer(documents=[]) == ""
    assert summarizer(documents=["", " \n "]) == ""
    assert summarizer(text="One sentence of more words than there is room for") != ""  # never nothing of something
    assert summarizer(text="… !") in ("… !", "…", "!")
    assert summarizer(sentences=["The", "", "the", "The"]) in ("The", "The the The")


def test_of_dialogues_salience_does_not_go_by_places():
    said = [turn["content"] for turn in TURNS] + ["The room is booked for the whole of today, as you asked."]
    turns = [{"role": "Ann", "content": content} for content in said]
    orders = (turns, turns[::-1], turns[2:] + turns[:2])
    assert len({ExtractiveSummarizer("salience", max_sentences=1)(turns=order) for order in orders}) == 1


def test_salience_fills_no_room_with_headings():
    text = "Ferries\n\nThe ferry needs a new hull and a new engine. She carries people, sheep and the post.\n\nCosts"
    summary = ExtractiveSummarizer("salience", max_words=20)(text=text)
    assert summary == "The ferry needs a new hull and a new engine. She carries people, sheep and the post."
    assert ExtractiveSummarizer("salience", max_words=20)(text="Ferries\n\nCosts") == "Ferries Costs"


def test_a_book_takes_no_square_of_its_sentences():
    sentences = [
        f"Sentence {number} has the words w{number} and v{number % 7} and nothing else." for number in range(9000)
    ]
    tracemalloc.start()
    try:
        for method in ("salience", "tf-idf"):
            assert ExtractiveSummarizer(method, max_sentences=3)(sentences=sentences)
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()


def test_chinese_has_words():
    text = "春天来了。花开了。春天的花开得很美。"
    assert (
        ExtractiveSummarizer("tf-idf", max_words=1)(sentences=["春天来了。", "花开了。", "春天的花开得很美。"]) in text
    )


def test_wrong_arguments_are_refused():
    with pytest.raises(
        ValueError, match="method must be one of lead, lexrank, textrank, tf-idf, salience, got 'best'"
    ):
        ExtractiveSummarizer("best")
    with pytest.raises(ValueError, match="max_words must be at least 1, got 0"):
        ExtractiveSummarizer(max_words=0)
    with pytest.raises(ValueError, match="language"):
        ExtractiveSummarizer(language="klingon")
    with pytest.raises(ValueError, match="exactly one of text, sentences, turns, documents"):
        ExtractiveSummarizer()({"title": "x"})
