import logging

import pytest
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForSeq2SeqLM, AutoProcessor, BartConfig, PreTrainedTokenizerFast, pipeline

from hier_models import MINI, HatBartConfig, HighlightTransformerProcessor
from hier_models.data import TruncationReport, tokenize_documents
from hier_models.data.tokenizing import plain_text
from hier_models.models.phrase_ranking import ImportantPhrases
from tests import forks
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


PLACES = ("lighthouse", "museum", "market hall", "school", "lock", "shipyard", "library", "chapel")
COUNTS = {"num_truncated_tokens", "num_truncated_sentences", "num_truncated_target_tokens"}


@pytest.fixture
def documents() -> Dataset:
    return Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES, "id": list("abcd")})


def test_inputs_are_the_processors(documents, processor):
    tokenized = tokenize_documents(documents, processor)
    assert set(tokenized.column_names) == {"input_ids", "attention_mask", "segment_ids", "labels"} | COUNTS
    for text, summary, row in zip(DOCUMENTS, SUMMARIES, tokenized, strict=True):
        expected = processor(text=text, text_target=summary)
        assert {name: row[name] for name in expected} == dict(expected)
        assert all(row[name] == 0 for name in COUNTS)


@pytest.mark.parametrize("kind", ["sentences", "turns", "documents"])
def test_every_kind_of_source(processor, kind):
    sources = {
        "sentences": [["One sentence.", "Two."], ["Three."]],
        "turns": [TURNS, TURNS[:1]],
        "documents": [DOCUMENTS[:2], DOCUMENTS[2:3]],
    }[kind]
    tokenized = tokenize_documents(Dataset.from_dict({kind: sources}), processor)
    assert list(tokenized["input_ids"]) == processor(**{kind: sources})["input_ids"]
    assert list(tokenized["segment_ids"]) == processor(**{kind: sources})["segment_ids"]
    assert "labels" not in tokenized.column_names


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_every_cut_token_is_counted(documents, processor, tokenizer, plain, streaming):
    chosen = tokenizer if plain else processor
    whole = tokenize_documents(documents, chosen)
    report = TruncationReport()
    dataset = documents.to_iterable_dataset() if streaming else documents
    cut = tokenize_documents(dataset, chosen, max_source_length=20, max_target_length=8, report=report)
    rows = list(cut)
    tokens = [len(a) - len(b["input_ids"]) for a, b in zip(whole["input_ids"], rows, strict=True)]
    target_tokens = [len(a) - len(b["labels"]) for a, b in zip(whole["labels"], rows, strict=True)]
    assert [row["num_truncated_tokens"] for row in rows] == tokens
    assert [row["num_truncated_target_tokens"] for row in rows] == target_tokens
    assert max(len(row["input_ids"]) for row in rows) <= 20
    assert max(len(row["labels"]) for row in rows) <= 8
    assert min(sum(tokens), sum(target_tokens)) > 0
    assert report.as_dict() == {
        "documents": 4,
        "truncated_documents": sum(number > 0 for number in tokens),
        "truncated_tokens": sum(tokens),
        "truncated_sentences": sum(row["num_truncated_sentences"] for row in rows),
        "truncated_summaries": sum(number > 0 for number in target_tokens),
        "truncated_summary_tokens": sum(target_tokens),
    }
    assert plain == (report.truncated_sentences == 0)


def test_totals_are_logged_once(documents, processor, caplog):
    with caplog.at_level(logging.INFO, logger="hier_models.data"):
        tokenize_documents(documents, processor)
        tokenize_documents(documents, processor, max_source_length=20)
    first, second = caplog.records
    assert (first.levelname, first.getMessage()) == ("INFO", "4 documents tokenized, nothing cut")
    assert second.levelname == "WARNING"
    assert "did not fit and lost" in second.getMessage()


def test_several_processes_give_the_same(documents, processor):
    report = TruncationReport()
    tokenized = tokenize_documents(documents, processor, max_source_length=20, num_proc=2, report=report)
    assert list(tokenized) == list(tokenize_documents(documents, processor, max_source_length=20))
    assert report.documents == 4


def test_a_streams_workers_count_together(documents, processor):
    report = TruncationReport()
    stream = documents.to_iterable_dataset(num_shards=4)
    tokenized = tokenize_documents(stream, processor, max_source_length=20, report=report)
    rows = list(DataLoader(tokenized, num_workers=2, batch_size=None))
    assert report.documents == 4
    assert report.truncated_tokens == sum(int(row["num_truncated_tokens"]) for row in rows) > 0


def test_plain_tokenizers_get_plain_text(tokenizer):
    assert plain_text("turns", TURNS[:2]) == "Ann: Did you book the room?\nBob: Not yet. I will do it today."
    assert plain_text("sentences", ["One.", "Two."]) == "One. Two."
    assert plain_text("documents", ["One.", "Two."]) == "One.\n\nTwo."
    tokenized = tokenize_documents(Dataset.from_dict({"turns": [TURNS], "summary": ["Room."]}), tokenizer)
    assert tokenizer.decode(tokenized[0]["input_ids"]) == plain_text("turns", TURNS)
    assert tokenizer.decode(tokenized[0]["labels"]) == "Room."


def test_datasets_without_or_with_several_sources(processor):
    with pytest.raises(ValueError, match=r"exactly one of the columns text, sentences, turns, documents, got article"):
        tokenize_documents(Dataset.from_dict({"article": ["a"]}), processor)
    with pytest.raises(ValueError, match="got text, turns"):
        tokenize_documents(Dataset.from_dict({"text": ["a"], "turns": [TURNS]}), processor)


@pytest.mark.parametrize("name", ["max_source_length", "max_target_length"])
def test_lengths_that_hold_nothing(documents, processor, name):
    with pytest.raises(ValueError, match=f"{name} must be at least 3"):
        tokenize_documents(documents, processor, **{name: 2})


def test_the_cache_answers_another_process(tmp_path, processor):
    """A resumed run must not tokenize everything again."""
    processor.save_pretrained(tmp_path / "processor")
    (tmp_path / "docs.jsonl").write_text('{"text": "One. Two."}\n' * 5)
    code = """
import sys
from pathlib import Path
import datasets
import hier_models
from transformers import AutoProcessor
from hier_models.data import load_documents, tokenize_documents
folder = sys.argv[1]
datasets.config.HF_DATASETS_CACHE = Path(folder) / "cache"
processor = AutoProcessor.from_pretrained(folder + "/processor")
for _ in range(2):
    documents = load_documents(folder + "/docs.jsonl")
    print(tokenize_documents(documents, processor, max_source_length=9).cache_files[0]["filename"])
    processor(text=["Used in between."], padding=True, truncation=True, max_length=5, return_tensors="pt")
"""
    files = set()
    for libraries in ("torch", "hier_models"):  # with another seed of Python's hashes
        done = forks.run(code, str(tmp_path), libraries=libraries)
        assert done.returncode == 0, done.stderr
        files |= set(done.stdout.split())
    assert len(files) == 1


def test_phrases_of_a_tagger_that_was_trained_anew(documents, tokenizer, tiny_tagger, tmp_path):
    documents.save_to_disk(tmp_path / "documents")
    tokenizer.save_pretrained(tmp_path)

    def tokenized():
        finder = ImportantPhrases(str(tmp_path), lengths=(1, 2), top_k=3)
        processor = HighlightTransformerProcessor(tokenizer, key_phrases=finder)
        return tokenize_documents(Dataset.load_from_disk(tmp_path / "documents"), processor)

    tiny_tagger.save_pretrained(tmp_path)
    first, kept = tokenized(), tokenized()
    torch.nn.init.normal_(tiny_tagger.classifier.weight)
    tiny_tagger.save_pretrained(tmp_path)
    other = tokenized()
    assert kept.cache_files == first.cache_files != other.cache_files
    assert list(kept) == list(first) != list(other)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("kind", ["text", "sentences", "turns", "documents"])
def test_what_is_condensed_is_what_the_pipeline_reads(plain: bool, kind: str) -> None:
    encoder = AutoProcessor.from_pretrained(MINI)
    size = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    config = (BartConfig if plain else HatBartConfig)(**size, vocab_size=len(encoder.tokenizer), forced_eos_token_id=3)
    model = AutoModelForSeq2SeqLM.from_config(config)
    if plain:
        names = {"bos_token": "[CLS]", "eos_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
        encoder = PreTrainedTokenizerFast(tokenizer_file=f"{MINI}/tokenizer.json", **names)
    pipe = pipeline("summarization", model=model, **{"tokenizer" if plain else "processor": encoder})
    sentences = [f"The {word} of the harbour was opened in {1900 + year}." for year, word in enumerate(PLACES * 8)]
    text = " ".join(sentences)
    turns = [{"role": "Ann" if place % 2 else "Bob", "content": one} for place, one in enumerate(sentences)]
    source = {"text": text, "sentences": sentences, "turns": turns, "documents": [text[:300], text]}[kind]
    rows = Dataset.from_list([{kind: source, "summary": "A short one."}, {kind: source[:1], "summary": "Another."}])
    report = TruncationReport()
    lengths = {"max_source_length": 200, "report": report}
    made = tokenize_documents(rows, encoder, long_documents="condense", **lengths)
    read = pipe.preprocess({kind: source}, max_source_length=200)["examples"]
    assert made[0]["input_ids"] == read.inputs["input_ids"]
    assert len(made[0]["input_ids"]) <= 200
    assert made[0]["num_truncated_tokens"] == read.counts["num_omitted_tokens"] > 0
    assert (report.truncated_documents, report.truncated_tokens) == (1, made[0]["num_truncated_tokens"])
    cut = tokenize_documents(rows, encoder, max_source_length=200)
    assert cut[0]["input_ids"] != made[0]["input_ids"]
    assert cut[1]["input_ids"] == made[1]["input_ids"]  # a short one is read whole


def test_what_is_condensed_goes_by_the_query() -> None:
    sentences = [f"The {word} of the harbour was opened in {1900 + year}." for year, word in enumerate(PLACES * 8)]
    rows = Dataset.from_list([{"text": " ".join(sentences), "summary": "x", "query": "When was the museum opened?"}])
    processor = AutoProcessor.from_pretrained(MINI)
    (made,) = tokenize_documents(rows, processor, max_source_length=80, long_documents="condense")
    text = processor.tokenizer.decode(made["input_ids"], skip_special_tokens=True)
    assert text.startswith("question : when was the museum opened?")
    assert text.count("museum") > text.count("lighthouse")


def test_other_ways_of_long_documents_are_refused(documents, processor) -> None:
    with pytest.raises(ValueError, match="long_documents must be 'cut' or 'condense', got 'skip'"):
        tokenize_documents(documents, processor, long_documents="skip")
