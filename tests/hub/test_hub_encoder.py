"""Export of a family without a decoder, with a tokenizer of its own: it loads where hier_models is not installed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoTokenizer, pipeline

import hier_models
from tests.conftest import DOCUMENTS
from tests.hub.test_export import Made, hat_encoder
from tests.hub.test_hub import WITHOUT_HIER_MODELS, run_python


HEADS = ["MaskedLM", "SequenceClassification", "MultipleChoice", "QuestionAnswering", "TokenClassification"]

# Everything a checkpoint is loaded for. `source`, `trust` and `file` are set before.
USE = """
import torch
import transformers
from transformers import AutoModel, AutoProcessor, AutoTokenizer, pipeline

kwargs = {"trust_remote_code": True} if trust else {}
texts, choices = torch.load(file + ".in")
processor = AutoProcessor.from_pretrained(source, **kwargs)
tokenizer = AutoTokenizer.from_pretrained(source, **kwargs)
inputs = processor(text=texts, padding=True, truncation=True, return_tensors="pt")
pairs = processor(text=texts, text_pair=texts[::-1], padding=True, truncation=True, return_tensors="pt")
options = processor(text=texts[:2], choices=choices, padding=True, truncation=True, return_tensors="pt")
results = {
    "inputs": dict(inputs),
    "pairs": dict(pairs),
    "options": dict(options),
    "tokenized": dict(tokenizer(texts, padding=True, truncation=True, return_tensors="pt")),
    "modules": [type(part).__module__ for part in (processor, tokenizer, processor.tokenizer)],
}
with torch.no_grad():
    results["hidden"] = AutoModel.from_pretrained(source, **kwargs).eval()(**pairs).last_hidden_state
    for head in ("MaskedLM", "SequenceClassification", "MultipleChoice", "QuestionAnswering", "TokenClassification"):
        torch.manual_seed(0)  # the heads that the checkpoint has not are new
        model = getattr(transformers, f"AutoModelFor{head}").from_pretrained(source, **kwargs).eval()
        results[head] = list(model(**(options if head == "MultipleChoice" else inputs)).values())
        results["modules"].append(type(model).__module__)
fill = pipeline("fill-mask", model=source, device="cpu", **kwargs)
results["filled"] = fill(f"The library opens at nine. It {tokenizer.mask_token} at six.")
torch.save(results, file)
"""


@pytest.fixture(scope="module")
def made(tokenizer: Any) -> Made:
    torch.manual_seed(0)
    return hat_encoder(tokenizer, None, "MaskedLM")


@pytest.fixture(scope="module")
def exported(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hier_models.export(*made, tmp_path_factory.mktemp("export") / "check.point-1")


def use(folder: Path, source: Path, *, installed: bool, trust: bool) -> dict[str, Any]:
    torch.save((DOCUMENTS, [["Yes.", "No."], ["Always.", "Never. Not at all."]]), folder / "results.pt.in")
    first = "import hier_models\n" if installed else WITHOUT_HIER_MODELS
    run_python(first + "#header\n" + USE, folder, source=str(source), trust=trust, HF_HUB_OFFLINE="1")
    return torch.load(folder / "results.pt")


def assert_same(got: dict[str, Any], want: dict[str, Any]) -> None:
    for name in ("inputs", "pairs", "options", "tokenized"):
        assert got[name].keys() == want[name].keys()
        assert all(torch.equal(got[name][key], want[name][key]) for key in want[name]), name
    assert torch.equal(got["hidden"], want["hidden"])
    for head in HEADS:
        assert all(torch.equal(a, b) for a, b in zip(got[head], want[head], strict=True)), head
    assert got["filled"] == want["filled"]


@pytest.mark.slow
def test_every_head_loads_from_one_checkpoint(exported, made, tmp_path):
    model, processor = made
    folders = [tmp_path / name for name in ("without", "with", "with-trust")]
    for folder in folders:
        folder.mkdir()
    without = use(folders[0], exported, installed=False, trust=True)
    assert all(module.startswith("transformers_modules.") for module in without["modules"])
    installed = use(folders[1], exported, installed=True, trust=False)
    assert all(module.startswith("hier_models.") for module in installed["modules"])
    assert_same(without, installed)
    assert_same(use(folders[2], exported, installed=True, trust=True), installed)

    # The same as what was exported; the sentences are seen in all of it.
    inputs = processor(text=DOCUMENTS, padding=True, truncation=True, return_tensors="pt")
    assert all(torch.equal(inputs[name], without["inputs"][name]) for name in inputs)
    assert all(torch.equal(inputs[name], without["tokenized"][name]) for name in inputs)
    assert torch.equal(model(**inputs).logits, without["MaskedLM"][0])
    assert (inputs["input_ids"] == 0).sum() > len(DOCUMENTS)
    fill = pipeline("fill-mask", model=model, tokenizer=processor.tokenizer, device="cpu")
    assert without["filled"] == fill(f"The library opens at nine. It {processor.tokenizer.mask_token} at six.")


def test_the_files(exported):
    names = {path.name for path in exported.iterdir()}
    models = Path(hier_models.__file__).parent / "models"
    own = {path.name for path in models.glob("*_hat_encoder.py")}
    own |= {f"{name}.py" for name in ("marked_encoding", "marked_tokenization")}
    own |= {"bos_positions.py", "sentence_splitting.py", "text_inputs.py", "warm_start.py"}
    own |= {"config_checks.py", "input_checks.py", "model_outputs.py", "hat_encoder_layers.py"}
    own |= {"attention_products.py", "losses.py"}
    assert {name for name in names if name.endswith(".py")} == own
    for name in own:
        assert (exported / name).read_bytes() == (models / name).read_bytes()
    written = json.loads((exported / "config.json").read_text())
    heads = {f"AutoModelFor{head}": f"modeling_hat_encoder.HatEncoderFor{head}" for head in HEADS}
    assert written["auto_map"] == {
        "AutoConfig": "configuration_hat_encoder.HatEncoderConfig",
        "AutoModel": "modeling_hat_encoder.HatEncoderModel",
        "AutoProcessor": "processing_hat_encoder.HatEncoderProcessor",
        **heads,
    }
    assert "custom_pipelines" not in written
    tokenizer_config = json.loads((exported / "tokenizer_config.json").read_text())
    assert tokenizer_config["auto_map"] == {"AutoTokenizer": [None, "tokenization_hat_encoder.HatEncoderTokenizer"]}


def test_the_installed_tokenizer_is_preferred(exported):
    assert type(AutoTokenizer.from_pretrained(exported)) is hier_models.HatEncoderTokenizer


def test_card(exported):
    card = ModelCard.load(exported / "README.md")
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["hier_models", "hat_encoder"],
    }
    for line in (
        "| hierarchical_attention | True |",
        "| hierarchical_queries | bos |",
        "| hidden_size | 32 |",
        "It takes 128 tokens at most",
        "None: it does not generate.",
    ):
        assert line in card.text
    assert "Hierarchical Learning for Generation" in card.text


@pytest.mark.parametrize("head", HEADS)
def test_the_card_names_the_task_of_a_result(head, tokenizer, tmp_path):
    card = {"metrics": {"accuracy": 0.5}, "evaluated_on": "a few rows"}
    folder = hier_models.export(*hat_encoder(tokenizer, None, head), tmp_path / "mine", card=card)
    data = ModelCard.load(folder / "README.md").data
    (result,) = data.eval_results
    assert result.task_type == data.pipeline_tag
