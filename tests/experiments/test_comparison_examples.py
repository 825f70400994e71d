"""What the models of a comparison write, chosen by a rule."""

import json

import numpy as np
import pytest

from hier_models.experiments.comparison_examples import choose_documents, write_examples
from hier_models.metrics import DocumentScores
from hier_models.metrics.document_scores import means


def scores(values, keys=None):
    return DocumentScores(keys or [f"d{number}" for number in range(len(values))], means({"rouge1": values}))


def test_documents_a_quarter_half_and_three_quarters_up():
    of_both = dict.fromkeys("ab", scores([0.9, 0.1, 0.5, 0.3, 0.7]))
    found = choose_documents(of_both, "rouge1")
    assert [key for key, _ in found] == ["d3", "d2", "d4"]
    assert found[0][1] == {"a": 0.3, "b": 0.3}


def test_the_mean_of_all_variants_decides_and_only_what_all_scored():
    of_both = {"a": scores([0.0, 0.8, 0.4]), "b": scores([0.9, 0.9, 0.0, 0.2], ["d1", "x", "d2", "d0"])}
    # means: d0 0.1, d1 0.85, d2 0.2
    assert [key for key, _ in choose_documents(of_both, "rouge1")] == ["d0", "d2", "d1"]
    assert choose_documents({"a": scores([0.1]), "b": scores([0.2], ["other"])}, "rouge1") == []


def test_few_documents_are_taken_once_and_those_without_the_score_never():
    """As quatrains of seven characters have no score of those of five."""
    assert [key for key, _ in choose_documents({"a": scores([0.3])}, "rouge1")] == ["d0"]
    found = choose_documents({"a": scores([0.5, np.nan, 0.2, np.nan])}, "rouge1")
    assert [key for key, _ in found] == ["d2", "d0"]
    assert choose_documents({"a": scores([np.nan])}, "rouge1") == []


def test_examples_are_side_by_side(tmp_path):
    keys = ["k0", "k1", "k2"]
    for name, words in (("a", "short"), ("b", "long and short")):
        rows = [
            {"id": f"paper {number}", "summary": f"{words} {number}", "reference": f"what it says\n{number}"}
            for number in range(3)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    of_variants = {"a": scores([0.1, 0.2, 0.3], keys), "b": scores([0.2, 0.3, 0.4], keys)}
    files = {name: tmp_path / f"{name}.jsonl" for name in "ab"}
    write_examples(tmp_path / "examples.md", "Which writes?", "rouge1", 7, of_variants, files)
    text = (tmp_path / "examples.md").read_text()
    assert text.startswith("# Which writes?\n\nThree test documents, chosen by a rule")
    assert "(seed 7)" in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## paper 0", "## paper 1", "## paper 2"]
    assert "reference:\n\n> what it says 1" in text
    assert text.count("> what it says 1") == 1
    assert "### b (rouge1 0.300)\n\nsummary:\n\n> long and short 1" in text


def test_what_all_wrote_alike_is_theirs(tmp_path):
    row = {"question": "Capital?", "references": ["Paris"], "prediction": "Paris"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    of_variants = dict.fromkeys("ab", scores([1.0], ["k"]))
    write_examples(tmp_path / "e.md", "?", "rouge1", 1, of_variants, dict.fromkeys("ab", tmp_path / "a.jsonl"))
    text = (tmp_path / "e.md").read_text()
    assert "\nOne test document, chosen by a rule" in text
    assert text.count("prediction:\n\n> Paris") == 2
    assert text.count("question:") == text.count("references:") == 1


def test_a_line_of_a_summary_may_end_as_lines_of_the_file_do_not(tmp_path):
    rows = [{"summary": f"one\u2028two\x85{number}", "reference": "three"} for number in range(3)]
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(content, encoding="utf-8")
    write_examples(tmp_path / "e.md", "?", "rouge1", 1, {"a": scores([0.1, 0.2, 0.3])}, {"a": tmp_path / "a.jsonl"})
    assert (tmp_path / "e.md").read_text(encoding="utf-8").count("two") == 3


def test_questions_without_an_answer_have_no_score(tmp_path):
    rows = [{"prediction": "x", "references": []}, {"prediction": "north", "references": ["north"]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_examples(tmp_path / "e.md", "?", "rouge1", 1, {"a": scores([0.5], ["k"])}, {"a": tmp_path / "a.jsonl"})
    assert "> north" in (tmp_path / "e.md").read_text()
    assert "> x" not in (tmp_path / "e.md").read_text()
    with pytest.raises(ValueError, match="shorter"):
        write_examples(tmp_path / "e.md", "?", "rouge1", 1, {"a": scores([0.5, 0.1])}, {"a": tmp_path / "a.jsonl"})
