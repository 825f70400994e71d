"""Export of a reader: it loads, reads and answers where hier_models is not installed, exactly as where it is."""

from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

import hier_models
from hier_models.data.tokenizer_training import train_word_level
from hier_models.models.processing_ham_reader import fit_characters
from tests.hub.test_hub import WITHOUT_HIER_MODELS, run_python


CONTEXTS = ["Marta keeps a bakery. She lights the oven at four.", "The lamp was lit by a keeper."]
QUESTIONS = ["When does she light the oven?", "Who lit the lamp?"]

USE = """
import torch
from transformers import AutoModelForQuestionAnswering, AutoProcessor, pipeline

kwargs = {"trust_remote_code": True} if trust else {}
contexts, questions = torch.load(file + ".in")
processor = AutoProcessor.from_pretrained(source, **kwargs)
model = AutoModelForQuestionAnswering.from_pretrained(source, **kwargs).eval()
inputs = processor(questions, contexts, padding=True, return_tensors="pt")
with torch.no_grad():
    output = model(**inputs)
read = pipeline("reading-comprehension", model=source, device="cpu", **kwargs)
answers = read(question=questions, context=contexts, top_k=3)
torch.save(
    {
        "inputs": dict(inputs),
        "logits": [output.start_logits, output.end_logits],
        "answers": answers,
        "modules": [type(part).__module__ for part in (processor, model, read)],
    },
    file,
)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    processor = hier_models.HamReaderProcessor(
        train_word_level([*CONTEXTS, *QUESTIONS]), characters=fit_characters([*CONTEXTS, *QUESTIONS])
    )
    torch.manual_seed(0)
    config = hier_models.HamReaderConfig(
        reader="r_net",
        vocab_size=len(processor.tokenizer),
        char_vocab_size=processor.char_vocab_size,
        embedding_size=6,
        char_hidden_size=4,
        hidden_size=5,
        attention_depth=3,
    )
    model = hier_models.HamReaderForQuestionAnswering(config).eval()
    return hier_models.export(model, processor, tmp_path_factory.mktemp("reader") / "exported")


@pytest.mark.slow
def test_it_loads_where_hier_models_is_not_installed(exported: Path, tmp_path: Path) -> None:
    results = []
    for installed in (True, False):
        folder = tmp_path / str(installed)
        folder.mkdir()
        torch.save((CONTEXTS, QUESTIONS), folder / "results.pt.in")
        start = "import hier_models\n" if installed else WITHOUT_HIER_MODELS
        run_python(f"{start}\n#header\n{USE}", folder, source=str(exported), trust=not installed, HF_HUB_OFFLINE="1")
        results.append(torch.load(folder / "results.pt"))
    here, there = results
    assert all(name.startswith("hier_models.") for name in here["modules"])
    assert all(name.startswith("transformers_modules.") for name in there["modules"])
    assert here["answers"] == there["answers"]
    for name, value in here["inputs"].items():
        assert torch.equal(value, there["inputs"][name]), name
    for mine, theirs in zip(here["logits"], there["logits"], strict=True):
        assert torch.equal(mine, theirs)


def test_the_card(exported: Path) -> None:
    card = ModelCard.load(exported / "README.md")
    assert card.data.pipeline_tag == "reading-comprehension"
    assert "HAM reader" in card.text
    assert "question=" in card.text
