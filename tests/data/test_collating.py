import pytest
import torch
from datasets import Dataset
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

from hier_models import HamReaderConfig, HamReaderForQuestionAnswering, HamReaderProcessor, HierDataCollator
from hier_models.data import train_word_level
from hier_models.models.processing_ham_reader import fit_characters
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


@pytest.fixture
def features(processor):
    rows = [
        processor(text=text, text_target=target, truncation=True)
        for text, target in zip(DOCUMENTS, SUMMARIES, strict=True)
    ]
    rows.append(processor(turns=TURNS, text_target="Nine people need a room."))
    return [dict(row) for row in rows]


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_follows_the_tokenizer_and_labels_stay_on_the_right(features, processor, tiny_model, side):
    processor.tokenizer.padding_side = side
    try:
        batch = HierDataCollator(processor, model=tiny_model)(features)
    finally:
        processor.tokenizer.padding_side = "right"
    longest = max(len(row["input_ids"]) for row in features)
    longest_label = max(len(row["labels"]) for row in features)
    pads = {"input_ids": 1, "attention_mask": 0, "segment_ids": 0}
    for name, pad in pads.items():
        for row, feature in zip(batch[name].tolist(), features, strict=True):
            fill = [pad] * (longest - len(feature[name]))
            assert row == (feature[name] + fill if side == "right" else fill + feature[name])
    for row, feature in zip(batch["labels"].tolist(), features, strict=True):
        assert row == feature["labels"] + [-100] * (longest_label - len(feature["labels"]))
    expected = tiny_model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    assert torch.equal(batch["decoder_input_ids"], expected)
    assert set(batch) == {*pads, "labels", "decoder_input_ids"}


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_batch_equals_its_members(features, processor, tiny_model, side):
    collator = HierDataCollator(processor, model=tiny_model)
    processor.tokenizer.padding_side = side
    try:
        batch = collator(features)
        alone = [collator([feature]) for feature in features]
    finally:
        processor.tokenizer.padding_side = "right"
    with torch.no_grad():
        together = tiny_model(**batch).logits
        for row, single in zip(together, alone, strict=True):
            logits = tiny_model(**single).logits[0]
            torch.testing.assert_close(row[: len(logits)], logits, rtol=1e-4, atol=1e-5)


def test_it_does_what_the_stock_collator_does_for_a_plain_model(tokenizer):
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=128,
    )  # fmt: skip
    model = BartForConditionalGeneration(config)
    rows = [
        {**tokenizer(text), "labels": tokenizer(target)["input_ids"]}
        for text, target in zip(DOCUMENTS, SUMMARIES, strict=True)
    ]
    for options in ({}, {"pad_to_multiple_of": 8}):
        ours = HierDataCollator(tokenizer, model=model, **options)(rows)
        stock = DataCollatorForSeq2Seq(tokenizer, model=model, **options)([dict(row) for row in rows])
        assert set(ours) == set(stock)
        for name in ours:
            assert torch.equal(ours[name], stock[name]), name


def test_fixed_lengths(features, processor):
    collator = HierDataCollator(processor, padding="max_length", max_length=128)
    batch = collator(features)
    assert batch["input_ids"].shape == batch["segment_ids"].shape == (5, 128)
    with pytest.raises(ValueError, match=r"an example has \d+ tokens, more than max_length=16"):
        HierDataCollator(processor, padding="max_length", max_length=16)(features)


def test_multiples(features, processor):
    batch = HierDataCollator(processor, pad_to_multiple_of=16)(features)
    for name in ("input_ids", "attention_mask", "segment_ids", "labels"):
        assert batch[name].shape[1] % 16 == 0


class Declaring:
    """A processor of a family yet to come, with inputs of other shapes."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.extra_inputs = {"importance": -1, "bos_positions": -1, "phrase_spans": -1}


@pytest.mark.parametrize("side", ["right", "left"])
def test_every_declared_input_is_padded_by_its_own_value(tokenizer, side):
    rows = [
        {"input_ids": [5, 6, 7], "importance": [0.5, 1.0, 2.0], "bos_positions": [0], "phrase_spans": [[0, 1]]},
        {"input_ids": [5], "importance": [3.0], "bos_positions": [0, 2], "phrase_spans": [[0, 0], [1, 2]]},
    ]
    tokenizer.padding_side = side
    try:
        batch = HierDataCollator(Declaring(tokenizer))(rows)
    finally:
        tokenizer.padding_side = "right"
    short = [3.0, -1.0, -1.0] if side == "right" else [-1.0, -1.0, 3.0]
    assert batch["importance"].tolist() == [[0.5, 1.0, 2.0], short]
    assert batch["bos_positions"].tolist() == [[0, -1], [0, 2]]
    assert batch["phrase_spans"].tolist() == [[[0, 1], [-1, -1]], [[0, 0], [1, 2]]]
    assert batch["importance"].is_floating_point()
    assert batch["bos_positions"].dtype == torch.long


@pytest.mark.parametrize("side", ["right", "left"])
def test_inputs_of_their_own_length_are_padded_on_the_right(tokenizer, side):
    processor = Declaring(tokenizer)
    processor.extra_inputs = {"phrase_positions": (-1, -2), "phrase_values": 0.0}
    processor.own_length_inputs = ("phrase_positions", "phrase_values")
    rows = [
        {"input_ids": [5, 6], "phrase_positions": [[0, 1], [1, 2]], "phrase_values": [1, 2]},
        {"input_ids": [5], "phrase_positions": [], "phrase_values": []},
    ]
    tokenizer.padding_side = side
    try:
        batch = HierDataCollator(processor)(rows)
        alone = HierDataCollator(processor)(rows[1:])
        fixed = HierDataCollator(processor, padding="max_length", max_length=5)(rows[:1])
    finally:
        tokenizer.padding_side = "right"
    assert batch["phrase_positions"].tolist() == [[[0, 1], [1, 2]], [[-1, -2], [-1, -2]]]
    assert batch["phrase_values"].tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert alone["phrase_positions"].tolist() == [[[-1, -2]]]
    assert alone["phrase_values"].tolist() == [[0.0]]
    assert (batch["phrase_positions"].dtype, batch["phrase_values"].dtype) == (torch.long, torch.float)
    assert alone["phrase_positions"].dtype == torch.long
    assert (fixed["input_ids"].shape, fixed["phrase_values"].shape) == ((1, 5), (1, 2))
    numpy = Dataset.from_list(rows).with_format("numpy")
    for some, same in ((list(numpy), rows), ([numpy[1]], rows[1:])):
        expected = HierDataCollator(processor)(same)
        for name, value in HierDataCollator(processor)(some).items():
            assert torch.equal(value, expected[name])


def test_counts_are_left_out_numbers_are_kept_and_the_rest_is_refused(features, processor):
    collator = HierDataCollator(processor)
    rows = [{**row, "num_truncated_tokens": 3, "weight": 0.5} for row in features]
    batch = collator(rows)
    assert "num_truncated_tokens" not in batch
    assert batch["weight"].tolist() == [0.5] * 5
    for value in ("d1", [1, 2], None):
        rows = [{**row, "extra": value} for row in features]
        with pytest.raises(ValueError, match=r"column 'extra'.*declares \(they are: segment_ids\).*remove_columns"):
            collator(rows)


def test_a_plain_tokenizer_refuses_inputs_it_did_not_make(features, tokenizer):
    with pytest.raises(ValueError, match=r"column 'segment_ids' \(list\) cannot be batched.*they are: none"):
        HierDataCollator(tokenizer)(features)


def test_examples_must_agree(features, processor):
    collator = HierDataCollator(processor)
    del features[1]["labels"]
    with pytest.raises(ValueError, match="example 1 has input_ids, attention_mask, segment_ids"):
        collator(features)
    features[1]["labels"] = None
    with pytest.raises(ValueError, match="give all or none of them labels"):
        collator(features)
    with pytest.raises(ValueError, match="examples must have input_ids"):
        collator([{"labels": [1]}])


def test_labels_may_be_missing_or_none(features, processor, tiny_model):
    collator = HierDataCollator(processor, model=tiny_model)
    unlabeled = [{name: value for name, value in row.items() if name != "labels"} for row in features]
    for rows in (unlabeled, [{**row, "labels": None} for row in unlabeled]):
        assert set(collator(rows)) == {"input_ids", "attention_mask", "segment_ids"}


def test_tensors_are_taken_too(features, processor):
    collator = HierDataCollator(processor)
    expected = collator(features)
    batch = collator([{name: torch.tensor(value) for name, value in row.items()} for row in features])
    for name, value in expected.items():
        assert torch.equal(batch[name], value)


def test_settings_that_do_not_fit(processor, tokenizer):
    with pytest.raises(ValueError, match="max_length goes with padding='max_length'"):
        HierDataCollator(processor, max_length=10)
    with pytest.raises(ValueError, match="max_length goes with padding='max_length'"):
        HierDataCollator(processor, padding="max_length")
    with pytest.raises(ValueError, match="padding must be True"):
        HierDataCollator(processor, padding=False)
    pad = tokenizer.pad_token
    tokenizer.pad_token = None
    try:
        with pytest.raises(ValueError, match="no pad_token"):
            HierDataCollator(tokenizer)
    finally:
        tokenizer.pad_token = pad


def test_rows_of_a_reader_are_padded_by_its_processor(tmp_path):
    texts = ["Marta keeps a bakery.", "Who keeps it?"]
    processor = HamReaderProcessor(train_word_level(texts), characters=fit_characters(texts))
    answers = {"text": ["Marta"], "answer_start": [0]}
    rows = [dict(processor(question, texts[0], answers=answers)) for question in ("Who keeps it?", "Who?")]
    collator = HierDataCollator(processor)
    batch = collator(rows)
    want = processor.pad(rows, return_tensors="pt")
    assert set(batch) == set(want)
    assert all(torch.equal(batch[name], want[name]) for name in want)
    longer = HierDataCollator(processor, padding="max_length", max_length=12)(rows)
    assert longer["input_ids"].shape == (2, 12)
    sizes = {"embedding_size": 4, "char_hidden_size": 3, "hidden_size": 4, "attention_depth": 1}
    config = HamReaderConfig(vocab_size=len(processor.tokenizer), char_vocab_size=processor.char_vocab_size, **sizes)
    arguments = TrainingArguments(tmp_path, max_steps=1, use_cpu=True, report_to="none", save_strategy="no")
    model = HamReaderForQuestionAnswering(config)
    trained = Trainer(model, arguments, train_dataset=Dataset.from_list(rows), data_collator=collator).train()
    assert trained.global_step == 1
