"""Documents that are longer than the model can take, condensed; and summaries of a length."""

import copy
import logging
import time
from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, pipeline

import hier_models
from hier_models.pipelines.long_documents_hier import (
    best_sentences,
    condense,
    only_sentences,
    page_of,
    parts_of,
    sentences_and_headings,
    worth_in,
)
from hier_models.pipelines.salience_hier import salience
from hier_models.pipelines.written_form_hier import restore_written_form
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


# What is read of them


def count(texts):
    return [len(text.split()) for text in texts]


@pytest.fixture
def read(summarize, monkeypatch):
    """What was encoded, the last of it what the model reads."""
    seen, encode = [], summarize._encoded
    monkeypatch.setattr(
        summarize, "_encoded", lambda name, value, limit: seen.append((name, value)) or encode(name, value, limit)
    )
    return seen


def test_a_long_document_is_condensed(summarize, read, caplog):
    text = " ".join(f"Bee number {number} flies." for number in range(60))
    with caplog.at_level(logging.WARNING):
        records = [summarize(text, return_truncation=True, **LENGTH)[0] for _ in range(2)]
    assert records[0] == records[1]
    assert records[0]["num_truncated_tokens"] == 0
    name, condensed = read[-1]
    tokens = summarize.count_tokens(condensed)
    assert summarize.limits()[0] / 2 < tokens <= summarize.limits()[0]
    assert records[0]["num_omitted_tokens"] == summarize.count_tokens(text) - tokens
    beginning, *rest = condensed.split("\n\n")
    assert name == "text"
    assert text.startswith(beginning)
    assert 0 < summarize.count_tokens(beginning) <= summarize.limits()[0] / 2
    assert rest
    assert all(sentence in text for sentence in rest)
    assert sum("its beginning is read" in message for message in caplog.messages) == 1
    assert "num_omitted_tokens" not in summarize(DOCUMENTS[0][:100], return_truncation=True, **LENGTH)[0]


@pytest.mark.parametrize("batch_size", [2, 5])
def test_batches_give_what_single_documents_give(summarize, batch_size):
    documents = [
        *DOCUMENTS,
        " ".join(DOCUMENTS * 4),
        TURNS * 9,
        {"sentences": DOCUMENTS * 3},
        {"documents": DOCUMENTS * 2},
    ]
    single = [summarize(document, return_truncation=True, **LENGTH)[0] for document in documents]
    assert sum("num_omitted_tokens" in record for record in single) >= 3
    assert summarize(documents, batch_size=batch_size, return_truncation=True, **LENGTH) == single


def test_it_can_be_cut_or_refused_instead(summarize, read):
    text = " ".join(DOCUMENTS[::-1] * 4)
    cut = summarize(text, truncation=True, return_truncation=True, **LENGTH)[0]
    assert "num_omitted_tokens" not in cut
    assert cut["num_truncated_tokens"] > 0
    assert cut["summary_text"] != summarize(text, **LENGTH)[0]["summary_text"]
    assert read[-1][1] != text
    with pytest.raises(ValueError, match="tokens long, more than the"):
        summarize(text, truncation=False)


def test_the_names_of_roles_have_room_too(summarize, read):
    turns = [
        {"role": "The chair of the committee for bees", "content": f"Bee {number} flies."} for number in range(60)
    ]
    record = summarize(turns, return_truncation=True, **LENGTH)[0]
    assert record["num_truncated_tokens"] == 0
    assert record["num_omitted_tokens"] > 0
    name, kept = read[-1]
    assert name == "turns"
    assert [turn for turn in turns if turn in kept] == kept != []


def test_the_structure_is_kept():
    sentences = [f"Bee {number} flies." for number in range(9)]
    kept = condense("sentences", sentences, 18, count)
    assert kept == [sentence for sentence in sentences if sentence in kept]
    assert kept[:2] == sentences[:2]
    assert 15 < sum(count(kept)) <= 18
    articles = [" ".join(sentences), "Rain falls. Bees fly. Bees rest."]
    kept = condense("documents", articles, 20, count)
    assert [article.split(". ")[0].rstrip(".") for article in kept] == ["Bee 0 flies", "Rain falls"]
    turns = [
        {"role": "Ann", "content": "Yes. Bees fly home now."},
        {"role": "Bob", "content": "No."},
        {"role": "Cid", "content": "Bees fly home now and then."},
        {"role": "Ann", "content": "Bees fly home late."},
    ]
    assert condense("turns", turns, 14, count) == [
        {"role": "Ann", "content": "Bees fly home now."},
        {"role": "Cid", "content": "Bees fly home now and then."},
        {"role": "Ann", "content": "Bees fly home late."},
    ]


@pytest.mark.parametrize(
    "text", ["a " * 35, "a, b c, " * 12, "One. " + "two " * 30 + ". Three.", "word " * 300, "x" * 3000]
)
def test_what_has_no_sentences_is_taken_apart(text):
    for counting in (count, lambda texts: [*map(len, texts)]):
        condensed = condense("text", text, 20, counting)
        assert 0 < sum(counting(condensed.split("\n\n"))) <= 20


def test_a_word_of_megabytes_is_taken_apart_in_seconds():
    begun = time.process_time()
    kept = condense(
        "text", f"Bees fly. {'z' * 2**22} They rest. x-ray", 40, lambda texts: [len(t) // 4 for t in texts]
    )
    assert time.process_time() - begun < 15  # copying the rest for each line, minutes
    assert kept.startswith("Bees fly.")
    assert all(len(word) <= 40 for word in kept.split() if "z" in word)


@pytest.mark.parametrize("text", ["", "    ", "\n\n"])
def test_of_nothing_nothing_is_read(text):
    assert condense("text", text, 10, count) == ""
    assert condense("turns", [], 10, count) == condense("documents", [], 10, count) == []


def test_items_of_lists_are_not_chosen() -> None:
    items = [f"harbour ferry bridge tide {number}" for number in range(9)]
    sentences = [f"On day {number} the people of the village waited for the boats." for number in range(9)]
    text = "\n\n".join([*sentences[:3], *items, *sentences[3:]])
    read = condense("text", text, 60, lambda texts: [len(one.split()) for one in texts])
    assert "harbour" not in read
    assert read.count("waited") == 5
    few = condense(
        "text", "\n\n".join([*sentences[:2], *items]), 60, lambda texts: [len(one.split()) for one in texts]
    )
    assert few.count("harbour") > 4  # the most of the document


def test_headings_are_not_read_as_parts_of_sentences(summarize, read):
    long = [f"On day {number} the people of the village waited for the boats." for number in range(30)]
    text = "\n\n".join(["The ferry", f"It rained. {long[0]}", "Boats:", "- red\n\n- blue", *long[1:]])
    first, second, *_ = condense("text", text, 150, count).split("\n\n")
    assert (first, second) == (f"It rained. {long[0]}", long[1])
    lists = "\n\n".join(["The ferry", long[0], *["The boats are many"] * 30])  # hardly a sentence
    assert condense("text", lists, 30, count).split("\n\n")[:2] == ["The ferry", long[0]]
    assert only_sentences(lists, count) == lists
    short = f"The ferry\n\n{long[0]}\n{long[1]}\n\n- red\n\n- blue\n\nIt rained."
    kept = f"{long[0]} {long[1]}\n\nIt rained."
    assert only_sentences(short, count) == kept
    assert only_sentences(kept, count) == kept
    record = summarize(short, return_truncation=True, **LENGTH)[0]
    assert "num_omitted_tokens" not in record  # other models read all that they can
    summarize.model.config.task_specific_params = {"summarization": {"long_documents": "condense"}}
    omitted = summarize(short, return_truncation=True, **LENGTH)[0]
    assert read[-1] == ("text", kept)
    tokens = summarize.count_tokens(short) - summarize.count_tokens(kept)
    assert omitted["num_omitted_tokens"] == tokens > 0
    assert "num_omitted_tokens" not in summarize(short, return_truncation=True, truncation=True, **LENGTH)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Methods\nSite\nBees were seen on the north coast. They fly.",
            "Methods|Site|Bees were seen on the north coast.|They fly.",
        ),
        ("It ended.\n## Results\n  Bees fly on the coast. Fine.", "It ended.|## Results|Bees fly on the coast.|Fine."),
        (
            "It ended. In\nMarch 2024 all the bees flew home. The\nBees rest.",
            "It ended.|In\nMarch 2024 all the bees flew home.|The\nBees rest.",
        ),
        ("Then bees of the north\nCame home to rest\nthere.", "Then bees of the north\nCame home to rest\nthere."),
        ("Bees of the\nnorth fly all day long in June.", "Bees of the\nnorth fly all day long in June."),
        (
            "He was born in\nLondon, where his father kept a shop.",
            "He was born in\nLondon, where his father kept a shop.",
        ),
        ("On 3 May\n2024 all the bees flew away.", "On 3 May\n2024 all the bees flew away."),
        (
            "It ended.\n2.3. Grains\nBees like the grains of the north. Yes.",
            "It ended.|2.3.|Grains|Bees like the grains of the north.|Yes.",
        ),
        ("Anna\nI have seen all the bees. Yes.\n" * 3, "|".join(["Anna\nI have seen all the bees.", "Yes."] * 3)),
        (
            "Gabriel García\nHe was born in the south of the country.",
            "Gabriel García|He was born in the south of the country.",
        ),
        ("Ann: Hello\nBob: I have seen all the bees today.", "Ann: Hello\nBob: I have seen all the bees today."),
        ("One two three four five six seven eight nine ten eleven\nBees " + "fly and " * 30 + "rest.", None),
        ("Heading", "Heading"),
        ("", ""),
    ],
)
def test_headings_on_lines_of_their_own_are_set_apart(processor, text, expected):
    found = [text[start:end] for start, end in sentences_and_headings(text, processor)]
    assert "|".join(found) == (text if expected is None else expected)


@pytest.mark.parametrize("text", ["Title\n" * 10**5, "word " * 10**5, "A.\n\n" * 10**5, "A." + "\n" * 10**5 + "B b."])
def test_headings_of_any_text_are_found_in_seconds(processor, text):
    begun = time.process_time()
    sentences_and_headings(text, processor)
    assert time.process_time() - begun < 10


def test_of_turns_what_is_no_sentence_comes_last_and_is_read_where_there_is_room():
    filling, said = [{"role": "Ann", "content": text} for text in ("Yeah.", "Bees fly all day in June, yes.")]
    unended = {"role": "Bob", "content": "and then i saw that the bees fly home"}
    turns = [
        unended,
        *[filling] * 5,
        *({**said, "content": f"{said['content'][:-1]} {n}."} for n in range(40)),
        unended,
    ]
    kept = condense("turns", turns, 80, count)
    assert len(kept) > 5
    assert all(turn["content"].startswith("Bees") for turn in kept)
    assert unended in condense("turns", [unended, *[filling] * 5, *turns[6:16]], 120, count)


@pytest.mark.parametrize("room", [1000, 60])
def test_headings_on_lines_of_their_own_are_not_read(room):
    sentence = "Bees fly home to their hive in the north of the county, {} times a day."
    text = "\n".join(
        f"Numbers Of Flight {number}\n{sentence.format(number)} {sentence.format(number + 100)}"
        for number in range(12)
    )
    processor = AutoProcessor.from_pretrained(hier_models.MINI)
    for read in (only_sentences(text, count, processor), condense("text", text, room, count, processor)):
        assert "Numbers" not in read
        assert sentence.format(0) in read


@pytest.mark.parametrize("text", ["", "word", "a\n\nb", "!?", "Bees fly."])
def test_of_what_has_no_sentences_all_is_read(text):
    assert only_sentences(text, count) == text


def test_the_best_sentences_are_kept_as_long_as_there_is_room():
    sentences = ["Bees fly.", "Bees fly home to the hive.", "Rain.", "The hive is home to bees.", "Bees fly."]
    worth = np.array([2.0, 5.0, 1.0, 5.0, 3.0])
    assert best_sentences(sentences, [1] * 5, worth, 2) == [1, 3]
    assert best_sentences(sentences, [1, 9, 1, 1, 9], worth, 2) == [0, 3]
    assert best_sentences(sentences, [1] * 5, worth, 9) == [1, 2, 3, 4]
    assert best_sentences(sentences, [1] * 5, worth, 9, besides={0}) == [1, 2, 3]
    assert best_sentences(sentences, [9] * 5, worth, 8) == best_sentences([], [], np.array([]), 8) == []


@pytest.mark.parametrize(
    ("sentences", "heading"),
    [
        (["Er kam erst am späten Abend an.", "Sie sagte: „Das ist gar nicht gut.“"], "Was geschah"),
        (["Il est arrivé très tard le soir.", "Elle a dit : « Ce n’est pas bien. »"], "Ce qui arriva"),
        (["वह शाम को बहुत देर से आया।", "उसने कहा कि यह ठीक नहीं है।"], "क्या हुआ"),
    ],
)
def test_sentences_of_other_languages_have_ends_too(sentences, heading):
    for sentence in sentences:
        text = f"{heading}\n\n" + "\n\n".join([sentence] * 30)
        assert only_sentences(text, count) == "\n\n".join([sentence] * 30)


@pytest.mark.parametrize("text", ["Er kam an. Sie sagte: „Das ist gut.“", "今天天气很好。我们去公园。"])
def test_the_last_sentence_is_finished_in_other_languages(summarize_lengths, text):
    assert summarize_lengths._whole_sentences(text, one=False) == len(text)
    half = text.rstrip(".。“")
    assert 0 < summarize_lengths._whole_sentences(half, one=False) < len(half)


def test_sequences_are_those_of_the_whole_document(summarize):
    text = " ".join(DOCUMENTS * 4)
    records = summarize(text, num_beams=3, num_return_sequences=3, **LENGTH)
    assert len({record["summary_text"] for record in records}) == 3


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


def test_a_summary_has_at_most_two_thirds_of_its_documents_tokens_or_all_of_few(summarize_lengths, monkeypatch):
    model, end = summarize_lengths.model, summarize_lengths.tokenizer.eos_token_id
    model.generation_config.forced_eos_token_id = None
    model.lm_head.register_forward_hook(lambda module, args, logits: logits.index_fill(-1, torch.tensor([end]), -99.0))
    monkeypatch.setattr("hier_models.pipelines.summary_rules_hier.MOST_OF_SHORT", 10)
    documents = [DOCUMENTS[0][:20], DOCUMENTS[0][:33], DOCUMENTS[0][:100]]
    tokens = [summarize_lengths.count_tokens(document) for document in documents]
    texts = summarize_lengths.tokenizer(documents, add_special_tokens=False)["input_ids"]
    assert len(texts[0]) < 10 < len(texts[1])
    options = {"return_tensors": True, "max_new_tokens": 60, "num_beams": 2, "length": "long", "batch_size": 3}
    written = [
        record["summary_token_ids"].tolist().index(end, 1) for record in summarize_lengths(documents, **options)
    ]
    most = [max(min(10, len(text)), 2 * number // 3) for text, number in zip(texts, tokens, strict=True)]
    assert written == [number + 2 for number in most]  # behind the start token and that of the length
    assert most[0] < 10 == most[1] < most[2] < 59


@pytest.fixture
def pages(summarize_lengths, tiny_model, monkeypatch):
    """A pipeline whose pages have three paragraphs."""
    tiny_model.config.task_specific_params = {"summarization": {"paragraphs": 3, "max_source_length": 100}}
    monkeypatch.setattr("hier_models.pipelines.summarization_hier.PART", 40)
    return summarize_lengths


def test_a_page_is_the_short_summaries_of_its_parts(pages):
    one = {"max_new_tokens": 12, "num_beams": 1, "return_tensors": True}
    text = " ".join(f"Bee number {number} flies far." for number in range(12))
    read = condense("text", text, 3 * 40, pages._sizes, pages.processor)
    parts = parts_of("text", read, 3, pages._sizes, pages.processor, worth_in(text, pages.processor))
    assert len(parts) == 3
    written = [pages(part, length="short", **one)[0]["summary_token_ids"].tolist() for part in parts]
    special = pages.tokenizer.all_special_ids
    words = page_of(written, pages.tokenizer)
    record = pages(text, length="long", **one | {"max_new_tokens": 36}, return_truncation=True)[0]
    ids = record["summary_token_ids"].tolist()
    assert words
    assert [token for token in ids if token not in special] == words
    long, end = pages.tokenizer.convert_tokens_to_ids("[long]"), pages.tokenizer.eos_token_id
    assert ids[:2] == [written[0][0], long]
    assert ids[-1] == end
    assert record["num_truncated_tokens"] == 0
    assert pages(text, length="short", **one)[0]["summary_token_ids"].tolist() != ids


@pytest.mark.parametrize("own", [{"max_new_tokens": 12}, {"max_length": 13}, {"min_new_tokens": 9}, {"min_length": 9}])
def test_a_page_of_ones_own_length_is_divided_among_the_parts_that_there_are(pages, own):
    pages.model.generation_config.forced_eos_token_id = None
    end, special = pages.tokenizer.eos_token_id, pages.tokenizer.all_special_ids
    unended = torch.tensor([end])
    pages.model.lm_head.register_forward_hook(lambda module, args, logits: logits.index_fill(-1, unended, -99.0))
    one = {"num_beams": 1, "return_tensors": True, **own}

    def written(document, **options):
        ids = pages(document, **one, **options)[0]["summary_token_ids"].tolist()
        return [token for token in ids if token not in special]

    short, three = "A bee flies far away.", " ".join(f"Bee number {number} flies far." for number in range(12))
    assert len(pages.preprocess(short, paragraphs=3)["examples"].notes["parts"]) == 1
    whole = written(short, length="short")
    assert len(whole) > 8
    assert len(whole) - 1 <= len(written(short, length="long")) <= len(whole)  # the last one may have to be the end
    assert len(written(three, length="long")) < 3 * len(whole)
    records = pages([short, three], length="long", batch_size=2, **one)
    both = [[token for token in record["summary_token_ids"].tolist() if token not in special] for record in records]
    assert both == [written(document, length="long") for document in (short, three)]


@pytest.mark.parametrize("drawn", [{}, {"do_sample": True}, {"num_beams": 2}])
def test_a_page_that_is_too_short_for_a_checkpoints_own_least_length_ends_all_the_same(pages, drawn):
    short, three = "A bee flies far away.", " ".join(f"Bee number {number} flies far." for number in range(12))
    config = pages.model.generation_config
    config.forced_eos_token_id = None
    for own in ({"min_length": 31}, {"min_new_tokens": 30}):
        config.update(min_length=None, min_new_tokens=None)
        config.update(**own)
        for asked in ({"max_new_tokens": 12}, {"max_new_tokens": 12, "min_length": 0}, {"max_new_tokens": 3}):
            for document in (short, three):
                ids = pages(document, length="long", return_tensors=True, **{"num_beams": 1, **drawn}, **asked)
                words = [token for token in ids[0]["summary_token_ids"] if token > 0]
                assert 2 <= len(words) <= 3 + asked["max_new_tokens"]  # with the tokens that frame a page
    assert pages(three, length="long", min_new_tokens=0, max_new_tokens=9, num_beams=1)[0].keys() == {"summary_text"}


def test_more_than_the_decoder_has_positions_is_no_matter_of_the_batch(pages):
    short, three = "A bee flies far away.", " ".join(f"Bee number {number} flies far." for number in range(12))
    options = {"length": "long", "max_new_tokens": pages._positions("decoder") + 5}
    alone = [pages(document, **options)[0] for document in (short, three)]
    assert pages([short, three], batch_size=2, **options) == alone


def test_pages_in_batches_and_in_several_forms(pages):
    texts = [" ".join(f"Bee {number} flies {far}." for number in range(12)) for far in ("far", "near")]
    texts.append("A bee flies.")  # one part
    alone = [pages(text, length="long", max_new_tokens=36, return_sources=True)[0] for text in texts]
    for size in (3, "auto"):
        assert pages(texts, length="long", max_new_tokens=36, return_sources=True, batch_size=size) == alone
    sequences = pages(texts[0], length="long", num_beams=2, num_return_sequences=2, max_length=37, min_length=9)
    assert len({record["summary_text"] for record in sequences}) == 2
    turns = [{"role": "a", "content": "I fly far away."}] * 12
    assert pages(turns, length="long", max_new_tokens=36)[0]["summary_text"]
    once = pages(texts[0], length="long", max_new_tokens=36, truncation=True)[0]  # in one go
    assert once["summary_text"] != alone[0]["summary_text"]


def test_pages_with_and_without_a_query_in_one_batch(pages):
    text = " ".join(f"Bee number {number} flies far." for number in range(12))
    documents = [{"text": text}, {"text": text, "query": "What does bee number 7 do?"}]
    options = {"length": "long", "max_new_tokens": 36, "return_truncation": True}
    alone = [pages(document, **options)[0] for document in documents]
    assert pages(documents, batch_size=2, **options) == alone
    assert alone[0] != alone[1]


def test_a_page_of_a_long_document_reads_more_than_a_paragraph(pages):
    text = " ".join(f"Bee number {number} flies far." for number in range(90))
    omitted = [
        pages(text, length=length, max_new_tokens=36, return_truncation=True)[0]["num_omitted_tokens"]
        for length in ("short", "long")
    ]
    assert 0 < omitted[1] < omitted[0]


def test_paragraphs_end_with_a_whole_sentence(pages):
    encode = pages.tokenizer
    for text, kept in (
        ("Bees fly. They", "Bees fly."),
        ('Bees "fly." They', 'Bees "fly."'),
        ('Bees "fly."', 'Bees "fly."'),
        ("Bees fly", "Bees fly"),
    ):
        assert encode.decode(page_of([encode(text)["input_ids"]], encode)).strip() == kept
    several = [encode(text)["input_ids"] for text in ("Bees fly far and", "Bees fly.", "They")]
    assert encode.decode(page_of(several, encode)).strip() == "Bees fly."


@pytest.mark.parametrize(
    ("paragraphs", "page"),
    [
        (("The ferry costs 3.5 million euros.", "The ferry costs 3.7 million euros."), "{} {}"),
        (("Sales rose strongly. The ferry costs 3.5 million",), "Sales rose strongly."),
        (("It was planned by the U.S. Senate in May.", "It was planned by the U.S. Army in June."), "{} {}"),
        (("Everyone knew that it was Dr. Smith.", "Everyone knew that it was Dr. Jones."), "{} {}"),
    ],
)
def test_numbers_and_abbreviations_end_no_sentence_of_a_page(paragraphs, page):
    processor = AutoProcessor.from_pretrained(hier_models.MINI)
    tokenizer, written = processor.tokenizer, partial(restore_written_form, document=" ".join(paragraphs))
    ids = page_of([tokenizer(text)["input_ids"] for text in paragraphs], tokenizer, written, processor)
    assert written(tokenizer.decode(ids)) == page.format(*paragraphs)


def test_parts_of_a_page_are_not_cut(pages):
    text = " ".join(f"bee number {number} flies far," for number in range(90))
    documents = [{"text": text}, {"documents": [text, "Bees fly."]}, {"turns": [{"role": "a", "content": text}]}]
    for document in documents:
        parts = pages.preprocess(document, paragraphs=3, max_source_length=60)["examples"].notes["parts"]
        assert [part.counts["num_truncated_tokens"] for part in parts] == [0] * len(parts)
        assert max(map(len, parts)) <= 60


def test_a_page_may_be_of_a_few_tokens(pages):
    assert pages("Bees fly far. " * 40, length="long", max_new_tokens=3)[0].keys() == {"summary_text"}
    assert pages("Bees fly far. " * 40, paragraphs=3)[0].keys() == {"summary_text"}


def test_a_page_has_a_sentence_once(pages):
    encode = pages.tokenizer
    paragraphs = ["Bees fly far away today. The U.S. bees do.", "Bees fly far away today. They rest. U.S. bees rest."]
    page = encode.decode(page_of([encode(text)["input_ids"] for text in paragraphs], encode))
    assert page.replace(" ", "") == "Beesflyfarawaytoday.TheU.S.beesdo.Theyrest.U.S.beesrest."


@pytest.mark.parametrize("number", [1, 2, 3, 7, 50])
def test_parts_of_a_document(number):
    text = " ".join(f"Bee number {place} flies {'far ' * (place % 4)}away." for place in range(20))
    turns = [{"role": "a", "content": "I fly."} for _ in range(20)]
    for name, value in (("text", text), ("turns", turns), ("sentences", ["One."] * 20), ("documents", ["One."] * 20)):
        parts = parts_of(name, value, number, count, None)
        assert len(parts) == min(number, 20)
        joined = " ".join(parts) if name == "text" else [item for part in parts for item in part]
        assert joined == value
    assert parts_of("text", "", number, count, None) == [""]


def test_the_best_sentences_of_a_text_have_more_parts():
    sentences = [f"Bee number {place} flies away." for place in range(8)]
    text, sizes = " ".join(sentences), lambda texts: [1] * len(texts)
    assert [len(part.split(". ")) for part in parts_of("text", text, 4, sizes, None, {})] == [2, 2, 2, 2]
    # A sentence that is better by 1 counts for 7.4; one that is not known, as the worst.
    worth = dict.fromkeys(sentences[:7], 0.0) | {sentences[2]: 1.0}
    parts = parts_of("text", text, 2, sizes, None, worth)
    assert parts == [" ".join(sentences[:3]), " ".join(sentences[3:])]
    assert parts_of("text", text, 2, sizes, None, dict.fromkeys(sentences, -2.0))[0] == " ".join(sentences[:4])
    of_text = worth_in(f"A heading\n{text} {sentences[0]}", None)
    assert [*map(of_text.get, sentences)] == [*salience(["A heading", *sentences, sentences[0]])[1:9]]


def test_a_checkpoint_says_how_much_is_read_at_a_time(summarize, tiny_model):
    text = DOCUMENTS[0][:200]
    settings = {"return_truncation": True, **LENGTH}
    expected = summarize(text, max_source_length=40, **settings)
    assert expected[0]["num_omitted_tokens"] > 0
    tiny_model.config.task_specific_params = {"summarization": {"max_source_length": 40}}
    assert summarize(text, **settings) == expected
    assert summarize.limits()[0] == 40
    assert "num_omitted_tokens" not in summarize(text, max_source_length=128, **settings)[0]


def test_lengths_that_cannot_be(summarize, summarize_lengths):
    with pytest.raises(ValueError, match="`length` must be one of line, short, long, got 'medium'"):
        summarize_lengths(DOCUMENTS[0], length="medium")
    with pytest.raises(ValueError, match=r"`length` is for models that were trained with lengths.*max_new_tokens"):
        summarize(DOCUMENTS[0], length="line")


def test_sources_of_a_document_that_is_condensed(summarize):
    text = " ".join(f"Bee number {number} flies to flower {number + 7}." for number in range(40))
    record = summarize(text, return_sources=True, return_truncation=True, **LENGTH)[0]
    assert record["num_omitted_tokens"] > 0
    for sentence in record["sources"]:
        for source in sentence["sources"]:
            assert text[source["start"] : source["end"]] == source["text"]
