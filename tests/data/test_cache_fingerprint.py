"""Another version of the package is not given what an earlier one left in datasets' cache."""

import json
from pathlib import Path

import pytest
from datasets import Dataset

from hier_models import HatBartProcessor
from hier_models.data import cache_fingerprint as versioned_module
from hier_models.data import chunk_parallel, load_documents, tokenize_documents
from hier_models.data import loading as loading_module
from hier_models.data.tokenizing import _Tokenization


def later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (versioned_module, loading_module):
        monkeypatch.setattr(module, "source_version", lambda: "later")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    documents, pairs = tmp_path / "documents.jsonl", tmp_path / "pairs.jsonl"
    documents.write_text(json.dumps({"text": "One bridge. Two bees.", "summary": "Three."}) + "\n")
    pairs.write_text(json.dumps({"source": ["One bridge."], "target": ["Eine Brücke."]}) + "\n")
    return documents, pairs


def made(documents: Path, pairs: Path, processor: HatBartProcessor) -> list[Dataset]:
    loaded, aligned = load_documents(documents), Dataset.from_json(str(pairs))
    return [loaded, tokenize_documents(loaded, processor), chunk_parallel(aligned, processor)]


def test_the_cache_is_of_one_version(
    files: tuple[Path, Path], processor: HatBartProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = []
    for _ in range(2):
        # Of which the tokenizer keeps a trace, which older versions of datasets see.
        processor.tokenizer(["One bridge."] * 2, truncation=True, max_length=3, padding=True)
        caches.append([made_by.cache_files[0]["filename"] for made_by in made(*files, processor)])
    processor.tokenizer(["One bridge."])
    caches.append([made_by.cache_files[0]["filename"] for made_by in made(*files, processor)])
    assert caches[0] == caches[1] == caches[2]
    later_version(monkeypatch)
    later = [made_by.cache_files[0]["filename"] for made_by in made(*files, processor)]
    assert not set(later) & set(caches[0])


def test_what_a_later_version_makes(
    files: tuple[Path, Path], processor: HatBartProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_documents(files[0])
    before = tokenize_documents(loaded, processor)[0]["input_ids"]
    earlier = _Tokenization.__call__
    monkeypatch.setattr(
        _Tokenization, "__call__", lambda self, batch: {**earlier(self, batch), "input_ids": [[0, 7, 2]]}
    )
    assert tokenize_documents(loaded, processor)[0]["input_ids"] == before  # taken from the cache
    later_version(monkeypatch)
    assert tokenize_documents(loaded, processor)[0]["input_ids"] == [0, 7, 2]
