"""A folder for every command, and what there may be in it."""

import shutil
from pathlib import Path

import pytest
import torch

from hier_models import (
    HamConfig,
    HamForConditionalGeneration,
    HatBartForConditionalGeneration,
    HatBartProcessor,
    checkpoints,
)
from tests.cli.commands import write_jsonl
from tests.conftest import DOCUMENTS, SUMMARIES
from tests.ham.poems import poem_processor


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def checkpoint(tiny_model: HatBartForConditionalGeneration, processor: HatBartProcessor, workplace: Path) -> str:
    tiny_model.generation_config.max_length = 12
    tiny_model.save_pretrained("model")
    processor.save_pretrained("model")
    return "model"


@pytest.fixture
def records(workplace: Path) -> str:
    rows = [{"id": f"r{i}", "text": text, "summary": SUMMARIES[i]} for i, text in enumerate(DOCUMENTS)]
    return write_jsonl("records.jsonl", rows)


@pytest.fixture
def paper(workplace: Path) -> str:
    Path("paper.txt").write_text(DOCUMENTS[1])
    return "paper.txt"


@pytest.fixture
def mini(checkpoint: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tiny checkpoint in the place of the one that comes with the package."""
    folder = tmp_path_factory.mktemp("package") / "mini"
    shutil.move(checkpoint, folder)
    monkeypatch.setattr(checkpoints, "MINI", str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def poet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("poet")
    processor = poem_processor()
    torch.manual_seed(0)
    config = HamConfig(vocab_size=len(processor.tokenizer), d_model=8, attention_depth=2)
    config.task_specific_params = {"poem-generation": {"lengths": [5, 7]}}
    HamForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)
