"""Export of a family without a decoder, with a tokenizer of its own: it loads where hier_models is not installed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from tokenizers import AddedToken, ByteLevelBPETokenizer
from transformers import AutoConfig, AutoProcessor, AutoTokenizer, RobertaTokenizer, pipeline

import hier_models
from tests.conftest import DOCUMENTS
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
def processor() -> "hier_models.HatEncoderProcessor":
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = ByteLevelBPETokenizer()
    backend.train_from_iterator(DOCUMENTS, vocab_size=400, special_tokens=special, show_progress=False)
    mask = AddedToken("<mask>", lstrip=True, special=True, normalized=False)
    tokenizer = RobertaTokenizer(tokenizer_object=backend._tokenizer, mask_token=mask, model_max_length=128)
    return hier_models.HatEncoderProcessor(tokenizer)


@pytest.fixture(scope="module")
def config(processor: Any) -> "hier_models.HatEncoderConfig":
    return hier_models.HatEncoderConfig(
        vocab_size=len(processor.tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=130,
        hierarchical_queries="bos",
    )


def make(head: str, config: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(hier_models, f"HatEncoderFor{head}")(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.fixture(scope="module")
def exported(config: Any, processor: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "check.point-1"
    return hier_models.export(make("MaskedLM", config), processor, folder)


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
def test_loads_where_hier_models_is_not_installed(exported, config, processor, tmp_path):
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
    model = make("MaskedLM", config)
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
    own |= {f"{name}.py" for name in ("marked_encoding", "marked_rows", "marked_tokenization")}
    own |= {"bos_positions.py", "sentence_splitting.py", "text_inputs.py", "warm_start.py", "classification_loss.py"}
    own |= {"config_checks.py", "input_checks.py", "model_outputs.py", "sentence_level.py"}
    own |= {"hat_encoder_inputs.py", "hat_encoder_layers.py"}
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


def test_installed_code_is_preferred(exported):
    assert type(AutoConfig.from_pretrained(exported)) is hier_models.HatEncoderConfig
    assert type(AutoTokenizer.from_pretrained(exported)) is hier_models.HatEncoderTokenizer
    assert type(AutoProcessor.from_pretrained(exported)) is hier_models.HatEncoderProcessor


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


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_the_lines_of_the_card_run(head, config, processor, tmp_path):
    folder = hier_models.export(make(head, config), processor, tmp_path / "mine")
    card = ModelCard.load(folder / "README.md")
    blocks = card.text.split("```python\n")[1:]
    assert len(blocks) == (1 if head in ("MultipleChoice", "QuestionAnswering") else 2)
    assert all(f"AutoModelFor{head}" in block or "pipeline(" in block for block in blocks)
    for block in blocks:
        assert run_python(WITHOUT_HIER_MODELS + block.split("```")[0], tmp_path, HF_HUB_OFFLINE="1").strip()
    results = hier_models.export(
        make(head, config),
        processor,
        folder,
        card={"metrics": {"accuracy": 0.5}, "evaluated_on": "a few rows"},
    )
    (result,) = ModelCard.load(results / "README.md").data.eval_results
    assert result.task_type == card.data.pipeline_tag
