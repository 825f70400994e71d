"""`hier-models export --page`: a page that summarizes in the browser as Python does with the same files."""

import json
import os
import re
import shutil
import subprocess
import threading
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, normalizers, pre_tokenizers
from transformers import AutoModelForSeq2SeqLM, AutoProcessor, pipeline

from hier_models import MINI
from hier_models.hub import browser_page
from hier_models.hub.browser_page import RUNTIME, SCRIPTS, VERSION, export_page
from hier_models.hub.onnx_running import OnnxSummarizer
from hier_models.pipelines import long_documents_hier
from hier_models.pipelines.document_pipeline_hier import DocumentPipeline
from hier_models.pipelines.written_form_hier import restore_written_form
from tests.cli.commands import mistake, run
from tests.models.test_mini import FERRY
from tests.pipelines.test_written_form_hier import DOCUMENT


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NODE = shutil.which("node")
GUIDE = Path(__file__).parents[2] / "docs/guides/share.md"
MINUTES = 240_000  # milliseconds
WEB = os.environ.get("ONNXRUNTIME_WEB")  # the folder of the npm package, if it is not in node_modules here
PLACES = ("north", "south", "east", "west", "middle", "marsh", "forest", "village", "valley", "dune")
THINGS = ("tower", "chapel", "mill", "bridge", "school", "barn", "well", "shop", "fort", "farm")
PARAGRAPHS = [
    f"In the {place} of the island the {thing} is as old as the harbour. It was built in {1800 + 7 * number} by "
    f"{place.capitalize()} Anderson, who paid {number * 113 + 50} crowns for it. The county counts {number + 3} "
    f"visitors a day, and the harbour office wants more of them. Nobody knows why the {thing} has no door."
    for number, (place, thing) in enumerate(zip(PLACES, THINGS, strict=True))
]
LONG = "\n\n".join(
    [
        "The island",
        f"{FERRY} {' '.join(PARAGRAPHS[:5])}",
        "Other places:",
        " ".join(PARAGRAPHS[5:]),
        "- tower",
        "- mill",
    ]
)
AWKWARD = [
    "",
    "Ångström, naïve CAFÉ; ÇA VA? İstanbul ΑΣ ΣΑΣ straße ŁÓDŹ Dvořák",
    "e\u0301e\u0301 \u00c5 \u212b n\u0303 \ufb01ne \u2460 \u00bd x\u00b2",
    "👩‍👩‍👧 🚢🇸🇪 5€ 20°C ™ a\u200db a\u00adb \ufeffc",
    "中文 字符,日本語のテキスト。 한국어 \U00020000 \uf900x",
    "a\x00b\x07c\td\x0be\x0cf\x85g\u2028h\u00a0i\u3000j\ufffdk\x7fl",
    "don't U.S.A. 3.14 1,000 e-mail a_b #tag @me $5 50% [CLS] [SEP] ##ing [UNK] [short] __proto__ constructor",
    "x" * 100 + " " + "y" * 101 + " antidisestablishmentarianism qwxzjk",
    "नमस्ते สวัสดี مرحبا שלום Ελληνικά Привет Ёж",
    "\n\n  \t ",
    "50€ 10€/month BMI≥30 n≥5 ≥65 CO₂ H₂O 10⁻⁵ R² 3½ ∼30 5⋅3 of\ufb01ce 300₹ Windows™ ✓done 4★ co‑op 20℃ 1⁄2",  # noqa: RUF001
]

browsers = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")


@pytest.fixture(scope="module")
def mini() -> tuple[Any, Any]:
    return AutoModelForSeq2SeqLM.from_pretrained(MINI), AutoProcessor.from_pretrained(MINI)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, mini) -> Path:
    pytest.importorskip("onnxscript")
    try:
        browser_page._runtime(WEB)
    except FileNotFoundError:
        pytest.skip("no onnxruntime-web: `npm install onnxruntime-web`, or set ONNXRUNTIME_WEB to its folder")
    return export_page(*mini, tmp_path_factory.mktemp("page"), name="mini", onnxruntime_web=WEB)


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    servers = []

    def start(folder: Path) -> str:
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder))))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=MINUTES)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, serve) -> Iterator[Any]:
    """Open the page of a folder; it loads nothing from elsewhere, and its scripts do not fail."""
    wrong: list[str] = []

    def come(folder: Path, width: int = 1280) -> Any:
        url = serve(folder)
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(MINUTES)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith((url, "data:")) else wrong.append(sent.url))
        page.goto(url)
        return page

    yield come
    for context in browser.contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def by_python(folder: Path) -> Iterator[Callable[..., str]]:
    """The pipeline of Python on the same files, greedily."""
    runner, summarize = OnnxSummarizer(folder), pipeline("summarization", model=MINI)

    def generate(input_ids, attention_mask, generation_config, logits_processor):
        names = ("forced_bos_token_id", "max_new_tokens", "no_repeat_ngram_size")
        settings = {name: getattr(generation_config, name) for name in names}
        ids = runner.generate(input_ids.numpy(), logits_processor=logits_processor, **settings)
        return torch.tensor([[runner.settings["start_token_id"], *ids]])

    together = DocumentPipeline._forward

    def one_by_one(self, model_inputs, **settings):
        """The parts of a page too, as onnxruntime is given one document."""
        examples = model_inputs["examples"]
        examples = examples if isinstance(examples, list) else [examples]
        found = [together(self, {"examples": [example]}, **settings)["output_ids"][0, 0] for example in examples]
        ids = torch.nn.utils.rnn.pad_sequence(found, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        return {"output_ids": ids[:, None], "examples": examples}

    summarize.model.generate = generate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DocumentPipeline, "_forward", one_by_one)
        yield lambda text, length: summarize(text, length=length)[0]["summary_text"]


def done(page: Any, says: str = "Done in") -> None:
    page.locator("#status", has_text=says).wait_for()


def ask(page: Any, text: str, length: str = "short") -> str:
    page.fill("#text", text)
    page.get_by_label(length, exact=True).check()
    page.click("#go")
    done(page)
    return page.locator("#summary").text_content()


@pytest.mark.slow
@browsers
def test_it_writes_what_python_does(folder: Path, visit, by_python):
    assert sum((folder / name).stat().st_size for name in ("encoder.onnx", "decoder.onnx", "shared.bin")) < 40e6
    page = visit(folder)
    summaries = {length: ask(page, FERRY, length) for length in ("line", "short", "long")}
    assert summaries == {length: by_python(FERRY, length) for length in summaries}
    assert len(set(summaries.values())) > 1
    assert "Aldenport" in summaries["short"]
    assert page.locator("#note").text_content() == ""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    code = re.search("```javascript\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    page.add_script_tag(
        type="module", content=f"const text = {json.dumps(FERRY)}; {code} document.body.dataset.found = summary;"
    )
    assert page.locator("body[data-found]").get_attribute("data-found") == summaries["line"]


@pytest.mark.slow
@browsers
def test_a_long_document_is_condensed(folder: Path, visit, by_python, mini):
    page = visit(folder, width=360)
    assert ask(page, LONG) == by_python(LONG, "short")
    tokens = len(mini[1](text=LONG)["input_ids"])
    assert 1024 > tokens > 512  # of which mini reads 512, or four times 256
    assert f"The document has {tokens:,} tokens, more than the 512 that" in page.locator("#note").text_content()
    assert ask(page, LONG, "long") == by_python(LONG, "long")  # the short summaries of its parts
    assert page.locator("#note").text_content() == ""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    german = (
        "Der Bürgermeister hat am Montag gesagt, dass die Brücke im Herbst gebaut wird. Sie soll drei Spuren haben."
    )
    ask(page, german, "line")
    assert "does not look like English" in page.locator("#note").text_content()


@pytest.mark.slow
@browsers
def test_tokens_are_those_of_python(folder: Path, visit, mini):
    processor = mini[1]
    page = visit(folder)
    encode = """async (texts) => {
        const { Tokenizer } = await import("./summarizer.js");
        const tokenizer = new Tokenizer(await (await fetch("tokenizer.json")).json());
        return texts.map((text) => tokenizer.encode(text));
    }"""
    backend = processor._backend()
    # Characters that any version of Unicode knows alike: those of the first that Python has, kinds unchanged since.
    old = [chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    old = [c for c in old if unicodedata.ucd_3_2_0.category(c) == unicodedata.category(c) != "Cn"]
    texts = [*AWKWARD, FERRY, *(f"a{c}b" for c in old)]
    expected = [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
    found = page.evaluate(encode, texts)
    assert [text for text, one, two in zip(texts, found, expected, strict=True) if one != two] == []
    assert len(texts) > 90_000
    markers = """async (text) => {
        const { sentences } = await import("./summarizer.js");
        const { abbreviations } = await (await fetch("page.json")).json();
        return sentences(text, new Set(abbreviations)).map((span) => text.slice(...span));
    }"""
    text = (
        'Dr. J. Smith (cf. Fig. 2) met Ms. Lee at 3.5 p.m. in the U.S. embassy. "Is it true?" he said. It is,\nof '
        "course, true. No! Then why?\n\nA heading\n\nThe end"
    )
    assert page.evaluate(markers, text) == [text[slice(*span)] for span in processor.split_sentences(text)]


@pytest.mark.slow
@browsers
def test_bad_texts_and_a_stop(folder: Path, visit):
    page = visit(folder)
    page.click("#go")
    done(page, "Paste a text first.")
    page.fill("#text", " \n\t ")
    page.click("#go")
    done(page, "Paste a text first.")
    page.evaluate("document.getElementById('text').value = 'x'.repeat(2 ** 20)")
    page.click("#go")
    done(page, "There is no word in this text that the model knows.")
    page.fill("#text", f"<img src=x onerror=alert(1)> {FERRY}")
    page.get_by_label("long", exact=True).check()
    page.keyboard.press("Tab")
    page.focus("#text")
    page.keyboard.press("Control+Enter")
    done(page, "Writing")
    page.click("#stop")
    done(page)
    assert page.locator("#result img").count() == 0
    assert ask(page, FERRY, "line")


@pytest.mark.slow
@browsers
def test_folders_that_are_not_whole_or_not_served(folder: Path, visit, browser, tmp_path: Path):
    def changed(name: str, data: bytes | None) -> Path:
        """Without a file, or with another in its place."""
        copy = tmp_path / str(len(list(tmp_path.iterdir())))
        copy.mkdir()
        for file in folder.iterdir():
            if file.name != name:
                os.link(file, copy / file.name)
        if data is not None:
            (copy / name).write_bytes(data)
        return copy

    settings = json.loads((folder / "page.json").read_text())
    other = json.dumps({**settings, "version": VERSION + 1}).encode()
    broken = b"\x08\x63" + bytes(settings["files"]["encoder.onnx"]["bytes"] - 2)
    for name, data, says in (
        ("decoder.onnx", None, "decoder.onnx is missing on the server (404)"),
        ("page.json", None, "page.json is missing on the server (404)"),
        ("summarizer.js", None, "summarizer.js"),
        ("page.json", other, f"page.json is of version {VERSION + 1}, and this page reads version {VERSION}"),
        ("shared.bin", b"short", "shared.bin has 5 bytes and not"),
        ("encoder.onnx", broken, "onnxruntime-web cannot load encoder.onnx"),
    ):
        page = visit(changed(name, data))
        done(page, says)
        assert page.locator("#status.error").count() == 1
        page.close()
    page = browser.new_page()
    page.goto((folder / "index.html").as_uri())
    done(page, "This page needs a web server")


@pytest.fixture
def in_node(tmp_path: Path) -> Callable[..., Any]:
    """The scripts without a browser: what code gives for `given`."""
    if NODE is None:
        pytest.skip("no node")
    shutil.copyfile(SCRIPTS / "summarizer.js", tmp_path / "summarizer.mjs")

    def evaluate(code: str, **given: Any) -> Any:
        head = f"import {{ readFileSync }} from 'fs'; import * as own from '{tmp_path}/summarizer.mjs';"
        script = f"{head} const given = JSON.parse(readFileSync(0, 'utf8')); console.log(JSON.stringify({code}));"
        command = [NODE, "--input-type=module", "--eval", script]
        result = subprocess.run(command, input=json.dumps(given), text=True, check=True, stdout=subprocess.PIPE)
        return json.loads(result.stdout)

    return evaluate


def test_the_written_form_is_that_of_python(in_node):
    document = (
        f"{DOCUMENT} It sold 9.4 million of 3.5 m each. 4 men saw encodings.idna. IDNA is old. 4 saw it. IDNA is. "
        'Few Ae. neglecta grew. Read "no worries", "absolutely", and "bottom line" (or break etc.) inside. '
        "Cafe\u0301s and/\u200bor the well-\u00adknown of\ufb01ce. \ufeff½ the crowd of CO₂, 10⁻⁵, "
        "\u223c30 in 5\u20448. Traffic fell."
    )
    texts = [
        "it sold 9. 4 million of 3. 5 m each. 4 men left.",
        "zoe mcallister ( born november 9, 1988 ) is a co - founder of the libreoffice mirror.",
        "we saw ae. neglecta. neglecta grew.",
        'read no worries " , " absolutely " , and " bottom line " ( or break etc. ) inside., and',
        '" the harbour " cost us $ 1, 250. 50 at the u. s. office ; it replaces encodings. idna here.',
        "cafes and / or the well - known office. ½ million of co2, 10\u22125, ~ 30 in 5 / 8, as traffic fell.",
    ]
    writing = {"common": sorted(browser_page.COMMON), "names": browser_page.NAMES}
    form = "new own.WrittenForm(given.document, { common: new Set(given.common), names: given.names })"
    found = in_node(f"given.texts.map((text) => {form}.restore(text))", texts=texts, document=document, **writing)
    assert found == [restore_written_form(text, document) for text in texts]
    assert found[0] == "It sold 9.4 million of 3.5 m each. 4 men left."


def test_settings_that_a_page_would_lose_are_refused(mini, monkeypatch: pytest.MonkeyPatch):
    model, processor = mini
    params = {"summarization": {**model.config.task_specific_params["summarization"], "min_length": 30}}
    monkeypatch.setattr(model.config, "task_specific_params", params)
    with pytest.raises(ValueError, match="task_specific_params sets min_length, which that leaves open"):
        browser_page._settings(model, processor)


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (normalizers.Sequence([normalizers.Replace(Regex("a+"), "b"), normalizers.BertNormalizer()]), None),
        (normalizers.Sequence([normalizers.NFKC(), normalizers.BertNormalizer()]), None),
        (None, pre_tokenizers.Whitespace()),
        (None, pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Split(" ", "removed")])),
    ],
)
def test_only_what_the_page_does_too_is_taken(normalizer, pre_tokenizer):
    model, processor = AutoModelForSeq2SeqLM.from_pretrained(MINI), AutoProcessor.from_pretrained(MINI)
    backend = processor.tokenizer.backend_tokenizer
    backend.normalizer = normalizer or backend.normalizer
    backend.pre_tokenizer = pre_tokenizer or backend.pre_tokenizer
    with pytest.raises(ValueError, match="a page is for a HAT-BART"):
        browser_page._settings(model, processor)


@pytest.mark.parametrize("own_words", [None, ["Über", "die", "Mühle", "weiß", "niemand", "etwas"]])
def test_summaries_are_as_long_as_those_of_python(in_node, mini, monkeypatch: pytest.MonkeyPatch, own_words):
    model, processor = mini
    params = {"summarization": {**model.config.task_specific_params["summarization"], "common_words": own_words}}
    monkeypatch.setattr(model.config, "task_specific_params", params)
    summarize = pipeline("summarization", model=model, processor=processor)
    scores = torch.randn(model.config.vocab_size, generator=torch.manual_seed(1))
    start, end = model.config.decoder_start_token_id, model.generation_config.eos_token_id
    scores[[end, *(id_ for piece, id_ in processor.tokenizer.vocab.items() if piece.startswith("##"))]] = -1e3
    scores[end] -= 1
    begins = scores.topk(len(scores) // 2).indices.tolist()  # what a summary may not begin with

    def generate(input_ids, generation_config, logits_processor, **_):
        """Greedily from scores that are the same at each step, and never prefer the end."""
        ids = [start]
        while len(ids) < 2 or (ids[-1] != end and len(ids) <= generation_config.max_new_tokens):
            found = logits_processor(torch.tensor([ids]), scores[None].clone())[0]
            if len(ids) == 2:
                found[begins] = -torch.inf
            ids.append(generation_config.forced_bos_token_id if len(ids) == 1 else int(found.argmax()))
        return torch.tensor([ids])

    monkeypatch.setattr(model, "generate", generate)
    texts = ["Rain fell.", "The old mill by the river has no door, and nobody knows why.", FERRY, PARAGRAPHS[0]]
    asked = [(text, length) for text in texts for length in ("line", "short", "long")]
    settings = browser_page._settings(model, processor)
    settings |= {
        "start_token_id": start,
        "bos_token_id": model.config.bos_token_id,
        "generation": {"eos_token_id": end, "no_repeat_ngram_size": 0, "begin_suppress_tokens": begins},
        "paragraphs": 1,  # a page has several short ones
    }
    code = """await (async () => {
        const tokenizer = new own.Tokenizer(JSON.parse(given.tokenizer)), found = [];
        const summarizer = new own.Summarizer(null, {}, tokenizer, given.settings);
        summarizer.encode = () => null;
        summarizer.step = () => async () => Float32Array.from(given.scores);
        for (const [text, length] of given.asked) {
            const { summary, isEnglish } = await summarizer.summarize(text, { length });
            found.push([summary, isEnglish]);
        }
        return found;
    })()"""
    tokenizer = processor.tokenizer.backend_tokenizer.to_str()
    found = in_node(code, settings=settings, tokenizer=tokenizer, scores=scores.tolist(), asked=asked)
    expected = [summarize(text, length=length, paragraphs=1, num_beams=1)[0]["summary_text"] for text, length in asked]
    assert [summary for summary, _ in found] == expected
    assert all(is_english for _, is_english in found)  # where own words are given, nobody asks
    assert len({len(summary) for summary in expected}) > 4


def test_tokens_that_were_added_need_not_stand_in_the_vocabulary(in_node, mini):
    """As `add_special_tokens` leaves them, for example those of lengths."""
    backend = json.loads(mini[1].tokenizer.backend_tokenizer.to_str())
    lengths = {piece: backend["model"]["vocab"].pop(piece) for piece in ("[line]", "[short]", "[long]")}
    assert lengths.items() <= {token["content"]: token["id"] for token in backend["added_tokens"]}.items()
    code = """(() => {
        const tokenizer = new own.Tokenizer(JSON.parse(given.tokenizer));
        const { pieces } = new own.Summarizer(null, {}, tokenizer, given.settings);
        return [tokenizer.decode([given.begins, ...tokenizer.encode("Bees fly.")]), pieces.ends[given.begins]];
    })()"""
    settings = {**browser_page._settings(*mini), "faithful": True}
    found = in_node(code, settings=settings, tokenizer=json.dumps(backend), begins=lengths["[short]"])
    assert found == ["bees fly.", ["", False]]


def test_a_page_has_the_sentences_of_pythons(in_node, mini):
    _, processor = mini
    tokenizer = processor.tokenizer
    cases = [["Bees fly far and", "Bees fly.", "They"], ["Bees fly far and"], ["Bees fly. They", "Bees rest."], [""]]
    ids = [[tokenizer(text)["input_ids"] for text in paragraphs] for paragraphs in cases]
    code = """(() => {
        const tokenizer = new own.Tokenizer(JSON.parse(given.tokenizer));
        const summarizer = new own.Summarizer(null, {}, tokenizer, given.settings);
        return given.ids.map((paragraphs) => summarizer.page(paragraphs));
    })()"""
    settings = {**browser_page._settings(*mini), "least_repeated": 5}
    found = in_node(code, settings=settings, tokenizer=tokenizer.backend_tokenizer.to_str(), ids=ids)
    assert found == [long_documents_hier.page_of(paragraphs, tokenizer, processor=processor) for paragraphs in ids]
    assert [tokenizer.decode(page) for page in found[:2]] == ["bees fly.", "bees fly far and"]


@pytest.mark.parametrize("room", [60, 120, 201])
def test_the_best_sentences_and_parts_are_those_of_python(in_node, mini, room):
    _, processor = mini
    sizes_of = partial(long_documents_hier.sizes_of, processor.tokenizer)
    worth = long_documents_hier.worth_in
    text = "\n\n".join(
        [
            *PARAGRAPHS,
            FERRY,
            "A heading",
            f"Another\nAnd Gabriel García\n{FERRY}",
            f"Ann\n{FERRY}\nAnn\n{FERRY}\nAnn\n{FERRY}",
            *PARAGRAPHS[::-1],
            "- An item",
        ]
    )
    code = """(() => {
        const tokenizer = new own.Tokenizer(JSON.parse(given.tokenizer));
        const summarizer = new own.Summarizer(null, {}, tokenizer, given.settings);
        return [given.text, "Bees fly. " + given.text.slice(0, 1500)].map((text) => {
            const tokens = summarizer.size(text);
            return [summarizer.condensed(text, given.room), summarizer.read(text, tokens, true).parts];
        });
    })()"""
    tokenizer, settings = processor.tokenizer.backend_tokenizer.to_str(), browser_page._settings(*mini)
    settings |= {"part": room // 3, "paragraphs": 3}
    found = in_node(code, settings=settings, tokenizer=tokenizer, text=text, room=room)
    for (read, parts), whole in zip(found, (text, f"Bees fly. {text[:1500]}"), strict=True):
        assert read == long_documents_hier.condense("text", whole, room, sizes_of, processor)
        assert room / 2 < sum(sizes_of([read])) <= room
        assert parts == long_documents_hier.parts_of("text", read, 3, sizes_of, processor, worth(whole, processor))
        if whole == text and room > 60:
            assert parts != long_documents_hier.parts_of("text", read, 3, sizes_of, processor)


def test_the_scripts_are_of_this_version():
    assert f"export const VERSION = {VERSION};" in (SCRIPTS / "summarizer.js").read_text()


def test_what_cannot_be_a_page(mini, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model, processor):
    monkeypatch.chdir(tmp_path)
    tiny_model.save_pretrained("model")
    processor.save_pretrained("model")
    with pytest.raises(FileNotFoundError, match=r"onnxruntime-web is missing.*npm install onnxruntime-web"):
        export_page(*mini, "page", name="mini")
    (tmp_path / "node_modules/onnxruntime-web/dist").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"node_modules/onnxruntime-web has no dist/ort.*and no dist/ort"):
        export_page(*mini, "page", name="mini")
    options = ("--page", "page", "--onnxruntime-web")
    mistake("export", *options, "nowhere", says="--page: nowhere has no dist/")
    web = "node_modules/onnxruntime-web"
    for file in RUNTIME:
        (tmp_path / web / "dist" / file).touch()
    mistake("export", "-m", "model", *options, web, says="a page is for a HAT-BART without segments")
    mistake("export", "--int8", "out", says="--int8 goes with --onnx")
    mistake("export", *options[2:], "nowhere", "out", says="--onnxruntime-web goes with --page")
    mistake("export", "-m", "model", "--page", "model", says="is the checkpoint itself")
    assert not (tmp_path / "page").exists()


@pytest.mark.slow
def test_the_command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    web = tmp_path / "node_modules/onnxruntime-web/dist"
    web.mkdir(parents=True)
    for source, target in RUNTIME.items():
        os.link(folder / target, web / source)
    assert "python -m http.server -d page" in run("export", "-m", "mini", "--page", "page").output
    assert {file.name for file in Path("page").iterdir()} == {file.name for file in folder.iterdir()}
    assert (tmp_path / "page/page.json").read_text() == (folder / "page.json").read_text()
