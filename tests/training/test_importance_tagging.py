"""The importance tagger: its scores, its task, the stock Trainer, and tagging with it."""

import copy
import json
import logging
import math
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForTokenClassification,
    AutoProcessor,
    BartConfig,
    BartForConditionalGeneration,
    DataCollatorForTokenClassification,
    RobertaConfig,
    RobertaForTokenClassification,
    Trainer,
    TrainingArguments,
)
from typer.testing import CliRunner

from hier_models import (
    TopDownTransformerConfig,
    TopDownTransformerForConditionalGeneration,
    TopDownTransformerForTokenClassification,
)
from hier_models.cli import app
from hier_models.data.importance import ImportanceLabels, importance_spans
from hier_models.pipelines.importance_tagger_hier import ImportanceTagger, _windows, load_importance_tagger
from hier_models.training import RecipeError, load_recipe, run_encoder_evaluation, run_training
from hier_models.training.arguments import ModelArguments
from hier_models.training.models import load_model_and_processor
from hier_models.training.tasks.importance_tagging import (
    area_under_curve,
    compute_tagging_metrics,
    importance_probabilities,
)
from tests.conftest import DOCUMENTS, SUMMARIES, TOP_DOWN_SIZES


# Named, since the command line quiets those above it.
LOGGER = "hier_models.pipelines.importance_tagger_hier"


@pytest.fixture
def processor(top_down_processor):
    return top_down_processor


@pytest.fixture
def values(tmp_path, tokenizer):
    """A recipe that trains a tiny tagger in a second."""
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rows = [{"id": str(i), "article": DOCUMENTS[i % 4], "summary": SUMMARIES[i % 4]} for i in range(7)]
    rows.append({"id": "7", "article": DOCUMENTS[0], "summary": "None of it."})
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "task": "importance_tagging",
        "model_type": "top_down_transformer",
        "tokenizer": str(tmp_path / "tokenizer"),
        "config_overrides": {**TOP_DOWN_SIZES, "max_encoder_position_embeddings": 128},
        "train": str(tmp_path / "data.jsonl"),
        "validation": str(tmp_path / "data.jsonl"),
        "max_source_length": 128,
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 5e-3,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
    }


# Scores


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9]), st.booleans()), min_size=2, max_size=30))
def test_area_under_the_curve_is_a_count_of_pairs(items):
    scores, positive = (np.array(values) for values in zip(*items, strict=True))
    pairs = [(a, b) for a in scores[positive] for b in scores[~positive]]
    if not pairs:
        with pytest.raises(ValueError, match="compares important tokens with others"):
            area_under_curve(scores, positive)
        return
    expected = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)
    assert area_under_curve(scores, positive) == pytest.approx(expected, abs=1e-12)


def test_area_under_the_curve_of_many_tokens():
    rng = np.random.default_rng(0)
    positive = rng.random(200_000) < 0.2
    assert area_under_curve(rng.random(200_000), positive) == pytest.approx(0.5, abs=0.01)
    assert area_under_curve(positive.astype(float), positive) == 1
    assert area_under_curve(-positive.astype(float), positive) == 0


def test_scores_by_hand():
    labels = np.array([[-100, 1, 1, 0, -100], [-100, 0, 0, 1, 1]])
    probabilities = np.array([[0.9, 0.8, 0.4, 0.7, 0.9], [0.9, 0.2, 0.1, 0.6, 0.5]], dtype=np.float32)
    scores = compute_tagging_metrics(SimpleNamespace(predictions=probabilities, label_ids=labels))
    assert scores["precision"] == pytest.approx(75)  # found: .8 .6 .5 rightly, .7 wrongly
    assert scores["recall"] == pytest.approx(75)
    assert scores["f1"] == pytest.approx(75)
    assert scores["auc"] == pytest.approx(100 * (3 + 3 + 2 + 1) / 12)
    assert (scores["tokens"], scores["important"]) == (7, pytest.approx(400 / 7))
    logits = np.stack([np.zeros_like(probabilities), np.log(probabilities / (1 - probabilities))], axis=-1)
    from_logits = compute_tagging_metrics(SimpleNamespace(predictions=(logits, None), label_ids=labels))
    assert from_logits == pytest.approx(scores)
    reduced = importance_probabilities((torch.tensor(logits),), torch.tensor(labels))
    assert torch.allclose(reduced, torch.tensor(probabilities))
    none = compute_tagging_metrics(SimpleNamespace(predictions=0 * probabilities, label_ids=labels))
    assert (none["precision"], none["recall"], none["f1"], none["auc"]) == (0, 0, 0, 50)


# Training


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_stock_trainer_learns_it(processor, tiny_tagger, tmp_path, side):
    processor.tokenizer.padding_side = side
    try:
        rows = datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES})
        inputs = rows.map(ImportanceLabels(processor, "text", 128), batched=True, remove_columns=rows.column_names)
        trainer = Trainer(
            model=tiny_tagger,
            args=TrainingArguments(
                output_dir=str(tmp_path),
                max_steps=60,
                per_device_train_batch_size=4,
                learning_rate=3e-3,
                lr_scheduler_type="constant",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
                save_strategy="no",
                dataloader_pin_memory=False,
            ),
            train_dataset=inputs,
            eval_dataset=inputs,
            data_collator=DataCollatorForTokenClassification(processor.tokenizer),
            compute_metrics=compute_tagging_metrics,
            preprocess_logits_for_metrics=importance_probabilities,
        )
        before = trainer.evaluate()
        trainer.train()
        after = trainer.evaluate()
    finally:
        processor.tokenizer.padding_side = "right"
    assert after["eval_tokens"] == sum(len(ids) - 2 for ids in inputs["input_ids"])
    assert after["eval_auc"] > 99 > before["eval_auc"]
    assert min(after[f"eval_{name}"] for name in ("precision", "recall", "f1")) > 90

    # And it tags what it has learned, alone as in a batch.
    tagger = ImportanceTagger(tiny_tagger, processor)
    tagged = tagger(DOCUMENTS)
    for number, (document, summary) in enumerate(zip(DOCUMENTS, SUMMARIES, strict=True)):
        important = {i for start, end, _ in importance_spans(document, summary) for i in range(start, end)}
        right = [(weight > 0.5) == (not important.isdisjoint(range(a, b))) for a, b, weight in tagged[number]]
        assert np.mean(right) > 0.9
        alone = tagger(document)
        assert [span[:2] for span in alone] == [span[:2] for span in tagged[number]]
        assert [span[2] for span in alone] == pytest.approx([span[2] for span in tagged[number]], abs=1e-5)


@pytest.mark.parametrize("source", ["scratch", "bart"])
def test_a_recipe(values, tmp_path, source, tokenizer):
    if source == "bart":
        sizes = {name: size for name, size in TOP_DOWN_SIZES.items() if name.startswith(("d_", "decoder", "encoder"))}
        bart = BartConfig(vocab_size=len(tokenizer), encoder_layers=2, max_position_embeddings=64, **sizes)
        torch.manual_seed(1)
        BartForConditionalGeneration(bart).save_pretrained(tmp_path / "bart")
        tokenizer.save_pretrained(tmp_path / "bart")
        own = ("attention_window", "pooling_kernel", "pooling_stride", "segment_layers")
        values |= {
            "tokenizer": None,
            "from_bart": str(tmp_path / "bart"),
            "max_position_embeddings": 128,
            "config_overrides": {name: TOP_DOWN_SIZES[name] for name in own},
        }
    results = run_training(load_recipe(None, {**values, "eval_strategy": "steps", "eval_steps": 2}))
    run = tmp_path / "run"
    evaluation = results["evaluation"]
    assert set(evaluation) == {"precision", "recall", "f1", "auc", "important", "tokens", "rows"}
    assert evaluation["rows"] == 8
    assert results["without_importance"] == {"train": 1, "validation": 1}
    assert results["truncation"]["train"] == {"rows": 8, "truncated_rows": 0, "truncated_tokens": 0}
    history = json.loads((run / "trainer_state.json").read_text())["log_history"]
    assert evaluation["auc"] in [entry.get("eval_auc") for entry in history]
    if source == "bart":
        new = results["loading"]["new_weights"]
        assert "classifier.weight" in new
        assert not [name for name in new if "embed" in name or "bottom_up" in name]

    # What was trained is what loads, tags, and is scored again.
    model = AutoModelForTokenClassification.from_pretrained(run)
    assert type(model) is TopDownTransformerForTokenClassification
    assert model.config.id2label == {0: "unimportant", 1: "important"}
    assert AutoProcessor.from_pretrained(run).tokenizer.model_max_length == 128
    scores = run_encoder_evaluation(str(run), values["validation"], use_cpu=True)
    assert scores["task"] == "importance_tagging"
    assert {name: scores[name] for name in evaluation} == pytest.approx(evaluation)
    tagged = ImportanceTagger(run)(DOCUMENTS[0])
    assert all(0 < weight < 1 for _, _, weight in tagged)


def test_the_command_line_trains_and_scores_a_tagger(values, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    sections = {
        "run": ["task"],
        "model": ["model_type", "tokenizer", "config_overrides"],
        "data": ["train", "validation", "max_source_length"],
    }
    elsewhere = {name for names in sections.values() for name in names}
    sections["training"] = [name for name in values if name not in elsewhere]
    recipe.write_text(json.dumps({part: {name: values[name] for name in names} for part, names in sections.items()}))
    result = CliRunner().invoke(app, ["train", str(recipe)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "auc" in result.output
    result = CliRunner().invoke(app, ["evaluate", "-m", values["output_dir"], values["validation"], "--device", "cpu"])
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in result.output.splitlines() if line.strip()]
    assert [name for name in names if name in ("precision", "recall", "f1", "auc")] == [
        "precision",
        "recall",
        "f1",
        "auc",
    ]
    bad = CliRunner().invoke(
        app, ["evaluate", "-m", values["output_dir"], values["validation"], "--predictions", "x.jsonl"]
    )
    assert bad.exit_code == 2
    assert "makes no predictions" in " ".join(bad.output.split())


def test_smoke(values, tmp_path):
    from hier_models.training import run_smoke

    given = {name: value for name, value in values.items() if name not in ("config_overrides", "output_dir")}
    results = run_smoke(None, {**given, "train": "nowhere/papers", "validation": "nowhere/papers", "tokenizer": "x"})
    assert 0 <= results["evaluation"]["auc"] <= 100


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "hat_encoder", "config_overrides": {"num_hidden_layers": 1}}, "model_type: top_down_trans"),
        ({"test": "x.jsonl"}, "data: test means nothing to importance_tagging"),
        ({"num_beams": 2}, "generation: num_beams means nothing"),
        ({"streaming": True, "max_steps": 2}, "streaming goes with masked_lm"),
        ({"max_source_length": 129}, "the model takes 128 tokens at most"),
        ({"summary_column": ""}, "train has no summaries"),
    ],
)
def test_bad_recipes(values, changes, message):
    if changes.get("model_type") == "hat_encoder":
        values |= {"max_source_length": 64}
        changes["config_overrides"] |= {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    with pytest.raises(RecipeError, match=message):
        run_training(load_recipe(None, {**values, **changes}))


def test_validation_data_without_important_tokens_stop_the_run_before_it_begins(values, tmp_path):
    (tmp_path / "dev.jsonl").write_text(json.dumps({"article": "A bridge.", "summary": "of it"}) + "\n")
    with pytest.raises(RecipeError, match="no token of validation is important"):
        run_training(load_recipe(None, {**values, "validation": str(tmp_path / "dev.jsonl")}))
    assert not list((tmp_path / "run").glob("*.safetensors"))


# Tagging


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.integers(1, 50))
def test_windows_cover_every_token_once(tokens, size):
    windows = list(_windows(tokens, size))
    owned = [i for _, _, own_start, own_end in windows for i in range(own_start, own_end)]
    assert owned == list(range(tokens))
    for start, end, own_start, own_end in windows:
        assert start <= own_start <= own_end <= end <= start + size
        # No token at a window's edge has its weight from there if the next window has it farther inside.
        if end < tokens and size >= 8:
            assert end - own_end >= size // 8 - 1
    assert len(windows) <= max(1, math.ceil(tokens / max(1, 3 * size // 4)))


def test_long_documents_are_tagged_in_windows_and_it_is_said(processor, tiny_tagger, caplog):
    text = " ".join(DOCUMENTS * 3)
    encoded = processor(text=text, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"][1:-1], encoded["offset_mapping"][1:-1]
    assert len(ids) > 256
    tagger = ImportanceTagger(tiny_tagger, processor, max_length=66, batch_size=3)
    with caplog.at_level(logging.WARNING, LOGGER):
        spans, short = tagger([text, "One bridge."])
    expected = [0.0] * len(ids)
    windows = list(_windows(len(ids), 64))
    for start, end, own_start, own_end in windows:
        inputs = torch.tensor([[0, *ids[start:end], 2]])
        with torch.no_grad():
            weights = tiny_tagger(inputs).logits.softmax(-1)[0, 1:-1, 1].tolist()
        expected[own_start:own_end] = weights[own_start - start : own_end - start]
    assert [span[:2] for span in spans] == offsets
    assert [span[2] for span in spans] == pytest.approx(expected, abs=1e-5)
    alone = ImportanceTagger(tiny_tagger, processor)("One bridge.")
    assert [span[2] for span in short] == pytest.approx([span[2] for span in alone], abs=1e-5)
    assert tagger.windows == len(windows) + 1
    assert f"tagged in windows: {len(windows) + 1} for 2 documents" in caplog.text


def test_as_much_as_the_summarizer_reads_is_tagged(processor, tiny_tagger):
    tagger = ImportanceTagger(tiny_tagger, processor)
    (whole,) = tagger.tag_sources(processor, None, {"text": [DOCUMENTS[0]]})
    (cut,) = tagger.tag_sources(processor, 20, {"text": [DOCUMENTS[0]]})
    offsets = processor(text=DOCUMENTS[0], truncation=True, max_length=20, return_offsets_mapping=True)
    assert [span[:2] for span in cut] == offsets["offset_mapping"][1:-1]
    assert whole == tagger(DOCUMENTS[0])
    assert tagger.tag_sources(processor, 2, {"text": [DOCUMENTS[0], ""]}) == [[], []]
    assert tagger("") == []
    assert tagger([]) == []


def test_tagging_leaves_the_model_as_it_was(processor, tiny_tagger):
    tiny_tagger.train()
    tagger = ImportanceTagger(tiny_tagger, processor)
    before = tagger.fingerprint()
    first = tagger(DOCUMENTS[0])
    assert tiny_tagger.training
    assert all(parameter.requires_grad for parameter in tiny_tagger.parameters())
    assert tagger(DOCUMENTS[0]) == first
    assert tagger.fingerprint() == before
    with torch.no_grad():
        tiny_tagger.classifier.bias += 1
    assert tagger.fingerprint() != before


def test_what_can_be_a_tagger(processor, tiny_tagger, tmp_path):
    tagger = ImportanceTagger(tiny_tagger, processor)
    assert load_importance_tagger(tagger) is tagger
    tiny_tagger.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    spans = tagger(DOCUMENTS[1])
    for given_as in (str(tmp_path), tmp_path):
        assert load_importance_tagger(given_as)(DOCUMENTS[1]) == spans
    assert load_importance_tagger(tiny_tagger, processor)(DOCUMENTS[1]) == spans


def test_what_cannot_be_a_tagger(processor, tiny_tagger, tokenizer, tmp_path):
    summarizer = TopDownTransformerForConditionalGeneration(tiny_tagger.config)
    three = AutoModelForTokenClassification.from_config(
        TopDownTransformerConfig(
            vocab_size=len(tokenizer), num_labels=3, max_encoder_position_embeddings=16, **TOP_DOWN_SIZES
        )
    )
    for make, message in (
        (lambda: ImportanceTagger(summarizer, processor), "with two classes.*got TopDownTransformerForConditional"),
        (lambda: ImportanceTagger(three, processor), "with two classes.*with 3 classes"),
        (lambda: ImportanceTagger(tiny_tagger), "`processor` must be one that says where its tokens are.*NoneType"),
        (lambda: ImportanceTagger(tiny_tagger, tokenizer), "`processor` must be one that says"),
        (lambda: ImportanceTagger(tiny_tagger, processor, max_length=129), "at most 128.*got 129"),
        (lambda: ImportanceTagger(tiny_tagger, processor, max_length=2), "at least 3.*got 2"),
        (lambda: ImportanceTagger(tiny_tagger, processor, batch_size=0), "`batch_size` must be at least 1"),
        (lambda: load_importance_tagger(3), "must be a checkpoint, a token classification model.*got int"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("says_its_limit", [True, False])
def test_a_tagger_of_another_family_is_asked_no_more_than_it_takes(processor, says_its_limit, tokenizer):
    """RoBERTa's positions begin behind the padding token's: two fewer than the config says."""
    if not says_its_limit:
        processor = copy.deepcopy(processor)
        processor.tokenizer.model_max_length = 10**30
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=130,
    )
    tagger = ImportanceTagger(RobertaForTokenClassification(config).eval(), processor)
    assert tagger.max_length == 128
    text = " ".join(DOCUMENTS * 2)
    assert len(tagger(text)) == len(processor(text=text)["input_ids"]) - 2


def test_a_tagger_that_begins_as_a_summarizer_averages(values, tiny_top_down, processor, tmp_path):
    """It makes weights, and gets none."""
    for part in (tiny_top_down, processor):
        part.save_pretrained(tmp_path / "summarizer")
    start = {"model_type": None, "tokenizer": None, "config_overrides": {}, "max_position_embeddings": None}
    run_training(load_recipe(None, {**values, **start, "model_name_or_path": str(tmp_path / "summarizer")}))
    assert tiny_top_down.config.pooling == "importance"
    assert TopDownTransformerConfig.from_pretrained(tmp_path / "run").pooling == "average"


def test_labels_are_made_in_the_language_of_the_documents(values, tmp_path):
    rows = [{"article": "Die Häuser stehen am Fluss.", "summary": "Ein Haus."}] * 4
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(RecipeError, match="no token of validation is important"):
        run_training(load_recipe(None, values))
    results = run_training(load_recipe(None, {**values, "language": "de"}))
    assert results["without_importance"] == {"train": 0, "validation": 0}
    saved = AutoProcessor.from_pretrained(tmp_path / "run")
    assert saved.language == "de"
    # A checkpoint's processor has its language, and may be given another.
    again = ModelArguments(model_name_or_path=str(tmp_path / "run"))
    assert load_model_and_processor(again, AutoModelForTokenClassification)[1].language == "de"
    again.language = "en"
    assert load_model_and_processor(again, AutoModelForTokenClassification)[1].language == "en"


@pytest.mark.parametrize(
    ("family", "language", "message"),
    [
        ("top_down_transformer", "german", "model: `language` must be a code of two or three"),
        ("hat_bart", "de", "model: "),
        ("bart", "de", "model: language means nothing to "),
    ],
)
def test_languages_that_a_processor_does_not_take(values, tmp_path, family, language, message):
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    encoder = ("bottom_up_layers", "top_down_layers") if family == "top_down_transformer" else ("encoder_layers",)
    sizes = json.dumps({"d_model": 8, **dict.fromkeys(encoder, 1), "decoder_layers": 1, **heads})
    arguments = ModelArguments(
        model_type=family, tokenizer=values["tokenizer"], language=language, config_overrides=sizes
    )
    with pytest.raises(RecipeError, match=message):
        load_model_and_processor(arguments)


def test_a_taggers_data_may_have_other_columns(values, tmp_path):
    run_training(load_recipe(None, values))
    rows = [{"paper": document, "gist": summary} for document, summary in zip(DOCUMENTS, SUMMARIES, strict=True)]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["evaluate", "-m", values["output_dir"], str(tmp_path / "other.jsonl"), "--device", "cpu"]
    result = CliRunner().invoke(app, [*command, "--summary-column", "gist"])
    assert result.exit_code == 0, result.output
    assert "auc" in result.output
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "summary_column" in result.output
