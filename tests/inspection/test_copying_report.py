"""The report on copied sentences: its numbers by hand, its chart and its page."""

import json
import math
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from hier_models.inspection import CopyingReport


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Four paragraphs of two sentences, each of five words: 40 words.
SENTENCES = [f"{name} wrote this short sentence." for name in ("Ann", "Bob", "Cem", "Dan", "Eve", "Fay", "Gus", "Hal")]
DOCUMENT = {"text": "\n\n".join(" ".join(SENTENCES[place : place + 2]) for place in range(0, 8, 2))}
OWN = "Nothing of this stands there."


def report(**options) -> CopyingReport:
    """Two documents, and two models: "spread" copies all over, "plain" the beginning, and once nothing."""
    from hier_models.inspection import CopyRule

    made = CopyingReport(CopyRule(threshold=1.0), **options)
    spread = " ".join([SENTENCES[0], SENTENCES[4], OWN, SENTENCES[7]])
    made.add(DOCUMENT, {"spread": spread, "plain": " ".join(SENTENCES[:2])}, "first")
    made.add(DOCUMENT, {"spread": SENTENCES[3] + " Too short.", "plain": ""})
    return made


def test_numbers_by_hand():
    numbers = report().as_dict()
    assert numbers["documents"] == 2
    assert numbers["rule"]["threshold"] == 1.0
    spread, plain = numbers["models"]["spread"], numbers["models"]["plain"]
    assert (spread["sentences"], spread["judged"], spread["copied"], spread["copied_share"]) == (6, 5, 4, 0.8)
    # Sentences 1, 5, 8 and 4, with 0, 20, 35 and 15 of 40 words before them.
    assert spread["position"]["mean"] == pytest.approx((0 + 20 + 35 + 15) / 4 / 40)
    assert spread["position"]["median"] == pytest.approx(17.5 / 40)
    assert spread["position"]["quartiles"] == pytest.approx([11.25 / 40, 17.5 / 40, 23.75 / 40])
    assert spread["sentence"] == {"mean": 4.5, "median": 4.5}
    assert spread["block"] == {
        "name": "paragraph",
        "documents": 2,
        "mean": 2.5,  # paragraphs 1, 3, 4 and 2
        "median": 2.5,
        "first_share": 0.25,
        "per_summary": 2.0,  # three, and one
    }
    assert spread["histogram"]["edges"] == pytest.approx(np.arange(21) / 20)
    places = [bin for bin, count in enumerate(spread["histogram"]["counts"]) for _ in range(count)]
    assert places == [0, 7, 10, 17]
    assert (spread["documents_with_copies"], spread["entire_share"], spread["empty_summaries"]) == (2, 1.0, 0)
    low, high = spread["position"]["mean_interval"]
    assert low == pytest.approx(15 / 40)  # the second document alone, drawn twice
    assert high == pytest.approx(55 / 3 / 40)  # the first alone
    assert (plain["sentences"], plain["copied"], plain["empty_summaries"], plain["documents_with_copies"]) == (
        2,
        2,
        1,
        1,
    )
    assert plain["position"]["mean"] == pytest.approx(2.5 / 40)
    assert plain["position"]["mean_interval"] is None  # one document says nothing of others
    assert plain["block"]["first_share"] == 1.0


def test_a_part_of_a_sentence_is_no_entire_one():
    made = CopyingReport()
    found = made.add(
        {"text": SENTENCES[0][:-1] + " and then she went on and wrote a longer one."}, {"a": SENTENCES[0]}
    )
    assert found["a"][0].coverage == 1
    assert made.as_dict()["models"]["a"]["entire_share"] == 0


def test_nothing_copied_and_nothing_to_copy():
    made = CopyingReport()
    made.add({"text": ""}, {"a": OWN})
    made.add({"sentences": ["Something else was written here."]}, {"a": ""})
    numbers = made.as_dict()["models"]["a"]
    assert (numbers["copied"], numbers["copied_share"]) == (0, 0.0)
    assert numbers["position"] == {"mean": None, "mean_interval": None, "median": None, "quartiles": None}
    assert numbers["block"]["mean"] is None
    assert sum(numbers["histogram"]["counts"]) == 0
    assert "–" in made.table()
    json.dumps(made.as_dict(), allow_nan=False)


def test_rouge_beside_references(tmp_path):
    made = CopyingReport()
    for document, summary, reference in (
        ("Bees dance. Rain falls.", "Bees dance.", "Bees dance."),
        ("A cat.", "A dog.", "A cat."),
    ):
        made.add({"text": document}, {"one": summary, "two": "Nothing here"}, reference=reference)
    numbers = made.as_dict()["models"]
    assert numbers["one"]["rouge"] == {"rouge1": 75, "rouge2": 50, "rougeLsum": 75}
    assert numbers["two"]["rouge"]["rouge1"] == 0
    assert made.table().splitlines()[1].split() == ["ROUGE-1", "75", "0"]
    _, data = page(made, tmp_path)
    assert [listed["scores"][0]["rouge1"] for listed in data["documents"]] == [100, 50]
    assert "ROUGE" not in report().table()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_every_document_by_the_scores_of_its_summaries_in_a_browser(tmp_path):
    from playwright.sync_api import sync_playwright

    made = CopyingReport()
    for name, rouge, entailed in (("Bees", "Rain", 10.0), ("A cat", "A cat", 5.0), ("A dog", "A cat", 90.0)):
        judged = {"one": {"entailment": entailed}, "two": {"entailment": 1.0}}
        made.add({"text": f"{name}. It rains."}, {"one": name, "two": "Nothing 7"}, name, rouge, judged)
    path = made.save_html(tmp_path / "page.html")
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 420, "height": 800}, color_scheme="dark")
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"file://{path}")
        heads = page.locator("#documents thead tr:nth-child(2) button")
        groups = page.locator("#documents thead tr:first-child th").all_inner_texts()
        # After the documents themselves, of each score three columns: one, two, and how far one is ahead.
        place = {name: 3 * (number - 1) + 1 for number, name in enumerate(groups)}
        assert groups[1:5] == ["ROUGE-1", "ROUGE-2", "ROUGE-Lsum", "entailed"]

        def listed() -> list[str]:
            names = page.locator("#documents tbody tr td:first-child").all_inner_texts()
            assert page.inner_text("#which") == names[0]  # the first one is shown
            return [name.split(". ")[1] for name in names]

        assert listed() == ["Bees", "A cat", "A dog"]
        heads.nth(place["entailed"]).click()
        assert listed() == ["A dog", "Bees", "A cat"]
        assert "entailed 90.0" in page.inner_text("#side")
        heads.nth(place["entailed"]).press("Enter")  # the other way round, by the keyboard
        assert listed() == ["A cat", "Bees", "A dog"]
        assert page.locator("[aria-sort]").get_attribute("aria-sort") == "ascending"
        heads.nth(place["ROUGE-1"]).press("Space")
        assert listed() == ["A cat", "A dog", "Bees"]
        heads.nth(place["entailed"] + 2).click()  # ahead: 9, 4 and 89
        assert listed() == ["A dog", "Bees", "A cat"]
        heads.nth(place["names and numbers found, %"]).click()
        assert listed() == ["Bees", "A cat", "A dog"]  # none in any: as they were
        assert page.locator("#documents tbody tr:first-child td").all_inner_texts()[-6:-3] == ["–", "0.0", "–"]
        heads.first.click()
        assert listed() == ["Bees", "A cat", "A dog"]
        # Every document can be reached, with each summary and what it rests on.
        page.locator("#documents tbody button").nth(2).click()
        assert page.inner_text("#which") == "3. A dog"
        assert page.locator("#document .sentence").all_inner_texts() == ["A dog.", "It rains."]
        page.locator("#side [data-places]").press("Enter")
        assert page.locator("#document .at").all_inner_texts() == ["A dog."]
        page.click("#before")
        assert page.inner_text("#which") == "2. A cat"
        # Models by a number of the first table.
        names = page.locator("#numbers thead th")
        page.locator("#numbers button", has_text="entailed").click()
        assert names.all_inner_texts()[1:] == ["one", "two"]
        page.locator("#numbers button", has_text="entailed").press("Enter")
        assert names.all_inner_texts()[1:] == ["two", "one"]
        assert page.locator("#numbers tr", has_text="entailed").locator("td").all_inner_texts()[1:] == ["1", "35"]
        assert page.evaluate("getComputedStyle(document.querySelector('#numbers span')).color") == "rgb(255, 158, 94)"
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
        assert errors == []
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        browser.close()


def test_table():
    lines = report().table().splitlines()
    assert lines[0].split() == ["spread", "plain"]
    table = {line[:35].strip(): line[35:].split() for line in lines[1:]}
    assert table["copied (of those judged)"] == ["80.0%", "100.0%"]
    assert table["in the first paragraph"] == ["25.0%", "100.0%"]
    assert table["paragraphs a summary copies from"] == ["2", "1"]


def test_json_and_lines(tmp_path):
    made = report()
    assert json.loads(made.save_json(tmp_path / "a.json").read_text()) == made.as_dict()
    rows = [json.loads(line) for line in made.save_copies(tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(row["model"], row["id"], row["summary_sentence"], row["sentence"], row["block"]) for row in rows] == [
        ("spread", "first", 1, 1, 1),
        ("spread", "first", 2, 5, 3),
        ("spread", "first", 4, 8, 4),
        ("spread", "2", 1, 4, 2),
        ("plain", "first", 1, 1, 1),
        ("plain", "first", 2, 2, 1),
    ]
    assert rows[1]["position"] == 0.5


def test_png_has_a_bar_where_copies_are(tmp_path):
    few, many = CopyingReport(), CopyingReport()
    few.add(DOCUMENT, {"first": SENTENCES[0]})
    many.add(DOCUMENT, {"first": SENTENCES[7]})
    blue = np.array([0x1F, 0x66, 0xAD]) / 255
    centers = []
    for made in (few, many):
        image = imread(made.save_png(tmp_path / "a.png"))[:, :, :3]
        height, width = image.shape[:2]
        histogram = image[int(height * 0.3) :, : int(width * 0.62)]  # below the model's name, left of the sums
        _, columns = np.nonzero((np.abs(histogram - blue) < 0.02).all(axis=2))
        assert len(columns) > 1000
        centers.append(columns.mean() / width)
    assert centers[0] < 0.1 < 0.45 < centers[1]


def test_png_of_nothing_and_of_odd_names(tmp_path):
    made = CopyingReport(title="A $title$ \x07 桥")
    made.add(DOCUMENT, {"$a_b$": "", "<b>": OWN, **{f"m{number}": SENTENCES[number] for number in range(6)}})
    assert imread(made.save_png(tmp_path / "a.png")).shape[2] == 4


def test_the_legend_has_every_model_that_copied():
    made = CopyingReport()
    made.add(DOCUMENT, {"_base": SENTENCES[0], "none": "", "a $b$ c": SENTENCES[1]})
    axes = Figure().add_subplot()
    made._draw_sums(axes)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["_base", "a $b$ c"]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str | None, str] = {}
        self._within: str | None = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self._within = dict(attributes).get("id") if tag == "script" else None

    def handle_endtag(self, tag):
        self._within = None

    def handle_data(self, data):
        self.texts[self._within] = self.texts.get(self._within, "") + data

    @property
    def pages(self) -> list[dict]:
        return [json.loads(text) for name, text in self.texts.items() if name and name.startswith("page-")]


def page(made: CopyingReport, folder: Path) -> tuple[Page, dict]:
    parsed = Page(made.save_html(folder / "a.html").read_text(encoding="utf-8"))
    return parsed, json.loads(parsed.texts["data"])


def test_page(tmp_path):
    parsed, data = page(report(shown=1), tmp_path)
    assert data["names"] == ["spread", "plain"]
    assert (data["total"], len(data["documents"])) == (2, 1)
    assert data["documents"][0]["id"] == "first"
    [document] = parsed.pages
    assert document["sentences"] == SENTENCES
    assert document["blocks"] == [0, 0, 1, 1, 2, 2, 3, 3]
    spread = document["summaries"][0]
    assert [entry["copy"] and entry["copy"]["sentence"] for entry in spread] == [0, 4, None, 7]
    # What is not copied leads to the sentences with most words in common: "this", in all of them.
    assert spread[2] == {"text": OWN, "judged": True, "copy": None, "sources": [0, 1, 2]}
    assert spread[1]["sources"] == [4]
    copied = spread[1]["copy"]
    assert [SENTENCES[4][a:b] for a, b in copied["marks"]] == [SENTENCES[4]]
    assert copied["position"] == 0.5
    # It needs nothing else, and may fetch nothing.
    assert not {"link", "img", "iframe"} & set(parsed.tags)
    assert not [value for name, value in parsed.attributes if name in ("src", "href")]
    assert [value for _, value in parsed.attributes if value and value.startswith("default-src 'none'")]


def test_texts_of_the_page_are_no_markup(tmp_path):
    evil = "</script><script>alert(1)</script> wrote this short sentence {{data}} \ud800 \U0001f600 and five words."
    made = CopyingReport(title="<img src=x> {{data}}")
    made.add({"sentences": [evil]}, {"<b>a</b>": evil}, "<i>{{title}}")
    parsed, data = page(made, tmp_path)
    assert parsed.tags.count("script") == 3
    assert "img" not in parsed.tags
    assert data["names"] == ["<b>a</b>"]
    [document] = parsed.pages
    assert document["sentences"] == [evil.replace("\ud800", "?")]
    # The browser counts the emoji as two characters.
    sentence, [first, second] = document["sentences"][0], document["summaries"][0][0]["copy"]["marks"][0]
    units = sentence.encode("utf-16-le")
    assert units[2 * first : 2 * second].decode("utf-16-le") == sentence


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CopyingReport(shown=-1), "shown: got -1"),
        (
            lambda: CopyingReport().add(DOCUMENT, {"a": OWN}, judged={"a": {"bert_score": math.nan}}),
            "judged: got bert_score nan of a; give finite numbers",
        ),
        (lambda: CopyingReport().add(DOCUMENT, {}), "summaries: got none"),
        (
            lambda: report().add(DOCUMENT, {"plain": ""}),
            "got those of plain, but the documents before had spread, plain",
        ),
        (lambda: CopyingReport().save_png("a.png"), "no document was added"),
        (lambda: CopyingReport().save_html("a.html"), "no document was added"),
        (lambda: CopyingReport().add({"title": "x"}, {"a": ""}), "document: it must have exactly one of"),
    ],
)
def test_bad_input(make, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        make()


def test_png_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install"):
        report().save_png(tmp_path / "a.png")
