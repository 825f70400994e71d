"""`hier-models analyze`, as a user runs it."""

import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

from hier_models import checkpoints
from hier_models.cli.jobs import alone
from hier_models.cli.predictions import load_test_set, match_summaries, read_rows
from hier_models.inspection import CopyingReport
from tests import forks
from tests.cli.commands import jsonl, mistake, run, save_judge, write_jsonl
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


LEADS = [
    "The bridge was closed on Monday. Engineers had found a crack in the second pillar.",
    "Bees find their way home",
]
LEADS += ["The library opens at nine.", "A single sentence without much in it"]


@pytest.fixture
def data(workplace: Path) -> str:
    rows = [{"id": f"d{i}", "text": text, "summary": SUMMARIES[i]} for i, text in enumerate(DOCUMENTS)]
    return write_jsonl("data.jsonl", rows)


@pytest.fixture
def bart(workplace: Path, tokenizer: PreTrainedTokenizerFast) -> str:
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = BartConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **sizes, **heads)
    BartForConditionalGeneration(config).save_pretrained("bart")
    tokenizer.save_pretrained("bart")
    return "bart"


def predictions(name: str = "a.jsonl", **changes: str) -> str:
    texts = {f"d{number}": text for number, text in enumerate(LEADS)} | changes
    return write_jsonl(name, [{"id": identifier, "summary": text} for identifier, text in texts.items()])


def report(folder: str = "report") -> dict[str, Any]:
    return json.loads((Path(folder) / "copying.json").read_text(encoding="utf-8"))


def test_two_models(checkpoint, bart, data):
    before = Path(data).read_bytes()
    result = run("analyze", data, "-m", f"hat={checkpoint}", "-m", "bart", "-o", "report", "--heatmaps", 2)
    assert result.stdout.splitlines()[0].split() == ["hat", "bart"]
    assert "bart has no hierarchical attention to draw" in result.stderr
    names = {path.name for path in Path("report").iterdir()}
    assert names == {
        *("copying.html", "copying.json", "copying.jsonl", "copying.png"),
        *("summaries-hat.jsonl", "summaries-bart.jsonl"),
        *(f"attention-hat-{number}.{kind}" for number in (1, 2) for kind in ("html", "png")),
    }
    assert report()["documents"] == 4
    # The summaries are those of `summarize --cut`.
    run("summarize", "-m", checkpoint, data, "--cut", "-o", "other.jsonl")
    assert Path("report/summaries-hat.jsonl").read_text() == Path("other.jsonl").read_text()
    assert "Ġ" not in Path("report/attention-hat-1.html").read_text()
    assert Path(data).read_bytes() == before


def test_predictions_of_both_commands(checkpoint, data):
    """What `evaluate` and `summarize` write is taken as it is, and nothing is generated."""
    run("evaluate", "-m", checkpoint, data, "--predictions", "e.jsonl")
    run("summarize", "-m", checkpoint, data, "-o", "s.jsonl")
    result = run("analyze", data, "-p", "e.jsonl", "-p", "s.jsonl", "-o", "report", "--reference")
    assert "Summarizing" not in result.stderr
    models = report()["models"]
    assert list(models) == ["e", "s", "reference"]
    assert models["e"]["rouge"]["rouge1"] < models["reference"]["rouge"]["rouge1"] == 100
    expected = CopyingReport()
    for number, text in enumerate(DOCUMENTS):
        expected.add({"text": text}, {"reference": SUMMARIES[number]}, reference=SUMMARIES[number])
    assert models["reference"] == expected.as_dict()["models"]["reference"]


def test_what_evaluate_wrote_of_repeated_ids_is_found_again():
    texts = ("One is here. Two is there.", "Three is here. Four is there.", "Five is here. Six is there.")
    rows = [{"id": name, "text": text, "summary": text[:9]} for name, text in zip("mmn", texts, strict=True)]
    data = write_jsonl("repeated.jsonl", rows)
    run("evaluate", data, "-m", "lead", "--max-sentences", 1, "--predictions", "evaluated.jsonl")
    run("summarize", data, "-m", "lead", "--max-sentences", 1, "-o", "summarized.jsonl")
    run("analyze", data, "-p", "evaluated.jsonl", "-p", "summarized.jsonl", "-o", "report")
    evaluated, summarized = report()["models"].values()
    assert evaluated == summarized
    assert evaluated["reference_free"]["coverage"] == 1  # each of its own document


def test_numbers_of_leads(data):
    spread = predictions(
        "spread.jsonl", d0="The town will pay for them for a while.", d1="Its length gives the distance."
    )
    run("analyze", data, "-p", f"lead={predictions('lead.jsonl')}", "-p", spread, "-o", "report", "--shown", 2)
    lead, spread = report()["models"].values()
    # Of the first: words 1 to 6 and 7 to 15; of the second, third and fourth the beginning.
    assert (lead["judged"], lead["copied"]) == (5, 5)
    total = len(DOCUMENTS[0].split())
    assert lead["position"]["mean"] == pytest.approx(6 / total / 5)
    assert (spread["judged"], spread["copied"]) == (4, 3)  # 6 of 9 words are too few
    assert spread["position"]["mean"] > 0.2
    lines = jsonl(Path("report/copying.jsonl").read_text())
    assert [line["id"] for line in lines if line["model"] == "lead"] == ["d0", "d0", "d1", "d2", "d3"]
    page = Path("report/copying.html").read_text()
    assert DOCUMENTS[1].split(".")[0] in page
    assert DOCUMENTS[2].split(".")[0] not in page


def test_scores_against_the_documents(data):
    wrong = predictions("wrong.jsonl", d0="The bridge was closed on Friday, said Dr Huber")
    result = run("analyze", data, "-p", f"lead={predictions('lead.jsonl')}", "-p", wrong, "-o", "report")
    lead, wrong = (entry["reference_free"] for entry in report()["models"].values())
    assert (lead["coverage"], lead["novel_1"], lead["facts"], lead["finished"]) == (1, 0, 1, 0.5)
    assert wrong["coverage"] == pytest.approx((7 / 9 + 3) / 4)  # all but Friday and Huber
    assert (wrong["facts"], wrong["finished"]) == (1 / 3, 0.25)  # of Friday, Dr and Huber
    assert "names and numbers found 100.0% 33.3%" in " ".join(result.stdout.split())
    assert "names and numbers found" in Path("report/copying.html").read_text()


def test_scores_of_models(checkpoint, data):
    """Those of `evaluate`, in the table, the numbers and the page."""
    save_judge("judge", checkpoint)
    judges = ("--bert-score", "judge", "--nli", "judge")
    run(
        "evaluate", "-m", "lead", "--max-sentences", "1", data, "--predictions", "p.jsonl", "--json", "p.json", *judges
    )
    result = run("analyze", data, "-p", "p.jsonl", "-o", "report", "--reference", *judges)
    mine, reference = report()["models"].values()
    expected = json.loads(Path("p.json").read_text())
    for name in ("bert_score", "entailment"):
        assert mine[name] == pytest.approx(expected[name])
    assert reference["bert_score"] == pytest.approx(100, abs=0.01)
    assert f"BERTScore {mine['bert_score']:.1f} 100" in " ".join(result.stdout.split())
    assert '"bert_score"' in Path("report/copying.html").read_text()
    mistake("analyze", data, "-m", checkpoint, "-o", "other", "--nli", checkpoint, says="must be entailment")
    bare = write_jsonl("bare.jsonl", [{"text": text} for text in DOCUMENTS])
    lead = write_jsonl("lead.jsonl", [{"summary": text} for text in LEADS])
    mistake("analyze", bare, "-p", lead, "-o", "other", "--bert-score", "judge", says="has no reference summaries")


def test_the_names_of_speakers_stand_in_the_document(workplace):
    turns = [{"role": "Zoe", "content": "I booked it."}, {"role": "Max", "content": "Good."}]
    write_jsonl("talk.jsonl", [{"turns": turns}])
    write_jsonl("s.jsonl", [{"summary": "It was booked by Zoe for Tim."}])
    run("analyze", "talk.jsonl", "-p", "s.jsonl", "-o", "report")
    assert report()["models"]["s"]["reference_free"]["facts"] == 0.5


def test_summaries_in_another_order_and_without_identifiers(data):
    rows = jsonl(Path(predictions()).read_text())
    write_jsonl("b.jsonl", rows[::-1])
    unnamed = [{"summary": row["summary"]} for row in rows]
    write_jsonl("c.jsonl", unnamed)
    run("analyze", data, "-p", "a.jsonl", "-p", "b.jsonl", "-p", "c.jsonl", "-o", "report")
    a, b, c = report()["models"].values()
    assert a == b == c
    assert a["copied"] == 5


def test_documents_without_identifiers_are_matched_by_number(checkpoint, workplace):
    write_jsonl("plain.jsonl", [{"turns": TURNS}, {"turns": TURNS[::-1]}, {"turns": TURNS[:1]}])
    run("summarize", "-m", checkpoint, Path("plain.jsonl").absolute(), "-o", "s.jsonl")
    rows = jsonl(Path("s.jsonl").read_text())
    rows[0]["summary"], rows[1]["summary"] = "Did you book the room?", "Did you book the room?"
    write_jsonl("s.jsonl", rows[::-1])
    run("analyze", "plain.jsonl", "-p", "s.jsonl", "-o", "report", "--heatmaps", 0)
    found = [(line["id"], line["block"]) for line in jsonl(Path("report/copying.jsonl").read_text())]
    assert found == [("plain.jsonl:1", 1), ("plain.jsonl:2", 4)]
    assert report()["models"]["s"]["block"]["name"] == "turn"


def test_a_model_that_only_draws(checkpoint, data):
    predictions("made.jsonl")
    command = ("analyze", data, "-m", f"hat={checkpoint}", "-p", "hat=made.jsonl", "-o", "report", "--heatmaps", 1)
    run(*command)
    assert list(report()["models"]) == ["hat"]
    assert not Path("report/summaries-hat.jsonl").exists()
    page = Path("report/attention-hat-1.html").read_text()
    assert "bridge" in page
    run(*command, "--max-source-length", 12)
    assert len(Path("report/attention-hat-1.html").read_text()) < len(page)


def test_a_job_goes_on_where_it_stopped(checkpoint, data, monkeypatch):
    arguments = ["analyze", data, "-m", checkpoint, "--heatmaps", 0]
    run(*arguments, "-o", "whole")
    Path("part").mkdir()
    lines = Path("whole/summaries-model.jsonl").read_text().splitlines(keepends=True)
    changed = json.loads(lines[0]) | {"summary": "The bridge was closed on Monday."}  # is not made again
    Path("part/summaries-model.jsonl").write_text(json.dumps(changed) + "\n" + lines[1] + lines[2][:20])
    result = run(*arguments, "-o", "part")
    assert "holds 2 of 4 summaries" in result.stderr
    assert Path("part/summaries-model.jsonl").read_text().splitlines(keepends=True)[1:] == lines[1:]
    assert report("part")["models"]["model"]["copied"] == report("whole")["models"]["model"]["copied"] + 1
    # All there: no model is loaded.
    monkeypatch.setattr("hier_models.cli.analyze.load_pipeline", None)
    run(*arguments, "-o", "part")
    # Trained anew, and so another model.
    Path(checkpoint, "model.safetensors").write_bytes(b"others")
    mistake(*arguments, "-o", "part", says='"model_version"')
    mistake(*arguments, "-o", "part", "--max-length", 3, says="was made with")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX locks")
def test_two_processes_do_not_write_one_file(data):
    arguments = ["analyze", data, "-m", "lead", "-o", "report", "--heatmaps", 0]
    Path("report").mkdir()
    file = Path("report/summaries-lead.jsonl")
    with alone(file):
        mistake(*arguments, says=f"--output: another process is writing {file}; wait for it")
        assert file.read_bytes() == b""
    run(*arguments)
    whole = file.read_bytes()
    with alone(file):
        mistake(*arguments, says="another process is writing")
    run(*arguments)
    assert file.read_bytes() == whole


@pytest.mark.slow
def test_killed_in_the_middle(checkpoint, data):
    rows = [{"id": f"n{number}", "text": DOCUMENTS[number % 4]} for number in range(150)]
    write_jsonl("many.jsonl", rows)
    arguments = ["analyze", "many.jsonl", "-m", checkpoint, "-o", "report", "--heatmaps", "0"]
    process = forks.start(forks.COMMAND, *arguments)
    made = Path("report/summaries-model.jsonl")
    until = time.monotonic() + 240
    while not (made.exists() and made.stat().st_size) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(made.read_text().splitlines())
    assert 0 < done < 150
    result = run(*arguments)
    assert "going on with the others" in result.stderr
    assert [row["id"] for row in jsonl(made.read_text())] == [row["id"] for row in rows]


def test_the_first_documents(checkpoint, data):
    run("analyze", data, "-m", checkpoint, "-p", predictions(), "-o", "report", "--documents", 2, "--heatmaps", 0)
    assert report()["documents"] == 2
    assert len(jsonl(Path("report/summaries-model.jsonl").read_text())) == 2
    run("analyze", data, "-m", checkpoint, "-o", "report", "--documents", 9, "--heatmaps", 0)  # goes on with the rest
    assert report()["documents"] == 4


def test_mini_is_the_default_model(checkpoint, data, monkeypatch):
    monkeypatch.setattr(checkpoints, "MINI", str(Path(checkpoint).absolute()))
    result = run("analyze", data, "-o", "report", "--documents", 1, "--heatmaps", 0)
    assert result.stdout.split()[0] == "mini"
    [line] = Path("report/summaries-mini.jsonl").read_text().splitlines()
    assert json.loads(line)["model"] == "mini"


def test_bad_options(checkpoint, data, workplace):
    made = predictions()
    Path("file").write_text("")
    both = ["-p", made, "-o", "report"]
    mistake(
        "analyze", data, "-m", "nowhere/at/all", "-o", "report", says="--model: there is no folder 'nowhere/at/all'"
    )
    mistake("analyze", data, "-p", "nowhere.jsonl", "-o", "report", says="--predictions: there is no file 'nowhere")
    mistake("analyze", data, "-p", made, "-p", made, "-o", "report", says="two are called 'a'; give them names: NAME=")
    mistake("analyze", data, "-p", f"a b={made}", "-o", "report", says="'a b' cannot be part of a file's name")
    mistake("analyze", data, "-p", "a=", "-o", "report", says="got 'a='; write NAME=VALUE")
    mistake("analyze", data, "-p", made, "-o", "file", says="--output: file is a file; give a folder")
    mistake("analyze", data, "-p", made, "-o", "no/report", says="--output: there is no folder")
    for option in ("--max-length", "--max-source-length"):
        mistake("analyze", data, "-m", "lead", *both, option, 5, says="there is nothing to generate")
    mistake("analyze", data, *both, "--max-length", 5, says="there is nothing to generate")
    mistake("analyze", data, *both, "--threshold", 0.2, says="--threshold: threshold: got 0.2; it must be above 0.5")
    mistake("analyze", data, *both, "--language", "klingon", says="klingon")
    mistake("analyze", "nowhere.jsonl", *both, "--language", "klingon", says="--language: ")  # before anything is read
    mistake("analyze", "nowhere.jsonl", *both, says="no such file")
    Path("texts").mkdir()
    Path("texts/a.txt").write_text(DOCUMENTS[0])
    mistake("analyze", "texts", "-p", made, "-o", "texts/report", says="lies in the folder of the data")
    mistake("analyze", "texts", *both, "--reference", says="texts has no reference summaries; --summary-column")
    mistake("analyze", data, "-p", f"reference={made}", "--reference", "-o", "report", says="'reference' is taken")
    Path("report").mkdir(exist_ok=True)
    shutil.copy(made, "report/copying.jsonl")
    mistake("analyze", data, "-p", "x=report/copying.jsonl", "-o", "report", says="would be overwritten by the report")


def test_documents_and_predictions_that_do_not_match(data):
    def refused(rows: list[dict[str, Any]], says: str) -> None:
        write_jsonl("bad.jsonl", rows)
        mistake("analyze", data, "-p", "bad.jsonl", "-o", "report", says=says)

    rows = jsonl(Path(predictions()).read_text())
    refused([], "bad.jsonl is empty; it must have a summary of each document")
    refused([{"id": "d0", "text": "x"}], "bad.jsonl:1 has no summary")
    refused([{"id": "d0", "summary": ["x"]}], "bad.jsonl:1 has no summary")
    refused(rows[:3], "has no summary of 1 of 4 documents, such as 'd3'")
    refused([*rows, {"id": "d4", "summary": "x"}], "summary 5 is of 'd4', which is not among the documents")
    refused([*rows, rows[0]], "has several summaries of 'd0'")
    refused([{"summary": "x"}] * 3, "has 3 summaries, and data.jsonl has 4 documents")
    others = [{"summary": row["summary"], "reference": SUMMARIES[number - 1]} for number, row in enumerate(rows)]
    refused(others, "summary 1 is of another document than 'd0': their references differ")
    some = [rows[1], {"summary": rows[0]["summary"]}, *rows[2:]]
    refused(some, "summary 1 is of 'd1', but stands in the place of 'd0'; give every summary its id")
    # Under its name a document is known: `evaluate --digits` writes other references.
    write_jsonl("digits.jsonl", [row | {"reference": "# men"} for row in rows])
    run("analyze", data, "-p", "digits.jsonl", "-o", "other")
    Path("bad.jsonl").write_text('{"id": "d0"\n')
    mistake("analyze", data, "-p", "bad.jsonl", "-o", "report", says="bad.jsonl:1 is no JSON")
    Path("bad.jsonl").write_bytes(b"\xff\xfe\x00")
    mistake("analyze", data, "-p", "bad.jsonl", "-o", "report", says="bad.jsonl is no text")
    Path("empty.jsonl").write_text("")
    mistake("analyze", "empty.jsonl", "-p", "a.jsonl", "-o", "report", says="no records in empty.jsonl")
    assert not Path("report").exists()


def test_an_id_may_be_0(data):
    made = jsonl(Path(predictions()).read_text())
    rows = [row | {"id": number} for number, row in enumerate(jsonl(Path(data).read_text()))]
    write_jsonl("numbered.jsonl", rows)
    backwards = [{"id": number, "summary": made[number]["summary"]} for number in (3, 2, 1, 0)]
    # The mark that some editors begin a file with is no part of it.
    Path("byte_order.jsonl").write_text("".join(json.dumps(row) + "\n" for row in backwards), encoding="utf-8-sig")
    documents = load_test_set("numbered.jsonl", None, None, "", None)
    found = match_summaries("", read_rows(Path("byte_order.jsonl")), documents)
    assert found == [row["summary"] for row in made]


def test_empty_summaries_are_no_error(checkpoint, data):
    made = predictions(**{f"d{number}": "" for number in range(4)})
    result = run("analyze", data, "-m", f"a={checkpoint}", "-p", f"a={made}", "-o", "report", "--heatmaps", 1)
    assert "the summary of d0 is empty; no heatmap of it" in result.stderr
    assert report()["models"]["a"]["empty_summaries"] == 4


def test_a_summary_too_long_for_a_heatmap(checkpoint, data):
    made = predictions(d0="crack bridge pillar " * 60)
    result = run("analyze", data, "-m", f"a={checkpoint}", "-p", f"a={made}", "-o", "report", "--heatmaps", 2)
    assert "a: no heatmap of d0: A target of" in result.stderr
    assert "attention over 1 document drawn" in result.stderr
    assert report()["documents"] == 4
