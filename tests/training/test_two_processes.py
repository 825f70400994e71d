"""Every family has on two processes, stopped in the middle of an epoch and gone on with, the loss curve of one."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DeepSpeedPlugin
from safetensors.torch import load_file
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
)

from hier_models import HamReaderConfig, HamReaderForQuestionAnswering
from hier_models.training import RecipeError, distributed, load_recipe, run_training
from hier_models.training.smoke_rows import ROWS, train_tokenizer
from tests.cases import CASES
from tests.conftest import DOCUMENTS, SUMMARIES, TOP_DOWN_SIZES
from tests.training.test_distributed import curve, environment, run_two
from tests.training.test_reading_comprehension_task import squad_rows


SIZES = {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_layers": 1, "decoder_layers": 1}
SIZES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "dropout": 0.0}
LSTM_SIZES = {"embedding_size": 12, "hidden_size": 16, "coarse_filters": 12, "coarse_kernel_size": 3, "dropout": 0.0}
# The best rows, without drawing: what is drawn is each process's own.
HARD = {"attention": "hard", "estimator": "top_k", "gumbel_noise": 0.0, "selected_rows": 2, "num_samples": 2}
ENCODER_SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
ENCODER_SIZES |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
READER_SIZES = {"embedding_size": 6, "hidden_size": 5, "attention_depth": 2, "dropout": 0.0}
POSITIONS = {"max_position_embeddings": 128}
SMOOTHED = {"label_smoothing_factor": 0.1}
# What `hier-models train` is told of a family; what no recipe of texts tells is below.
RECIPES = {
    "hat_bart": {"model_type": "hat_bart", "config_overrides": SIZES, **POSITIONS, **SMOOTHED},
    "hat_bart_from_bart": {"model_type": "hat_bart", "learning_rate": 1e-3},  # new modules learn faster
    "highlight_transformer": {
        "model_type": "highlight_transformer",
        "config_overrides": SIZES | {"activation_dropout": 0.0},
        "key_phrases": "fit",
        **POSITIONS,
    },
    "top_down_transformer": {"model_type": "top_down_transformer", "config_overrides": TOP_DOWN_SIZES, **SMOOTHED},
    "coarse_to_fine_lstm": {"model_type": "coarse_to_fine_lstm", "config_overrides": LSTM_SIZES},
    "coarse_to_fine_lstm_hard": {"model_type": "coarse_to_fine_lstm", "config_overrides": LSTM_SIZES | HARD},
    "ham": {"model_type": "ham", "config_overrides": {"d_model": 32, "dropout": 0.0}, **SMOOTHED},
    "ham_transformer": {"model_type": "ham", "config_overrides": SIZES | {"body": "transformer"}, **POSITIONS},
    "hat_encoder": {"task": "classification", "model_type": "hat_encoder"},
    "ham_reader": {"task": "reading_comprehension", "model_type": "ham_reader", "tokenizer_words": 100},
}
RECURRENT = ("coarse_to_fine_lstm", "coarse_to_fine_lstm_hard", "ham")
TRAINING = {
    "num_train_epochs": 2,
    "per_device_train_batch_size": 1,
    "learning_rate": 1e-2,
    "logging_steps": 1,
    "save_steps": 3,
    "report_to": "none",
    "disable_tqdm": True,
}

# accelerate has FSDP and DeepSpeed on accelerators only. All else is as there, with gloo in the place of NCCL.
ON_CPU = """
from accelerate import state
from accelerate.utils import DistributedType
state.PartialState._prepare_backend = lambda *args, **kwargs: ("gloo", DistributedType.MULTI_GPU)
"""
# DeepSpeed would compile what takes the place of gloo; and with the LSTM of oneDNN, its gradients are others.
DEEPSPEED_ON_CPU = """
import sys
import torch
import deepspeed.comm.torch
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
torch.backends.mkldnn.set_flags(False)
"""
# Runs recipes: their first step, and the rest of them.
STOP_AND_GO_ON = """
import json, sys
from hier_models.training import load_recipe, run_training
from hier_models.training.run_metadata import TimeUpError

for values in json.load(open(sys.argv[1])):
    try:
        run_training(load_recipe(None, values | {"stop_after_minutes": 1e-6}))
        raise AssertionError("it was not stopped")
    except TimeUpError:
        run_training(load_recipe(None, values))
"""


GO = """
import json, sys
from hier_models.training import load_recipe, run_training

for values in json.load(open(sys.argv[1])):
    run_training(load_recipe(None, values))
"""


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> dict[str, dict]:
    """A recipe of each family for nine examples: the last step of an epoch has one."""
    folder = tmp_path_factory.mktemp("recipes")
    tokenizer.save_pretrained(folder / "tokenizer")
    rows = [{"text": DOCUMENTS[i % 4][3 * i :], "summary": SUMMARIES[i % 4][: 60 - 5 * i]} for i in range(9)]
    texts = {"tokenizer": str(folder / "tokenizer"), "train": write(folder / "texts.jsonl", rows)}
    texts |= {"max_source_length": 100, "max_target_length": 32}
    found = {name: TRAINING | texts | recipe for name, recipe in RECIPES.items()}

    sizes = {**SIZES, "vocab_size": len(tokenizer), **POSITIONS}
    BartForConditionalGeneration(BartConfig(**sizes)).save_pretrained(folder / "bart")
    tokenizer.save_pretrained(folder / "bart")
    found["hat_bart_from_bart"]["from_bart"] = str(folder / "bart")
    del found["hat_bart_from_bart"]["tokenizer"]

    backend = train_tokenizer([row for rows in ROWS.values() for row in rows], vocab_size=700).backend_tokenizer
    RobertaTokenizer(tokenizer_object=backend).save_pretrained(folder / "roberta")
    labelled = write(folder / "labelled.jsonl", ROWS["classification"][:9])
    encoder = {"config_overrides": ENCODER_SIZES | {"max_position_embeddings": 258}, "max_source_length": 256}
    found["hat_encoder"] |= {"tokenizer": str(folder / "roberta"), "train": labelled, **encoder}
    # Twelve: in question answering the last incomplete batch has another weight.
    questions = [{**row, "id": f"q{i}"} for i, row in enumerate((squad_rows() * 2)[:12])]
    found["ham_reader"] |= {
        "train": write(folder / "questions.jsonl", questions),
        "config_overrides": READER_SIZES,
        "max_source_length": 200,
    }
    del found["ham_reader"]["tokenizer"]
    return found


@pytest.fixture(scope="module")
def of_one_process(recipes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs of one process, which nothing stopped."""
    folder = tmp_path_factory.mktemp("one")
    for name, recipe in recipes.items():
        values = recipe | {"output_dir": str(folder / name), "gradient_accumulation_steps": 4, "use_cpu": True}
        run_training(load_recipe(None, values))
    return folder


@pytest.fixture(scope="module", params=["ddp", "fsdp2", "deepspeed_zero2", "deepspeed_zero3"])
def of_two_processes(request, recipes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs of two processes, which were stopped after a step."""
    folder, way = tmp_path_factory.mktemp("two"), request.param
    code, settings = STOP_AND_GO_ON, {"ACCELERATE_USE_CPU": "true"}
    if way != "ddp":
        code, settings = ON_CPU + code, {**environment(f"{way}.yaml"), "ACCELERATE_TORCH_DEVICE": "cpu"}
    if "deepspeed" in way:
        pytest.importorskip("deepspeed")
        code, settings = DEEPSPEED_ON_CPU + code, {**settings, "DS_ACCELERATOR": "cpu"}
    values = [
        {**recipe, "output_dir": str(folder / name), "gradient_accumulation_steps": 2}
        for name, recipe in recipes.items()
        if way != "deepspeed_zero3" or name not in RECURRENT
    ]
    (folder / "recipes.json").write_text(json.dumps(values))
    for process in run_two(code, str(folder / "recipes.json"), settings=settings, timeout=900):
        assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_that_go_on_have_the_loss_curve_of_one(name, of_one_process, of_two_processes):
    if not (of_two_processes / name).exists():
        pytest.skip("ZeRO-3 is refused, see below")
    expected, found = curve(of_one_process / name), curve(of_two_processes / name)
    assert expected.shape == (6, 2)
    assert (expected[1:, 0] != expected[:-1, 0]).all()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    weights, expected_weights = (
        load_file(folder / name / "model.safetensors") for folder in (of_two_processes, of_one_process)
    )
    assert weights.keys() == expected_weights.keys()
    for part, value in expected_weights.items():
        if part.endswith(("k_proj.bias", "end_score.weight", "score.bias")):
            continue  # hardly changes a softmax: its gradient is rounding, which Adam makes as large as any
        torch.testing.assert_close(weights[part], value, rtol=0, atol=1e-4, msg=part)


@pytest.mark.slow
def test_two_processes_evaluate_on_each_row_once(recipes, tmp_path: Path):
    """Five rows fill two batches of two for each of two, with three of them again."""
    labelled = [json.loads(line) for line in Path(recipes["hat_encoder"]["train"]).read_text().splitlines()]
    part = write(tmp_path / "five.jsonl", labelled[:5])
    values = recipes["hat_encoder"] | {"validation": part, "eval_strategy": "epoch", "max_steps": 3}
    values |= {"per_device_eval_batch_size": 2, "num_train_epochs": 1, "save_strategy": "no"}
    values = {name: value for name, value in values.items() if name != "save_steps"}
    one = values | {"output_dir": str(tmp_path / "one"), "gradient_accumulation_steps": 2, "use_cpu": True}
    two = values | {"output_dir": str(tmp_path / "two")}
    run_training(load_recipe(None, one))
    (tmp_path / "recipes.json").write_text(json.dumps([two]))
    for process in run_two(GO, str(tmp_path / "recipes.json")):
        assert process.returncode == 0, process.stderr
    found, expected = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("two", "one"))
    assert found["evaluation"] == expected["evaluation"]
    assert found["evaluation"]["rows"] == 5
    logs = []
    for name in ("two", "one"):
        history = json.loads((tmp_path / name / "trainer_state.json").read_text())["log_history"]
        logs.append([entry["eval_accuracy"] for entry in history if "eval_accuracy" in entry])
    assert logs[0] == logs[1] != []  # the loss is a mean of means, in which a row that comes again still counts
    assert len((tmp_path / "two" / "predictions.jsonl").read_text().splitlines()) == 5


READERS = {f"ham_reader_{reader}": reader for reader in ("bidaf", "match_lstm", "r_net")}


@pytest.mark.parametrize("name", [*CASES, *READERS])
def test_zero3_is_refused_where_processes_would_wait_for_each_other(name):
    if name in READERS:
        model: PreTrainedModel = HamReaderForQuestionAnswering(HamReaderConfig(vocab_size=60, reader=READERS[name]))
    else:
        model = CASES[name].model_class(CASES[name].make_config())
    is_recurrent = name.startswith(("coarse_to_fine_lstm", "ham")) and name not in (
        "ham_transformer",
        "ham_reader_bidaf",
    )
    with pytest.raises(RecipeError, match="use ZeRO-2 or FSDP2") if is_recurrent else nullcontext():
        distributed.check_zero3(model)


@pytest.mark.parametrize("changes", [{"predict_with_generate": True}, {"test": "rows.jsonl"}, {}])
def test_nothing_is_generated_while_weights_are_shared_out(changes):
    model = CASES["hat_bart"].model_class(CASES["hat_bart"].make_config())
    recipe = load_recipe(None, {"output_dir": "out", "train": "rows.jsonl", "use_cpu": True, **changes})
    for fsdp, deepspeed in ((True, False), (False, True), (False, False)):
        trainer = SimpleNamespace(model=model, is_fsdp_enabled=fsdp, is_deepspeed_enabled=deepspeed)
        refused = changes and (fsdp or deepspeed)
        with pytest.raises(RecipeError, match="with hier-models evaluate") if refused else nullcontext():
            distributed.check_writing(trainer, recipe)


def test_zero3_has_the_weights_of_one_process(monkeypatch):
    """Transformers would draw and load parts of them, whatever `zero3_init_flag` says."""
    for name, value in environment("deepspeed_zero3.yaml").items():
        monkeypatch.setenv(name, value)
    plugin = DeepSpeedPlugin()
    monkeypatch.setattr(plugin, "set_deepspeed_weakref", lambda: calls.append("set"))
    calls: list[str] = []
    monkeypatch.setattr(distributed, "unset_hf_deepspeed_config", lambda: calls.append("unset"))
    for flag, expected in ((True, ["load"]), (False, ["unset", "load", "set"])):
        plugin.zero3_init_flag = flag
        calls.clear()
        with distributed.whole_weights(SimpleNamespace(deepspeed_plugin=plugin)):
            calls.append("load")
        assert calls == expected
