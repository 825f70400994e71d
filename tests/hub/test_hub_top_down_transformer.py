"""Export of the Top-Down Transformer, its tagger and its encoder: they load where hier_models is not installed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoConfig, AutoProcessor, pipeline

import hier_models
from tests.conftest import DOCUMENTS
from tests.hub.test_hub import WITHOUT_HIER_MODELS, run_python


IMPORTANCE = [[(0, 20, 1.0), (30, 60, 0.5)], [(4, 40, 2.0)], [(0, 5, 1.0)], [(2, 10, 1.0)]]
MODELS = {
    "AutoModelForSeq2SeqLM": hier_models.TopDownTransformerForConditionalGeneration,
    "AutoModelForTokenClassification": hier_models.TopDownTransformerForTokenClassification,
    "AutoModelForTextEncoding": hier_models.TopDownTransformerEncoderModel,
}

# Everything a checkpoint is loaded for. `source`, `trust` and `file` are set before.
USE = """
import torch
import transformers
from transformers import AutoProcessor, pipeline

kwargs = {"trust_remote_code": True} if trust else {}
name, texts, importance = torch.load(file + ".in")
model = getattr(transformers, name).from_pretrained(source, **kwargs).eval()
processor = AutoProcessor.from_pretrained(source, **kwargs)
inputs = processor(text=texts, importance=importance, padding=True, truncation=True, return_tensors="pt")
results = {"inputs": dict(inputs), "modules": [type(part).__module__ for part in (model, model.config, processor)]}
with torch.no_grad():
    if name == "AutoModelForSeq2SeqLM":
        results["outputs"] = model(**inputs, decoder_input_ids=inputs["input_ids"][:, :5]).logits
        results["generated"] = model.generate(**inputs, num_beams=2, min_length=8, max_length=12)
        results["texts"] = pipeline("summarization", model=source, device="cpu", **kwargs)(texts, max_length=12)
    else:
        results["outputs"] = model(**inputs)[0]
torch.save(results, file)
"""


@pytest.fixture(scope="module")
def processor(tokenizer: Any) -> Any:
    return hier_models.TopDownTransformerProcessor(tokenizer)


def make(name: str, tokenizer: Any) -> Any:
    torch.manual_seed(0)
    config = hier_models.TopDownTransformerConfig(
        vocab_size=len(tokenizer),
        max_encoder_position_embeddings=128,
        max_decoder_position_embeddings=32,
        d_model=32,
        bottom_up_layers=1,
        top_down_layers=1,
        segment_layers=1,
        attention_window=8,
        pooling_kernel=8,
        pooling_stride=6,
        pooling="importance",
        encoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=48,
    )
    model = MODELS[name](config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.mark.parametrize("name", [
    "AutoModelForSeq2SeqLM",
    pytest.param("AutoModelForTokenClassification", marks=pytest.mark.slow),
    pytest.param("AutoModelForTextEncoding", marks=pytest.mark.slow),
])  # fmt: skip
def test_loads_where_hier_models_is_not_installed(name, tokenizer, processor, tmp_path):
    model = make(name, tokenizer)
    folder = hier_models.export(model, processor, tmp_path / "check.point-1")
    torch.save((name, DOCUMENTS, IMPORTANCE), tmp_path / "results.pt.in")
    run_python(WITHOUT_HIER_MODELS + "#header\n" + USE, tmp_path, source=str(folder), trust=True, HF_HUB_OFFLINE="1")
    got = torch.load(tmp_path / "results.pt")
    assert all(module.startswith("transformers_modules.") for module in got["modules"])

    inputs = processor(text=DOCUMENTS, importance=IMPORTANCE, padding=True, truncation=True, return_tensors="pt")
    assert "token_importance" in inputs
    assert all(torch.equal(got["inputs"][key], inputs[key]) for key in inputs)
    with torch.no_grad():
        if name == "AutoModelForSeq2SeqLM":
            assert torch.equal(got["outputs"], model(**inputs, decoder_input_ids=inputs["input_ids"][:, :5]).logits)
            assert torch.equal(got["generated"], model.generate(**inputs, num_beams=2, min_length=8, max_length=12))
            summarize = pipeline("summarization", model=model, processor=processor, device="cpu")
            assert got["texts"] == summarize(DOCUMENTS, max_length=12)
        else:
            assert torch.equal(got["outputs"], model(**inputs)[0])


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written(name, tokenizer, processor, tmp_path):
    folder = hier_models.export(make(name, tokenizer), processor, tmp_path / "mine")
    package = Path(hier_models.__file__).parent
    own = {path.name for path in (package / "top_down_transformer").glob("*.py")} - {"__init__.py"}
    assert own <= {path.name for path in folder.glob("*.py")}
    config = AutoConfig.from_pretrained(folder)
    assert type(config) is hier_models.TopDownTransformerConfig
    assert type(AutoProcessor.from_pretrained(folder)) is hier_models.TopDownTransformerProcessor
    card = ModelCard.load(folder / "README.md")
    tasks = ("summarization", "token-classification", "feature-extraction")
    assert card.data.pipeline_tag == dict(zip(MODELS, tasks, strict=True))[name]
    for line in (
        "| encoder_layers | 2 |",
        "| attention_window | 8 |",
        "| pooling_kernel | 8 |",
        "| pooling | importance |",
        "| top_down_update | cross_attention |",
        "Top-down and Bottom-up Inference",
        "128 source tokens at most" if name == "AutoModelForSeq2SeqLM" else "It takes 128 tokens at most",
    ):
        assert line in card.text, line


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_lines_of_the_card_run(name, tokenizer, processor, tmp_path):
    folder = hier_models.export(make(name, tokenizer), processor, tmp_path / "mine")
    blocks = ModelCard.load(folder / "README.md").text.split("```python\n")[1:]
    assert len(blocks) == (1 if name == "AutoModelForTextEncoding" else 2)
    for block in blocks:
        assert run_python(WITHOUT_HIER_MODELS + block.split("```")[0], tmp_path, HF_HUB_OFFLINE="1").strip()


TAG = """
import torch
from transformers import AutoModelForTokenClassification, pipeline

tagger = AutoModelForTokenClassification.from_pretrained(source, trust_remote_code=True)
summarize = pipeline(
    "summarization", model=summarizer, importance_tagger=tagger, device="cpu", trust_remote_code=True
)
torch.save(summarize(torch.load(file + ".in"), max_length=12), file)
"""


@pytest.mark.slow
def test_a_tagger_tags_where_hier_models_is_not_installed(tokenizer, processor, tmp_path):
    model, tagger = make("AutoModelForSeq2SeqLM", tokenizer), make("AutoModelForTokenClassification", tokenizer)
    tagger.config.pooling = "average"
    summarizer = hier_models.export(model, processor, tmp_path / "summarizer")
    folder = hier_models.export(tagger, processor, tmp_path / "tagger")
    torch.save(DOCUMENTS, tmp_path / "results.pt.in")
    code = f"{WITHOUT_HIER_MODELS}#header\nsummarizer = {str(summarizer)!r}\n{TAG}"
    run_python(code, tmp_path, source=str(folder), trust=True, HF_HUB_OFFLINE="1")
    own = pipeline("summarization", model=model, processor=processor, importance_tagger=tagger, device="cpu")
    expected = own(DOCUMENTS, max_length=12)
    assert torch.load(tmp_path / "results.pt") == expected
    plain = pipeline("summarization", model=model, processor=processor, device="cpu")
    assert plain(DOCUMENTS, max_length=12) != expected
