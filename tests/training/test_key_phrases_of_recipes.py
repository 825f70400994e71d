"""The key phrases of a recipe: fitted, loaded, taken from the data, or missing."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import BartConfig, PreTrainedTokenizerFast

from hier_models.data import fit_key_phrases
from hier_models.models.configuration_highlight_transformer import HighlightTransformerConfig
from hier_models.models.processing_highlight_transformer import HighlightTransformerProcessor
from hier_models.training import key_phrases
from hier_models.training.arguments import DataArguments, RecipeError
from tests.conftest import DOCUMENTS


DATA = Dataset.from_dict({"documents": [DOCUMENTS[:2], DOCUMENTS]})


@pytest.fixture
def processor(tokenizer: PreTrainedTokenizerFast) -> HighlightTransformerProcessor:
    return HighlightTransformerProcessor(tokenizer)


def config(**settings: Any) -> HighlightTransformerConfig:
    return HighlightTransformerConfig(**settings)


def test_fitted_on_what_the_model_reads(processor: HighlightTransformerProcessor, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("the of")
    data = DataArguments(key_phrases="fit", stopwords=str(words), max_source_length=64)
    key_phrases.check(data)
    report = key_phrases.prepare(data, config(), processor, DATA)
    expected = fit_key_phrases(DATA, processor, max_source_length=64, stopwords=["the", "of"])
    assert repr(processor.key_phrases) == repr(expected)
    assert report == {"key_phrases": {"documents": 2, "phrases": len(expected), "uncounted": 0}}


def test_those_that_need_no_corpus(processor: HighlightTransformerProcessor) -> None:
    data = DataArguments(key_phrases="textrank", stopwords="en")
    key_phrases.check(data)
    assert key_phrases.prepare(data, config(), processor, DATA) == {"key_phrases": {"finder": "textrank"}}
    assert repr(processor.key_phrases).startswith("TextRankPhrases")


def test_loaded_from_a_file_or_a_checkpoint(processor: HighlightTransformerProcessor, tmp_path: Path) -> None:
    processor.key_phrases = fit_key_phrases(DATA, processor)
    processor.save_pretrained(tmp_path)
    for name in (tmp_path, tmp_path / "key_phrases.json"):
        other = HighlightTransformerProcessor(processor.tokenizer)
        report = key_phrases.prepare(DataArguments(key_phrases=str(name)), config(), other, DATA)
        assert repr(other.key_phrases) == repr(processor.key_phrases)
        assert report["key_phrases"]["documents"] == 2
    # By default those that it has.
    assert key_phrases.prepare(DataArguments(), config(), processor, DATA) == report


def test_the_data_may_have_them(processor: HighlightTransformerProcessor) -> None:
    data = DATA.add_column("phrases", [[{"text": "bridge", "value": 1.0}]] * 2)
    assert key_phrases.prepare(DataArguments(), config(), processor, data) == {}
    assert processor.key_phrases is None


@pytest.mark.parametrize("without", ["highlight_heads", "highlight_layers"])
def test_a_model_without_highlighting_needs_none(processor: HighlightTransformerProcessor, without: str) -> None:
    processor.key_phrases = fit_key_phrases(DATA, processor)
    data = DataArguments(key_phrases="fit")
    assert key_phrases.prepare(data, config(**{without: 0}), processor, DATA) == {}
    assert processor.key_phrases is None


def test_mistakes(
    processor: HighlightTransformerProcessor, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match="data: stopwords goes with key_phrases: fit"):
        key_phrases.check(DataArguments(stopwords="en"))
    with pytest.raises(RecipeError, match="key_phrases is missing: the model highlights key phrases"):
        key_phrases.prepare(DataArguments(), config(), processor, DATA)
    with pytest.raises(RecipeError, match="key_phrases is for Highlight-Transformers, and this model is bart"):
        key_phrases.prepare(DataArguments(key_phrases="fit"), BartConfig(), tokenizer, DATA)
    with pytest.raises(RecipeError, match="phrases_column is for Highlight-Transformers, and this model is bart"):
        key_phrases.prepare(DataArguments(phrases_column="lit"), BartConfig(), tokenizer, DATA)
    assert key_phrases.prepare(DataArguments(), BartConfig(), tokenizer, DATA) == {}
    with pytest.raises(RecipeError, match="data: key_phrases: stopwords='fr'"):
        key_phrases.prepare(DataArguments(key_phrases="fit", stopwords="fr"), config(), processor, DATA)
    (tmp_path / "broken.json").write_text("{}")
    for name, message in (("broken.json", "is no file of key phrases"), ("", r"key_phrases\.json")):
        with pytest.raises(RecipeError, match=message):
            key_phrases.prepare(DataArguments(key_phrases=str(tmp_path / name)), config(), processor, DATA)
