"""Recipes of models that read rows: a tokenizer of their own, settings of the processor, references, perplexity."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from transformers import AutoProcessor, AutoTokenizer, PreTrainedTokenizerFast, Seq2SeqTrainingArguments

from hier_models import CoarseToFineLstmProcessor, HierDataCollator
from hier_models.data import load_documents, tokenize_documents, train_word_level
from hier_models.data.tokenizing import plain_tokenizer
from hier_models.metrics import DocumentScores
from hier_models.training import (
    RecipeError,
    load_recipe,
    own_tokenizer,
    run_evaluation,
    run_training,
    task_class,
)
from hier_models.training.likelihood import perplexity
from hier_models.training.metrics import score_summaries
from hier_models.training.models import load_model_and_processor
from hier_models.training.resuming import checkpoint_to_resume
from hier_models.training.tasks import summarization
from tests.conftest import DOCUMENTS, SUMMARIES


SIZES = {"embedding_size": 8, "hidden_size": 8, "coarse_filters": 8, "dropout": 0.0}


@pytest.fixture
def values(tmp_path: Any) -> dict[str, Any]:
    rows = [
        {"id": str(i), "article": f"Article 1{i}: {text}", "highlights": f"{SUMMARIES[i]}\nHighlight {i}3 ."}
        for i, text in enumerate(DOCUMENTS)
    ]
    (tmp_path / "news.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {
        "model_type": "coarse_to_fine_lstm",
        "tokenizer_words": 60,
        "config_overrides": SIZES,
        "train": str(tmp_path / "news.jsonl"),
        "test": str(tmp_path / "news.jsonl"),
        "several_references": True,
        "digits": "#",
        "max_source_length": 60,
        "max_target_length": 20,
        "max_length": 8,
        "max_steps": 1,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
    }


def test_a_run_from_words_to_scores(values: dict[str, Any], tmp_path: Any) -> None:
    settings = {"rows": "grid", "row_length": 6, "num_rows": 5}
    overrides = {**SIZES, "attend_padding": True, "attention": "hard", "row_position_size": 2, "max_rows": 5}
    results = run_training(
        load_recipe(None, {**values, "processor_overrides": settings, "config_overrides": overrides})
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "tokenizer")
    assert len(tokenizer) == 64
    assert "##" in tokenizer.get_vocab()
    processor = AutoProcessor.from_pretrained(tmp_path / "run")
    found = (processor.rows, processor.row_length, processor.num_rows, processor.pad_grid)
    assert found == ("grid", 6, 5, True)
    assert processor.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert results["recipe"]["model"]["tokenizer_words"] == 60
    test = results["test"]
    assert 1 < test["perplexity"] < 64.5
    assert test["truncation"]["truncated_documents"] == 2
    lines = [json.loads(line) for line in (tmp_path / "run" / "predictions_test.jsonl").read_text().splitlines()]
    assert lines[1]["references"] == [SUMMARIES[1], "Highlight ## ."]
    assert lines[1]["reference"] == SUMMARIES[1]
    scores, _ = score_summaries([line["summary"] for line in lines], [line["references"] for line in lines])
    assert {name: test[name] for name in scores} == pytest.approx(scores)


def test_a_run_that_goes_on_keeps_its_tokenizer(values: dict[str, Any], tmp_path: Any, monkeypatch: Any) -> None:
    train_word_level(["only these words"]).save_pretrained(tmp_path / "run" / "tokenizer")
    monkeypatch.setattr(
        own_tokenizer, "last_complete_checkpoint", lambda *args: str(tmp_path / "run" / "checkpoint-1")
    )
    results = run_training(load_recipe(None, {**values, "test": None}))
    assert len(AutoProcessor.from_pretrained(tmp_path / "run").tokenizer) == 7
    assert "test" not in results


@pytest.mark.parametrize("on_each_node", [False, True])
def test_one_process_of_a_shared_folder_changes_it(
    values: dict[str, Any], tmp_path: Any, monkeypatch: Any, on_each_node: bool
) -> None:
    """Several nodes have one folder, unless each is to have its own."""
    first_of_each_node = []

    @contextmanager
    def noting(self: Any, local: bool = True, desc: str = "") -> Iterator[None]:
        first_of_each_node.append((desc, local))
        yield

    monkeypatch.setattr(Seq2SeqTrainingArguments, "main_process_first", noting)
    recipe = load_recipe(None, {**values, "overwrite": True, "save_on_each_node": on_each_node})
    checkpoint_to_resume(recipe, tmp_path / "run")
    own_tokenizer.own_tokenizer(recipe, tmp_path / "run", lambda: train_word_level(["only these words"]))
    what = ("deleting old checkpoints", "making the tokenizer")
    assert first_of_each_node == [(name, on_each_node) for name in what]


def test_the_tokenizer_of_an_attempt_without_a_checkpoint(values: dict[str, Any], monkeypatch: Any) -> None:
    fitted = []
    monkeypatch.setattr(
        summarization,
        "train_word_level",
        lambda *args, **kwargs: fitted.append(1) or train_word_level(*args, **kwargs),
    )

    def words(**changes: Any) -> int:
        recipe = load_recipe(None, {**values, **changes})
        task = task_class("summarization")(recipe, Path(values["output_dir"]))
        return len(plain_tokenizer(task.load_model_and_processor()[1]))

    assert words() == 64
    assert words(learning_rate=0.5, num_proc=2, stop_after_minutes=9) == 64
    assert len(fitted) == 1  # the same is kept
    assert words(tokenizer_words=20) == 24
    assert words(max_train_documents=1) == 52
    with open(values["train"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "4", "article": "Nine. " * 40, "highlights": "Nine ."}) + "\n")
    assert words(max_train_documents=1) == 52
    assert len(fitted) == 4  # the data are others
    (Path(values["output_dir"]) / "checkpoint-1").mkdir()  # not written to its end
    assert words(tokenizer_words=20) == 24


def test_from_scratch_the_decoder_begins_with_bos(word_tokenizer: PreTrainedTokenizerFast, tmp_path: Any) -> None:
    word_tokenizer.save_pretrained(tmp_path)
    recipe = load_recipe(
        None, recipe_values(tmp_path, config_overrides={**SIZES, "row_position_size": 2, "max_rows": 9})
    )
    model, processor = load_model_and_processor(recipe.model)
    assert (model.config.decoder_start_token_id, model.config.eos_token_id, model.config.pad_token_id) == (0, 2, 1)
    assert isinstance(processor, CoarseToFineLstmProcessor)
    assert (processor.rows, processor.num_rows, processor.row_length) == ("sentences", 9, None)  # as many as positions
    assert processor.tokenizer.model_max_length > 10**9


def recipe_values(folder: Any, **changes: Any) -> dict[str, Any]:
    values = {"model_type": "coarse_to_fine_lstm", "tokenizer": str(folder), "output_dir": str(folder / "run")}
    return {**values, "config_overrides": SIZES, "use_cpu": True, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"processor_overrides": {"row": 3}}, "processor_overrides: CoarseToFineLstmProcessor has no setting 'row'"),
        ({"processor_overrides": {"rows": "lines"}}, "model: `rows` must be one of sentences, grid, got 'lines'"),
        ({"processor_overrides": "[1]"}, "processor_overrides must be a JSON object"),
        ({"processor_overrides": "{"}, "processor_overrides is no JSON"),
        ({"max_position_embeddings": 9}, "max_position_embeddings means nothing to coarse_to_fine_lstm"),
        ({"tokenizer_words": 9}, "tokenizer and tokenizer_words are both given"),
        ({"tokenizer_words": 0, "tokenizer": None}, "tokenizer_words must be at least 1, got 0"),
        (
            {"config_overrides": {**SIZES, "attend_padding": True}},
            "attend_padding=True and the processor pad_grid=False",
        ),
        (
            {"config_overrides": {**SIZES, "attention": "hard", "reward_scale": -0.3}},
            "^model: config_overrides: `reward_scale` must be finite and not negative, got -0.3",
        ),
        (
            {"config_overrides": {**SIZES, "attention": "soft"}},
            "^model: config_overrides: Field 'attention' expected one of .* got soft",
        ),
        (
            {
                "config_overrides": {**SIZES, "row_position_size": 2, "max_rows": 4},
                "processor_overrides": {"rows": "grid"},
            },
            "the processor gives up to 10 rows, but the model has positions for 4",
        ),
        (
            {"model_type": "hat_bart", "config_overrides": {}, "processor_overrides": {"rows": "grid"}},
            "processor_overrides: HatBartProcessor has no setting 'rows'",
        ),
    ],
)
def test_mistakes(
    word_tokenizer: PreTrainedTokenizerFast, tmp_path: Any, changes: dict[str, Any], message: str
) -> None:
    word_tokenizer.save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match=message):
        load_model_and_processor(load_recipe(None, recipe_values(tmp_path, **changes)).model)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_perplexity_is_a_mean_over_tokens(
    coarse_model: Any, coarse_processor: Any, tmp_path: Any, batch_size: int
) -> None:
    documents = datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES})
    tokenized = tokenize_documents(documents, coarse_processor, max_target_length=12)
    model = coarse_model("hard")
    total, count = 0.0, 0
    for row in tokenized:
        batch = HierDataCollator(coarse_processor, model=model)([row])
        with torch.no_grad():
            logits = model(**batch).logits[0].double().log_softmax(-1)
        for position, label in enumerate(batch["labels"][0].tolist()):
            total, count = total - logits[position, label].item(), count + 1
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path),
        per_device_eval_batch_size=batch_size,
        predict_with_generate=True,
        label_smoothing_factor=0.1,
        report_to="none",
        use_cpu=True,
    )
    settings = model.generation_config.to_dict()
    assert perplexity(model, coarse_processor, tokenized, arguments) == pytest.approx(
        math.exp(total / count), rel=1e-5
    )
    assert model.generation_config.to_dict() == settings
    file = tmp_path / "scores.json"
    results = run_evaluation(
        model, coarse_processor, documents, max_target_length=12, batch_size=batch_size, scores_file=file
    )
    found = DocumentScores.load(file).metrics["perplexity"]
    assert found.score() == pytest.approx(results["perplexity"])
    assert found.values[:, 1].tolist() == [len(row) for row in tokenized["labels"]]
    assert results["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
    # Beside the source of the next in length.
    order = sorted(range(len(tokenized)), key=lambda i: -len(tokenized[i]["input_ids"]))
    others = {i: tokenized[j] for i, j in zip(order, [*order[1:], order[0]], strict=True)}
    swapped = datasets.Dataset.from_list([{**others[i], "labels": tokenized[i]["labels"]} for i in order])
    expected = perplexity(model, coarse_processor, swapped, arguments)
    assert results["perplexity_of_another_source"] == pytest.approx(expected, rel=1e-5)
    assert expected != pytest.approx(results["perplexity"], rel=1e-3)
    assert "perplexity" not in run_evaluation(model, coarse_processor, documents.select([0]))


def test_the_best_of_several_references_counts(coarse_model: Any, coarse_processor: Any, tmp_path: Any) -> None:
    scores, settings = score_summaries(["a b c", "x y"], [["a b", "a b c", "d"], ["x y"]])
    assert all(value == pytest.approx(100) for name, value in scores.items() if name != "rougeSU4")
    assert settings["rougeSU4"]["several_references"] == "best"
    # Each score its own best.
    scores, _ = score_summaries(["a b c d"], [["b a d c", "a b"]])
    singles = [score_summaries(["a b c d"], [reference])[0] for reference in ("b a d c", "a b")]
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        assert scores[name] == pytest.approx(max(single[name] for single in singles)), name


def test_references_of_a_file_are_used(coarse_model: Any, coarse_processor: Any, values: dict[str, Any]) -> None:
    model = coarse_model()
    several = load_documents(values["test"], several_references=True)
    found = run_evaluation(model, coarse_processor, several)
    single = run_evaluation(model, coarse_processor, several.remove_columns("references"))
    assert all(found[name] >= single[name] for name in ("rouge1", "rouge2", "rougeL"))


OTHER_TASKS = ["translation", "masked_lm", "importance_tagging", "question_answering", "poem_generation"]
PHRASE_OPTIONS = [{"phrases_column": "key"}, {"key_phrases": "fit"}, {"stopwords": "en"}]


@pytest.mark.parametrize("task", OTHER_TASKS)
@pytest.mark.parametrize("option", [{"several_references": True}, {"digits": "#"}, *PHRASE_OPTIONS])
def test_other_tasks_have_no_use_for_these(task: str, option: dict[str, Any], tmp_path: Any) -> None:
    values = {"task": task, "train": "x", "output_dir": str(tmp_path), "use_cpu": True, "tokenizer": "y", **option}
    with pytest.raises(RecipeError, match=f"data: {next(iter(option))} means nothing to"):
        run_training(load_recipe(None, values))
