"""Fitting a key phrase extractor on a corpus, tokenizing with phrases, and their counts."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerFast

from hier_models.data import TruncationReport, fit_key_phrases, load_documents, tokenize_documents
from hier_models.data.stopwords import load_stopwords
from hier_models.models.key_phrase_extraction import KeyPhraseExtractor
from hier_models.models.processing_highlight_transformer import HighlightTransformerProcessor
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS, document_frequency


@pytest.fixture
def processor(tokenizer: PreTrainedTokenizerFast) -> HighlightTransformerProcessor:
    return HighlightTransformerProcessor(tokenizer)


def rows(kind: str) -> list[Any]:
    kinds: dict[str, list[Any]] = {
        "text": DOCUMENTS,
        "sentences": [text.split(". ") for text in DOCUMENTS],
        "turns": [TURNS, TURNS[2:]],
        "documents": [DOCUMENTS[:2], DOCUMENTS[1:]],
    }
    return kinds[kind]


@pytest.mark.parametrize("kind", ["text", "sentences", "turns", "documents"])
@pytest.mark.parametrize("streamed", [True, False])
def test_fitting(processor: HighlightTransformerProcessor, kind: str, streamed: bool) -> None:
    dataset: Any = Dataset.from_dict({kind: rows(kind)})
    dataset = dataset.to_iterable_dataset() if streamed else dataset
    extractor = fit_key_phrases(dataset, processor, min_documents=1)
    texts = processor.running_text(**{kind: rows(kind)})
    expected = KeyPhraseExtractor(load_stopwords("en")).fit(texts, min_documents=1)
    assert repr(extractor) == repr(expected)
    assert [extractor.find(text) for text in texts] == [expected.find(text) for text in texts]


def test_fitting_on_what_the_model_reads(processor: HighlightTransformerProcessor) -> None:
    articles = rows("documents")
    dataset = Dataset.from_dict({"documents": articles})
    extractor = fit_key_phrases(dataset, processor, max_source_length=50, stopwords=["the"], min_documents=1)
    left = processor.kept_text(documents=articles, max_length=50)
    expected = KeyPhraseExtractor(["the"]).fit(left, min_documents=1)
    assert len(extractor) == len(expected) > 0
    assert len(extractor) < len(fit_key_phrases(dataset, processor, stopwords=["the"], min_documents=1))


@pytest.mark.parametrize("kind", ["text", "documents"])
def test_a_word_that_is_cut_is_counted_as_little_as_it_is_found(
    processor: HighlightTransformerProcessor, kind: str
) -> None:
    text = "old harbourmaster"
    source: dict[str, Any] = {kind: [text if kind == "text" else [text, "a ferry", ""]]}
    cut = 0
    for limit in range(3, 30):
        extractor = fit_key_phrases(
            Dataset.from_dict(source), processor, max_source_length=limit, stopwords=(), min_documents=1
        )
        part = processor.kept_text(**source, max_length=limit)[0][0]
        assert document_frequency(extractor, text) == (part == text)
        if len(part.split()) == 2 and len(part.split()[1]) > 1 and part != text:
            cut += 1
            assert document_frequency(extractor, part) == 0
    assert cut


def test_a_file_of_many_documents_is_streamed(processor: HighlightTransformerProcessor, tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(f'{{"text": "Solar power is number{i} of all."}}\n' for i in range(500)))
    documents = load_documents(file, streaming=True)
    assert isinstance(documents, IterableDataset)
    extractor = fit_key_phrases(documents, processor)
    assert extractor.documents == 500
    assert document_frequency(extractor, "solar power") == 500
    assert len(extractor) == 1


def test_stopwords_by_file(processor: HighlightTransformerProcessor, tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("# mine\nsolar\n")
    dataset = Dataset.from_dict({"text": ["the solar power plant"] * 2})
    extractor = fit_key_phrases(dataset, processor, stopwords=file)
    assert [phrase.text for phrase in extractor.find("the solar power plant")] == ["power plant"]
    assert fit_key_phrases(dataset, processor, stopwords=()).stopwords == frozenset()
    assert "und" in fit_key_phrases(dataset, processor, stopwords="de").stopwords


def test_what_cannot_be_fitted(processor: HighlightTransformerProcessor, tokenizer: PreTrainedTokenizerFast) -> None:
    dataset = Dataset.from_dict({"text": DOCUMENTS})
    with pytest.raises(ValueError, match=r"processor must be one that highlights phrases .* got \w+$"):
        fit_key_phrases(dataset, tokenizer)
    french = HighlightTransformerProcessor(tokenizer, language="fr")
    with pytest.raises(ValueError, match=r"stopwords: there is no list for the processor's language 'fr'"):
        fit_key_phrases(dataset, french)
    assert fit_key_phrases(dataset, french, stopwords=["le", "la"]).documents == 4
    with pytest.raises(ValueError, match="exactly one of the columns"):
        fit_key_phrases(Dataset.from_dict({"body": DOCUMENTS}), processor)
    for empty in (Dataset.from_dict({"text": []}), IterableDataset.from_generator(lambda: iter(()))):
        with pytest.raises(ValueError, match="no document"):
            fit_key_phrases(empty, processor)


@pytest.mark.parametrize("streamed", [True, False])
def test_tokenizing_counts_what_became_of_phrases(processor: HighlightTransformerProcessor, streamed: bool) -> None:
    given = [
        [{"text": "bridge", "value": 1.0}, {"text": "a ferry", "value": 0.5}],
        [{"text": "solar power", "value": 1.0}],
        [],
        [{"text": "sentence", "value": 2.0}],
    ]
    dataset: Any = Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES, "phrases": given})
    dataset = dataset.to_iterable_dataset() if streamed else dataset
    report = TruncationReport()
    tokenized = list(tokenize_documents(dataset, processor, max_source_length=30, report=report))
    expected = processor(
        text=DOCUMENTS,
        phrases=[[(phrase["text"], phrase["value"]) for phrase in row] for row in given],
        truncation=True,
        max_length=30,
    )
    for row, positions, values in zip(tokenized, expected["phrase_positions"], expected["phrase_values"], strict=True):
        assert [tuple(place) for place in row["phrase_positions"]] == positions
        assert row["phrase_values"] == values
    numbers = {"missing_phrases": 1, "truncated_phrases": 1, "long_phrases": 0, "without_phrases": 1}
    assert report.as_dict().items() >= numbers.items()
    assert "1 phrases are not in their documents; 1 occurrences of phrases lost tokens" in str(report)


def test_tokenizing_finds_key_phrases(processor: HighlightTransformerProcessor) -> None:
    dataset = Dataset.from_dict({"documents": rows("documents"), "summary": SUMMARIES[:2]})
    report = TruncationReport()
    plain = tokenize_documents(dataset, processor, max_source_length=60, report=report)
    assert "phrase_values" not in plain.column_names
    assert "missing_phrases" not in report.as_dict()
    processor.key_phrases = fit_key_phrases(dataset, processor, min_documents=1)
    found = tokenize_documents(dataset, processor, max_source_length=60, report=report)
    expected = processor(documents=rows("documents"), truncation=True, max_length=60)
    assert found["phrase_values"][:] == expected["phrase_values"]
    assert report.as_dict()["without_phrases"] == 0
