"""The page of `hier-models serve`, in a real browser; left out where there is none."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DOCUMENTS, TURNS
from tests.models.test_mini import FERRY
from tests.serving.servers import Running, serving


playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]
MINUTES = 240_000  # milliseconds
LONG = " ".join(f"Bee number {number} flies." for number in range(60))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=MINUTES)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser) -> Iterator[Any]:
    """Open the page of a server; it loads nothing from elsewhere, and its scripts do not fail."""
    context, wrong = browser.new_context(), []

    def come(server: Running, width: int = 1280) -> Any:
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 800})
        page.set_default_timeout(MINUTES)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on(
            "request", lambda sent: wrong.append(sent.url) if not sent.url.startswith((server.url, "data:")) else None
        )
        page.goto(server.url)
        return page

    yield come
    context.close()
    assert wrong == []


def done(page: Any, says: str = "Done.") -> None:
    page.locator("#status", has_text=says).wait_for()


def fits(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1280, 360])
def test_a_sentence_lights_what_it_rests_on_by_keyboard_alone(server: Running, visit, width: int):
    expected = server.ask(text=DOCUMENTS[1], sources=True).json()
    page = visit(server, width)
    assert fits(page)
    page.keyboard.press("Tab")
    page.keyboard.insert_text(DOCUMENTS[1])
    page.keyboard.press("Control+Enter")
    done(page)
    assert page.locator("#summary").text_content() == expected["summary"]
    assert page.locator("#document").text_content() == expected["document"] == DOCUMENTS[1]
    page.keyboard.press("Tab")  # from the summary's heading, past the button Copy
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    best = next(sentence for sentence in expected["sources"] if sentence["sources"])
    assert page.locator("#summary a.at").text_content() == best["text"]
    marked = sorted(place["text"] for place in best["sources"])
    assert sorted(page.locator("mark.on").all_text_contents()) == marked
    assert sorted(page.locator("#list a").all_text_contents()) == marked
    assert page.locator("#list b").all_text_contents() == [
        f"{place['weight']:.0%}".replace("%", " %") for place in best["sources"]
    ]
    assert fits(page)


def test_files(server: Running, visit, tmp_path: Path):
    page = visit(server)
    rows = [
        {"text": DOCUMENTS[0]},
        {"turns": TURNS},
        {"sentences": ["One.", "Two, or more."]},
        {"documents": DOCUMENTS[1:3]},
        {"text": LONG, "query": "Which is number 50?", "page_starts": [{"start": 0, "page": 7}]},
    ]
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    page.set_input_files("#file", tmp_path / "records.jsonl")
    for number, row in enumerate(rows, start=1):
        page.fill("#number", str(number))
        page.click("#go")
        done(page)
        assert page.locator("#summary").text_content() == server.ask(**row).json()["summary"]
    assert "what is least like the question" in page.locator("#note").text_content()
    assert page.locator("#document mark").first.get_attribute("title") == "Page 7"
    page.get_by_label("What it is to answer").fill("Which is number 7?")  # which goes before the record's own
    page.click("#go")
    done(page)
    asked = {**rows[-1], "query": "Which is number 7?"}
    assert page.locator("#summary").text_content() == server.ask(**asked).json()["summary"]
    page.get_by_label("What it is to answer").fill("")
    page.click("#clear")
    assert page.input_value("#text") == ""
    assert page.is_editable("#text")
    (tmp_path / "paper.txt").write_text(DOCUMENTS[1])
    page.set_input_files("#file", tmp_path / "paper.txt")
    done(page, "paper.txt is in the field")
    assert page.input_value("#text") == DOCUMENTS[1]
    assert not page.is_visible("#which")
    # Dropped, as another program hands it over.
    hand = page.evaluate_handle(
        "text => { const hand = new DataTransfer(); hand.items.add(new File([text], 'dropped.txt')); return hand; }",
        DOCUMENTS[2],
    )
    page.dispatch_event("#ask", "drop", {"dataTransfer": hand})
    done(page, "dropped.txt is in the field")
    assert page.input_value("#text") == DOCUMENTS[2]
    for name, content, says in (
        ("broken.jsonl", b'{"text": "One."}\n{"text": \n', "broken.jsonl, line 2: "),
        ("other.jsonl", b'{"title": "One."}\n', "line 1: A record needs one of"),
        ("empty.jsonl", b"\n", "has no documents"),
        ("paper.txt", b"\xff\xfe", "is no text in UTF-8"),
        ("turns.jsonl", b'{"turns": "Ann: Hi."}\n', "line 1: turns must be a list"),
    ):
        (tmp_path / name).write_bytes(content)
        page.set_input_files("#file", tmp_path / name)
        page.locator("#status.error", has_text=says).wait_for()
    for name, says in (("notes.rtf", "save it as .docx or .pdf"), ("rows.csv", "are documents of their own")):
        (tmp_path / name).write_text("One, two.")
        page.set_input_files("#file", tmp_path / name)
        done(page, f"{name} will be read by the server")
        page.click("#go")
        page.locator("#status.error", has_text=says).wait_for()
    (tmp_path / "bees.markdown").write_text(f"# Bees\n\n{DOCUMENTS[1]}")
    page.set_input_files("#file", tmp_path / "bees.markdown")
    page.click("#go")
    done(page)
    assert "#" not in page.locator("#document").text_content()
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # as over HTTP from elsewhere
    page.click("#copy")
    done(page, "Selected. Copy it with Ctrl+C.")
    assert page.evaluate("getSelection().toString()") == page.locator("#summary").text_content()


def test_dialogues_and_mistakes(server: Running, visit):
    page = visit(server)
    page.click("#go")
    done(page, "Paste a text or drop a file first.")
    page.get_by_label("a dialogue").check()
    page.fill("#text", "Ann: Hi.\nWhat was that")
    page.click("#go")
    done(page, 'Line 2 of the dialogue is not "Name: words" but "What was that".')
    page.fill("#text", "\n\n".join(f" {turn['role']} : {turn['content']}" for turn in TURNS))
    page.click("#go")
    done(page)
    assert page.locator("#summary").text_content() == server.ask(turns=TURNS).json()["summary"]
    page.get_by_label("a text").check()
    nasty = '</script><img src="x" onerror="alert(1)"> ${1} {{1}} &amp; \U0001f6a2 end. And more.'
    page.fill("#text", nasty)
    page.click("#go")
    done(page)
    assert page.locator("#document").text_content() == nasty
    assert page.locator("#document img").count() == 0
    page.fill("#text", "a " * 2**22)
    page.click("#go")
    done(page, "The request is larger than 8,388,608 bytes")
    page.fill("#text", " ".join(DOCUMENTS * 3))
    page.get_by_label("Show where the model looked").check()
    page.click("#go")
    done(page)
    assert re.search(r"\d tokens were left out", page.locator("#note").text_content())
    assert page.is_visible("#looked")
    page.fill("#text", DOCUMENTS[1])
    page.click("#go")
    done(page)
    assert page.frame_locator("iframe").locator("h1").inner_text() == "Hierarchical attention"


def test_cancel_token_and_a_server_that_is_gone(model: str, visit):
    with serving(model, "--batch-wait", "60000", HIER_MODELS_TOKEN="s3cret") as server:
        page = visit(server)
        page.fill("#text", DOCUMENTS[0])
        page.click("#go")
        done(page, "The token is missing or wrong")
        page.get_by_label("Token").fill("s3cret")
        page.click("#go")
        done(page, "Reading")
        waiting = "hier_models_waiting 1.0"
        authorized = {"Authorization": "Bearer s3cret"}
        with server.client(headers=authorized) as client:
            assert waiting in client.get("/metrics").text
            page.click("#stop")
            done(page, "Cancelled.")
            page.wait_for_timeout(1000)
            assert waiting not in client.get("/metrics").text
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        page.click("#go")
        done(page, "The server does not answer")


def test_phrases(tmp_path: Path, visit, tiny_highlight, highlight_processor):
    tiny_highlight.save_pretrained(tmp_path)
    highlight_processor.save_pretrained(tmp_path)
    with serving(str(tmp_path)) as server:
        page = visit(server)
        page.fill("#text", DOCUMENTS[0])
        page.get_by_label("Phrases to highlight").fill("second pillar\n\n ferry ")
        page.get_by_label("Show where the model looked").check()
        page.click("#go")
        done(page)
        asked = {"text": DOCUMENTS[0], "phrases": ["second pillar", "ferry"]}
        summary = server.ask(**asked).json()["summary"]
        assert page.locator("#summary").text_content().split() == summary.split()
        assert summary != server.ask(text=DOCUMENTS[0], phrases=[]).json()["summary"]
        frame = page.frame_locator("iframe").locator("body").inner_text()
        assert "second pillar" in frame


def test_a_question(server: Running, visit):
    page = visit(server)
    page.fill("#text", LONG)
    page.get_by_label("What it is to answer").fill("Which is number 50?")
    page.click("#go")
    done(page)
    answer = server.ask(text=LONG, query="Which is number 50?").json()
    assert page.locator("#summary").text_content().split() == answer["summary"].split()
    assert answer["summary"] != server.ask(text=LONG).json()["summary"]
    assert "what is least like the question" in page.locator("#note").text_content()
    assert fits(page)


def test_mini_knows_three_lengths(visit):
    with serving("mini") as server:
        page = visit(server)
        summaries = []
        for length in ("line", "long"):
            page.get_by_label(length, exact=True).check()
            page.fill("#text", FERRY)
            page.click("#go")
            done(page)
            summaries.append(page.locator("#summary").text_content())
        assert summaries == [server.ask(text=FERRY, length=length).json()["summary"] for length in ("line", "long")]
        assert len(summaries[0]) < len(summaries[1])
