"""TopDownTransformerProcessor: the four kinds of input, importance, truncation, padding, saving, any tokenizer."""

import logging
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hier_models.data import HierDataCollator
from hier_models.models.processing_top_down_transformer import TopDownTransformerProcessor
from tests.conftest import DOCUMENTS, TURNS
from tests.odd_tokenizers import MIXED, TOKENIZERS, plain_ids


# Named, since the command line quiets those above it.
LOGGER = "hier_models.models.processing_top_down_transformer"


BOS, PAD, EOS = 0, 1, 2
INPUTS: dict[str, list[Any]] = {
    "text": [*DOCUMENTS[:3], ""],
    "sentences": [["One. ", "", "Two."], ["Three."], []],
    "turns": [TURNS, TURNS[2:], []],
    "documents": [DOCUMENTS[:2], DOCUMENTS[2:], [""]],
}


@pytest.fixture
def processor(tokenizer: PreTrainedTokenizerFast) -> TopDownTransformerProcessor:
    return TopDownTransformerProcessor(tokenizer)


def slow_weights(spans: list[Any], offsets: list[Any]) -> list[float]:
    """The largest weight of the spans that a token overlaps, character by character."""
    weights = []
    for a, b in offsets:
        found = [weight for start, end, weight in spans for i in range(a, b) if start <= i < end]
        weights.append(max(found, default=0.0))
    return weights


# ------------------------------------------------------------------------------------------------------------- input


@pytest.mark.parametrize("text", [*DOCUMENTS, MIXED, "", " \n"])
def test_bos_the_tokenizers_own_ids_eos(processor: TopDownTransformerProcessor, text: str) -> None:
    encoded = processor(text=text)
    assert encoded["input_ids"] == [BOS, *plain_ids(processor.tokenizer, text), EOS]
    assert set(encoded) == {"input_ids", "attention_mask"}
    assert encoded["attention_mask"] == [1] * len(encoded["input_ids"])


def test_running_text(processor: TopDownTransformerProcessor) -> None:
    turns = processor.running_text(turns=TURNS)
    assert turns == "\n".join(f"{turn['role']}: {turn['content']}" for turn in TURNS)
    assert processor.running_text(sentences=[" One.\n", "", "Two."]) == "One. Two."
    assert processor.running_text(documents=["A b.\n", "C."]) == "A b.\n\nC."
    assert processor.running_text(["as", " it is\n"]) == ["as", " it is\n"]
    assert (
        processor.running_text(turns=[{"role": "A", "content": " "}, {"role": "B", "content": "Yes"}]) == "A:\nB: Yes"
    )


@pytest.mark.parametrize("kind", INPUTS)
def test_every_kind_is_its_running_text_and_a_batch_its_members(
    processor: TopDownTransformerProcessor, kind: str
) -> None:
    texts = processor.running_text(**{kind: INPUTS[kind]})
    spans = [[(0, min(4, len(text)), 0.5)] if text else [] for text in texts]
    options: dict[str, Any] = {"return_truncation": True, "return_offsets_mapping": True}
    batch = processor(**{kind: INPUTS[kind]}, importance=spans, **options)
    assert batch == processor(text=texts, importance=spans, **options)
    for i, one in enumerate(INPUTS[kind]):
        single = processor(**{kind: one}, importance=spans[i], **options)
        assert {key: values[i] for key, values in batch.items()} == dict(single)


# -------------------------------------------------------------------------------------------------------- importance


@pytest.mark.parametrize("text", [DOCUMENTS[0], MIXED])
def test_offsets_say_where_the_tokens_are(processor: TopDownTransformerProcessor, text: str) -> None:
    encoded = processor(text=text, return_offsets_mapping=True)
    offsets = encoded["offset_mapping"]
    assert offsets[0] == offsets[-1] == (0, 0)
    covered = {i for a, b in offsets for i in range(a, b)}
    assert covered == set(range(len(text)))
    for i, (a, b) in zip(encoded["input_ids"], offsets, strict=True):
        if text[a:b].isascii():
            assert i in (BOS, EOS) or processor.decode([i]) == text[a:b]


def test_a_word_weighs_on_all_its_tokens_and_no_other(processor: TopDownTransformerProcessor) -> None:
    text = "The unfathomable bridge was closed."
    start = text.index("unfath")
    encoded = processor(text=text, importance=[(start, start + 12, 0.25)], return_offsets_mapping=True)
    tokens = [
        processor.decode([i]) for i, w in zip(encoded["input_ids"], encoded["token_importance"], strict=True) if w
    ]
    assert len(tokens) > 2
    assert "".join(tokens).strip() == "unfathomable"
    assert set(encoded["token_importance"]) == {0.0, 0.25}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_tokens_get_the_largest_weight_they_overlap(tokenizer: PreTrainedTokenizerFast, data: Any) -> None:
    text = data.draw(st.sampled_from([DOCUMENTS[1], MIXED, "a b"]))
    bound = st.integers(0, len(text) - 1)
    spans = data.draw(st.lists(st.tuples(bound, bound, st.sampled_from([0.0, 0.125, 0.5, 3.0])), max_size=8))
    spans = [(min(a, b), max(a, b) + 1, weight) for a, b, weight in spans]
    encoded = TopDownTransformerProcessor(tokenizer)(
        text=text, importance=spans, return_offsets_mapping=True, return_truncation=True
    )
    expected = slow_weights(spans, encoded["offset_mapping"])
    assert encoded["without_importance"] == (not any(expected))
    assert encoded["token_importance"] == (expected if any(expected) else [1.0] * len(expected))


def test_without_an_important_token_all_weigh_the_same(
    processor: TopDownTransformerProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    text = DOCUMENTS[0]
    end = [(len(text) - 4, len(text), 1.0)]
    for spans, limit in (([], 100), ([(0, 3, 0.0)], 100), (end, 10)):
        encoded = processor(text=text, importance=spans, truncation=True, max_length=limit, return_truncation=True)
        assert encoded["without_importance"] == 1
        assert encoded["token_importance"] == [1.0] * len(encoded["input_ids"])
    assert processor(text=text, importance=end, return_truncation=True)["without_importance"] == 0
    with caplog.at_level(logging.WARNING, LOGGER):
        assert "without_importance" not in processor(text=[text, text], importance=[[], []])
        processor(text=[text, text], importance=[[], []])
        processor(text=text, truncation=True, max_length=9)
    messages = [record.message for record in caplog.records]
    assert len(messages) == 2  # each kind once
    assert "No token of 2 texts is important" in messages[0]
    assert "Truncation cut" in messages[1]


def test_importance_is_padded_like_the_tokens(processor: TopDownTransformerProcessor) -> None:
    spans = [[(0, 3, 0.5)], [(2, 9, 0.25)]]
    for side in ("left", "right"):
        batch = processor(
            text=DOCUMENTS[1:3],
            importance=spans,
            padding=True,
            padding_side=side,
            return_tensors="pt",
            return_offsets_mapping=True,
        )
        assert batch["token_importance"].dtype == torch.float32
        assert batch["token_importance"].shape == batch["input_ids"].shape
        assert batch["offset_mapping"].shape == (*batch["input_ids"].shape, 2)
        for i in range(2):
            real = batch["attention_mask"][i].bool()
            alone = processor(text=DOCUMENTS[1 + i], importance=spans[i])["token_importance"]
            assert batch["token_importance"][i][real].tolist() == alone
            assert not batch["token_importance"][i][~real].any()
            assert not batch["offset_mapping"][i][~real].any()
    assert set(HierDataCollator(processor)([dict(processor(text="One."))])) == {"input_ids", "attention_mask"}


def test_many_spans_of_a_long_document_are_quick(processor: TopDownTransformerProcessor) -> None:
    text = "word " * 20_000
    encoded = processor(text=text, importance=[(5 * i, 5 * i + 4, i % 7) for i in range(20_000)])
    assert len(encoded["token_importance"]) == len(encoded["input_ids"])


# --------------------------------------------------------------------------------------------- truncation and padding


def test_truncation_counts_what_it_cuts(processor: TopDownTransformerProcessor) -> None:
    text = DOCUMENTS[0]
    full = processor(text=text)["input_ids"]
    for limit in range(2, len(full) + 3):
        cut = processor(
            text=text, importance=[(0, 9, 1.0)], truncation=True, max_length=limit, return_truncation=True,
            return_offsets_mapping=True,
        )  # fmt: skip
        ids = cut["input_ids"]
        assert len(ids) == min(limit, len(full))
        assert ids == [*full[: len(ids) - 1], EOS]
        assert cut["num_truncated_tokens"] == len(full) - len(ids)
        assert len(cut["token_importance"]) == len(cut["attention_mask"]) == len(cut["offset_mapping"]) == len(ids)


# ------------------------------------------------------------------------------------------- saving, any tokenizer


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", [DOCUMENTS[0], "One <s> two </s> three <pad>. Ünï cödé."])
def test_any_tokenizer(name: str, text: str) -> None:
    tokenizer: PreTrainedTokenizerBase = TOKENIZERS[name]()
    processor = TopDownTransformerProcessor(tokenizer)
    ids = processor(text=text)["input_ids"]
    assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert not {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id} & set(ids[1:-1])
    if "<" not in text:
        assert ids[1:-1] == plain_ids(tokenizer, text)
    if tokenizer.is_fast:
        start = text.index(" t") + 1
        encoded = processor(text=text, importance=[(start, start + 3, 1.0)], return_offsets_mapping=True)
        assert encoded["input_ids"] == ids
        assert encoded["token_importance"] == slow_weights([(start, start + 3, 1.0)], encoded["offset_mapping"])
        assert 1.0 in encoded["token_importance"]
    else:
        with pytest.raises(ValueError, match="`importance` and `return_offsets_mapping` need one"):
            processor(text=text, importance=[(0, 3, 1.0)])


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text_target": "a", "importance": []}, "are about a document"),
        ({"text": ["a", "b"], "importance": [[]]}, "`importance` must match `text`, got 1 lists for 2 documents"),
        ({"text": ["a"], "importance": "x"}, "`importance` must be a list of spans for each document, got str"),
        ({"text": "abc", "importance": [(0, 4, 1)]}, r"`importance\[0\]` must begin before it ends.* 3 characters"),
        ({"text": "abc", "importance": [(0, 1, 1), (2, 2, 1)]}, r"`importance\[1\]`.*got \(2, 2, 1\)"),
        ({"text": "abc", "importance": [(-1, 2, 1)]}, "must begin before it ends"),
        ({"text": "abc", "importance": [(0, 1.5, 1)]}, "must begin before it ends"),
        ({"text": ["abc"], "importance": [[(0, 1, -1)]]}, r"`importance\[0\]\[0\]` must have a weight of 0 or more"),
        ({"text": "abc", "importance": [(0, 1, float("nan"))]}, "must have a weight of 0 or more"),
        ({"text": "abc", "importance": [(0, 1)]}, r"must be a list of \(start, end, weight\)"),
        ({"text": "abc", "importance": [(0, 1, 2), (3,)]}, r"must be a list of \(start, end, weight\)"),
        ({"text": "abc", "importance": [0.5, 0.5, 0.5]}, r"must be a list of \(start, end, weight\)"),
        ({"text": "abc", "importance": "high"}, r"must be a list of \(start, end, weight\)"),
    ],
)
def test_bad_input(processor: TopDownTransformerProcessor, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        processor(**inputs)


def test_a_language_in_full_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    for language in ("english", "EN", 3):
        with pytest.raises(ValueError, match="`language` must be a code"):
            TopDownTransformerProcessor(tokenizer, language=language)


def test_lone_surrogates_keep_their_place(processor: TopDownTransformerProcessor) -> None:
    encoded = processor(text="a \ud800 bridge", importance=[(4, 10, 1.0)], return_offsets_mapping=True)
    weighty = [o for o, w in zip(encoded["offset_mapping"], encoded["token_importance"], strict=True) if w]
    assert weighty[0][0] == 3
    assert weighty[-1][1] == 10
