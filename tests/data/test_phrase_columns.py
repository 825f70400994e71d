"""The column with the user's own phrases: its forms, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from hier_models.data import BadLineError, load_documents, tokenize_documents
from hier_models.data.phrase_columns import read_phrases_column
from hier_models.models.processing_highlight_transformer import HighlightTransformerProcessor
from tests.conftest import DOCUMENTS


FORMS: list[Any] = [
    [["bridge", 0.5], [4, 10, 2], "road"],
    [{"text": "bridge", "value": 0.5}, {"start": 4, "end": 10, "value": 2}, {"text": "road"}],
    [{"text": "bridge", "start": None, "end": None, "value": 0.5}, [4, 10, 2.0], {"text": "road", "value": None}],
    json.dumps([["bridge", 0.5], [4, 10, 2], "road"]),
]
READ = [
    {"text": "bridge", "start": None, "end": None, "value": 0.5},
    {"text": None, "start": 4, "end": 10, "value": 2},
    {"text": "road", "start": None, "end": None, "value": None},
]


@pytest.mark.parametrize("value", FORMS)
def test_forms(value: Any) -> None:
    assert read_phrases_column(value) == READ


def test_none() -> None:
    assert read_phrases_column(None) is None
    assert read_phrases_column(" ") is None
    assert read_phrases_column([]) == []


@pytest.mark.parametrize(
    "value",
    [
        3,
        {"text": "a"},
        "a",
        '{"a": 1}',
        [3],
        [[]],
        [["a"]],
        [[1, 2]],
        [["a", "b", 1]],
        [["a", -1]],
        [["a", float("nan")]],
        [["a", "1"]],
        [[" ", 1]],
        [[-1, 2, 1]],
        [[0.5, 2, 1]],
        [[2, 2, 1]],
        [[3, 2, 1]],
        [["a", True]],
        [[False, True, 1]],
        [{"text": "a", "weight": 1}],
        [{"start": 1, "end": 2}],
    ],
)
def test_what_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"must hold a list of phrases: \[phrase, value\]"):
        read_phrases_column(value)


@pytest.mark.parametrize("streaming", [True, False])
def test_documents_with_phrases(tokenizer: PreTrainedTokenizerFast, tmp_path: Path, streaming: bool) -> None:
    file = tmp_path / "a.jsonl"
    lines = [
        {"text": text, "key": form} for text, form in zip(DOCUMENTS[:3], [FORMS[0], [], FORMS[0][1:2]], strict=True)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    documents = load_documents(file, phrases_column="key", streaming=streaming)
    assert [row["phrases"] for row in documents] == [READ, [], READ[1:2]]
    processor = HighlightTransformerProcessor(tokenizer)
    rows = list(tokenize_documents(documents, processor))
    expected = processor(text=DOCUMENTS[:3], phrases=[FORMS[0], [], FORMS[0][1:2]])
    assert [row["phrase_values"] for row in rows] == expected["phrase_values"]
    assert expected["phrase_values"][0] == [0.5, 2.0, 1.0]


def test_places_that_would_move_are_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """Phrases given as words are found wherever they are."""
    file, text = tmp_path / "a.jsonl", " ".join(DOCUMENTS * 4)

    def documents(row: dict[str, Any], **options: Any) -> Any:
        file.write_text(json.dumps(row) + "\n", encoding="utf-8")
        return load_documents(file, phrases_column="key", **options)

    words, places = [["bridge", 1]], [["bridge", 1], [0, 6, 1]]
    changed = {"text": f"um {text}", "key": words}
    assert documents(changed, fillers="english")["phrases"][0][0]["text"] == "bridge"
    moved = "has the start and end of a phrase, .*; give its words, or"
    with pytest.raises(BadLineError, match=f"column 'key' {moved} a source without these"):
        documents({**changed, "key": places}, fillers="english")
    assert documents({"text": text, "key": places}, fillers="english")["phrases"][0][1]["end"] == 6
    turns = [{"role": "A", "content": " "}, {"role": "B", "content": text}]
    with pytest.raises(BadLineError, match=f"column 'key' {moved} a source without these"):
        documents({"turns": turns, "key": places})
    processor = HighlightTransformerProcessor(tokenizer)
    condensed: dict[str, Any] = {"max_source_length": 64, "long_documents": "condense"}
    asked, query = {"max_source_length": 64}, {"query": "Who?", "id": "7"}
    for row, options, message in (
        ({"text": text}, condensed, f"that begins .* {moved} long_documents='cut'"),
        ({"text": text, **query}, asked, f"with id '7' {moved} no query"),
    ):
        named = {"query_column": "query"} if "query" in row else {}
        tokenize_documents(documents({**row, "key": words}, **named), processor, **options)
        found = documents({**row, "key": places}, **named)
        with pytest.raises(ValueError, match=message):
            tokenize_documents(found, processor, **options)
        tokenize_documents(found, tokenizer, **options)  # which highlights nothing
    short = documents({"text": "a bridge", "key": [[2, 8, 1]]})
    assert tokenize_documents(short, processor, **condensed)[0]["phrase_values"] == [1.0]


def test_bad_lines_and_columns(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a b", "key": [["a", 1]]}\n{"text": "a b", "key": [["a", -1]]}\n')
    with pytest.raises(BadLineError, match=r"line 2.*column 'key' must hold a list of phrases|:2: column 'key'"):
        load_documents(file, phrases_column="key")
    with pytest.raises(ValueError, match="phrases_column='keys' is not a column"):
        load_documents(file, phrases_column="keys")
