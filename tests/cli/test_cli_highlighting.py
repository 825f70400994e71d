"""What the commands show of phrases and copied words."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import pipeline

from hier_models import HighlightTransformerProcessor
from hier_models.cli.jobs import _marked
from hier_models.cli.loading import read_phrases
from tests.cli.commands import run, write_jsonl
from tests.conftest import DOCUMENTS, SUMMARIES


@pytest.fixture(autouse=True)
def checkpoint(tiny_highlight, tokenizer, workplace):
    model = tiny_highlight
    with torch.no_grad():
        model.copy_gate.bias.fill_(30.0)
    model.generation_config.max_length = 16
    model.save_pretrained("model")
    HighlightTransformerProcessor(tokenizer).save_pretrained("model")
    Path("articles.jsonl").write_text(json.dumps({"id": "storm", "documents": DOCUMENTS[:3]}) + "\n")
    return "model"


def test_summarize_shows_phrases_and_copied_words():
    phrases = ("--phrase", "second pillar=0.5", "--phrase", "old road", "--phrase", "not there=1")
    result = run("summarize", "-m", "model", "articles.jsonl", *phrases, "--show-phrases", "--mark-copied", "--json")
    record = json.loads(result.stdout)
    assert [(phrase["text"], phrase["value"]) for phrase in record["phrases"]] == [
        ("second pillar", 0.5),
        ("old road", 1.0),
        ("not there", 1.0),
    ]
    assert record["copied"]
    for word in record["copied"]:
        assert record["summary"][word["start"] : word["end"]] == word["text"]
    assert "Phrases that are not in their documents: 1." in result.stderr
    text = run("summarize", "-m", "model", "articles.jsonl", *phrases, "--mark-copied").stdout
    assert "[" in text
    assert text.replace("[", "").replace("]", "").strip() == record["summary"].strip()


def test_a_job_goes_on_with_the_same_phrases():
    command = (
        "summarize",
        "-m",
        "model",
        "articles.jsonl",
        "-o",
        "out.jsonl",
        "--phrase",
        "old road=0.5",
        "--mark-copied",
    )
    run(*command)
    before = Path("out.jsonl").read_text()
    assert "holds 1 of 1 summaries" in run(*command).stderr
    assert Path("out.jsonl").read_text() == before
    other = [*command[:7], "old road=0.6", "--mark-copied"]
    assert "was made with" in run(*other, code=2).stderr


def test_a_job_goes_on_with_the_same_column_of_phrases():
    record = {"id": "storm", "documents": DOCUMENTS[:3], "phrases": ["old road"], "others": []}
    Path("own.jsonl").write_text(json.dumps(record) + "\n")
    command = ("summarize", "-m", "model", "own.jsonl", "-o", "out.jsonl", "--phrases-column")
    run(*command, "phrases")
    assert "holds 1 of 1 summaries" in run(*command, "phrases").stderr
    assert "was made with" in run(*command, "others", code=2).stderr


def test_inspect_shows_what_summarize_reads():
    Path("long.txt").write_text(" ".join(f"Bee number {number} flies to field {number}." for number in range(60)))
    drawn, written = run("inspect", "-m", "model", "long.txt"), run("summarize", "-m", "model", "long.txt")
    assert drawn.stdout.startswith(written.stdout)
    left_out = re.search(r"[\d,]+ tokens were left out", written.stderr)
    assert left_out
    assert left_out[0] in drawn.stderr
    assert f"{left_out[0].removesuffix(' were left out')} left out" in Path("attention.html").read_text()


def test_records_have_phrases_of_their_own():
    record = {"id": "storm", "documents": DOCUMENTS[:3], "phrases": [["second pillar", 0.5]]}
    Path("own.jsonl").write_text(json.dumps(record) + "\n")
    result = run("summarize", "-m", "model", "own.jsonl", "--phrases-column", "phrases", "--show-phrases", "--json")
    assert [phrase["text"] for phrase in json.loads(result.stdout)["phrases"]] == ["second pillar"]
    assert "second pillar" in run("inspect", "-m", "model", "own.jsonl", "--phrases-column", "phrases").stdout


def test_phrases_leave_no_choice_to_the_query_of_a_record():
    records = [{"id": f"d{n}", "text": DOCUMENTS[n], "query": "Who came?", "lit": None} for n in range(3)]
    records[1]["lit"] = ["road"]
    write_jsonl("asked.jsonl", records)
    command = ("summarize", "-m", "model", "asked.jsonl", "-o", "out.jsonl")
    for options, document in ((["--phrase", "road"], "d0"), (["--phrases-column", "lit"], "d1")):
        message = " ".join(run(*command, *options, code=2).stderr.split())
        assert f"{document}: its column `query`" in message
        assert f"leave out {options[0]}" in message
        number = str(1 + int(document[1:]))
        drawn = run("inspect", "-m", "model", "asked.jsonl", "--document", number, *options, code=2)
        assert f"{document}: its column `query`" in " ".join(drawn.stderr.split())
    assert not Path("out.jsonl").exists()
    write_jsonl("asked.jsonl", [*records[:1], {**records[1], "query": None}])
    run(*command, "--phrases-column", "lit")


@pytest.mark.parametrize(
    ("phrase", "says"),
    [
        ([0, 9999, 1.0], r"must begin before it ends, within the document's \d+ characters"),
        ([" ".join(DOCUMENTS[1].split()[:40]), 1.0], "more than max_phrase_length="),
    ],
)
def test_the_record_with_a_phrase_that_cannot_be_highlighted_is_named(phrase, says):
    """Before any is summarized."""
    records = [{"id": f"d{n}", "text": DOCUMENTS[1], "phrases": [["road", 1.0]], "summary": "A."} for n in range(4)]
    records[2]["phrases"].append(phrase)
    write_jsonl("own.jsonl", records)
    command = (
        "summarize",
        "-m",
        "model",
        "own.jsonl",
        "-o",
        "out.jsonl",
        "--batch-size",
        "1",
        "--phrases-column",
        "phrases",
    )
    for arguments in (command, ("evaluate", "-m", "model", "own.jsonl", "--phrases-column", "phrases")):
        message = " ".join(run(*arguments, code=2).stderr.split())
        assert re.search(rf"the document with id 'd2': .*{says}", message)
    assert not Path("out.jsonl").exists()
    if "more than" in says:  # what is cut off is not highlighted, however long it is
        records[2]["text"] = f"{DOCUMENTS[2]} {DOCUMENTS[1]}"
        write_jsonl("own.jsonl", records)
        run(*command, "--max-source-length", "12")


def test_evaluate_with_phrases_of_records():
    rows = [
        {"documents": DOCUMENTS[:1], "summary": SUMMARIES[0], "lit": [["old road", 5], ["no such words", 1]]},
        {"documents": DOCUMENTS[2:], "summary": SUMMARIES[2], "lit": []},
    ]
    write_jsonl("own.jsonl", rows)
    command = ("evaluate", "-m", "model", "own.jsonl", "--max-length", "12", "--phrases-column", "lit")
    result = run(*command, "--predictions", "lit.jsonl", "--json", "scores.json")
    assert "1 phrases are not in their documents." in result.stderr
    assert json.loads(Path("scores.json").read_text())["truncation"]["missing_phrases"] == 1
    run(*command[:6], "--predictions", "plain.jsonl")
    lit, plain = (
        [json.loads(line)["summary"] for line in Path(name).read_text().splitlines()]
        for name in ("lit.jsonl", "plain.jsonl")
    )
    pipe = pipeline("summarization", model="model")
    asked = {"max_new_tokens": 12, "num_beams": 1}
    expected = [
        pipe(documents=row["documents"], phrases=row["lit"], **asked)[0]["summary_text"].strip() for row in rows
    ]
    assert [summary.strip() for summary in lit] == expected
    assert lit[0] != plain[0]
    # Also where the checkpoint says how users' summaries are written.
    config = json.loads(Path("model/config.json").read_text())
    config["task_specific_params"] = {"summarization": {"faithful": False}}
    Path("model/config.json").write_text(json.dumps(config))
    run(*command, "--predictions", "as_users.jsonl")
    written = [json.loads(line)["summary"] for line in Path("as_users.jsonl").read_text().splitlines()]
    assert [summary.strip() for summary in written] == expected
    rows[1]["lit"] = [["bridge", -1]]
    write_jsonl("own.jsonl", rows)
    assert "own.jsonl:2: column 'lit' must hold" in run(*command, code=2).stderr
    assert "'nope' is not a column" in run(*command[:7], "nope", code=2).stderr


def test_inspect():
    result = run("inspect", "-m", "model", "articles.jsonl", "--phrase", "second pillar=2", "-o", "where.html")
    assert "second pillar" in result.stdout
    assert "layer 1 head 1" in result.stdout
    page = Path("where.html").read_text(encoding="utf-8")
    assert "Highlighting: storm" in page
    assert "Nothing is highlighted" not in result.stderr
    assert "Nothing is highlighted." in run("inspect", "-m", "model", "articles.jsonl", "--phrase", "not there").stderr
    assert "Nothing is highlighted." in run("inspect", "-m", "model", "articles.jsonl").stderr
    assert "--top-k: " in run("inspect", "-m", "model", "articles.jsonl", "--top-k", "2", code=2).stderr
    assert "give a file in .html" in run("inspect", "-m", "model", "articles.jsonl", "-o", "a.png", code=2).stderr


def test_wrong_options_are_refused(tiny_model, processor):
    assert (
        "only JSON has a place" in run("summarize", "-m", "model", "articles.jsonl", "--show-phrases", code=2).stderr
    )
    wrongs = {"=1": "write TEXT", "road=-1": "0 or more", "road=nan": "0 or more", " ": "write TEXT"}
    for wrong, message in wrongs.items():
        assert message in run("summarize", "-m", "model", "articles.jsonl", "--phrase", wrong, code=2).stderr
    tiny_model.save_pretrained("hat")
    processor.save_pretrained("hat")
    assert "highlights nothing" in run("inspect", "-m", "hat", "articles.jsonl", "--phrase", "a", code=2).stderr
    record = {"documents": DOCUMENTS[:3], "phrases": [["second pillar", 0.5]], "summary": SUMMARIES[0]}
    Path("own.jsonl").write_text(json.dumps(record) + "\n")
    for command in ("inspect", "summarize", "evaluate"):
        result = run(command, "-m", "hat", "own.jsonl", "--phrases-column", "phrases", code=2)
        assert "HatBartForConditionalGeneration highlights nothing; leave it out" in result.stderr


def test_phrases_are_read():
    assert read_phrases(None) is None
    assert read_phrases(["old road=0.5", "a = b", "x=y=2", "plain"]) == [
        ["old road", 0.5],
        "a = b",
        ["x=y", 2.0],
        "plain",
    ]


def test_words_that_follow_one_another_share_brackets():
    text = "Two bridges were closed, in May."
    places = [(0, 3), (4, 11), (17, 23), (28, 31)]
    words = [{"start": start, "end": end} for start, end in places]
    assert _marked(text, words) == "[Two bridges] were [closed], in [May]."
    assert _marked(text, []) == text
    text = "It costs 3.5 to 1,200. 7 pay."
    words = [{"start": match.start(), "end": match.end()} for match in re.finditer(r"\w+", text)]
    assert _marked(text, words) == "[It costs 3.5 to 1,200]. [7 pay]."
