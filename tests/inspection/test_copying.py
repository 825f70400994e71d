"""What counts as copied, and where it stands, against a slow search that shares no code with the fast one."""

import itertools
import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hier_models.inspection import Copy, CopyRule, find_copies, source_text
from hier_models.inspection.copying import SourceText, split_summary, words_of


PAPER = """Introduction

Long documents are hard to summarize with a plain model. We look at papers and at meetings of several hours.

A second paragraph tells of earlier work. Some of it reads every sentence by itself, and some of it reads the whole.

We show that "a marker before every sentence" helps the decoder to find its place (see Fig. 2). It costs little."""


# The reference: every sentence compared with every other, in plain loops


def slow_common(a: list[str], b: list[str]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, j in itertools.product(range(len(a)), range(len(b))):
        same = a[i] == b[j]
        table[i + 1][j + 1] = table[i][j] + 1 if same else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def slow_run(a: list[str], b: list[str]) -> int:
    best = 0
    for i, j in itertools.product(range(len(a)), range(len(b))):
        length = 0
        while i + length < len(a) and j + length < len(b) and a[i + length] == b[j + length]:
            length += 1
        best = max(best, length)
    return best


def slow_copy(sentences: list[list[str]], words: list[str], rule: CopyRule) -> tuple[int, float, float, int] | None:
    """(sentence, coverage, extent, run)"""
    if len(words) < rule.min_words:
        return None
    candidates = []
    for number, sentence in enumerate(sentences):
        common, run = slow_common(sentence, words), slow_run(sentence, words)
        if common / len(words) >= rule.threshold - 1e-9 and run >= rule.min_run:
            candidates.append((-common, -run, -common / len(sentence), number))
    if not candidates:
        return None
    common, run, extent, number = min(candidates)
    return number, -common / len(words), -extent, -run


words = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9)


@settings(max_examples=300, deadline=None)
@given(
    document=st.lists(words, max_size=6),
    summary=st.lists(words, max_size=3),
    threshold=st.sampled_from([0.6, 2 / 3, 0.8, 1.0]),
    runs=st.sampled_from([(1, 1), (2, 3), (3, 4)]),
)
def test_against_the_slow_search(document, summary, threshold, runs):
    rule = CopyRule(threshold, *runs)
    source = SourceText(tuple(" ".join(sentence) for sentence in document))
    found = find_copies(source, [" ".join(sentence) for sentence in summary], rule)
    total = sum(map(len, document))
    for copy, sentence in zip(found, summary, strict=True):
        expected = slow_copy(document, sentence, rule)
        if expected is None:
            assert copy is None
            continue
        assert (copy.sentence, copy.run) == (expected[0], expected[3])
        assert copy.coverage == pytest.approx(expected[1])
        assert copy.extent == pytest.approx(expected[2])
        assert copy.position == pytest.approx(sum(map(len, document[: expected[0]])) / total)


# By hand


def test_a_document_by_hand():
    source = source_text({"text": PAPER})
    assert source.sentences[0] == "Introduction"
    assert len(source.sentences) == 7
    assert source.blocks == (0, 0, 0, 1, 1, 2, 2)
    summary = [
        "We look at papers and at meetings of several hours.",  # as it stands
        "Some of it reads each sentence by itself, and some of it reads the whole",  # one word of 15 replaced
        "a marker before every sentence helps the decoder",  # a part
        "It costs little.",  # too short to judge
        "Summaries of papers and meetings of hours are hard to write.",  # its own
    ]
    copies = find_copies(source, summary)
    total = len(re.findall(r"\w+", PAPER))
    before = len(re.findall(r"\w+", PAPER[: PAPER.index("We look")]))
    assert copies[0] == Copy(2, 1.0, 1.0, 10, before / total, 0)
    assert copies[1].sentence == 4
    assert copies[1].coverage == copies[1].extent == pytest.approx(14 / 15)
    assert copies[1].run == 10
    assert copies[2].sentence == 5
    assert (copies[2].coverage, copies[2].extent, copies[2].block) == (1.0, 8 / 18, 2)
    assert copies[3:] == [None, None]
    first = source.sentences[2]
    assert copies[0].marks == ((0, len(first)),)
    assert [source.sentences[4][a:b] for a, b in copies[1].marks] == [
        "Some of it reads",
        "sentence by itself, and some of it reads the whole.",
    ]
    assert [source.sentences[5][a:b] for a, b in copies[2].marks] == [
        'a marker before every sentence" helps the decoder'
    ]


def test_scattered_words_are_no_copy():
    """A long sentence holds the words of a short one, in order, here and there."""
    long = "we went and then the dog saw a man who had his ball in the yard and ran off with it"
    assert find_copies(SourceText((long,)), ["we saw a man and ran"]) == [None]
    assert find_copies(SourceText((long,)), ["we saw a man and ran"], CopyRule(min_run=3)) != [None]


def test_the_rule_at_its_edge():
    source = SourceText(("one two three four five six seven eight nine ten",))
    ten = "one two three four x five six seven eight y"  # 8 of 10 in order, 4 in one piece
    assert find_copies(source, [ten])[0].coverage == 0.8
    assert find_copies(source, [ten], CopyRule(threshold=0.81)) == [None]
    assert find_copies(source, [ten], CopyRule(min_run=5)) == [None]
    assert find_copies(source, ["one two three four"], CopyRule()) == [None]
    assert find_copies(source, ["one two three four"], CopyRule(min_words=4))[0].coverage == 1


def test_of_equals_the_longest_piece_then_the_most_entire_then_the_first():
    broken = "red green blue or white black and gold"
    whole = "red green blue white black gold"
    longer = whole + " and many more words than that"
    summary = ["red green blue white black gold"]
    for order, expected in (([broken, longer, whole, whole], 2), ([longer, broken], 0), ([whole, whole], 0)):
        assert find_copies(SourceText(tuple(order)), summary)[0].sentence == expected


def test_case_marks_and_forms_of_characters_do_not_matter():
    source = SourceText(("The ﬁnal Straße — “re-read” in 2021 — was CLOSED.",))
    assert find_copies(source, ["the final STRASSE re read, in 2021: was closed"])[0].coverage == 1
    assert words_of("naïve co-operation, 3.5 km_h") == ["naïve", "co", "operation", "3", "5", "km", "h"]
    assert words_of("nai\u0308ve cafe\u0301s, E\u0301") == ["naïve", "cafés", "é"]  # accents apart, as in some PDFs


def test_chinese_has_a_word_for_each_character():
    source = source_text({"text": "桥星期一关闭了。工程师发现第二根柱子有裂缝。"})
    copies = find_copies(source, split_summary("工程师发现第二根柱子有裂缝。"))
    assert [copy.sentence for copy in copies] == [1]


def test_kinds_of_documents():
    turns = [{"role": "Ann", "content": "Did you book it? I hope so."}, {"role": "Bob", "content": "Not yet."}]
    source = source_text({"turns": turns, "id": "x"})
    assert source == SourceText(("Did you book it?", "I hope so.", "Not yet."), (0, 0, 1), "turn")
    source = source_text({"documents": ["One is here. Two.", "Three."]})
    assert source == SourceText(("One is here.", "Two.", "Three."), (0, 0, 1), "article")
    assert source.num_blocks == 2
    source = source_text({"sentences": ["a b. c", "d"]})
    assert source == SourceText(("a b. c", "d"))
    assert source.num_blocks == 0
    assert source_text({"text": "No blank line. So no paragraphs."}).blocks is None
    assert source_text({"text": ""}).sentences == ()
    # Line breaks inside a paragraph, and headings one after the other and at the end.
    text = "1 Title\n\n1.1 Part\n\nA line\nbroken. In two.\n \nThe second.\n\nReferences"
    assert source_text({"text": text}).blocks == (0, 0, 0, 0, 1, 2)


def test_empty_texts():
    assert find_copies(SourceText(()), ["a summary of five words"]) == [None]
    assert find_copies(SourceText(("", "...")), ["a summary of five words"]) == [None]
    assert find_copies(source_text({"text": PAPER}), []) == []
    assert split_summary(" \n ") == []
    assert split_summary("One line\nAnother. And more.") == ["One line", "Another.", "And more."]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CopyRule(threshold=0.5), "threshold: got 0.5; it must be above 0.5 and at most 1"),
        (lambda: CopyRule(threshold=1.1), "threshold: got 1.1"),
        (lambda: CopyRule(min_run=0), "min_run: got 0"),
        (lambda: CopyRule(min_words=3), "min_words: got 3; it must be at least min_run=4"),
        (lambda: source_text({"summary": "x"}), "exactly one of text, sentences, turns, documents; got none"),
        (lambda: source_text({"text": "x", "turns": []}), "got text, turns"),
        (lambda: source_text({"text": "x"}, language="klingon"), "klingon"),
    ],
)
def test_bad_input(make, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        make()


def test_long_papers_take_no_more_than_their_share_of_time():
    """Ten times the document, ten times the time, and not a hundred."""
    generator = random.Random(0)
    vocabulary = [f"w{number}" for number in range(2000)] + ["the", "of", "and"] * 300

    def document(sentences: int) -> SourceText:
        return SourceText(tuple(" ".join(generator.choices(vocabulary, k=25)) for _ in range(sentences)))

    def seconds(source: SourceText) -> float:
        summary = [source.sentences[place] for place in range(0, len(source.sentences), len(source.sentences) // 10)]
        begun = time.process_time()
        copies = find_copies(source, summary)
        assert [source.sentences[copy.sentence] for copy in copies] == summary
        return time.process_time() - begun

    short, long = document(400), document(4000)
    assert min(seconds(long) for _ in range(3)) < 30 * min(seconds(short) for _ in range(3))
