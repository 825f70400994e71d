"""`hier-models translate`, and the evaluation of translators."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import pipeline

from hier_models import HatBartForConditionalGeneration, HatBartProcessor
from tests.cli.commands import jsonl, mistake, run, write_jsonl
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


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
    # What a record asks is for summaries.
    rows = ({"text": "Hello."}, {"text": "Hello.", "query": "What?"})
    plain, asked = (run("translate", "-m", checkpoint, stdin=json.dumps(row)).stdout for row in rows)
    assert plain == asked
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
    write_jsonl("pairs.jsonl", rows)
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
