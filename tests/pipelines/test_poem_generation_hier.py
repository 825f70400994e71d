"""Poems through `pipeline`: keywords, lines of one length, candidates; and a user's mistakes."""

import copy
import itertools

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig, pipeline

from hier_models import HamConfig, HamForConditionalGeneration, HamProcessor
from hier_models.models.keywords import is_chinese
from hier_models.models.poem_sounds import PoemSounds
from hier_models.pipelines import PoemGenerationPipeline
from tests.ham.poems import POEMS, poem_processor


TEXT = "春风吹过青山，明月照着小院。"


@pytest.fixture(scope="module")
def processor():
    return poem_processor()


@pytest.fixture(scope="module")
def model(processor):
    torch.manual_seed(0)
    config = HamConfig(vocab_size=len(processor.tokenizer), d_model=16, attention_depth=2, dropout=0.0)
    model = HamForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


@pytest.fixture(scope="module")
def write(model, processor):
    return pipeline("poem-generation", model=model, processor=processor, device="cpu")


@pytest.mark.parametrize("length", [5, 7])
@pytest.mark.parametrize("search", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 5}])
def test_four_lines_of_one_length(write, length, search):
    assert isinstance(write, PoemGenerationPipeline)
    (poem,) = write(TEXT, length=length, **search)
    assert [len(line) for line in poem["lines"]] == [length] * 4
    assert all(is_chinese(line) for line in poem["lines"])
    assert poem["poem_text"] == "\n".join(poem["lines"])
    assert len(poem["keywords"]) == 4
    assert poem["score"] < 0


def test_each_line_comes_from_its_keyword_and_the_lines_before(write, model, processor):
    (poem,) = write(TEXT, length=5)
    score = 0.0
    for number, line in enumerate(poem["lines"]):
        inputs = processor(
            keywords=[poem["keywords"][number]],
            lines=[poem["lines"][:number]],
            text_target=[line],
            return_tensors="pt",
        )
        rules = processor.line_rules(5, [poem["lines"][:number]])
        ids = model.generate(
            **{name: inputs[name] for name in ("input_ids", "attention_mask", "keyword_mask")},
            logits_processor=rules,
            max_new_tokens=6,
        )
        assert ids[0, 1:].tolist() == inputs["labels"][0].tolist()
        with torch.no_grad():
            labels = inputs["labels"][:, :5]  # the end stands where it was asked for
            chances = model(**inputs).logits.log_softmax(dim=-1)[:, :5].gather(-1, labels[..., None])
            score += float(chances.sum())
    assert poem["score"] == pytest.approx(score, abs=1e-3)


@pytest.fixture(scope="module")
def rhyming(model):
    """A pipeline that knows of all its characters how they sound: by chance."""
    processor = poem_processor()
    characters = sorted({c for poem in POEMS for line in poem for c in line})
    thirds = [characters[i::3] for i in range(3)]
    rhymes = [part[i::2] for part in thirds for i in range(2)]
    processor.poem_keywords.sounds = PoemSounds(
        ["".join(one) for one in rhymes], "".join(thirds[0] + thirds[1][:9]), "".join(thirds[1] + thirds[2])
    )
    return pipeline("poem-generation", model=model, processor=processor, device="cpu")


@pytest.mark.parametrize("length", [5, 7])
@pytest.mark.parametrize(
    "search", [{}, {"num_beams": 3}, {"num_candidates": 4}, {"num_candidates": 2, "num_beams": 2}]
)
def test_rhymes_and_tones(rhyming, length, search):
    torch.manual_seed(0)
    sounds = rhyming.processor.poem_keywords.sounds
    both = [poem for text in (TEXT, "雨") for poem in rhyming(text, length=length, rhyme=True, tones=True, **search)]
    for poem in both:
        lines = poem["lines"]
        assert poem["rhyme"] is sounds.rhyme(lines[1][-1], lines[3][-1]) is True
        assert poem["tones"] is bool(sounds.forms(lines)) is True
        assert all(len(set(line)) == length for line in lines)
        if sounds.to_rhyme_with(lines[:1]):
            assert sounds.rhyme(lines[0][-1], lines[1][-1])
    (plain,) = rhyming(TEXT, length=length, rhyme=True)
    assert plain["rhyme"] is True
    assert "tones" not in plain
    # What they cost shows in the score.
    assert "rhyme" not in rhyming(TEXT, length=length)[0]


def test_rules_of_a_call_do_not_replace_those_of_the_pipeline(rhyming):
    write = PoemGenerationPipeline(model=rhyming.model, processor=rhyming.processor, device="cpu", rhyme=True)
    for asked in ({"tones": True}, {"repeats": True}):
        assert write(TEXT, length=5, **asked)[0]["rhyme"] is True
    assert "rhyme" not in write(TEXT, length=5, rhyme=False)[0]


def test_a_batch_with_rhymes_is_its_poems_alone(rhyming):
    texts = [TEXT, "雨", "花"]
    alone = [rhyming(text, length=5, rhyme=True, tones=True, num_beams=2)[0]["lines"] for text in texts]
    together = rhyming(texts, length=5, rhyme=True, tones=True, num_beams=2, batch_size=3)
    assert [poem["lines"] for poem in together] == alone


def test_a_poem_that_cannot_rhyme_says_so_and_stands_last(rhyming, monkeypatch):
    sounds = rhyming.processor.poem_keywords.sounds
    monkeypatch.setattr(sounds, "rhyme_of", {})
    (poem,) = rhyming(TEXT, length=5, rhyme=True)
    assert poem["rhyme"] is False
    assert [len(line) for line in poem["lines"]] == [5] * 4
    # One of the characters has nothing to rhyme with: poems that end in it come last, whatever their score.
    monkeypatch.undo()
    torch.manual_seed(1)
    monkeypatch.setattr(sounds, "rhyme", lambda one, other: other > "春")
    poems = rhyming(TEXT, length=5, rhyme=True, num_candidates=12)
    found = [poem["rhyme"] for poem in poems]
    assert found == sorted(found, reverse=True)
    assert set(found) == {True, False}


def test_no_line_has_a_character_twice(write):
    again = [line for text in (TEXT, "雨", "花") for line in write(text, length=7, repeats=True)[0]["lines"]]
    assert any(len(set(line)) < 7 for line in again)
    for search in ({}, {"num_beams": 3}, {"do_sample": True}):
        lines = [line for text in (TEXT, "雨", "花") for line in write(text, length=7, **search)[0]["lines"]]
        assert all(len(set(line)) == 7 for line in lines)


def test_candidates_are_sampled_by_default(write):
    torch.manual_seed(0)
    found = [tuple(poem["lines"]) for _ in range(2) for poem in write(TEXT, length=5, num_candidates=3)]
    assert len(set(found)) > 3
    searched = [[poem["lines"] for poem in write(TEXT, length=5, num_candidates=3, num_beams=3)] for _ in range(2)]
    assert searched[0] == searched[1]
    assert len(write(TEXT, length=5, num_candidates=3, num_beams=2, do_sample=True)) == 3


def test_a_model_that_is_told_the_length(processor):
    tokenizer = copy.deepcopy(processor.tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["[5]", "[7]"]})
    told = HamProcessor(tokenizer, processor.poem_keywords)
    torch.manual_seed(0)
    config = HamConfig(vocab_size=len(tokenizer), d_model=16, attention_depth=2, dropout=0.0)
    write = pipeline("poem-generation", model=HamForConditionalGeneration(config).eval(), processor=told, device="cpu")
    for length in (5, 7):
        (poem,) = write(keywords=["花"], length=length)
        inputs = told(
            keywords=[poem["keywords"][0]], length=length, text_target=poem["lines"][:1], return_tensors="pt"
        )
        assert inputs["input_ids"][0, 0] == tokenizer.convert_tokens_to_ids(f"[{length}]")
        assert [len(line) for line in poem["lines"]] == [length] * 4


def test_keywords_of_the_text_and_of_the_corpus(write, processor):
    (poem,) = write(TEXT)
    assert poem["keywords"] == processor.poem_keywords.extract(TEXT)
    assert poem["num_added_keywords"] == 0
    (poem,) = write("雨")
    assert poem["keywords"] == processor.poem_keywords.expand(["雨"])
    assert poem["num_added_keywords"] == 3


def test_keywords_of_the_user(write):
    for given in (["花", "月"], "花 月", "花，月", {"keywords": ["花", "月"]}):
        poems = write(given) if isinstance(given, dict) else write(keywords=given)
        assert poems[0]["keywords"][:2] == ["花", "月"]
        assert poems[0]["num_added_keywords"] == 2
    (poem,) = write(keywords=["春风", "明月", "青山", "花"])
    assert poem["keywords"] == ["春风", "明月", "青山", "花"]


@pytest.mark.parametrize("search", [{}, {"num_beams": 5}, {"do_sample": True}])
def test_candidates_are_the_best_first(write, search):
    poems = write(TEXT, num_candidates=3, length=5, **search)
    assert len(poems) == 3
    assert [poem["score"] for poem in poems] == sorted((poem["score"] for poem in poems), reverse=True)
    if not search.get("do_sample"):
        assert len({poem["lines"][0] for poem in poems}) == 3
    assert all(len(line) == 5 for poem in poems for line in poem["lines"])


def test_many_texts_are_each_alone(write):
    texts = [TEXT, "雨", {"keywords": ["花"]}, "秋天的江水"]
    alone = [write(text, length=5)[0] for text in texts]
    for batch_size in (1, 2, 4):
        together = write(texts, length=5, batch_size=batch_size)
        for one, other in zip(together, alone, strict=True):
            assert one == {**other, "score": pytest.approx(other["score"], abs=1e-4)}
    several = write(texts, length=5, batch_size=3, num_candidates=2, num_beams=2)
    assert [len(poems) for poems in several] == [2] * 4
    assert [poems[0]["keywords"] for poems in several] == [poem["keywords"] for poem in alone]
    assert [poems[0]["lines"] for poems in write(iter(texts), length=5)] == [poem["lines"] for poem in alone]
    assert write([]) == []


def test_settings_of_the_model_stay(write, model):
    before = model.generation_config.to_dict()
    write(TEXT, length=5, num_beams=2)
    assert model.generation_config.to_dict() == before


@pytest.mark.parametrize(
    "settings",
    [{"max_length": 4, "min_length": 30}, {"max_new_tokens": 3, "min_new_tokens": 30}, {"max_length": 9}],
)
def test_lengths_in_the_model_s_settings_have_no_say(write, model, monkeypatch, caplog, recwarn, settings):
    for name, value in settings.items():
        monkeypatch.setattr(model.generation_config, name, value)
    for length in (5, 7):
        (poem,) = write(TEXT, length=length)
        assert [len(line) for line in poem["lines"]] == [length] * 4
    assert not caplog.records  # `generate` warns of lengths that do not go together
    assert not recwarn.list
    assert write(TEXT, length=5, generation_config=GenerationConfig(max_new_tokens=2))[0]["lines"][3]


def test_latin_letters_are_reported(model, processor, caplog):
    write = PoemGenerationPipeline(model=model, processor=processor, device="cpu")
    plain = write("春风")
    assert "Latin" not in caplog.text
    assert write("春风 wind")[0]["lines"] == plain[0]["lines"]
    assert "Latin letters of the text have no influence" in caplog.text


def test_unknown_characters_are_reported(model, processor, caplog):
    write = PoemGenerationPipeline(model=model, processor=processor, device="cpu")
    write("春风的着")
    assert "vocabulary" not in caplog.text  # of words that no poem is about
    assert write("春风龙凤")[0]["keywords"] == write("春风")[0]["keywords"]
    assert caplog.text.count("not in the vocabulary have no influence on the poem: 龙 凤") == 1


def test_compatibility_characters_are_the_usual_ones(write):
    (poem,), (usual,) = write("\uf9f4花"), write("林花")
    assert poem == usual
    assert write(keywords=["\ufa08"])[0]["keywords"] == write(keywords=["行"])[0]["keywords"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": "Spring wind"}, "`text` must have Chinese characters"),
        ({"inputs": ""}, "`text` must have Chinese characters"),
        ({"inputs": "龙凤"}, r"`text` has no word that could be a keyword \(the characters 龙凤 are not in the voc"),
        ({"inputs": "的了"}, "`text` has no word that could be a keyword"),
        ({"inputs": 3}, "must be a string or a dictionary, got int"),
        ({"inputs": {"title": "花"}}, "must have `text` or `keywords`"),
        ({}, "Pass a text as `inputs`, or `keywords`"),
        ({"inputs": "花", "keywords": ["花"]}, "exactly one of them"),
        ({"inputs": "花", "length": 6}, "`length` must be 5 or 7, the characters of a line, got 6"),
        ({"inputs": "花", "length": True}, "`length` must be 5 or 7"),
        ({"inputs": "花", "rhyme": "yes"}, "`rhyme` must be True or False, got 'yes'"),
        ({"inputs": "花", "num_candidates": 0}, "`num_candidates` must be an integer of at least 1, got 0"),
        ({"inputs": "花", "num_beams": 0}, "`num_beams` must be an integer of at least 1, got 0"),
        ({"inputs": "花", "num_beams": 1.5}, "`num_beams` must be an integer of at least 1, got 1.5"),
        ({"inputs": "花", "num_beams": True}, "`num_beams` must be an integer of at least 1, got True"),
        ({"inputs": "花", "batch_size": 0}, "`batch_size` must be an integer of at least 1, got 0"),
        ({"inputs": "花", "num_workers": -1}, "`num_workers` must be an integer of at least 0, got -1"),
        ({"inputs": "花", "do_sample": True, "top_p": 2.0}, "`top_p` must be between 0 and 1, got 2.0"),
        ({"inputs": "花", "do_sample": True, "temperature": 0.0}, "`temperature`"),
        ({"inputs": "花", "do_sample": True, "top_k": -1}, "`top_k`"),
        ({"inputs": "花", "max_new_tokens": 9}, "`max_new_tokens` does not go with poems: `length`"),
        ({"inputs": "花", "num_return_sequences": 2}, "`num_candidates` is their number"),
        ({"keywords": []}, "`keywords` must be 1 to 4, one a line, got 0"),
        ({"keywords": list("春花山月雨")}, "`keywords` must be 1 to 4, one a line, got 5"),
        ({"keywords": ["spring"]}, "must be Chinese characters alone"),
        ({"keywords": ["龙"]}, "`keywords`: '龙' is not in the vocabulary"),
        ({"keywords": 3}, "`keywords` must be a list of strings"),
    ],
)
def test_bad_input(write, arguments, message):
    with pytest.raises(ValueError, match=message):
        write(**arguments)


def test_what_cannot_write_poems(model, processor, tokenizer):
    with pytest.raises(ValueError, match="`processor` must be a HamProcessor, none was given"):
        PoemGenerationPipeline(model=model, tokenizer=processor.tokenizer)
    with pytest.raises(ValueError, match="`processor` has no poem_keywords"):
        PoemGenerationPipeline(model=model, processor=HamProcessor(processor.tokenizer))
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    bart = BartForConditionalGeneration(
        BartConfig(vocab_size=len(tokenizer), d_model=8, encoder_ffn_dim=8, decoder_ffn_dim=8, **sizes)
    )
    with pytest.raises(ValueError, match="`processor` must be a HamProcessor"):
        PoemGenerationPipeline(model=bart, tokenizer=tokenizer)


def test_rhymes_of_a_processor_that_does_not_know_them(write, monkeypatch):
    monkeypatch.setattr(write.processor.poem_keywords, "sounds", None)
    for asked in ({"rhyme": True}, {"tones": True}):
        with pytest.raises(ValueError, match=r"set processor\.poem_keywords to PoemKeywords\.fit"):
            write(TEXT, **asked)
    assert write(TEXT, rhyme=False)


def test_loads_from_a_folder(write, model, processor, tmp_path):
    write.save_pretrained(tmp_path)
    loaded = pipeline("poem-generation", model=str(tmp_path), device="cpu")
    # A GRU rounds by where in memory the file puts its weights.
    (got,), (want,) = loaded(TEXT, length=5), write(TEXT, length=5)
    assert got == {**want, "score": pytest.approx(want["score"], abs=1e-3)}
    assert set(itertools.chain(*loaded(TEXT)[0]["lines"])) <= {c for poem in POEMS for line in poem for c in line}
