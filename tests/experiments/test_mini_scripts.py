"""The scripts of examples/mini, and queries.py, on made-up rows: what is kept, counted and written."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.experiments.scripts import MINI, load_script


ROWS = [
    {
        "document": f"Bee {name} dances at noon. The {name} hive hums.",
        "summary": f"Bee {name} dances.",
        "length": length,
    }
    for name, length in zip(("Ada", "Bea", "Cleo", "Dora"), ("line", "short", "long", "short"), strict=True)
]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scores.py, whose systems write their name and the beginning of the document; `calls` says for what."""
    script = load_script("scores", MINI)
    script.calls = []

    def system(name: str) -> Any:
        def summarize(document: str, length: str) -> str:
            script.calls.append((name, document, length))
            return f"{name}: {document[:7]}."

        return summarize

    monkeypatch.setattr(script, "system", system)
    return script


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [script.__file__, *map(str, arguments)])
    script.main()


def test_a_kept_summary_is_of_the_same_document_length_and_system(
    scores: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def written(name: str, rows: list[dict[str, str]]) -> list[str]:
        return [entry["summary"] for entry in scores.summaries(name, rows, "bees", tmp_path, [scores.system(name)])]

    first = written("bee=a", ROWS[:2])
    assert written("bee=a", ROWS) == [*first, "bee=a: Bee Cle.", "bee=a: Bee Dor."]  # goes on
    assert len(scores.calls) == 4
    assert written("bee=a", ROWS[2:]) == ["bee=a: Bee Cle.", "bee=a: Bee Dor."]
    assert len(scores.calls) == 4
    assert written("bee=b", ROWS[:1]) == ["bee=b: Bee Ada."]
    written("bee=a", [{**ROWS[0], "length": "long"}])
    assert scores.calls[4:] == [("bee=b", ROWS[0]["document"], "line"), ("bee=a", ROWS[0]["document"], "long")]


def test_rows_that_were_kept_without_a_digest_are_written_anew(scores: ModuleType, tmp_path: Path) -> None:
    write_rows(tmp_path / "bee" / "bees.jsonl", [{"summary": "Whose?", "seconds": 1.0, "memory": 1.0}])
    entries = scores.summaries("bee", ROWS[:1], "bees", tmp_path, [scores.system("bee")])
    assert [entry["summary"] for entry in entries] == ["bee: Bee Ada."]


def test_what_is_not_counted_has_no_number_and_empty_domains_are_said(
    scores: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / "lines.jsonl", ROWS[:1])
    write_rows(tmp_path / "empty.jsonl", [])
    common = ("bee", "--pairs", tmp_path, "--output", tmp_path / "out", "--domains")
    run(scores, monkeypatch, *common, "empty", "lines", "missing")
    printed = capsys.readouterr()
    assert [line for line in printed.err.splitlines() if "rows" in line] == ["empty: no rows", "missing: no rows"]
    (row,) = printed.out.splitlines()[2:]
    assert row.split(" | ")[6] == "–"
    assert row.startswith("| lines | bee |")


def test_all_is_written_before_anything_is_scored(
    scores: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for domain in ("one", "two"):
        write_rows(tmp_path / f"{domain}.jsonl", ROWS)
    score = scores.score_documents
    seen: list[int] = []
    monkeypatch.setattr(scores, "score_documents", lambda *args: (seen.append(len(scores.calls)), score(*args))[1])
    run(scores, monkeypatch, "bee", "--pairs", tmp_path, "--output", tmp_path / "out", "--domains", "one", "two")
    assert seen == [8, 8]


def test_seconds_are_a_median_and_memory_is_in_megabytes(scores: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [{"summary": "A bee.", "seconds": seconds, "memory": 1.0} for seconds in (1.0, 2.0, 4.0, 9.0)]
    assert scores.quality(ROWS, written)["seconds"] == 3.0
    peak = scores.peak_memory()
    monkeypatch.setattr(scores.sys, "platform", "darwin" if sys.platform != "darwin" else "linux")
    assert scores.peak_memory() != pytest.approx(peak, rel=0.5)


def test_answers_are_of_the_same_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("prepare", "scores"):  # those of mini, which no other test is to find
        monkeypatch.delitem(sys.modules, name, raising=False)
    script = load_script("queries")
    for name in ("prepare", "scores"):
        del sys.modules[name]
    rows = [
        {"kind": kind, "text": row["document"], "query": "Who?", "answers": [row["summary"]]}
        for row in ROWS
        for kind in ("stories", "meetings")
    ]
    calls: list[tuple[str, int]] = []

    def system(name: str) -> Any:
        def answer(asked: list[dict[str, Any]]) -> list[str]:
            calls.append((name, len(asked)))
            return [name] * len(asked)

        return answer

    monkeypatch.setattr(script, "system", system)
    monkeypatch.setattr(script, "held_out", lambda folder: rows)
    output = tmp_path / "not" / "there"
    script.scores(tmp_path, output, ["variant=a"])
    assert [entry["answer"] for entry in lines(output / "variant.jsonl")] == ["variant=a"] * 8
    (output / "variant.jsonl").write_text(
        "".join((output / "variant.jsonl").read_text().splitlines(keepends=True)[:6])
    )
    calls.clear()
    script.scores(tmp_path, output, ["variant=a"])  # goes on
    assert calls == [("variant=a", 2)]
    calls.clear()
    script.scores(tmp_path, output, ["variant=b"])
    assert calls == [("variant=b", 6), ("variant=b", 2)]


def test_common_words_are_those_of_all_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load_script("common_words", MINI)
    monkeypatch.setattr(script, "SMALLEST_KIND", 1)
    monkeypatch.setattr(script, "KINDS", 1)
    for name in ("hums", "dances"):
        write_rows(tmp_path / f"{name}.jsonl", [{"document": "A bee", "summary": f"The bee {name}", "set": name}])
    write_rows(tmp_path / "empty.jsonl", [])
    files = [tmp_path / f"{name}.jsonl" for name in ("hums", "empty", "dances")]
    run(script, monkeypatch, *files)
    assert {"hums", "dances"} <= set(capsys.readouterr().out.split())
    run(script, monkeypatch, "--check", *files)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in printed[1:]] == ["hums", "empty", "dances"]
    assert printed[2] == ["empty", "no", "rows"]
