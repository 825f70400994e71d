"""The `hier-models` command, as a user runs it."""

import bz2
import codecs
import gzip
import json
import lzma
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForSeq2SeqLM, AutoProcessor, BartConfig, BartForConditionalGeneration, pipeline
from typer.testing import CliRunner

from hier_models import (
    HamReaderConfig,
    HamReaderForQuestionAnswering,
    HamReaderProcessor,
    HatBartForConditionalGeneration,
    HatBartProcessor,
    checkpoints,
    cli,
    summarize_book,
)
from hier_models.cli.documents import Documents
from hier_models.cli.jobs import alone
from hier_models.data.tokenizer_training import train_word_level
from hier_models.training.arguments import ModelArguments
from hier_models.training.models import load_model_and_processor
from tests import forks
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


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
]


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
    Path("records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "records.jsonl"


@pytest.fixture
def paper(workplace: Path) -> str:
    Path("paper.txt").write_text(DOCUMENTS[1])
    return "paper.txt"


def run(*arguments: str, stdin: str | bytes | None = None, code: int = 0) -> Any:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    if code:
        assert "Traceback" not in result.stderr
    return result


def mistake(*arguments: str, says: str | list[str], stdin: str | bytes | None = None) -> None:
    result = run(*arguments, stdin=stdin, code=2)
    assert result.stdout == ""
    text = " ".join(result.stderr.split())
    for part in [says] if isinstance(says, str) else says:
        assert part in text
    assert len(result.stderr.strip().splitlines()) <= 6, result.stderr


def jsonl(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def expected(checkpoint: str, *inputs: Any, **kwargs: Any) -> list[str]:
    summarize = pipeline("summarization", model=checkpoint, device="cpu", **kwargs)
    return [result["summary_text"].strip() for result in summarize(list(inputs))]


# The command


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


def test_help_does_not_load_torch():
    code = (
        "import sys; sys.argv = ['hier-models', *sys.argv[1:]]\n"
        "from hier_models.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        "loaded = {'torch', 'transformers', 'datasets', 'numpy', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'loaded {loaded}' if loaded else code)"
    )
    for arguments in (["--help"], ["--version"], ["summarize", "--help"], ["summarize", "-m", "nowhere/at/all"]):
        result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert result.returncode == (2 if arguments[-1] == "nowhere/at/all" else 0), result.stderr
        assert "loaded" not in result.stderr


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


# The model


@pytest.fixture
def mini(checkpoint: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tiny checkpoint in the place of the one that comes with the package."""
    folder = tmp_path_factory.mktemp("package") / "mini"
    shutil.move(checkpoint, folder)
    monkeypatch.setattr(checkpoints, "MINI", str(folder))
    return str(folder)


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
    run("evaluate", records, "-m", "lengths", "--length", "line", "--json", "scores.json")
    first = processor.tokenizer.convert_tokens_to_ids("[line]")
    assert json.loads(Path("scores.json").read_text())["generation"]["forced_bos_token_id"] == first
    asked = (["--length", "line"], ["--set", f"forced_bos_token_id={first}"])
    shown = [run("inspect", paper, "-m", "lengths", *given).stdout for given in asked]
    assert shown[0] == shown[1]
    mistake("inspect", paper, "-m", checkpoint, "--length", "long", says=says)


# summarize


def test_summarize_a_file(checkpoint: str, paper: str):
    assert run("summarize", "-m", checkpoint, paper).stdout.strip() == expected(checkpoint, DOCUMENTS[1])[0]


def test_json_lines_on_standard_input_may_begin_with_a_byte_order_mark(checkpoint: str, records: str):
    lines = Path(records).read_bytes()
    marked = run("summarize", "-m", checkpoint, "--json", stdin=codecs.BOM_UTF8 + lines).stdout
    assert marked == run("summarize", "-m", checkpoint, "--json", stdin=lines).stdout
    assert len(jsonl(marked)) > 1


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX locks")
def test_two_jobs_do_not_write_one_file(checkpoint: str, records: str):
    arguments = ["summarize", "-m", checkpoint, records, "--output", "one.jsonl"]
    with alone(Path("one.jsonl")):
        mistake(*arguments, says="another process is writing one.jsonl")
    run(*arguments)
    with alone(Path("one.jsonl")):
        mistake(*arguments, says="another process is writing one.jsonl")
    assert "nothing is left to do" in run(*arguments).stderr


def test_output_is_not_compressed(checkpoint: str, records: str):
    mistake("summarize", "-m", checkpoint, records, "--output", "a.jsonl.gz", says="give a name without .gz")


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_summarize_standard_input(checkpoint: str, arguments: list[str]):
    result = run("summarize", "-m", checkpoint, *arguments, "--json", stdin=DOCUMENTS[1])
    [record] = jsonl(result.stdout)
    assert len(record.pop("model_version")) == 16
    assert record == {
        "dtype": "auto",
        "id": "standard input",
        "summary": expected(checkpoint, DOCUMENTS[1])[0],
        "num_truncated_tokens": 0,
        "num_truncated_sentences": 0,
        "model": "model",
        "settings": {},
    }


def test_summarize_json_lines_from_standard_input(checkpoint: str, records: str):
    result = run("summarize", "-m", checkpoint, "--json", stdin=Path(records).read_text())
    assert [record["id"] for record in jsonl(result.stdout)] == ["r0", "r1", "r2", "r3"]
    assert [record["summary"] for record in jsonl(result.stdout)] == expected(checkpoint, *DOCUMENTS)


def test_summarize_a_folder_and_files(checkpoint: str, records: str, paper: str):
    Path("folder/deep").mkdir(parents=True)
    Path("folder/a.txt").write_text(DOCUMENTS[2])
    Path("folder/deep/b.txt").write_text(DOCUMENTS[3])
    Path("notes.md").write_text(DOCUMENTS[0])
    result = run("summarize", "-m", checkpoint, "folder", records, paper, "notes.md", "--json", "--batch-size", "3")
    written = jsonl(result.stdout)
    ids = ["a", "deep/b", "r0", "r1", "r2", "r3", "paper.txt", "notes.md"]
    assert [record["id"] for record in written] == ids
    texts = [*DOCUMENTS[2:], *DOCUMENTS, DOCUMENTS[1], DOCUMENTS[0]]
    assert [record["summary"] for record in written] == expected(checkpoint, *texts)


def test_text_output_has_a_line_for_each_document(checkpoint: str, records: str):
    result = run("summarize", "-m", checkpoint, records)
    assert result.stdout.splitlines() == [" ".join(text.split()) for text in expected(checkpoint, *DOCUMENTS)]
    run("summarize", "-m", checkpoint, records, "--output", "out.txt")
    assert Path("out.txt").read_text() == result.stdout


def test_structured_records(checkpoint: str):
    rows = [{"turns": TURNS}, {"turns": TURNS[:2]}]
    Path("dialogues.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written = jsonl(run("summarize", "-m", checkpoint, "dialogues.jsonl", "--json").stdout)
    assert [record["id"] for record in written] == ["dialogues.jsonl:1", "dialogues.jsonl:2"]
    assert [record["summary"] for record in written] == expected(checkpoint, *rows)


def test_turns_without_words_are_counted(checkpoint: str):
    rows = [{"turns": [*TURNS, {"role": "Bob", "content": " "}]}, {"turns": TURNS[:2]}]
    Path("dialogues.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run("summarize", "-m", checkpoint, "dialogues.jsonl", "--json")
    whole = expected(checkpoint, {"turns": TURNS}, {"turns": TURNS[:2]})
    assert [record["summary"] for record in jsonl(result.stdout)] == whole
    assert "1 turn without words was left out." in result.stderr


def test_a_dialogue_with_too_many_roles_is_named_before_anything_is_made(checkpoint: str):
    many = [{"role": str(number), "content": "Yes."} for number in range(5)]
    rows = [{"id": "a", "turns": TURNS, "summary": "x"}, {"id": "b", "turns": many, "summary": "x"}]
    Path("dialogues.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    says = ["'b' has 5 roles (0, 1, 2, 3, 4), but", "num_segments=4"]
    mistake("summarize", "-m", checkpoint, "dialogues.jsonl", says=says)
    mistake("evaluate", "-m", checkpoint, "dialogues.jsonl", says=says)
    mistake("analyze", "dialogues.jsonl", "-m", checkpoint, "-o", "report", says=says)
    mistake(
        "inspect", "-m", checkpoint, "dialogues.jsonl", "--document", "2", says="has 5 roles, more than num_segments=4"
    )


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)])
def test_damaged_archives(checkpoint: str, suffix: str, compress: Callable[[bytes], bytes]):
    content = compress(random.Random(0).randbytes(10_000).hex().encode())
    middle = len(content) // 2
    for damaged in (content[:middle], content[:middle] + b"\xff" * 100 + content[middle + 100 :], b"rain"):
        Path(f"paper.txt.{suffix}").write_bytes(damaged)
        says = f"paper.txt.{suffix} is damaged and cannot be decompressed"
        mistake("summarize", "-m", checkpoint, f"paper.txt.{suffix}", says=says)


def test_named_column_and_csv(checkpoint: str):
    Path("data.csv").write_text('nummer,inhalt\n1,"One, two. Three."\n')
    mistake("summarize", "-m", checkpoint, "data.csv", says=["'nummer', 'inhalt'", "--text-column"])
    mistake("summarize", "-m", checkpoint, "data.csv", "--text-column", "nope", says=["'nope'", "'inhalt'"])
    [record] = jsonl(run("summarize", "-m", checkpoint, "data.csv", "--text-column", "inhalt", "--json").stdout)
    assert record["summary"] == expected(checkpoint, "One, two. Three.")[0]


def test_two_records_of_one_name_stay_two(checkpoint: str):
    rows = [{"id": "same", "text": text} for text in DOCUMENTS[:2]]
    Path("twins.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("summarize", "-m", checkpoint, "twins.jsonl", "--output", "out.jsonl")
    written = jsonl(Path("out.jsonl").read_text())
    assert [record["id"] for record in written] == ["same", "same (2)"]
    assert [record["summary"] for record in written] == expected(checkpoint, *DOCUMENTS[:2])


def test_numbered_names_are_free_names():
    rows = [{"id": name, "text": "x"} for name in ("a", "a", "a (2)", "b (2)", "b", "b", "a")]
    Path("twins.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = [document["id"] for document in Documents([Path("twins.jsonl")])]
    assert names == ["a", "a (2)", "a (2) (2)", "b (2)", "b", "b (3)", "a (3)"]


def test_names_of_files_that_are_not_utf8(checkpoint: str):
    Path("folder").mkdir()
    for name, text in zip((b"ab\xe8.txt", b"ab\xe9.txt", b"ok.txt"), DOCUMENTS, strict=False):
        try:
            Path(os.fsdecode(b"folder/" + name)).write_text(text)
        except OSError:
            pytest.skip("this file system takes names in UTF-8 only")
    files = sorted(str(path) for path in Path("folder").iterdir())
    names = ["ab?", "ab? (2)", "ok"]
    file_names = ["folder/ab?.txt", "folder/ab?.txt (2)", "folder/ok.txt"]
    for number, (inputs, expected_names) in enumerate([(["folder"], names), (files, file_names)]):
        arguments = ["summarize", "-m", checkpoint, *inputs, "--output", f"{number}.jsonl"]
        run(*arguments)
        assert [record["id"] for record in jsonl(Path(f"{number}.jsonl").read_text())] == expected_names
        assert "nothing is left to do" in run(*arguments).stderr


def test_generation_settings(checkpoint: str, paper: str):
    arguments = ["--max-length", "9", "--min-length", "9", "--num-beams", "3", "--set", "length_penalty=2.0"]
    result = run("summarize", "-m", checkpoint, paper, "--json", *arguments, "--set", "no_repeat_ngram_size=1")
    settings = {
        "length_penalty": 2.0,
        "no_repeat_ngram_size": 1,
        "max_new_tokens": 9,
        "min_new_tokens": 9,
        "num_beams": 3,
    }
    [record] = jsonl(result.stdout)
    assert record["settings"] == settings
    assert record["summary"] == expected(checkpoint, DOCUMENTS[1], **settings)[0]
    assert record["summary"] != expected(checkpoint, DOCUMENTS[1])[0]


def test_cut_documents_are_reported(checkpoint: str, processor: HatBartProcessor, paper: str):
    length = len(processor(text=DOCUMENTS[1])["input_ids"])
    result = run("summarize", "-m", checkpoint, paper, "--json", "--cut", "--max-source-length", "30")
    assert jsonl(result.stdout)[0]["num_truncated_tokens"] == length - 30
    assert f"{length - 30} tokens were cut" in result.stderr
    Path("long.txt").write_text(DOCUMENTS[1] * 20)
    cut = run("summarize", "-m", checkpoint, paper, "long.txt", "--cut").stderr
    assert "1 of 2 documents were longer than the model takes: " in cut
    read = run("summarize", "-m", checkpoint, paper, "long.txt", "--max-length", "8")
    assert "1 of 2 documents were longer than the model takes, and read in" in read.stderr
    assert "tokens were cut" not in read.stderr
    assert run("summarize", "-m", checkpoint, paper).stderr == ""


def test_plain_bart(paper: str, tokenizer: Any):
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **sizes, **heads)
    BartForConditionalGeneration(config).save_pretrained("bart")
    tokenizer.save_pretrained("bart")
    [record] = jsonl(run("summarize", "-m", "bart", paper, "--json", "--max-length", "5").stdout)
    assert record["num_truncated_tokens"] == 0
    mistake("inspect", "-m", "bart", paper, says="BartForConditionalGeneration has no hierarchical attention")
    mistake("export", "-m", "bart", "out", says="BartForConditionalGeneration is not a model of hier_models")


def test_missing_weights_are_reported(checkpoint: str, paper: str):
    """A checkpoint without some of its weights runs with random ones: never without a word."""
    from safetensors.torch import load_file, save_file

    weights = load_file("model/model.safetensors")
    weights = {name: value for name, value in weights.items() if "hierarchical_attn.k_proj" not in name}
    save_file(weights, "model/model.safetensors", metadata={"format": "pt"})
    result = forks.run(forks.COMMAND, "summarize", "-m", checkpoint, paper)
    assert "hierarchical_attn.k_proj" in result.stderr


# A batch that is continued


def test_batch_is_continued(checkpoint: str, records: str, monkeypatch: pytest.MonkeyPatch):
    arguments = ["summarize", "-m", checkpoint, records, "--output", "out.jsonl"]
    run(*arguments)
    whole = Path("out.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    assert [json.loads(line)["id"] for line in lines] == ["r0", "r1", "r2", "r3"]

    # Stopped in the middle of the third line.
    Path("out.jsonl").write_text("".join(lines[:2]) + lines[2][:25])
    result = run(*arguments)
    assert "2 of 4" in result.stderr
    assert Path("out.jsonl").read_text() == whole

    # Done: nothing is loaded, nothing changes.
    monkeypatch.setattr("hier_models.cli.jobs.load_pipeline", None)
    assert "4 of 4" in run(*arguments).stderr
    assert Path("out.jsonl").read_text() == whole


@pytest.mark.parametrize("changed", ["model.safetensors", "generation_config.json"])
def test_batch_of_a_model_that_has_changed_is_not_continued(checkpoint: str, records: str, changed: str):
    """As when it was trained again into its folder."""
    arguments = ["summarize", "-m", checkpoint, records, "--output", "out.jsonl"]
    run(*arguments)
    whole = Path("out.jsonl").read_bytes()
    mistake(*arguments, "--dtype", "bfloat16", says='"dtype": "bfloat16"')
    file = Path(checkpoint, changed)
    file.write_bytes(file.read_bytes() + b" ")
    mistake(*arguments, says=['"model_version": "', "give another place"])
    assert Path("out.jsonl").read_bytes() == whole


@pytest.mark.parametrize("begun", ["", "{", '{"id": "r', '{"id": "r0", "summary": "'])
def test_batch_stopped_in_its_first_line(checkpoint: str, records: str, begun: str):
    Path("out.jsonl").write_text(begun)
    run("summarize", "-m", checkpoint, records, "--output", "out.jsonl")
    assert [record["id"] for record in jsonl(Path("out.jsonl").read_text())] == ["r0", "r1", "r2", "r3"]


def test_batch_stopped_before_the_end_of_a_line(checkpoint: str, records: str):
    arguments = ["summarize", "-m", checkpoint, records, "--output", "out.jsonl"]
    run(*arguments)
    whole = Path("out.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    Path("out.jsonl").write_text("".join(lines[:2]).removesuffix("\n"))
    assert "2 of 4" in run(*arguments).stderr
    assert Path("out.jsonl").read_text() == whole


def test_a_record_without_a_line_end_is_not_taken_for_half_a_line(checkpoint: str, records: str):
    precious = '{"id": "a", "text": "My only copy."}'
    Path("one.jsonl").write_text(precious)
    mistake("summarize", "-m", checkpoint, records, "--output", "one.jsonl", says="one.jsonl:1 is no summary")
    assert Path("one.jsonl").read_text() == precious


@pytest.mark.parametrize("command", ["summarize", "translate"])
def test_a_job_writes_over_no_data(checkpoint: str, records: str, command: str):
    before = Path(records).read_bytes()
    mistake(command, "-m", checkpoint, records, "-o", records, says=f"--output: {records} is the data")
    Path("corpus").mkdir()
    Path("corpus/test.jsonl").write_bytes(before)
    mistake(command, "-m", checkpoint, "corpus", "-o", "corpus/out.jsonl", says="lies in the folder of the data")
    mistake(command, "-m", checkpoint, records, ".", "-o", "out.txt", says="lies in the folder of the data")
    assert [path.name for path in Path("corpus").iterdir()] == ["test.jsonl"]


def test_cut_documents_of_an_earlier_run_are_counted(checkpoint: str, records: str):
    arguments = ["summarize", "-m", checkpoint, records, "--output", "out.jsonl", "--max-source-length", "10"]
    cut = next(line for line in run(*arguments).stderr.splitlines() if "longer than" in line)
    lines = Path("out.jsonl").read_text().splitlines(keepends=True)
    Path("out.jsonl").write_text("".join(lines[:3]))
    assert cut in run(*arguments).stderr
    assert cut in run(*arguments).stderr  # nothing was left to do
    assert "4 of 4 documents were" in cut


def test_a_repaired_line_is_done_and_the_others_keep_their_numbers():
    """A line that was set aside has its number, so that those behind it do not get others once it can be read."""
    lines = [json.dumps({"text": f"{text} text."}) for text in ("First", "Second", "Third")]
    job = ["summarize", "-m", "lead", "r.jsonl", "--output", "out.jsonl", "--set-aside", "aside.jsonl"]
    Path("r.jsonl").write_text("\n".join([lines[0], "{bad json", lines[2]]))
    run(*job)
    found = [(record["id"], record["summary"]) for record in jsonl(Path("out.jsonl").read_text())]
    assert found == [("r.jsonl:1", "First text."), ("r.jsonl:3", "Third text.")]
    Path("r.jsonl").write_text("\n".join(lines))
    assert "holds 2 of 3 summaries; going on" in run(*job).stderr
    found = [(record["id"], record["summary"]) for record in jsonl(Path("out.jsonl").read_text())][2:]
    assert found == [("r.jsonl:2", "Second text.")]
    assert "holds 3 of 3 summaries; nothing is left to do" in run(*job).stderr


def test_a_document_that_has_changed_is_not_taken_for_done():
    Path("a.txt").write_text("First text.")
    run("summarize", "-m", "lead", "a.txt", "--output", "out.jsonl")
    Path("a.txt").write_text("Another text.")
    says = ["--output: out.jsonl:1 is the summary of another text than 'a.txt' is now", "remove this line"]
    mistake("summarize", "-m", "lead", "a.txt", "--output", "out.jsonl", says=says)
    Path("out.jsonl").write_text("")
    run("summarize", "-m", "lead", "a.txt", "--output", "out.jsonl")
    assert jsonl(Path("out.jsonl").read_text())[0]["summary"] == "Another text."


def test_batch_of_another_job_is_not_continued(checkpoint: str, records: str, paper: str):
    run("summarize", "-m", checkpoint, records, "--output", "out.jsonl")
    before = Path("out.jsonl").read_bytes()
    mistake("summarize", "-m", checkpoint, paper, "--output", "out.jsonl", says=["out.jsonl:1", "another job"])
    mistake("summarize", "-m", checkpoint, records, "--output", "out.jsonl", "--num-beams", "2", says='"num_beams": 2')
    shutil.copytree("model", "other")
    mistake("summarize", "-m", "other", records, "--output", "out.jsonl", says='"model": "model"')
    assert Path("out.jsonl").read_bytes() == before
    Path("notes.jsonl").write_text("precious")
    mistake("summarize", "-m", checkpoint, records, "--output", "notes.jsonl", says="notes.jsonl:1 is no summary")
    assert Path("notes.jsonl").read_text() == "precious"


def test_results_are_written_one_by_one(checkpoint: str, records: str, monkeypatch: pytest.MonkeyPatch):
    """What was done before a failure is in the file, and the same command goes on."""
    generate, calls = HatBartForConditionalGeneration.generate, []

    def fails_at_third(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(len(Path("out.jsonl").read_text().splitlines()))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return generate(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(HatBartForConditionalGeneration, "generate", fails_at_third)
        result = run("summarize", "-m", checkpoint, records, "--cut", "--output", "out.jsonl", code=130)
    assert "Interrupted. What is done is in out.jsonl" in result.stderr
    assert calls == [0, 1, 2]
    assert len(Path("out.jsonl").read_text().splitlines()) == 2
    run("summarize", "-m", checkpoint, records, "--cut", "--output", "out.jsonl")
    assert [record["summary"] for record in jsonl(Path("out.jsonl").read_text())] == expected(
        checkpoint, *DOCUMENTS, truncation=True
    )


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupted_with_ctrl_c(checkpoint: str, workplace: Path):
    rows = "".join(json.dumps({"text": DOCUMENTS[i % 4]}) + "\n" for i in range(2000))
    Path("many.jsonl").write_text(rows)
    # A job in the background ignores the signal.
    code = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + forks.COMMAND
    process = forks.start(code, "summarize", "-m", checkpoint, "many.jsonl", "--output", "out.jsonl")
    deadline = time.monotonic() + 240
    while not (Path("out.jsonl").exists() and Path("out.jsonl").stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    status, errors = process.wait(60), process.stderr
    assert status == 130, errors
    assert "Traceback" not in errors
    assert "goes on from there" in errors
    assert all(json.loads(line)["summary"] is not None for line in Path("out.jsonl").read_text().splitlines())


# Mistakes


def test_mistakes_in_the_input(checkpoint: str, paper: str):
    mistake("summarize", "-m", checkpoint, "missing.txt", says="there is no file or folder 'missing.txt'")
    mistake("summarize", "-m", checkpoint, stdin=" \n", says="standard input is empty")
    mistake("summarize", "-m", checkpoint, stdin=b"\xff\xfe\x00", says="standard input is not a text file")
    mistake("summarize", "-m", checkpoint, "-", "-", stdin="x", says="can be read once only")
    Path("paper.pdf").write_bytes(b"%PDF-1.5\n\xd0\xd4\xc5\xd8")
    mistake("summarize", "-m", checkpoint, "paper.pdf", says="paper.pdf is not a text file (byte 0xd0")
    Path("empty").mkdir()
    mistake("summarize", "-m", checkpoint, "empty", says="empty holds no file")
    Path("empty.txt").write_text("")
    mistake("summarize", "-m", checkpoint, paper, "empty.txt", says="empty.txt is empty")


def test_bad_json_line(checkpoint: str, records: str):
    lines = Path(records).read_text().splitlines()
    lines[2] = '{"text": "broken'
    Path("bad.jsonl").write_text("\n".join(lines))
    mistake("summarize", "-m", checkpoint, "bad.jsonl", says=["bad.jsonl:3", "broken JSON"])
    mistake("summarize", "-m", checkpoint, stdin="\n".join(lines), says=["standard input:3", "broken JSON"])
    mistake("summarize", "-m", checkpoint, stdin=lines[2] + "\n" + lines[0], says=["standard input:1", "broken JSON"])
    mistake("evaluate", "-m", checkpoint, "bad.jsonl", says=["bad.jsonl:3", "broken JSON"])


def test_bad_lines_set_aside(checkpoint: str, records: str):
    text = Path(records).read_text().replace(DOCUMENTS[1], " ") + "{broken\n"
    Path("bad.jsonl").write_text(text)
    result = run("summarize", "-m", checkpoint, "bad.jsonl", "--json", "--set-aside", "bad.out")
    assert [record["id"] for record in jsonl(result.stdout)] == ["r0", "r2", "r3"]
    assert "2 records could not be used; they are in bad.out" in result.stderr
    assert [record["line"] for record in jsonl(Path("bad.out").read_text())] == [2, 5]
    mistake("summarize", "-m", checkpoint, "bad.jsonl", records, "--set-aside", "bad.out", says="works with one INPUT")


def test_mistakes_name_the_options_of_the_command(records: str):
    Path("other.jsonl").write_text('{"foo": "x"}\n')
    mistake("summarize", "-m", "lead", "other.jsonl", says="Pass --text-column with the one that holds it")
    Path("taken.txt").write_text("mine")
    mistake(
        "summarize", "-m", "lead", records, "--set-aside", "taken.txt", says="--set-aside: taken.txt is there already"
    )


def test_mistakes_in_the_model(paper: str, checkpoint: str):
    mistake("summarize", "-m", "./nowhere", paper, says="--model: there is no folder './nowhere'")
    mistake("summarize", "-m", paper, paper, says="'paper.txt' is a file; give a folder")
    mistake("summarize", "-m", "some/model", paper, says="--model: cannot load 'some/model'")
    Path("run/checkpoint-20").mkdir(parents=True)
    mistake("summarize", "-m", "run", paper, says="'run' is not a checkpoint (it has no config.json)")
    shutil.copy("model/config.json", "run/checkpoint-20")
    mistake("summarize", "-m", "run", paper, says="it holds checkpoints, such as run/checkpoint-20")
    mistake("summarize", "-m", "run/checkpoint-20", paper, says="--model: cannot load 'run/checkpoint-20'")
    shutil.copytree("model", "damaged")
    Path("damaged/model.safetensors").write_bytes(b"not weights")
    mistake("summarize", "-m", "damaged", paper, says="--model: cannot load 'damaged'")
    Path("run/config.json").write_text('{"model_type": "no_such_type"}')
    mistake("summarize", "-m", "run", paper, says=["--model: cannot load 'run'", "no_such_type"])


def test_mistakes_in_options(checkpoint: str, paper: str):
    mistake("summarize", "-m", checkpoint, paper, "--set", "num_beams", says="write NAME=VALUE")
    mistake("summarize", "-m", checkpoint, paper, "--set", "num_beam=2", says="did you mean num_beams?")
    several = ["--num-beams", "2", "--set", "num_return_sequences=2"]
    mistake(
        "summarize", "-m", checkpoint, paper, *several, says="--set num_return_sequences: one summary of a document"
    )
    mistake(
        "summarize",
        "-m",
        checkpoint,
        paper,
        "--max-length",
        "500",
        says=["At most 127 new", "--max-length", "got 500 "],
    )
    mistake("summarize", "-m", checkpoint, paper, "--max-source-length", "1000", says="max_source_length")
    mistake("summarize", "-m", checkpoint, paper, "--device", "toaster", says="--device: ")
    mistake("summarize", "-m", checkpoint, paper, "-o", "nowhere/out.jsonl", says="there is no folder")
    mistake("summarize", "-m", checkpoint, paper, "-o", "out.json", says=".jsonl")
    mistake("summarize", "-m", checkpoint, paper, "-o", "out.txt", "--json", says=".jsonl")
    Path("out.txt").write_text("precious")
    mistake("summarize", "-m", checkpoint, paper, "-o", "out.txt", says="out.txt is there already")
    assert Path("out.txt").read_text() == "precious"


# evaluate


def test_evaluate(checkpoint: str, records: str):
    result = run(
        "evaluate",
        "-m",
        checkpoint,
        records,
        "--predictions",
        "p.jsonl",
        "--json",
        "scores.json",
        "--max-source-length",
        "40",
    )
    table = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if line.startswith(("rouge", "doc")))
    scores = json.loads(Path("scores.json").read_text())
    assert table == {
        **{name: f"{scores[name]:.2f}" for name in ("rouge1", "rouge2", "rougeL", "rougeLsum", "rougeSU4")},
        "documents": "4",
    }
    written = jsonl(Path("p.jsonl").read_text())
    assert [row["reference"] for row in written] == SUMMARIES
    assert [row["id"] for row in written] == ["r0", "r1", "r2", "r3"]
    assert "documents were longer than the model takes" in result.stderr


def test_evaluate_scores_what_summarize_writes(checkpoint: str):
    rows = [{"document": text, "abstract": "A reference."} for text in DOCUMENTS]
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(
        "evaluate", "-m", checkpoint, "data.jsonl", "--predictions", "p.jsonl", "--num-beams", "2", "--max-length", "7"
    )
    summaries = [row["summary"].strip() for row in jsonl(Path("p.jsonl").read_text())]
    assert summaries == expected(checkpoint, *DOCUMENTS, num_beams=2, max_new_tokens=7)
    rows = [{"document": DOCUMENTS[i], "abstract": f"{summary} abc"} for i, summary in enumerate(summaries)]
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["--num-beams", "2", "--max-length", "7", "--json", "scores.json"]
    run("evaluate", "-m", checkpoint, "data.jsonl", *arguments)
    assert json.loads(Path("scores.json").read_text())["rouge1"] > 0


def test_evaluate_without_a_length_does_not_stop_at_20_tokens(checkpoint: str, records: str):
    """Like the pipeline, and unlike `generate` alone."""
    settings = json.loads(Path("model/generation_config.json").read_text())
    del settings["max_length"]
    Path("model/generation_config.json").write_text(json.dumps(settings | {"min_new_tokens": 40}))
    run("evaluate", "-m", checkpoint, records, "--json", "scores.json")
    assert json.loads(Path("scores.json").read_text())["gen_len"] >= 40


def test_evaluate_mistakes(checkpoint: str, paper: str):
    Path("plain.jsonl").write_text(json.dumps({"text": "One. Two."}) + "\n")
    mistake("evaluate", "-m", checkpoint, "plain.jsonl", says="has no reference summaries")
    mistake("evaluate", "-m", checkpoint, "plain.jsonl", "--summary-column", "nope", says=["'nope'", "'text'"])
    mistake("evaluate", "-m", checkpoint, "missing.jsonl", says="no such file or folder: missing.jsonl")
    mistake("evaluate", "-m", "nowhere/at/all", "plain.jsonl", says="--model: there is no folder")


@pytest.mark.parametrize("option", ["--predictions", "--json"])
def test_evaluate_writes_over_no_data(checkpoint: str, records: str, option: str):
    before = Path(records).read_bytes()
    mistake("evaluate", "-m", checkpoint, records, option, records, says=f"{option}: {records} is the data")
    Path("corpus").mkdir()
    Path("corpus/test.jsonl").write_bytes(before)
    mistake("evaluate", "-m", checkpoint, "corpus", option, "corpus/test.jsonl", says="lies in the folder of the data")
    # Known before the hours of summarizing, not after.
    mistake("evaluate", "-m", checkpoint, records, option, "no/where.jsonl", says=f"{option}: there is no folder")
    mistake("evaluate", "-m", checkpoint, records, option, "corpus", says=f"{option}: corpus is a folder")
    mistake(
        "evaluate", "-m", checkpoint, records, "--json", "same", "--predictions", "same", says="--json: same is also"
    )
    assert Path(records).read_bytes() == Path("corpus/test.jsonl").read_bytes() == before


# inspect


def test_inspect(checkpoint: str, paper: str):
    result = run("inspect", "-m", checkpoint, paper, "-o", "map.html", "-o", "map.png", "--num-beams", "2")
    assert result.stdout.strip() == expected(checkpoint, DOCUMENTS[1], num_beams=2)[0]
    page = Path("map.html").read_text()
    assert "<title>Hierarchical attention: paper.txt</title>" in page
    assert "The angle of the dance gives the direction." in page
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    assert "Written: map.html\nWritten: map.png" in result.stderr


def test_inspect_a_given_summary_of_a_chosen_record(checkpoint: str, records: str):
    Path("summary.txt").write_text(SUMMARIES[2] + "\n")
    result = run(
        "inspect", "-m", checkpoint, records, "--document", "3", "--summary", "summary.txt", "--title", "Open <when>?"
    )
    assert result.stdout.strip() == SUMMARIES[2]
    page = Path("attention.html").read_text()
    assert "<title>Open &lt;when&gt;?</title>" in page
    assert "It closes at six." in page


def test_inspect_mistakes(checkpoint: str, paper: str, monkeypatch: pytest.MonkeyPatch):
    mistake("inspect", "-m", "lead", paper, says="--model: lead is a method without a model")
    mistake("inspect", "-m", checkpoint, paper, "-o", "map.pdf", says="must end in .html or .png")
    mistake("inspect", "-m", checkpoint, paper, "-o", "nowhere/map.png", says="there is no folder")
    mistake("inspect", "-m", checkpoint, paper, "--document", "2", says="there is no document 2 in paper.txt")
    mistake("inspect", "-m", checkpoint, paper, "--summary", "missing.txt", says="missing.txt")
    mistake("inspect", "-m", checkpoint, paper, "--summary", paper, "--num-beams", "2", says="--summary")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    mistake("inspect", "-m", checkpoint, paper, "-o", "map.png", says='pip install "hier_models[plots]"')
    run("inspect", "-m", checkpoint, paper, "-o", "map.html")


# export


def test_export(checkpoint: str, paper: str):
    Path("card.yaml").write_text(
        yaml.safe_dump({"license": "apache-2.0", "language": "en", "limits": "Knows no Greek."})
    )
    run("export", "-m", checkpoint, "shared", "--card", "card.yaml")
    assert {"README.md", "config.json", "model.safetensors", "modeling_hat_bart.py"} <= set(os.listdir("shared"))
    assert "Knows no Greek." in Path("shared/README.md").read_text()
    assert run("summarize", "-m", "shared", paper).stdout == run("summarize", "-m", checkpoint, paper).stdout


def test_export_of_a_reader(paper: str):
    """Which is loaded by another Auto class than what summarizes."""
    texts = ["Marta keeps a bakery.", "Who keeps it?"]
    processor = HamReaderProcessor(train_word_level(texts))
    config = HamReaderConfig(
        vocab_size=len(processor.tokenizer), embedding_size=4, char_hidden_size=3, hidden_size=4, attention_depth=2
    )
    HamReaderForQuestionAnswering(config).save_pretrained("reader")
    processor.save_pretrained("reader")
    run("export", "-m", "reader", "shared")
    assert {"README.md", "model.safetensors", "modeling_ham_reader.py"} <= set(os.listdir("shared"))
    mistake("summarize", "-m", "reader", paper, says="--model: ")


def test_names_that_are_empty(checkpoint: str, paper: str):
    """As of a variable that is not set: they do not mean the folder one is in."""
    mistake("summarize", "-m", checkpoint, "", says="INPUT: an empty string names nothing")
    mistake("summarize", "-m", "", paper, says="--model: an empty string names no checkpoint")
    mistake("evaluate", "-m", checkpoint, "", says="an empty string names nothing")


def test_export_mistakes(checkpoint: str):
    mistake("export", "-m", checkpoint, says="give a FOLDER to write to, or --push REPO")
    mistake("export", "-m", checkpoint, "out", "--private", says="--private goes with --push")
    mistake("export", "-m", checkpoint, "out", "--card", "card.yaml", says="there is no file 'card.yaml'")
    mistake("export", "-m", checkpoint, checkpoint, says="is the checkpoint itself")
    Path("card.yaml").write_text("licence: mit")
    mistake("export", "-m", checkpoint, "out", "--card", "card.yaml", says=["licence", "license"])
    Path("card.yaml").write_text("- a list")
    mistake("export", "-m", checkpoint, "out", "--card", "card.yaml", says="must hold names and values")
    mistake("export", "-m", checkpoint, "--push", "not a repo/at all!", says="--push: ")
    assert not Path("out").exists()


def test_push(checkpoint: str, monkeypatch: pytest.MonkeyPatch):
    pushed: list[Any] = []

    def push_to_hub(model: Any, processor: Any, repo_id: str, *, card: Any = None, private: bool | None = None) -> str:
        pushed.append((type(model).__name__, type(processor).__name__, repo_id, card, private))
        return f"https://huggingface.co/{repo_id}"

    monkeypatch.setattr("hier_models.hub.push_to_hub", push_to_hub)
    result = run("export", "-m", checkpoint, "--push", "me/summarizer", "--private")
    assert pushed == [("HatBartForConditionalGeneration", "HatBartProcessor", "me/summarizer", None, True)]
    assert result.stdout.strip() == "https://huggingface.co/me/summarizer"


def test_evaluate_transcripts(checkpoint: str):
    row = {"talk": "Ann: Um, hello. We are eight.\nBob: Uh.\nAnn: Bye.", "summary": "Eight."}
    Path("talk.jsonl").write_text(json.dumps(row) + "\n")
    options = ["--text-column", "talk", "--source-kind", "turns", "--fillers", "english", "--max-length", "8"]
    result = run("evaluate", "-m", checkpoint, "talk.jsonl", *options)
    assert "Left out: 2 filler words, 1 turns without words." in result.stderr
    mistake(
        "evaluate",
        "-m",
        checkpoint,
        "talk.jsonl",
        "--fillers",
        "none.txt",
        says="fillers='none.txt' is neither a file",
    )
    mistake("evaluate", "-m", checkpoint, "talk.jsonl", *options[:2], "--source-kind", "turn", says="got 'turn'")


# train


@pytest.fixture
def recipe(checkpoint: str, records: str) -> str:
    content = {
        "model": {"model_name_or_path": checkpoint},
        "data": {"train": records, "validation": records, "max_source_length": 64, "max_target_length": 24},
        "training": {
            "output_dir": "trained",
            "max_steps": 2,
            "per_device_train_batch_size": 2,
            "per_device_eval_batch_size": 4,
            "learning_rate": 0.001,
            "predict_with_generate": True,
            "use_cpu": True,
            "report_to": "none",
            "disable_tqdm": True,
        },
    }
    Path("recipe.yaml").write_text(yaml.safe_dump(content))
    return "recipe.yaml"


def test_train(recipe: str, checkpoint: str):
    result = run("train", recipe, "--learning_rate", "0.002", "--max_steps=1")
    assert "rougeLsum" in result.stdout
    assert "Model, processor and results.json are in trained" in result.stdout
    results = json.loads(Path("trained/results.json").read_text())
    assert results["recipe"]["training"]["learning_rate"] == 0.002
    assert results["recipe"]["training"]["max_steps"] == 1
    before, after = (AutoModelForSeq2SeqLM.from_pretrained(name) for name in (checkpoint, "trained"))
    assert any((a != b).any() for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert type(AutoProcessor.from_pretrained("trained")).__name__ == "HatBartProcessor"
    assert run("summarize", "-m", "trained", stdin=DOCUMENTS[0]).stdout.strip()


def test_train_smoke(recipe: str, tmp_path: Path):
    shown = run("train", recipe, "--smoke", "--max_steps", "1", "--output_dir", str(tmp_path / "tried"))
    assert "rougeLsum" in shown.stdout
    assert f"results.json are in {tmp_path / 'tried'}" in shown.stdout
    assert "train: " in shown.stderr
    assert "max_source_length" not in shown.stderr  # small enough as it is
    assert (tmp_path / "tried" / "model.safetensors").is_file()


def test_train_by_flags_alone(checkpoint: str, records: str):
    training = ["--max_steps", "1", "--use_cpu", "--report_to", "none", "--disable_tqdm", "true"]
    data = ["--train", records, "--max_source_length", "64", "--max_target_length", "24"]
    run("train", "--model_name_or_path", checkpoint, *data, "--output_dir", "trained", *training)
    assert Path("trained/config.json").is_file()


def test_train_mistakes(recipe: str):
    mistake("train", says="give a recipe file, or flags")
    mistake("train", "missing.yaml", says="RECIPE: there is no file 'missing.yaml'")
    mistake("train", recipe, "--learning_rat", "1e-3", says="learning_rat")
    mistake("train", recipe, "--learning_rate", "fast", says=["learning_rate", "fast"])
    mistake("train", recipe, "--train", "missing.jsonl", says="missing.jsonl")
    mistake("train", recipe, "--model_name_or_path", "./nowhere", says="nowhere")
    Path("broken.yaml").write_text("model: [")
    mistake("train", "broken.yaml", says="broken.yaml")
    assert not Path("trained").exists()


def test_train_lists_flags():
    text = run("train", "--flags").stdout
    for name in ("--from_bart", "--max_source_length", "--num_beams", "--overwrite", "--learning_rate"):
        assert name in text


# translate


def translated(checkpoint: str, *inputs: Any, **kwargs: Any) -> list[dict[str, Any]]:
    translate = pipeline("translation", model=checkpoint, device="cpu")
    return translate(list(inputs), return_chunks=True, **kwargs)


def test_translate_a_long_file(checkpoint: str):
    text = " ".join(DOCUMENTS)
    Path("long.txt").write_text(text)
    arguments = [
        "translate",
        "-m",
        checkpoint,
        "long.txt",
        "--chunk-length",
        "40",
        "--batch-size",
        "3",
        "--num-beams",
        "2",
    ]
    result = run(*arguments)
    [record] = translated(checkpoint, text, max_source_length=40, num_beams=2)
    assert record["num_chunks"] > 4
    assert result.stdout.strip() == record["translation_text"].strip()
    assert f"{record['num_unfinished_chunks']} of {record['num_chunks']} chunks ended at the maximum" in result.stderr
    [written] = jsonl(run(*arguments, "--json").stdout)
    counts = {name: record[name] for name in record if name.startswith("num_")}
    assert len(written.pop("model_version")) == 16
    assert written == {
        "dtype": "auto",
        "id": "long.txt",
        "translation": record["translation_text"].strip(),
        **counts,
        "model": checkpoint,
        "settings": {"num_beams": 2, "max_source_length": 40},
    }


def test_translate_records_and_go_on(checkpoint: str, records: str):
    arguments = ["translate", "-m", checkpoint, records, "--output", "out.jsonl", "--max-length", "6"]
    run(*arguments)
    first = Path("out.jsonl").read_bytes()
    texts = [record["translation_text"].strip() for record in translated(checkpoint, *DOCUMENTS, max_new_tokens=6)]
    assert [record["translation"] for record in jsonl(first.decode())] == texts
    Path("out.jsonl").write_bytes(first[:-20])
    assert "holds 3 of 4 translations" in run(*arguments).stderr
    assert Path("out.jsonl").read_bytes() == first
    mistake(*arguments[:-2], says="was made with")
    run("summarize", "-m", checkpoint, records, "--output", "summaries.jsonl")
    Path("summaries.jsonl").write_text("[]\n")
    mistake(
        "translate",
        "-m",
        checkpoint,
        records,
        "--output",
        "summaries.jsonl",
        says="is no translation of an earlier run",
    )


def test_translate_says_what_it_cut_and_what_it_cannot_read(checkpoint: str, workplace: Path):
    result = run("translate", "-m", checkpoint, "--chunk-length", "20", stdin="the narrow road " * 20)
    assert "1 sentence was longer than a chunk and cut into pieces." in result.stderr
    Path("dialogue.jsonl").write_text(json.dumps({"turns": TURNS}) + "\n")
    mistake("translate", "-m", checkpoint, "dialogue.jsonl", says="exactly one of `text`, `sentences`")
    Path("names.jsonl").write_text(json.dumps({"id": "a", "dialogue": "Ann: Did you book?\nBob: Not yet."}) + "\n")
    arguments = ("translate", "-m", checkpoint, "names.jsonl", "--output", "refused.jsonl")
    mistake(
        *arguments, says="a: a document to translate must have exactly one of `text`, `sentences`, and this has turns"
    )
    assert not Path("refused.jsonl").exists()
    mistake(
        "translate", "-m", checkpoint, "--chunk-length", "2", stdin="a", says="`max_source_length` must be at least 3"
    )


def test_translate_says_that_languages_change_nothing(checkpoint: str, paper: str, caplog: pytest.LogCaptureFixture):
    run("translate", "-m", checkpoint, paper, "--src-lang", "en", "--tgt-lang", "de")
    assert "`src_lang` and `tgt_lang` change nothing" in caplog.text


def test_evaluate_a_translator(tiny_model: HatBartForConditionalGeneration, processor: HatBartProcessor):
    tiny_model.config.task_specific_params = {"translation": {"max_source_length": 60}}
    tiny_model.save_pretrained("translator")
    processor.save_pretrained("translator")
    rows = [{"id": str(n), "en": text.split(". "), "de": text.split(". ")[::-1]} for n, text in enumerate(DOCUMENTS)]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = ["--text-column", "en", "--summary-column", "de"]
    options = ["--json", "scores.json", "--predictions", "out.jsonl", "--num-beams", "2", "--max-length", "12"]
    options += ["--perplexity", "60"]
    result = run("evaluate", "-m", "translator", "pairs.jsonl", *columns, *options)
    scores = json.loads(Path("scores.json").read_text())
    assert f"d-BLEU                 {scores['bleu']:.2f}" in result.stdout
    assert f"perplexity             {scores['perplexity']:.2f}" in result.stdout
    assert f"… with another source  {scores['perplexity_of_another_source']:.2f}" in result.stdout
    assert scores["signature"] in result.stdout
    assert scores["signature"].startswith("nrefs:1|case:mixed|")
    records = translated("translator", *({"sentences": row["en"]} for row in rows), num_beams=2, max_new_tokens=12)
    assert [row["translation"] for row in jsonl(Path("out.jsonl").read_text())] == [
        record["translation_text"].strip() for record in records
    ]
    assert scores["chunks"] == sum(record["num_chunks"] for record in records) > 4
    assert f"{scores['documents']} in {scores['chunks']} chunks" in result.stdout
    mistake("evaluate", "-m", "translator", "pairs.jsonl", says="cannot tell which column holds the source")
    for option in ("--config-name", "--revision", "--phrases-column"):
        mistake(
            "evaluate",
            "-m",
            "translator",
            "pairs.jsonl",
            *columns,
            option,
            "a",
            says=f"{option}: for data to summarize",
        )
    # The same checkpoint as a summarizer.
    Path("summaries.jsonl").write_text(json.dumps({"text": DOCUMENTS[0], "summary": SUMMARIES[0]}) + "\n")
    assert "rougeLsum" in run("evaluate", "-m", "translator", "summaries.jsonl", "--task", "summarization").stdout
