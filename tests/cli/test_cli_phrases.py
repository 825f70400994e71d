"""`hier-models fit-phrases`."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from transformers import AutoProcessor, PreTrainedTokenizerFast

from hier_models import HatBartForConditionalGeneration, HatBartProcessor
from hier_models.models.configuration_highlight_transformer import HighlightTransformerConfig
from hier_models.models.processing_highlight_transformer import HighlightTransformerProcessor
from tests.cli.commands import mistake, run, write_jsonl
from tests.conftest import DOCUMENTS, SUMMARIES


@pytest.fixture
def highlighter(tokenizer: PreTrainedTokenizerFast, workplace: Path) -> str:
    """A folder of which the command reads all but the weights."""
    HighlightTransformerConfig(vocab_size=len(tokenizer)).save_pretrained("model")
    HighlightTransformerProcessor(tokenizer).save_pretrained("model")
    lines = [{"documents": DOCUMENTS[:2], "summary": SUMMARIES[0]}, {"documents": DOCUMENTS, "summary": SUMMARIES[1]}]
    write_jsonl("train.jsonl", lines)
    return "model"


def test_the_processor_has_key_phrases_from_then_on(highlighter: str) -> None:
    result = run("fit-phrases", "-m", highlighter, "train.jsonl", "--min-documents", "1", "--top-k", "3")
    assert "2 documents" in result.stderr
    assert "phrases kept. Saved: model" in result.stderr
    processor = AutoProcessor.from_pretrained(highlighter)
    assert (processor.key_phrases.documents, processor.key_phrases.top_k) == (2, 3)
    assert len(processor(documents=DOCUMENTS, return_phrases=True)["phrases"]) == 3


def test_elsewhere_with_other_words_and_only_what_is_read(highlighter: str) -> None:
    Path("words.txt").write_text("bridge\n", encoding="utf-8")
    options = ("--stopwords", "words.txt", "--max-source-length", "30", "--min-documents", "2")
    run("fit-phrases", "-m", highlighter, "train.jsonl", "--output", "other", *options)
    extractor = AutoProcessor.from_pretrained("other").key_phrases
    assert extractor.stopwords == {"bridge"}
    assert AutoProcessor.from_pretrained(highlighter).key_phrases is None


def test_articles_of_one_string_on_the_hub(highlighter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"document": " ||||| ".join(DOCUMENTS[:2]), "summary": "a"}] * 2
    calls = []

    def load_dataset(path: str, name: str | None, **options: Any) -> Any:
        calls.append((path, name, options["revision"]))
        return datasets.Dataset.from_list(rows).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    options = ("--split", "train", "--config-name", "a", "--revision", "b", "--source-kind", "documents")
    run("fit-phrases", "-m", highlighter, "some/news", *options, "--max-source-length", "20", "--output", "hub")
    assert calls == [("some/news", "a", "b")]
    line = {"documents": DOCUMENTS[:2]}
    Path("same.jsonl").write_text((json.dumps(line) + "\n") * 2, encoding="utf-8")
    run("fit-phrases", "-m", highlighter, "same.jsonl", "--max-source-length", "20", "--output", "here")
    assert Path("hub/key_phrases.json").read_text() == Path("here/key_phrases.json").read_text()


def test_others_than_tf_idf_count_nothing(highlighter: str) -> None:
    result = run("fit-phrases", "-m", highlighter, "--finder", "textrank", "--top-k", "3")
    assert "Saved: model" in result.stderr
    processor = AutoProcessor.from_pretrained(highlighter)
    assert repr(processor.key_phrases).startswith("TextRankPhrases")
    assert 0 < len(processor(text=DOCUMENTS[0], return_phrases=True)["phrases"]) <= 3
    counting = ("--split", "test", "--text-column", "body", "--max-source-length", "9", "--min-documents", "2")
    mistake(
        *("fit-phrases", "-m", highlighter, "--finder", "title", *counting),
        says="DOCUMENTS are counted with --finder tf-idf only; leave out --split, --text-column, --max-source-length, "
        "--min-documents",
    )


def test_a_tagger_is_looked_at_and_found_again_from_anywhere(
    highlighter: str,
    tiny_tagger: Any,
    tiny_highlight: Any,
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for part in (tiny_tagger, tokenizer):
        part.save_pretrained("tagger")
    tiny_highlight.save_pretrained("summarizer")
    asking = ("fit-phrases", "-m", highlighter, "--finder", "importance")
    mistake(*asking, "--tagger", "summarizer", says="must be a token classifier with two classes, got")
    mistake(*asking, says="--tagger, a checkpoint, goes with --finder importance")
    assert AutoProcessor.from_pretrained(highlighter).key_phrases is None
    run(*asking, "--tagger", "tagger")
    folder = Path("tagger").absolute()
    processor = AutoProcessor.from_pretrained(highlighter)
    monkeypatch.chdir(Path("model"))
    assert processor(text=DOCUMENTS[0])["phrase_values"]
    (folder / "config.json").unlink()
    processor.key_phrases._loaded = None
    with pytest.raises(ValueError, match=r"tagger' cannot be loaded: .*fit-phrases makes key_phrases.json anew"):
        processor(text=DOCUMENTS[0])


def test_mistakes_are_named_after_what_they_are_of(highlighter: str, tokenizer: PreTrainedTokenizerFast) -> None:
    write_jsonl("bad.jsonl", [{"text": "a word"}, {"text": 3}])
    mistake("fit-phrases", "-m", highlighter, "bad.jsonl", says="Error: bad.jsonl:2: column 'text' must hold a string")
    fitting = ("fit-phrases", "-m", highlighter, "train.jsonl")
    mistake(*fitting, "--finder", "yake", says="Error: --finder must be one of tf-idf,")
    HighlightTransformerProcessor(tokenizer, language="fr").save_pretrained(highlighter)
    says = "for no stopwords an empty list, or a file that holds only a -"
    mistake(*fitting, says=["Error: stopwords: there is no list", says])
    Path("words.txt").touch()
    mistake(*fitting, "--stopwords", "words.txt", says=says)
    Path("words.txt").write_text("-\n", encoding="utf-8")
    run(*fitting, "--stopwords", "words.txt")
    assert AutoProcessor.from_pretrained(highlighter).key_phrases.stopwords == frozenset()


def test_mistakes(highlighter: str, tiny_model: HatBartForConditionalGeneration, processor: HatBartProcessor) -> None:
    mistake("fit-phrases", "-m", "nowhere/at/all", "train.jsonl", says="there is no folder 'nowhere/at/all'")
    mistake("fit-phrases", "-m", highlighter, "nothing.jsonl", says="nothing.jsonl")
    mistake(
        "fit-phrases", "-m", highlighter, "train.jsonl", "--stopwords", "fr", says="stopwords='fr' is neither a file"
    )
    mistake("fit-phrases", "-m", highlighter, says="DOCUMENTS are missing")
    mistake("fit-phrases", "-m", highlighter, "--finder", "yake", says="finder must be one of")
    mistake("fit-phrases", "-m", highlighter, "train.jsonl", "--finder", "title", says="leave out 'train.jsonl'")
    mistake("fit-phrases", "-m", "some-model", "train.jsonl", says="--output: 'some-model' is on the Hub")
    tagging = ("fit-phrases", "-m", highlighter, "--finder", "importance", "--tagger", "nowhere/at/all")
    mistake(*tagging, says="--tagger: there is no folder 'nowhere/at/all'")
    assert AutoProcessor.from_pretrained(highlighter).key_phrases is None
    Path("file").touch()
    mistake(
        "fit-phrases", "-m", highlighter, "nothing.jsonl", "--output", "file", says="file is a file; give a folder"
    )
    tiny_model.save_pretrained("bart")
    processor.save_pretrained("bart")
    mistake("fit-phrases", "-m", "bart", "train.jsonl", says="key phrases are for Highlight-Transformers")
