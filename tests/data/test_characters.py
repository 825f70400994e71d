import pytest

from hier_models.data import train_characters


def test_every_character_is_a_token():
    tokenizer = train_characters(["春风春", "花 风𠀀。"])
    assert tokenizer.convert_ids_to_tokens(range(4)) == ["<s>", "<pad>", "</s>", "<unk>"]
    assert tokenizer.convert_ids_to_tokens([4, 5]) == ["春", "风"]  # the commonest
    assert len(tokenizer) == 4 + 5
    ids = tokenizer("𠀀花 春龙", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["𠀀", "花", "春", "<unk>"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "𠀀花春"


def test_fewer_characters():
    assert len(train_characters(["春风春花"], 1)) == 5
    with pytest.raises(ValueError, match="num_characters must be at least 1, got 0"):
        train_characters(["春"], 0)


def test_a_string_is_no_corpus():
    with pytest.raises(TypeError, match="got a single string"):
        train_characters("春风")
