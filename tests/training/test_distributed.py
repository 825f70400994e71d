"""Two processes on the CPU, started by accelerate, train and evaluate as one process does."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env
from datasets import Dataset
from safetensors.torch import load_file
from transformers import BartConfig, BartForConditionalGeneration, Seq2SeqTrainingArguments

from hier_models.training import last_complete_checkpoint, load_recipe, run_training
from hier_models.training.distributed import ProcessesInCheckpoint, loss_over_labels
from hier_models.training.trainer import HierTrainer
from tests import forks
from tests.conftest import DOCUMENTS, SUMMARIES


ROOT = Path(__file__).parent.parent.parent
CONFIGS = ROOT / "examples" / "accelerate"

# Runs a recipe in each process, and notes which files below the output folder it writes. In process 1 it can fail, or
# be killed, while a certain batch is made.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path

rank = int(os.environ["RANK"])
values, what, batch = json.loads(sys.argv[1])
folder = values["output_dir"]
written = set()

def note(path):
    if os.fsdecode(path).startswith(folder + os.sep):
        written.add(os.path.relpath(os.fsdecode(path), folder))

def note_opened(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        note(arguments[0])
    if event == "os.rename":
        note(arguments[1])

def noting(save):  # these open their files outside of Python
    def wrapped(content, path, *args, **kwargs):
        if isinstance(path, (str, os.PathLike)):
            note(path)
        return save(content, path, *args, **kwargs)
    return wrapped

sys.addaudithook(note_opened)
import safetensors.torch, torch
from hier_models.data import HierDataCollator
from hier_models.training import load_recipe, run_training

def replace(save):  # by whichever names it was imported
    noted = noting(save)
    for module in list(sys.modules.values()):
        for name in [name for name, value in vars(module).items() if value is save]:
            setattr(module, name, noted)

replace(torch.save)
replace(safetensors.torch.save_file)
collate, count = HierDataCollator.__call__, 0

def counting(self, features):
    global count
    count += 1
    if count == batch and rank == 1:
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("this document cannot be read")
    return collate(self, features)

HierDataCollator.__call__ = counting
run_training(load_recipe(None, values))
Path(folder + f"_written_{rank}.json").write_text(json.dumps(sorted(written)))
"""


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Start two processes with `accelerate launch`, which must end by themselves: a hung one is a failure."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(CONFIGS / "cpu.yaml")]
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=240
    )


# The same launcher in a fork; the processes that it starts are forks of it, where it would start Python anew.
LAUNCHER = """
import os, signal, subprocess, sys
from accelerate.commands.launch import main
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from tests import forks

MODULE = "import runpy, sys\\nrunpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"

class Forked(subprocess.Popen):
    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others):
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid, self._child_created = os.fork(), True
        if self.pid:
            return
        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # the launcher's are its own
                signal.signal(number, signal.SIG_DFL)
            os.environ.clear()
            os.environ.update(env)
            python, unbuffered, *program = args
            is_module = program[0] == "-m"
            sys.argv = program[1:] if is_module else ["-c", *program]
            forks.execute(MODULE if is_module else forks.SCRIPT)
        finally:
            os._exit(1)  # never a second launcher

SubprocessHandler._popen = lambda self, args, env: Forked(args, env=env)
main()
"""


def launch_forks(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Start two processes with the launcher of `launch`, without the seconds for its and their imports."""
    return forks.run(LAUNCHER, "--config_file", str(CONFIGS / "cpu.yaml"), *arguments, cwd=ROOT)


def run_two(
    code: str,
    *arguments: str,
    settings: Mapping[str, str] = MappingProxyType({"ACCELERATE_USE_CPU": "true"}),
    timeout: float = 240,
) -> list[subprocess.CompletedProcess[str]]:
    """Run code in two processes, as `launch` does, but neither with a launcher nor with its own imports."""
    environment = os.environ | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", **settings}
    meet = "import torch\ntorch.distributed.init_process_group('gloo', init_method={!r}, rank={}, world_size=2)\n"
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            forks.start(
                meet.format(f"file://{folder}/meeting", rank) + code,
                *arguments,
                env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                cwd=ROOT,
            )
            for rank in range(2)
        ]
        return [process.completed(timeout) for process in processes]


@pytest.fixture
def values(tmp_path: Path, tokenizer) -> dict:
    return nine_documents(tmp_path, tokenizer)


def nine_documents(tmp_path: Path, tokenizer) -> dict:
    """A recipe of nine documents: the last step of an epoch has one for two processes and their batches of two."""
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rows = [
        {"id": f"d{i}", "text": DOCUMENTS[i % 4][3 * i :], "summary": SUMMARIES[i % 4][: 60 - 5 * i]} for i in range(9)
    ]
    for name, part in (("train", rows), ("validation", rows[:5])):
        lines = "".join(json.dumps(row) + "\n" for row in part)
        (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    sizes = {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    sizes |= {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    return {
        "tokenizer": str(tmp_path / "tokenizer"),
        "max_position_embeddings": 128,
        "config_overrides": {**sizes, "dropout": 0.0},
        "train": str(tmp_path / "train.jsonl"),
        "validation": str(tmp_path / "validation.jsonl"),
        "max_source_length": 100,
        "max_target_length": 32,
        "max_length": 8,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 2,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_steps": 3,
        "predict_with_generate": True,
        "report_to": "none",
        "use_cpu": True,
    }


def plain_bart(values: dict, folder: Path) -> dict:
    """The same recipe for a checkpoint of plain BART, whose loss takes no account of other processes."""
    torch.manual_seed(0)
    sizes = json.loads(json.dumps(values["config_overrides"]))
    BartForConditionalGeneration(BartConfig(vocab_size=400, max_position_embeddings=128, **sizes)).save_pretrained(
        folder / "bart"
    )
    changed = {"model_name_or_path": str(folder / "bart"), "max_position_embeddings": None, "config_overrides": None}
    return values | changed


def curve(folder: Path) -> torch.Tensor:
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return torch.tensor([[entry["loss"], entry["grad_norm"]] for entry in history if "loss" in entry])


def recipe_file(values: dict, path: Path) -> str:
    """The values as a recipe that `hier-models train` reads."""
    sections: dict = {"model": {}, "data": {}, "generation": {}, "training": {}}
    homes = {"model": ("tokenizer", "max_position_embeddings", "config_overrides", "model_name_or_path")}
    homes["data"] = ("train", "validation", "max_source_length", "max_target_length", "streaming", "shuffle_buffer")
    homes["generation"] = ("max_length",)
    for name, value in values.items():
        home = next((section for section, names in homes.items() if name in names), "training")
        if value is not None:
            sections[home][name] = value
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return str(path)


def test_batches_are_grouped_by_source_and_target(tmp_path):
    rows = [{"input_ids": [0] * 4, "labels": [0] * (1 + place % 2)} for place in range(64)]
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path), train_sampling_strategy="group_by_length", per_device_train_batch_size=2, use_cpu=True
    )
    dataset = Dataset.from_list([*rows, rows[0]]).select(range(64))  # chosen rows, whose table has another
    trainer = HierTrainer(
        BartForConditionalGeneration(BartConfig(vocab_size=8, d_model=16, encoder_layers=1, decoder_layers=1)),
        arguments,
        lambda rows: {"labels": torch.tensor([len(row["labels"]) for row in rows])},
        train_dataset=dataset,
    )
    lengths = [set(batch["labels"].tolist()) for batch in trainer.get_train_dataloader()]
    assert len(lengths) == 32
    assert sum(len(batch) > 1 for batch in lengths) <= 4  # Transformers groups within quarters of so few rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "smoothing", "sampling"),
    [("hat_bart", 0.1, "random"), ("hat_bart", 0.0, "group_by_length"), ("bart", 0.0, "random")],
)
def test_two_processes_have_the_loss_curve_of_one(tmp_path, values, model, smoothing, sampling):
    values |= {"label_smoothing_factor": smoothing, "train_sampling_strategy": sampling}
    if model == "bart":
        values = plain_bart(values, tmp_path)
    one, two = tmp_path / "one", tmp_path / "two"
    run_training(load_recipe(None, values | {"output_dir": str(one), "gradient_accumulation_steps": 2}))
    arguments = ["train", recipe_file(values, tmp_path / "recipe.yaml"), "--use_cpu", "true", "--output_dir", str(two)]
    # One as the README says, the others without the launcher.
    done = [launch("-m", "hier_models.cli", *arguments)] if smoothing else run_two(forks.COMMAND, *arguments)
    assert all(process.returncode == 0 for process in done), done[0].stderr

    expected, found = curve(one), curve(two)
    assert expected.shape == (6, 2)
    assert expected[0, 0] < 6.5  # a mean over tokens: about the logarithm of the 400 in the vocabulary
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert (expected[1:, 0] != expected[:-1, 0]).all()
    weights, expected_weights = (load_file(folder / "model.safetensors") for folder in (two, one))
    for name, value in expected_weights.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-4, msg=name)

    # Five documents in batches of two for each of two: all come out, once, in order.
    assert (two / "predictions.jsonl").read_text() == (one / "predictions.jsonl").read_text()
    identifiers = [json.loads(line)["id"] for line in (two / "predictions.jsonl").read_text().splitlines()]
    assert identifiers == ["d0", "d1", "d2", "d3", "d4"]
    results, expected_results = (json.loads((folder / "results.json").read_text()) for folder in (two, one))
    for name in ("perplexity", "perplexity_of_another_source"):
        perplexities = [found["evaluation"].pop(name) for found in (results, expected_results)]
        assert perplexities[0] == pytest.approx(perplexities[1], rel=1e-5)  # of weights that are equal to 1e-4
    assert results["evaluation"] == expected_results["evaluation"]
    assert results["truncation"] == expected_results["truncation"]
    printed = "".join(process.stdout for process in done)
    assert printed.count("results.json are in") == 1
    assert printed.count("rougeLsum") == 1


@pytest.mark.slow
def test_a_stream_has_the_loss_curve_of_one_process_and_each_file_is_written_once(tmp_path, values):
    values |= {"streaming": True, "shuffle_buffer": 4, "max_steps": 5, "label_smoothing_factor": 0.1}
    one, two = tmp_path / "one", tmp_path / "two"
    run_training(load_recipe(None, values | {"output_dir": str(one), "gradient_accumulation_steps": 2}))
    for process in run_two(SCRIPT, json.dumps([values | {"output_dir": str(two)}, "", 0])):
        assert process.returncode == 0, process.stderr
    torch.testing.assert_close(curve(two), curve(one), rtol=0, atol=1e-5)
    assert (two / "predictions.jsonl").read_text() == (one / "predictions.jsonl").read_text()

    first, second = (json.loads(Path(f"{two}_written_{rank}.json").read_text()) for rank in (0, 1))
    assert {"results.json", "predictions.jsonl", "model.safetensors", "checkpoint-5/optimizer.pt"} <= set(first)
    assert second == ["checkpoint-3/rng_state_1.pth", "checkpoint-5/rng_state_1.pth"]


def left_to_end(values: dict, folder: Path) -> str:
    done = run_two(SCRIPT, json.dumps([values | {"output_dir": str(folder)}, "", 0]))
    assert all(process.returncode == 0 for process in done), done[0].stderr
    return done[0].stderr


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> tuple[dict, Path]:
    """A recipe, and the folder of its run that nothing stopped."""
    folder = tmp_path_factory.mktemp("left_alone")
    values = nine_documents(folder, tokenizer)
    values["config_overrides"]["dropout"] = 0.1  # so that the state of the random numbers matters
    values |= {"label_smoothing_factor": 0.1, "num_train_epochs": 3}
    left_to_end(values, folder / "run")
    return values, folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("what", ["fail", "kill"])
def test_what_stops_one_process_stops_all_and_the_run_goes_on_bit_for_bit(tmp_path, left_alone, what):
    (values, left_alone), stopped = left_alone, tmp_path / "stopped"
    (tmp_path / "script.py").write_text(SCRIPT)
    begun = time.monotonic()
    # A loader makes batches ahead; three steps lie behind it.
    arguments = json.dumps([values | {"output_dir": str(stopped)}, what, 6])
    first = launch_forks(str(tmp_path / "script.py"), arguments)
    assert first.returncode != 0
    assert time.monotonic() - begun < 120  # gloo alone would wait for half an hour
    assert ("this document cannot be read" in first.stderr) == (what == "fail")
    assert not (stopped / "results.json").exists()
    assert last_complete_checkpoint(stopped, 2) == str(stopped / "checkpoint-3")

    assert f"resuming from {stopped / 'checkpoint-3'}" in left_to_end(values, stopped)
    for folder in ("checkpoint-9", "."):
        expected, found = (load_file(run / folder / "model.safetensors") for run in (left_alone, stopped))
        assert all(torch.equal(found[name], value) for name, value in expected.items())
    start_weights = load_file(left_alone / "checkpoint-3" / "model.safetensors")
    assert not torch.equal(start_weights["model.shared.weight"], found["model.shared.weight"])


# Parts that need no second process


def test_weights_that_are_one_are_written_once_when_they_were_gathered(tmp_path):
    model = BartForConditionalGeneration(BartConfig(vocab_size=8, d_model=16, encoder_layers=1, decoder_layers=1))
    trainer = HierTrainer(model, Seq2SeqTrainingArguments(str(tmp_path / "run"), use_cpu=True))
    gathered = {name: weight.clone() for name, weight in model.state_dict().items()}
    trainer._save(str(tmp_path / "gathered"), gathered)
    trainer.save_model(str(tmp_path / "whole"))
    found, expected = (load_file(tmp_path / folder / "model.safetensors") for folder in ("gathered", "whole"))
    assert found.keys() == expected.keys() != gathered.keys()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_the_loss_over_labels():
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 4, 7), torch.randint(7, (3, 4))
    labels[1, 2:] = -100
    each = [-logits[i, j].log_softmax(0)[labels[i, j]] for i in range(3) for j in range(4) if labels[i, j] >= 0]
    total = torch.stack(each).sum()
    torch.testing.assert_close(loss_over_labels({"logits": logits}, labels), total / 10)
    torch.testing.assert_close(loss_over_labels((logits,), labels, torch.tensor(25)), total / 25)
    nothing = torch.full_like(labels, -100)
    assert loss_over_labels({"logits": logits}, nothing, torch.tensor(25)) == 0


@pytest.mark.parametrize("items", [None, 0, torch.tensor(0)])
def test_a_step_without_any_label_leaves_numbers(items):
    """Of a few short texts no token may be masked; Transformers says then that there are 0 labels in the step."""
    logits = torch.randn(3, 4, 7, requires_grad=True)
    loss = loss_over_labels({"logits": logits}, torch.full((3, 4), -100), items)
    loss.backward()
    assert loss == 0
    assert not logits.grad.any()


def test_accumulated_batches_of_plain_bart_are_averaged(tmp_path, values):
    """Transformers alone adds them up: twice the loss for two batches, and gradients that clipping cuts."""
    values = plain_bart(values, tmp_path) | {"max_steps": 1, "save_strategy": "no", "predict_with_generate": False}
    for name, batch, accumulation in (("small", 1, 8), ("large", 8, 1)):
        changed = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
        run_training(load_recipe(None, values | changed | {"output_dir": str(tmp_path / name)}))
    torch.testing.assert_close(curve(tmp_path / "small"), curve(tmp_path / "large"), rtol=1e-5, atol=1e-5)


def checkpoint(folder: Path, processes: int, files: int) -> None:
    folder.mkdir(parents=True)
    state = {"stateful_callbacks": {"ProcessesInCheckpoint": ProcessesInCheckpoint(processes).state()}}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    for number in range(files):
        torch.save({"cpu": torch.get_rng_state()}, folder / f"rng_state_{number}.pth")


def test_a_checkpoint_is_whole_when_every_process_wrote_its_part(tmp_path, caplog):
    for step, files in ((1, 2), (2, 2), (3, 1)):
        checkpoint(tmp_path / f"checkpoint-{step}", 2, files)
    assert last_complete_checkpoint(tmp_path, 2) == str(tmp_path / "checkpoint-2")
    assert "checkpoint-3 was not written to its end" in caplog.text
    assert "go on" not in caplog.text
    part = tmp_path / "checkpoint-2" / "rng_state_1.pth"
    part.write_bytes(part.read_bytes()[:-30])  # killed while it wrote
    assert last_complete_checkpoint(tmp_path, 2) == str(tmp_path / "checkpoint-1")


def test_a_checkpoint_of_another_number_of_processes_is_used_with_a_warning(tmp_path, caplog):
    checkpoint(tmp_path / "checkpoint-1", 2, 2)
    assert last_complete_checkpoint(tmp_path, 1) == str(tmp_path / "checkpoint-1")
    assert "was made by 2 process(es) and 1 go on" in caplog.text


@pytest.mark.slow
def test_bad_lines_are_set_aside_once(tmp_path, values):
    with open(values["train"], "a", encoding="utf-8") as stream:
        stream.write('{"id": "bad"\n{"id": "empty", "text": "", "summary": "x"}\n')
    out = tmp_path / "out"
    values |= {"bad_lines": "set_aside", "output_dir": str(out), "max_steps": 1, "predict_with_generate": False}
    for process in run_two(SCRIPT, json.dumps([values, "", 0])):
        assert process.returncode == 0, process.stderr
    lines = [json.loads(line) for line in (out / "set_aside_train.jsonl").read_text().splitlines()]
    assert [line["line"] for line in lines] == [10, 11]
    assert sorted(path.name for path in out.glob("set_aside*")) == [
        "set_aside_train.jsonl",
        "set_aside_validation.jsonl",
    ]
    assert json.loads((out / "results.json").read_text())["set_aside"]["train"]["set_aside"] == 2


# The configurations


def environment(name: str) -> dict[str, str]:
    """What `accelerate launch` with a configuration would hand on to its processes; starts none."""
    parser = launch_command_parser()
    args = parser.parse_args(["--config_file", str(CONFIGS / name), "-m", "hier_models.cli", "train", "recipe.yaml"])
    args, defaults, _ = _validate_launch_command(args)
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
        return prepare_deepspeed_cmd_env(args)[1]
    return prepare_multi_gpu_env(args)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_configuration_loads_and_says_how_it_is_used(path):
    text = path.read_text(encoding="utf-8")
    config = load_config_from_file(str(path))  # refuses unknown names
    assert config.num_processes == yaml.safe_load(text)["num_processes"] == 2
    commands = [line for line in text.splitlines() if "accelerate launch" in line]
    assert len(commands) == 1
    assert f"--config_file examples/accelerate/{path.name} -m hier_models.cli train RECIPE" in commands[0]
    assert ("NOT RUN" in text) == (path.name != "cpu.yaml")


def test_fsdp_wraps_the_layers_of_the_model(tiny_model, monkeypatch):
    for name, value in environment("fsdp2.yaml").items():
        monkeypatch.setenv(name, value)
    assert os.environ["ACCELERATE_USE_FSDP"] == "true"
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert not plugin.cpu_ram_efficient_loading
    plugin.set_auto_wrap_policy(tiny_model)
    wrapped = plugin.auto_wrap_policy.keywords["transformer_layer_cls"]
    layers = {type(tiny_model.model.encoder.layers[0]), type(tiny_model.model.decoder.layers[0])}
    assert set(wrapped) == layers


@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_leaves_to_the_recipe_what_is_the_recipes(stage, monkeypatch):
    for name, value in environment(f"deepspeed_zero{stage}.yaml").items():
        monkeypatch.setenv(name, value)
    plugin = DeepSpeedPlugin()
    config = plugin.deepspeed_config
    assert config["zero_optimization"]["stage"] == stage
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "none"
    automatic = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert [config[name] for name in automatic] == ["auto"] * 3
    assert plugin.gradient_clipping == "auto"
    assert config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is (stage == 3)
