"""Attention over rows: its weights, its heatmap, its entropy."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from hier_models import CoarseToFineLstmProcessor
from hier_models.inspection import hierarchical_attention, row_entropy
from hier_models.inspection.row_attention import entropies
from hier_models.pipelines.written_form_hier import restore_written_form
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


ATTENTIONS = ["standard", "flat", "coarse_to_fine", "hard"]


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_weights_are_those_of_each_step(coarse_model: Any, coarse_processor: Any, attention: str) -> None:
    model = coarse_model(attention)
    found = hierarchical_attention(model, coarse_processor, text=DOCUMENTS[1], summary=SUMMARIES[1])
    inputs = coarse_processor(text=DOCUMENTS[1], text_target=SUMMARIES[1], return_tensors="pt")
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    assert found.weights.shape == (1, 5, inputs["labels"].shape[1])
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found.weights[0].T, outputs.row_attentions[0].numpy(), atol=1e-6)
    if attention in ("standard", "flat"):  # as in the thesis: the words' weights are summed
        words = outputs.cross_attentions[0][0, 0]
        summed = torch.zeros(len(words), 5).index_add(1, inputs["row_ids"][0], words)
        np.testing.assert_allclose(found.weights[0].T, summed.numpy(), atol=1e-6)
    if attention == "hard":  # before it selects
        assert ((found.weights > 0.01).sum(axis=1) > 1).any()
    assert found.sentences == [sentence.lower() + "." for sentence in DOCUMENTS[1].rstrip(".").split(". ")]
    assert found.tokens[-1] == " </s>"
    assert (found.top_k, found.unit) == (None, "sentence")
    assert not model.training


@pytest.mark.parametrize("search", [{}, {"num_beams": 3}])
def test_of_the_summary_that_is_generated(coarse_model: Any, coarse_processor: Any, search: dict[str, Any]) -> None:
    model = coarse_model("hard", num_samples=2)
    found = hierarchical_attention(model, coarse_processor, text=DOCUMENTS[0], **search)
    written = model.generate(**coarse_processor(text=[DOCUMENTS[0]], return_tensors="pt"), **search)[0, 1:]
    assert found.weights.shape == (1, 6, len(written))
    decoded = coarse_processor.decode(written, skip_special_tokens=True).strip()
    assert found.summary == restore_written_form(decoded, DOCUMENTS[0])  # its tokenizer is uncased


def test_units_and_rows(coarse_model: Any, coarse_processor: Any, word_tokenizer: Any) -> None:
    model = coarse_model()
    turns = hierarchical_attention(model, coarse_processor, turns=TURNS, summary="A bridge.")
    assert (turns.unit, turns.sentences[0]) == ("turn", "ann: did you book the room?")
    grid = CoarseToFineLstmProcessor(word_tokenizer, rows="grid", row_length=4, num_rows=3)
    rows = hierarchical_attention(model, grid, text=DOCUMENTS[0], summary="A bridge.")
    assert (rows.unit, len(rows.sentences), rows.sentences[0]) == ("row", 3, "the bridge was closed")
    assert rows.num_truncated_tokens == len(coarse_processor(text=DOCUMENTS[0])["input_ids"]) - 12
    empty = hierarchical_attention(model, coarse_processor, sentences=["A zebra.", "", "Two."], summary="A bridge.")
    assert empty.sentences == ["a <unk>.", "", "<unk>."]
    assert (empty.weights[0, 1] == 0).all()


def test_padding_of_the_grid_has_its_share(coarse_model: Any, word_tokenizer: Any) -> None:
    grid = CoarseToFineLstmProcessor(word_tokenizer, rows="grid", row_length=8, num_rows=4, pad_grid=True)
    found = hierarchical_attention(coarse_model(attend_padding=True), grid, text=DOCUMENTS[3], summary="A bridge.")
    assert found.sentences[1:] == ["", "", ""]
    assert (found.weights[0, 1:] > 0).all()


def test_pictures(coarse_model: Any, coarse_processor: Any, tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    found = hierarchical_attention(coarse_model("hard"), coarse_processor, text=DOCUMENTS[0], summary=SUMMARIES[0])
    assert found.save_png(tmp_path / "map.png").stat().st_size > 5000
    page = found.save_html(tmp_path / "map.html").read_text(encoding="utf-8")
    assert '"layered":false' in page
    assert "6 sentences" in page
    assert "decoder layer" not in found._caption()


def test_mistakes(coarse_model: Any, coarse_processor: Any, tiny_model: Any, processor: Any) -> None:
    with pytest.raises(ValueError, match=r"top_k: got 3; the weights of a CoarseToFineLstm.* are shown for all rows"):
        hierarchical_attention(coarse_model(), coarse_processor, text="One.", top_k=3)
    with pytest.raises(ValueError, match="HatBartForConditionalGeneration does not attend to rows"):
        row_entropy(tiny_model, processor, [])
    with pytest.raises(ValueError, match="documents: there are none"):
        row_entropy(coarse_model(), coarse_processor, [])


def test_entropies() -> None:
    cases = {
        (1.0, 0.0, 0.0): 0.0,
        (0.25, 0.25, 0.25, 0.25): math.log(4),
        (0.5, 0.5, 0.0): math.log(2),
        (0.9, 0.1): -0.9 * math.log(0.9) - 0.1 * math.log(0.1),
    }
    for weights, expected in cases.items():
        assert entropies(weights) == pytest.approx(expected, abs=1e-12)
        assert str(entropies(weights))[0] != "-"
    assert entropies(np.full((2, 3, 10), 0.1)).tolist() == [[pytest.approx(2.302585)] * 3] * 2  # the thesis' 2.30


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_entropy_over_a_data_set_is_the_mean_over_words(
    coarse_model: Any, coarse_processor: Any, attention: str
) -> None:
    model = coarse_model(attention).train()
    documents = [({"text": text}, summary) for text, summary in zip(DOCUMENTS, SUMMARIES, strict=True)]
    found = row_entropy(model, coarse_processor, documents)
    assert model.training
    model.eval()
    values, uniform = [], []
    for document, summary in documents:
        weights = hierarchical_attention(model, coarse_processor, **document, summary=summary).weights[0]
        for column in weights.T.astype(float):
            values.append(-sum(weight * math.log(weight) for weight in column if weight > 0))
            uniform.append(math.log(len(column)))
    assert found.entropy == pytest.approx(np.mean(values), rel=1e-5)
    assert found.uniform == pytest.approx(np.mean(uniform))
    assert (found.tokens, found.documents) == (len(values), 4)
    assert found.entropy < found.uniform
    assert found.rows == 14  # sentences
    if attention == "hard":
        assert 4 <= found.encoded_rows <= 14
    else:
        assert found.encoded_rows is None


def test_rows_that_are_read_are_those_chosen(coarse_model: Any, coarse_processor: Any) -> None:
    model = coarse_model("hard").eval()
    document = {"text": DOCUMENTS[0]}
    weights = hierarchical_attention(model, coarse_processor, **document, summary=SUMMARIES[0]).weights[0]
    chosen = len(set(weights.argmax(axis=0).tolist()))
    found = row_entropy(model, coarse_processor, [(document, SUMMARIES[0])])
    assert (found.encoded_rows, found.rows) == (chosen, 6)
    assert chosen < 6
    more = row_entropy(model, coarse_processor, [(document, SUMMARIES[0]), ({"text": DOCUMENTS[3]}, "One.")])
    assert (more.encoded_rows, more.rows) == (chosen + 1, 7)


def test_entropy_of_what_is_read(coarse_model: Any, coarse_processor: Any) -> None:
    found = row_entropy(
        coarse_model(), coarse_processor, [({"text": DOCUMENTS[0]}, "A bridge.")], max_source_length=14
    )
    assert found.uniform == pytest.approx(math.log(2))
