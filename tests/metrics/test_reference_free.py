"""Scores of summaries against their documents: by hand, and against slow counts written from the papers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hier_models.metrics import reference_free_counts, reference_free_scores


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d5"]), max_size=14)
PAIRS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4)


def scores(*pairs: tuple[str, str]) -> dict[str, float | None]:
    return reference_free_scores(reference_free_counts(summary, document) for summary, document in pairs)


def slow_fragments(summary: list[str], document: list[str]) -> list[int]:
    """Grusky et al., section 4: at each word the longest sequence that stands anywhere, then the word after it."""
    text = " " + " ".join(document) + " "
    lengths = []
    while summary:
        sizes = (size for size in range(len(summary), 0, -1) if f" {' '.join(summary[:size])} " in text)
        size = next(sizes, 0)
        lengths.append(size)
        summary = summary[max(1, size) :]
    return lengths


def slow_ngrams(words: list[str], n: int) -> list[str]:
    return [" ".join(words[start : start + n]) for start in range(len(words) - n + 1)]


@settings(max_examples=200, deadline=None)
@given(pairs=PAIRS)
def test_scores_are_those_of_slow_counts(pairs):
    found = scores(*((" ".join(summary), " ".join(document)) for summary, document in pairs))
    written = [(summary, document) for summary, document in pairs if summary]
    for name, value in {
        "coverage": [sum(slow_fragments(s, d)) / len(s) for s, d in written],
        "density": [sum(size * size for size in slow_fragments(s, d)) / len(s) for s, d in written],
        "compression": [len(d) / len(s) for s, d in written],
    }.items():
        assert found[name] == (pytest.approx(sum(value) / len(value), abs=1e-10) if value else None)
    for n in (1, 2, 3, 4):
        novel = [f" {gram} " not in f" {' '.join(d)} " for s, d in pairs for gram in slow_ngrams(s, n)]
        assert found[f"novel_{n}"] == (pytest.approx(sum(novel) / len(novel), abs=1e-10) if novel else None)
    again = [gram in slow_ngrams(s, 3)[:i] for s, _ in pairs for i, gram in enumerate(slow_ngrams(s, 3))]
    assert found["repeated_trigrams"] == (pytest.approx(sum(again) / len(again), abs=1e-10) if again else None)
    facts = [word in d for s, d in pairs for word in s if word == "d5"]
    assert found["facts"] == (pytest.approx(sum(facts) / len(facts), abs=1e-10) if facts else None)
    assert found["finished"] == 0


def test_numbers_by_hand():
    document = "On Monday the bridge was closed. Dr. Meyer found a crack, and traffic takes the old road."
    summary = "The bridge was closed on Tuesday by Meyer. A crack was 3 m long"
    found = scores((summary, document))
    # "the bridge was closed" (4), "on" (1), "Meyer" (1), "a crack" (2), "was" (1); tuesday, by, 3, m, long are new.
    assert found["coverage"] == pytest.approx(9 / 14)
    assert found["density"] == pytest.approx((16 + 1 + 1 + 4 + 1) / 14)
    assert found["compression"] == pytest.approx(17 / 14)
    assert found["novel_1"] == pytest.approx(5 / 14)
    assert found["novel_4"] == pytest.approx(10 / 11)
    assert found["facts"] == pytest.approx(1 / 3)  # Tuesday and 3 are not there; "The" and "A" begin sentences
    assert found["finished"] == 0


def test_the_longest_fragment_counts_where_a_shorter_one_overlaps_it():
    assert scores(("a a b", "a a a b"))["density"] == 3


def test_shares_are_of_all_summaries_and_means_of_each():
    pairs = [("Rain fell. Rain fell. Rain fell.", "Rain fell."), ("Snow 5.", "Hail 5 7."), ("", "Nothing.")]
    found = scores(*pairs)
    assert found["coverage"] == pytest.approx((1 + 0.5) / 2)  # the empty one has no words to cover
    assert found["compression"] == pytest.approx((2 / 6 + 3 / 2) / 2)
    assert found["novel_1"] == pytest.approx(1 / 8)
    assert found["repeated_trigrams"] == pytest.approx(2 / 4)
    assert found["finished"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("text", ['He said "no."', "Really?", "橋は閉じた。", "Closed (for weeks!)", "Closed. \n"])
def test_finished(text):
    assert scores((text, ""))["finished"] == 1


@pytest.mark.parametrize("text", ["The bridge is", "The bridge, ", "See section 3.1", ""])
def test_not_finished(text):
    assert scores((text, ""))["finished"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "“The ferry sank.” She wept. “Help came.”",
        '"The ferry sank." It sank… Then it was gone.',
        "„Er kam.“ Sie ging.",
        "  Help came.",
        "- Help came.\n- Nobody sank.\n  • “Good.”",
        "* Help came\n– Then it was gone",
    ],
)
def test_the_first_word_of_a_sentence_is_no_name(text):
    assert reference_free_counts(text, "").facts == 0


@pytest.mark.parametrize(
    ("text", "facts"),
    [("Help by Ann - Bob came", 2), ("He came           Ann", 1), ("1) Help came.\n2. So it went.", 2)],
)
def test_names_and_numbers(text, facts):
    """Numbers of a list count, as all numbers do; the words after them begin sentences."""
    assert reference_free_counts(text, "").facts == facts


def test_chinese_characters_are_words():
    assert scores(("橋閉", "橋開"))["coverage"] == 0.5


def test_nothing_to_count():
    assert set(scores().values()) == {None}
