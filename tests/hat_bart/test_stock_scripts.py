"""Transformers' own training scripts, which know no processors, train HAT-BART after `import hier_models`."""

import itertools
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from test_tokenization_hat_bart import byte_level, word_piece
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipeline,
)

import hier_models
from hier_models.data.tokenizing import plain_tokenizer
from hier_models.training.arguments import ModelArguments
from hier_models.training.models import load_model_and_processor


NAMES, COLORS = ("Ann", "Bob", "Cem", "Dee"), ("red", "blue", "green", "gray")


def task() -> datasets.Dataset:
    """What each says, a sentence each; the summary needs all of them."""
    rows = []
    for colors in itertools.product(COLORS, repeat=3):
        said = [f"{name} has a {color} kite." for name, color in zip(NAMES, colors, strict=False)]
        rows.append({"document": " ".join(said), "summary": "Kites: {}, {} and {}. That is all.".format(*colors)})
    return datasets.Dataset.from_list(rows).shuffle(seed=0)


@pytest.mark.parametrize(("make", "num_segments"), [(byte_level, 0), (word_piece, 4)])
def test_a_stock_training_loop(make: Any, num_segments: int, tmp_path: Path) -> None:
    plain = make()
    torch.manual_seed(0)
    config = hier_models.HatBartConfig(
        vocab_size=len(plain),
        max_position_embeddings=160,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        dropout=0.0,
        num_segments=num_segments,
        bos_token_id=plain.bos_token_id,
        pad_token_id=plain.pad_token_id,
        eos_token_id=plain.eos_token_id,
        decoder_start_token_id=plain.eos_token_id,
        forced_eos_token_id=plain.eos_token_id,
    )
    hier_models.HatBartForConditionalGeneration(config).save_pretrained(tmp_path)
    plain.save_pretrained(tmp_path)

    # As it stands in a script.
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)

    def preprocess(batch: Any) -> Any:
        return tokenizer(batch["document"], text_target=batch["summary"], max_length=150, truncation=True)

    rows = task().map(preprocess, batched=True, remove_columns=["document", "summary"])
    assert sorted(rows.column_names) == ["attention_mask", "input_ids", "labels"]
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=30,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        logging_steps=5,
        predict_with_generate=True,
        generation_max_length=20,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    decoded: list[str] = []

    def compute_metrics(prediction: Any) -> dict[str, float]:
        ids = [[i if i >= 0 else tokenizer.pad_token_id for i in row] for row in prediction.label_ids]
        decoded.extend(tokenizer.batch_decode(ids, skip_special_tokens=True))
        return {"length": float((prediction.predictions != tokenizer.pad_token_id).sum(-1).mean())}

    trainer = Seq2SeqTrainer(
        model=model,
        args=arguments,
        train_dataset=rows.select(range(48)),
        eval_dataset=rows.select(range(48, 56)),
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        compute_metrics=compute_metrics,
    )

    widths: list[tuple[int, bool]] = []
    model.model.encoder.register_forward_hook(
        lambda encoder, _, output: widths.append((output.hierarchical_hidden_state.shape[1], encoder.training))
    )
    trainer.train()
    scores = trainer.evaluate()

    assert len(widths) > 30
    assert {training for _, training in widths} == {True, False}
    assert {width for width, _ in widths} == {3}  # a document's sentences, in training and in evaluation
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.5 * losses[0]
    assert scores["eval_length"] > 2
    # Labels are one sequence, though they have two sentences.
    assert all(row.count(plain.bos_token_id) == 1 for row in rows["labels"])
    assert len(decoded) == 8
    assert all(row.lower().startswith("kites") for row in decoded), decoded

    # What was trained is loaded again the same way, and reads sentences.
    trainer.save_model(str(tmp_path / "out"))
    again = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert again("One. Two.")["input_ids"].count(plain.bos_token_id) == 2


def test_a_plain_twin_shares_the_tokenizer_and_reads_no_markers(tmp_path: Path) -> None:
    plain, text = byte_level(), "One came. Two left."
    hier_models.HatBartConfig().save_pretrained(tmp_path)
    hier_models.HatBartTokenizer.from_tokenizer(plain).save_pretrained(tmp_path)
    marking = AutoTokenizer.from_pretrained(tmp_path)
    assert marking(text)["input_ids"] != plain(text)["input_ids"]
    sizes = json.dumps({"encoder_layers": 1, "decoder_layers": 1, "d_model": 32})
    for kind in ("highlight_transformer", "bart"):
        arguments = ModelArguments(model_type=kind, tokenizer=str(tmp_path), config_overrides=sizes)
        model, processor = load_model_and_processor(arguments)
        assert plain_tokenizer(processor)(text)["input_ids"] == plain(text)["input_ids"]
    twin = pipeline("summarization", model=model, tokenizer=marking, device="cpu")
    assert twin.tokenizer(text)["input_ids"] == plain(text)["input_ids"]
