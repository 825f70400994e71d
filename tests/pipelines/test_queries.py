"""Summaries that answer a question: what is read for it, and what of the question itself."""

import logging
import math
import re
import unicodedata

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, pipeline

from hier_models.pipelines.long_documents_hier import best_sentences, condense, is_about, relevance, with_query
from tests.conftest import DOCUMENTS, TURNS


LENGTH = {"min_length": 4, "max_length": 8}
BEES = [f"Bee number {number} flies over field {number + 90}." for number in range(60)]
MEETING = [
    *({"role": "Ann", "content": text} for text in BEES[:40]),
    {"role": "Bob", "content": "The roof of the school costs too much."},
    {"role": "Cid", "content": "We leave it as it is."},
    *({"role": "Ann", "content": text} for text in BEES[40:]),
]
QUERY = "What does the roof of the school cost?"


@pytest.fixture
def summarize(tiny_model, processor):
    return pipeline("summarization", model=tiny_model, processor=processor, device="cpu")


@pytest.fixture
def reader(summarize):
    """A pipeline whose model was trained to read queries."""
    summarize.model.config.task_specific_params = {"summarization": {"reads_query": True}}
    return summarize


@pytest.fixture
def read(summarize):
    """What the model reads of a document."""

    def read(document, **asked):
        ids = summarize.preprocess(document, **asked)["examples"].inputs["input_ids"]
        return summarize.tokenizer.decode(ids, skip_special_tokens=True)

    return read


# What is read for a question


def test_what_is_asked_for_is_read(summarize, read):
    text = " ".join([*BEES[:40], "The roof of the school costs too much. We leave it as it is.", *BEES[40:]])
    document = {"sentences": [turn["content"] for turn in MEETING]}
    for given in (text, MEETING, document, {"documents": [" ".join(BEES[:30]), text]}):
        assert "roof of the school" in read(given, query=QUERY)
        assert "We leave it" in read(given, query=QUERY)  # what stands beside it
        assert "roof of the school" not in read(given, query="Which bee flies over field 149?")
        assert "flies over field 149" in read(given, query="Which bee flies over field 149?")
    [record] = summarize(text, query=QUERY, return_truncation=True, **LENGTH)
    assert record["num_truncated_tokens"] == 0
    assert record["num_omitted_tokens"] > 0
    assert len(summarize.tokenizer(read(text, query=QUERY))["input_ids"]) <= summarize.limits()[0]


def test_of_a_document_that_is_not_long_half_is_read(summarize, read):
    text = " ".join([*BEES[:3], "The roof of the school costs too much."])
    assert summarize.count_tokens(text) < summarize.limits()[0]
    asked = read(text, query=QUERY)
    assert "roof of the school" in asked
    assert len(asked) < 0.7 * len(text)
    short = "The roof costs too much. We leave it as it is."
    assert read(short, query=QUERY) == read(short)


def test_accents_are_found_however_they_are_encoded():
    said = "The singer Beyoncé came to the roof."
    apart = unicodedata.normalize("NFD", said)
    of_said = relevance([said, "The town is old."], said)[0]
    for question, text in ((said, apart), (apart, said)):
        assert relevance([text, "The town is old."], question)[0] == pytest.approx(of_said)
    assert is_about("Beyoncé", apart)
    assert is_about(unicodedata.normalize("NFD", "Beyoncé"), said)


def test_a_model_without_a_limit_or_a_processor_reads_what_is_asked_for(tokenizer):
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, max_position_embeddings=2048,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
    )  # fmt: skip
    pipe = pipeline("summarization", model=BartForConditionalGeneration(config).eval(), tokenizer=tokenizer)
    example = pipe.preprocess({"turns": MEETING, "query": QUERY})["examples"]
    assert len(example) <= 256
    assert "roof of the school" in tokenizer.decode(example.inputs["input_ids"])


def test_queries_of_many_documents(summarize):
    text = " ".join(turn["content"] for turn in MEETING)
    queries = [QUERY, "Which bee flies over field 149?", None]
    one = [summarize({"turns": MEETING, "query": query}, return_truncation=True, **LENGTH)[0] for query in queries]
    other = [summarize(text, query=query, return_truncation=True, **LENGTH)[0] for query in queries]
    assert one[0] != one[1] != one[2]
    settings = {"return_truncation": True, "batch_size": 2, **LENGTH}
    # A list with one for each, in every form that documents may have; one for all; of each document its own.
    assert summarize([MEETING, text], query=queries[:2], **settings) == [one[0], other[1]]
    assert summarize([{"text": text}, {"turns": MEETING}], query=queries[:2], **settings) == [other[0], one[1]]
    assert summarize(text=[text, text], query=queries[:2], **settings) == other[:2]
    assert summarize([text, MEETING], query=QUERY, **settings) == [other[0], one[0]]
    assert summarize([{"text": text, "query": queries[1]}, {"text": text}], query=QUERY, **settings) == other[1::-1]
    assert [*summarize(({"text": text, "query": query} for query in queries), **settings)] == [[r] for r in other]
    # Of one document an answer to each.
    assert summarize(MEETING, query=queries[:2], **settings) == one[:2]
    assert summarize(text, query=queries[:2], **settings) == other[:2]
    assert summarize(turns=MEETING, query=(QUERY,), **settings) == one[:1]


def test_sources_are_those_of_the_document(reader, monkeypatch):
    ids = torch.tensor([[reader.model.config.decoder_start_token_id, *reader.tokenizer(BEES[3])["input_ids"]]])
    monkeypatch.setattr(reader.model, "generate", lambda *args, **kwargs: ids)
    for document in (MEETING, {"text": " ".join(BEES[:5])}, {"sentences": BEES}):
        for flags in ({}, {"summarization": {"reads_query": True}}):
            reader.model.config.task_specific_params = flags
            [record] = reader(document, query=QUERY, return_sources=True, **LENGTH)
            text = reader.running_text(document)
            places = [place for sentence in record["sources"] for place in sentence["sources"]]
            assert len(places) > 0
            assert all(text[place["start"] : place["end"]] == place["text"] for place in places)
    assert reader.find_sources({"text": BEES[0], "query": QUERY}, BEES[0])[0]["sources"][0]["text"] == BEES[0]


# Models that read the question


def test_the_question_stands_before_what_is_read(reader, read):
    question = f"Question: {QUERY}"
    assert read("Bees fly. They rest.", query=QUERY) == read(with_query("text", "Bees fly. They rest.", QUERY))
    assert read("Bees fly.", query=QUERY).startswith(question)
    assert "Question" not in read("Bees fly.")
    for given in (MEETING, {"sentences": BEES}, {"documents": [" ".join(BEES[:30]), " ".join(BEES[30:])]}):
        example = reader.preprocess(given, query=QUERY)["examples"]
        ids = example.inputs["input_ids"]
        assert reader.tokenizer.decode(ids, skip_special_tokens=True).startswith(question)
        second = ids.index(reader.tokenizer.bos_token_id, 1)
        assert reader.tokenizer.decode(ids[1:second]).strip() == question  # a sentence of its own, with its marker
        assert len(ids) <= reader.limits()[0]
        assert example.counts["num_truncated_tokens"] == 0
        assert example.counts["num_omitted_tokens"] > 0
    # A document for which there is room is read whole.
    assert read(TURNS[:2], query=QUERY).count("\n") == read(TURNS[:2]).count("\n")
    assert len(read(TURNS[:2], query=QUERY)) > len(read(TURNS[:2]))


def test_it_is_saved_with_the_checkpoint(reader, tmp_path):
    reader.save_pretrained(tmp_path)
    again = pipeline("summarization", model=str(tmp_path), device="cpu")
    other = again(MEETING, query=QUERY, **LENGTH)
    assert other == reader(MEETING, query=QUERY, **LENGTH)
    assert (
        again.preprocess("Bees fly.", query=QUERY)["examples"].inputs["input_ids"]
        != (again.preprocess("Bees fly.")["examples"].inputs["input_ids"])
    )


# What cannot be


@pytest.mark.parametrize("query", ["", " \n", 5, ["", "What?"], [["What?"]]])
def test_what_is_no_question(summarize, query):
    with pytest.raises(ValueError, match="`query` must be"):
        summarize("Bees fly.", query=query, **LENGTH)


def test_a_list_of_another_length(summarize):
    for documents in ("Bees fly.", ["Bees fly."]):
        with pytest.raises(ValueError, match="one for each; got a list of 0 for"):
            summarize(documents, query=[], **LENGTH)
    with pytest.raises(ValueError, match="one for each; got a list of 3 for 2 documents"):
        summarize(["Bees fly.", "They rest."], query=[QUERY] * 3, **LENGTH)


def test_what_leaves_no_choice(summarize):
    for others in ({"truncation": True}, {"truncation": False}):
        with pytest.raises(ValueError, match="`query` chooses what is read"):
            summarize("Bees fly.", query=QUERY, **others)


def test_a_question_that_leaves_no_room(reader):
    with pytest.raises(ValueError, match=r"`query` takes \d+ of the 40 tokens"):
        reader(MEETING, query=QUERY * 5, max_source_length=40, **LENGTH)


def test_a_question_in_another_language(summarize, read, caplog):
    with caplog.at_level(logging.WARNING):
        assert read(MEETING, query="Was kostet das Dach der Schule?") == read(MEETING)
    assert "none of the words that matter in the query 'Was kostet das Dach" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        summarize(MEETING, query=QUERY, **LENGTH)
    assert not caplog.messages
    assert is_about("What did they decide?", "They decide.")  # all of its words are common ones
    assert is_about("What did they decide, Zoe?", "What they did? They decide.")
    assert not is_about("Was kostet das Dach?", "It was the roof.")
    assert is_about("Was kostet das Dach?", "Das Dach ist teuer.")
    assert is_about("library opening hours", "The library opens at nine.")
    assert is_about("When does the library open?", "The library opens at nine.")
    assert not is_about("When does the library open?", "It was nine when the bees came.")
    assert not is_about("?", "Bees fly?")


# The equation


def test_relevance_is_that_of_the_formula():
    """Cosines of tf-idf with the question, and a half and a third of those of the two neighbours on each side."""
    sentences = " ".join(DOCUMENTS).replace("? ", ". ").split(". ")
    words = [re.findall(r"\w+", sentence.casefold()) for sentence in sentences]
    query = " ".join(words[4][:3] + words[9][:3])
    rareness = {word: math.log(len(sentences) / sum(word in its for its in words)) for its in words for word in its}

    def cosine(one, other):
        vectors = [{word: its.count(word) * rareness.get(word, 0.0) for word in its} for its in (one, other)]
        lengths = [math.sqrt(sum(weight**2 for weight in vector.values())) for vector in vectors]
        product = sum(weight * vectors[1].get(word, 0.0) for word, weight in vectors[0].items())
        return product / max(1e-12, math.prod(lengths))

    own = [cosine(its, re.findall(r"\w+", query)) for its in words]
    shares = {0: 1.0, 1: 1 / 2, 2: 1 / 3}
    scores = [
        sum(share * own[j] for j in range(len(own)) if (share := shares.get(abs(i - j)))) for i in range(len(own))
    ]
    best = sorted(range(len(sentences)), key=lambda place: -scores[place])
    for number in range(1, 6):
        found = best_sentences(sentences, [1] * len(sentences), relevance(sentences, query), number)
        assert found == sorted(best[:number])


def test_no_beginning_is_kept_for_a_question():
    def count(texts):
        return [len(text.split()) for text in texts]

    sentences = ["One is first.", "Two is next.", "Bees fly home.", "Four is next.", "Rain falls."]
    assert condense("sentences", sentences, 6, count, query="bees") == sentences[1:3]
    assert condense("text", " ".join(sentences), 6, count, query="bees") == "\n\n".join(sentences[1:3])
    turns = [{"role": "Ann", "content": text} for text in sentences]
    assert condense("turns", turns, 6, count, query="bees") == turns[1:3]
    assert condense("sentences", [], 3, count, query="bees") == []
    assert best_sentences(["Bees."], [1], relevance(["Bees."], "bees"), 1) == [0]
