"""The records of the families: every name in them is there, and whoever adds a family adds a record and its files."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import hier_models
from hier_models.families import FAMILIES
from hier_models.pipelines import PIPELINES
from tests import forks


PACKAGE = Path(hier_models.__file__).parent


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.model_type)
def test_names_of_a_record_are_there(family):
    for name, module in family.classes.items():
        assert getattr(import_module(module), name) is getattr(hier_models, name)
    config = getattr(hier_models, family.config)()
    assert config.model_type == family.model_type
    settings = {*family.plain, *family.hierarchy, *family.of_training, *family.choices, *family.tiny, *family.kept}
    settings |= {*family.tiny_parts, *family.tiny_parts.values(), *family.unused}
    settings |= {name for values in family.unused.values() for names in values.values() for name in names}
    settings |= {family.source_positions} - {None}
    assert settings <= {*config.to_dict()}
    assert {*family.pipelines} <= {*PIPELINES}
    assert {*family.tasks} <= {*family.models}


def test_the_classes_of_all_families_are_public():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: f"hier_models.{node.module}" for node in imports for alias in node.names}
    classes = {name: home for family in FAMILIES.values() for name, home in family.classes.items()}
    assert classes == {name: seen.get(name) for name in classes}


@pytest.mark.parametrize("package", ["hier_models", "hier_models.data", "hier_models.inspection"])
def test_names_of_a_stub_are_where_it_says(package):
    module = import_module(package)
    tree = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: f"{package}.{node.module}" for node in imports for alias in node.names}
    assert sorted(seen) == module.__all__
    for name, home in seen.items():
        assert getattr(import_module(home), name) is getattr(module, name)


FILES = {
    "configuration_tiny": """
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_hat_bart import HatBartConfig

@strict
class TinyConfig(HatBartConfig):
    '''The fields of BART, and one more.'''

    model_type = "tiny"
    flavour: Literal["sweet", "sour"] = "sweet"
""",
    "modeling_tiny": """
from transformers import BartForConditionalGeneration, BartModel

from .configuration_tiny import TinyConfig

class TinyModel(BartModel):
    '''Its body.'''

    config_class = TinyConfig

class TinyForConditionalGeneration(BartForConditionalGeneration):
    '''It writes.'''

    config_class = TinyConfig
""",
    "processing_tiny": """
from .processing_highlight_transformer import HighlightTransformerProcessor

class TinyProcessor(HighlightTransformerProcessor):
    '''Its processor.'''
""",
}
# What a user does with a family, from a recipe to a checkpoint that others load.
ADDED = """
import json, sys
from pathlib import Path

folder = Path(sys.argv[1])
import hier_models
from hier_models import families, registration
from hier_models.models import __path__ as path

record = families.Family(
    model_type="tiny",
    prefix="Tiny",
    models={"AutoModel": "TinyModel", "AutoModelForSeq2SeqLM": "TinyForConditionalGeneration"},
    title="Tiny",
    summary="A BART with a flavour.",
    paper="None.",
    made_for="tests",
    pipelines=("summarization",),
    hierarchy=("flavour",),
    plain={"flavour": "sour"},
    choices=("flavour",),
)
path.append(str(folder))
families.FAMILIES["tiny"] = record
registration.register()

from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoProcessor
from hier_models.models import configuration_tiny, modeling_tiny, processing_tiny
from hier_models.training import load_recipe, run_smoke

recipe = {
    "model_type": "tiny", "plain": True, "tokenizer": "./tokenizer", "output_dir": str(folder / "run"),
    "train": "a.jsonl", "validation": "a.jsonl",
}
run_smoke(None, recipe)
config = AutoConfig.from_pretrained(folder / "run")
assert (type(config), config.flavour) == (configuration_tiny.TinyConfig, "sour")
model = AutoModelForSeq2SeqLM.from_pretrained(folder / "run")
processor = AutoProcessor.from_pretrained(folder / "run")
wanted = (modeling_tiny.TinyForConditionalGeneration, processing_tiny.TinyProcessor)
assert (type(model), type(processor)) == wanted
hier_models.export(model, processor, folder / "shared")
files = {file.name for file in (folder / "shared").glob("*_tiny.py")}
assert files == {"configuration_tiny.py", "modeling_tiny.py", "processing_tiny.py"}, files
card = (folder / "shared/README.md").read_text()
assert "A BART with a flavour." in card and "| flavour | sour |" in card
"""


def test_family_is_one_record_and_its_files(tmp_path):
    source = PACKAGE / "models"
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text.lstrip(), encoding="utf-8")
    for file in source.glob("*.py"):  # what it imports from its own folder
        if file.name != "__init__.py":
            (tmp_path / file.name).symlink_to(file)
    result = forks.run(ADDED, str(tmp_path), libraries="torch")  # none of it is imported before
    assert result.returncode == 0, result.stderr
