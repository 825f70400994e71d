"""A summarizer trained with oracle weights and tested with a tagger's, or the oracle's."""

import json
from functools import partial
from pathlib import Path

import datasets
import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from hier_models import ImportanceTagger, TopDownTransformerConfig
from hier_models.data import HierDataCollator, load_documents, tokenize_documents
from hier_models.models.encoder_top_down_transformer import TopDownTransformerEncoder
from hier_models.training import (
    RecipeError,
    compute_summarization_metrics,
    load_recipe,
    run_evaluation,
    run_smoke,
    run_training,
)
from tests.conftest import DOCUMENTS, SUMMARIES, TOP_DOWN_SIZES


@pytest.fixture
def data(tmp_path):
    rows = [{"id": str(i), "text": DOCUMENTS[i % 4], "summary": SUMMARIES[i % 4]} for i in range(4)]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def tagger(tiny_tagger, top_down_processor, tmp_path):
    """A tagger's checkpoint."""
    tiny_tagger.save_pretrained(tmp_path / "tagger")
    top_down_processor.save_pretrained(tmp_path / "tagger")
    return str(tmp_path / "tagger")


@pytest.fixture
def values(tmp_path, tokenizer, data):
    """A recipe that trains a tiny summarizer in a second."""
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    return {
        "model_type": "top_down_transformer",
        "tokenizer": str(tmp_path / "tokenizer"),
        "config_overrides": {
            **TOP_DOWN_SIZES,
            "max_encoder_position_embeddings": 128,
            "max_decoder_position_embeddings": 64,
        },
        "train": str(data),
        "validation": str(data),
        "importance": "oracle",
        "max_source_length": 128,
        "max_target_length": 32,
        "max_length": 12,
        "num_beams": 2,
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "predict_with_generate": True,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
    }


def run(values, **changes):
    return run_training(load_recipe(None, {**values, **changes}))


def predictions_of(values, name="predictions.jsonl"):
    lines = (Path(values["output_dir"]) / name).read_text().splitlines()
    return [json.loads(line)["summary"] for line in lines]


def test_trained_with_the_oracle_and_tested_with_the_tagger(values, tagger, data, monkeypatch):
    seen = {}
    original = TopDownTransformerEncoder.forward

    def watch(self, *args, **kwargs):
        weights = kwargs.get("token_importance")
        if weights is not None:
            seen.setdefault(self.training, []).append(set(weights.unique().tolist()) <= {0.0, 1.0})
        return original(self, *args, **kwargs)

    monkeypatch.setattr(TopDownTransformerEncoder, "forward", watch)
    results = run(values, importance_tagger=tagger, test=str(data), eval_strategy="steps", eval_steps=2)
    assert results["importance"] == {"train": "oracle", "validation": tagger, "test": tagger}
    assert results["evaluation"]["importance"] == results["test"]["importance"] == "tagger"
    assert results["truncation"]["train"]["without_importance"] == 0
    assert len(seen[True]) == 2
    assert all(seen[True])  # in training weights of 0 and 1
    assert seen[False]
    assert not any(seen[False])  # probabilities in every evaluation
    assert predictions_of(values) == predictions_of(values, "predictions_test.jsonl")


def test_without_a_tagger_the_oracle_tests_too(values):
    results = run(values)
    assert results["importance"] == {"train": "oracle", "validation": "oracle"}
    assert results["evaluation"]["importance"] == "oracle"
    assert TopDownTransformerConfig.from_pretrained(values["output_dir"]).pooling == "importance"
    assert results["evaluation"]["truncation"]["without_importance"] == 0


def test_a_stream_and_workers_train_as_ever(values):
    results = run(values, streaming=True, shuffle_buffer=2, dataloader_num_workers=1, eval_strategy="no")
    assert results["truncation"]["train"]["documents"] >= 4
    assert results["truncation"]["train"]["without_importance"] == 0


@pytest.mark.parametrize("kind", ["oracle", "tagger", None])
def test_evaluation(tiny_top_down, top_down_processor, tiny_tagger, data, tmp_path, kind):
    """Scores and summaries are those of the same weights given to generate by hand, longest batches first or not."""
    importance = ImportanceTagger(tiny_tagger, top_down_processor) if kind == "tagger" else kind
    documents = load_documents(data)
    file = tmp_path / "predictions.jsonl"
    results = run_evaluation(
        tiny_top_down,
        top_down_processor,
        documents,
        batch_size=2,
        importance=importance,
        predictions_file=file,
        num_beams=3,
        max_new_tokens=8,
    )
    assert results.get("importance") == kind
    assert ("without_importance" in results["truncation"]) == (kind is not None)
    summaries = [json.loads(line)["summary"] for line in file.read_text().splitlines()]
    for number, document in enumerate(DOCUMENTS):
        inputs = {"text": document, "return_tensors": "pt"}
        if kind is not None:
            row = tokenize_documents(documents.select([number]), top_down_processor, importance=importance)[0]
            inputs["importance"] = ImportanceTagger(tiny_tagger, top_down_processor)(document)
        encoded = top_down_processor(**inputs)
        if kind is not None:
            encoded["token_importance"] = torch.tensor([row["token_importance"]])
        ids = tiny_top_down.generate(**encoded, num_beams=3, max_new_tokens=8)
        assert summaries[number] == top_down_processor.decode(ids[0], skip_special_tokens=True).strip()


def test_weights_change_what_is_generated(tiny_top_down, top_down_processor, data, tmp_path):
    documents, written = load_documents(data), []
    for importance in (None, "oracle"):
        file = tmp_path / f"{importance}.jsonl"
        run_evaluation(
            tiny_top_down,
            top_down_processor,
            documents,
            importance=importance,
            predictions_file=file,
            max_new_tokens=12,
        )
        written.append(file.read_text())
    assert written[0] != written[1]


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}])
def test_weights_survive_generate(tiny_top_down, top_down_processor, options):
    """A batch gives what its members give; beams and samples repeat the weights with the rest."""
    weights = [[(0, 9, 1.0)], [(40, 60, 0.5), (70, 80, 2.0)]]
    batch = top_down_processor(text=DOCUMENTS[:2], importance=weights, padding=True, return_tensors="pt")
    options = {**options, "max_new_tokens": 6, "min_new_tokens": 6}
    if "do_sample" in options:
        torch.manual_seed(0)
        first = tiny_top_down.generate(**batch, **options)
        torch.manual_seed(0)
        assert torch.equal(tiny_top_down.generate(**batch, **options), first)
        assert first.shape == (4, 7)
        return
    together = tiny_top_down.generate(**batch, **options)
    for number in range(2):
        alone = top_down_processor(text=DOCUMENTS[number], importance=weights[number], return_tensors="pt")
        assert torch.equal(tiny_top_down.generate(**alone, **options)[0], together[number])


def test_the_stock_seq2seq_trainer_generates_with_weights(tiny_top_down, top_down_processor, tmp_path):
    rows = datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES})
    inputs = tokenize_documents(rows, top_down_processor, importance="oracle", max_target_length=32)
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=2,
        predict_with_generate=True,
        generation_max_length=8,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    trainer = Seq2SeqTrainer(
        model=tiny_top_down,
        args=arguments,
        train_dataset=inputs,
        eval_dataset=inputs,
        processing_class=top_down_processor,
        data_collator=HierDataCollator(top_down_processor, model=tiny_top_down),
        compute_metrics=partial(compute_summarization_metrics, tokenizer=top_down_processor),
    )
    with_weights = trainer.predict(inputs).predictions
    without = trainer.predict(inputs.remove_columns("token_importance")).predictions
    assert with_weights.tolist() != without.tolist()
    trainer.train()
    assert trainer.evaluate()["eval_gen_len"] > 0


def test_a_taggers_weights_are_made_once(top_down_processor, tiny_tagger, data, tmp_path, monkeypatch):
    tagger = ImportanceTagger(tiny_tagger, top_down_processor)
    first = tokenize_documents(load_documents(data), top_down_processor, importance=tagger)
    monkeypatch.setattr(ImportanceTagger, "__call__", None)  # not called again
    assert list(tokenize_documents(load_documents(data), top_down_processor, importance=tagger)) == list(first)
    with torch.no_grad():
        tiny_tagger.classifier.bias += 1
    with pytest.raises(TypeError):  # another tagger, other weights
        tokenize_documents(load_documents(data), top_down_processor, importance=tagger)


def test_a_smoke_run_makes_a_tagger_of_its_own(values):
    given = {name: value for name, value in values.items() if name != "output_dir"}
    given |= {"config_overrides": None, "importance_tagger": "runs/not-here", "tokenizer": "x"}
    results = run_smoke(None, {**given, "train": "nowhere/papers", "validation": "nowhere/papers"})
    assert results["evaluation"]["importance"] == "tagger"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"importance": None, "pooling": "importance"}, "importance is missing: the model pools by it"),
        ({"pooling": "average"}, "does not go with config_overrides: pooling: average"),
        ({"plain": True}, "a plain model has none"),
        ({"top_down_update": "none"}, "a plain model has none"),
        ({"model_type": "hat_bart"}, "is for Top-Down Transformers, and this model is hat_bart"),
        ({"importance": None, "importance_tagger": "x"}, "importance_tagger goes with importance: oracle"),
        ({"importance_tagger": "/nowhere/tagger"}, "data: importance_tagger: "),
        ({"importance": "tagger"}, "importance"),
        ({"task": "translation"}, "data: importance means nothing to translation"),
        (
            {"task": "importance_tagging", "max_length": None, "num_beams": None},
            "importance means nothing to importance_t",
        ),
    ],
)
def test_bad_recipes(values, changes, message):
    changes = dict(changes)
    own = {name: changes.pop(name) for name in ("pooling", "top_down_update") if name in changes}
    changes["config_overrides"] = {**values["config_overrides"], **own}
    if changes.get("model_type") == "hat_bart":
        changes["config_overrides"] = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
    with pytest.raises(RecipeError, match=message):
        run(values, **changes)


def test_weights_for_a_model_that_averages_are_refused(tiny_tagger, top_down_processor, data, tiny_model, processor):
    with pytest.raises(ValueError, match="HatBartForConditionalGeneration has pooling=None"):
        run_evaluation(tiny_model, processor, load_documents(data), importance="oracle")
    tagger = ImportanceTagger(tiny_tagger, top_down_processor)
    with pytest.raises(ValueError, match="documents are tagged where they are loaded, not streamed"):
        tokenize_documents(load_documents(data, streaming=True), top_down_processor, importance=tagger)
