"""Poems through `pipeline`: keywords, lines of one length, candidates; and a user's mistakes."""

import itertools

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig, pipeline

from hier_models import HamConfig, HamForConditionalGeneration, HamProcessor
from hier_models.models.keywords import is_chinese
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
        limit = processor.line_length(5)
        ids = model.generate(
            **{name: inputs[name] for name in ("input_ids", "attention_mask", "keyword_mask")},
            logits_processor=[limit],
            max_new_tokens=6,
        )
        assert ids[0, 1:].tolist() == inputs["labels"][0].tolist()
        with torch.no_grad():
            labels = inputs["labels"][:, :5]  # the end stands where it was asked for
            chances = model(**inputs).logits.log_softmax(dim=-1)[:, :5].gather(-1, labels[..., None])
            score += float(chances.sum())
    assert poem["score"] == pytest.approx(score, abs=1e-3)


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
    several = write(texts, length=5, batch_size=3, num_candidates=2)
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


def test_loads_from_a_folder(write, model, processor, tmp_path):
    write.save_pretrained(tmp_path)
    loaded = pipeline("poem-generation", model=str(tmp_path), device="cpu")
    # A GRU rounds by where in memory the file puts its weights.
    (got,), (want,) = loaded(TEXT, length=5), write(TEXT, length=5)
    assert got == {**want, "score": pytest.approx(want["score"], abs=1e-3)}
    assert set(itertools.chain(*loaded(TEXT)[0]["lines"])) <= {c for poem in POEMS for line in poem for c in line}
