"""Summaries of books: the tree, its levels, and runs that go on where they were stopped."""

import io
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    LEDConfig,
    LEDForConditionalGeneration,
    PreTrainedTokenizerFast,
    pipeline,
)

from hier_models import HighlightTransformerProcessor, KeyPhraseExtractor, summarize_book
from hier_models.books import summarizing
from hier_models.books.summary_tree import BookSummary, SummaryNode
from hier_models.journal import Journal
from hier_models.locks import held
from hier_models.pipelines import SummarizationPipeline
from tests import forks
from tests.conftest import DOCUMENTS


LENGTH = {"min_length": 6, "max_length": 10}
# Three chapters; the middle one is longer than the 128 tokens that the models here take.
BOOK = [
    {"title": "The Bridge", "paragraphs": [DOCUMENTS[0]]},
    {"title": "The Bees", "paragraphs": [DOCUMENTS[1], DOCUMENTS[2], DOCUMENTS[1], DOCUMENTS[3], DOCUMENTS[1]]},
    {"title": "The Library", "text": DOCUMENTS[2]},
]


def _bart(tokenizer: PreTrainedTokenizerFast, seed: int = 0, kind: str = "bart", positions: int = 128) -> Any:
    torch.manual_seed(seed)
    sizes = {"vocab_size": len(tokenizer), "d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    if kind == "led":
        config = LEDConfig(
            **sizes, max_encoder_position_embeddings=128, max_decoder_position_embeddings=64, attention_window=16
        )
        model: Any = LEDForConditionalGeneration(config)
    else:
        model = BartForConditionalGeneration(BartConfig(**sizes, max_position_embeddings=positions))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    # Only tokens of plain letters, so that a summary has as many tokens as were made.
    vocabulary = tokenizer.get_vocab()
    odd = [index for token, index in vocabulary.items() if not token.strip("Ġ").isascii() or token == "<unk>"]
    model.generation_config.suppress_tokens = sorted(odd)
    return model.eval()


@pytest.fixture(scope="module")
def summarize(tokenizer: PreTrainedTokenizerFast) -> SummarizationPipeline:
    made: SummarizationPipeline = pipeline("summarization", model=_bart(tokenizer), tokenizer=tokenizer, device="cpu")
    return made


@pytest.fixture
def run(summarize: SummarizationPipeline) -> Callable[..., BookSummary]:
    def summarized(book: Any = BOOK, **kwargs: Any) -> BookSummary:
        return summarize_book(book, summarize, progress=False, **{**LENGTH, **kwargs})

    return summarized


def _ids(result: BookSummary) -> list[str]:
    return [node.id for node in result.tree.walk()]


def _node(result: BookSummary, name: str) -> SummaryNode:
    return next(node for node in result.tree.walk() if node.id == name)


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "summaries.jsonl").read_text().splitlines()]


# The tree


def test_every_summary_is_the_pipelines(run, summarize):
    result = run(title="Town")
    assert result.title == result.tree.title == "Town"
    for node in result.tree.walk():
        text = "\n".join(child.summary for child in node.children) if node.children else "\n".join(node.paragraphs)
        assert bool(node.paragraphs) != bool(node.children)
        assert node.summary == summarize(text, **LENGTH)[0]["summary_text"].strip() != ""
        assert node.tokens == len(summarize.tokenizer(text)["input_ids"]) <= 128
    assert result.summary == result.tree.summary
    assert [child.title for child in result.tree.children] == ["The Bridge", "The Bees", "The Library"]
    assert [(node.level, node.kind) for node in result.tree.walk() if node.id in ("book", "chapter 2, part 1")] == [
        (0, "book"),
        (2, "part"),
    ]


def test_a_long_chapter_is_divided_and_nothing_is_lost(run):
    result = run()
    chapter = _node(result, "chapter 2")
    assert len(chapter.children) > 1
    parts = [paragraph for part in chapter.children for paragraph in part.paragraphs]
    assert parts == BOOK[1]["paragraphs"]
    assert sum(part.words for part in chapter.children) == chapter.words
    sizes = [part.tokens for part in chapter.children]
    assert max(sizes) < 2 * min(sizes)  # of about the same length
    assert "1 chapter is longer than the model takes and was summarized in 3 parts: The Bees." in result.report()


def test_a_paragraph_that_is_too_long(run):
    text = DOCUMENTS[0] + " " + "bees" * 200 + " " + DOCUMENTS[1]
    result = run([text, DOCUMENTS[2]])
    parts = _node(result, "chapter 1").children
    assert "".join("".join(part.paragraphs) for part in parts).replace(" ", "") == text.replace(" ", "")
    assert all(part.tokens <= 128 for part in parts)


@pytest.mark.parametrize("text", ["bees " * 3000, "雨" * 3000])
def test_words_are_not_weighed_one_by_one(text: str, tokenizer, monkeypatch):
    """A transcript without full stops, and scripts without spaces."""
    model = _bart(tokenizer, positions=4096)
    monkeypatch.setattr(tokenizer, "model_max_length", 4096)
    summarizer: Any = pipeline("summarization", model=model, tokenizer=tokenizer, device="cpu")
    counted = []
    count = summarizer.count_tokens
    monkeypatch.setattr(summarizer, "count_tokens", lambda text: counted.append(text) or count(text))
    result = summarize_book([text], summarizer, progress=False, max_source_length=1000, **LENGTH)
    pieces = [piece for node in result.tree.walk() for piece in node.paragraphs]
    assert len(pieces) > 2
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
    assert all(node.tokens <= 1000 for node in result.tree.walk())
    assert len(counted) < 1000


def test_as_many_levels_as_it_takes(run, summarize):
    result = run([DOCUMENTS[2 + n % 2] for n in range(60)], max_source_length=48)
    assert max(node.level for node in result.tree.walk()) >= 3
    assert all(node.tokens <= 48 for node in result.tree.walk())
    leaves = [node.id for node in result.tree.walk() if not node.children]
    assert leaves == [f"chapter {n}" for n in range(1, 61)]
    assert len(set(_ids(result))) == len(_ids(result))
    groups = [node for node in result.tree.walk() if node.kind == "chapters"]
    assert len(groups) > 2
    assert groups[0].title.startswith("Chapters 1 to ")
    assert sum(group.words for group in result.tree.children) == result.book.words


def test_a_book_of_one_chapter(run):
    result = run([DOCUMENTS[0]])
    assert _ids(result) == ["book", "chapter 1"]
    assert result.summary == _node(result, "chapter 1").summary


def test_a_book_without_chapters(run, tmp_path):
    (tmp_path / "bees.txt").write_text("\n\n".join(DOCUMENTS * 3))
    result = run(tmp_path / "bees.txt")
    assert {node.kind for node in result.tree.walk()} == {"book", "piece"}
    assert [paragraph for node in result.tree.children for paragraph in node.paragraphs] == DOCUMENTS * 3
    assert "no chapter heading found" in result.report()
    assert f"divided into {len(result.tree.children)} pieces by length" in result.report()


def test_book_model_reads_only_what_is_joined_of_chapters(summarize, tokenizer):
    other = pipeline("summarization", model=_bart(tokenizer, seed=1), tokenizer=tokenizer, device="cpu", max_length=20)
    settings = {"min_length": 6, "max_new_tokens": 9}
    alone = summarize_book(BOOK, summarize, progress=False, **settings)
    result = summarize_book(BOOK, summarize, other, progress=False, **settings)
    assert [node.summary for node in result.tree.walk()][1:] == [node.summary for node in alone.tree.walk()][1:]
    joined = "\n".join(child.summary for child in result.tree.children)
    assert result.summary == other(joined, **settings)[0]["summary_text"].strip() != alone.summary


@pytest.mark.parametrize("kind", ["hat_bart", "led"])
def test_other_models(kind: str, tokenizer: Any, tiny_model: Any, processor: Any):
    if kind == "hat_bart":
        pipe = pipeline("summarization", model=tiny_model, processor=processor, device="cpu")
    else:
        pipe = pipeline("summarization", model=_bart(tokenizer, kind="led"), tokenizer=tokenizer, device="cpu")
    result = summarize_book(BOOK, pipe, progress=False, max_length=8)
    assert len(_node(result, "chapter 2").children) > 1
    assert all(node.tokens <= 128 for node in result.tree.walk())
    parts = [paragraph for part in _node(result, "chapter 2").children for paragraph in part.paragraphs]
    assert parts == BOOK[1]["paragraphs"]


def test_other_key_phrases_make_other_summaries(tiny_highlight, tokenizer, tmp_path):
    tiny_highlight.save_pretrained(tmp_path / "model")

    def summarized(documents: list[str]) -> BookSummary:
        key_phrases = KeyPhraseExtractor().fit(documents, min_documents=1)
        HighlightTransformerProcessor(tokenizer, key_phrases=key_phrases).save_pretrained(tmp_path / "model")
        return summarize_book(BOOK, tmp_path / "model", output=tmp_path / "out", progress=False, max_length=8)

    assert summarized(DOCUMENTS).as_dict() == summarized(DOCUMENTS).as_dict()
    with pytest.raises(ValueError, match=r'was made with \{"model"'):
        summarized(DOCUMENTS[1:3])


def test_importance_tagger(tiny_top_down, tiny_tagger, top_down_processor, tmp_path):
    for name, model in (("model", tiny_top_down), ("tagger", tiny_tagger)):
        model.save_pretrained(tmp_path / name)
        top_down_processor.save_pretrained(tmp_path / name)
    paths = {"model": tmp_path / "model", "importance_tagger": str(tmp_path / "tagger"), "output": tmp_path / "out"}
    result = summarize_book(BOOK, **paths, progress=False, max_length=8)
    pipe = pipeline("summarization", model=str(tmp_path / "model"), importance_tagger=str(tmp_path / "tagger"))
    for node in result.tree.walk():
        text = "\n".join(child.summary for child in node.children) if node.children else "\n".join(node.paragraphs)
        assert node.summary == pipe(text, max_length=8)[0]["summary_text"].strip()
    with pytest.raises(ValueError, match=r'was made with \{"model"'):
        summarize_book(BOOK, tmp_path / "model", output=tmp_path / "out", progress=False, max_length=8)


def test_max_source_length_divides_more(run):
    result = run(max_source_length=64)
    assert all(node.tokens <= 64 for node in result.tree.walk())
    assert len(_ids(result)) > len(_ids(run()))


def test_empty_summaries_are_named(run, monkeypatch, caplog):
    def nothing(self: Any, outputs: Any, **kwargs: Any) -> list[dict[str, str]]:
        return [{"summary_text": " "}]

    monkeypatch.setattr(SummarizationPipeline, "postprocess", nothing)
    result = run()
    assert result.summary == ""
    assert f"no summary for {len(_ids(result))} texts: book, chapter 1" in result.report()
    assert "gave no summary" in caplog.text


# Batches and the progress bar


def test_batches_give_the_same(run):
    assert [node.summary for node in run(batch_size=3).tree.walk()] == [node.summary for node in run().tree.walk()]


def test_bar_counts_all_levels(summarize, monkeypatch):
    bars = []

    class Bar(summarizing.tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, file=io.StringIO(), **kwargs)
            bars.append((self, self.total))

    monkeypatch.setattr(summarizing, "tqdm", Bar)
    chapters = [DOCUMENTS[2 + n % 2] for n in range(60)]
    result = summarize_book(chapters, summarize, max_source_length=48, **LENGTH)
    [(bar, foreseen)] = bars
    nodes = len(_ids(result))
    assert foreseen == 61 < nodes  # the groups show when the summaries are there
    assert bar.n == bar.total == nodes


# Runs that are continued


def test_stopped_run_goes_on(run, tmp_path, monkeypatch):
    whole = run(output=tmp_path / "whole", batch_size=2)
    generate, calls = BartForConditionalGeneration.generate, []

    def fails_at_third(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(len(_lines(tmp_path / "stopped")))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return generate(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(BartForConditionalGeneration, "generate", fails_at_third)
        with pytest.raises(KeyboardInterrupt):
            run(output=tmp_path / "stopped", batch_size=2)
    assert calls == [0, 2, 4]
    # As if it had been killed while it wrote: a batch half there, then half a line.
    file = tmp_path / "stopped" / "summaries.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:3]) + lines[3][:40])
    again = run(output=tmp_path / "stopped", batch_size=2)
    assert again.as_dict() == whole.as_dict()
    key = lambda line: line["id"]  # noqa: E731
    assert sorted(_lines(tmp_path / "stopped"), key=key) == sorted(_lines(tmp_path / "whole"), key=key)

    # Done: nothing is summarized again, and nothing is written.
    before = file.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(BartForConditionalGeneration, "generate", lambda *args, **kwargs: pytest.fail("was called"))
        assert run(output=tmp_path / "stopped", batch_size=2).as_dict() == whole.as_dict()
    assert file.read_bytes() == before


def test_another_job_is_not_continued(run, summarize, tokenizer, tmp_path):
    out = tmp_path / "out"
    run(output=out, title="Town")
    kept = (out / "summaries.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"`output`: .*summaries\.jsonl:1 was made with .*book.*Town .*give another"):
        run([*BOOK, "One more."], output=out, title="Town")
    with pytest.raises(ValueError, match=r"\"num_beams\": 2"):
        run(output=out, title="Town", num_beams=2)
    weights = summarize.model.state_dict()
    name, weight = next((name, w) for name, w in weights.items() if "fc1.weight" in name)
    with torch.no_grad():  # a little more training in the same place
        weight[3, 5] += 1e-3
    try:
        with pytest.raises(ValueError, match=r"was made with \{\"model\""):
            run(output=out, title="Town")
    finally:
        with torch.no_grad():
            weight[3, 5] -= 1e-3
    assert name
    other = pipeline("summarization", model=_bart(tokenizer), tokenizer=tokenizer, device="cpu", num_beams=2)
    with pytest.raises(ValueError, match="settings"):
        summarize_book(BOOK, other, output=out, title="Town", progress=False, **LENGTH)
    assert (out / "summaries.jsonl").read_bytes() == kept


def test_summaries_of_another_text_are_refused(run, tmp_path):
    run(output=tmp_path)
    file = tmp_path / "summaries.jsonl"
    lines = _lines(tmp_path)
    lines[0]["made_of"] = "0" * 16
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ValueError, match=r"summary of chapter 1 of another text"):
        run(output=tmp_path)


def test_two_do_not_write_the_same(run, tmp_path):
    with held(tmp_path), pytest.raises(ValueError, match=r"another process is writing into .*; wait for it"):
        run(output=tmp_path)
    assert not list(tmp_path.iterdir())
    run(output=tmp_path)


def test_a_file_that_is_something_else_is_left_alone(run, tmp_path):
    (tmp_path / "summaries.jsonl").write_text("precious")
    with pytest.raises(ValueError, match=r"summaries\.jsonl:1 is no summary of an earlier run"):
        run(output=tmp_path)
    assert (tmp_path / "summaries.jsonl").read_text() == "precious"
    (tmp_path / "other.jsonl").write_text('{"id": ["a"], "summary": "One."}\n')
    with pytest.raises(ValueError, match=r"other\.jsonl:1 is no summary of an earlier run"):
        Journal(tmp_path / "other.jsonl", "summary", {}).read({})
    with pytest.raises(ValueError, match="`output` must be a folder"):
        run(output=tmp_path / "summaries.jsonl")


KILLED = """
import sys
from hier_models import HighlightTransformerProcessor, KeyPhraseExtractor, summarize_book
from tests.books.test_book_summaries import DOCUMENTS, LENGTH
book = [DOCUMENTS[n % 4] for n in range(200)]
result = summarize_book(book, sys.argv[1], output=sys.argv[2], batch_size=2, **LENGTH)
result.save_json(sys.argv[3])
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_killed_run_goes_on(tokenizer: PreTrainedTokenizerFast, tmp_path: Path):
    model = tmp_path / "model"
    _bart(tokenizer).save_pretrained(model)
    tokenizer.save_pretrained(model)

    def start(out: str) -> forks.Fork:
        arguments = [str(model), str(tmp_path / out), str(tmp_path / f"{out}.json")]
        return forks.start(KILLED, *arguments, cwd=Path(__file__).parents[2])

    assert start("whole").wait(timeout=300) == 0
    file = tmp_path / "killed" / "summaries.jsonl"
    for enough in (1, 6000):
        process = start("killed")
        deadline = time.monotonic() + 120
        while not (file.exists() and file.stat().st_size > enough) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL
    assert 0 < file.stat().st_size < (tmp_path / "whole" / "summaries.jsonl").stat().st_size
    assert start("killed").wait(timeout=300) == 0
    assert (tmp_path / "killed.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


# Bad arguments


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"max_length": 100}, r"`max_length`: a summary may get 99 tokens.*`max_new_tokens` to at most 6\d\."),
        ({"max_length": 200}, r"At most 127 new tokens.*`max_length=128`\), got 199 \(`max_length=200`\)"),
        ({"max_source_length": 200}, "`max_source_length` must be"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1, got 0"),
        ({"num_return_sequences": 2}, "`num_return_sequences` cannot be set here"),
        ({"truncation": True}, "`truncation` cannot be set here"),
        ({"importance_tagger": "x"}, "`importance_tagger` belongs to the pipeline"),
        ({"book": []}, "`book` holds no text"),
        ({"book": ["", " "]}, "left out: chapter 1; chapter 2"),
    ],
)
def test_bad_arguments(run: Any, kwargs: dict[str, Any], says: str, tmp_path: Path):
    with pytest.raises(ValueError, match=says):
        run(**{"output": tmp_path / "out", **kwargs})
    assert not (tmp_path / "out" / "summaries.jsonl").exists() or not _lines(tmp_path / "out")


def test_a_loaded_model_is_refused(summarize):
    with pytest.raises(ValueError, match="`model` must be a checkpoint or a summarization pipeline, got Bart"):
        summarize_book(BOOK, summarize.model)


def test_summaries_that_get_no_shorter(run, monkeypatch):
    """A pipeline may give more than its settings say; then there is no end, so it is an error."""

    def long(self: Any, outputs: Any, **kwargs: Any) -> list[dict[str, str]]:
        return [{"summary_text": DOCUMENTS[1]}]

    monkeypatch.setattr(SummarizationPipeline, "postprocess", long)
    with pytest.raises(ValueError, match="no two of them can be summarized together"):
        run(max_source_length=100)
