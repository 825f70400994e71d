"""`hier-models summarize`: inputs, outputs, a job that is continued, mistakes."""

import bz2
import codecs
import gzip
import json
import lzma
import os
import pickle
import random
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, pipeline

import hier_models
from hier_models import HatBartForConditionalGeneration, HatBartProcessor, cores
from hier_models.cli import loading
from hier_models.cli.documents import Documents
from hier_models.cli.jobs import alone, writes_lines
from hier_models.cli.options import Length
from hier_models.data import load_documents
from hier_models.models import attention_products
from hier_models.pipelines import SummarizationPipeline, batching_hier, int8_hier
from hier_models.pipelines.sources_hier import format_sources
from tests import forks
from tests.cli.commands import expected, full_disk, jsonl, mistake, run, write_jsonl
from tests.conftest import DOCUMENTS, TURNS
from tests.data.pdf_files import At, column, write_pdf


def test_summarize_a_file(checkpoint: str, paper: str):
    assert run("summarize", "-m", checkpoint, paper).stdout.strip() == expected(checkpoint, DOCUMENTS[1])[0]


def test_int8(checkpoint: str, paper: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(int8_hier, "why_no_int8", lambda: None)
    own = run("summarize", "-m", checkpoint, paper, "--dtype", "int8").stdout.strip()
    assert own == expected(checkpoint, DOCUMENTS[1], dtype="int8")[0]


def test_int8_where_it_is_no_gain(
    checkpoint: str, paper: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(int8_hier, "why_no_int8", lambda: "numbers are Roman")
    found = run("summarize", "-m", checkpoint, paper, "--dtype", "int8")
    assert found.stdout.strip() == expected(checkpoint, DOCUMENTS[1])[0]
    assert "changes nothing here, where numbers are Roman: float32 is used" in caplog.text


@pytest.mark.parametrize("has", [False, True])
def test_bfloat16_where_it_is_slow(checkpoint: str, paper: str, monkeypatch: pytest.MonkeyPatch, has: bool):
    monkeypatch.setattr(attention_products, "multiplies_bfloat16", lambda: has)
    found = run("summarize", "-m", checkpoint, paper, "--dtype", "bfloat16")
    assert found.stdout.strip() == expected(checkpoint, DOCUMENTS[1], dtype="bfloat16")[0]
    said = "--dtype bfloat16: this processor has no instructions for it; --dtype int8 is faster"
    assert (said in found.stderr) is not has
    assert said not in run("summarize", "-m", checkpoint, paper).stderr


def test_empty_summaries_are_counted(checkpoint: str, records: str, monkeypatch: pytest.MonkeyPatch):
    """As of a text in a script that the model cannot write."""
    assert "Empty summaries" not in run("summarize", "-m", checkpoint, records).stderr
    postprocess = SummarizationPipeline.postprocess

    def of_nothing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return [{**record, "summary_text": " "} for record in postprocess(self, *args, **kwargs)]

    monkeypatch.setattr(SummarizationPipeline, "postprocess", of_nothing)
    result = run("summarize", "-m", checkpoint, records, "--json")
    assert f"Empty summaries: {len(jsonl(result.stdout))}." in result.stderr
    assert all("is_empty" not in line for line in jsonl(result.stdout))


def test_empty_summaries_of_earlier_sittings_are_counted(checkpoint: str, monkeypatch: pytest.MonkeyPatch):
    rows = write_jsonl("rows.jsonl", [{"text": text} for text in DOCUMENTS[:3]])
    postprocess = SummarizationPipeline.postprocess

    def of_nothing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return [{**record, "summary_text": ""} for record in postprocess(self, *args, **kwargs)]

    asked = ("summarize", "-m", checkpoint, rows, "-o", "out.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(SummarizationPipeline, "postprocess", of_nothing)
        assert "Empty summaries: 3." in run(*asked).stderr
    out = Path("out.jsonl")
    out.write_text(out.read_text(encoding="utf-8").split("\n", 1)[0] + "\n", encoding="utf-8")
    assert "Empty summaries: 1." in run(*asked).stderr
    assert "Empty summaries: 1." in run(*asked).stderr  # when nothing is left to do
    assert all("is_empty" not in line for line in jsonl(out.read_text(encoding="utf-8")))


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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-length", "50"], "--min-length: 90 tokens are more than --max-length allows, 50"),
        (["--length", "line"], "--min-length: 90 tokens are more than --length line allows, 64"),
        (["--set", "max_new_tokens=50"], "--min-length: 90 tokens are more than --set allows, 50"),
    ],
)
def test_lengths_that_contradict_each_other(checkpoint: str, paper: str, options: list[str], says: str):
    mistake("summarize", "-m", checkpoint, paper, "--min-length", "90", *options, says=says)


@pytest.mark.parametrize("setting", ["max_new_tokens=200", "max_length=200"])
def test_what_is_set_comes_before_the_limit_of_a_length(setting: str):
    settings = loading.generation_settings(None, 90, None, [setting], length=Length.line)
    assert settings == {setting.partition("=")[0]: 200, "min_new_tokens": 90}


def test_a_folder_of_several_splits_says_what_to_name(checkpoint: str):
    Path("corpus").mkdir()
    for name in ("train", "test"):
        write_jsonl(f"corpus/{name}.jsonl", [{"text": DOCUMENTS[0]}])
    says = "INPUT: the files belong to several splits (test, train); name the files of one"
    mistake("summarize", "-m", checkpoint, "corpus", says=says)


def test_what_is_said_of_a_folder_is_said_once(checkpoint: str, caplog: pytest.LogCaptureFixture):
    Path("folder").mkdir()
    Path("folder/a.txt").write_text(DOCUMENTS[2])
    Path("folder/empty.txt").write_text("")
    Path("folder/notes.odt").write_bytes(b"PK")
    run("summarize", "-m", checkpoint, "folder", "--set-aside", "aside.jsonl")
    said = [message.split(": ")[0] for message in caplog.messages]
    assert said == ["folder", "folder/empty.txt:1 set aside in aside.jsonl"]
    run("summarize", "-m", checkpoint, "folder", "--set-aside", "aside.jsonl")  # also the next time
    assert len(caplog.messages) == 4


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
    write_jsonl("dialogues.jsonl", rows)
    written = jsonl(run("summarize", "-m", checkpoint, "dialogues.jsonl", "--json").stdout)
    assert [record["id"] for record in written] == ["dialogues.jsonl:1", "dialogues.jsonl:2"]
    assert [record["summary"] for record in written] == expected(checkpoint, *rows)


def test_turns_without_words_are_counted(checkpoint: str):
    rows = [{"turns": [*TURNS, {"role": "Bob", "content": " "}]}, {"turns": TURNS[:2]}]
    write_jsonl("dialogues.jsonl", rows)
    result = run("summarize", "-m", checkpoint, "dialogues.jsonl", "--json")
    whole = expected(checkpoint, {"turns": TURNS}, {"turns": TURNS[:2]})
    assert [record["summary"] for record in jsonl(result.stdout)] == whole
    assert "1 turn without words was left out." in result.stderr


def test_a_dialogue_with_too_many_roles_is_named_before_anything_is_made(checkpoint: str):
    many = [{"role": str(number), "content": "Yes."} for number in range(5)]
    rows = [{"id": "a", "turns": TURNS, "summary": "x"}, {"id": "b", "turns": many, "summary": "x"}]
    write_jsonl("dialogues.jsonl", rows)
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
    write_jsonl("twins.jsonl", rows)
    run("summarize", "-m", checkpoint, "twins.jsonl", "--output", "out.jsonl")
    written = jsonl(Path("out.jsonl").read_text())
    assert [record["id"] for record in written] == ["same", "same (2)"]
    assert [record["summary"] for record in written] == expected(checkpoint, *DOCUMENTS[:2])


def test_numbered_names_are_free_names():
    rows = [{"id": name, "text": "x"} for name in ("a", "a", "a (2)", "b (2)", "b", "b", "a")]
    write_jsonl("twins.jsonl", rows)
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
    arguments += ["--set", "no_repeat_ngram_size=1", "--set", "encoder_repetition_penalty=15e-1"]
    result = run("summarize", "-m", checkpoint, paper, "--json", *arguments)
    settings = {
        "length_penalty": 2.0,
        "encoder_repetition_penalty": 1.5,
        "no_repeat_ngram_size": 1,
        "max_new_tokens": 9,
        "min_new_tokens": 9,
        "num_beams": 3,
    }
    [record] = jsonl(result.stdout)
    assert record["settings"] == settings
    assert record["summary"] == expected(checkpoint, DOCUMENTS[1], **settings)[0]
    assert record["summary"] != expected(checkpoint, DOCUMENTS[1])[0]


def test_a_model_that_is_faithful_need_not_be(paper: str):
    settings = [
        jsonl(run("summarize", paper, "--json", "--set", f"faithful={value}").stdout)[0] for value in ("false", "true")
    ]
    assert [record["settings"] for record in settings] == [{"faithful": False}, {"faithful": True}]
    assert settings[0]["summary"] == expected(hier_models.MINI, DOCUMENTS[1], faithful=False)[0]
    mistake("translate", "-m", "model", paper, "--set", "faithful=false", says="'faithful' is no generation setting")
    mistake("summarize", paper, "--set", "faithful=maybe", says="`faithful` must be True or False")


def test_cut_documents_are_reported(checkpoint: str, processor: HatBartProcessor, paper: str):
    length = len(processor(text=DOCUMENTS[1])["input_ids"])
    result = run("summarize", "-m", checkpoint, paper, "--json", "--cut", "--max-source-length", "30")
    assert jsonl(result.stdout)[0]["num_truncated_tokens"] == length - 30
    assert f"{length - 30} tokens were cut" in result.stderr
    Path("long.txt").write_text(DOCUMENTS[1] * 20)
    cut = run("summarize", "-m", checkpoint, paper, "long.txt", "--cut").stderr
    assert "1 of 2 documents were longer than the model takes: " in cut
    read = run("summarize", "-m", checkpoint, paper, "long.txt", "--max-length", "8")
    assert "1 of 2 documents were not read whole: " in read.stderr
    assert "tokens were left out, headings, lists and what is least like the rest; --cut cuts" in read.stderr
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
    mistake("export", "-m", "bart", "out", says="BartForConditionalGeneration is no model of hier_models")


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
    cut = next(line for line in run(*arguments).stderr.splitlines() if "not read whole" in line)
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


def test_texts_stay_with_the_process_that_read_them():
    """Ray refuses what is large; the other process reads them itself."""
    Path("page.html").write_text(f"<p>{'A long page. ' * 10_000}</p>")
    documents = Documents([Path("page.html")])
    [document] = documents
    sent = pickle.dumps(documents)
    assert len(sent) < 5000
    assert list(pickle.loads(sent)) == [document]


def test_a_document_that_has_changed_is_not_taken_for_done():
    Path("a.txt").write_text("First text.")
    run("summarize", "-m", "lead", "a.txt", "--output", "out.jsonl")
    Path("a.txt").write_text("Another text.")
    says = ["--output: out.jsonl:1 is the summary of another text than 'a.txt' is now", "remove this line"]
    mistake("summarize", "-m", "lead", "a.txt", "--output", "out.jsonl", says=says)
    Path("out.jsonl").write_text("")
    run("summarize", "-m", "lead", "a.txt", "--output", "out.jsonl")
    assert jsonl(Path("out.jsonl").read_text())[0]["summary"] == "Another text."


def test_summaries_are_no_documents(checkpoint: str, records: str):
    run("summarize", "-m", checkpoint, records, "--output", "out.jsonl")
    mistake("summarize", "-m", checkpoint, "out.jsonl", says="cannot tell which column holds the source: no column")


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


@pytest.mark.parametrize(("options", "written"), [(["--batch-size", "1"], [0, 1, 2]), ([], [0, 2])])
def test_results_are_written_when_they_are_there(
    checkpoint: str, records: str, monkeypatch: pytest.MonkeyPatch, options: list[str], written: list[int]
):
    """What was done before a failure is in the file, and the same command goes on."""
    generate, calls = HatBartForConditionalGeneration.generate, []
    monkeypatch.setattr(batching_hier, "BUDGET", 3 * batching_hier.SHORT - 1)  # two documents

    def fails_at_last(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(len(Path("out.jsonl").read_text().splitlines()))
        if len(calls) == len(written):
            raise KeyboardInterrupt
        return generate(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(HatBartForConditionalGeneration, "generate", fails_at_last)
        result = run("summarize", "-m", checkpoint, records, "--cut", "--output", "out.jsonl", *options, code=130)
    assert "Interrupted. What is done is in out.jsonl" in result.stderr
    assert calls == written
    assert len(Path("out.jsonl").read_text().splitlines()) == written[-1]
    run("summarize", "-m", checkpoint, records, "--cut", "--output", "out.jsonl", *options)
    assert [record["summary"] for record in jsonl(Path("out.jsonl").read_text())] == expected(
        checkpoint, *DOCUMENTS, truncation=True
    )


def test_the_disk_is_full(checkpoint: str, records: str, monkeypatch: pytest.MonkeyPatch):
    arguments = ["summarize", "-m", checkpoint, records, "--output"]
    run(*arguments, "whole.jsonl")
    whole = Path("whole.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        full_disk(patch, room=int(2.5 * len(whole) / 4))
        result = run(*arguments, "out.jsonl", code=1)
    assert "No space left on device" in result.stderr
    assert "make room" in result.stderr
    assert "--debug" not in result.stderr
    assert "What is done is in out.jsonl; the same command goes on from there" in result.stderr
    assert whole.startswith(Path("out.jsonl").read_bytes())
    assert "holds 2 of 4 summaries" in run(*arguments, "out.jsonl").stderr
    assert Path("out.jsonl").read_bytes() == whole


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("cores", [1, 2])
def test_interrupted_with_ctrl_c(checkpoint: str, workplace: Path, cores: int):
    rows = "".join(json.dumps({"text": DOCUMENTS[i % 4]}) + "\n" for i in range(2000))
    Path("many.jsonl").write_text(rows)
    # A job in the background ignores the signal.
    code = f"import signal, torch\ntorch.set_num_threads({cores})\n"
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n" + forks.COMMAND
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


# Cores


@pytest.mark.parametrize("options", [(), ("--batch-size", "2")])
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_all_cores_write_what_one_process_writes(checkpoint: str, options, two_threads, monkeypatch):
    rows = [{"id": f"r{number}", "text": DOCUMENTS[number % len(DOCUMENTS)]} for number in range(7)]
    data, asked = write_jsonl("many.jsonl", rows), []
    by_processes = cores._by_processes
    monkeypatch.setattr(cores, "_by_processes", lambda *a: asked.append(a[3]) or by_processes(*a))
    arguments = ["summarize", "-m", checkpoint, data, *options]
    run(*arguments, "-o", "two.jsonl")
    torch.set_num_threads(1)
    run(*arguments, "-o", "one.jsonl")
    assert asked == [2]
    two, one = (jsonl(Path(name).read_text()) for name in ("two.jsonl", "one.jsonl"))
    assert two == one


def test_a_mistake_is_one_in_any_process(checkpoint: str, two_threads):
    rows = [{"id": "good", "text": DOCUMENTS[0]}, {"id": "bad", "text": DOCUMENTS[1]}]
    data = write_jsonl("many.jsonl", rows)
    mistake("summarize", "-m", checkpoint, data, "-o", "o.jsonl", "--max-length", "100000", says="At most")


# Files


def test_sources_of_a_pdf_name_the_page(checkpoint: str):
    sentences = [f"{text.split('. ')[0].rstrip('.')}." for text in DOCUMENTS[:3]]
    write_pdf(Path("paper.pdf"), [[At(72, 700, text), At(300, 30, str(n))] for n, text in enumerate(sentences, 1)])
    pipe = pipeline("summarization", model=checkpoint)
    document = load_documents("paper.pdf")[0]
    found = pipe.find_sources(document, " ".join(sentences))
    assert [sentence["sources"][0]["page"] for sentence in found] == [1, 2, 3]
    assert format_sources(found)[1].partition("%")[2].startswith("  p. 1: ")
    result = run("summarize", "-m", checkpoint, "paper.pdf", "--sources", "--json")
    assert "Left out of the pages: 3 page numbers." in result.stderr
    [record] = jsonl(result.stdout)
    assert record["sources"] == pipe(document, return_sources=True)[0]["sources"]


def test_files_of_many_kinds(checkpoint: str):
    Path("papers").mkdir()
    write_pdf(Path("papers/a.pdf"), [column(textwrap.wrap(DOCUMENTS[0], 60))])
    Path("papers/b.md").write_text(DOCUMENTS[1])
    Path("papers/c.txt").write_text(DOCUMENTS[2])
    Path("d.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>It rose for three days.\n")
    result = run("summarize", "-m", checkpoint, "papers", "d.vtt", "--json")
    records = jsonl(result.stdout)
    assert [record["id"] for record in records] == ["a", "b", "c", "d.vtt"]
    turns = [{"role": "Ann", "content": "It rose for three days."}]
    assert [record["summary"] for record in records] == expected(checkpoint, *DOCUMENTS[:3], turns)
    assert "Left out" not in result.stderr
    pdf = Path("papers/a.pdf").read_bytes()
    assert run("summarize", "-m", checkpoint, stdin=pdf).stdout.strip() == records[0]["summary"]
    run("inspect", "papers/a.pdf", "-m", checkpoint, "-o", "where.html")
    assert run("summarize", "-m", "lead", "papers/a.pdf").stdout


@pytest.mark.parametrize("beginning", ["", "\ufeff", "\n<!-- of the town -->\n"])
def test_a_page_on_standard_input(beginning: str):
    page = f"{beginning}<!DOCTYPE html>\n<html><head><title>Hours</title></head><body><p>{DOCUMENTS[2]}</p></body>"
    assert run("summarize", "-m", "lead", stdin=page).stdout == DOCUMENTS[2] + "\n"
    [record] = jsonl(run("summarize", "-m", "lead", "-", "--json", stdin=page).stdout)
    assert (record["id"], record["summary"]) == ("standard input", DOCUMENTS[2])


@pytest.mark.parametrize("beginning", ["WEBVTT - of the town\n\n", "\ufeffWEBVTT\n\nNOTE Draft\n\nfirst\n", "1\n"])
def test_subtitles_on_standard_input(checkpoint: str, beginning: str):
    cues = f"{beginning}00:01.000 --> 00:02.000\nANN: {DOCUMENTS[0]}\n\n00:03.000 --> 00:04.000\nBOB: {DOCUMENTS[1]}\n"
    Path("talk.vtt").write_text(cues, encoding="utf-8")
    result = run("summarize", "-m", checkpoint, "talk.vtt")
    assert run("summarize", "-m", checkpoint, stdin=cues).stdout == result.stdout
    turns = [{"role": "ANN", "content": DOCUMENTS[0]}, {"role": "BOB", "content": DOCUMENTS[1]}]
    assert result.stdout.splitlines() == expected(checkpoint, turns)


def test_a_text_that_tells_of_subtitles_on_standard_input():
    text = "WEBVTT is how a file begins whose cues come behind times such as 00:01.000 --> 00:02.000 in it."
    assert run("summarize", "-m", "lead", stdin=text).stdout == text + "\n"


def test_names_with_a_tilde(checkpoint: str) -> None:
    """As Word leaves them beside a document that is open."""
    mistake("summarize", "~$report.docx", "-m", checkpoint, "-o", "out.jsonl", says="~$report.docx")
    mistake("evaluate", "~$rows.jsonl", "-m", checkpoint, says="~$rows.jsonl")


@pytest.mark.parametrize(("output", "ray"), [("out.ndjson", None), ("out", "local")])
def test_what_is_json_without_asking(output: str, ray: str | None) -> None:
    assert writes_lines(Path(output), ray)
    assert not writes_lines(Path("out.txt"), None)
    assert not writes_lines(None, None)


def test_an_array_of_records_on_standard_input():
    rows = [{"id": name, "text": text} for name, text in zip("ab", DOCUMENTS[2:], strict=True)]
    written = jsonl(run("summarize", "-m", "lead", "--json", stdin="\ufeff\n" + json.dumps(rows, indent=2)).stdout)
    assert [{"id": record["id"], "text": record["summary"]} for record in written] == rows
    mistake("summarize", "-m", "lead", stdin=json.dumps(rows)[:-9], says=["standard input:1", "broken JSON"])
    text = f"[Sic] {DOCUMENTS[3]}"
    assert run("summarize", "-m", "lead", stdin=text).stdout == text + "\n"


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="POSIX")
@pytest.mark.parametrize("kind", ["page", "records", "pdf", "text"])
def test_what_a_command_writes_is_read(kind: str):
    """As bash passes it: summarize <(command)."""
    contents = {
        "page": f"<!DOCTYPE html><html><body><p>{DOCUMENTS[2]}</p></body></html>".encode(),
        "records": json.dumps({"text": DOCUMENTS[2]}).encode(),
        "pdf": write_pdf(Path("paper.pdf"), [column(textwrap.wrap(DOCUMENTS[2], 60))]).read_bytes(),
        "text": DOCUMENTS[2].encode(),
    }
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as stream:
        stream.write(contents[kind])
    with os.fdopen(reader):
        [record] = jsonl(run("summarize", "-m", "lead", f"/dev/fd/{reader}", "--json").stdout)
    assert record["id"] == f"/dev/fd/{reader}{':1' if kind == 'records' else ''}"
    assert record["summary"] == DOCUMENTS[2]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX")
def test_a_mistake_in_a_pipe_names_it():
    os.mkfifo("feed")
    lines = f'{{"text": "{DOCUMENTS[3]}"}}\n{{"text": "broken'
    threading.Thread(target=Path("feed").write_text, args=(lines,), daemon=True).start()
    mistake("summarize", "-m", "lead", "feed", says=["feed:2", "broken JSON"])


# Mistakes


def test_a_text_is_no_input():
    text = DOCUMENTS[0] * 2
    assert len(text) > 255
    says = [f"there is no file or folder '{text[:40]}", "a text comes in a file, or on standard input"]
    mistake("summarize", "-m", "lead", text, says=says)
    mistake("summarize", "-m", "lead", DOCUMENTS[3], says=f"no file or folder {DOCUMENTS[3]!r}; a text comes in")


def test_mistakes_in_the_input(checkpoint: str, paper: str):
    mistake("summarize", "-m", checkpoint, "missing.txt", says="there is no file or folder 'missing.txt'")
    mistake("summarize", "-m", checkpoint, stdin=" \n", says="standard input is empty")
    mistake("summarize", "-m", checkpoint, stdin=b"\xff\xfe\x00", says="standard input is not a text file")
    mistake("summarize", "-m", checkpoint, "-", "-", stdin="x", says="can be read once only")
    Path("paper.pdf").write_bytes(b"%PDF-1.5\n\xd0\xd4\xc5\xd8")
    mistake("summarize", "-m", checkpoint, "paper.pdf", says="paper.pdf is a broken PDF")
    mistake("summarize", "-m", checkpoint, stdin=Path("paper.pdf").read_bytes(), says="standard input is a broken PDF")
    Path("paper").write_bytes(Path("paper.pdf").read_bytes())
    mistake(
        "summarize", "-m", checkpoint, "paper", says="paper is not a text file, but a PDF; give its name the ending"
    )
    for name in ("page", "article.php", "page.txt"):
        Path(name).write_text(f"<!DOCTYPE html><html><body><p>{DOCUMENTS[0]}</p></body></html>")
        mistake(
            "summarize", "-m", checkpoint, name, says=f"{name} is not a text file, but an HTML page; give its name"
        )
    Path("book.epub").write_bytes(b"PK")
    mistake(
        "summarize",
        "-m",
        checkpoint,
        "book.epub",
        says="book.epub ends in .epub, which is not read; read it as a book",
    )
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
    Path("summaries").mkdir()
    mistake("summarize", "-m", "lead", "summaries", says="INPUT: folder summaries holds no file that ends in")
    says = "--output: summaries is a folder; give a file, such as summaries/out.jsonl"
    mistake("summarize", "-m", "lead", records, "-o", "summaries", says=says)
    Path("summaries").rmdir()
    mistake("summarize", "-m", "lead", records, "-o", "summaries/", says=says.replace("summaries is", "summaries/ is"))
    assert not Path("summaries").exists()
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
    Path("run/adapter_config.json").write_text("{}")
    mistake("summarize", "-m", "run", paper, says="'run' is a PEFT adapter and no whole model; load it with peft")
    mistake("summarize", "-m", "run/checkpoint-20", paper, says="--model: cannot load 'run/checkpoint-20'")
    shutil.copytree("model", "damaged")
    Path("damaged/model.safetensors").write_bytes(b"not weights")
    mistake("summarize", "-m", "damaged", paper, says="--model: cannot load 'damaged'")
    Path("run/config.json").write_text('{"model_type": "no_such_type"}')
    mistake("summarize", "-m", "run", paper, says=["--model: cannot load 'run'", "no_such_type"])


def test_mistakes_in_options(checkpoint: str, paper: str):
    mistake("summarize", "-m", checkpoint, paper, "--set", "num_beams", says="write NAME=VALUE")
    mistake("summarize", "-m", checkpoint, paper, "--set", "num_beam=2", says="did you mean num_beams?")
    mistake("summarize", "-m", checkpoint, paper, "--set", "max_length=abc", says="--set: got 'max_length=abc'; ")
    run("summarize", "-m", checkpoint, paper, "--num-beams", "2", "--set", "early_stopping=never")
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
    if not torch.cuda.is_available():
        mistake("summarize", "-m", checkpoint, paper, "--device", "cuda", says="--device: ")
    mistake("summarize", "-m", checkpoint, paper, "-o", "nowhere/out.jsonl", says="there is no folder")
    mistake("summarize", "-m", checkpoint, paper, "-o", "out.json", says=".jsonl")
    mistake("summarize", "-m", checkpoint, paper, "-o", "out.txt", "--json", says=".jsonl")
    Path("out.txt").write_text("precious")
    mistake("summarize", "-m", checkpoint, paper, "-o", "out.txt", says="out.txt is there already")
    assert Path("out.txt").read_text() == "precious"


def test_queries(checkpoint: str, caplog: pytest.LogCaptureFixture):
    text = " ".join(DOCUMENTS[1:3])
    Path("bees.txt").write_text(text)
    query = "How do bees find the direction?"
    summarize = pipeline("summarization", model=checkpoint, device="cpu")
    [expected] = summarize(text, query=query, return_truncation=True)
    assert expected["num_omitted_tokens"] > 0  # the document is not too long, and of it is read what is asked for
    result = run("summarize", "-m", checkpoint, "bees.txt", "--query", query)
    assert result.stdout.strip() == expected["summary_text"].strip()
    omitted = expected["num_omitted_tokens"]
    assert f"not read whole: {omitted} tokens were left out, what is least like the query." in result.stderr
    for others, said in (
        ([], "least like the query."),
        ([{"text": "Short."}], "least like the rest, or like its query."),
    ):
        own = write_jsonl("own.jsonl", [{"text": text, "query": query}, *others])
        assert said in run("summarize", "-m", checkpoint, own).stderr  # and not to use --cut, which is refused
    rows = [{"text": text}, {"text": text, "query": "Wer kommt?"}, {"text": text, "query": " "}]
    command = ("summarize", "-m", checkpoint, write_jsonl("rows.jsonl", rows), "--query", query, "-o", "out.jsonl")
    assert not caplog.text
    run(*command)
    assert "none of the words that matter in the query 'Wer kommt?'" in caplog.text
    found = jsonl(Path("out.jsonl").read_text())
    assert [record.get("num_omitted_tokens") for record in found] == [omitted, None, omitted]
    assert found[0]["settings"]["query"] == query
    assert "nothing is left to do" in run(*command).stderr
    write_jsonl("rows.jsonl", rows[1:] + rows[:1])  # another question is another document
    assert run(*command, code=2).stdout == ""


def test_queries_that_cannot_be(checkpoint: str, paper: str):
    mistake("summarize", "-m", checkpoint, paper, "--query", " ", says="--query is empty")
    mistake("summarize", "-m", checkpoint, paper, "--query", "Who?", "--cut", says="leave it out, or --cut")
    mistake("summarize", "-m", "lexrank", paper, "--query", "Who?", says="--query does not go with this --model")
    mistake("summarize", "-m", checkpoint, "--book", paper, "--query", "Who?", says="leave out --query")
    rows = write_jsonl("rows.jsonl", [{"text": "One."}, {"text": "Two.", "query": "Who?"}])
    for option in ("--cut", "--mark-copied", "--show-phrases"):
        command = ("summarize", "-m", checkpoint, rows, option, "-o", "out.jsonl")
        mistake(*command, says=["rows.jsonl:2: ", "column `query`", f"leave out {option}"])
        assert not Path("out.jsonl").exists()  # nothing is written before
