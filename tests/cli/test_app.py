"""examples/app.py, through a real server and Gradio's own client."""

import html
import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from transformers import BartConfig, BartForConditionalGeneration, Pipeline, pipeline

from hier_models import (
    HatBartForConditionalGeneration,
    HatBartProcessor,
    HighlightTransformerForConditionalGeneration,
    HighlightTransformerProcessor,
)
from tests import forks
from tests.conftest import DOCUMENTS, TURNS


pytestmark = pytest.mark.slow

APP = Path(__file__).parents[2] / "examples" / "app.py"
SETTINGS = {"max_tokens": 12, "beams": 2}
GENERATE = {"max_new_tokens": 12, "num_beams": 2, "return_truncation": True}
DIALOGUE = "a dialogue, one “Name: utterance” a line"


@contextmanager
def serve(checkpoint: Path) -> Iterator[Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = forks.start(forks.SCRIPT, str(APP), str(checkpoint), "--port", str(port))
    try:
        for _ in range(1200):
            if server.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        else:
            pytest.fail("the app does not answer after two minutes")
        assert server.poll() is None, server.stderr
        yield Client(f"http://127.0.0.1:{port}", verbose=False, analytics_enabled=False)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        (checkpoint / "app.log").write_text(server.stdout + server.stderr, encoding="utf-8")


def ask(client: Client, **arguments: object) -> tuple[str, str, str, str]:
    """Press the button: summary, note, sources, frame."""
    given = {"text": "", "form": "a text", "file": None, "number": 1, **SETTINGS, **arguments}
    return client.predict(**given, api_name="/summarize")


def page_of(frame: str) -> dict:
    """What the page in the frame shows."""
    page = html.unescape(re.fullmatch(r'<iframe [^>]*sandbox="allow-scripts" srcdoc="([^"]*)"></iframe>', frame)[1])
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_hat_bart(tmp_path: Path, tiny_model: HatBartForConditionalGeneration, processor: HatBartProcessor):
    tiny_model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    expected: Pipeline = pipeline("summarization", model=str(tmp_path))
    files = {
        "records.jsonl": [{"text": DOCUMENTS[0], "summary": "Left out."}, {"text": DOCUMENTS[1], "summary": "Too."}],
        "dialogues.jsonl": [{"turns": TURNS}],
        "sentences.jsonl": [{"sentences": ["One.", "Two, or more.", "Three."]}],
    }
    for name, rows in files.items():
        (tmp_path / name).write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    records = handle_file(tmp_path / "records.jsonl")
    with serve(tmp_path) as client:
        assert client.config["analytics_enabled"] is False

        def check(document: dict, **arguments: object) -> dict:
            summary, note, sources, frame = ask(client, **arguments)
            [result] = expected(document, **GENERATE)
            assert summary == result["summary_text"].strip()
            assert html.escape(expected.find_sources(document, summary)[0]["text"]) in html.unescape(sources)
            assert f"**{result['num_truncated_tokens']}** token" in note
            if "num_omitted_tokens" in result:
                assert f"**{result['num_omitted_tokens']}** tokens were left out" in note
                assert frame == ""
                return {}
            page = page_of(frame)
            assert page["summary"] == " ".join(summary.split())
            return page

        page = check({"text": DOCUMENTS[1]}, text=DOCUMENTS[1])
        assert " ".join(page["sentences"]) == DOCUMENTS[1]

        nasty = '</iframe> "><script>alert(1)</script> ${value} {{value}} &quot; &amp;amp; end.'
        assert " ".join(check({"text": nasty}, text=nasty)["sentences"]) == nasty

        long = " ".join(DOCUMENTS * 3)
        assert check({"text": long}, text=long) == {}

        lines = "\n\n".join(f" {turn['role']} : {turn['content']}" for turn in TURNS)
        page = check({"turns": TURNS}, text=lines, form=DIALOGUE)
        assert page["unit"] == "turn"

        for name, rows in files.items():
            for number, row in enumerate(rows, start=1):
                document = {kind: value for kind, value in row.items() if kind != "summary"}
                check(document, file=handle_file(tmp_path / name), number=number)

        text_file = tmp_path / "paper.txt"
        text_file.write_text(DOCUMENTS[0], encoding="utf-8")
        check({"text": DOCUMENTS[0]}, file=handle_file(text_file))

        broken = tmp_path / "broken.jsonl"
        broken.write_text('{"text": "One."}\n{"text": \n', encoding="utf-8")
        for message, arguments in {
            "Give a text or a file.": {"text": " \n"},
            "not both": {"text": "One.", "file": records},
            "Line 2 of the dialogue .* “What was that”": {"text": "Ann: Hi.\nWhat was that", "form": DIALOGUE},
            "^records.jsonl has no document number 4": {"file": records, "number": 4},
            "^broken.jsonl:2": {"file": handle_file(broken), "number": 2},
        }.items():
            with pytest.raises(AppError, match=message):
                ask(client, **arguments)
    # A mistake of the user is no failure of the app.
    assert "Traceback" not in (tmp_path / "app.log").read_text(encoding="utf-8")


def test_highlight_transformer(
    tmp_path: Path,
    tiny_highlight: HighlightTransformerForConditionalGeneration,
    highlight_processor: HighlightTransformerProcessor,
):
    tiny_highlight.save_pretrained(tmp_path)
    highlight_processor.save_pretrained(tmp_path)
    summarize: Pipeline = pipeline("summarization", model=str(tmp_path))
    articles = tmp_path / "articles.jsonl"
    articles.write_text(json.dumps({"documents": DOCUMENTS[:3], "summary": "Left out."}), encoding="utf-8")
    with serve(tmp_path) as client:
        for document, arguments in (
            ({"documents": DOCUMENTS[:3]}, {"file": handle_file(articles)}),
            ({"text": DOCUMENTS[1]}, {"text": DOCUMENTS[1]}),
            ({"turns": TURNS}, {"text": "\n".join(f"{t['role']}: {t['content']}" for t in TURNS), "form": DIALOGUE}),
            ({"text": " ".join(DOCUMENTS * 3)}, {"text": " ".join(DOCUMENTS * 3)}),
        ):
            summary, note, _, frame = ask(client, **arguments)
            [result] = summarize(document, return_phrases=True, truncation=True, **GENERATE)
            assert summary == result["summary_text"].strip()
            assert f"**{result['num_truncated_tokens']}** token" in note
            page = page_of(frame)
            assert page["summary"].strip() == summary
            assert page["text"] == highlight_processor.running_text(**document)
            assert len(page["articles"]) == len(document.get("documents", [""]))
            assert [phrase["text"] for phrase in page["phrases"]] == [phrase["text"] for phrase in result["phrases"]]
            assert page["heads"] == [[0, 0]]
    assert "Traceback" not in (tmp_path / "app.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["bart", "no hierarchy"])
def test_model_without_hierarchy(tmp_path: Path, kind: str, tiny_config, tokenizer, processor: HatBartProcessor):
    if kind == "bart":
        sizes = {name: getattr(tiny_config, name) for name in ("vocab_size", "d_model", "max_position_embeddings")}
        model = BartForConditionalGeneration(
            BartConfig(**sizes, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32)
        )
        tokenizer.save_pretrained(tmp_path)
    else:
        tiny_config.hierarchical_layers = 0
        model = HatBartForConditionalGeneration(tiny_config)
        processor.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    [result] = pipeline("summarization", model=str(tmp_path))({"text": DOCUMENTS[0]}, **GENERATE)
    with serve(tmp_path) as client:
        summary, note, sources, frame = ask(client, text=DOCUMENTS[0])
    assert summary == result["summary_text"].strip()
    assert f"**{result['num_truncated_tokens']}** token" in note
    assert f"No heatmap: {type(model).__name__} has no hierarchical attention." in note
    assert "<h2 id=&quot;summary-heading&quot;>Summary</h2>" in sources.replace("&lt;", "<").replace("&gt;", ">")
    assert frame == ""


def test_mistakes_at_the_start(tmp_path: Path):
    def run(code: str, *arguments: str) -> str:
        result = forks.run(code, *arguments)
        assert result.returncode != 0
        assert "Traceback" not in result.stderr
        return result.stderr

    without_gradio = (
        "import runpy, sys; sys.modules['gradio'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    assert 'pip install "hier_models[app]"' in run(without_gradio, str(APP))
    assert f"cannot load '{tmp_path}'" in run(forks.SCRIPT, str(APP), str(tmp_path))
