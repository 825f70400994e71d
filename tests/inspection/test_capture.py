"""Recording the hierarchical attention of a model."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from hier_models import HatBartConfig, HatBartForConditionalGeneration, HatBartProcessor
from hier_models.inspection import capture, hierarchical_attention
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


@pytest.fixture
def model(tiny_model: HatBartForConditionalGeneration) -> HatBartForConditionalGeneration:
    tiny_model.generation_config.max_length = 14
    return tiny_model


def expected_weights(model: Any, inputs: dict[str, torch.Tensor], labels: torch.Tensor, top_k: int) -> np.ndarray:
    """The paper's procedure on one plain pass over everything, in loops."""
    model = copy.deepcopy(model).eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(**inputs, labels=labels, output_attentions=True).hierarchical_attentions
    result = np.zeros((len(layers), layers[0].shape[3], layers[0].shape[2]))
    for number, layer in enumerate(layers):
        for token in range(layer.shape[2]):
            highest = layer[0, :, token].max(dim=0).values.tolist()
            kept = sorted(range(len(highest)), key=lambda row: (-highest[row], row))[:top_k]
            for row in kept:
                result[number, row, token] = highest[row] / sum(highest[other] for other in kept)
    return result


@pytest.mark.parametrize("chunk", [1, 3, 64])
@pytest.mark.parametrize("top_k", [2, 16])
def test_given_summary(
    model: HatBartForConditionalGeneration,
    processor: HatBartProcessor,
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
    top_k: int,
):
    monkeypatch.setattr(capture, "CHUNK", chunk)
    attention = hierarchical_attention(model, processor, text=DOCUMENTS[1], summary=SUMMARIES[1], top_k=top_k)
    inputs = processor(text=[DOCUMENTS[1]], text_target=[SUMMARIES[1]], return_tensors="pt")
    labels = inputs.pop("labels")
    np.testing.assert_allclose(attention.weights, expected_weights(model, inputs, labels, top_k), atol=1e-5)
    np.testing.assert_allclose(attention.weights.sum(axis=1), 1, atol=1e-5)
    assert attention.weights.shape == (2, 5, labels.shape[1])
    assert " ".join(attention.sentences) == DOCUMENTS[1]
    assert attention.summary == SUMMARIES[1]
    assert "".join(attention.tokens) == f"<s>{SUMMARIES[1]}</s>"
    assert attention.top_k == top_k


@pytest.mark.parametrize("search", [{}, {"num_beams": 3}, {"min_new_tokens": 6, "max_new_tokens": 6}])
def test_generated_summary(
    model: HatBartForConditionalGeneration, processor: HatBartProcessor, search: dict[str, int]
):
    attention = hierarchical_attention(model, processor, text=DOCUMENTS[1], **search)
    inputs = processor(text=[DOCUMENTS[1]], return_tensors="pt")
    settings = {"max_length": None, **search} if "max_new_tokens" in search else search
    generated = model.generate(**inputs, **settings)
    assert attention.summary == processor.decode(generated[0], skip_special_tokens=True).strip()
    assert len(attention.tokens) == generated.shape[1] - 1
    np.testing.assert_allclose(
        attention.weights, expected_weights(model, inputs, generated[:, 1:], top_k=16), atol=1e-5
    )


def test_generation_config_is_respected(model: HatBartForConditionalGeneration, processor: HatBartProcessor):
    model.generation_config.max_length = 8
    model.generation_config.min_length = 8
    assert len(hierarchical_attention(model, processor, text=DOCUMENTS[0]).tokens) == 7


def test_structured_documents(model: HatBartForConditionalGeneration, processor: HatBartProcessor):
    turns = hierarchical_attention(model, processor, turns=TURNS)
    assert turns.unit == "turn"
    assert turns.sentences == [f"{turn['role']}: {turn['content']}" for turn in TURNS]
    own = hierarchical_attention(model, processor, sentences=["One. Two.", "Three", "Four."])
    assert own.sentences == ["One. Two.", "Three", "Four."]
    articles = hierarchical_attention(model, processor, documents=DOCUMENTS[2:])
    assert articles.sentences == ["The library opens at nine.", "It closes at six.", DOCUMENTS[3]]


def test_cut_document(model: HatBartForConditionalGeneration, processor: HatBartProcessor):
    whole = processor(text=DOCUMENTS[1])["input_ids"]
    attention = hierarchical_attention(model, processor, text=DOCUMENTS[1], summary="Bees.", max_source_length=20)
    assert attention.num_truncated_tokens == len(whole) - 20
    assert DOCUMENTS[1].startswith(" ".join(attention.sentences))
    long = hierarchical_attention(model, processor, text=DOCUMENTS[1] * 5, summary="Bees.")
    assert long.num_truncated_tokens > 0


def test_model_comes_back_as_it_was(model: HatBartForConditionalGeneration, processor: HatBartProcessor):
    model.train()
    model.model.encoder.eval()
    modes = [module.training for module in model.modules()]
    assert model.config._attn_implementation == "sdpa"
    generation = model.generation_config.to_dict()

    hierarchical_attention(model, processor, text=DOCUMENTS[2])
    with pytest.raises(ValueError, match="max_source_length"):
        hierarchical_attention(model, processor, text=DOCUMENTS[2], max_source_length=1000)

    assert [module.training for module in model.modules()] == modes
    assert model.config._attn_implementation == "sdpa"
    assert model.generation_config.to_dict() == generation


def test_attention_is_restored_when_the_pass_fails(
    model: HatBartForConditionalGeneration, processor: HatBartProcessor
):
    model.train()
    with pytest.raises(ValueError, match="A target of"):
        hierarchical_attention(model, processor, text=DOCUMENTS[2], summary="A long word. " * 100)
    assert model.config._attn_implementation == "sdpa"
    assert model.training


def test_dropout_is_off(model: HatBartForConditionalGeneration, processor: HatBartProcessor):
    model.train()
    first, second = (hierarchical_attention(model, processor, text=DOCUMENTS[0], summary="A bridge.") for _ in "12")
    np.testing.assert_array_equal(first.weights, second.weights)


def test_rows_that_are_no_sentences(
    model: HatBartForConditionalGeneration, processor: HatBartProcessor, monkeypatch: pytest.MonkeyPatch
):
    """A family whose decoder attends to pooled segments has fewer rows than the text has BOS markers."""
    forward = model.forward

    def pooled(*args: Any, **kwargs: Any) -> Any:
        outputs = forward(*args, **kwargs)
        outputs.hierarchical_attentions = tuple(layer[..., :2] for layer in outputs.hierarchical_attentions)
        return outputs

    monkeypatch.setattr(model, "forward", pooled)
    attention = hierarchical_attention(model, processor, text=DOCUMENTS[1], summary="Bees.")
    assert attention.sentences == ["segment 1", "segment 2"]
    assert attention.unit == "segment"


def test_models_without_hierarchy(tiny_config: HatBartConfig, processor: HatBartProcessor):
    tiny_config.hierarchical_layers = 0
    with pytest.raises(ValueError, match="HatBartForConditionalGeneration has no hierarchical attention"):
        hierarchical_attention(HatBartForConditionalGeneration(tiny_config), processor, text="One. Two.")
    sizes = {
        name: getattr(tiny_config, name) for name in ("vocab_size", "d_model", "encoder_layers", "decoder_layers")
    }
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    bart = BartForConditionalGeneration(BartConfig(**sizes, **heads, max_position_embeddings=128))
    with pytest.raises(ValueError, match="BartForConditionalGeneration has no hierarchical attention"):
        hierarchical_attention(bart, HatBartProcessor(processor.tokenizer), text="One. Two.", summary="One.")
    assert bart.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "got none"),
        ({"text": "One.", "sentences": ["One."]}, "got text, sentences"),
        ({"text": "One.", "summary": "One.", "num_beams": 2}, "num_beams"),
        ({"text": "One.", "num_beams": 2, "num_return_sequences": 2}, "num_return_sequences"),
        ({"text": "One.", "top_k": 0}, "top_k"),
    ],
)
def test_bad_arguments(
    model: HatBartForConditionalGeneration, processor: HatBartProcessor, arguments: dict[str, Any], named: str
):
    with pytest.raises(ValueError, match=named):
        hierarchical_attention(model, processor, **arguments)


@pytest.mark.parametrize("text", ["", "Honey 🐝 für die Königin, 蜂蜜!", "word " * 400 + "蜂"])
def test_token_texts_join_to_the_text(processor: HatBartProcessor, text: str):
    tokenizer = processor.tokenizer
    ids = tokenizer(text)["input_ids"]
    tokens = capture._token_texts(tokenizer, ids)
    assert len(tokens) == len(ids)
    assert "".join(tokens) == tokenizer.decode(ids, skip_special_tokens=False)
    assert not any("\ufffd" in token for token in tokens)


def test_saved_pictures(model: HatBartForConditionalGeneration, processor: HatBartProcessor, tmp_path: Any):
    attention = hierarchical_attention(model, processor, text=DOCUMENTS[0], title="The bridge")
    assert attention.save_png(tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "<title>The bridge</title>" in attention.save_html(tmp_path / "map.html").read_text(encoding="utf-8")
