"""The heatmap: aggregation of the heads, the image, the page."""

import html
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from hier_models.inspection import HierarchicalAttentionMap, top_sentences


NASTY = [
    "</script><script>alert(1)</script> & <b>bold</b> \"quoted\" 'single'",
    "A lone surrogate \ud800, a NUL \x00, an escape \x1b[31m, a line\u2028separator.",
    "Costs $5 and $x_{1}^{2$ in a broken formula \\frac{.",
    "Emoji 🐝🐝, Chinese 蜜蜂会跳舞, Arabic النحل يرقص.",
    "",
    "{{data}} {{title}} \\1 \\g<0>",
]


def random_attention(heads: int, target: int, sentences: int, seed: int = 0) -> np.ndarray:
    weights = np.exp(2 * np.random.default_rng(seed).normal(size=(heads, target, sentences)))
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


def make_map(layers: int, sentences: int, target: int, **kwargs) -> HierarchicalAttentionMap:
    weights = np.stack([top_sentences(random_attention(4, target, sentences, seed)) for seed in range(layers)])
    texts = kwargs.pop("texts", [f"Sentence number {i} of the document." for i in range(sentences)])
    return HierarchicalAttentionMap(weights, texts, [f" token{i}" for i in range(target)], "A summary.", **kwargs)


# Aggregation


def test_example_by_hand():
    weights = np.array(
        [
            [[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4]],
            [[0.1, 0.1, 0.2, 0.6], [0.7, 0.1, 0.1, 0.1]],
        ]
    )
    # Highest over heads: token 0 [.5 .3 .2 .6], token 1 [.7 .2 .3 .4]; the top 2 of each, divided by their sum.
    expected = np.array([[0.5 / 1.1, 0.7 / 1.1], [0, 0], [0, 0], [0.6 / 1.1, 0.4 / 1.1]])
    np.testing.assert_allclose(top_sentences(weights, top_k=2), expected, atol=1e-6)


@pytest.mark.parametrize(("sentences", "top_k"), [(1, 16), (5, 16), (16, 16), (17, 16), (40, 16), (40, 1)])
def test_against_plain_loops(sentences: int, top_k: int):
    weights = random_attention(heads=3, target=7, sentences=sentences)
    expected = np.zeros((sentences, 7))
    for token in range(7):
        highest = [max(float(weights[head, token, row]) for head in range(3)) for row in range(sentences)]
        kept = sorted(range(sentences), key=lambda row: (-highest[row], row))[:top_k]
        for row in kept:
            expected[row, token] = highest[row] / sum(highest[kept_row] for kept_row in kept)
    actual = top_sentences(weights, top_k=top_k)
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert ((actual > 0).sum(axis=0) == min(sentences, top_k)).all()


def test_of_equal_weights_the_earlier_sentence_is_kept():
    actual = top_sentences(np.full((2, 1, 5), 0.2), top_k=3)
    np.testing.assert_allclose(actual[:, 0], [1 / 3, 1 / 3, 1 / 3, 0, 0], atol=1e-6)


def test_token_that_looks_at_nothing_stays_zero():
    assert not top_sentences(np.zeros((2, 3, 4)), top_k=2).any()


def test_input_is_left_alone():
    weights = random_attention(2, 3, 20)
    before = weights.copy()
    top_sentences(weights, top_k=1)
    np.testing.assert_array_equal(weights, before)


@pytest.mark.parametrize(("shape", "top_k", "named"), [((3, 4), 16, "weights"), ((2, 3, 4), 0, "top_k")])
def test_bad_arguments(shape: tuple[int, ...], top_k: int, named: str):
    with pytest.raises(ValueError, match=named):
        top_sentences(np.ones(shape), top_k=top_k)


def test_lengths_must_fit():
    with pytest.raises(ValueError, match="3 sentences and 2 tokens"):
        HierarchicalAttentionMap(np.ones((1, 4, 2)), ["a", "b", "c"], ["x", "y"])
    with pytest.raises(ValueError, match="none of them empty"):
        HierarchicalAttentionMap(np.ones((0, 4, 2)), ["a", "b", "c", "d"], ["x", "y"])


# The image


@pytest.mark.parametrize(
    ("layers", "sentences", "target"), [(1, 1, 1), (1, 3, 8), (2, 16, 120), (4, 30, 20), (12, 300, 500)]
)
def test_png_is_drawn(tmp_path: Path, layers: int, sentences: int, target: int):
    path = make_map(layers, sentences, target).save_png(tmp_path / "map.png")
    image = imread(path)
    assert image.shape[0] > 200
    assert image.shape[1] > 600
    assert image.shape[1] < 4500


def test_png_shows_the_cell(tmp_path: Path):
    """A single looked-at sentence is one dark cell, and it moves as it should."""

    def dark_pixels(row: int, column: int) -> np.ndarray:
        weights = np.zeros((1, 6, 9))
        weights[0, row, column] = 1.0
        path = HierarchicalAttentionMap(weights, [""] * 6, ["x"] * 9).save_png(tmp_path / "map.png")
        return np.all(np.abs(imread(path)[..., :3] - np.array([0x26, 0x10, 0x3F]) / 255) < 0.02, axis=-1)

    def center(pixels: np.ndarray) -> np.ndarray:
        return np.argwhere(pixels).mean(axis=0)

    first, right, below = dark_pixels(3, 2), dark_pixels(3, 5), dark_pixels(5, 2)
    height, width = 1.5 * 150 / 6, 2.6 * 150 / 9  # of a cell, in pixels
    np.testing.assert_allclose(center(right & ~first) - center(first & ~right), [0, 3 * width], atol=1)
    np.testing.assert_allclose(center(below & ~first) - center(first & ~below), [2 * height, 0], atol=1)
    assert (first & ~right).sum() == pytest.approx(height * width, rel=0.1)


@pytest.mark.filterwarnings("error")
def test_png_with_any_text(tmp_path: Path):
    attention = make_map(2, len(NASTY), 8, texts=NASTY, title=NASTY[0])
    attention.tokens[:3] = ["$a_", "\ud800\x00", "🐝"]
    assert imread(attention.save_png(tmp_path / "map.png")).size


def test_png_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=re.escape('pip install "hier_models[plots]"')):
        make_map(1, 2, 2).save_png(tmp_path / "map.png")
    assert not list(tmp_path.iterdir())


# The page


class Page(HTMLParser):
    """Collects what a browser would see as elements."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self._inside = ""
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._inside = dict(attrs).get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        self.texts[self._inside] = self.texts.get(self._inside, "") + data

    @property
    def data(self) -> dict:
        return json.loads(self.texts["data"])


def test_page_holds_texts_and_weights(tmp_path: Path):
    attention = make_map(3, 40, 12, title="A paper", num_truncated_tokens=7)
    page = Page(attention.save_html(tmp_path / "map.html"))
    data = page.data
    assert data["sentences"] == attention.sentences
    assert data["tokens"] == attention.tokens
    weights = np.zeros_like(attention.weights)
    for layer, tokens in enumerate(data["layers"]):
        for token, pairs in enumerate(tokens):
            assert len(pairs) == 2 * 16
            weights[layer, pairs[0::2], token] = np.array(pairs[1::2]) / data["scale"]
    np.testing.assert_allclose(weights, attention.weights, atol=0.5 / data["scale"] + 1e-7)
    assert page.texts["title"] == page.texts["h1"] == "A paper"
    assert "40 sentences" in page.source
    assert "7 tokens of the document cut" in page.source


def test_page_needs_nothing_else(tmp_path: Path):
    page = Page(make_map(2, 5, 5).save_html(tmp_path / "map.html"))
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert not {"src", "href", "srcset", "action"} & {name for name, _ in page.attributes}
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|\bimport\(|fetch\(|XMLHttp", page.source)
    policy = next(value for name, value in page.attributes if name == "content" and value and "default-src" in value)
    assert "default-src 'none'" in policy


def test_notebook_shows_the_page_in_a_frame_of_its_own():
    nasty = make_map(1, len(NASTY), 4, texts=NASTY, title=NASTY[0])
    shown = re.fullmatch(r'<iframe srcdoc="([^"]*)" title="([^"]*)" style="[^"]*"></iframe>', nasty._repr_html_())
    assert shown
    assert not {"<", ">"} & set(shown[1] + shown[2])
    assert html.unescape(shown[1]) == nasty.page()
    assert html.unescape(shown[2]) == NASTY[0]


def test_texts_are_never_markup(tmp_path: Path):
    plain = Page(make_map(1, len(NASTY), 4).save_html(tmp_path / "plain.html"))
    nasty = make_map(1, len(NASTY), 4, texts=NASTY, title=NASTY[0] + "{{data}}{{caption}}")
    nasty.tokens = ["</script>", "<!--", "<s>", "\ud800\n"]
    nasty.summary = "</script><img src=x onerror=alert(1)>"
    page = Page(nasty.save_html(tmp_path / "nasty.html"))
    assert page.tags == plain.tags
    assert page.data["sentences"][0] == NASTY[0]
    assert page.data["sentences"][3] == NASTY[3]
    assert page.data["sentences"][4] == ""
    assert page.data["sentences"][5] == NASTY[5]
    assert page.data["tokens"] == ["</script>", "<!--", "<s>", "?\n"]
    assert page.texts["h1"] == NASTY[0] + "{{data}}{{caption}}"
    assert html.escape(NASTY[0]) in page.source


def test_page_is_accessible(tmp_path: Path):
    page = Page(make_map(2, 5, 5, unit="turn").save_html(tmp_path / "map.html"))
    attributes = set(page.attributes)
    assert ("lang", "en") in attributes
    assert ("role", "status") in attributes
    assert ("aria-live", "polite") in attributes
    assert ("tabindex", "0") in attributes
    assert {"title", "main", "h1", "h2", "fieldset", "legend", "noscript"} <= set(page.tags)
    assert "prefers-color-scheme: dark" in page.source
    assert page.data["unit"] == "turn"
    assert "5 turns" in page.source


def test_page_of_a_long_paper_stays_small(tmp_path: Path):
    path = make_map(12, 300, 500).save_html(tmp_path / "map.html")
    assert path.stat().st_size < 1_500_000
