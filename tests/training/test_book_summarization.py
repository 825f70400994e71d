"""From chapters to books: what is trained on, what is tested on, and what a stopped run goes on from."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, pipeline

from hier_models import (
    TopDownTransformerConfig,
    TopDownTransformerForConditionalGeneration,
    TopDownTransformerProcessor,
)
from hier_models.training import RecipeError, load_recipe, run_training
from hier_models.training.tasks import book_summarization
from tests.conftest import DOCUMENTS, SUMMARIES


BOOKS = [
    {"id": "a", "parts": SUMMARIES[:3], "chapters": DOCUMENTS[:3], "summary": SUMMARIES[0]},
    {"id": "b", "parts": SUMMARIES[2:], "chapters": DOCUMENTS[2:], "summary": SUMMARIES[1]},
]


@pytest.fixture
def chapter_model(tmp_path, tokenizer) -> Path:
    torch.manual_seed(0)
    sizes = dict.fromkeys(("bottom_up_layers", "top_down_layers", "segment_layers", "decoder_layers"), 1)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    sizes |= {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": len(tokenizer)}
    config = TopDownTransformerConfig(
        **sizes, attention_window=8, pooling_kernel=6, pooling_stride=4, max_encoder_position_embeddings=128
    )
    model = TopDownTransformerForConditionalGeneration(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.generation_config.max_length = 9
    model.generation_config.min_length = 7
    model.save_pretrained(tmp_path / "chapter_model")
    TopDownTransformerProcessor(tokenizer).save_pretrained(tmp_path / "chapter_model")
    return tmp_path / "chapter_model"


@pytest.fixture
def values(tmp_path, chapter_model) -> dict:
    (tmp_path / "books.jsonl").write_text("".join(json.dumps(book) + "\n" for book in BOOKS), encoding="utf-8")
    return {
        "task": "book_summarization",
        "model_name_or_path": str(chapter_model),
        "train": str(tmp_path / "books.jsonl"),
        "validation": str(tmp_path / "books.jsonl"),
        "test": str(tmp_path / "books.jsonl"),
        "max_test_documents": 1,
        "text_column": "parts",
        "max_source_length": 60,
        "max_target_length": 20,
        "max_length": 12,
        "max_steps": 1,
        "learning_rate": 1e-2,
        "output_dir": str(tmp_path / "run"),
        "predict_with_generate": True,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
    }


def test_trained_on_reference_summaries_and_tested_on_generated_ones(values, chapter_model, monkeypatch):
    used = {}
    tokenize = book_summarization.BookSummarizationTask._tokenized

    def noting(self, part, documents, processor):
        used[part] = list(documents["text"])
        return tokenize(self, part, documents, processor)

    monkeypatch.setattr(book_summarization.BookSummarizationTask, "_tokenized", noting)
    results = run_training(load_recipe(None, values))
    summarize = pipeline("summarization", model=str(chapter_model), device="cpu")
    # By the model before training, with its own settings of generation.
    written = [
        [
            summarize(text, truncation=True, max_source_length=60)[0]["summary_text"].strip()
            for text in book["chapters"]
        ]
        for book in BOOKS
    ]
    assert used["train"] == ["\n".join(book["parts"]) for book in BOOKS]
    assert used["validation"] == ["\n".join(book) for book in written]
    assert used["test"] == used["validation"][:1]
    assert results["evaluation"]["documents"] == 2
    assert results["test"]["documents"] == 1
    # Two of the five chapters are longer than 60 tokens; these are of the first book.
    counts = results["chapters"]
    assert (counts["validation"]["chapters"], counts["test"]["chapters"]) == (5, 3)
    assert counts["validation"]["truncated_chapters"] == counts["test"]["truncated_chapters"] == 2
    assert counts["validation"]["truncated_tokens"] > 0
    model = AutoModelForSeq2SeqLM.from_pretrained(values["output_dir"])
    assert model.generation_config.max_length == 12
    assert not torch.equal(model.model.shared.weight, summarize.model.model.shared.weight)


def test_a_stopped_run_goes_on_with_the_chapters(values, tmp_path, monkeypatch):
    write = book_summarization.Journal.line
    made = []

    def dies_at_the_third(self, identifier, product, **others):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(identifier)
        return write(self, identifier, product, **others)

    with monkeypatch.context() as patch:
        patch.setattr(book_summarization.Journal, "line", dies_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            run_training(load_recipe(None, {**values, "per_device_eval_batch_size": 1}))
    made.clear()

    def noting(self, identifier, product, **others):
        made.append(identifier)
        return write(self, identifier, product, **others)

    monkeypatch.setattr(book_summarization.Journal, "line", noting)
    run_training(load_recipe(None, {**values, "per_device_eval_batch_size": 1}))
    kept = (tmp_path / "run" / "chapter_summaries_test.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["id"] for line in kept] == ["0.0", "0.1", "0.2"]
    assert made == ["0.2", "0.0", "0.1", "0.2", "1.0", "1.1"]  # the rest of test, then validation


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"model_name_or_path": None, "tokenizer": "x"},
            "model_name_or_path is not given; books begin with",
        ),
        ({"text_column": None}, "text_column is not given; it has the reference summaries"),
        ({"source_kind": "text"}, "source_kind is text, but books are lists of chapters; leave it out"),
        ({"chapters_column": "scenes"}, "scenes"),
    ],
)
def test_mistakes(values, changes, says):
    with pytest.raises((RecipeError, ValueError), match=says):
        run_training(load_recipe(None, {**values, **changes}))


def test_summaries_of_another_model_or_other_books_are_not_taken(values, tmp_path, chapter_model):
    summarized = {**values, "validation": None, "predict_with_generate": False}
    run_training(load_recipe(None, summarized))
    file = tmp_path / "run" / "chapter_summaries_test.jsonl"
    kept = file.read_bytes()
    others = [BOOKS[0] | {"chapters": [*DOCUMENTS[:2], DOCUMENTS[3]]}, BOOKS[1]]
    (tmp_path / "books.jsonl").write_text("".join(json.dumps(book) + "\n" for book in others), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"output_dir: .*:3 is the summary of another text than '0.2' is now"):
        run_training(load_recipe(None, {**summarized, "overwrite": True}))
    (tmp_path / "books.jsonl").write_text("".join(json.dumps(book) + "\n" for book in BOOKS), encoding="utf-8")
    model = AutoModelForSeq2SeqLM.from_pretrained(chapter_model)
    with torch.no_grad():  # a little more training in the same place
        model.model.shared.weight[5, 3] += 1e-3
    model.save_pretrained(chapter_model)
    with pytest.raises(RecipeError, match=r"output_dir: .*chapter_summaries_test\.jsonl:1 was made with.*weights"):
        run_training(load_recipe(None, {**summarized, "overwrite": True}))
    assert file.read_bytes() == kept
