"""Documents that are longer than the model can take, read in parts; and summaries of a length."""

import copy
import logging
import math

import pytest
import torch
from transformers import pipeline

import hier_models
from hier_models.pipelines.document_pipeline_hier import Example
from hier_models.pipelines.long_documents_hier import central_sentences, parts_of, tokens_of
from hier_models.pipelines.summarization_hier import TOKENS_AT_ONCE
from tests.conftest import DOCUMENTS, TURNS


LENGTH = {"min_length": 4, "max_length": 8}


@pytest.fixture
def summarize(tiny_model, processor):
    return pipeline("summarization", model=tiny_model, processor=processor, device="cpu")


@pytest.fixture
def lengths_tokenizer(tokenizer):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["[line]", "[short]", "[long]"]})
    return tokenizer


@pytest.fixture
def summarize_lengths(tiny_model, lengths_tokenizer):
    tiny_model.resize_token_embeddings(len(lengths_tokenizer))
    processor = hier_models.HatBartProcessor(lengths_tokenizer, num_segments=tiny_model.config.num_segments)
    return pipeline("summarization", model=tiny_model, processor=processor, device="cpu")


def words(name, value):
    """Counts words, and keeps what it was given."""
    text = value if name == "text" else " ".join(item if isinstance(item, str) else item["content"] for item in value)
    ids = text.split()
    return Example({"input_ids": ids[:10]}, {"num_truncated_tokens": max(0, len(ids) - 10)}, source=(name, value, 10))


# Parts


def test_all_of_a_document_is_read_once_and_in_order(summarize, monkeypatch, caplog):
    text = " ".join(f"Bee number {number} flies." for number in range(60))
    summarized = []
    forward = type(summarize).__mro__[1]._forward
    monkeypatch.setattr(
        type(summarize).__mro__[1],
        "_forward",
        lambda self, inputs, **kwargs: summarized.append(inputs["examples"]) or forward(self, inputs, **kwargs),
    )
    with caplog.at_level(logging.WARNING):
        records = [summarize(text, return_truncation=True, **LENGTH)[0] for _ in range(2)]
    number, limit = records[0]["num_parts"], summarize.limits()[0]
    assert number > 2
    assert records[0] == records[1]
    assert records[0]["num_truncated_tokens"] == 0
    parts = [
        example.source[1] for batch in summarized[: math.ceil(number / (TOKENS_AT_ONCE // limit))] for example in batch
    ]
    assert " ".join(" ".join(parts).split()) == text
    assert sum(f"is read in {number} parts" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("batch_size", [2, 5])
def test_batches_give_what_single_documents_give(summarize, batch_size):
    documents = [
        *DOCUMENTS,
        " ".join(DOCUMENTS * 4),
        TURNS * 9,
        {"sentences": DOCUMENTS * 3},
        {"documents": DOCUMENTS},
    ]
    single = [summarize(document, return_truncation=True, **LENGTH)[0] for document in documents]
    assert sum("num_parts" in record for record in single) >= 3
    assert summarize(documents, batch_size=batch_size, return_truncation=True, **LENGTH) == single


def test_it_can_be_cut_or_refused_instead(summarize):
    text = " ".join(DOCUMENTS * 4)
    cut = summarize(text, truncation=True, return_truncation=True, **LENGTH)[0]
    assert "num_parts" not in cut
    assert cut["num_truncated_tokens"] > 0
    assert cut["summary_text"] != summarize(text, **LENGTH)[0]["summary_text"]
    with pytest.raises(ValueError, match="tokens long, more than the"):
        summarize(text, truncation=False)


def test_a_model_that_writes_more_than_it_reads_comes_to_an_end(summarize):
    record = summarize("word " * 300, max_source_length=12, min_new_tokens=1, return_truncation=True, **LENGTH)[0]
    assert record["num_parts"] > 10
    assert record["num_truncated_tokens"] == 0


def test_the_summary_is_made_of_the_beginning_and_of_what_is_central_to_the_parts(summarize, monkeypatch):
    settings, read = [], []

    def summaries(parts, its):
        settings.append(its)
        return [f"Alike it is. Part {number} of it is alike. Odd." for number, _ in enumerate(parts)]

    encode = summarize._encoded
    monkeypatch.setattr(summarize, "_summaries", summaries)
    monkeypatch.setattr(
        summarize, "_encoded", lambda name, value, limit: read.append((name, value)) or encode(name, value, limit)
    )
    sentences = [f"Bee number {number} flies." for number in range(60)]
    for document, begins in ((" ".join(sentences), True), ({"sentences": sentences}, True), (TURNS * 30, False)):
        settings.clear()
        record = summarize(document, num_beams=3, return_truncation=True, **LENGTH)[0]
        name, text = read[-1]
        assert name == "text"
        assert record["num_truncated_tokens"] == 0
        assert [its["num_beams"] for its in settings] == [1]
        beginning, *rest = text.split("\n")
        if begins:
            assert " ".join(sentences).startswith(beginning)
            assert 0 < summarize.count_tokens(beginning) <= summarize.limits()[0] / 2
        else:
            rest = text.split("\n")
        assert "Alike it is." in rest
        assert len(set(rest)) == len(rest) > 2
        assert all(sentence.endswith((" is.", "alike.", "Odd.")) for sentence in rest)


def test_central_sentences_are_those_like_all_others():
    sentences = ["Bees fly.", "Bees fly home to the hive.", "Rain.", "The hive is home to bees.", "Bees fly."]
    assert central_sentences(sentences[:4], [1] * 4, 2) == ["Bees fly home to the hive.", "The hive is home to bees."]
    assert central_sentences(sentences[:4], [1, 9, 1, 1], 2) == ["Bees fly.", "The hive is home to bees."]
    assert central_sentences(sentences, [1] * 5, 9) == sentences[:4]
    assert central_sentences(sentences, [9] * 5, 8) == central_sentences([], [], 8) == []
    assert central_sentences(["", "?"], [1, 1], 2) == ["", "?"]


def test_sequences_are_those_of_the_whole_document(summarize):
    text = " ".join(DOCUMENTS * 4)
    records = summarize(text, num_beams=3, num_return_sequences=3, **LENGTH)
    assert len({record["summary_text"] for record in records}) == 3


@pytest.mark.parametrize("kind", ["sentences", "turns", "documents"])
def test_parts_keep_the_structure(kind):
    items = [f"{number} a b c." for number in range(9)]
    value = [{"role": "Ann", "content": item} for item in items] if kind == "turns" else items
    parts = list(parts_of(kind, value, tokens_of(words(kind, value)), 10, words))
    assert len(parts) > 2
    assert all(tokens_of(part) <= 10 and part.source[0] == kind for part in parts)
    assert [item for part in parts for item in part.source[1]] == value


def test_parts_are_about_as_long_as_one_another():
    text = " ".join(f"{number} a." for number in range(11))  # 22 words
    lengths = [tokens_of(part) for part in parts_of("text", text, 22, 10, words)]
    assert sum(lengths) == 22
    assert max(lengths) - min(lengths) <= 2


@pytest.mark.parametrize(
    "text", ["a " * 35, "a, b c, " * 12, "word" * 50, "One. " + "two " * 30 + ". Three.", "", "    ", "\n\n"]
)
def test_what_is_too_long_by_itself_is_taken_apart(text):
    parts = list(parts_of("text", text, tokens_of(words("text", text)), 10, words))
    assert all(tokens_of(part) <= 10 for part in parts)
    assert " ".join(" ".join(part.source[1] for part in parts).split()) == " ".join(text.split())


def test_a_long_turn_is_read_as_text():
    turns = [{"role": "Ann", "content": "Yes."}, {"role": "Bob", "content": "No it is. " * 9}]
    parts = list(parts_of("turns", turns, tokens_of(words("turns", turns)), 10, words))
    assert [part.source[0] for part in parts] == ["turns", *["text"] * (len(parts) - 1)]
    assert parts[1].source[1].startswith("Bob: No it is.")


# Lengths


def test_targets_begin_with_the_token_of_their_length(lengths_tokenizer, tokenizer):
    targets = ["one " * 25, "one " * 26, "one " * 110, "one " * 111]
    for name in ("HatBartProcessor", "TopDownTransformerProcessor", "HighlightTransformerProcessor"):
        labels = getattr(hier_models, name)(lengths_tokenizer)(text_target=targets)["labels"]
        first = lengths_tokenizer.convert_ids_to_tokens([row[0] for row in labels])
        assert first == ["[line]", "[short]", "[short]", "[long]"]
        plain = getattr(hier_models, name)(tokenizer)(text_target=targets)["labels"]
        assert [row[1:] for row in labels] == [row[1:] for row in plain]
        assert {row[0] for row in plain} == {tokenizer.bos_token_id}


def test_a_length_begins_the_summary(summarize_lengths, lengths_tokenizer):
    for length in ("line", "short", "long"):
        ids = summarize_lengths(DOCUMENTS[0], length=length, max_length=9, return_tensors=True)[0]["summary_token_ids"]
        assert ids[1] == lengths_tokenizer.convert_tokens_to_ids(f"[{length}]")
        assert len(ids) <= 9
        text = summarize_lengths(DOCUMENTS[0], length=length, max_new_tokens=8)[0]["summary_text"]
        assert "[" not in text


def test_a_summary_has_the_least_tokens_of_its_length_or_a_third_of_its_documents(summarize_lengths):
    model, end = summarize_lengths.model, summarize_lengths.tokenizer.eos_token_id
    model.generation_config.forced_eos_token_id = None
    bias = torch.zeros(model.config.vocab_size)
    bias[end] = 1e4  # it ends as soon as it may
    model.lm_head.register_forward_hook(lambda module, args, logits: logits + bias)
    documents = [DOCUMENTS[0][:60], DOCUMENTS[0][:-20]]
    tokens = [summarize_lengths.count_tokens(document) for document in documents]
    assert tokens[0] // 3 < 34 < tokens[1] // 3

    def written(batch, **kwargs):
        """Tokens of each summary up to its end, without the start."""
        options = {"return_tensors": True, "max_new_tokens": 40, "num_beams": 2, **kwargs}
        records = summarize_lengths(batch, batch_size=len(batch), **options)
        return [[*record["summary_token_ids"], end].index(end, 1) - 1 for record in records]

    assert written(documents, length="short") == [tokens[0] // 3, 34]
    assert [written([document], length="short") for document in documents] == [[tokens[0] // 3], [34]]
    assert written(documents, length="line") == [1, 1]
    assert written(documents[:1], length="long") == [tokens[0] // 3]
    assert written(documents[1:], length="long") == [min(39, tokens[1] // 3)]
    assert written(documents, length="short", min_new_tokens=5) == [5, 5]
    assert written(documents, length="short", max_new_tokens=12) == [9, 11]  # the last one is the end


def test_a_checkpoint_says_how_much_is_read_at_a_time(summarize, tiny_model):
    text = DOCUMENTS[0][:200]
    settings = {"return_truncation": True, **LENGTH}
    expected = summarize(text, max_source_length=40, **settings)
    assert expected[0]["num_parts"] > 1
    tiny_model.config.task_specific_params = {"summarization": {"max_source_length": 40}}
    assert summarize(text, **settings) == expected
    assert summarize.limits()[0] == 40
    assert "num_parts" not in summarize(text, max_source_length=128, **settings)[0]


def test_a_length_is_of_the_whole_and_its_parts_are_short(summarize_lengths, monkeypatch):
    seen = []
    generate = summarize_lengths.model.generate
    monkeypatch.setattr(
        summarize_lengths.model,
        "generate",
        lambda **kwargs: seen.append(kwargs["generation_config"].forced_bos_token_id) or generate(**kwargs),
    )
    summarize_lengths(" ".join(DOCUMENTS * 4), length="line", max_new_tokens=8, max_source_length=40)
    tokens = summarize_lengths.tokenizer.convert_ids_to_tokens(seen)
    assert tokens[-1] == "[line]"
    assert set(tokens[:-1]) == {"[short]"}


def test_lengths_that_cannot_be(summarize, summarize_lengths):
    with pytest.raises(ValueError, match="`length` must be one of line, short, long, got 'medium'"):
        summarize_lengths(DOCUMENTS[0], length="medium")
    with pytest.raises(ValueError, match=r"`length` is for models that were trained with lengths.*max_new_tokens"):
        summarize(DOCUMENTS[0], length="line")


def test_sources_of_a_document_that_is_read_in_parts(summarize):
    text = " ".join(f"Bee number {number} flies to flower {number + 7}." for number in range(40))
    record = summarize(text, return_sources=True, return_truncation=True, **LENGTH)[0]
    assert record["num_parts"] > 2
    for sentence in record["sources"]:
        for source in sentence["sources"]:
            assert text[source["start"] : source["end"]] == source["text"]
