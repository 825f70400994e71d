import pickle

import pytest
import torch

from hier_models import HamProcessor
from hier_models.data import HierDataCollator, train_characters
from hier_models.data.poems import in_vocabulary
from hier_models.models.keywords import PoemKeywords
from tests.conftest import DOCUMENTS, TURNS
from tests.ham.poems import FIVE, POEMS, SEVEN, poem_processor


EOS = 2


@pytest.fixture(scope="module")
def poems() -> HamProcessor:
    return poem_processor()


@pytest.fixture
def texts(tokenizer) -> HamProcessor:
    return HamProcessor(tokenizer)


def ids_of(processor, text):
    return processor.tokenizer(text, add_special_tokens=False)["input_ids"]


def test_a_text_is_its_tokens_and_the_end(texts):
    encoded = texts(DOCUMENTS[0], text_target="A bridge.")
    assert encoded["input_ids"] == [*ids_of(texts, DOCUMENTS[0]), EOS]
    assert encoded["attention_mask"] == [1] * len(encoded["input_ids"])
    assert encoded["labels"] == [*ids_of(texts, "A bridge."), EOS]
    assert set(encoded) == {"input_ids", "attention_mask", "labels"}
    assert texts("")["input_ids"] == [EOS]


def test_the_other_kinds_of_input(texts):
    for name, value, joined in (
        ("sentences", ["One.", "", " Two. "], "One. Two."),
        ("documents", ["One.", "Two."], "One.\n\nTwo."),
        ("turns", TURNS[:2], "Ann: Did you book the room?\nBob: Not yet. I will do it today."),
    ):
        assert texts(**{name: value}) == texts(joined)
        assert texts(**{name: [value, value]})["input_ids"] == [texts(joined)["input_ids"]] * 2


def test_a_line_of_a_poem(poems):
    first, second = FIVE[0][:2]
    encoded = poems(keywords="春风", lines=[first, second], text_target=FIVE[0][2])
    keyword, one, two = (ids_of(poems, text) for text in ("春风", first, second))
    assert encoded["input_ids"] == [*keyword, EOS, *one, EOS, *two, EOS]
    assert encoded["keyword_mask"] == [1, 1] + [0] * 13
    assert encoded["labels"] == [*ids_of(poems, FIVE[0][2]), EOS]
    assert poems(keywords="花")["input_ids"] == [*ids_of(poems, "花"), EOS]
    assert poems(keywords="花")["keyword_mask"] == [1, 0]
    assert poems(keywords="花", lines=[]) == poems(keywords="花")


def test_a_token_says_how_long_a_line_gets(poems):
    tokenizer = train_characters(line for poem in POEMS for line in poem)
    tokenizer.add_special_tokens({"additional_special_tokens": ["[5]", "[7]"]})
    told = HamProcessor(tokenizer)
    five, seven = tokenizer.convert_tokens_to_ids(["[5]", "[7]"])
    plain = poems(keywords="春风", lines=FIVE[0][:2], text_target=FIVE[0][2])
    encoded = told(keywords="春风", lines=FIVE[0][:2], text_target=FIVE[0][2])
    assert encoded["input_ids"] == [five, *plain["input_ids"]]
    assert encoded["keyword_mask"] == [0, *plain["keyword_mask"]]
    assert encoded["labels"] == plain["labels"]
    # Known from the target, from the lines, or said.
    targets = [SEVEN[0][0], FIVE[0][0]]
    assert [ids[0] for ids in told(keywords=["花", "花"], text_target=targets)["input_ids"]] == [seven, five]
    assert [ids[0] for ids in told(keywords=["花"], lines=[SEVEN[0][:1]])["input_ids"]] == [seven]
    assert told(keywords="花", length=7)["input_ids"][0] == seven
    cut = told(keywords="花", lines=FIVE[0][:3], truncation=True, max_length=9, return_truncation=True)
    assert (cut["input_ids"][0], len(cut["input_ids"]), cut["num_truncated_tokens"]) == (five, 9, 12)
    with pytest.raises(ValueError, match="`length` is missing: give 5 or 7"):
        told(keywords="花")
    with pytest.raises(ValueError, match="`length` must be 5 or 7"):
        told(keywords="花", length=6)
    with pytest.raises(ValueError, match="`length` must be 5 or 7"):
        told(keywords="花", text_target="花开")
    with pytest.raises(ValueError, match="`max_length` must be at least 3"):
        told(keywords="花", length=5, truncation=True, max_length=2)
    # White space around a target is no part of it, and what else is too much is shown.
    assert told(keywords="花", text_target=" 小院春风起\n") == told(keywords="花", text_target="小院春风起")
    with pytest.raises(ValueError, match="`text_target`: '小院春风起，' has 6 characters"):
        told(keywords="花", text_target="小院春风起，")
    # A processor without such tokens reads as before.
    assert poems(keywords="花", length=7) == poems(keywords="花")


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_batch_is_padded(poems, side):
    rows = [("花", []), ("春风", FIVE[0][:3])]
    batch = poems(
        keywords=[word for word, _ in rows],
        lines=[lines for _, lines in rows],
        text_target=["花开", "小院春风起"],
        padding=True,
        padding_side=side,
        return_tensors="pt",
    )
    alone = [poems(keywords=word, lines=lines) for word, lines in rows]
    for row, single in enumerate(alone):
        own = batch["attention_mask"][row].bool()
        assert own.sum() == len(single["input_ids"])
        assert batch["input_ids"][row][own].tolist() == single["input_ids"]
        assert batch["keyword_mask"][row][own].tolist() == single["keyword_mask"]
        assert not batch["keyword_mask"][row][~own].any()
    assert batch["labels"][0].tolist() == [*ids_of(poems, "花开"), EOS, -100, -100, -100]
    collated = HierDataCollator(poems)([dict(single) for single in alone])
    if side == "right":
        for name in ("input_ids", "attention_mask", "keyword_mask"):
            assert torch.equal(collated[name], batch[name])


def test_what_is_cut_is_counted(texts, poems, caplog, monkeypatch):
    whole = texts(DOCUMENTS[0])["input_ids"]
    cut = texts(DOCUMENTS[0], truncation=True, max_length=10, return_truncation=True)
    assert cut["input_ids"] == [*whole[:9], EOS]
    assert cut["num_truncated_tokens"] == len(whole) - 10
    texts(DOCUMENTS[0], text_target="a b c d e f g h", truncation=True, max_length=10, max_target_length=3)
    assert "Truncation cut" in caplog.text
    # Of a poem the keyword and the last lines stay.
    cut = poems(keywords="花", lines=FIVE[0][:3], truncation=True, max_length=8, return_truncation=True)
    assert cut["input_ids"] == [*ids_of(poems, "花"), EOS, *ids_of(poems, FIVE[0][2]), EOS]
    assert cut["num_truncated_tokens"] == 12
    assert poems(keywords="花", lines=FIVE[0][:3], truncation=True, max_length=2)["input_ids"][-1] == EOS
    with pytest.raises(ValueError, match="`max_length` must be at least 2"):
        poems(keywords="花", lines=FIVE[0][:3], truncation=True, max_length=1)
    monkeypatch.setattr(poems.tokenizer, "truncation_side", "left")
    assert poems(keywords="花", lines=FIVE[0][:3], truncation=True, max_length=8)["input_ids"] == cut["input_ids"]


def test_characters_of_the_vocabulary(poems):
    characters = {c for poem in POEMS for line in poem for c in line}
    assert {poems.tokenizer.convert_ids_to_tokens(i) for i in poems.character_ids()} == characters
    mixed = HamProcessor(train_characters(["春风，abc 1。"]))
    assert [mixed.tokenizer.convert_ids_to_tokens(i) for i in mixed.character_ids()] == ["春", "风"]
    assert poems.unknown_characters("春龙风凤龙") == ["龙", "凤"]
    # A compatibility character is to the tokenizer the usual one.
    assert poems(keywords="\uf967") == poems(keywords="不")
    assert poems.unknown_characters("\uf967") == []
    assert in_vocabulary(poems)("\uf967")
    with pytest.raises(ValueError, match="`length` must be 5 or 7"):
        poems.line_rules(6)
    for lines in ([*POEMS[0][:3], POEMS[0][3]], ["春风"]):
        with pytest.raises(ValueError, match="must be at most three, of 5 or 7 characters"):
            poems.line_rules(5, [lines], tones=True)


def test_saved_and_loaded(poems, tmp_path):
    poems.save_pretrained(tmp_path)
    loaded = HamProcessor.from_pretrained(tmp_path)
    assert loaded(keywords="春风", lines=FIVE[0][:2]) == poems(keywords="春风", lines=FIVE[0][:2])
    assert loaded.poem_keywords.expand(["雨"]) == poems.poem_keywords.expand(["雨"])
    assert vars(loaded.poem_keywords.sounds) == vars(poems.poem_keywords.sounds)
    assert (tmp_path / "poem_keywords.json").is_file()
    again = HamProcessor(poems.tokenizer, str(tmp_path / "poem_keywords.json"))
    assert again.poem_keywords.words == poems.poem_keywords.words
    copied = pickle.loads(pickle.dumps(poems))
    assert copied(keywords="花") == poems(keywords="花")
    (tmp_path / "poem_keywords.json").unlink()
    with pytest.raises(OSError, match=r"poem_keywords\.json"):
        HamProcessor.from_pretrained(tmp_path)


def test_saved_without_keywords(texts, tmp_path):
    texts.save_pretrained(tmp_path)
    assert HamProcessor.from_pretrained(tmp_path).poem_keywords is None
    assert not (tmp_path / "poem_keywords.json").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"text": "a", "keywords": "花"}, ValueError, "got text and keywords"),
        ({"lines": ["花"]}, ValueError, "`lines` goes with `keywords`"),
        ({"keywords": []}, ValueError, "`keywords` is an empty list"),
        ({"keywords": ["花"], "lines": []}, ValueError, "`lines` must match `keywords`, got 0 for 1"),
        ({"keywords": "spring"}, ValueError, "`keywords` must be Chinese characters alone"),
        ({"keywords": "花", "lines": ["花开。"]}, ValueError, r"`lines\[0\]` must be Chinese characters alone"),
        ({"keywords": "花", "lines": "花开"}, TypeError, "`lines` must be a list of lines, got str"),
        (
            {"keywords": "龙凤"},
            ValueError,
            r"`keywords`: '龙凤' is not in the vocabulary \(never seen in training: 龙 凤\)",
        ),
        ({"keywords": 3}, TypeError, "`keywords` must be a string or a list of strings, got int"),
    ],
)
def test_bad_input(poems, arguments, error, message):
    with pytest.raises(error, match=message):
        poems(**arguments)


def test_bad_settings(tokenizer):
    with pytest.raises(TypeError, match="`poem_keywords` must be a PoemKeywords"):
        HamProcessor(tokenizer, 3)
    assert isinstance(poem_processor().poem_keywords, PoemKeywords)
