import json

import pytest

from hier_models.data import load_documents
from hier_models.experiments import run_extractive_evaluation
from hier_models.metrics import Rouge, RougeSu
from hier_models.pipelines import ExtractiveSummarizer
from tests.conftest import DOCUMENTS, SUMMARIES


@pytest.fixture
def documents(tmp_path):
    file = tmp_path / "test.jsonl"
    rows = [{"id": f"r{i}", "text": DOCUMENTS[i], "summary": SUMMARIES[i]} for i in range(4)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return load_documents(file)


def test_the_summaries_are_scored_as_those_of_models_are(documents, tmp_path):
    summarizer = ExtractiveSummarizer("lexrank", max_words=15)
    results = run_extractive_evaluation(
        summarizer, documents, predictions_file=tmp_path / "p.jsonl", results_file=tmp_path / "r.json"
    )
    summaries = [summarizer(text=text) for text in DOCUMENTS]
    texts = {"predictions": summaries, "references": SUMMARIES, "use_stemmer": True}
    rouge = Rouge().compute(**texts, sentence_splitter="punkt")
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        assert results[name] == pytest.approx(100 * rouge[name])
    assert results["rougeSU4"] == pytest.approx(100 * RougeSu().compute(**texts)["rougeSU4"])
    assert results["gen_words"] == sum(len(summary.split()) for summary in summaries) / 4
    assert results["documents"] == 4
    assert results["extractive"] == {"method": "lexrank", "max_words": 15, "language": "english"}
    assert results["settings"]["use_stemmer"] is True
    assert results["settings"]["rougeSU4"]["formula"] == "ROUGE-1.5.5 -2 4 -u"
    assert json.loads((tmp_path / "r.json").read_text()) == results
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()]
    expected = zip(summaries, SUMMARIES, strict=True)
    assert rows == [{"id": f"r{i}", "summary": a, "reference": b} for i, (a, b) in enumerate(expected)]


def test_documents_without_references_are_refused(documents):
    with pytest.raises(ValueError, match="dataset must have a column 'summary'"):
        run_extractive_evaluation(ExtractiveSummarizer(), documents.remove_columns("summary"))
