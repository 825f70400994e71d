"""The tokenizer of whole words: what a word is, which are kept, and what comes back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hier_models.data import train_word_level
from hier_models.data.cleaning import replace_digits


TEXTS = ["The ferry runs. The bridge is closed.", "The ferry is late, the captain says: don't wait!"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_word_level(TEXTS)


def words(tokenizer, text):
    return [
        word for word, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(normalized(tokenizer, text))
    ]


def normalized(tokenizer, text):
    return tokenizer.backend_tokenizer.normalizer.normalize_str(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't go!", "don 't go !"),
        ("the car's, the cars'", "the car 's , the cars '"),
        ("He’ll say “no”", "he ’ll say “ no ”"),
        ("U.S. troops in the U.K.", "u.s. troops in the u.k."),
        ("Plan B. Then", "plan b . then"),
        ("at the end.The next", "at the end . the next"),
        ("I.The", "i . the"),
        ("5,000.5 m at 12:30", "#,###.# m at ##:##"),
        ("9am, 50miles, F16", "#am , ##miles , f##"),
        ("It cost 5.", "it cost # ."),
        ("a 12-year-old", "a ## - year - old"),
        ("so...  much\n\nspace", "so . . . much space"),
        ("٣ and Ünïcode", "# and ünïcode"),
        ("", ""),
    ],
)
def test_words(tokenizer, text, expected):
    assert " ".join(words(tokenizer, text)) == expected


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_no_character_is_lost(tokenizer, text):
    spaces = str.maketrans(dict.fromkeys("\x1c\x1d\x1e\x1f", " "))  # no white space but in Python
    found = "".join(words(tokenizer, text)).translate(spaces)
    assert "".join(found.split()) == "".join(normalized(tokenizer, text).translate(spaces).split())


def test_the_commonest_words_are_kept(tokenizer):
    assert tokenizer.convert_ids_to_tokens(range(8)) == ["<s>", "<pad>", "</s>", "<unk>", "the", ".", "ferry", "is"]
    small = train_word_level(TEXTS, 3)
    assert len(small) == 7
    assert small.convert_ids_to_tokens(small("The ferry is closed.")["input_ids"]) == [
        *("the", "ferry", "<unk>", "<unk>", ".")
    ]
    assert train_word_level(iter(TEXTS)).get_vocab() == tokenizer.get_vocab()


def test_text_comes_back_with_its_spaces(tokenizer):
    text = "the ferry says (late), “closed: don 't wait!” bridge."
    fitted = train_word_level([text])
    for written in ("the (late) ferry, “closed”: wait!", "don't wait."):
        assert fitted.decode(fitted(written)["input_ids"]) == written
    assert tokenizer.decode(tokenizer("the bridge 12")["input_ids"]) == "the bridge <unk>"
    assert tokenizer.decode([4, 2, 5], skip_special_tokens=True) == "the."


def test_options():
    kept = train_word_level(["Room 12 a"], lowercase=False, digits=None)
    assert words(kept, "Room 12,5") == ["Room", "12,5"]
    assert "Room" in kept.get_vocab()
    for mark in "0-]^@":
        assert words(train_word_level(["a"], digits=mark), "a 12-3,4") == ["a", *(
            [f"{mark * 2}{mark}{mark},{mark}"] if mark == "-" else [mark * 2, "-", f"{mark},{mark}"]
        )]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_words": 0}, "num_words must be at least 1, got 0"),
        ({"digits": "##"}, "digits must be a single character that is no letter or space, such as '#', got '##'"),
        ({"digits": "N"}, "got 'N'"),
        ({"digits": " "}, "got ' '"),
        ({"digits": ""}, "got ''"),
    ],
)
def test_mistakes(wrong, message):
    with pytest.raises(ValueError, match=message):
        train_word_level(TEXTS, **wrong)


def test_a_single_string_is_no_corpus():
    with pytest.raises(TypeError, match=r"texts must be a list of texts.* got a single string"):
        train_word_level(TEXTS[0])


def test_digits_of_texts():
    assert replace_digits("In 2015, ٣ of F16", "#") == "In ####, # of F##"


def test_it_is_an_ordinary_fast_tokenizer(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    ids = tokenizer("The captain, in 2015: don't!")["input_ids"]
    assert loaded("The captain, in 2015: don't!")["input_ids"] == ids
    assert loaded.decode(ids) == tokenizer.decode(ids)
    assert (loaded.bos_token_id, loaded.pad_token_id, loaded.eos_token_id, loaded.unk_token_id) == (0, 1, 2, 3)
