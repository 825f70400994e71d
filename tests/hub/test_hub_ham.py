"""Export of HAM: it loads where hier_models is not installed, and reads and writes the same there."""

from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoConfig, AutoProcessor, pipeline

import hier_models
from hier_models import HamConfig, HamForConditionalGeneration
from tests.ham.poems import poem_processor
from tests.hub.test_hub import WITHOUT_HIER_MODELS, run_python


# Everything a checkpoint is loaded for. `source`, `trust` and `file` are set before.
USE = """
import torch
from transformers import AutoModelForSeq2SeqLM, AutoProcessor

kwargs = {"trust_remote_code": True} if trust else {}
texts = torch.load(file + ".in")
model = AutoModelForSeq2SeqLM.from_pretrained(source, **kwargs).eval()
processor = AutoProcessor.from_pretrained(source, **kwargs)
inputs = processor(text=texts, padding=True, return_tensors="pt")
inputs["keyword_mask"] = (torch.arange(inputs["input_ids"].shape[1]) < 2).long() * inputs["attention_mask"]
results = {"inputs": dict(inputs), "modules": [type(part).__module__ for part in (model, model.config, processor)]}
with torch.no_grad():
    results["logits"] = model(**inputs, decoder_input_ids=inputs["input_ids"][:, :3]).logits
    results["generated"] = model.generate(**inputs, num_beams=2, max_new_tokens=6)
torch.save(results, file)
"""
# A poet, and after it the lines of its card, which print a poem and a line.
WRITE = """
from transformers import pipeline

write = pipeline("poem-generation", model=source, device="cpu", **kwargs)
results["poems"] = [write("春风明月", length=5, num_candidates=2, num_beams=2), write(keywords=["花", "雨"])]
results["modules"].append(type(write).__module__)
torch.save(results, file)
"""
TEXTS = ["春山", "夜雨人"]


def make_model(processor, body):
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "decoder_layers": 1} if body == "transformer" else {}
    config = HamConfig(vocab_size=len(processor.tokenizer), d_model=16, attention_depth=3, body=body, **sizes)
    model = HamForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


@pytest.fixture(scope="module")
def processor():
    return poem_processor("words")


@pytest.mark.parametrize("body", ["gru", "transformer"])
def test_loads_where_hier_models_is_not_installed(processor, tmp_path, body):
    model = make_model(processor, body)
    is_poet = body == "gru"
    if is_poet:
        model.config.task_specific_params = {"poem-generation": {"lengths": [5, 7]}}
    folder = hier_models.export(model, processor, tmp_path / "check.point-1")
    torch.save(TEXTS, tmp_path / "results.pt.in")
    blocks = [WITHOUT_HIER_MODELS, "#header", USE]
    if is_poet:
        card = ModelCard.load(folder / "README.md")
        assert card.data.pipeline_tag == "poem-generation"
        assert "jieba" in card.text
        blocks += [WRITE, *(block.split("```")[0] for block in card.text.split("```python\n")[1:])]
    out = run_python("\n".join(blocks), tmp_path, source=str(folder), trust=True, HF_HUB_OFFLINE="1").split()
    assert [len(line) for line in out] == ([5] * 4 + [7] if is_poet else [])
    got = torch.load(tmp_path / "results.pt")
    assert all(module.startswith("transformers_modules.") for module in got["modules"])
    inputs = processor(text=TEXTS, padding=True, return_tensors="pt")
    inputs["keyword_mask"] = got["inputs"]["keyword_mask"]
    assert all(torch.equal(got["inputs"][key], inputs[key]) for key in inputs)
    with torch.no_grad():
        logits = model(**inputs, decoder_input_ids=inputs["input_ids"][:, :3]).logits
        # Not the same to the last digit: a GRU rounds by where in memory the file puts its weights.
        torch.testing.assert_close(got["logits"], logits, rtol=0, atol=1e-5)
        assert torch.equal(got["generated"], model.generate(**inputs, num_beams=2, max_new_tokens=6))
    if is_poet:
        write = pipeline("poem-generation", model=model, processor=processor, device="cpu")
        expected = [write("春风明月", length=5, num_candidates=2, num_beams=2), write(keywords=["花", "雨"])]
        for poems, others in zip(got["poems"], expected, strict=True):
            assert poems == [{**poem, "score": pytest.approx(poem["score"], abs=1e-3)} for poem in others]


def test_what_is_written(processor, tmp_path):
    folder = hier_models.export(make_model(processor, "gru"), processor, tmp_path / "mine")
    package = Path(hier_models.__file__).parent
    own = {path.name for path in (package / "ham").glob("*.py")} - {"__init__.py"}
    assert own <= {path.name for path in folder.glob("*.py")}
    assert type(AutoConfig.from_pretrained(folder)) is hier_models.HamConfig
    assert type(AutoProcessor.from_pretrained(folder)) is hier_models.HamProcessor
    card = ModelCard.load(folder / "README.md")
    for line in ("| body | gru |", "| attention_depth | 3 |", "What Really Counts"):
        assert line in card.text, line
    for only_of_the_transformer_body in ("ffn_dim", "max_position_embeddings", "attention_keys", "tokens at most"):
        assert only_of_the_transformer_body not in card.text
