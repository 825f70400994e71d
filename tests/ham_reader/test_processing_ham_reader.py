"""The readers' processor: words and where they stand, characters, documents, windows, answers, bad input."""

import unicodedata

import numpy as np
import pytest
import torch
from transformers import AutoProcessor

from hier_models import HamReaderConfig, HamReaderForQuestionAnswering, HamReaderProcessor
from hier_models.data.tokenizer_training import train_word_level
from hier_models.models.processing_ham_reader import AnswerNotFoundError, fit_characters


CONTEXT = "Marta keeps a bakery. Every morning, she lights the oven at four."
OTHER = "The lamp was lit by a keeper."
QUESTION = "When does Marta light the oven?"
TEXTS = [CONTEXT, OTHER, QUESTION]


@pytest.fixture(scope="module")
def tokenizer():
    return train_word_level(TEXTS, digits=None)


@pytest.fixture
def processor(tokenizer):
    return HamReaderProcessor(tokenizer, characters=fit_characters(TEXTS), max_word_length=6)


def words_of(text, spans):
    return [text[a:b] for a, b in spans]


def test_words_and_their_places(processor):
    made = processor(QUESTION, CONTEXT, return_spans=True)
    words = words_of(CONTEXT, made["context_spans"])
    assert words[:5] == ["Marta", "keeps", "a", "bakery", "."]
    assert len(words) == len(made["input_ids"]) == len(made["attention_mask"]) == len(made["char_ids"])
    assert len(made["question_ids"]) == len(QUESTION.split()) + 1 == len(made["question_char_ids"])
    assert "document_ids" not in made


def test_a_mark_on_the_last_letter_belongs_to_the_word():
    """The tokenizer takes marks off letters, and an answer is the text as it is."""
    text = "A cafe\u0301, cre\u0300me and Kaffee\u0308\u0323."
    processor = HamReaderProcessor(train_word_level([text]), characters=fit_characters([text]))
    made = processor("A cafe\u0301?", text, return_spans=True)
    words = ["A", "cafe\u0301", ",", "cre\u0300me", "and", "Kaffee\u0308\u0323", "."]
    assert [text[a:b] for a, b in made["context_spans"]] == words
    assert len(made["char_ids"][1]) == max(map(len, words))
    assert made["char_ids"][1][:5] == made["question_char_ids"][1][:5]


def test_a_syllable_of_several_jamo_stays_whole():
    """The tokenizer composes them, and tells of a composed character the place of the first alone."""
    text = unicodedata.normalize("NFD", "마리안 섬을 오간다")
    processor = HamReaderProcessor(train_word_level([text]))
    made = processor(unicodedata.normalize("NFD", "섬"), text, return_spans=True)
    assert words_of(text, made["context_spans"]) == text.split()


def test_what_is_no_character_becomes_the_replacement_character(processor):
    """One for one, so that places in the text stay where they are."""
    made = processor("Who\ud800?", "Marta \udfff keeps", return_spans=True)
    assert made == processor("Who\ufffd?", "Marta \ufffd keeps", return_spans=True)
    assert words_of("Marta \udfff keeps", made["context_spans"]) == ["Marta", "\udfff", "keeps"]


def test_characters(processor):
    made = processor("Marta?", "Marta Ω keeps", return_spans=True)
    known = {c: i for i, c in enumerate(processor.characters, 2)}
    assert made["char_ids"][0] == [known[c] for c in "Marta"]
    assert made["char_ids"][1] == [1, 0, 0, 0, 0]  # unknown, and padding within the text
    long = processor("a", "internationally")["char_ids"]
    assert len(long[0]) == 6
    assert processor.char_vocab_size == 2 + len(processor.characters)


def test_capitals_are_characters_of_their_own(processor):
    made = processor("a", "Marta marta")
    assert made["input_ids"][0] == made["input_ids"][1]
    assert made["char_ids"][0] != made["char_ids"][1]


def test_without_characters(tokenizer):
    processor = HamReaderProcessor(tokenizer)
    made = processor(QUESTION, CONTEXT)
    assert set(made) == {"input_ids", "attention_mask", "question_ids", "question_attention_mask"}
    assert processor.char_vocab_size == 0
    assert not any(name.endswith("char_ids") for name in processor.model_input_names)


def test_answers(processor):
    answer = {"text": ["at four"], "answer_start": [CONTEXT.index("at four")]}
    made = processor(QUESTION, CONTEXT, answers=answer, return_spans=True)
    words = words_of(CONTEXT, made["context_spans"])
    assert words[made["start_positions"] : made["end_positions"] + 1] == ["at", "four"]


def test_answers_as_arrays(processor):
    places = [CONTEXT.index("four"), CONTEXT.index("at four")]
    answer = {"text": np.array(["four", "at four"]), "answer_start": np.array(places)}
    assert processor(QUESTION, CONTEXT, answers=answer) == processor(
        QUESTION, CONTEXT, answers={"text": ["four"], "answer_start": places[:1]}
    )
    none = {"text": np.array([]), "answer_start": np.array([])}
    assert processor(QUESTION, CONTEXT, answers=none)["start_positions"] == -1


def test_answers_within_words_take_the_words(processor):
    answer = {"text": ["aker"], "answer_start": [CONTEXT.index("bakery") + 1]}
    made = processor(QUESTION, CONTEXT, answers=answer)
    assert made["start_positions"] == made["end_positions"] == 3


@pytest.mark.parametrize("side", ["right", "left"])
def test_positions_point_at_the_answer_in_a_batch(tokenizer, side):
    processor = HamReaderProcessor(tokenizer)
    processor.tokenizer.padding_side = side
    answers = [
        {"text": ["four"], "answer_start": [CONTEXT.index("four")]},
        {"text": ["a keeper"], "answer_start": [OTHER.index("a keeper")]},
    ]
    made = processor([QUESTION, "Who?"], [CONTEXT, OTHER], answers=answers, padding=True, return_tensors="pt")
    keeper, a = tokenizer("keeper")["input_ids"][0], tokenizer("a")["input_ids"][0]
    start, end = made["start_positions"], made["end_positions"]
    assert made["input_ids"][1, start[1]] == a
    assert made["input_ids"][1, end[1]] == keeper
    processor.tokenizer.padding_side = "right"


def test_documents(processor):
    joined = f"{OTHER}\n{CONTEXT}"
    answer = {"text": ["four"], "answer_start": [joined.index("four")]}
    made = processor(QUESTION, documents=[OTHER, CONTEXT], answers=answer, return_spans=True)
    assert made["document_ids"] == sorted(made["document_ids"])
    assert set(made["document_ids"]) == {0, 1}
    a, b = made["context_spans"][made["start_positions"]]
    assert joined[a:b] == "four"


def test_windows(processor):
    answer = {"text": ["the oven"], "answer_start": [CONTEXT.index("the oven")]}
    whole = processor(QUESTION, CONTEXT)
    made = processor(QUESTION, CONTEXT, answers=answer, max_length=6, stride=2, return_spans=True)
    assert set(made["example_index"]) == {0}
    covered = []
    for number, spans in enumerate(made["context_spans"]):
        assert len(spans) <= 6
        covered += [span for span in spans if span not in covered]
        start, end = made["start_positions"][number], made["end_positions"][number]
        inside = [CONTEXT[a:b] for a, b in spans[start : end + 1]] if start >= 0 else []
        assert inside in ([], ["the", "oven"])
    assert len(covered) == len(whole["input_ids"])
    assert any(start >= 0 for start in made["start_positions"])


def test_no_window_lies_within_another(processor):
    text = " ".join("abcdefgh")
    made = processor("why?", text, max_length=4, stride=2, return_spans=True)
    assert [[text[a:b] for a, b in spans] for spans in made["context_spans"]] == [
        list("abcd"),
        list("cdef"),
        list("efgh"),
    ]


def test_windows_without_the_answer_have_no_place_for_it_on_either_side(processor):
    answers = {"text": ["b"], "answer_start": [2]}
    rows = processor("why?", "a b c d e", answers=answers, max_length=3, stride=0)
    rows = [{name: rows[name][i] for name in rows} for i in range(2)]
    for side in ("right", "left"):
        made = processor.pad(rows, padding_side=side)
        assert (made["start_positions"], made["end_positions"]) == ([1, -1], [1, -1])


def test_windows_of_documents_count_documents_from_zero(processor):
    made = processor(QUESTION, documents=[OTHER, CONTEXT], max_length=6, stride=0)
    assert all(row[0] == 0 for row in made["document_ids"])


def test_padding_of_features_is_padding_when_called(processor):
    together = processor([QUESTION, "Who?"], [CONTEXT, OTHER], padding=True, return_tensors="pt")
    rows = [processor(QUESTION, CONTEXT), processor("Who?", OTHER)]
    padded = processor.pad(rows, return_tensors="pt")
    assert set(together) == set(padded)
    for name, value in together.items():
        assert torch.equal(value, padded[name]), name


def test_padding_to_a_length(processor):
    made = processor(QUESTION, CONTEXT, padding="max_length", max_length=40, return_tensors="pt")
    assert made["input_ids"].shape == (1, 40)
    assert made["char_ids"].shape[:2] == (1, 40)
    assert made["question_ids"].shape[1] < 40
    made = processor(QUESTION, CONTEXT, padding=True, pad_to_multiple_of=32, return_tensors="pt")
    assert made["input_ids"].shape == (1, 32)


def test_the_model_reads_it(processor):
    config = HamReaderConfig(
        vocab_size=len(processor.tokenizer),
        char_vocab_size=processor.char_vocab_size,
        embedding_size=4,
        hidden_size=3,
        char_hidden_size=4,
        pad_token_id=processor.tokenizer.pad_token_id,
    )
    made = processor([QUESTION, "Who?"], documents=[[CONTEXT, OTHER], [OTHER]], padding=True, return_tensors="pt")
    assert HamReaderForQuestionAnswering(config).eval()(**made).start_logits.shape == made["input_ids"].shape


def test_saving(processor, tmp_path):
    processor.save_pretrained(tmp_path)
    HamReaderConfig().save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert isinstance(loaded, HamReaderProcessor)
    assert loaded.characters == processor.characters
    assert loaded(QUESTION, CONTEXT)["char_ids"] == processor(QUESTION, CONTEXT)["char_ids"]


def test_characters_of_a_corpus():
    assert fit_characters(["abb", "c bca"]) == "bac"
    assert fit_characters(["abb", "c bca"], num_characters=1) == "b"
    with pytest.raises(TypeError, match="single string"):
        fit_characters("abc")
    with pytest.raises(ValueError, match="`num_characters` must be at least 1"):
        fit_characters(["a"], num_characters=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"question": None, "context": CONTEXT}, ValueError, "give a `question`"),
        ({"question": QUESTION}, ValueError, "got none: a question needs a text"),
        ({"question": QUESTION, "context": "", "documents": [""]}, ValueError, "got both"),
        ({"question": QUESTION, "context": "  "}, ValueError, "the context of question 0 must have a word"),
        ({"question": " ", "context": CONTEXT}, ValueError, "`question` must have a word"),
        ({"question": 3, "context": CONTEXT}, TypeError, "must be a string or a list of strings, got int"),
        ({"question": [QUESTION], "context": [4]}, TypeError, r"`context\[0\]` must be a string, got int"),
        ({"question": [QUESTION], "context": CONTEXT}, ValueError, "`context` must be a list"),
        ({"question": [QUESTION], "context": [CONTEXT, OTHER]}, ValueError, "for each of 1 questions, got 2"),
        ({"question": [], "context": []}, ValueError, "`question` is an empty list"),
        ({"question": QUESTION, "documents": CONTEXT}, TypeError, "`documents` must be a list of strings"),
        ({"question": QUESTION, "context": CONTEXT, "max_length": 5}, ValueError, "`max_length` is 5"),
        ({"question": QUESTION, "context": CONTEXT, "max_length": 0}, ValueError, "`max_length` must be an integer"),
        ({"question": QUESTION, "context": CONTEXT, "stride": 3}, ValueError, "`stride` must be less than"),
        ({"question": QUESTION, "context": CONTEXT, "max_question_length": 2}, ValueError, "max_question_length=2"),
        ({"question": QUESTION, "context": CONTEXT, "padding": "much"}, ValueError, "`padding` must be"),
        (
            {"question": QUESTION, "context": CONTEXT, "padding": "max_length"},
            ValueError,
            "`max_length` must be given",
        ),
    ],
)
def test_bad_input(processor, arguments, error, message):
    with pytest.raises(error, match=message):
        processor(**arguments)


@pytest.mark.parametrize(("text", "start"), [("oven", 3), ("nowhere", 0), ("oven", -4), (" ", 5)])
def test_answers_that_are_not_there(processor, text, start):
    with pytest.raises(AnswerNotFoundError, match=r"answers\[0\]"):
        processor(QUESTION, CONTEXT, answers={"text": [text], "answer_start": [start]})


@pytest.mark.parametrize(
    "answers",
    [
        {"text": "four", "answer_start": [60]},
        {"text": ["four"], "answer_start": 60},
        {"text": "four", "answer_start": 60},
        {"text": ["four"]},
        {"answer_start": [60]},
        {"text": ["four"], "answer_start": []},
        {"text": [4], "answer_start": [60]},
        [{"text": ["four"], "answer_start": [60]}],
        "four",
    ],
)
def test_answers_in_another_form(processor, answers):
    with pytest.raises(ValueError, match=r'`answers\[0\]` must be \{"text": \[…\], "answer_start": \[…\]\}'):
        processor(QUESTION, CONTEXT, answers=answers)


@pytest.mark.parametrize("answers", [None, {}, {"text": [], "answer_start": []}, {"text": None, "answer_start": None}])
def test_no_answer(processor, answers):
    made = processor([QUESTION], [CONTEXT], answers=[answers])
    assert (made["start_positions"], made["end_positions"]) == ([-1], [-1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"characters": "aba"}, "must have each character once, got 'a'"),
        ({"characters": ""}, "must be a string of characters or None"),
        ({"max_word_length": 0}, "`max_word_length` must be an integer of at least 1"),
    ],
)
def test_bad_settings(tokenizer, settings, message):
    with pytest.raises(ValueError, match=message):
        HamReaderProcessor(tokenizer, **settings)


def test_tokenizers_that_cannot_do_it():
    with pytest.raises(ValueError, match="`tokenizer` must be a fast one"):
        HamReaderProcessor(None)
