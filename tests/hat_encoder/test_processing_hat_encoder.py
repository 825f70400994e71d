"""HatEncoderProcessor: markers, pairs, choices, truncation, windows, offsets, padding, saving, bad input."""

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import AutoProcessor, PreTrainedTokenizerFast, RobertaTokenizer
from transformers.utils import logging

from hier_models import HatEncoderProcessor, HatEncoderTokenizer
from tests.conftest import DOCUMENTS
from tests.odd_tokenizers import MIXED, plain_ids


BOS, PAD, EOS, UNK, MASK = 0, 1, 2, 3, 4
QUESTION, CONTEXT = "Who led it? And when?", " ".join([*DOCUMENTS, MIXED])


@pytest.fixture(scope="module")
def processor(tokenizer: PreTrainedTokenizerFast) -> HatEncoderProcessor:
    return HatEncoderProcessor(tokenizer)


def parts(ids: list[int]) -> list[list[list[int]]]:
    """Take a row apart: texts, each a list of sentences. The separators must be where they belong."""
    assert ids[-1] == EOS
    assert PAD not in ids
    texts: list[list[list[int]]] = []
    expected = [ids[:-1]]
    if EOS in ids[:-1]:
        middle = ids.index(EOS)
        assert ids[middle + 1] == EOS
        expected = [ids[:middle], ids[middle + 2 : -1]]
    for text in expected:
        assert text[0] == BOS
        assert EOS not in text
        sentences: list[list[int]] = []
        for i in text:
            if i == BOS:
                sentences.append([])
            else:
                sentences[-1].append(i)
        texts.append(sentences)
    return texts


def flat(lists: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


# ----------------------------------------------------------------------------------------------------------- markers


@pytest.mark.parametrize("text", [*DOCUMENTS, MIXED])
def test_one_marker_per_sentence_and_the_tokenizers_own_ids(processor: HatEncoderProcessor, text: str) -> None:
    encoded = processor(text)
    (sentences,) = parts(encoded["input_ids"])
    spans = processor.split_sentences(text)
    assert len(sentences) == len(spans)
    assert flat(sentences) == plain_ids(processor.tokenizer, text)
    for sentence, (start, end) in zip(sentences, spans, strict=True):
        assert processor.decode(sentence).strip() == text[start:end]
    assert encoded["attention_mask"] == [1] * len(encoded["input_ids"])
    assert set(encoded) == {"input_ids", "attention_mask"} == set(processor.model_input_names)
    assert processor.extra_inputs == {}


def test_pairs(processor: HatEncoderProcessor) -> None:
    first, second = parts(processor(DOCUMENTS[0], DOCUMENTS[1])["input_ids"])
    assert [first] == parts(processor(DOCUMENTS[0])["input_ids"])
    assert [second] == parts(processor(DOCUMENTS[1])["input_ids"])


def test_literal_special_tokens_are_text(processor: HatEncoderProcessor) -> None:
    text = "First <s> with marks</s><pad> here. Second <mask> <unk>."
    for row in (processor(text), processor(text, text)):
        for sentences in parts(row["input_ids"]):
            assert [processor.decode(sentence) for sentence in sentences] == [text[:35], text[35:]]
            assert not set(flat(sentences)) & set(processor.tokenizer.all_special_ids)


def test_the_mask_can_be_read(processor: HatEncoderProcessor) -> None:
    text = "First <s> with </s> a <mask> here. Second <unk><pad>."
    (sentences,) = parts(processor(text, split_special_tokens=False)["input_ids"])
    assert [processor.decode(sentence) for sentence in sentences] == [text[:34], text[34:]]
    assert set(flat(sentences)) & set(processor.tokenizer.all_special_ids) == {MASK}


def test_the_tokenizer_given_is_left_as_it_was(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.backend_tokenizer.enable_truncation(7)
    before = tokenizer.backend_tokenizer.to_str()
    processor = HatEncoderProcessor(tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == before
    assert tokenizer(DOCUMENTS[0])["input_ids"] == tokenizer(DOCUMENTS[0], add_special_tokens=False)["input_ids"]
    state = pickle.dumps(processor)
    backend = processor.tokenizer.backend_tokenizer.to_str()
    assert len(processor(DOCUMENTS[0])["input_ids"]) > 9
    assert processor.tokenizer.backend_tokenizer.to_str() == backend
    assert pickle.dumps(processor) == state  # what `datasets` hashes for its cache


def test_tokens_added_later_are_seen(tokenizer: PreTrainedTokenizerFast) -> None:
    processor = HatEncoderProcessor(copy.deepcopy(tokenizer))
    text = "One new_token here. Two [CITE] there."
    before = processor(text)["input_ids"]
    processor.tokenizer.add_tokens(["new_token"])
    processor.tokenizer.add_special_tokens({"extra_special_tokens": ["[CITE]"]})
    after = processor(text)["input_ids"]
    assert len(parts(after)[0]) == 2
    assert len(after) < len(before)
    cite = processor.tokenizer.convert_tokens_to_ids("[CITE]")
    assert cite not in after
    assert cite in processor(text, split_special_tokens=False)["input_ids"]
    assert cite in processor.tokenizer(text)["input_ids"]


def test_empty_texts(processor: HatEncoderProcessor) -> None:
    assert processor("")["input_ids"] == [BOS, EOS]
    assert processor("", "")["input_ids"] == [BOS, EOS, EOS, BOS, EOS]
    assert processor(["", "One."])["input_ids"][0] == [BOS, EOS]
    (sentences,) = parts(processor(" \n")["input_ids"])
    assert sentences == [plain_ids(processor.tokenizer, " \n")]
    assert processor("", truncation=True, max_length=2)["input_ids"] == [BOS, EOS]


def test_a_batch_is_its_members(processor: HatEncoderProcessor) -> None:
    options: dict[str, Any] = {
        "truncation": True,
        "max_length": 60,
        "return_truncation": True,
        "return_offsets_mapping": True,
    }
    batch = processor(DOCUMENTS, DOCUMENTS[::-1], **options)
    for i, (one, other) in enumerate(zip(DOCUMENTS, DOCUMENTS[::-1], strict=True)):
        assert {key: values[i] for key, values in batch.items()} == dict(processor(one, other, **options))


def test_another_language(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    text = "Das war z. B. so. Und bzw. das."
    german, english = HatEncoderProcessor(tokenizer, language="german"), HatEncoderProcessor(tokenizer)
    assert german(text)["input_ids"].count(BOS) == 2
    assert english(text)["input_ids"].count(BOS) > 2
    german.save_pretrained(tmp_path)
    assert HatEncoderProcessor.from_pretrained(tmp_path)(text) == german(text)
    assert HatEncoderTokenizer.from_pretrained(tmp_path).language == "german"
    english.language = "german"  # later, too
    assert english(text) == german(text)
    with pytest.raises(ValueError, match="`language` must be one of"):
        english.language = "klingon"


# --------------------------------------------------------------------------------------------------- offsets and masks


@pytest.mark.parametrize("side", ["right", "left"])
def test_offsets_and_masks(processor: HatEncoderProcessor, side: str) -> None:
    encoded = processor(
        [MIXED, DOCUMENTS[0]],
        [DOCUMENTS[1], MIXED],
        padding=True,
        padding_side=side,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
    )
    for i, texts in enumerate([(MIXED, DOCUMENTS[1]), (DOCUMENTS[0], MIXED)]):
        ids, special = encoded["input_ids"][i], encoded["special_tokens_mask"][i]
        sequences, words = encoded.sequence_ids(i), encoded.word_ids(i)
        assert special == [int(token in (BOS, PAD, EOS)) for token in ids]
        assert special == [int(sequence is None) for sequence in sequences] == [int(word is None) for word in words]
        assert encoded["attention_mask"][i] == [int(token != PAD) for token in ids]
        for number, text in enumerate(texts):
            plain = RobertaTokenizer(tokenizer_object=processor.tokenizer.backend_tokenizer)(
                text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True
            )
            places = [j for j, sequence in enumerate(sequences) if sequence == number]
            assert [encoded["offset_mapping"][i][j] for j in places] == plain["offset_mapping"]
            assert [words[j] for j in places] == plain.word_ids()
            for k, letter in enumerate(text):
                token = encoded.char_to_token(i, k, number)
                if not letter.isspace():
                    assert token in places
                    start, end = encoded.token_to_chars(i, token)
                    assert start <= k < end
                    word = encoded.char_to_word(i, k, number)
                    assert word == words[token]
                    assert token in range(*encoded.word_to_tokens(i, word, number))
                    first, last = encoded.word_to_chars(i, word, number)
                    assert first <= k < last


def test_markers_stand_at_their_sentence_with_no_width(processor: HatEncoderProcessor) -> None:
    encoded = processor(MIXED, return_offsets_mapping=True)
    offsets = encoded["offset_mapping"]
    assert offsets[:-1] == sorted(offsets[:-1])
    spans = iter(processor.split_sentences(MIXED))
    for token, (start, end), (following, _) in zip(
        encoded["input_ids"][:-2], offsets[:-2], offsets[1:-1], strict=True
    ):
        if token == BOS:
            assert start == end == following
            first, last = next(spans)
            assert start <= last
            assert MIXED[start:first].strip() == ""
    assert next(spans, None) is None


def test_words(processor: HatEncoderProcessor) -> None:
    words = ["The", "bridge", "closed", ".", "Dr.", "Meyer", "saw", "it", "!", "Yes", "."]
    encoded = processor([words, words[:4]], is_split_into_words=True, return_offsets_mapping=True)
    (sentences,) = parts(encoded["input_ids"][0])
    assert len(sentences) == 3
    assert len(parts(encoded["input_ids"][1])[0]) == 1
    ids = encoded.word_ids(0)
    assert [word for word, _ in itertools.groupby(ids) if word is not None] == list(range(len(words)))
    assert [ids[i + 1] for i, token in enumerate(encoded["input_ids"][0]) if token == BOS] == [0, 4, 9]
    for word, (start, end) in zip(ids, encoded["offset_mapping"][0], strict=True):
        assert (start, end) == (0, 0) if word is None else 0 <= start <= end <= len(words[word])


# ------------------------------------------------------------------------------------------------------------ choices


def test_choices(processor: HatEncoderProcessor) -> None:
    choices = [["By sun. Or so.", "By moon"], ["At nine", "At six."]]
    encoded = processor(DOCUMENTS[1:3], ["How?", "When?"], choices=choices, padding=True, return_tensors="pt")
    assert encoded["input_ids"].shape[:2] == (2, 2)
    for i, (text, question) in enumerate(zip(DOCUMENTS[1:3], ["How?", "When?"], strict=True)):
        for j, choice in enumerate(choices[i]):
            alone = processor(text, f"{question} {choice}")["input_ids"]
            row = encoded["input_ids"][i, j].tolist()
            assert row[: len(alone)] == alone
            assert encoded["attention_mask"][i, j].sum() == len(alone)
    one = processor(DOCUMENTS[1], "How?", choices=choices[0], padding=True)
    assert one["input_ids"] == processor(DOCUMENTS[1:2], ["How?"], choices=choices[:1], padding=True)["input_ids"][0]
    blank = processor(DOCUMENTS[1], "It closes _ .", choices=["at six"])
    assert blank["input_ids"][0] == processor(DOCUMENTS[1], "It closes at six .")["input_ids"]
    ends = processor("It closes", choices=["at six.", "at nine."])
    assert ends["input_ids"] == [processor("It closes", end)["input_ids"] for end in ("at six.", "at nine.")]


def test_cut_choices_count(processor: HatEncoderProcessor) -> None:
    options: dict[str, Any] = {"truncation": "only_first", "max_length": 50, "return_truncation": True}
    encoded = processor(DOCUMENTS[:2], ["Who?"] * 2, choices=[["Ann", "Bob", "Cem Ali"]] * 2, **options)
    for text, counts in zip(DOCUMENTS[:2], encoded["num_truncated_tokens"], strict=True):
        alone = processor([text] * 3, ["Who? Ann", "Who? Bob", "Who? Cem Ali"], **options)["num_truncated_tokens"]
        assert counts == alone
        assert all(counts)


# --------------------------------------------------------------------------------------------------------- truncation


@pytest.mark.parametrize("text", [DOCUMENTS[0], MIXED])
@pytest.mark.parametrize("side", ["right", "left"])
def test_truncation_counts_what_it_cuts(tokenizer: PreTrainedTokenizerFast, text: str, side: str) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.truncation_side = side
    processor = HatEncoderProcessor(tokenizer)
    full = processor(text)["input_ids"]
    (whole,) = parts(full)
    for limit in range(2, len(full) + 3):
        cut = processor(text, truncation=True, max_length=limit, return_truncation=True)
        ids = cut["input_ids"]
        (kept,) = parts(ids)
        assert min(limit, len(full)) - 1 <= len(ids) <= limit
        tokens = flat(kept)
        all_tokens = flat(whole)
        assert tokens == (
            all_tokens[: len(tokens)] if side == "right" else all_tokens[len(all_tokens) - len(tokens) :]
        )
        assert len(kept) == 1 or all(kept)  # no marker alone
        assert cut["num_truncated_tokens"] == len(full) - len(ids)
        bounds = [0, *itertools.accumulate(map(len, whole))]
        left, right = (0, len(tokens)) if side == "right" else (len(all_tokens) - len(tokens), len(all_tokens))
        lost = sum(a < left or b > right for a, b in itertools.pairwise(bounds))
        assert cut["num_truncated_sentences"] == lost


@pytest.mark.parametrize("rule", ["only_first", "only_second", True])
def test_truncation_of_pairs(processor: HatEncoderProcessor, rule: str | bool) -> None:
    texts = [DOCUMENTS[0], DOCUMENTS[1]]
    full = processor(*texts)["input_ids"]
    whole = parts(full)
    lengths = [sum(map(len, text)) + len(text) for text in whole]
    for limit in range(len(full), 11, -1):
        room = limit - 3
        untouched = {"only_first": [1], "only_second": [0]}.get(str(rule), [])
        if untouched and room - lengths[untouched[0]] < 2:
            with pytest.raises(ValueError, match="is too short: it leaves no room"):
                processor(*texts, truncation=rule, max_length=limit)
            continue
        cut = processor(*texts, truncation=rule, max_length=limit, return_truncation=True)
        kept = parts(cut["input_ids"])
        assert limit - 2 <= len(cut["input_ids"]) <= limit
        assert cut["num_truncated_tokens"] == len(full) - len(cut["input_ids"])
        for i in untouched:
            assert kept[i] == whole[i]
        for one, all_ in zip(kept, whole, strict=True):
            assert flat(one) == flat(all_)[: len(flat(one))]
        if rule is True and limit < len(full):
            sizes = [sum(map(len, text)) + len(text) for text in kept]
            if min(lengths) <= room // 2:
                assert sizes[lengths.index(min(lengths))] == min(lengths)  # the longer one is cut first
            else:
                assert abs(sizes[0] - sizes[1]) <= 2


def test_a_limit_alone_cuts_as_in_transformers(processor: HatEncoderProcessor) -> None:
    text = "A boy crosses the river. " * 9
    assert processor(text, max_length=9) == processor(text, max_length=9, truncation=True)
    assert len(processor(text, max_length=9, truncation=False)["input_ids"]) == len(processor(text)["input_ids"]) > 9


def test_truncation_defaults_to_the_tokenizers_length(processor: HatEncoderProcessor) -> None:
    text = " ".join(DOCUMENTS * 3)
    assert len(processor(text)["input_ids"]) > 128
    assert len(processor(text, truncation=True)["input_ids"]) in (127, 128)
    endless = copy.deepcopy(processor.tokenizer)
    endless.model_max_length = int(1e30)
    assert HatEncoderProcessor(endless)(text, truncation=True)["input_ids"] == processor(text)["input_ids"]


def test_a_cut_is_logged(tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture) -> None:
    processor = HatEncoderProcessor(copy.deepcopy(tokenizer))
    logger = logging.get_logger("hier_models.models.marked_tokenization")
    logging.enable_propagation()
    logging.set_verbosity_info()
    long = " ".join(DOCUMENTS * 2)
    try:
        with caplog.at_level("INFO", logger=logger.name):
            processor(DOCUMENTS, truncation=True, max_length=1000)
            processor(DOCUMENTS, truncation=True, max_length=20, return_truncation=True)
            processor(long, truncation=True, max_length=40, return_overflowing_tokens=True)
            assert not caplog.records
            for _ in range(2):
                processor(DOCUMENTS, truncation=True, max_length=20)
            counts = processor(DOCUMENTS, truncation=True, max_length=20, return_truncation=True)
            processor(long)
            processor(long)
    finally:
        logging.disable_propagation()
        logging.set_verbosity_warning()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
    lost = counts["num_truncated_tokens"]
    assert f"{sum(lost)} tokens of {sum(map(bool, lost))} texts" in caplog.records[0].message
    assert "more than the model takes (128)" in caplog.records[2].message


# ------------------------------------------------------------------------------------------------------------ windows


def windows_of(processor: HatEncoderProcessor, limit: int, stride: int, text: str = CONTEXT) -> Any:
    return processor(
        QUESTION,
        text,
        truncation="only_second",
        max_length=limit,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


@pytest.mark.parametrize(("limit", "stride"), [(40, 0), (40, 10), (64, 15), (128, 32), (1000, 100)])
def test_windows_of_a_context(processor: HatEncoderProcessor, limit: int, stride: int) -> None:
    question, context = parts(processor(QUESTION, CONTEXT)["input_ids"])
    begins = set(itertools.accumulate(map(len, context), initial=0))
    encoded = windows_of(processor, limit, stride)
    assert encoded["overflow_to_sample_mapping"] == [0] * len(encoded["input_ids"])
    position, seen = 0, 0
    tokens = flat(context)
    for i, ids in enumerate(encoded["input_ids"]):
        assert len(ids) <= limit
        asked, window = parts(ids)
        assert asked == question
        content = flat(window)
        start = position - (stride if i else 0)
        assert tokens[start : start + len(content)] == content
        position = start + len(content)
        seen += len(content)
        # A marker at the beginning of the window, and before each sentence that begins in it.
        bounds = list(itertools.accumulate(map(len, window), initial=start))
        assert set(bounds[1:-1]) == begins & set(range(start + 1, position))
        if position < len(tokens):
            assert len(ids) >= limit - 1
        sequences = encoded.sequence_ids(i)
        for sequence, (a, b), token in zip(sequences, encoded["offset_mapping"][i], ids, strict=True):
            if sequence is not None:
                text = (QUESTION, CONTEXT)[sequence]
                assert processor.decode([token]).strip() in (text[a:b], "", "\ufffd") or len(text[a:b].encode()) > 1
    assert position == len(tokens)
    assert seen == len(tokens) + stride * (len(encoded["input_ids"]) - 1)


def test_windows_of_single_texts_and_of_the_first(processor: HatEncoderProcessor) -> None:
    options: dict[str, Any] = {"max_length": 30, "stride": 7, "return_overflowing_tokens": True}
    single = processor([CONTEXT, "Short."], truncation=True, **options)
    assert single["overflow_to_sample_mapping"] == [0] * (len(single["input_ids"]) - 1) + [1]
    joined: list[int] = []
    for ids in single["input_ids"][:-1]:
        content = flat(parts(ids)[0])
        joined = joined[: len(joined) - 7] if joined else joined
        joined += content
    assert joined == plain_ids(processor.tokenizer, CONTEXT)
    first = processor(CONTEXT, "Short.", truncation="only_first", **options)
    assert all(parts(ids)[1] == parts(processor("Short.")["input_ids"])[0] for ids in first["input_ids"])


def test_windows_from_the_right(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.truncation_side = "left"
    processor = HatEncoderProcessor(tokenizer)
    encoded = processor(CONTEXT, truncation=True, max_length=40, stride=5, return_overflowing_tokens=True)
    tokens = plain_ids(processor.tokenizer, CONTEXT)
    end = len(tokens)
    for ids in encoded["input_ids"]:
        content = flat(parts(ids)[0])
        assert tokens[end - len(content) : end] == content
        start, end = end - len(content), end - len(content) + 5
    assert start == 0


def test_windows_go_on_where_sentences_are_shorter_than_the_stride(processor: HatEncoderProcessor) -> None:
    text = "A! " * 200
    encoded = processor(text, truncation=True, max_length=20, stride=15, return_overflowing_tokens=True)
    covered = set()
    offsets = processor(
        text,
        truncation=True,
        max_length=20,
        stride=15,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )["offset_mapping"]
    for row in offsets:
        covered |= {place for start, end in row for place in range(start, end)}
    assert covered >= {i for i, letter in enumerate(text) if letter != " "}
    assert len(encoded["input_ids"]) < 200


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(st.sampled_from("ab .!?\n <s>🙂é。"), max_size=120),
    limit=st.integers(8, 40),
    stride=st.integers(0, 5),
    left=st.booleans(),
)
def test_any_text_is_covered_by_its_windows(
    tokenizer: PreTrainedTokenizerFast, text: str, limit: int, stride: int, left: bool
) -> None:
    processor = _sided(tokenizer, left)
    full = processor(text, return_offsets_mapping=True)
    options: dict[str, Any] = {"truncation": True, "max_length": limit, "stride": stride}
    encoded = processor(text, return_overflowing_tokens=True, return_offsets_mapping=True, **options)
    spans = [
        {(token, tuple(offset)) for token, offset in zip(ids, offsets, strict=True) if token not in (BOS, EOS)}
        for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    ]
    everything = {
        (token, tuple(offset))
        for token, offset in zip(full["input_ids"], full["offset_mapping"], strict=True)
        if token not in (BOS, EOS)
    }
    assert set().union(*spans) == everything
    assert all(len(ids) <= limit for ids in encoded["input_ids"])
    cut = processor(text, return_truncation=True, **{**options, "stride": 0})
    assert cut["input_ids"] == encoded["input_ids"][0]
    assert cut["num_truncated_tokens"] == len(full["input_ids"]) - len(cut["input_ids"])
    assert bool(cut["num_truncated_sentences"]) == bool(cut["num_truncated_tokens"])
    sentences = processor.encode_sentences([text])[0]
    assert flat(sentences) == [i for i in full["input_ids"] if i not in (BOS, EOS)]
    assert [s for s in parts(full["input_ids"])[0] if s] == sentences


_SIDED: dict[bool, HatEncoderProcessor] = {}


def _sided(tokenizer: PreTrainedTokenizerFast, left: bool) -> HatEncoderProcessor:
    if left not in _SIDED:
        copied = copy.deepcopy(tokenizer)
        copied.truncation_side = "left" if left else "right"
        _SIDED[left] = HatEncoderProcessor(copied)
    return _SIDED[left]


# ------------------------------------------------------------------------------------------------------------ padding


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("padding", [True, "longest", "max_length"])
@pytest.mark.parametrize("kind", ["pt", "np"])
def test_padding(processor: HatEncoderProcessor, side: str, padding: bool | str, kind: str) -> None:
    plain = processor(DOCUMENTS, return_offsets_mapping=True)
    padded = processor(
        DOCUMENTS,
        padding=padding,
        max_length=180,
        pad_to_multiple_of=8,
        padding_side=side,
        return_tensors=kind,
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
    )
    longest = max(map(len, plain["input_ids"]))
    length = 184 if padding == "max_length" else -(-longest // 8) * 8
    for i, ids in enumerate(plain["input_ids"]):
        fill = length - len(ids)
        for key, value, short in (
            ("input_ids", PAD, ids),
            ("attention_mask", 0, [1] * len(ids)),
            ("special_tokens_mask", 1, [int(token in (BOS, EOS)) for token in ids]),
        ):
            assert isinstance(padded[key], torch.Tensor if kind == "pt" else np.ndarray)
            row = padded[key][i].tolist()
            assert row == ([value] * fill + short if side == "left" else short + [value] * fill)
        words = plain.word_ids(i)
        assert padded.word_ids(i) == ([None] * fill + words if side == "left" else words + [None] * fill)
        places = padded["offset_mapping"][i].tolist()
        shorter = [list(offset) for offset in plain["offset_mapping"][i]]
        assert places == ([[0, 0]] * fill + shorter if side == "left" else shorter + [[0, 0]] * fill)


def test_padding_by_the_tokenizers_side(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.padding_side = "left"
    padded = HatEncoderProcessor(tokenizer)(DOCUMENTS, padding=True)
    assert padded["input_ids"][-1][0] == PAD


# ----------------------------------------------------------------------------------------------------- save and load


def test_save_and_load(processor: HatEncoderProcessor, tmp_path: Path) -> None:
    processor.save_pretrained(tmp_path)
    for loaded in (HatEncoderProcessor.from_pretrained(tmp_path), AutoProcessor.from_pretrained(tmp_path)):
        assert type(loaded) is HatEncoderProcessor
        assert type(loaded.tokenizer) is HatEncoderTokenizer
        assert loaded([*DOCUMENTS, MIXED]) == processor([*DOCUMENTS, MIXED])
        assert loaded.tokenizer([*DOCUMENTS, MIXED]) == processor.tokenizer([*DOCUMENTS, MIXED])
    again = tmp_path / "again"
    loaded.save_pretrained(again)
    for file in ("tokenizer.json", "processor_config.json"):
        assert (again / file).read_text(encoding="utf-8") == (tmp_path / file).read_text(encoding="utf-8")


def test_loads_from_a_plain_checkpoint(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """One of RoBERTa's, as it is before any training with sentences."""
    RobertaTokenizer(tokenizer_object=tokenizer.backend_tokenizer).save_pretrained(tmp_path)
    loaded = HatEncoderProcessor.from_pretrained(tmp_path)
    assert loaded(DOCUMENTS)["input_ids"] == HatEncoderProcessor(tokenizer)(DOCUMENTS)["input_ids"]
    german = HatEncoderProcessor.from_pretrained(tmp_path, language="german")
    assert german.language == german.tokenizer.language == "german"


def test_pickles_with_what_it_returns(processor: HatEncoderProcessor) -> None:
    again = pickle.loads(pickle.dumps(processor))
    encoded = pickle.loads(pickle.dumps(again(MIXED)))
    assert encoded == processor(MIXED)
    assert encoded.word_ids() == processor(MIXED).word_ids()


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"text": None}, ValueError, "`text` is missing"),
        ({"text": []}, ValueError, "`text` is an empty list"),
        ({"text": 3}, TypeError, "`text` must be a string or a list of strings, got int"),
        ({"text": ["a", None]}, TypeError, r"`text\[1\]` must be a string, got NoneType"),
        ({"text": ["a"], "text_pair": "b"}, ValueError, "`text_pair` must match `text`, a list of 1; got one text"),
        ({"text": ["a"], "text_pair": ["b", "c"]}, ValueError, "got a list of 2"),
        ({"text": "a", "text_pair": ["b"]}, ValueError, "`text_pair` must be one text"),
        ({"text": "a", "truncation": "longest"}, ValueError, "`truncation` must be"),
        ({"text": "a", "truncation": "only_second"}, ValueError, "there is no `text_pair`"),
        ({"text": "a", "truncation": True, "max_length": 1}, ValueError, "`max_length` must be .* at least 2"),
        ({"text": "a", "text_pair": "b", "truncation": True, "max_length": 4}, ValueError, "at least 5"),
        ({"text": "a", "truncation": True, "max_length": 2.5}, ValueError, "`max_length` must be an integer"),
        ({"text": "a", "padding": "longer"}, ValueError, "`padding` must be"),
        ({"text": "a", "padding": True, "padding_side": "top"}, ValueError, "`padding_side` must be"),
        (
            {"text": "a", "truncation": True, "max_length": 9, "stride": 7, "return_overflowing_tokens": True},
            ValueError,
            "`stride` must be an integer from 0 to below max_length - 2 = 7, got 7",
        ),
        (
            {"text": "a", "text_pair": "b", "truncation": True, "return_overflowing_tokens": True},
            ValueError,
            "truncation='only_first' or 'only_second'",
        ),
        ({"text": "a b", "is_split_into_words": True}, TypeError, "`text` must be a list of strings"),
        ({"text": "a", "choices": "b"}, TypeError, "`choices` must be a list of strings"),
        ({"text": "a", "choices": []}, ValueError, "at least one"),
        ({"text": "a", "choices": ["b", 3]}, TypeError, r"`choices\[1\]` must be a string, got int"),
        ({"text": ["a", "b"], "choices": [["c", "d"], ["e"]]}, ValueError, r"as many for every text.*\[1, 2\]"),
        ({"text": ["a", "b"], "choices": [["c", "d"]]}, ValueError, "`choices` must match `text`, got 1 for 2"),
        ({"text": ["a"], "choices": ["c", "d"]}, TypeError, r"`choices\[0\]` must be a list of strings"),
        ({"text": ["a"], "text_pair": "q", "choices": [["c"]]}, ValueError, "`text_pair` must be one question"),
        ({"text": "a", "choices": ["b"], "return_overflowing_tokens": True}, ValueError, "does not go with `choices`"),
    ],
)
def test_bad_input(
    processor: HatEncoderProcessor, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        processor(**arguments)


def test_lone_surrogates_are_replaced_and_keep_the_offsets(processor: HatEncoderProcessor) -> None:
    encoded = processor("One \ud800 two. Three.", return_offsets_mapping=True)
    assert encoded["input_ids"] == processor("One \ufffd two. Three.")["input_ids"]


def test_bad_tokenizers(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="must be a tokenizer of Transformers, got NoneType"):
        HatEncoderProcessor(None)
    with pytest.raises(ValueError, match="`language` must be one of"):
        HatEncoderProcessor(tokenizer, language="klingon")
    backend = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1, "</s>": 2}, unk_token="<unk>"))
    no_bos = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>", bos_token=None)
    with pytest.raises(ValueError, match="has no bos_token"):
        HatEncoderProcessor(no_bos)
    names = {"unk_token": "<unk>", "pad_token": "<unk>", "mask_token": "<unk>", "eos_token": "</s>"}
    same = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="</s>", **names)
    with pytest.raises(ValueError, match="as bos_token and as eos_token"):
        HatEncoderProcessor(same)
    no_pad = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>", bos_token="a")
    with pytest.raises(ValueError, match="has no pad_token"):
        HatEncoderProcessor(no_pad)
    endless = copy.deepcopy(tokenizer)
    endless.model_max_length = int(1e30)
    with pytest.raises(ValueError, match="there is no max_length"):
        HatEncoderProcessor(endless)("a", padding="max_length")
