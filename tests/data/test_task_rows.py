import csv
import io
import json

import datasets
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from hier_models.data import BadLineError, LoadReport
from hier_models.data.columns import BadRecord
from hier_models.data.loading import load_rows
from hier_models.data.task_rows import resolve_choices, resolve_pairs, resolve_questions


CONTEXT = "Marta lights the oven at four. Paul brings the flour."


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def question(answers, **changes):
    return {"id": "q", "title": "t", "question": "When?", "context": CONTEXT, "answers": answers, **changes}


# Questions


@pytest.mark.parametrize(
    ("answers", "texts", "starts"),
    [
        ({"text": ["at four", "four"], "answer_start": [22, 25]}, ["at four", "four"], [22, 25]),
        ({"text": [], "answer_start": []}, [], []),
        ([{"text": "four", "answer_start": 25}], ["four"], [25]),
        ([], [], []),
        ({"text": ["the"], "answer_start": [43]}, ["the"], [43]),  # the second one
        ({"text": ["the"]}, ["the"], [13]),  # without a place, the first one
        ('{"text": ["four"], "answer_start": [25]}', ["four"], [25]),  # a CSV cell
    ],
)
def test_answers_of_every_shape(answers, texts, starts):
    row = question(answers)
    found = resolve_questions(row).normalize(row)
    assert found == {
        "id": "q",
        "question": "When?",
        "context": CONTEXT,
        "answers": {"text": texts, "answer_start": starts},
    }
    assert all(CONTEXT[start:].startswith(text) for text, start in zip(texts, starts, strict=True))


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"text": ["at four"], "answer_start": [21]}, "the answer 'at four' is not at character 21.*it is at 22"),
        ({"text": ["at five"], "answer_start": [22]}, "the answer 'at five' is not at character 22.*it is nowhere"),
        ({"text": ["at five"]}, "the answer 'at five' is not in the context"),
        ({"text": ["four"], "answer_start": [-28]}, "not at character -28"),
        ({"text": ["four"], "answer_start": ["25"]}, "answer_start must be a number of characters, got '25'"),
        ({"text": ["four"], "answer_start": [25, 3]}, "lists of the same length"),
        (
            {"text": [""], "answer_start": [0]},
            "an answer must be a string that is not empty.*no answer is an empty list",
        ),
        ({"text": "four", "answer_start": 25}, "must hold answers as"),
        ("four", "must hold answers as .*got a value of type str"),
        (None, "must hold answers as .*got nothing"),
    ],
)
def test_answers_that_cannot_be_used(answers, message):
    row = question(answers)
    with pytest.raises(BadRecord, match=message):
        resolve_questions(row).normalize(row)


def test_answers_that_are_not_in_the_context_are_counted_and_set_aside(tmp_path):
    rows = [
        question({"text": ["four"], "answer_start": [25]}, id="good"),
        question({"text": ["noon"], "answer_start": [25]}, id="nowhere"),
        question({"text": ["four"], "answer_start": [24]}, id="shifted"),
        question({"text": [], "answer_start": []}, id="none"),
    ]
    source = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(BadLineError, match=r"a.jsonl:2: column 'answers': the answer 'noon' is not at character 25"):
        load_rows(source, resolve_questions)
    report = LoadReport()
    aside = tmp_path / "aside.jsonl"
    loaded = load_rows(source, resolve_questions, bad_lines="set_aside", set_aside_file=aside, report=report)
    assert loaded["id"][:] == ["good", "none"]
    assert loaded[1]["answers"] == {"text": [], "answer_start": []}
    assert report.set_aside == 2
    reasons = [json.loads(line)["reason"] for line in aside.read_text(encoding="utf-8").splitlines()]
    assert ["nowhere" in reason for reason in reasons] == [True, False]


def test_questions_from_csv(tmp_path):
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerows(
        [["Question", "Passage", "Answers"], ["When?", CONTEXT, '{"text": ["four"]}'], ["Who?", CONTEXT, "[]"]]
    )
    (tmp_path / "a.csv").write_text(stream.getvalue(), encoding="utf-8")
    rows = load_rows(tmp_path / "a.csv", resolve_questions)
    assert [row["text"] for row in rows["answers"]] == [["four"], []]
    assert "id" not in rows.column_names


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            "question",
            "cannot tell which column holds the question: none has a known name .*Name it with question_column",
        ),
        ("context", "cannot tell which column holds the context"),
        ("answers", "cannot tell which column holds the answers"),
    ],
)
def test_missing_columns_of_questions(missing, message):
    row = question({"text": [], "answer_start": []})
    del row[missing]
    with pytest.raises(ValueError, match=message):
        resolve_questions(row)


def test_columns_of_questions_that_are_named():
    row = {"q": "When?", "c": CONTEXT, "a": {"text": []}, "question": 1, "context": 2}
    found = resolve_questions(row, "q", "c", "a").normalize(row)
    assert (found["question"], found["context"]) == ("When?", CONTEXT)
    with pytest.raises(ValueError, match="question_column='x' is not a column; the columns are 'q', 'c'"):
        resolve_questions(row, "x", "c", "a")
    assert "answers" not in resolve_questions(row, "q", "c", "").normalize(row)
    with pytest.raises(BadRecord, match="column 'question' must hold a string"):
        resolve_questions(row, None, "c", "a").normalize(row)


# Texts with a label


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"premise": "A.", "hypothesis": "B.", "label": 1}, ("A.", "B.", "1")),
        ({"sentence1": "A.", "sentence2": "B.", "gold_label": "neutral"}, ("A.", "B.", "neutral")),
        ({"sentence1": "A.", "sentence2": "B.", "gold_label": "-"}, ("A.", "B.", None)),
        ({"premise": "A.", "hypothesis": "B.", "label": -1}, ("A.", "B.", None)),
        ({"premise": "A.", "hypothesis": "B.", "label": "-1"}, ("A.", "B.", None)),
        ({"text": "A.", "label": "x"}, ("A.", None, "x")),
    ],
)
def test_texts_with_labels(row, expected):
    found = resolve_pairs(row).normalize(row)
    assert (found["text"], found.get("text_pair"), found["label"]) == expected
    assert set(resolve_pairs(row).features) == set(found)


def test_a_label_that_the_recipe_names_is_one():
    row = {"text": "A.", "label": -1}
    assert resolve_pairs(row, classes=["-1", "1"]).normalize(row)["label"] == "-1"
    assert resolve_pairs(row, classes=["no", "yes"]).normalize(row)["label"] is None


@pytest.mark.parametrize("label", [None, 1.5, True, ["a"]])
def test_labels_that_cannot_be_used(label):
    row = {"premise": "A.", "hypothesis": "B.", "label": label}
    with pytest.raises(BadRecord, match="column 'label' must hold a label"):
        resolve_pairs(row).normalize(row)


def test_missing_columns_of_pairs():
    with pytest.raises(ValueError, match=r"cannot tell which column holds the label.*the columns are 'premise'"):
        resolve_pairs({"premise": "A."})
    with pytest.raises(ValueError, match="cannot tell which column holds the text"):
        resolve_pairs({"hypothesis": "A.", "label": 1})
    with pytest.raises(ValueError, match="second_column='b' is not a column"):
        resolve_pairs({"premise": "A.", "label": 1}, second_column="b")
    row = {"premise": "A.", "hypothesis": "B.", "label": 1}
    assert set(resolve_pairs(row, second_column="", label_column="").normalize(row)) == {"text"}
    with pytest.raises(BadRecord, match="column 'hypothesis' is empty"):
        resolve_pairs(row).normalize({**row, "hypothesis": " "})
    with pytest.raises(BadRecord, match="column 'hypothesis' is missing"):
        resolve_pairs(row).normalize({"premise": "A.", "label": 1})


def test_a_hub_dataset_of_mnlis_shape(monkeypatch):
    features = Features(
        promptID=Value("int32"),
        premise=Value("string"),
        hypothesis=Value("string"),
        genre=Value("string"),
        label=ClassLabel(names=["entailment", "neutral", "contradiction"]),
    )
    columns = {"premise": ["A.", "B."], "hypothesis": ["C.", "D."], "genre": ["x", "y"], "label": [2, -1]}
    hub = Dataset.from_dict({"promptID": [1, 2], **columns}, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: hub)
    rows = load_rows("nyu-mll/multi_nli", resolve_pairs, split="train")
    assert rows[:] == {"text": ["A.", "B."], "text_pair": ["C.", "D."], "label": ["2", None]}


# Questions with options


def choices(answer, **changes):
    return {
        "example_id": "high1.txt",
        "article": CONTEXT,
        "question": "Paul brings _ .",
        "options": ["bread", "flour", "oil", "salt"],
        "answer": answer,
        **changes,
    }


@pytest.mark.parametrize("answer", ["B", "b", " B ", 1, "1", "flour"])
def test_the_right_option(answer):
    row = choices(answer)
    assert resolve_choices(row).normalize(row) == {
        "id": "high1.txt",
        "context": CONTEXT,
        "question": "Paul brings _ .",
        "options": ["bread", "flour", "oil", "salt"],
        "label": 1,
    }


@pytest.mark.parametrize("answer", ["E", 4, -1, "4", "wine", None, True, 1.0, ""])
def test_an_answer_that_is_no_option(answer):
    row = choices(answer)
    with pytest.raises(BadRecord, match="must say which of the 4 options is right: a letter from A to D"):
        resolve_choices(row).normalize(row)


@pytest.mark.parametrize(
    ("options", "answer", "label"),
    [
        (["2", "4", "1", "3"], "2", None),
        (["B", "A", "C", "D"], "B", None),
        (["b", "A", "C", "D"], "b", None),
        (["2", "4", "1", "3"], 2, 2),
        (["0", "4", "2", "3"], "2", 2),
        (["A", "B", "C", "D"], "B", 1),
        (["2", "2", "1", "3"], "2", 2),
        (["20", "40", "10", "30"], "40", 1),
    ],
)
def test_options_that_are_numbers_or_letters(options, answer, label):
    row = choices(answer, options=options)
    if label is not None:
        assert resolve_choices(row).normalize(row)["label"] == label
        return
    is_number = answer.isdecimal()
    also, other = ("number of option 2", "letter") if is_number else ("letter of option 1", "number")
    message = f"column 'answer' is ambiguous: '{answer}' is option 0, and the {also}; give the right one's {other}"
    with pytest.raises(BadRecord, match=message):
        resolve_choices(row).normalize(row)


def test_options_that_cannot_be_used():
    first = resolve_choices(choices("A"))
    with pytest.raises(BadRecord, match="column 'options' has 3 options where the first record has 4"):
        first.normalize(choices("A", options=["a", "b", "c"]))
    with pytest.raises(BadRecord, match="column 'options' must hold a list of at least two strings, got a value of"):
        first.normalize(choices("A", options="a b c d"))
    with pytest.raises(BadRecord, match="column 'options' is empty"):
        first.normalize(choices("A", options=["a", "", "c", "d"]))
    assert first.normalize(choices("A", options='["a", "b", "c", "d"]'))["options"] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("missing", ["article", "question", "options", "answer"])
def test_missing_columns_of_choices(missing):
    row = choices("A")
    del row[missing]
    with pytest.raises(ValueError, match="cannot tell which column holds"):
        resolve_choices(row)


def test_a_hub_dataset_of_races_shape(monkeypatch):
    features = Features(
        example_id=Value("string"),
        article=Value("string"),
        answer=Value("string"),
        question=Value("string"),
        options=List(Value("string")),
    )
    hub = Dataset.from_list([choices("A"), choices("D")], features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: hub)
    rows = load_rows("ehovy/race", resolve_choices, split="train", config_name="all")
    assert rows["label"][:] == [0, 3]
