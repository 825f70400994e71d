"""Phrases and copied words in the summarization pipeline."""

import json

import pytest
import torch
from transformers import pipeline

from hier_models import HatBartForConditionalGeneration, HighlightTransformerProcessor
from hier_models.pipelines import SummarizationPipeline
from hier_models.pipelines.copied_words_hier import copied_words, copy_shares
from tests.conftest import DOCUMENTS


ARTICLES = DOCUMENTS[:3]
PHRASES = [("second pillar", 0.8), ("old road", 0.6)]


@pytest.fixture
def model(tiny_highlight):
    return tiny_highlight


@pytest.fixture
def summarize(model, highlight_processor):
    return SummarizationPipeline(model=model, processor=highlight_processor, device="cpu")


def test_several_articles_are_one_input(summarize, model, highlight_processor):
    (result,) = summarize(documents=ARTICLES)
    inputs = highlight_processor(documents=[ARTICLES], return_tensors="pt")
    assert len(inputs["phrase_values"][0]) >= 5
    ids = model.generate(**inputs)
    assert result["summary_text"] == highlight_processor.batch_decode(ids, skip_special_tokens=True)[0]
    assert summarize({"documents": ARTICLES}) == [result]
    assert summarize([{"documents": ARTICLES}, DOCUMENTS[0]]) == [result, *summarize(DOCUMENTS[0])]


def test_phrases_can_be_the_users(summarize):
    texts = {
        "found": summarize(DOCUMENTS[0])[0]["summary_text"],
        "given": summarize(DOCUMENTS[0], phrases=PHRASES)[0]["summary_text"],
        "none": summarize(DOCUMENTS[0], phrases=[])[0]["summary_text"],
    }
    assert len(set(texts.values())) == 3
    # A document's own come before those of the call.
    own = summarize({"text": DOCUMENTS[0], "phrases": PHRASES}, phrases=[])
    assert own[0]["summary_text"] == texts["given"]
    assert summarize({"text": DOCUMENTS[0], "phrases": None})[0]["summary_text"] == texts["found"]


def test_says_once_when_there_is_nothing_to_highlight(model, tokenizer, caplog):
    summarize = SummarizationPipeline(model=model, processor=HighlightTransformerProcessor(tokenizer), device="cpu")
    summarize(DOCUMENTS[0], phrases=[])
    assert not caplog.records
    summarize(DOCUMENTS[:2])
    assert [record.message.partition(":")[0] for record in caplog.records] == ["Nothing is highlighted"]


def test_phrases_are_shown_and_counted(summarize):
    (result,) = summarize(
        DOCUMENTS[0], phrases=[*PHRASES, ("no such words", 1.0)], return_phrases=True, return_truncation=True
    )
    assert [(phrase["text"], phrase["value"]) for phrase in result["phrases"]] == [*PHRASES, ("no such words", 1.0)]
    for phrase in result["phrases"][:2]:
        assert [DOCUMENTS[0][start:end] for start, end in phrase["spans"]] == [phrase["text"]]
    assert (result["num_missing_phrases"], result["without_phrases"]) == (1, 0)
    json.dumps(result)
    (found,) = summarize(documents=ARTICLES, return_phrases=True)
    assert len(found["phrases"]) == 10
    assert sum(phrase["value"] ** 2 for phrase in found["phrases"]) == pytest.approx(1)


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_batches_are_as_their_documents_alone(summarize, batch_size):
    documents = [
        {"documents": ARTICLES},
        {"text": DOCUMENTS[1], "phrases": []},
        {"text": DOCUMENTS[0], "phrases": PHRASES},
        {"text": DOCUMENTS[3]},
    ]
    asked = {"return_phrases": True, "return_copied": True, "return_truncation": True}
    alone = [summarize(document, **asked)[0] for document in documents]
    together = summarize(documents, batch_size=batch_size, **asked)
    assert [result["summary_text"] for result in together] == [result["summary_text"] for result in alone]
    assert [result["phrases"] for result in together] == [result["phrases"] for result in alone]
    for one, other in zip(together, alone, strict=True):
        assert [word | {"share": None} for word in one["copied"]] == [
            word | {"share": None} for word in other["copied"]
        ]
    assert [result["without_phrases"] for result in together] == [result["without_phrases"] for result in alone]


def test_shares_are_those_of_the_mixture(model, highlight_processor):
    inputs = highlight_processor(text=DOCUMENTS[:2], padding=True, return_tensors="pt")
    ids = model.generate(**inputs, num_beams=3, num_return_sequences=2).view(2, 2, -1)
    found = copy_shares(model, dict(inputs), ids)
    assert found["copy_shares"].shape == found["copy_places"].shape == (2, 2, ids.shape[2] - 1)
    seen = set()
    for row in range(2):
        special = highlight_processor.tokenizer.all_special_ids  # not copied
        source = [-1 if token in special else token for token in inputs["input_ids"][row].tolist()]
        for sequence in range(2):
            written = ids[row, sequence].tolist()
            one = {name: value[row : row + 1] for name, value in inputs.items()}
            outputs = model(**one, decoder_input_ids=ids[row, sequence][None, :-1], output_copying=True)
            for step, token in enumerate(written[1:]):
                gate = outputs.copy_probability[0, step].item()
                attention = outputs.copy_attentions[0, step].tolist()
                copied = gate * sum(a for a, other in zip(attention, source, strict=True) if other == token)
                whole = outputs.logits[0, step, token].exp().item()
                assert found["copy_shares"][row, sequence, step].item() == pytest.approx(copied / whole, abs=1e-4)
                best = max(range(len(source)), key=lambda place: attention[place] * (source[place] == token))
                place = found["copy_places"][row, sequence, step].item()
                assert place == (best if token in source else -1)
                seen.add(token in source)
    assert seen == {True, False}


def test_copied_words_say_where_they_are_from(summarize, model):
    with torch.no_grad():
        model.copy_gate.bias.fill_(30.0)  # everything is copied
    (result,) = summarize(DOCUMENTS[0], return_copied=True, max_length=24)
    text = result["summary_text"]
    assert result["copied"]
    for word in result["copied"]:
        assert text[word["start"] : word["end"]] == word["text"]
        assert word["share"] > 0.99
    for word in result["copied"]:
        if word["source"] is not None:
            start, end = word["source"]
            assert word["text"] in DOCUMENTS[0][start:end]
    with torch.no_grad():
        model.copy_gate.bias.fill_(-30.0)
    assert summarize(DOCUMENTS[0], return_copied=True)[0]["copied"] == []


def test_a_hat_bart_that_copies_says_what_too(tiny_config, processor):
    torch.manual_seed(0)
    tiny_config.use_copy = tiny_config.silent_markers = True
    model = HatBartForConditionalGeneration(tiny_config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    torch.nn.init.constant_(model.copy_gate.bias, 30.0)  # everything is copied
    summarize = pipeline("summarization", model=model, processor=processor)
    (result,) = summarize(DOCUMENTS[0], return_copied=True, max_length=24)
    assert result["copied"]
    for word in result["copied"]:
        assert result["summary_text"][word["start"] : word["end"]] == word["text"]
        if word["source"] is not None:
            start, end = word["source"]
            assert word["text"] in DOCUMENTS[0][start:end]


def test_words_of_several_tokens(tokenizer):
    source = "Engineers had found a crack – naïve Straße."
    encoded = tokenizer(source, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    decoding = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    text = tokenizer.decode(ids, **decoding)
    places = list(range(len(ids)))
    words = copied_words(tokenizer, ids, text, [0.9] * len(ids), places, offsets, decoding)
    assert [word["text"] for word in words] == ["Engineers", "had", "found", "a", "crack", "naïve", "Straße"]
    for word in words:
        start, end = word["source"]
        assert source[start:end].strip() == word["text"]
        assert source[word["start"] : word["end"]] == word["text"]
    # A word is copied as far as its least copied token, and comes from one place if its tokens do.
    shares, broken = [0.9] * len(ids), list(places)
    first = next(n for n, (start, _) in enumerate(offsets) if start <= source.index("Straße") < offsets[n][1])
    shares[first + 1] = 0.6
    broken[first + 1] = 0
    (word,) = [
        word
        for word in copied_words(tokenizer, ids, text, shares, broken, offsets, decoding)
        if word["text"] == "Straße"
    ]
    assert (word["share"], word["source"]) == (0.6, None)
    shares[first + 1] = 0.4
    words = copied_words(tokenizer, ids, text, shares, places, offsets, decoding)
    assert "Straße" not in [word["text"] for word in words]
    assert copied_words(tokenizer, [], "", [], [], offsets, decoding) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("deux cafe\u0301s noirs", ["deux", "cafe\u0301s", "noirs"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("لُغَةٌ", ["لُغَةٌ"]),
        ("大桥 e-mail", ["大", "桥", "e-mail"]),
    ],
)
def test_words_of_other_scripts(tokenizer, text, words):
    encoded = tokenizer(text, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    decoding = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    found = copied_words(tokenizer, ids, text, [0.9] * len(ids), list(range(len(ids))), offsets, decoding)
    assert [word["text"] for word in found] == words


def test_what_a_model_does_not_know_is_refused(tiny_model, processor, summarize, model):
    other = SummarizationPipeline(model=tiny_model, processor=processor, device="cpu")
    for name, value in (("phrases", PHRASES), ("return_phrases", True)):
        with pytest.raises(ValueError, match="are for models with a processor that knows phrases"):
            other(DOCUMENTS[0], **{name: value})
    with pytest.raises(ValueError, match="`return_copied` is for models that copy"):
        other(DOCUMENTS[0], return_copied=True)
    assert other({"text": DOCUMENTS[0], "phrases": PHRASES}) == other(DOCUMENTS[0])  # an entry that is not read
    model.config.use_copy = False
    with pytest.raises(ValueError, match="`return_copied` is for models that copy"):
        summarize(DOCUMENTS[0], return_copied=True)


def test_bad_phrases_are_refused(summarize):
    for phrases in ([("second pillar", -1.0)], [("second pillar", float("nan"))], [(0, 10_000, 1.0)]):
        with pytest.raises(ValueError, match="phrases"):
            summarize(DOCUMENTS[0], phrases=phrases)
    with pytest.raises(TypeError, match="phrases"):
        summarize(DOCUMENTS[0], phrases="second pillar")


def test_a_saved_checkpoint_does_the_same(summarize, tmp_path):
    summarize.save_pretrained(tmp_path)
    loaded = pipeline("summarization", model=str(tmp_path), device="cpu")
    asked = {"return_phrases": True, "return_copied": True}
    assert loaded(documents=ARTICLES, **asked) == summarize(documents=ARTICLES, **asked)
