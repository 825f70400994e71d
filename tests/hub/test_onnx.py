"""Export to ONNX: onnxruntime generates what the model does, and what cannot be is refused."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from hier_models import MINI
from hier_models.hub import onnx_export
from hier_models.hub.onnx_export import export_onnx
from hier_models.hub.onnx_running import DECODER, ENCODER, SETTINGS, SHARED, OnnxSummarizer
from hier_models.journal import digest
from tests.cases import COARSE_TO_FINE, HAT_BART, HIGHLIGHT, TOP_DOWN, Case
from tests.cli.commands import mistake
from tests.hub.test_export import with_large_weights


class NoProcessor:
    def save_pretrained(self, folder: Path) -> None:
        """Ids come from the case."""


def make(case: Case, **settings: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return with_large_weights(case.model_class(case.make_config(**settings)), 0.3)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`export_onnx`, which makes a model's graphs once: they take long, and depend neither on ends nor on int8."""
    pytest.importorskip("onnxscript")
    graphs, write_graph = tmp_path_factory.mktemp("graphs"), onnx_export._write

    def run(model: PreTrainedModel, folder: Path, **settings: Any) -> Path:
        config = {name: value for name, value in model.config.to_dict().items() if "eos" not in name}

        def write(*given: Any) -> None:
            *before, file, axes = given
            made = graphs / digest(config) / file.name
            if not made.exists():
                made.parent.mkdir(exist_ok=True)
                write_graph(*before, made, axes)
            shutil.copy(made, file)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(onnx_export, "_write", write)
            return export_onnx(model, NoProcessor(), folder, **settings)

    return run


# One layer of each kind, as each is exported anew; where the last one of a decoder copies, this has two kinds.
HAT_BART_SETTINGS = {"use_copy": True, "silent_markers": True, "encoder_layers": 1}
TOP_DOWN_SETTINGS = {"decoder_layers": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "settings"),
    [
        (HAT_BART, HAT_BART_SETTINGS),
        (HIGHLIGHT, {}),
        (TOP_DOWN, TOP_DOWN_SETTINGS),
        (TOP_DOWN, {**TOP_DOWN_SETTINGS, "eos_token_id": [2, 11], "forced_eos_token_id": [11, 2]}),
    ],
    ids=["hat_bart", "highlight_transformer", "top_down_transformer", "several_ends"],
)
def test_tokens_are_those_of_generate(case: Case, settings: dict[str, Any], export: Any, tmp_path: Path):
    model = make(case, **settings)
    first = model.generate(
        **{name: torch.tensor([values]) for name, values in case.make_document(9, 9).items()}, max_new_tokens=4
    )
    model.generation_config.begin_suppress_tokens = first[0, 1:3].tolist()
    run = OnnxSummarizer(export(model, tmp_path))
    ways = [
        {"max_new_tokens": 15},
        {"max_new_tokens": 12, "min_new_tokens": 6, "no_repeat_ngram_size": 3, "forced_bos_token_id": 9},
    ]
    written = set()
    for length in (9, 20, 40):
        document = {name: torch.tensor([values]) for name, values in case.make_document(length, length).items()}
        for way in ways:
            ids = model.generate(**document, num_beams=1, do_sample=False, **way)[0, 1:].tolist()
            found = run.generate(**{name: value.numpy() for name, value in document.items()}, **way)
            assert found == ids
            assert ids["forced_bos_token_id" in way] not in model.generation_config.begin_suppress_tokens
            written.add(tuple(ids))
    assert len(written) >= 4  # so documents and settings matter


@pytest.mark.slow
def test_int8_rounds_the_weights_and_nothing_else(export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_export, "LARGE", 600)  # bytes: the matrices of so small a model, and not its gate
    model = make(HAT_BART, **HAT_BART_SETTINGS)
    export(model, tmp_path / "float")
    export(model, tmp_path / "int8", int8=True)
    size = {way: sum(file.stat().st_size for file in (tmp_path / way).iterdir()) for way in ("float", "int8")}
    assert size["int8"] < size["float"]
    embeddings = model.get_input_embeddings().weight
    assert (tmp_path / "int8" / SHARED).stat().st_size >= embeddings.numel()  # which encoder, decoder and head share
    assert (tmp_path / "int8" / DECODER).stat().st_size < (tmp_path / "float" / DECODER).stat().st_size - 3 * (
        embeddings.numel()
    )
    before = embeddings.clone()
    rounded = set()
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding) and len(module.weight) > 1 and module.weight not in rounded:
            rounded.add(module.weight)
            for row in module.weight.data:  # of an output, or of a token
                step = row.abs().max() / 127
                row.copy_((row / step).round() * step if step else row)
    assert not torch.equal(before, model.get_input_embeddings().weight)
    run = OnnxSummarizer(tmp_path / "int8")
    barred = lambda ids, scores: scores.index_fill(1, torch.tensor([7]), -torch.inf)  # noqa: E731
    for length in (9, 20, 40):
        document = {name: torch.tensor([values]) for name, values in HAT_BART.make_document(length, length).items()}
        for further in ({}, {"logits_processor": [barred]}):
            ids = model.generate(**document, num_beams=1, do_sample=False, max_new_tokens=15, **further)[
                0, 1:
            ].tolist()
            numpy = {name: value.numpy() for name, value in document.items()}
            if further:
                further = {"logits_processor": barred}
                assert 7 not in ids
            assert run.generate(**numpy, max_new_tokens=15, **further) == ids
    export(model, tmp_path / "int8")
    assert not (tmp_path / "int8" / SHARED).exists()


def test_what_cannot_be_exported(tmp_path: Path):
    with pytest.raises(ValueError, match="CoarseToFineLstmForConditionalGeneration cannot be exported"):
        export_onnx(make(COARSE_TO_FINE), NoProcessor(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "value", "neutral"),
    [
        ("repetition_penalty", 1.3, 1.0),
        ("encoder_repetition_penalty", 1.3, 1.0),
        ("encoder_no_repeat_ngram_size", 3, 0),
        ("bad_words_ids", [[7]], None),
        ("suppress_tokens", [7], []),
        ("exponential_decay_length_penalty", (4, 1.2), None),
        ("guidance_scale", 1.5, 1),
        ("stop_strings", ["."], None),
        ("a_setting_of_later_releases", 2, False),
    ],
)
def test_settings_that_an_export_would_drop(
    name: str, value: Any, neutral: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = make(TOP_DOWN)
    config = model.generation_config
    for harmless, given in {"num_beams": 4, "length_penalty": 2.0, "do_sample": True, "top_p": 0.9}.items():
        setattr(config, harmless, given)
    setattr(config, name, value)
    with pytest.raises(ValueError, match=rf"generation_config sets {name}, .*Set it to None") as caught:
        export_onnx(model, NoProcessor(), tmp_path / "out")
    assert "top_p" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    setattr(config, name, neutral)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # what is asked next
    with pytest.raises(ImportError, match="onnx and onnxscript missing"):
        export_onnx(model, NoProcessor(), tmp_path / "out")


def test_the_packaged_checkpoint_can_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = AutoModelForSeq2SeqLM.from_pretrained(MINI)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="onnx and onnxscript missing"):
        export_onnx(model, NoProcessor(), tmp_path / "out")


def test_folders_that_cannot_be_run(tmp_path: Path):
    with pytest.raises(ValueError, match=r"hier-models export --onnx"):
        OnnxSummarizer(tmp_path)
    (tmp_path / SETTINGS).write_text(json.dumps({"version": 0}))
    with pytest.raises(ValueError, match="exported as version 0, this reads version 1: export it again"):
        OnnxSummarizer(tmp_path)
    (tmp_path / SETTINGS).write_text(json.dumps({"version": 1}))
    with pytest.raises(ValueError, match=r"cannot load what is in .*encoder.onnx.* Export it again"):
        OnnxSummarizer(tmp_path)
    (tmp_path / ENCODER).write_bytes(b"no ONNX at all")
    with pytest.raises(ValueError, match=r"cannot load what is in .* Export it again"):
        OnnxSummarizer(tmp_path)


def test_settings_that_an_export_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", Mock())
    (tmp_path / SETTINGS).write_text(json.dumps({"version": 1, "inputs": [], "generation": {}}))
    run = OnnxSummarizer(tmp_path)
    for settings, says in (
        ({"max_length": 5}, "`max_length` is not known here: give the inputs .*, or max_new_tokens, min_new_tokens"),
        ({"max_new_token": 5}, "`max_new_token` is not known here"),
        ({"num_beams": 2}, "`num_beams` must be 1, got 2"),
        ({"do_sample": True}, "`do_sample` must be False, got True"),
    ):
        with pytest.raises(ValueError, match=says):
            run.generate(np.ones((1, 3)), **settings)
    known = {"num_beams": 1, "do_sample": False, "attention_mask": np.ones((1, 3)), "segment_ids": None}
    run._check(known)


def test_the_command_refuses(tmp_path: Path):
    mistake("export", says="or --push REPO, --onnx FOLDER or --page FOLDER")
