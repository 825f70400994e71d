"""Training of readers: words and characters fitted, windows, answers that are not there, documents, scores."""

import json

import pytest
from transformers import AutoModelForQuestionAnswering, AutoProcessor, EvalPrediction, pipeline

from hier_models.metrics import DocumentScores
from hier_models.training import RecipeError, load_recipe, run_training
from hier_models.training.encoder_evaluation import run_encoder_evaluation
from hier_models.training.smoke_rows import ROWS
from hier_models.training.tasks.reading_comprehension import ReadingComprehensionTask


STORIES = list(dict.fromkeys(row["context"] for row in ROWS["multiple_choice"]))
# (number of the story, question, answer)
QUESTIONS = [
    (STORIES.index(row["context"]), row["question"], row["options"]["ABCD".index(row["answer"])])
    for row in ROWS["multiple_choice"]
]
SIZES = {"embedding_size": 6, "hidden_size": 5, "char_hidden_size": 4, "attention_depth": 2, "dropout": 0.0}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def squad_rows():
    return [
        {
            "id": f"q{number}",
            "question": question,
            "context": STORIES[story],
            "answers": {"text": [answer], "answer_start": [STORIES[story].index(answer)]},
        }
        for number, (story, question, answer) in enumerate(QUESTIONS)
    ]


def marco_rows():
    return [
        {
            "query_id": number,
            "query": question,
            "passages": {"passage_text": [STORIES[story - 1], STORIES[story]], "is_selected": [0, 1]},
            "answers": [answer],
        }
        for number, (story, question, answer) in enumerate(QUESTIONS)
    ]


@pytest.fixture
def values(tmp_path):
    file = write(tmp_path / "squad.jsonl", squad_rows())
    return {
        "task": "reading_comprehension",
        "model_type": "ham_reader",
        "tokenizer_words": 100,
        "config_overrides": SIZES,
        "characters": True,
        "train": file,
        "validation": file,
        "max_source_length": 200,
        "max_steps": 2,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
    }


def test_a_run_from_words_to_scores(values, tmp_path):
    results = run_training(load_recipe(None, values))
    processor = AutoProcessor.from_pretrained(tmp_path / "run")
    model = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "run")
    assert model.config.char_vocab_size == processor.char_vocab_size > 20
    assert model.config.vocab_size == len(processor.tokenizer) == 104
    scores = results["evaluation"]
    assert {"exact", "f1", "bleu1", "bleu4", "rougeL", "total"} <= set(scores)
    assert scores["total"] == len(QUESTIONS)
    lines = (tmp_path / "run" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    for line, row in zip(lines, squad_rows(), strict=True):
        assert json.loads(line)["id"] == row["id"]
        assert json.loads(line)["prediction"] in row["context"]


def test_a_run_goes_on(values):
    values |= {"save_strategy": "steps", "save_steps": 2}
    run_training(load_recipe(None, values))
    results = run_training(load_recipe(None, {**values, "max_steps": 4}))
    assert results["resumed_from"].endswith("checkpoint-2")


def test_test_questions_are_scored_after_training(values, tmp_path):
    file = write(tmp_path / "test.jsonl", squad_rows()[:2])
    results = run_training(load_recipe(None, {**values, "test": file, "max_steps": 1}))
    assert results["test"]["total"] == 2
    assert results["truncation"]["test"]["questions"] == 2
    found = DocumentScores.load(tmp_path / "run" / "document_scores.json")
    assert list(found.metrics) == ["exact", "f1", "rougeL", "bleu1", "bleu4"]
    for name, statistics in found.metrics.items():
        assert statistics.score() == pytest.approx(results["test"][name])
    assert len((tmp_path / "run" / "predictions_test.jsonl").read_text().splitlines()) == 2


def test_what_a_reader_knows_without_its_question(values, tmp_path):
    """Each context is asked the next row's question too; a trained reader then answers worse."""
    rows = squad_rows()
    options = {"max_source_length": 30, "stride": 7, "max_steps": 150, "learning_rate": 0.02}
    results = run_training(load_recipe(None, {**values, **options, "test": values["train"]}))["test"]
    exchanged = [{**row, "question": other["question"]} for row, other in zip(rows, rows[1:] + rows[:1], strict=True)]
    found = run_encoder_evaluation(str(tmp_path / "run"), write(tmp_path / "exchanged.jsonl", exchanged), use_cpu=True)
    assert results["f1_of_another_question"] == pytest.approx(found["f1"])
    assert results["f1_of_another_question"] < results["f1"] - 20


def test_what_changes_the_order_of_training_mixes_up_no_answers(values, tmp_path):
    """Answers are found among the windows of a question by their order."""
    values |= {"max_source_length": 20, "stride": 5, "max_steps": 40, "learning_rate": 0.02, "eval_strategy": "steps"}
    values |= {"train_sampling_strategy": "group_by_length", "dataloader_drop_last": True}
    results = run_training(load_recipe(None, values))
    history = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]
    during = [entry for entry in history if "eval_f1" in entry][-1]
    assert during["eval_f1"] == pytest.approx(results["evaluation"]["f1"])
    assert during["eval_exact"] > 0


def test_windows(values):
    results = run_training(load_recipe(None, {**values, "max_source_length": 20, "stride": 5}))
    report = results["truncation"]["train"]
    assert report["questions"] == len(QUESTIONS)
    assert report["windows"] > len(QUESTIONS)
    assert report["windows_without_answer"] > 0
    assert report["lost_answers"] == 0


def test_answers_that_are_not_there_are_counted_and_set_aside(values, tmp_path):
    rows = squad_rows()
    rows[3]["answers"] = {"text": ["nothing of the kind"], "answer_start": [3]}
    file = write(tmp_path / "bad.jsonl", rows)
    results = run_training(load_recipe(None, {**values, "train": file, "bad_lines": "set_aside"}))
    assert results["truncation"]["train"]["questions"] == len(QUESTIONS) - 1
    assert "nothing of the kind" in (tmp_path / "run" / "set_aside_train.jsonl").read_text(encoding="utf-8")


def test_answers_in_a_wrong_place_are_counted(values, tmp_path):
    rows = squad_rows()
    rows[3]["answers"]["text"].insert(0, "nothing of the kind")
    rows[3]["answers"]["answer_start"].insert(0, 3)
    file = write(tmp_path / "bad.jsonl", rows)
    report = run_training(load_recipe(None, {**values, "train": file, "max_steps": 1}))["truncation"]
    assert (report["train"]["questions"], report["train"]["misplaced_answers"]) == (len(QUESTIONS), 1)
    assert report["validation"]["misplaced_answers"] == 0


def test_evaluation_reads_and_answers_as_in_training(values, tmp_path):
    options = {"max_source_length": 30, "stride": 7, "max_question_length": 6, "max_answer_length": 2}
    trained = run_training(load_recipe(None, {**values, **options}))
    saved = str(tmp_path / "run")
    results = run_encoder_evaluation(saved, values["validation"], use_cpu=True, predictions_file=tmp_path / "p.jsonl")
    assert results["truncation"]["validation"] == trained["truncation"]["validation"]
    assert {name: results[name] for name in trained["evaluation"]} == pytest.approx(trained["evaluation"])
    answers = [json.loads(line)["prediction"] for line in (tmp_path / "p.jsonl").read_text("utf-8").splitlines()]
    assert all(len(answer.split()) <= 2 for answer in answers)
    # Its pipeline too.
    read = pipeline("reading-comprehension", model=saved, device="cpu")
    rows = squad_rows()
    shown = read(question=[row["question"] for row in rows], context=[row["context"] for row in rows], top_k=9)
    assert all(len(answer["answer"].split()) <= 2 for answers in shown for answer in answers)
    longer = read(question=rows[0]["question"], context=rows[0]["context"], top_k=900, max_answer_length=9)
    assert max(len(answer["answer"].split()) for answer in longer) > 2
    # Shorter windows than it was trained with.
    short = run_encoder_evaluation(saved, values["validation"], use_cpu=True, max_source_length=9)
    assert short["truncation"]["validation"]["windows"] > results["truncation"]["validation"]["windows"]


def test_the_side_of_padding_changes_no_answer(values, tmp_path):
    """Answers are found by where words stand in a batch's scores."""
    run_training(load_recipe(None, {**values, "max_steps": 1, "per_device_eval_batch_size": 3}))
    saved = tmp_path / "run"
    answers = {}
    for side in ("right", "left"):
        processor = AutoProcessor.from_pretrained(saved)
        processor.tokenizer.padding_side = side
        processor.save_pretrained(saved)
        results = run_encoder_evaluation(str(saved), values["validation"], batch_size=3, use_cpu=True)
        answers[side] = results
    assert answers["left"] == answers["right"]


def test_chinese_is_split_into_characters(values, tmp_path):
    context = "小桥在村南。老王每天早上四点起床烤面包。"
    answers = {"text": ["四点"], "answer_start": [context.index("四点")]}
    row = {"question": "老王几点起床？", "context": context, "answers": answers}
    file = write(tmp_path / "chinese.jsonl", [row, row])
    changes = {"train": file, "validation": file, "unit": "characters", "max_steps": 1}
    report = run_training(load_recipe(None, {**values, **changes, "split_into": "characters"}))["truncation"]
    assert report["train"]["widened_answers"] == 0
    tokenizer = AutoProcessor.from_pretrained(tmp_path / "run").tokenizer
    assert tokenizer.tokenize("四点起床") == ["四", "点", "起", "床"]
    # As words, an answer is learned with its whole sentence, which is said.
    report = run_training(load_recipe(None, {**values, **changes, "overwrite": True}))["truncation"]
    assert report["train"]["widened_answers"] == 2


def test_answers_that_end_inside_of_a_word_are_counted(values, tmp_path):
    context = "Marta lights the oven at four."
    rows = [
        {"question": "What?", "context": context, "answers": {"text": [text], "answer_start": [13]}}
        for text in ("the oven", "the ov", "the oven at")
    ]
    file = write(tmp_path / "ends.jsonl", rows)
    changes = {"train": file, "max_steps": 1, "characters": False}
    assert run_training(load_recipe(None, {**values, **changes}))["truncation"]["train"]["widened_answers"] == 1


def test_the_best_of_several_references_counts(values, tmp_path, monkeypatch):
    context = "Marta lights the oven at four."
    row = {"question": "When?", "context": context, "answers": {"text": ["at four", "four"], "answer_start": [22, 25]}}
    file = write(tmp_path / "several.jsonl", [row, row, row])
    task = ReadingComprehensionTask(load_recipe(None, {**values, "train": file, "validation": file}), tmp_path)
    monkeypatch.setattr(task, "_answers", lambda *_: [("four", 1.0), ("At four.", 1.0), ("oven four", 1.0)])
    monkeypatch.setitem(task._windows, "validation", [])
    scores = task.compute_metrics(None)(EvalPrediction((), ()))
    assert scores["exact"] == pytest.approx(200 / 3)
    assert scores["f1"] == pytest.approx((100 + 100 + 200 / 3) / 3)
    assert scores["total"] == 3


def test_documents(values, tmp_path):
    file = write(tmp_path / "marco.jsonl", marco_rows())
    changes = {"train": file, "validation": file, "config_overrides": {**SIZES, "reader": "r_net"}}
    results = run_training(load_recipe(None, {**values, **changes, "max_steps": 1}))
    assert results["evaluation"]["total"] == len(QUESTIONS)
    assert results["truncation"]["train"]["without_answer"] == 0


def test_the_answer_chooses_paragraphs_only_in_training(values, tmp_path):
    def document(named):
        return {
            "segmented_paragraphs": [["who", "lit", "it", "?"], ["a", "keeper", "lit", "it"]],
            "most_related_para": named,
        }

    row = {"question": "who lit it ?", "segmented_question": ["who", "lit", "it", "?"], "documents": [document(1)]}
    row |= {"answers": ["a keeper"], "answer_docs": [0], "answer_spans": [[0, 1]]}
    file = write(tmp_path / "dureader.jsonl", [row, row])
    task = ReadingComprehensionTask(load_recipe(None, {**values, "train": file, "validation": file}), tmp_path)
    assert task.rows("train")["documents"] == [["a keeper lit it"]] * 2
    assert task.rows("validation")["documents"] == [["who lit it ?"]] * 2
    assert task.rows("validation")["references"] == [["a keeper"]] * 2


def test_long_questions_are_cut_and_counted(values):
    results = run_training(load_recipe(None, {**values, "max_question_length": 5, "max_steps": 1}))
    assert results["truncation"]["train"]["long_questions"] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stride": 200}, "stride must be less than"),
        ({"max_answer_length": 0}, "max_answer_length must be at least 1"),
        ({"streaming": True}, "streaming goes with masked_lm"),
        ({"num_beams": 4}, "means nothing to reading_comprehension"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor must be 0 for reading_comprehension"),
        ({"config_overrides": {**SIZES, "attention_depth": 0}}, "`attention_depth` must be at least 1"),
    ],
)
def test_bad_recipes(values, changes, message):
    with pytest.raises(RecipeError, match=message):
        run_training(load_recipe(None, {**values, **changes}))
