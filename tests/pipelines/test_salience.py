"""Which sentences a summary would be made of."""

import math
import re

import numpy as np
import pytest

from hier_models.extractive import ExtractiveSummarizer
from hier_models.pipelines import salience_hier
from hier_models.pipelines.common_words_hier import COMMON_WORDS
from hier_models.pipelines.long_documents_hier import condense
from hier_models.pipelines.salience_hier import CUES, WEIGHTS, Words, features, salience
from tests.conftest import DOCUMENTS


SENTENCES = [*" ".join(DOCUMENTS).replace("? ", ". ").split(". ")]


def words_of(sentence):
    return re.findall(r"\w+", sentence.casefold())


def rank(values):
    return [sum(other < value for other in values) / (len(values) - 1) for value in values]


def test_centrality_is_that_of_the_formula():
    words = [*map(words_of, SENTENCES)]
    rareness = {word: math.log(len(words) / sum(word in its for its in words)) for its in words for word in its}
    vectors = [{word: its.count(word) * rareness[word] for word in its} for its in words]

    def cosine(one, other):
        product = sum(weight * other.get(word, 0) for word, weight in one.items())
        lengths = [math.sqrt(sum(weight**2 for weight in vector.values())) for vector in (one, other)]
        return product / max(1e-12, math.prod(lengths))

    degrees = [sum(cosine(one, other) for other in vectors) for one in vectors]
    np.testing.assert_allclose(Words(SENTENCES).centrality(), degrees, rtol=1e-9)


def test_features_are_place_ranks_and_length():
    own = [[word for word in words_of(sentence) if word not in COMMON_WORDS] for sentence in SENTENCES]
    everywhere = [word for its in own for word in its]
    commonness = [sum(map(everywhere.count, its)) / max(1, len(its)) for its in own]
    found, last = features(Words(SENTENCES)), len(SENTENCES) - 1
    assert len(found) == last + 1 > 5
    for place, row in enumerate(found.tolist()):
        starts, ends = (
            [math.exp(-place / far) for far in (2, 8, 30)],
            [math.exp((place - last) / far) for far in (3, 30)],
        )
        assert row[:5] == pytest.approx([*starts, *ends], rel=1e-9)
        assert row[7] == pytest.approx(math.log(1 + len(words_of(SENTENCES[place]))), rel=1e-9)
    for column, values in ((5, Words(SENTENCES).centrality().tolist()), (6, commonness)):
        assert len(set(values)) > 3
        for place, expected in enumerate(rank(values)):
            assert found[place, column] == pytest.approx(expected, abs=1e-9)


def test_salience_is_a_sum_of_features_and_words():
    for sentence, own, found in zip(SENTENCES, features(Words(SENTENCES)), salience(SENTENCES), strict=True):
        cues = sum(CUES.get(word, 0) for word in set(words_of(sentence)))
        expected = sum(weight * value for weight, value in zip(WEIGHTS, own.tolist(), strict=True)) + cues
        assert found.item() == pytest.approx(expected / 100, abs=1e-9)


def test_words_have_weights_of_both_kinds():
    assert len(CUES) == sum(not token.lstrip("-").isdigit() for token in salience_hier._CUES.split()) > 400
    assert set(CUES) <= COMMON_WORDS
    assert CUES["study"] > CUES["show"] > 0 > CUES["although"] > CUES["his"]


def test_places_are_those_in_an_article():
    alone, both = (
        features(Words(SENTENCES)),
        features(Words(SENTENCES * 2), [0] * len(SENTENCES) + [1] * len(SENTENCES)),
    )
    np.testing.assert_allclose(both[:, :5], np.concatenate([alone, alone])[:, :5])
    assert not np.allclose(features(Words(SENTENCES * 2))[:, :5], both[:, :5])
    assert both[0, 0] == both[len(SENTENCES), 0] == 1


@pytest.mark.parametrize("sentences", [[], [""], ["?"], ["", "!"], ["Bees."], ["Die Bienen fliegen.", "蜜蜂飞。"]])
def test_of_any_sentences_there_is_something_to_say(sentences):
    found = salience(sentences)
    assert found.shape == (len(sentences),)
    assert np.isfinite(found).all()


def test_of_sentences_that_say_as_much_the_first_are_worth_the_most():
    """So of scripts without spaces between words, whose sentences have no word in common."""
    for sentences in ([f"第{number}只蜜蜂在花园里飞行。" for number in range(60)], ["It was so."] * 20):
        assert np.argsort(-salience(sentences), kind="stable")[:5].tolist() == [0, 1, 2, 3, 4]


SEEN = [f"In that year {number} birds were seen at the lake, and later at the sea." for number in range(60)]
FOUND = "Together, our results show how birds find the lake, and suggest that the sea has an essential role."


@pytest.mark.parametrize("place", [24, 37, 55])
def test_what_authors_say_that_they_found_is_read(place):
    """Wherever it stands in a long document."""
    sentences = [*SEEN[:place], FOUND, *SEEN[place:]]
    read = condense("text", " ".join(sentences), 60, lambda texts: [len(text.split()) for text in texts])
    assert read.startswith(SEEN[0])
    assert FOUND in read
    assert ExtractiveSummarizer("salience", max_sentences=1)(text=" ".join(sentences)) == FOUND


def test_headings_are_no_summary():
    text = "Bees\nBees fly to many flowers in the summer.\n\nHives\n\nA hive is where bees live, in the winter too."
    summary = ExtractiveSummarizer("salience", max_sentences=2)(text=text)
    assert summary == "Bees fly to many flowers in the summer. A hive is where bees live, in the winter too."
    assert ExtractiveSummarizer("salience")(text="Bees\n\nHives") == "Bees Hives"
