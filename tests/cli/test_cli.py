"""The `hier-models` command, as a user runs it: what all commands have in common."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoProcessor
from typer.testing import CliRunner

from hier_models import HatBartForConditionalGeneration, HatBartProcessor, checkpoints, cli, summarize_book
from hier_models.training.arguments import ModelArguments
from hier_models.training.models import load_model_and_processor
from tests.cli.commands import expected, jsonl, mistake, run
from tests.conftest import DOCUMENTS


COMMANDS = [
    "summarize",
    "translate",
    "train",
    "evaluate",
    "inspect",
    "analyze",
    "fit-phrases",
    "poem",
    "quatrains",
    "export",
    "serve",
]


def command(*arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    name = Path(sys.executable).parent / "hier-models"
    return subprocess.run([str(name), *arguments], capture_output=True, text=True, check=False, **kwargs)


def test_help_of_everything():
    for arguments in ([], *([name] for name in COMMANDS)):
        result = run(*arguments, "--help")
        assert "Examples:" in result.stdout
        assert "hier-models" in result.stdout
        assert max(len(line) for line in result.stdout.splitlines()) <= 80
    listed = run("--help").stdout
    assert all(name in listed for name in COMMANDS)


def test_commands_that_share_an_option_say_their_own_of_it():
    sizes = {"evaluate": "Documents at a time", "poem": "Texts at a time", "serve": "Most documents at a time"}
    for name, says in sizes.items():
        assert says in " ".join(run(name, "--help").stdout.replace("│", " ").split())


def test_help_names_the_extras_whole():
    printed = " ".join(run("summarize", "--help").stdout.replace("│", " ").split())
    assert 'pip install "hier_models[files]"' in printed
    assert "Needs hier_models[ray]." in printed


def run_without(libraries: set[str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process of its own, which says on its standard error what it has loaded of `libraries`."""
    code = (
        "import sys; sys.argv = ['hier-models', *sys.argv[1:]]\n"
        "from hier_models.cli import main\n"
        "code = 0\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        f"loaded = {libraries} & set(sys.modules)\n"
        "sys.exit(f'loaded {loaded}' if loaded else code)"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert "loaded {" not in result.stderr
    return result


def test_help_does_not_load_torch():
    for arguments in (["--help"], ["--version"], ["summarize", "--help"], ["summarize", "-m", "nowhere/at/all"]):
        result = run_without({"torch", "transformers", "datasets", "numpy", "yaml"}, *arguments)
        assert result.returncode == (2 if arguments[-1] == "nowhere/at/all" else 0), result.stderr


def test_a_text_is_summarized_without_what_only_tables_and_training_need(checkpoint: str, paper: str):
    libraries = {"datasets", "pandas", "pyarrow", "evaluate", "transformers.trainer_utils"}
    result = run_without(libraries, "summarize", "-m", checkpoint, paper)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_version():
    result = run("--version")
    assert result.stdout.startswith("hier_models 0.")
    assert "torch" in result.stdout


def test_installed_command(checkpoint: str, paper: str):
    result = command("summarize", "-m", checkpoint, paper)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == expected(checkpoint, DOCUMENTS[1])[0]
    assert result.stderr == ""


def test_usage_errors():
    assert "No such command" in run("summarise", code=2).stderr
    assert "No such option" in run("summarize", "-m", "model", "--nope", code=2).stderr
    assert "--batch-size" in run("summarize", "-m", "model", "--batch-size", "0", code=2).stderr
    assert "Option '-m' requires an argument" in run("summarize", "-m", code=2).stderr
    assert "extra argument" in run("evaluate", "a.jsonl", "b.jsonl", code=2).stderr


def test_debug_shows_the_traceback(checkpoint: str):
    result = CliRunner().invoke(cli.app, ["--debug", "summarize", "-m", checkpoint, "missing.txt"])
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "Error: INPUT: there is no file or folder 'missing.txt'" in result.stderr


def test_failure_is_not_called_a_mistake(checkpoint: str, paper: str, monkeypatch: pytest.MonkeyPatch):
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr(HatBartForConditionalGeneration, "generate", broken)
    result = run("summarize", "-m", checkpoint, paper, code=1)
    assert "Error: RuntimeError: the disk is on fire" in result.stderr
    assert "--debug" in result.stderr


def test_mini_is_the_default_model(mini: str, paper: str, records: str):
    summary = expected(mini, DOCUMENTS[1])[0]
    assert run("summarize", paper).stdout.strip() == summary
    arguments = ["summarize", paper, "-o", "out.jsonl"]
    run(*arguments)
    [record] = jsonl(Path("out.jsonl").read_text())
    assert record["model"] == "mini"
    assert "holds 1 of 1 summaries" in run(*arguments, "-m", "mini").stderr
    run("summarize", "--book", paper, "-o", "book")
    assert "rougeLsum" in run("evaluate", records).stdout
    run("inspect", paper)
    run("export", "shared")
    assert run("summarize", paper, "-m", "shared").stdout.strip() == summary
    # Trained anew, it is another one.
    Path(mini, "generation_config.json").write_text('{"max_length": 5}')
    mistake(*arguments, says="was made with")


def test_a_folder_that_is_called_mini(mini: str, paper: str):
    Path("mini").mkdir()
    mistake("summarize", paper, says="'mini' is not a checkpoint")
    assert checkpoints.resolve_checkpoint("mini") == "mini"


def test_mini_by_its_name_alone(mini: str, paper: str):
    assert [checkpoints.resolve_checkpoint(name) for name in ("mini", "./mini", "a/b")] == [mini, "./mini", "a/b"]
    assert checkpoints.why_no_checkpoint("mini") is None
    model, processor = load_model_and_processor(ModelArguments(model_name_or_path="mini", max_position_embeddings=256))
    assert (type(model), type(processor)) == (HatBartForConditionalGeneration, HatBartProcessor)
    assert summarize_book(paper, "mini", progress=False).summary


def test_only_summaries_have_a_default_model(mini: str, paper: str, records: str):
    for name in ("translate", "poem", "fit-phrases"):
        mistake(name, paper, says=["--model is missing: ", f"hier-models {name} ", " -m ./my-"])
    mistake("evaluate", records, "--task", "translation", says="--task translation: mini makes summaries")
    mistake("translate", paper, "-m", "mini", says="--model: mini makes summaries; give one that translates")
    mistake("poem", paper, "-m", "mini", says="--model: mini makes summaries; give one of poems")


@pytest.mark.parametrize(
    ("old", "says"),
    [
        (
            ["summarize", "./model", "paper.txt"],
            "is a model; the model is given with -m: hier-models summarize",
        ),
        (["summarize", "./model", "--json"], "hier-models summarize --json -m ./model"),
        (["summarize", "lexrank", "paper.txt", "--max-words", "9"], "summarize paper.txt --max-words 9 -m lexrank"),
        (
            ["summarize", "some/bart-v1.5", "paper.txt"],
            "'some/bart-v1.5' is no file or folder; the model is",
        ),
        (["summarize", "./model", *"abcdefghij"], "hier-models summarize a b c d e f g h ... -m ./model"),
        (["evaluate", "./model", "test.jsonl"], "hier-models evaluate test.jsonl -m ./model"),
        (["evaluate", "lead", "test.jsonl"], "hier-models evaluate test.jsonl -m lead"),
        (["inspect", "./model", "paper.txt"], "hier-models inspect paper.txt -m ./model"),
        (["export", "./model", "./to-share"], "hier-models export ./to-share -m ./model"),
        (["export", "./model", "--push", "me/it"], "hier-models export --push me/it -m ./model"),
        (["translate", "./model", "paper.txt"], "hier-models translate paper.txt -m ./model"),
        (["poem", "./model", "paper.txt"], "hier-models poem paper.txt -m ./model"),
        (["fit-phrases", "./model", "train.jsonl"], "hier-models fit-phrases train.jsonl -m ./model"),
    ],
)
def test_who_gives_the_model_first_is_told(checkpoint: str, paper: str, old: list[str], says: str):
    mistake(*old, says=says)


def test_a_missing_document_is_not_taken_for_a_model(checkpoint: str, paper: str):
    mistake("summarize", "papers/one.txt", paper, "-m", checkpoint, says="there is no file or folder 'papers/one.txt'")
    mistake("summarize", "lead", says="there is no")


class Recorder:
    """A pipeline that writes down what it is asked, and answers with sources."""

    processor = None
    asked: dict[str, Any]

    def __call__(self, documents: Iterator[Any], **settings: Any) -> Iterator[list[dict[str, Any]]]:
        self.asked = settings
        for _ in documents:
            source = {"text": "It rained\nall day.", "start": 4, "end": 22, "weight": 0.625}
            sentence = {"text": "It rained.", "start": 1, "end": 11, "sources": [source]}
            yield [{"summary_text": " It rained.", "num_truncated_tokens": 0, "sources": [sentence]}]


@pytest.fixture
def recorder(mini: str, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr("hier_models.cli.jobs.load_pipeline", lambda *args: found)
    return found


def test_sources(recorder: Recorder, paper: str, records: str):
    lines = run("summarize", paper, "--sources").stdout.splitlines()
    assert lines == ["It rained.", "  [1] It rained.", "       62%  It rained all day."]
    assert recorder.asked["return_sources"] is True
    records_with = jsonl(run("summarize", records, "--sources", "--json").stdout)
    for record in records_with:
        [sentence] = record["sources"]
        assert record["summary"][sentence["start"] : sentence["end"]] == sentence["text"]
        assert sentence["sources"][0]["start"] == 4
    mistake("summarize", records, "--sources", says="--sources: of many documents only JSON has a place for them")
    mistake("summarize", "--book", paper, "--sources", says="--book is summarized alone; leave out --sources")


def test_length_and_cut(recorder: Recorder, paper: str):
    [record] = jsonl(run("summarize", paper, "--length", "line", "--cut", "--json").stdout)
    assert record["settings"] == {"length": "line", "truncation": True}
    assert recorder.asked["length"] == "line"
    run("summarize", paper)
    assert not {"length", "truncation", "return_sources"} & set(recorder.asked)
    assert "'tiny' is not one of" in run("summarize", paper, "--length", "tiny", code=2).stderr


def test_length_of_what_is_evaluated_or_looked_at(checkpoint: str, paper: str, records: str):
    says = "--length: this model was not trained to write summaries of given lengths"
    mistake("evaluate", records, "-m", checkpoint, "--length", "line", says=says)
    model, processor = (auto.from_pretrained(checkpoint) for auto in (AutoModelForSeq2SeqLM, AutoProcessor))
    processor.tokenizer.add_special_tokens({"extra_special_tokens": ["[line]", "[short]", "[long]"]})
    model.resize_token_embeddings(len(processor.tokenizer))
    model.save_pretrained("lengths")
    processor.save_pretrained("lengths")
    first = processor.tokenizer.convert_tokens_to_ids("[line]")
    # The checkpoint's own limit is 12.
    for given, new, most in (([], 64, 12), (["--max-length", "9"], 9, 12), (["--set", "max_length=9"], None, 9)):
        run("evaluate", records, "-m", "lengths", "--length", "line", "--json", "scores.json", *given)
        generation = json.loads(Path("scores.json").read_text())["generation"]
        assert generation["forced_bos_token_id"] == first
        assert (generation.get("max_new_tokens"), generation["max_length"]) == (new, most)
    asked = (["--length", "line"], ["--set", f"forced_bos_token_id={first}", "--max-length", "64"])
    shown = [run("inspect", paper, "-m", "lengths", *given).stdout for given in asked]
    assert shown[0] == shown[1]
    mistake("inspect", paper, "-m", checkpoint, "--length", "long", says=says)
