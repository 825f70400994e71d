"""HighlightTransformerProcessor: the four kinds of input, shares of articles, phrases, truncation, saving."""

import copy
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hier_models.data import HierDataCollator
from hier_models.models.key_phrase_extraction import KeyPhraseExtractor
from hier_models.models.processing_highlight_transformer import HighlightTransformerProcessor
from tests.conftest import DOCUMENTS, TURNS
from tests.odd_tokenizers import MIXED, TOKENIZERS, plain_ids


# Named, since the command line quiets those above it.
LOGGER = "hier_models.models.processing_highlight_transformer"

BOS, PAD, EOS = 0, 1, 2
STOPWORDS = {"the", "a", "was", "on", "is", "by", "at", "it", "in", "for", "will", "that", "had", "has", "they", "who"}
INPUTS: dict[str, list[Any]] = {
    "text": [*DOCUMENTS[:3], ""],
    "sentences": [["One. ", "", "Two."], ["Three."], []],
    "turns": [TURNS, TURNS[2:], []],
    "documents": [DOCUMENTS[:2], DOCUMENTS[2:], [""]],
}


@pytest.fixture(scope="module")
def extractor() -> KeyPhraseExtractor:
    return KeyPhraseExtractor(STOPWORDS).fit(DOCUMENTS, min_documents=1)


@pytest.fixture
def processor(tokenizer: PreTrainedTokenizerFast) -> HighlightTransformerProcessor:
    return HighlightTransformerProcessor(tokenizer)


@pytest.fixture
def finding(tokenizer: PreTrainedTokenizerFast, extractor: KeyPhraseExtractor) -> HighlightTransformerProcessor:
    return HighlightTransformerProcessor(tokenizer, key_phrases=extractor)


def slow_positions(start: int, end: int, offsets: list[Any]) -> tuple[int, int] | None:
    """First and last token that has a character of the span, looked at one by one."""
    found = [i for i, (a, b) in enumerate(offsets) if any(start <= character < end for character in range(a, b))]
    return (found[0], found[-1] + 1) if found else None


# ------------------------------------------------------------------------------------------------------------- input


@pytest.mark.parametrize("text", [*DOCUMENTS, MIXED, "", " \n"])
def test_bos_the_tokenizers_own_ids_eos(processor: HighlightTransformerProcessor, text: str) -> None:
    encoded = processor(text=text)
    assert encoded["input_ids"] == [BOS, *plain_ids(processor.tokenizer, text), EOS]
    assert set(encoded) == {"input_ids", "attention_mask"}
    assert encoded["attention_mask"] == [1] * len(encoded["input_ids"])


def test_running_text_and_where_its_articles_are(processor: HighlightTransformerProcessor) -> None:
    assert processor.running_text(sentences=[" One.\n", "", "Two."]) == "One. Two."
    assert processor.running_text(["as", " it is\n"]) == ["as", " it is\n"]
    turns = [{"role": "A", "content": " "}, {"role": "B", "content": "Yes"}]
    assert processor.running_text(turns=turns) == "A:\nB: Yes"
    articles = [" A b.\n", "", "C.", "Δ"]
    text = processor.running_text(documents=articles)
    assert text == "A b.\n\nC.\n\nΔ"
    spans = processor.article_spans(articles)
    assert [text[start:end] for start, end in spans] == ["A b.", "", "C.", "Δ"]
    assert processor.article_spans([articles, ["x"]]) == [spans, [(0, 1)]]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("finds", [True, False])
def test_every_kind_is_its_running_text_and_a_batch_its_members(
    processor: HighlightTransformerProcessor, finding: HighlightTransformerProcessor, kind: str, finds: bool
) -> None:
    processor = finding if finds else processor
    texts = processor.running_text(**{kind: INPUTS[kind]})
    phrases = None if finds else [[(0, min(4, len(text)), 0.5), ("one", 1)] if text else [] for text in texts]
    options: dict[str, Any] = {"return_truncation": True, "return_offsets_mapping": True, "return_phrases": True}
    batch = processor(**{kind: INPUTS[kind]}, phrases=phrases, **options)
    assert batch == processor(text=texts, phrases=phrases, **options)
    for i, one in enumerate(INPUTS[kind]):
        single = processor(**{kind: one}, phrases=phrases and phrases[i], **options)
        assert {key: values[i] for key, values in batch.items()} == dict(single)


# ----------------------------------------------------------------------------------------------------------- phrases


def test_a_phrase_is_found_wherever_it_occurs(processor: HighlightTransformerProcessor) -> None:
    text = "The Sea\nLevel rose. Sea level, sea levels; undersea level; the sea  level’s rise"
    encoded = processor(text=text, phrases=[("sea level", 0.25)], return_phrases=True)
    (phrase,) = encoded["phrases"]
    assert [text[start:end] for start, end in phrase["spans"]] == ["Sea\nLevel", "Sea level", "sea  level"]
    assert phrase["text"] == "sea level"
    assert encoded["phrase_positions"] == phrase["positions"]
    assert encoded["phrase_values"] == [0.25] * 3
    for start, end in encoded["phrase_positions"]:
        assert " ".join(processor.decode(encoded["input_ids"][start:end]).lower().split()) == "sea level"


@pytest.mark.parametrize(
    ("phrase", "text", "found"),
    [
        ("don't", "Don’t go, don't.", ["Don’t", "don't"]),
        ("C++", "C++ and c++, not C+", ["C++", "c++"]),
        ("U.S. Senate", "the U.S. Senate", ["U.S. Senate"]),
        ("天气", "今天天气很好", ["天气"]),
        ("हिन्द", "हिन्दी हिन्द", ["हिन्द"]),
        ("(a|b)", "a b (a|b)", ["(a|b)"]),
        ("café", "Café, cafés", ["Café"]),
        ("café", "Café, cafe\u0301, cafe, cafe\u0301s", ["Café", "cafe\u0301"]),
        ("cafe\u0301", "café \u212bng", ["café"]),
        ("\u212bng", "a\u030ang \u212bng", ["a\u030ang", "\u212bng"]),
        ("na na", "bana na na, na na na", ["na na", "na na"]),
        ("новости дня", "Новости\tдня", ["Новости\tдня"]),
    ],
)
def test_phrases_are_whole_words_in_any_script(
    processor: HighlightTransformerProcessor, phrase: str, text: str, found: list[str]
) -> None:
    encoded = processor(text=text, phrases=[(phrase, 1)], return_phrases=True)
    assert [text[start:end] for start, end in encoded["phrases"][0]["spans"]] == found


def test_a_phrase_is_in_one_article(processor: HighlightTransformerProcessor) -> None:
    articles = ["Here ends the old", "road, and the old\n\nroad"]
    encoded = processor(
        documents=articles, phrases=[("old road", 1), ("the old", 1), ("road", 1)], return_phrases=True
    )
    text = processor.running_text(documents=articles)
    found = [[text[start:end] for start, end in phrase["spans"]] for phrase in encoded["phrases"]]
    assert found == [["old\n\nroad"], ["the old", "the old"], ["road", "road"]]


def test_overlapping_nested_and_repeated_phrases_are_all_there(processor: HighlightTransformerProcessor) -> None:
    text = DOCUMENTS[0]
    phrases = [("second pillar", 0.5), ("pillar", 0.25), ("pillar", 0.25), (text.index("crack"), 81, 2), ("crack", 0)]
    encoded = processor(text=text, phrases=phrases, return_phrases=True, return_truncation=True)
    offsets = processor(text=text, return_offsets_mapping=True)["offset_mapping"]
    assert encoded["phrase_values"] == [0.5, 0.25, 0.25, 2.0]  # a value of 0 highlights nothing
    assert len(encoded["phrases"][-1]["positions"]) == 1
    expected = [slow_positions(*phrase["spans"][0], offsets) for phrase in encoded["phrases"][:4]]
    assert encoded["phrase_positions"] == expected
    assert encoded["num_missing_phrases"] == encoded["without_phrases"] == 0


def test_phrases_alone_share_a_norm_of_one(processor: HighlightTransformerProcessor) -> None:
    encoded = processor(text=DOCUMENTS[0], phrases=["bridge", "ferry", "road", ("crack", 3)])
    assert encoded["phrase_values"] == pytest.approx([3**-0.5] * 3 + [3])


def test_the_two_forms_of_a_phrase_are_the_same(processor: HighlightTransformerProcessor) -> None:
    text = DOCUMENTS[0]
    pairs = processor(text=text, phrases=[("bridge", 1), [4, 10, np.float32(0.5)]])
    objects = processor(text=text, phrases=[{"text": "bridge", "value": 1}, {"start": 4, "end": 10.0, "value": 0.5}])
    assert pairs == objects


def test_what_is_not_found_is_counted(processor: HighlightTransformerProcessor) -> None:
    options: dict[str, Any] = {"return_truncation": True, "return_phrases": True}
    encoded = processor(text=DOCUMENTS[0], phrases=[("bees", 1), ("ferry", 1), ("bridges", 2)], **options)
    assert encoded["num_missing_phrases"] == 2
    assert [len(phrase["spans"]) for phrase in encoded["phrases"]] == [0, 1, 0]
    nothing = processor(text=DOCUMENTS[0], phrases=[("bees", 1)], **options)
    assert (nothing["phrase_positions"], nothing["phrase_values"], nothing["without_phrases"]) == ([], [], 1)
    assert processor(text=DOCUMENTS[0], phrases=[], **options)["without_phrases"] == 0  # as it was asked for


def test_key_phrases_are_found_where_none_are_given(
    finding: HighlightTransformerProcessor, extractor: KeyPhraseExtractor
) -> None:
    text = finding.running_text(documents=DOCUMENTS)
    encoded = finding(documents=DOCUMENTS, return_phrases=True)
    expected = extractor.find(text)
    assert [phrase["text"] for phrase in encoded["phrases"]] == [phrase.text for phrase in expected]
    assert np.linalg.norm([phrase["value"] for phrase in encoded["phrases"]]) == pytest.approx(1)
    given = [[("bridge", 1)], None]
    batch = finding(documents=[DOCUMENTS, DOCUMENTS], phrases=given, return_phrases=True)
    assert batch["phrases"][1] == encoded["phrases"]
    assert [phrase["text"] for phrase in batch["phrases"][0]] == ["bridge"]
    assert finding(text=DOCUMENTS[0], phrases=[])["phrase_positions"] == []
    finding.key_phrases = None
    assert set(finding(text=DOCUMENTS[0])) == {"input_ids", "attention_mask"}


def test_key_phrases_are_those_of_what_is_left(finding: HighlightTransformerProcessor) -> None:
    articles = [DOCUMENTS[0], DOCUMENTS[1]]
    text = finding.running_text(documents=articles)
    for limit in (12, 31, 50, 77):
        encoded = finding(
            documents=articles, truncation=True, max_length=limit, return_phrases=True, return_truncation=True
        )
        left = finding.kept_text(documents=articles, max_length=limit)
        assert encoded["num_truncated_phrases"] == encoded["num_missing_phrases"] == 0
        for phrase in encoded["phrases"]:
            assert len(phrase["positions"]) == len(phrase["spans"])
            for start, end in phrase["spans"]:
                assert any(text[start:end] in part for part in left)
                # No word that the cut has shortened.
                assert not text[start - 1 : start].isalpha()
                assert not text[end : end + 1].isalpha()


def test_phrases_longer_than_the_band(finding: HighlightTransformerProcessor) -> None:
    finding.max_phrase_length = 4
    text = "The quadratic-residuosity problem is hard."
    with pytest.raises(ValueError, match=r"`phrases`: 'The quadratic' has \d+ tokens, more than max_phrase_length=4"):
        finding(text=text, phrases=[(0, 13, 1)])
    encoded = finding(text=text, return_phrases=True, return_truncation=True)
    long = [phrase for phrase in encoded["phrases"] if not phrase["positions"]]
    assert encoded["num_long_phrases"] == len(long) > 0
    assert all(end - start <= 4 for start, end in encoded["phrase_positions"])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_positions_are_those_of_the_characters(tokenizer: PreTrainedTokenizerFast, data: Any) -> None:
    texts = data.draw(
        st.lists(st.sampled_from([DOCUMENTS[1], DOCUMENTS[2], MIXED, "a b", ""]), min_size=1, max_size=3)
    )
    processor = HighlightTransformerProcessor(tokenizer, max_phrase_length=1000)
    text = processor.running_text(documents=texts)
    bound = st.integers(0, max(0, len(text) - 1))
    spans = data.draw(st.lists(st.tuples(bound, bound), max_size=8)) if text else []
    phrases = [(min(a, b), max(a, b) + 1, 1 + i) for i, (a, b) in enumerate(spans)]
    limit = data.draw(st.integers(2, 150))
    options: dict[str, Any] = {"return_offsets_mapping": True, "return_truncation": True}
    whole = processor(documents=texts, phrases=phrases, **options)
    cut = processor(documents=texts, phrases=phrases, truncation=True, max_length=limit, **options)
    lengths = []
    for encoded in (whole, cut):
        offsets = encoded["offset_mapping"]
        found = [slow_positions(start, end, offsets) for start, end, _ in phrases]
        assert encoded["phrase_positions"] == [places for places in found if places]
        values = [value for (_, _, value), places in zip(phrases, found, strict=True) if places]
        assert encoded["phrase_values"] == values
        lengths.append([places[1] - places[0] if places else 0 for places in found])
    assert cut["num_truncated_phrases"] == sum(after < before for before, after in zip(*lengths, strict=True))


# ------------------------------------------------------------------------------------- truncation: shares of articles


def test_each_article_keeps_its_share(processor: HighlightTransformerProcessor) -> None:
    articles = [DOCUMENTS[0], DOCUMENTS[2], DOCUMENTS[1]]
    whole = processor(documents=articles)["input_ids"]
    text = processor.running_text(documents=articles)
    spans = processor.article_spans(articles)
    for limit in range(2, len(whole) + 2):
        encoded = processor(
            documents=articles, truncation=True, max_length=limit, return_truncation=True, return_offsets_mapping=True
        )
        ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
        assert len(ids) == min(limit, len(whole))
        assert (ids[0], ids[-1]) == (BOS, EOS)
        assert encoded["num_truncated_tokens"] == len(whole) - len(ids)
        kept = processor.kept_text(documents=articles, max_length=limit)
        assert "".join(text[a:b] for a, b in offsets).replace("\n", "") == "".join(kept)
        for part, (start, end) in zip(kept, spans, strict=True):
            assert text[start:end].startswith(part)
        if limit > 48:
            tokens = [sum(start <= a < end for a, b in offsets if a < b) for start, end in spans]
            lengths = [len(plain_ids(processor.tokenizer, article)) for article in articles]
            assert tokens[1] == lengths[1]  # the short one leaves its rest
            assert tokens[2] == lengths[2] or abs(tokens[0] - tokens[2]) <= 3  # and the separators


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [
        ([5, 5, 5], 15, [5, 5, 5]),
        ([9, 9, 9], 15, [5, 5, 5]),
        ([2, 9, 9], 15, [2, 6, 7]),
        ([9, 0, 20, 3], 16, [6, 0, 7, 3]),
        ([4], 3, [3]),
        ([4, 4], 0, [0, 0]),
    ],
)
def test_shares(lengths: list[int], budget: int, expected: list[int]) -> None:
    from hier_models.models.phrase_spans import shares

    assert shares(lengths, budget) == expected


def test_one_article_is_a_text(processor: HighlightTransformerProcessor) -> None:
    options: dict[str, Any] = {"truncation": True, "max_length": 20, "phrases": ["bridge"], "return_truncation": True}
    assert processor(documents=[DOCUMENTS[0]], **options) == processor(text=DOCUMENTS[0], **options)


def test_what_is_left_of_a_cut_phrase_stays(processor: HighlightTransformerProcessor) -> None:
    text = DOCUMENTS[0]
    whole = processor(text=text, phrases=[(0, len(text), 1)][:0], return_offsets_mapping=True)["offset_mapping"]
    start, end = whole[8][0], whole[13][1]
    encoded = processor(
        text=text, phrases=[(start, end, 1), ("ferry", 1)], truncation=True, max_length=12, return_truncation=True
    )
    assert encoded["phrase_positions"] == [(8, 11)]
    assert encoded["num_truncated_phrases"] == 2
    assert encoded["num_missing_phrases"] == 0


def test_everything_is_said_once(processor: HighlightTransformerProcessor, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(2):
            encoded = processor(text=DOCUMENTS, phrases=[["ferry"]] * 4, truncation=True, max_length=9)
            assert set(encoded) == {"input_ids", "attention_mask", "phrase_positions", "phrase_values"}
    messages = [record.message for record in caplog.records]
    assert len(messages) == 4
    for message, start in zip(
        messages, ["Truncation cut", "3 phrases are not", "1 occurrences of phrases lost", "Nothing is"], strict=True
    ):
        assert message.startswith(start)


# ----------------------------------------------------------------------------------------------------------- padding


def test_phrases_are_padded_on_the_right_whatever_the_side(processor: HighlightTransformerProcessor) -> None:
    phrases = [["bridge", "road"], [], ["library"], ["nothing of it"]]
    alone = [processor(text=text, phrases=given) for text, given in zip(DOCUMENTS, phrases, strict=True)]
    for side in ("left", "right"):
        batch = processor(
            text=DOCUMENTS,
            phrases=phrases,
            padding=True,
            padding_side=side,
            return_tensors="pt",
            return_offsets_mapping=True,
        )
        assert batch["phrase_positions"].dtype == torch.long
        assert batch["phrase_positions"].shape == (4, 2, 2)
        assert batch["phrase_values"].dtype == torch.float32
        for i, one in enumerate(alone):
            n = len(one["phrase_values"])
            assert batch["phrase_positions"][i].tolist() == [list(p) for p in one["phrase_positions"]] + [[-1, -1]] * (
                2 - n
            )
            torch.testing.assert_close(
                batch["phrase_values"][i], torch.tensor([*one["phrase_values"], *[0.0] * (2 - n)])
            )
            real = batch["attention_mask"][i].bool()
            assert not batch["offset_mapping"][i][~real].any()


def test_without_a_phrase_there_is_still_an_axis(processor: HighlightTransformerProcessor) -> None:
    batch = processor(text=DOCUMENTS, phrases=[[]] * 4, padding=True, return_tensors="pt")
    assert batch["phrase_positions"].tolist() == [[[-1, -1]]] * 4
    assert batch["phrase_values"].tolist() == [[0.0]] * 4
    one = processor(text=DOCUMENTS[0], phrases=[], return_tensors="np")
    assert one["phrase_positions"].shape == (1, 1, 2)
    assert processor(text="One.", padding=True, return_tensors="pt", return_phrases=True)["phrases"] is None


def test_the_collator_takes_them(finding: HighlightTransformerProcessor) -> None:
    texts = [*DOCUMENTS, "a", ""]
    rows = [dict(finding(text=text, text_target="One.", return_truncation=True)) for text in texts]
    collator = HierDataCollator(finding)
    batch = collator(rows)
    assert set(batch) == {"input_ids", "attention_mask", "phrase_positions", "phrase_values", "labels"}
    together = finding(text=texts, padding=True, return_tensors="pt")
    for name in together:
        assert torch.equal(batch[name], together[name])
    empty = collator(rows[-2:])
    assert empty["phrase_positions"].tolist() == [[[-1, -1]]] * 2
    assert empty["phrase_positions"].dtype == torch.long
    assert empty["phrase_values"].tolist() == [[0.0]] * 2
    # As many phrases as tokens are still phrases.
    text = "bridge road"
    n = len(finding(text=text)["input_ids"])
    row = dict(finding(text=text, phrases=[("bridge", 1)] * n))
    finding.tokenizer.padding_side = "left"
    try:
        batch = HierDataCollator(finding, padding="max_length", max_length=n + 9)([row])
    finally:
        finding.tokenizer.padding_side = "right"
    assert batch["input_ids"].shape == (1, n + 9)
    assert batch["phrase_positions"].shape == (1, n, 2)


def test_rows_of_a_data_set(finding: HighlightTransformerProcessor) -> None:
    data = datasets.Dataset.from_dict({"text": [*DOCUMENTS, ""]})
    rows = data.map(lambda batch: dict(finding(text=batch["text"])), batched=True, remove_columns=["text"])
    batch = HierDataCollator(finding)(list(rows))
    together = finding(text=[*DOCUMENTS, ""], padding=True, return_tensors="pt")
    for name in together:
        assert torch.equal(batch[name], together[name])


# ------------------------------------------------------------------------------------------- saving, any tokenizer


def test_save_and_load(tokenizer: PreTrainedTokenizerFast, extractor: KeyPhraseExtractor, tmp_path: Path) -> None:
    processor = HighlightTransformerProcessor(tokenizer, language="de", key_phrases=extractor, max_phrase_length=16)
    state = pickle.dumps(processor)
    processor(text=DOCUMENTS)
    assert pickle.dumps(processor) == state  # what `datasets` hashes for its cache
    processor.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "processor_config.json").read_text())
    assert saved == {
        "key_phrases": "key_phrases.json",
        "language": "de",
        "max_phrase_length": 16,
        "processor_class": "HighlightTransformerProcessor",
    }
    loaded = HighlightTransformerProcessor.from_pretrained(tmp_path)
    assert (loaded.language, loaded.max_phrase_length) == ("de", 16)
    texts = [*DOCUMENTS, MIXED]
    assert loaded(text=texts, return_phrases=True) == processor(text=texts, return_phrases=True)
    assert pickle.loads(pickle.dumps(processor))(text=texts) == processor(text=texts)
    assert copy.deepcopy(processor)(text=texts) == processor(text=texts)
    assert "bridge" not in repr(processor)
    assert processor.key_phrases is extractor
    assert HighlightTransformerProcessor.from_pretrained(tmp_path, key_phrases=None).key_phrases is None
    # Saved again without, it has none, though the file still lies there.
    loaded.key_phrases = None
    loaded.save_pretrained(tmp_path)
    assert HighlightTransformerProcessor.from_pretrained(tmp_path).key_phrases is None


def test_a_missing_or_damaged_file_of_key_phrases_is_said(
    finding: HighlightTransformerProcessor, tmp_path: Path
) -> None:
    finding.save_pretrained(tmp_path)
    file = tmp_path / "key_phrases.json"
    file.write_text("{}")
    with pytest.raises(ValueError, match=r"key_phrases.json is no file of key phrases"):
        HighlightTransformerProcessor.from_pretrained(tmp_path)
    file.unlink()
    with pytest.raises(OSError, match=r"key_phrases\.json"):
        HighlightTransformerProcessor.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize(
    "text", [DOCUMENTS[0], "One <s> two </s> three <pad>. Ünï cödé 他来了。 Ⅷ ﬁn e\u0301clat 🙂 two."]
)
def test_any_tokenizer(name: str, text: str) -> None:
    tokenizer: PreTrainedTokenizerBase = TOKENIZERS[name]()
    processor = HighlightTransformerProcessor(tokenizer)
    ids = processor(text=text)["input_ids"]
    assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert not {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id} & set(ids[1:-1])
    if not tokenizer.is_fast:
        with pytest.raises(ValueError, match="no fast backend, which alone tells where"):
            processor(text=text, phrases=["two"])
        with pytest.raises(ValueError, match="the truncation of several articles need one"):
            processor(documents=[text, text], truncation=True, max_length=8)
        return
    words = text.split()
    phrases = [(text.index(word), text.index(word) + len(word), 1.0) for word in words]
    encoded = processor(text=text, phrases=phrases, return_offsets_mapping=True, return_phrases=True)
    assert encoded["input_ids"] == ids
    found = [slow_positions(start, end, encoded["offset_mapping"]) for start, end, _ in phrases]
    assert encoded["phrase_positions"] == [places for places in found if places]
    assert len(encoded["phrase_positions"]) == len(words)
    for articles in ([text, text], [text, "", DOCUMENTS[2]]):
        limit = len(ids)
        cut = processor(documents=articles, truncation=True, max_length=limit, phrases=["two", "the"])
        assert len(cut["input_ids"]) == limit


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"documents": []}, "`documents` is an empty list; give at least one article"),
        ({"documents": [["a"], []]}, r"`documents\[1\]` is an empty list; give at least one article"),
        ({"text_target": "a", "phrases": []}, "are about a document"),
        ({"text_target": "a", "return_phrases": True}, "are about a document"),
        ({"text": ["a", "b"], "phrases": [[]]}, "`phrases` must match `text`, got 1 lists for 2 documents"),
        ({"text": ["a"], "phrases": "x"}, "`phrases` must be a list of phrases for each document, got str"),
        ({"text": "a", "phrases": "x"}, "`phrases` must be a list of .phrase, value.*got str"),
        ({"text": ["a"], "phrases": [None]}, r"`phrases\[0\]` is None.*it has no `key_phrases`"),
        ({"text": "abc", "phrases": [(0, 4, 1)]}, r"`phrases\[0\]` must begin before it ends.* 3 characters"),
        ({"text": "abc", "phrases": ["a", (2, 2, 1)]}, r"`phrases\[1\]`.*got \(2, 2\)"),
        ({"text": "abc", "phrases": [(-1, 2, 1)]}, "must begin before it ends"),
        ({"text": "abc", "phrases": [(0, 1.5, 1)]}, "must begin before it ends"),
        ({"text": "abc", "phrases": [(0, float("nan"), 1)]}, "must begin before it ends"),
        ({"text": ["abc"], "phrases": [[(0, 1, -1)]]}, r"`phrases\[0\]\[0\]` must have a finite value of 0 or more"),
        ({"text": "abc", "phrases": [("a", float("nan"))]}, "must have a finite value of 0 or more, got nan"),
        ({"text": "abc", "phrases": [("a", float("inf"))]}, "must have a finite value"),
        ({"text": "abc", "phrases": [("a", 1e39)]}, r"got 1e\+39; it is kept in float32"),
        ({"text": "abc", "phrases": [("a", "high")]}, "must end with its value, a number"),
        ({"text": "abc", "phrases": [("a", True)]}, "must end with its value, a number"),
        ({"text": "abc", "phrases": [(" ", 1)]}, r"`phrases\[0\]` is blank"),
        ({"text": "abc", "phrases": [""]}, r"`phrases\[0\]` is blank"),
        ({"text": "abc", "phrases": [(1, 2)]}, r"`phrases\[0\]` must be .phrase, value"),
        ({"text": "abc", "phrases": [("a", "b", 2)]}, r"`phrases\[0\]` must be .phrase, value"),
        ({"text": "abc", "phrases": [(3,)]}, r"`phrases\[0\]` must be .phrase, value"),
        ({"text": "abc", "phrases": [0.5]}, r"`phrases\[0\]` must be .phrase, value"),
        ({"text": "abc", "phrases": [{"text": "a", "end": 1}]}, r"`phrases\[0\]` must have the keys text, value"),
    ],
)
def test_bad_input(processor: HighlightTransformerProcessor, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        processor(**inputs)


def test_what_no_processor_can_be_made_of_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    for language in ("english", "EN", 3):
        with pytest.raises(ValueError, match="`language` must be a code"):
            HighlightTransformerProcessor(tokenizer, language=language)
    for length in (0, 1.5, True):
        with pytest.raises(ValueError, match="`max_phrase_length` must be an integer of at least 1"):
            HighlightTransformerProcessor(tokenizer, max_phrase_length=length)
    with pytest.raises(TypeError, match=r"`key_phrases` must be a PhraseFinder, a function .*, got str"):
        HighlightTransformerProcessor(tokenizer, key_phrases="key_phrases.json")
    with pytest.raises(ValueError, match="is not fitted"):
        HighlightTransformerProcessor(tokenizer, key_phrases=KeyPhraseExtractor())(text="One two.")


def test_lone_surrogates_keep_their_place(processor: HighlightTransformerProcessor) -> None:
    encoded = processor(text="a \ud800 bridge", phrases=["bridge"], return_offsets_mapping=True)
    ((start, end),) = encoded["phrase_positions"]
    assert encoded["offset_mapping"][start][0] == 3
    assert encoded["offset_mapping"][end - 1][1] == 10
