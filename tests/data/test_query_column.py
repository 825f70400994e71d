"""The column with what a summary is to answer: how it is read, and where a query stands in what is trained on."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from hier_models.data import BadLineError, load_documents, tokenize_documents
from hier_models.models.processing_hat_bart import HatBartProcessor
from hier_models.training import RecipeError, load_recipe, run_smoke
from hier_models.training.tasks.summarization import SummarizationTask
from tests.conftest import DOCUMENTS, TURNS


RECIPES = Path(__file__).parents[2] / "examples" / "recipes"


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("streaming", [True, False])
def test_documents_with_queries(tmp_path: Path, streaming: bool) -> None:
    rows = [{"text": "a b"}, {"text": "a b", "query": "Who?"}, {"text": "a b", "query": " "}]
    file = write(tmp_path / "a.jsonl", *rows, {"text": "a b", "query": None})
    found = load_documents(file, query_column=None, streaming=streaming)
    assert [row["query"] for row in found] == [None, "Who?", None, None]  # also where the first record has none
    assert "query" not in next(iter(load_documents(file, streaming=streaming)))
    named = write(tmp_path / "b.jsonl", {"text": "a b", "asked": "Who?"})
    assert load_documents(named, query_column="asked")[0] == {"text": "a b", "query": "Who?"}


def test_mistakes(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", {"text": "a b", "query": 5})
    with pytest.raises(BadLineError, match="column 'query' must hold a string, or null where nothing is asked"):
        load_documents(file, query_column="query")
    with pytest.raises(ValueError, match="query_column='asked' is not a column"):
        load_documents(file, query_column="asked")
    # A column of that name may be what is summarized.
    source = write(tmp_path / "b.jsonl", {"query": "Where is my parcel? It was sent in May."})
    assert load_documents(source, text_column="query", query_column=None).column_names == ["text"]


def test_the_query_stands_before_its_document(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    summary = {"summary": "Nobody."}
    processor = HatBartProcessor(tokenizer)
    asked = [{"role": "Question", "content": "Who is there?"}]
    for name, value, expected in (
        ("text", DOCUMENTS[0], f"Question: Who is there?\n\n{DOCUMENTS[0]}"),
        ("sentences", DOCUMENTS, ["Question: Who is there?", *DOCUMENTS]),
        ("documents", DOCUMENTS, ["Question: Who is there?", *DOCUMENTS]),
        ("turns", TURNS, [*asked, *TURNS]),
    ):
        rows = [{name: value, **summary, "query": "Who is there?"}, {name: value, **summary, "query": ""}]
        documents = load_documents(write(tmp_path / f"{name}.jsonl", *rows), query_column="query")
        whole = load_documents(write(tmp_path / f"{name}2.jsonl", *({name: v, **summary} for v in (expected, value))))
        for encoder in (processor, tokenizer):
            made, same = (tokenize_documents(rows, encoder, max_source_length=64) for rows in (documents, whole))
            assert made.to_list() == same.to_list()
            assert made[0]["input_ids"] != made[1]["input_ids"]


def test_recipes_refuse_what_does_not_fit(tmp_path: Path) -> None:
    changes = {"query_column": "query", "phrases_column": "phrases", "use_cpu": True}
    recipe = load_recipe(RECIPES / "hat_bart" / "ami.yaml", changes)
    with pytest.raises(RecipeError, match="leave out query_column"):
        SummarizationTask(recipe, tmp_path).check()
    tagger = RECIPES / "top_down_transformer" / "tagger.yaml"
    with pytest.raises(RecipeError, match="query_column means nothing to importance_tagging"):
        run_smoke(tagger, {"output_dir": str(tmp_path / "run"), "query_column": "query"})


@pytest.mark.slow
def test_what_is_trained_with_queries_reads_them(tmp_path: Path) -> None:
    changes = {"output_dir": str(tmp_path / "run"), "query_column": "asked"}
    run_smoke(RECIPES / "hat_bart" / "ami.yaml", changes)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["task_specific_params"]["summarization"]["reads_query"] is True
