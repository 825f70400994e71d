"""Export of the Coarse-to-Fine LSTM: it loads where hier_models is not installed, and reads rows on demand there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoConfig, AutoProcessor, pipeline

import hier_models
from tests.conftest import DOCUMENTS
from tests.hub.test_hub import WITHOUT_HIER_MODELS, run_python


# Everything a checkpoint is loaded for. `source`, `trust` and `file` are set before.
USE = """
import torch
from transformers import AutoModelForSeq2SeqLM, AutoProcessor, pipeline

kwargs = {"trust_remote_code": True} if trust else {}
texts = torch.load(file + ".in")
model = AutoModelForSeq2SeqLM.from_pretrained(source, **kwargs).eval()
processor = AutoProcessor.from_pretrained(source, **kwargs)
inputs = processor(text=texts, padding=True, truncation=True, return_tensors="pt")
results = {"inputs": dict(inputs), "modules": [type(part).__module__ for part in (model, model.config, processor)]}
results["loss"] = model.train()(**inputs, labels=inputs["input_ids"][:, :5]).loss.isfinite()
model.eval()
with torch.no_grad():
    results["logits"] = model(**inputs, decoder_input_ids=inputs["input_ids"][:, :5]).logits
    found = model.generate(**inputs, num_beams=2, max_new_tokens=8, return_dict_in_generate=True)
    results["generated"], results["rows"] = found.sequences, found.get("encoded_rows")
    results["texts"] = pipeline("summarization", model=source, device="cpu", **kwargs)(texts, max_length=10)
torch.save(results, file)
"""


@pytest.mark.parametrize("attention", ["standard", "hard"])
def test_loads_where_hier_models_is_not_installed(coarse_model, coarse_processor, tmp_path, attention):
    model = coarse_model(attention)
    folder = hier_models.export(model, coarse_processor, tmp_path / "check.point-1")
    torch.save(DOCUMENTS, tmp_path / "results.pt.in")
    run_python(WITHOUT_HIER_MODELS + "#header\n" + USE, tmp_path, source=str(folder), trust=True, HF_HUB_OFFLINE="1")
    got = torch.load(tmp_path / "results.pt")
    assert all(module.startswith("transformers_modules.") for module in got["modules"])
    assert got["loss"]

    inputs = coarse_processor(text=DOCUMENTS, padding=True, truncation=True, return_tensors="pt")
    assert got["inputs"].keys() == inputs.keys()
    assert all(torch.equal(got["inputs"][key], inputs[key]) for key in inputs)
    with torch.no_grad():
        logits = model(**inputs, decoder_input_ids=inputs["input_ids"][:, :5]).logits
        # Not the same to the last digit: an LSTM rounds by where in memory the file puts its weights.
        torch.testing.assert_close(got["logits"], logits, rtol=0, atol=1e-5)
        found = model.generate(**inputs, num_beams=2, max_new_tokens=8, return_dict_in_generate=True)
    assert torch.equal(got["generated"], found.sequences)
    if attention == "hard":
        assert torch.equal(got["rows"], found.encoded_rows)
    summarize = pipeline("summarization", model=model, processor=coarse_processor, device="cpu")
    assert got["texts"] == summarize(DOCUMENTS, max_length=10)


def test_what_is_written(coarse_model, coarse_processor, tmp_path):
    folder = hier_models.export(coarse_model("hard", num_samples=2), coarse_processor, tmp_path / "mine")
    package = Path(hier_models.__file__).parent
    own = {path.name for path in (package / "coarse_to_fine_lstm").glob("*.py")} - {"__init__.py"}
    assert own <= {path.name for path in folder.glob("*.py")}
    assert type(AutoConfig.from_pretrained(folder)) is hier_models.CoarseToFineLstmConfig
    assert type(AutoProcessor.from_pretrained(folder)) is hier_models.CoarseToFineLstmProcessor
    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == "summarization"
    for line in (
        "| hidden_size | 16 |",
        "| attention | hard |",
        "| coarse_representation | convolution |",
        "| num_samples | 2 |",
        "Coarse-to-Fine Attention Models",
    ):
        assert line in card.text, line
    assert "d_model" not in card.text
    assert "source tokens at most" not in card.text


@pytest.mark.slow
def test_the_lines_of_the_card_run(coarse_model: Any, coarse_processor: Any, tmp_path: Path) -> None:
    folder = hier_models.export(coarse_model("hard"), coarse_processor, tmp_path / "mine")
    for block in ModelCard.load(folder / "README.md").text.split("```python\n")[1:]:
        assert run_python(WITHOUT_HIER_MODELS + block.split("```")[0], tmp_path, HF_HUB_OFFLINE="1").strip()
