"""Rows of questions on one context or on several documents."""

import json

import pytest

from hier_models.data.columns import BadRecord
from hier_models.data.loading import load_rows
from hier_models.data.reading_comprehension_rows import nearest_span, resolve_reading


SQUAD = {
    "id": "1",
    "question": "Who wrote it?",
    "context": "It was written by Ada in May.",
    "answers": {"text": ["Ada", "by Ada"], "answer_start": [18, 15]},
}
MARCO = {
    "query_id": 7,
    "query": "who wrote it",
    "passages": {"passage_text": ["Nobody knows.", "It was written by Ada Byron, in May."], "is_selected": [0, 1]},
    "answers": ["Ada Byron wrote it"],
}
DUREADER = {
    "question_id": 9,
    "question": "谁写的",
    "segmented_question": ["谁", "写", "的"],
    "documents": [
        {"title": "a", "segmented_paragraphs": [["天气", "好"], ["书", "写", "的", "早"]], "most_related_para": 1},
        {"title": "b", "segmented_paragraphs": [["是", "小明", "写", "的"]], "most_related_para": 0},
    ],
    "answers": ["小明写的"],
    "segmented_answers": [["小明", "写", "的"]],
    "answer_docs": [1],
    "answer_spans": [[1, 3]],
}


def normalize(row, **columns):
    return resolve_reading(row, **columns).normalize(row)


def assert_answer_stands_there(found):
    joined = "\n".join(found["documents"])
    for text, start in zip(found["answers"]["text"], found["answers"]["answer_start"], strict=True):
        assert joined[start : start + len(text)] == text


def test_squad():
    found = normalize(SQUAD)
    assert found["documents"] == [SQUAD["context"]]
    assert found["references"] == ["Ada", "by Ada"]
    assert found["answers"] == {"text": ["Ada"], "answer_start": [18]}
    assert found["id"] == "1"


@pytest.mark.parametrize(("starts", "answer"), [([18, 3], ("Ada", 18)), ([3, 15], ("by Ada", 15))])
def test_an_answer_in_a_wrong_place_beside_one_that_fits(starts, answer):
    """CMRC 2018 has some; the text is still an answer to be scored against."""
    found = normalize({**SQUAD, "answers": {"text": ["Ada", "by Ada"], "answer_start": starts}})
    assert found["references"] == ["Ada", "by Ada"]
    assert found["answers"] == {"text": [answer[0]], "answer_start": [answer[1]]}
    assert found["misplaced_answers"] == 1


def test_a_row_of_which_no_answer_fits_is_refused():
    row = {**SQUAD, "answers": {"text": ["Ada", "by Ada"], "answer_start": [3, 4]}}
    with pytest.raises(BadRecord, match="the answer 'Ada' is not at character 3 of the context; it is at 18"):
        normalize(row)
    with pytest.raises(BadRecord, match="must be a string that is not empty"):
        normalize({**SQUAD, "answers": {"text": ["Ada", ""], "answer_start": [18, 0]}})


def test_dureader_s_paragraphs_of_questions_to_be_scored_know_no_answer():
    """The data name paragraphs by the answers; DuReader's own code reads those only in training."""
    near = {
        "title": "c",
        "segmented_paragraphs": [["书", "写", "的", "早"], ["谁", "写", "的", "呢"], ["谁", "写", "的"]],
    }
    row = {**DUREADER, "documents": [DUREADER["documents"][1], {**near, "most_related_para": 0}], "answer_docs": [0]}
    assert normalize(row)["documents"] == ["是 小明 写 的", "书 写 的 早"]
    found = normalize(row, named_paragraphs=False)
    assert found["documents"] == ["是 小明 写 的", "谁 写 的"]  # of equally near ones the shorter
    assert found["answers"]["text"] == ["小明 写 的"]
    assert_answer_stands_there(found)


def test_ms_marco():
    found = normalize(MARCO)
    assert found["documents"] == MARCO["passages"]["passage_text"]
    assert found["references"] == ["Ada Byron wrote it"]
    assert found["answers"]["text"] == ["Ada Byron,"]
    assert_answer_stands_there(found)
    nothing = normalize({**MARCO, "answers": ["No Answer Present."]})
    assert nothing["references"] == []
    assert nothing["answers"] == {"text": [], "answer_start": []}


def test_dureader():
    found = normalize(DUREADER)
    assert found["documents"] == ["书 写 的 早", "是 小明 写 的"]
    assert found["question"] == "谁 写 的"
    assert found["answers"]["text"] == ["小明 写 的"]
    assert found["references"] == ["小明写的"]
    assert_answer_stands_there(found)


def test_dureader_without_spans():
    raw = {name: value for name, value in DUREADER.items() if name not in ("answer_docs", "answer_spans")}
    for document in raw["documents"]:
        assert "most_related_para" in document
    raw["documents"] = [
        {name: value for name, value in document.items() if name != "most_related_para"}
        for document in raw["documents"]
    ]
    found = normalize(raw)
    assert found["documents"] == ["书 写 的 早", "是 小明 写 的"]
    assert found["answers"]["text"] == ["小明 写 的"]
    assert_answer_stands_there(found)


@pytest.mark.parametrize("own", [[1, None], [1.0]])
def test_the_first_document_of_dureaders_answer_counts(own):
    assert normalize({**DUREADER, "answer_docs": own}) == normalize(DUREADER)


def test_documents_of_dureader_that_are_null_are_passed_over():
    row = {**DUREADER, "documents": [{"segmented_paragraphs": None}, *DUREADER["documents"]], "answer_docs": [2]}
    assert normalize(row) == normalize(DUREADER)


def test_nearest_span():
    assert nearest_span(["the cat sat", "a dog ran home"], ["The dog ran."]) == ("dog ran", 14)
    assert nearest_span(["the cat sat"], ["blue"]) is None
    assert nearest_span([], ["blue"]) is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**SQUAD, "answers": {"text": ["Bob"], "answer_start": [18]}}, "is not at character 18"),
        ({**SQUAD, "answers": {"text": ["Bob"], "answer_start": None}}, "is not in the context"),
        ({**SQUAD, "context": " "}, "context"),
        ({**MARCO, "passages": {"passage_text": [" "]}}, "no passage with text"),
        ({**MARCO, "answers": "Ada"}, "must hold a list of strings"),
        ({**DUREADER, "answer_spans": [[1, 9]]}, "outside of the document's 4 words"),
        (
            {**DUREADER, "answer_spans": [[0]]},
            r"answer_spans: must be the first and the last word of an answer, got \[0\]",
        ),
        ({**DUREADER, "answer_spans": [None]}, "'answer_spans' must hold whole numbers"),
        ({**DUREADER, "answer_spans": [["0", "1"]]}, "'answer_spans' must hold whole numbers"),
        ({**DUREADER, "answer_spans": 3}, "'answer_spans' must hold a list"),
        ({**DUREADER, "answer_docs": 3}, "'answer_docs' must hold a list"),
        ({**DUREADER, "answer_docs": [[1]]}, "'answer_docs' must hold whole numbers"),
        ({**DUREADER, "answer_spans": None, "segmented_answers": [["a"], None]}, "'segmented_answers' must hold a"),
        ({**DUREADER, "segmented_question": [None]}, "'segmented_question' must hold a list"),
        ({**DUREADER, "documents": [{"segmented_paragraphs": None}]}, "no document with text"),
        ({**DUREADER, "documents": [{"segmented_paragraphs": 3}]}, "'segmented_paragraphs' must hold a list"),
        ({**DUREADER, "documents": [{"segmented_paragraphs": [["a"], [3]]}]}, "'documents' must hold a list"),
    ],
)
def test_bad_rows(row, message):
    with pytest.raises(BadRecord, match=message):
        normalize(row)


@pytest.mark.parametrize(
    ("first", "column", "value", "message"),
    [
        *((MARCO, "passages", value, "'passages' must hold passages with") for value in (None, "Ada", {}, ["Ada"])),
        *(
            (DUREADER, "documents", value, "'documents' must hold a list of documents")
            for value in (None, [None], "x")
        ),
    ],
)
def test_later_rows_of_other_types(first, column, value, message):
    with pytest.raises(BadRecord, match=message):
        resolve_reading(first).normalize({**first, column: value})


def test_columns_that_are_not_there():
    with pytest.raises(ValueError, match="answers_column='gold' is not a column"):
        resolve_reading(MARCO, answers_column="gold")
    with pytest.raises(ValueError, match="answers_column must name the answers"):
        resolve_reading(SQUAD, answers_column="")


@pytest.mark.parametrize("row", [SQUAD, MARCO, DUREADER], ids=["squad", "ms_marco", "dureader"])
def test_loading(row, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    rows = load_rows(file, resolve_reading)
    assert rows[0]["documents"] == normalize(row)["documents"]


def test_a_span_must_share_enough_with_an_answer():
    assert nearest_span(["x a y"], ["a b c d e"]) == ("a", 2)  # F1 of a third
    assert nearest_span(["x a y"], ["a b c d e f"]) is None  # 2 / 7
