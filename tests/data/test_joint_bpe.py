import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hier_models import HatBartProcessor
from hier_models.data import train_joint_bpe


ENGLISH = "The ferry runs every hour, but the bridge is closed. Nobody knows why the ferry is late."
GERMAN = "Die Fähre fährt jede Stunde, aber die Brücke ist gesperrt. Niemand weiß, warum die Fähre zu spät kommt."


@pytest.fixture(scope="module")
def tokenizer():
    return train_joint_bpe([ENGLISH, GERMAN] * 3, num_codes=80, model_max_length=64)


def test_the_size_counts_codes(tokenizer):
    assert len(tokenizer) == 256 + 4 + 80
    assert tokenizer.convert_tokens_to_ids([tokenizer.bos_token, tokenizer.pad_token, tokenizer.eos_token]) == [
        0,
        1,
        2,
    ]
    assert tokenizer.unk_token_id == 3
    assert len(train_joint_bpe([ENGLISH], num_codes=0)) == 260
    assert len(train_joint_bpe(["ab ab"], num_codes=1000)) < 270  # there are no more
    with pytest.raises(ValueError, match="num_codes must be 0 or more, got -1"):
        train_joint_bpe([ENGLISH], num_codes=-1)


def test_both_languages_share_it(tokenizer):
    alone = train_joint_bpe([ENGLISH] * 3, num_codes=80)
    for text in (ENGLISH, GERMAN):
        assert len(tokenizer(text)["input_ids"]) < len(text.encode()) / 2
    assert len(tokenizer(GERMAN)["input_ids"]) < len(alone(GERMAN)["input_ids"])


def test_texts_have_an_end(tokenizer):
    """A model that sees plain text learns from it where to stop."""
    ids = tokenizer([ENGLISH], text_target=[GERMAN])
    for row in (ids["input_ids"][0], ids["labels"][0]):
        assert (row[0], row[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
        assert not {0, 1, 2, 3} & set(row[1:-1])


def test_training_is_repeatable(tokenizer):
    again = train_joint_bpe(iter([ENGLISH, GERMAN] * 3), num_codes=80)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again(GERMAN)["input_ids"] == tokenizer(GERMAN)["input_ids"]


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_every_text_comes_back(tokenizer, text):
    ids = tokenizer(text, split_special_tokens=True)["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_punctuation_and_spaces_come_back(tokenizer):
    for text in ("Ja , so ' s   nicht !", " \u00a0A\tb\n\nc  ", "don't “do” — 3,5 % …", "<s> is text </s>"):
        ids = tokenizer(text, split_special_tokens=True)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_it_is_an_ordinary_fast_tokenizer(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    assert loaded.model_max_length == 64
    assert loaded(GERMAN)["input_ids"] == tokenizer(GERMAN)["input_ids"]
    assert loaded.decode(loaded("Ja , nein .")["input_ids"]) == "<s>Ja , nein .</s>"
    inputs = HatBartProcessor(loaded, language="german")(text=GERMAN, text_target=ENGLISH, return_tensors="pt")
    assert (inputs["input_ids"] == loaded.bos_token_id).sum() == 2
    assert torch.equal(inputs["labels"][0, [0, -1]], torch.tensor([0, 2]))
    assert loaded.decode(inputs["labels"][0], skip_special_tokens=True) == ENGLISH
