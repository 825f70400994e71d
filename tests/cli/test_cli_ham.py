"""HAM for what is no poem: summaries and translations, with both bodies, from training to the pipeline."""

import json
from pathlib import Path

import pytest
from transformers import pipeline

from tests.cli.commands import run, write_jsonl
from tests.conftest import DOCUMENTS, SUMMARIES


SIZES = {"d_model": 8, "attention_depth": 2, "dropout": 0.0}
LAYERS = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
BODIES = {"gru": SIZES, "transformer": {**SIZES, **LAYERS, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}}


def train(body: str, task: str, *arguments: str) -> None:
    overrides = json.dumps({"body": body, **BODIES[body]})
    lengths = ["--max_source_length", "60", "--max_target_length", "12", "--max_length", "8"]
    run("train", "--model_type", "ham", "--task", task, "--config_overrides", overrides, *lengths, "--max_steps", "1",
        "--use_cpu", "--report_to", "none", "--save_strategy", "no", "--output_dir", "run", *arguments)  # fmt: skip


def write(rows: list[dict[str, object]]) -> list[str]:
    write_jsonl("data.jsonl", rows)
    return ["--train", "data.jsonl", "--validation", "data.jsonl"]


@pytest.mark.parametrize("body", BODIES)
def test_summaries(body):
    rows = [{"text": text, "summary": summary} for text, summary in zip(DOCUMENTS[:3], SUMMARIES, strict=False)]
    train(body, "summarization", "--tokenizer_words", "60", *write(rows))
    Path("text.txt").write_text(DOCUMENTS[0], encoding="utf-8")
    printed = run("summarize", "-m", "run", "text.txt", "--max-length", "8", "--device", "cpu").stdout
    found = pipeline("summarization", model="run", device="cpu")(DOCUMENTS[0], max_new_tokens=8)
    assert printed.split() == found[0]["summary_text"].split()
    assert "rougeLsum" in run("evaluate", "-m", "run", "data.jsonl", "--device", "cpu", "--perplexity", "12").stdout


@pytest.mark.parametrize("body", BODIES)
def test_translations(body):
    sources = [text.split(". ") for text in DOCUMENTS[:3]]
    rows = [{"source": sentences, "target": [sentence.upper() for sentence in sentences]} for sentences in sources]
    train(body, "translation", "--bpe_codes", "60", "--source_language", "en", *write(rows))
    Path("text.txt").write_text(DOCUMENTS[0], encoding="utf-8")
    printed = run("translate", "-m", "run", "text.txt", "--device", "cpu").stdout
    found = pipeline("translation", model="run", device="cpu")(DOCUMENTS[0])
    assert printed.split() == found[0]["translation_text"].split()
    assert "d-BLEU" in run("evaluate", "-m", "run", "data.jsonl", "--device", "cpu").stdout


def test_the_gru_body_has_no_longest_source():
    rows = [{"text": text, "summary": summary} for text, summary in zip(DOCUMENTS[:3], SUMMARIES, strict=False)]
    train("gru", "summarization", "--tokenizer_words", "60", *write(rows), "--max_source_length", "1100")
    summarize = pipeline("summarization", model="run", device="cpu")
    text = "A bridge is closed. " * 400
    for asked in ({}, {"max_source_length": 2000}):
        (found,) = summarize(text, max_new_tokens=4, truncation=True, return_truncation=True, **asked)
        assert bool(found["num_truncated_tokens"]) == bool(asked)
