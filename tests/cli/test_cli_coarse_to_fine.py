"""What the commands do with a Coarse-to-Fine LSTM."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hier_models import CoarseToFineLstmProcessor
from hier_models.cli.reporting import ROUGE_NAMES, selected_rows_table
from hier_models.inspection import row_entropy
from tests.cli.commands import run, write_jsonl
from tests.conftest import DOCUMENTS, SUMMARIES


@pytest.fixture(autouse=True)
def checkpoints(coarse_model: Any, word_tokenizer: Any, workplace: Path) -> None:
    for attention in ("standard", "hard"):
        coarse_model(attention).save_pretrained(attention)
        CoarseToFineLstmProcessor(word_tokenizer).save_pretrained(attention)
    rows = [
        {"id": f"d{i}", "text": text, "summary": f"{SUMMARIES[i]}\nRoom 12 ."} for i, text in enumerate(DOCUMENTS[:3])
    ]
    write_jsonl("data.jsonl", rows)


@pytest.mark.parametrize("attention", ["standard", "hard"])
def test_inspect_draws_rows_and_words(attention: str) -> None:
    result = run("inspect", "-m", attention, "data.jsonl", "--document", "2", "--max-length", "6")
    page = Path("attention.html").read_text(encoding="utf-8")
    assert "5 sentences" in page
    assert "bees find their way home by the sun." in page
    assert result.stdout.strip() in page


def test_inspect_shows_all_rows() -> None:
    result = run("inspect", "-m", "hard", "data.jsonl", "--top-k", "2", code=2)
    assert "top_k: got 2; the weights of a CoarseToFineLstm" in result.output


def test_analyze_measures_entropy(coarse_model: Any, coarse_processor: Any) -> None:
    pytest.importorskip("matplotlib")
    arguments = ("data.jsonl", "-m", "standard", "-m", "hard", "-o", "report", "--heatmaps", "1", "--max-length", "6")
    result = run("analyze", *arguments)
    entropy = json.loads(Path("report/entropy.json").read_text(encoding="utf-8"))
    assert list(entropy) == ["standard", "hard"]
    lines = Path("report/summaries-hard.jsonl").read_text(encoding="utf-8").splitlines()
    written = [({"text": DOCUMENTS[i]}, json.loads(line)["summary"]) for i, line in enumerate(lines)]
    expected = row_entropy(coarse_model("hard"), coarse_processor, written)
    assert entropy["hard"] == pytest.approx(vars(expected), rel=1e-5)
    pattern = r"hard: entropy ([\d.]+) of the attention over rows \(uniform: [\d.]+\); (\d+)% of the rows read"
    shown = re.search(pattern, result.stdout)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(expected.entropy, abs=0.006)
    assert int(shown[2]) == pytest.approx(100 * expected.encoded_rows / expected.rows, abs=0.51)
    assert "standard: entropy" in result.stdout
    assert result.stdout.count("of the rows read") == 1
    for name in ("standard", "hard"):
        assert Path(f"report/attention-{name}-1.html").is_file()
    assert "entropy.json in report" in result.stderr


def test_evaluate_with_several_references_digits_and_perplexity() -> None:
    arguments = ("evaluate", "-m", "hard", "data.jsonl", "--several-references", "--digits", "#", "--perplexity", "20")
    result = run(*arguments, "--max-length", "6", "--json", "scores.json", "--predictions", "out.jsonl")
    scores = json.loads(Path("scores.json").read_text(encoding="utf-8"))
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["perplexity", f"{scores['perplexity']:.2f}"] in lines
    assert [*["…", "with", "another", "source"], f"{scores['perplexity_of_another_source']:.2f}"] in lines
    assert json.loads(Path("out.jsonl").read_text().splitlines()[0])["references"] == [SUMMARIES[0], "Room ## ."]


def test_the_first_sentence_is_a_baseline() -> None:
    arguments = ("evaluate", "-m", "lead", "data.jsonl", "--max-sentences", "1", "--several-references")
    run(*arguments, "--json", "scores.json", "--predictions", "out.jsonl")
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [line["summary"] for line in lines] == [document.split(". ")[0] + "." for document in DOCUMENTS[:3]]
    assert json.loads(Path("scores.json").read_text())["extractive"]["max_sentences"] == 1
    summary = run("summarize", "-m", "lead", "data.jsonl", "--max-sentences", "2", "--json").stdout.splitlines()[0]
    assert json.loads(summary)["summary"].count(".") == 2
    assert (
        "--max-sentences does not go with"
        in run("evaluate", "-m", "hard", "data.jsonl", "--max-sentences", "1", code=2).output
    )
    assert (
        "--perplexity does not go with"
        in run("evaluate", "-m", "lead", "data.jsonl", "--perplexity", "9", code=2).output
    )


def test_summarize() -> None:
    record = json.loads(
        run("summarize", "-m", "hard", "data.jsonl", "--json", "--max-length", "6").stdout.splitlines()[0]
    )
    assert record["id"] == "d0"


def test_evaluate_with_several_numbers_of_rows(coarse_model: Any) -> None:
    coarse_model("coarse_to_fine").save_pretrained("hard")  # beside the processor: a soft model is read as a hard one
    arguments = ("evaluate", "data.jsonl", "-m", "hard", "--max-length", "6", "--perplexity", "20")
    shown = run(*arguments, "--selected-rows", "1", "3", "--json", "scores.json").stdout.splitlines()
    scores = json.loads(Path("scores.json").read_text(encoding="utf-8"))["selected_rows"]
    assert [found["selected_rows"] for found in scores] == [1, 3]
    assert scores[0]["encoded_rows"] < scores[1]["encoded_rows"] <= scores[1]["rows"]
    assert all(found["seconds"] > 0 for found in scores)
    assert len(shown) == 4
    assert "rows read" in shown[0]
    assert [line.split()[1] for line in shown[2:]] == ["1", "3"]
    for number, found in zip((1, 3), scores, strict=True):
        coarse_model("hard", selected_rows=number).save_pretrained("hard")
        run(*arguments, "--json", "alone.json")
        alone = json.loads(Path("alone.json").read_text(encoding="utf-8"))
        for name in ("rouge1", "rougeSU4", "perplexity", "gen_len"):
            assert found[name] == pytest.approx(alone[name]), name


def test_scores_of_models_are_shown_for_each_number_of_rows() -> None:
    costs = {"encoded_rows": 2, "rows": 3, "documents": 1, "seconds": 1.0}
    scores = dict.fromkeys(ROUGE_NAMES, 1.0) | {"bert_score": 77.0, "entailment": 33.0}
    header, _, row = selected_rows_table([{"selected_rows": 1, **scores, **costs}]).splitlines()
    found = dict(zip(map(str.strip, header.split("|")), map(str.strip, row.split("|")), strict=True))
    assert (found["BERTScore"], found["entailed (NLI)"]) == ("77.00", "33.00")


def test_other_models_have_no_rows_to_select(checkpoint: str) -> None:
    standard = run("evaluate", "data.jsonl", "-m", "standard", "--selected-rows", "1", code=2).output
    assert "CoarseToFineLstmForConditionalGeneration has attention='standard'" in " ".join(standard.split())
    other = run("evaluate", "data.jsonl", "-m", checkpoint, "--selected-rows", "1", "2", code=2).output
    assert "--selected-rows: selected_rows is for a Coarse-to-Fine LSTM" in " ".join(other.split())
    lead = run("evaluate", "data.jsonl", "-m", "lead", "--selected-rows", "2", code=2).output
    assert "--selected-rows does not go with" in " ".join(lead.split())
    both = run("evaluate", "data.jsonl", "-m", "hard", "--selected-rows", "2", "--predictions", "o.jsonl", code=2)
    assert "--predictions: not with --selected-rows" in " ".join(both.output.split())
