"""Export of the Highlight-Transformer: it loads where hier_models is not installed, its key phrases with it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoConfig, AutoProcessor, pipeline

import hier_models
from tests.conftest import DOCUMENTS
from tests.hub.test_hub import WITHOUT_HIER_MODELS, run_python


PHRASES = [[("second pillar", 1.0), ("a crack", 0.5), (0, 10, 0.25)], [("Bees", 2.0)], [], [("single", 1.0)]]

# Everything a checkpoint is loaded for. `source`, `trust` and `file` are set before.
USE = """
import torch
from transformers import AutoModelForSeq2SeqLM, AutoProcessor, pipeline

kwargs = {"trust_remote_code": True} if trust else {}
articles, texts, phrases = torch.load(file + ".in")
model = AutoModelForSeq2SeqLM.from_pretrained(source, **kwargs).eval()
processor = AutoProcessor.from_pretrained(source, **kwargs)
given = processor(text=texts, phrases=phrases, padding=True, truncation=True, return_tensors="pt")
found = processor(documents=[articles], padding=True, truncation=True, return_tensors="pt")
results = {"given": dict(given), "found": dict(found)}
results["modules"] = [type(part).__module__ for part in (model, model.config, processor, processor.key_phrases)]
with torch.no_grad():
    outputs = model(**given, decoder_input_ids=given["input_ids"][:, :5], output_copying=True)
    results["outputs"] = outputs.logits, outputs.copy_attentions
    results["generated"] = model.generate(**found, num_beams=2, min_length=8, max_length=12)
    results["texts"] = pipeline("summarization", model=source, device="cpu", **kwargs)(texts, max_length=12)
torch.save(results, file)
"""


@pytest.fixture(scope="module")
def processor(tokenizer: Any) -> Any:
    key_phrases = hier_models.KeyPhraseExtractor(["the", "a", "is", "on", "of", "by"]).fit(DOCUMENTS)
    return hier_models.HighlightTransformerProcessor(tokenizer, key_phrases=key_phrases)


@pytest.fixture(scope="module", params=["paper", "bart"])
def model(request: pytest.FixtureRequest, tokenizer: Any) -> Any:
    torch.manual_seed(0)
    body = {
        "paper": {},
        "bart": {
            "normalize_before": False,
            "position_embedding_type": "learned",
            "max_position_embeddings": 128,
            "highlighting": "additive",
        },
    }[request.param]
    config = hier_models.HighlightTransformerConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=48,
        brightness=0.9,
        **body,
    )
    made = hier_models.HighlightTransformerForConditionalGeneration(config).eval()
    for parameter in made.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return made


def test_loads_where_hier_models_is_not_installed(model, processor, tmp_path):
    folder = hier_models.export(model, processor, tmp_path / "check.point-1")
    torch.save((DOCUMENTS[:3], DOCUMENTS, PHRASES), tmp_path / "results.pt.in")
    run_python(WITHOUT_HIER_MODELS + "#header\n" + USE, tmp_path, source=str(folder), trust=True, HF_HUB_OFFLINE="1")
    got = torch.load(tmp_path / "results.pt")
    assert all(module.startswith("transformers_modules.") for module in got["modules"])

    given = processor(text=DOCUMENTS, phrases=PHRASES, padding=True, truncation=True, return_tensors="pt")
    found = processor(documents=[DOCUMENTS[:3]], padding=True, truncation=True, return_tensors="pt")
    for name, inputs in (("given", given), ("found", found)):
        assert (inputs["phrase_values"] > 0).any()
        assert all(torch.equal(got[name][key], inputs[key]) for key in inputs)
    with torch.no_grad():
        outputs = model(**given, decoder_input_ids=given["input_ids"][:, :5], output_copying=True)
        assert torch.equal(got["outputs"][0], outputs.logits)
        assert torch.equal(got["outputs"][1], outputs.copy_attentions)
        assert torch.equal(got["generated"], model.generate(**found, num_beams=2, min_length=8, max_length=12))
        summarize = pipeline("summarization", model=model, processor=processor, device="cpu")
        assert got["texts"] == summarize(DOCUMENTS, max_length=12)


def test_what_is_written(model, processor, tmp_path):
    folder = hier_models.export(model, processor, tmp_path / "mine")
    package = Path(hier_models.__file__).parent
    own = {path.name for path in (package / "highlight_transformer").glob("*.py")} - {"__init__.py"}
    assert own <= {path.name for path in folder.glob("*.py")}
    config = AutoConfig.from_pretrained(folder)
    assert type(config) is hier_models.HighlightTransformerConfig
    assert config.brightness == 0.9
    loaded = AutoProcessor.from_pretrained(folder)
    assert type(loaded) is hier_models.HighlightTransformerProcessor
    assert loaded.key_phrases.find(DOCUMENTS[0]) == processor.key_phrases.find(DOCUMENTS[0])
    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == "summarization"
    for line in (
        "| encoder_layers | 2 |",
        f"| highlighting | {model.config.highlighting} |",
        "| highlight_heads | 1 |",
        "| highlight_layers | 1 |",
        "| brightness | 0.9 |",
        "| use_copy | True |",
        "Key Phrase Aware Attention",
    ):
        assert line in card.text, line
    assert ("128 source tokens at most" in card.text) == (model.config.position_embedding_type == "learned")


@pytest.mark.slow
def test_the_lines_of_the_card_run(model, processor, tmp_path):
    folder = hier_models.export(model, processor, tmp_path / "mine")
    for block in ModelCard.load(folder / "README.md").text.split("```python\n")[1:]:
        assert run_python(WITHOUT_HIER_MODELS + block.split("```")[0], tmp_path, HF_HUB_OFFLINE="1").strip()
