"""Blind pairs: what the page shows, what the key hides, and what votes say, against counts by hand."""

import csv
import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from hier_models.experiments.blind_pairs import (
    KEY_FILE,
    PAGE_FILE,
    Vote,
    count_votes,
    fleiss_kappa,
    read_votes,
    save_blind_pairs,
    verdict_table,
)
from tests.cli.commands import mistake, run, write_jsonl


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DOCUMENTS = [f"Document {number}: <b>bees</b> dance." for number in range(12)]
SUMMARIES = {
    "hat": [f"Bees & sun {number}." for number in range(12)],
    "bart": [f"Rain {number}." if number else "Bees & sun 0." for number in range(12)],
}


def pairs(folder, **options):
    return save_blind_pairs(folder, DOCUMENTS, SUMMARIES, generator=random.Random(0), **options)


def test_pairs_are_drawn_and_hidden(tmp_path):
    key = pairs(tmp_path / "out", number=10)
    assert len(key["pairs"]) == 10
    assert "1" not in {pair["id"] for pair in key["pairs"].values()}  # both systems wrote the same
    assert Counter(pair["A"] for pair in key["pairs"].values()) == {"hat": 5, "bart": 5}
    assert json.loads((tmp_path / "out" / KEY_FILE).read_text()) == key
    page = (tmp_path / "out" / PAGE_FILE).read_text()
    assert "<b>bees</b>" not in page
    assert "&lt;b&gt;bees" in page
    assert '"hat"' not in page
    assert "bart" not in page
    with pytest.raises(FileExistsError, match="is there already"):
        pairs(tmp_path / "out")
    assert len(pairs(tmp_path / "new" / "all", number=50)["pairs"]) == 11


def test_what_cannot_be_judged(tmp_path):
    for summaries, options, says in (
        ({"hat": ["a"]}, {}, "a pair is of two systems"),
        ({"hat": ["a"], "bart": ["a", "b"]}, {}, "bart has 2 for 1 documents"),
        ({"hat": ["a"], "bart": ["a"]}, {}, "all the same"),
        ({"hat": ["a"], "bart": ["b"]}, {"aspects": ["x", "x"]}, "all different"),
        ({"hat": ["a"], "bart": ["b"]}, {"number": 0}, "give 1 or more"),
    ):
        with pytest.raises(ValueError, match=says):
            save_blind_pairs(tmp_path / "out", ["text"], summaries, **options)
    assert not (tmp_path / "out").exists()


def test_votes_are_counted(tmp_path):
    key = pairs(tmp_path, number=2, aspects=["fluency", "style"])
    one, two = key["pairs"]
    letter = {pair: "A" if key["pairs"][pair]["A"] == "hat" else "B" for pair in (one, two)}
    other = {"A": "B", "B": "A"}
    votes = [
        Vote("ann", one, "fluency", letter[one]),
        Vote("ben", one, "fluency", letter[one]),
        Vote("ann", two, "fluency", other[letter[two]]),
        Vote("ben", two, "fluency", "tie"),
    ]
    found = count_votes(votes, key)
    assert list(found) == ["fluency"]
    verdict = found["fluency"]
    assert (verdict.win, verdict.lose, verdict.tie, verdict.difference) == (0.5, 0.25, 0.25, 0.25)
    assert (verdict.pairs, verdict.judges, verdict.votes) == (2, 2, 4)
    assert verdict.interval[0] == -0.5
    assert verdict.interval[1] == 1.0
    assert verdict.kappa == pytest.approx((0.5 - 0.375) / (1 - 0.375))  # chance: (1/2)^2 + (1/4)^2 + (1/4)^2
    assert "50.0%" in verdict_table(found)
    with pytest.raises(ValueError, match="'ann' voted twice"):
        count_votes([*votes, votes[0]], key)
    with pytest.raises(ValueError, match="there are none"):
        count_votes([], key)


def slow_kappa(ratings):
    """Agreement of each pair of judges, and that of two judges who vote by the shares of all votes."""
    items = [[vote for vote, count in enumerate(row) for _ in range(count)] for row in ratings]
    agreed = [
        [a == b for i, a in enumerate(votes) for j, b in enumerate(votes) if i != j]
        for votes in items
        if len(votes) > 1
    ]
    observed = sum(sum(same) / len(same) for same in agreed) / len(agreed)
    every = Counter(vote for votes in items for vote in votes)
    chance = sum((count / sum(every.values())) ** 2 for count in every.values())
    return (observed - chance) / (1 - chance)


def test_kappa_is_that_of_slow_loops():
    generator = random.Random(1)
    for judges in (2, 4, 14):
        ratings = []
        for _ in range(10):
            votes = Counter(generator.choices(range(3), weights=(3, 1, 1), k=judges))
            ratings.append([votes[category] for category in range(3)])
        assert fleiss_kappa(ratings) == pytest.approx(slow_kappa(ratings), abs=1e-12)
    assert fleiss_kappa([[2, 0, 0], [0, 2, 0]]) == 1
    assert fleiss_kappa([[2, 0, 0], [2, 0, 0]]) is None
    assert fleiss_kappa([[1, 0, 0]]) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("judge,pair\n", "has no column aspect, vote"),
        ("judge,pair,aspect,vote\nann,nobody,fluency,A\n", ":2: there is no pair 'nobody'"),
        ("judge,pair,aspect,vote\nann,PAIR,beauty,A\n", "aspect 'beauty' is none of informativeness"),
        ("judge,pair,aspect,vote\nann,PAIR,fluency,C\n", "vote 'C' is none of A, B, tie"),
    ],
)
def test_votes_that_are_none(tmp_path, text, says):
    key = pairs(tmp_path)
    file = tmp_path / "votes.csv"
    file.write_text(text.replace("PAIR", next(iter(key["pairs"]))))
    with pytest.raises(ValueError, match=says):
        read_votes(file, key)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_votes_in_another_encoding(tmp_path, encoding):
    file = tmp_path / "votes.csv"
    file.write_text("judge,pair,aspect,vote\nÄnne,PAIR,fluency,A\n", encoding=encoding)
    with pytest.raises(ValueError, match=r"votes\.csv is not in UTF-8; save it again"):
        read_votes(file, {})


def test_white_space_is_nothing_to_judge(tmp_path):
    summaries = {"hat": ["Bees dance.", "Rain fell. "], "bart": ["Bees  dance.\n", "Rain falls."]}
    key = save_blind_pairs(tmp_path, ["Bees.", "Rain."], summaries)
    assert [pair["id"] for pair in key["pairs"].values()] == ["2"]


def test_the_command(workplace):
    data = write_jsonl("data.jsonl", [{"id": f"d{n}", "text": text} for n, text in enumerate(DOCUMENTS)])
    files = [
        f"{name}={write_jsonl(f'{name}.jsonl', [{'id': f'd{n}', 'summary': text} for n, text in enumerate(texts)])}"
        for name, texts in SUMMARIES.items()
    ]
    result = run("judge", data, "-p", files[0], "-p", files[1], "--documents", 4, "-o", "judging")
    assert "Left out: 1 of 12 documents, whose two summaries are the same." in result.stderr
    key = json.loads(Path("judging/key.json").read_text())
    with Path("votes.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["judge", "pair", "aspect", "vote"])
        for pair, systems in key["pairs"].items():
            rows.writerow(["ann", pair, "fluency", "A" if systems["A"] == "hat" else "B"])
    result = run("judge", "judging", "--votes", "votes.csv")
    assert result.stdout.splitlines()[0] == "hat against bart"
    assert result.stdout.splitlines()[2].split()[:4] == ["fluency", "100.0%", "0.0%", "0.0%"]
    assert json.loads(Path("judging/verdicts.json").read_text())["aspects"]["fluency"]["win"] == 1
    mistake("judge", data, "-p", files[0], "-o", "other", says="got 1")
    mistake("judge", ".", "--votes", "votes.csv", says="has no key.json")
    mistake("judge", data, "-p", files[0], "-p", files[1], "-o", "judging", says="is there already")
    mistake("judge", "judging", "--votes", "votes.csv", "-o", "other", says="leave out")
    more = ["--aspect", "fluency", "--documents", 3]
    mistake("judge", "judging", "--votes", "votes.csv", *more, says="leave out --aspect, --documents")
    key = json.loads(Path("judging/key.json").read_text())
    parts = [{name: key[name] for name in key if name != part} for part in ("systems", "aspects", "pairs")]
    parts += [[key], key | {"pairs": [1]}, key | {"pairs": {"1": {"id": "a", "B": "hat"}}}]
    for content in ["{", *map(json.dumps, parts)]:
        Path("judging/key.json").write_text(content)
        mistake("judge", "judging", "--votes", "votes.csv", says="judging/key.json is damaged, take it from a copy")
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("Bees dance.")
    both = ["-p", files[0], "-p", files[1]]
    mistake("judge", "texts", *both, "-o", "texts/judging", says="lies in the folder of the data")
    assert not Path("texts/judging").exists()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_the_page_in_a_browser(tmp_path):
    """A judge votes with the keyboard and the mouse, and saves; what is saved can be counted."""
    from playwright.sync_api import sync_playwright

    key = pairs(tmp_path, number=2)
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 420, "height": 800}, accept_downloads=True)
        page.goto(f"file://{tmp_path / PAGE_FILE}")
        page.click("#save")
        assert page.inner_text("#status") == "Give your name first."
        page.fill("#judge", "Ann, B.")
        for question in page.query_selector_all("fieldset"):
            question.query_selector("input").focus()
            page.keyboard.press("Space")
        assert page.inner_text("#status") == "6 of 6 answered"
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(tmp_path / "votes.csv")
        browser.close()
    votes = read_votes(tmp_path / "votes.csv", key)
    assert len(votes) == 6
    assert {vote.judge for vote in votes} == {"Ann, B."}
    assert {vote.choice for vote in votes} == {"A"}
    assert count_votes(votes, key)["fluency"].win == 0.5
