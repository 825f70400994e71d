"""Sentence splitting: what ends a sentence, what does not, and that it stays quick on odd text."""

# ruff: noqa: RUF001

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hier_models.models.sentence_splitting import split_sentences
from tests.conftest import DOCUMENTS


def sentences(text: str, language: str = "english") -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, language)]


@pytest.mark.parametrize(
    "expected",
    [
        ["Dr. Meyer of the U.S. Navy met Prof. Li.", "They spoke of Fig. 2 and Eq. (3)."],
        ["Smith et al. (2003) show this, cf. Sec. 4.", "Others, e.g. J. R. Firth, i.e. linguists, do not."],
        ["Is it so?", "Yes!", "It is... perhaps.", "See pp. 3-5, vol. 2, no. 7."],
        ["It ends in brackets (see below).", "So does this [12].", "3.14 is no end.", "www.example.org is none."],
        ["He said “Go.”", "She went.", "(It rained.)", "“Why?” she asked."],
        ["Acme Inc. uses Yahoo!'s data.", "It helps w.r.t. speed."],
        ["Some (e.g. linguists) do not.", "It goes . . . on and on.", "Then it ends."],
        ["We saw Ae. neglecta and Bras. napus.", "Of spp. (Ae. alba, Bras. nigra f. sp. alba) few grew.", "So Ae."],
        [
            "I met Tom.",
            "he was nice.",
            "I like Tom.",
            "he is kind.",
            "It grew in cv. Keumkang wheat.",
            "An unknown Bacillus sp.",
            "The end.",
            "Yes.",
            "i do.",
            "We saw Rome.",
            "it was big.",
        ],
        ["They live in Rome.", "Its May.", "Nothing.", "i know rome.", "it is old."],
        ["spaced marks .", "as transcripts have them .", "right ?", "yes"],
        ["Это предложение.", "И это тоже."],
    ],
)
def test_ends(expected: list[str]) -> None:
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize("blank", ["\n\n", "\r\n\r\n", "\n \t\n", "\u2029", " \n\n\n  "])
def test_blank_lines_end_sentences(blank: str) -> None:
    assert sentences(f"A Heading{blank}Some text\nin lines. More{blank}") == [
        "A Heading",
        "Some text\nin lines.",
        "More",
    ]


@pytest.mark.parametrize(
    "expected",
    [
        ["他来了。", "她走了！", "真的吗？", "“好。”", "是的"],
        ["今日は雨です。", "傘が要る！？", "「はい。」", "そうです。"],
        ["यह एक वाक्य है।", "यह दूसरा है।"],
        ["یہ ایک جملہ ہے۔", "کیا یہ؟", "ہاں"],
    ],
)
def test_full_stops_of_other_scripts(expected: list[str]) -> None:
    for space in ("", " "):
        assert sentences(space.join(expected)) == expected


def test_language_decides_abbreviations() -> None:
    text = "Am 3. Mai kam er z. B. mit dem Zug. Danach fuhr er bzw. lief er heim."
    assert len(sentences(text, "german")) == 2
    assert len(sentences(text, "english")) > 2


@pytest.mark.parametrize("text", ["", " ", "\n\n \t\u2029", "\u3000"])
def test_no_text_no_sentence(text: str) -> None:
    assert split_sentences(text) == []


PIECES = st.sampled_from(
    [
        ".",
        "!",
        "?",
        "…",
        "。",
        '"',
        "”",
        ")",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\r\n",
        "\u2029",
        "\u00a0",
        "\0",
        "🙂",
        "e.g.",
        "Dr.",
        "word",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES | st.text(max_size=4), max_size=40).map("".join) | st.text())
def test_spans_cover_all_text_in_order(text: str) -> None:
    position = 0
    for start, end in split_sentences(text):
        assert position <= start < end
        assert not text[position:start].strip()
        assert text[start:end] == text[start:end].strip()
        position = end
    assert not text[position:].strip()


ODD = {
    "no end": "word " * 20_000,
    "one word": "x" * 100_000,
    "periods": "." * 100_000,
    "spaced periods": ". " * 50_000,
    "marks": "?!" * 50_000,
    "bracketed": "a!)" * 33_000,
    "initials": "a. " * 33_000,
    "hyphens": "-" * 100_000,
    "commas": "," * 99_999 + ". A",
    "spaces": " " * 100_000 + ".",
    "period and spaces": "End." + " " * 100_000,
    "lines": "\n" * 100_000,
    "lines and spaces": "\n \t" * 33_000,
    "dotted words": "a.b." * 25_000,
    "quotes": '." ' * 33_000,
    "digits": "1" * 99_000 + "x. Y",
    "Chinese": "字" * 100_000,
    "no spaces": "word.Word" * 11_000,
    "no-break spaces": "Word.\u00a0" * 16_000,
}


@pytest.mark.parametrize("name", ODD)
def test_time_grows_with_length_only(name: str) -> None:
    """Ten times the text takes about ten times as long; quadratic work would take a hundred."""
    text = ODD[name]
    split_sentences(text[:100])

    def seconds(length: int) -> float:
        times = []
        for _ in range(3):
            start = time.process_time()
            split_sentences(text[:length])
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(100_000) < 30 * seconds(10_000) + 0.05


def test_a_million_characters() -> None:
    text = " ".join(DOCUMENTS[:3]) + " "
    repeats = 1_000_000 // len(text) + 1
    start = time.process_time()
    spans = split_sentences(text * repeats)
    assert time.process_time() - start < 10  # takes about 0.1 s
    assert len(spans) == repeats * len(split_sentences(text))


def test_unknown_language() -> None:
    with pytest.raises(ValueError, match=r"`language`.*german.*'klingon'"):
        split_sentences("A text.", "klingon")
