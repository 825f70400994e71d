"""The summarization pipeline with a Coarse-to-Fine LSTM: rows that are read, rows that are cut."""

import json
from typing import Any

import pytest
from transformers import pipeline

from hier_models import CoarseToFineLstmProcessor, summarize_book
from hier_models.pipelines import SummarizationPipeline
from tests.conftest import DOCUMENTS, TURNS


@pytest.mark.parametrize("attention", ["standard", "flat", "coarse_to_fine", "hard"])
@pytest.mark.parametrize("search", [{}, {"num_beams": 3}])
def test_a_batch_is_its_documents(
    coarse_model: Any, coarse_processor: Any, attention: str, search: dict[str, Any]
) -> None:
    summarize = SummarizationPipeline(model=coarse_model(attention), processor=coarse_processor, device="cpu")
    alone = [summarize(document, **search)[0] for document in DOCUMENTS]
    assert summarize(DOCUMENTS, batch_size=3, **search) == alone
    assert len({result["summary_text"] for result in alone}) > 1
    assert summarize(TURNS, **search)[0]["summary_text"] is not None


def test_rows_that_were_read_are_counted(coarse_model: Any, coarse_processor: Any) -> None:
    summarize = SummarizationPipeline(model=coarse_model("hard"), processor=coarse_processor, device="cpu")
    results = summarize(DOCUMENTS, batch_size=2, num_beams=3, num_return_sequences=2, return_encoded_rows=True)
    for document, sequences in zip(DOCUMENTS, results, strict=True):
        assert len(sequences) == 2
        assert len({sequence["num_encoded_rows"] for sequence in sequences}) == 1
        number, rows = sequences[0]["num_encoded_rows"], sequences[0]["num_rows"]
        assert rows == len(coarse_processor.split_sentences(document))
        assert 1 <= number <= rows
    json.dumps(results)
    # Nothing else changes.
    texts = [[sequence["summary_text"] for sequence in sequences] for sequences in results]
    plain = summarize(DOCUMENTS, batch_size=2, num_beams=3, num_return_sequences=2)
    assert [[sequence["summary_text"] for sequence in sequences] for sequences in plain] == texts
    assert "num_rows" not in plain[0][0]


def test_a_long_document_is_hardly_read(coarse_model: Any, coarse_processor: Any) -> None:
    summarize = SummarizationPipeline(model=coarse_model("hard"), processor=coarse_processor, device="cpu")
    sentences = [f"{DOCUMENTS[i % 4]} {'the ' * (i % 7)}" for i in range(300)]
    (result,) = summarize(sentences=[sentences], return_encoded_rows=True, max_new_tokens=6)
    assert result["num_rows"] == 300
    assert result["num_encoded_rows"] <= 6  # at most one a step


def test_only_models_that_select_rows_count_them(coarse_model: Any, coarse_processor: Any) -> None:
    summarize = SummarizationPipeline(model=coarse_model("coarse_to_fine"), processor=coarse_processor, device="cpu")
    with pytest.raises(ValueError, match="`return_encoded_rows` is for models that read only the rows that they sel"):
        summarize("One.", return_encoded_rows=True)


def test_rows_without_positions_are_cut_and_counted(coarse_model: Any, word_tokenizer: Any) -> None:
    model = coarse_model(row_position_size=4, max_rows=2)
    processor = CoarseToFineLstmProcessor(word_tokenizer, num_rows=2)
    summarize = SummarizationPipeline(model=model, processor=processor, device="cpu")
    (result,) = summarize(DOCUMENTS[0], return_truncation=True)
    assert result["num_truncated_sentences"] == 4
    with pytest.raises(ValueError, match="6 rows, more than max_rows=2"):
        summarize(DOCUMENTS[0], truncation=False)


def test_a_grid_has_room_for_so_many_words(coarse_model: Any, word_tokenizer: Any) -> None:
    processor = CoarseToFineLstmProcessor(word_tokenizer, rows="grid", row_length=4, num_rows=3, pad_grid=True)
    summarize = SummarizationPipeline(model=coarse_model(attend_padding=True), processor=processor, device="cpu")
    assert summarize.limits()[0] == 12
    (result,) = summarize(DOCUMENTS[0], truncation=True, return_truncation=True)
    whole = len(CoarseToFineLstmProcessor(word_tokenizer)(text=DOCUMENTS[0])["input_ids"])
    assert result["num_truncated_tokens"] == whole - 12
    with pytest.raises(ValueError, match="more than the 12 that"):
        summarize(DOCUMENTS[0], truncation=False)
    assert summarize([DOCUMENTS[3], DOCUMENTS[0]], batch_size=2) == [
        *summarize(DOCUMENTS[3]),
        *summarize(DOCUMENTS[0]),
    ]


def test_saved_and_loaded_by_its_name(coarse_model: Any, coarse_processor: Any, tmp_path: Any) -> None:
    summarize = SummarizationPipeline(model=coarse_model("hard", num_samples=2), processor=coarse_processor)
    summarize.save_pretrained(tmp_path)
    loaded = pipeline("summarization", model=str(tmp_path), device="cpu")
    assert loaded(DOCUMENTS, num_beams=2) == summarize(DOCUMENTS, num_beams=2)


def test_books(coarse_model: Any, coarse_processor: Any) -> None:
    summarize = SummarizationPipeline(model=coarse_model("hard"), processor=coarse_processor, device="cpu")
    book = summarize_book([f"{document} " * 4 for document in DOCUMENTS[:2]], summarize, max_length=8)
    assert book.summary is not None
