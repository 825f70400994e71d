import json
from pathlib import Path

import datasets
import pytest

from hier_models.cli.extractive import METHODS
from hier_models.extractive import METHODS as METHODS_OF_THE_PACKAGE
from hier_models.extractive import ExtractiveSummarizer
from tests.cli.commands import run, write_jsonl
from tests.conftest import DOCUMENTS, SUMMARIES


@pytest.fixture
def records(workplace):
    rows = [{"id": f"r{i}", "text": DOCUMENTS[i], "summary": SUMMARIES[i]} for i in range(4)]
    return write_jsonl("test.jsonl", rows)


def rows_of(file: str) -> list[dict]:
    return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]


def test_the_names_are_those_of_the_methods():
    assert METHODS == METHODS_OF_THE_PACKAGE


@pytest.mark.parametrize("method", METHODS)
def test_evaluate(method, records):
    out = run(
        "evaluate", "-m", method, records, "--max-words", "20", "--predictions", "p.jsonl", "--json", "s.json"
    ).stdout
    scores = json.loads(Path("s.json").read_text())
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum", "rougeSU4"):
        assert f"{name} " in out
        assert f"{scores[name]:.2f}" in out
    assert f"{scores['gen_words']:.1f} words" in out
    assert scores["extractive"] == {"method": method, "max_words": 20, "language": "english"}
    summarizer = ExtractiveSummarizer(method, max_words=20)
    assert [row["summary"] for row in rows_of("p.jsonl")] == [summarizer(text=text) for text in DOCUMENTS]


def test_evaluate_a_dataset_of_the_hub(records, monkeypatch):
    calls = []

    def load_dataset(path, name, **options):
        calls.append((path, name, options["split"], options["revision"]))
        return datasets.Dataset.from_list(rows_of(records))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    options = ("--split", "test", "--config-name", "full", "--revision", "refs/convert/parquet")
    assert (
        run("evaluate", "-m", "lead", "some/papers", *options).stdout == run("evaluate", "-m", "lead", records).stdout
    )
    assert calls == [("some/papers", "full", "test", "refs/convert/parquet")]
    for option, name in (("--config-name", "config_name"), ("--revision", "revision")):
        result = run("evaluate", "-m", "lead", records, option, "a", code=2)
        assert f"{name}='a' is for datasets on the Hub; 'test.jsonl' is local" in result.stderr


def test_summarize_and_go_on(records):
    command = ("summarize", "-m", "textrank", records, "-o", "out.jsonl", "--max-words", "15", "--language", "german")
    run(*command)
    summarizer = ExtractiveSummarizer("textrank", max_words=15, language="german")
    rows = rows_of("out.jsonl")
    assert [row["summary"] for row in rows] == [summarizer(text=text) for text in DOCUMENTS]
    assert rows[0]["settings"] == {"max_words": 15, "language": "german"}
    write_jsonl("out.jsonl", rows[:2])
    assert "holds 2 of 4 summaries" in run(*command).stderr
    assert rows_of("out.jsonl") == rows


def test_a_query_of_a_record_is_not_looked_at(records):
    says = "--model: lead chooses the same sentences whatever is asked: `query` is not looked at."
    plain = run("summarize", "-m", "lead", records)
    assert says not in plain.stderr
    asked = write_jsonl("asked.jsonl", [row | {"query": "When does it open?"} for row in rows_of(records)])
    result = run("summarize", "-m", "lead", asked)
    assert result.stdout == plain.stdout
    assert result.stderr.count(says) == 1


def test_wrong_options_are_refused(records):
    for option, value in (("--num-beams", "4"), ("--max-source-length", "90"), ("--importance-tagger", "./tagger")):
        for command in ("evaluate", "summarize"):
            result = run(command, "-m", "lead", records, option, value, code=2)
            assert f"{option} does not go with this --model: 'lead' chooses sentences" in result.stderr
    result = run("evaluate", "-m", "some-model", records, "--max-words", "20", code=2)
    assert (
        "--max-words does not go with this --model: 'some-model' is none of lead, lexrank, textrank" in result.stderr
    )
    assert "--language" in run("evaluate", "-m", "lead", records, "--language", "klingon", code=2).stderr
    assert "--book does not go" in run("summarize", "--book", "b.epub", "-m", "lead", code=2).stderr


def test_a_folder_of_the_name_is_a_model(records):
    Path("lead").mkdir()
    assert "is not a checkpoint" in run("evaluate", "-m", "lead", records, code=2).stderr


def test_analyze_beside_a_model(records, checkpoint):
    """Baselines stand beside models, each with the settings that are its own."""
    options = ("--max-length", "9", "--heatmaps", "1")
    result = run("analyze", records, "-m", "lead", "-m", checkpoint, "-o", "report", *options)
    assert "lead has no hierarchical attention to draw" in result.stderr
    numbers = json.loads(Path("report/copying.json").read_text())["models"]
    assert list(numbers) == ["lead", "model"]
    assert numbers["lead"]["reference_free"]["coverage"] == 1
    summarize = ExtractiveSummarizer("lead")
    assert [row["summary"] for row in rows_of("report/summaries-lead.jsonl")] == [
        summarize(text=text) for text in DOCUMENTS
    ]
    nothing = run("analyze", records, "-m", "lead", "-o", "other", "--max-length", "9", code=2)
    assert "there is nothing to generate" in nothing.stderr
