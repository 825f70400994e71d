"""Odd text gives the right number of markers and the tokenizer's own ids; wrong arguments give errors that say so."""

import copy
import re
import time
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from hier_models import HatBartForConditionalGeneration, HatBartProcessor


BOS, PAD, EOS = 0, 1, 2
MARKS = [
    "<s>",
    "</s>",
    "<pad>",
    "<mask>",
    "<unk>",
    "e.g.",
    "Dr.",
    "Word",
    "字",
    "。",
    "كلمة",
    "שלום",
    "🙂",
    "👩\u200d👩\u200d👧",
    "ﬁ",
]
SPACES = [" ", ". ", "! ", "? ", "\n\n", "\t", "\r\n", "\x85", "\u2029", "\u200b", "\ufeff"]
ODD = st.sampled_from([*MARKS, *SPACES, "\0", "\ud800", "\udfff", "e\u0301", "\u202e"])
TEXT = st.lists(ODD | st.text(max_size=5), max_size=25).map("".join)
ANY_TEXT = TEXT | st.text(st.characters(), max_size=80)  # st.characters() has surrogates too
quickly = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(processor: HatBartProcessor, encoded: Any, sentences: int, text: str) -> None:
    ids = encoded["input_ids"]
    assert ids[0] == BOS
    assert ids[-1] == EOS
    assert ids.count(BOS) == sentences
    assert ids.count(EOS) == 1
    assert PAD not in ids
    clean = re.sub("[\ud800-\udfff]", "\ufffd", text)
    plain = processor.tokenizer(clean, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert [i for i in ids[:-1] if i != BOS] == plain
    assert len(encoded["segment_ids"]) == len(encoded["attention_mask"]) == len(ids)


@quickly
@given(ANY_TEXT)
def test_any_text(processor: HatBartProcessor, text: str) -> None:
    spans = processor.split_sentences(text)
    assert processor(text="\ud800" + text)["input_ids"] == processor(text="\ufffd" + text)["input_ids"]
    check(processor, processor(text=text), max(1, len(spans)), text)


@quickly
@given(st.lists(ANY_TEXT, max_size=6))
def test_any_sentences(processor: HatBartProcessor, sentences: list[str]) -> None:
    text = " ".join(stripped for s in sentences if (stripped := s.strip()))
    check(processor, processor(sentences=sentences), max(1, len(sentences)), text)


@quickly
@given(st.lists(ANY_TEXT, max_size=6))
def test_any_documents(processor: HatBartProcessor, documents: list[str]) -> None:
    parts = [article[a:b] for article in documents for a, b in processor.split_sentences(article)]
    check(processor, processor(documents=documents), max(1, len(parts)), " ".join(parts))


@quickly
@given(st.lists(st.tuples(st.sampled_from(["A", "<s>", "\ud83d", "字"]), ANY_TEXT), max_size=6))
def test_any_turns(processor: HatBartProcessor, turns: list[tuple[str, str]]) -> None:
    text = " ".join(f"{role}: {content.strip()}".strip() for role, content in turns)
    encoded = processor(turns=[{"role": role, "content": content} for role, content in turns])
    check(processor, encoded, max(1, len(turns)), text)
    names = list(dict.fromkeys(role for role, _ in turns))
    starts = [s for i, s in zip(encoded["input_ids"], encoded["segment_ids"], strict=True) if i == BOS]
    assert starts == [names.index(role) for role, _ in turns] or not turns


@quickly
@given(st.lists(TEXT, min_size=1, max_size=4), st.integers(2, 40), st.sampled_from(["left", "right"]))
def test_any_batch_is_cut_and_padded(processor: HatBartProcessor, texts: list[str], limit: int, side: str) -> None:
    options: dict[str, Any] = {"truncation": True, "max_length": limit, "return_truncation": True}
    batch = processor(text=texts, padding=True, padding_side=side, return_tensors="pt", **options)
    for i, text in enumerate(texts):
        full, cut = processor(text=text)["input_ids"], processor(text=text, **options)
        kept = batch["attention_mask"][i].bool()
        assert batch["input_ids"][i][kept].tolist() == cut["input_ids"]
        assert (batch["input_ids"][i][~kept] == PAD).all()
        assert cut["num_truncated_tokens"] == len(full) - len(cut["input_ids"]) == batch["num_truncated_tokens"][i]
        assert len(cut["input_ids"]) <= limit
        assert (cut["num_truncated_sentences"] > 0) == (len(full) > limit)


LONG = {
    "no sentence end": "word " * 20_000,
    "one word": "x" * 100_000,
    "one character": "。" * 100_000,
    "white space": " " * 100_000,
    "emoji": "🙂" * 100_000,
    "a million characters": "A sentence of moderate length. Dr. Li read it, i.e. all of it (2003). " * 14_300,
}


@pytest.mark.parametrize("name", LONG)
def test_long_text(processor: HatBartProcessor, name: str) -> None:
    text = LONG[name]
    start = time.perf_counter()
    encoded = processor(text=text)
    assert time.perf_counter() - start < 60  # a few seconds at most; this is about not hanging
    check(processor, encoded, max(1, len(processor.split_sentences(text))), text)
    cut = processor(text=text, truncation=True, max_length=50, return_truncation=True)
    assert len(cut["input_ids"]) == 50
    assert cut["num_truncated_tokens"] == len(encoded["input_ids"]) - 50


@pytest.mark.parametrize("text", ["", " \n", "Word", "\0", "\ud800", "🙂", "<s></s><s>", "字字。字。", *LONG.values()])
def test_the_model_reads_it(
    processor: HatBartProcessor, tiny_model: HatBartForConditionalGeneration, text: str
) -> None:
    encoded = processor(text=[text, "Two. Sentences."], truncation=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        assert tiny_model.generate(**encoded, max_new_tokens=3, num_beams=1).shape[0] == 2


# ---------------------------------------------------------------------------------------------------- wrong arguments


def test_more_roles_than_segments(processor: HatBartProcessor) -> None:
    turns = [[{"role": role, "content": "Yes"} for role in roles] for roles in ("A", "abcde")]
    with pytest.raises(ValueError, match=r"`turns\[1\]` has 5 roles.*num_segments=4"):
        processor(turns=turns)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"bos_token": None}, {}, "has no bos_token.*add_special_tokens"),
        ({"bos_token": "</s>"}, {}, "'</s>' as bos_token and as eos_token"),
        ({}, {"num_segments": -1}, "`num_segments` must be an integer of at least 0, got -1"),
        ({}, {"num_segments": "2"}, "`num_segments`.*got '2'"),
        ({}, {"num_segments": True}, "`num_segments`.*got True"),
        ({}, {"language": "elvish"}, "`language` must be one of .*english.*got 'elvish'"),
    ],
)
def test_a_processor_that_cannot_work(
    tokenizer: PreTrainedTokenizerFast, change: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    for name, token in change.items():
        setattr(tokenizer, name, token)
    with pytest.raises(ValueError, match=message):
        HatBartProcessor(tokenizer, **options)


def test_literal_tokens_without_unknown_token() -> None:
    """Where a vocabulary finds a special token in text and has no unknown token, that is an error."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "word": 2}, unk_token="word"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    processor = HatBartProcessor(PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>"))
    assert processor(text="word word")["input_ids"] == [0, 2, 2, 1]
    with pytest.raises(ValueError, match=r"special token.*no unk_token"):
        processor(text="word <s> word")


def test_flash_attention_does_not_take_padding_for_queries(
    tiny_model: HatBartForConditionalGeneration, flash_masks: str
) -> None:
    """Its mask of the keys would be used for the queries too; without padding, or with one query, there is no mask."""
    model = copy.deepcopy(tiny_model)
    model.set_attn_implementation(flash_masks)
    ids = torch.tensor([[BOS, 7, BOS, 8, EOS], [BOS, 7, 8, 9, EOS]])
    with pytest.raises(ValueError, match=r"sdpa"):  # two sentences and one
        model(ids, decoder_input_ids=ids)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    with pytest.raises(ValueError, match=r"sdpa"):
        model(ids[1:].expand(2, -1), attention_mask=mask, decoder_input_ids=ids)
    model(ids[:1], decoder_input_ids=ids[:1])
    model(ids, decoder_input_ids=ids[:, :1])


@pytest.mark.parametrize(("segments", "got"), [([0, 4, 0], "from 0 to 4"), ([0, -1, 1], "from -1 to 1")])
def test_segments_that_have_no_embedding(
    tiny_model: HatBartForConditionalGeneration, segments: list[int], got: str
) -> None:
    with pytest.raises(ValueError, match=rf"`segment_ids` must be in \[0, num_segments=4\), got values {got}"):
        tiny_model.generate(torch.tensor([[BOS, 7, EOS]]), segment_ids=torch.tensor([segments]), max_new_tokens=2)
