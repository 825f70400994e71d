"""HatBartProcessor: markers, the four kinds of input, truncation, padding, saving, any tokenizer."""

import copy
import itertools
import threading
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, normalizers
from transformers import (
    PreTrainedTokenizerFast,
)

from hier_models import HatBartProcessor
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS
from tests.odd_tokenizers import MIXED, SPECIAL, TOKENIZERS, plain_ids


BOS, PAD, EOS, UNK = 0, 1, 2, 3


def pieces(ids: list[int]) -> list[list[int]]:
    """Cut ids at their markers; the end marker must be the last id."""
    assert ids[0] == BOS
    assert ids[-1] == EOS
    assert EOS not in ids[:-1]
    assert PAD not in ids
    result: list[list[int]] = []
    for i in ids[:-1]:
        if i == BOS:
            result.append([])
        else:
            result[-1].append(i)
    return result


def flat(lists: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


# ----------------------------------------------------------------------------------------------------------- markers


@pytest.mark.parametrize("text", [*DOCUMENTS, MIXED])
def test_one_marker_per_sentence_and_the_tokenizers_own_ids(processor: HatBartProcessor, text: str) -> None:
    encoded = processor(text=text)
    sentences = pieces(encoded["input_ids"])
    spans = processor.split_sentences(text)
    assert len(sentences) == len(spans)
    assert flat(sentences) == plain_ids(processor.tokenizer, text)
    for sentence, (start, end) in zip(sentences, spans, strict=True):
        assert processor.decode(sentence).strip() == text[start:end]
    assert encoded["attention_mask"] == [1] * len(encoded["input_ids"])
    assert encoded["segment_ids"] == [0] * len(encoded["input_ids"])


def test_threads_do_not_disturb_each_other(processor: HatBartProcessor) -> None:
    tokenizer, text = processor.tokenizer, "A mark <s> in text. Another </s> here."
    marked, unmarked = processor(text=text)["input_ids"], tokenizer(text)["input_ids"]
    assert BOS in unmarked
    wrong: list[Any] = []

    def work(call: Any, expected: list[int]) -> None:
        for _ in range(200):
            got = call()["input_ids"]
            if got != expected:
                wrong.append(got)

    jobs = [(lambda: processor(text=text), marked), (lambda: tokenizer(text), unmarked)] * 2
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_tokens_added_later_are_seen(tokenizer: PreTrainedTokenizerFast) -> None:
    processor = HatBartProcessor(copy.deepcopy(tokenizer))
    text = "One new_token here. Two new_token there."
    before = processor(text=text)["input_ids"]
    processor.tokenizer.add_tokens([AddedToken(" new_token", lstrip=True), "re. Two"])
    after = processor(text=text)["input_ids"]
    assert len(after) < len(before)
    assert flat(pieces(after)) == plain_ids(processor.tokenizer, text)
    assert len(pieces(after)) == 2
    text = "One new_token here. Then new_token there. And a third."
    sentences = [processor.decode(sentence) for sentence in pieces(processor(text=text)["input_ids"])]
    assert sentences == ["One new_token here.", " Then new_token there.", " And a third."]


# ----------------------------------------------------------------------------------------------------- kinds of input


def test_sentences_keep_the_users_own_segmentation(processor: HatBartProcessor) -> None:
    given = ["Dr. Li came. He left.", "  and then\n", "", "the end"]
    sentences = pieces(processor(sentences=given)["input_ids"])
    assert [processor.decode(s) for s in sentences] == ["Dr. Li came. He left.", " and then", "", " the end"]
    assert flat(sentences) == plain_ids(processor.tokenizer, "Dr. Li came. He left. and then the end")


def test_sentences_of_running_text_give_the_same_as_text(processor: HatBartProcessor) -> None:
    for text in DOCUMENTS:
        sentences = [text[start:end] for start, end in processor.split_sentences(text)]
        assert processor(sentences=sentences) == processor(text=text)


def test_turns(processor: HatBartProcessor) -> None:
    encoded = processor(turns=TURNS)
    sentences = pieces(encoded["input_ids"])
    joined = [f"{turn['role']}: {turn['content']}" for turn in TURNS]
    assert [processor.decode(s).strip() for s in sentences] == joined
    assert flat(sentences) == plain_ids(processor.tokenizer, " ".join(joined))
    roles = [0, 1, 0, 2]  # Ann, Bob, Ann, Cem
    expected = [role for role, s in zip(roles, sentences, strict=True) for _ in range(len(s) + 1)]
    assert encoded["segment_ids"] == [*expected, 2]


def test_roles_are_numbered_per_document(processor: HatBartProcessor) -> None:
    batch = processor(turns=[TURNS, TURNS[1:]])
    assert batch["segment_ids"][1][0] == 0
    assert batch["segment_ids"][0] != batch["segment_ids"][1]


def test_a_turn_may_be_empty(processor: HatBartProcessor) -> None:
    sentences = pieces(processor(turns=[{"role": "A", "content": " "}, {"role": "B", "content": "Yes"}])["input_ids"])
    assert [processor.decode(s) for s in sentences] == ["A:", " B: Yes"]


def test_turns_without_segments(tokenizer: PreTrainedTokenizerFast, processor: HatBartProcessor) -> None:
    plain = HatBartProcessor(tokenizer)
    encoded = plain(turns=[{"role": str(i), "content": "Yes"} for i in range(9)])
    assert set(encoded) == {"input_ids", "attention_mask"}
    assert plain.extra_inputs == {}
    assert plain.model_input_names == ["input_ids", "attention_mask"]
    assert processor.extra_inputs == {"segment_ids": 0}
    assert processor.model_input_names == ["input_ids", "attention_mask", "segment_ids"]


def test_documents_are_split_and_follow_each_other(processor: HatBartProcessor) -> None:
    sentences = pieces(processor(documents=DOCUMENTS[1:3])["input_ids"])
    assert flat(sentences) == plain_ids(processor.tokenizer, " ".join(DOCUMENTS[1:3]))
    assert len(sentences) == sum(len(processor.split_sentences(d)) for d in DOCUMENTS[1:3])
    assert processor(documents=["No end here", "Second. Third"]) == processor(
        sentences=["No end here", "Second.", "Third"]
    )


def test_empty_documents(processor: HatBartProcessor) -> None:
    for empty in ({"text": ""}, {"sentences": []}, {"turns": []}, {"documents": []}, {"documents": [""]}):
        assert processor(**empty)["input_ids"] == [BOS, EOS]
    assert processor(text=["", "One."])["input_ids"][0] == [BOS, EOS]
    assert pieces(processor(text=" \n")["input_ids"]) == [plain_ids(processor.tokenizer, " \n")]
    assert processor(text="", return_tensors="pt")["segment_ids"].tolist() == [[0, 0]]


# --------------------------------------------------------------------------------------------------------- truncation


@pytest.mark.parametrize("text", [DOCUMENTS[0], MIXED])
def test_truncation_counts_what_it_cuts(processor: HatBartProcessor, text: str) -> None:
    full = processor(text=text)["input_ids"]
    lengths = [len(s) + 1 for s in pieces(full)]
    for limit in range(2, len(full) + 3):
        cut = processor(text=text, truncation=True, max_length=limit, return_truncation=True)
        ids = cut["input_ids"]
        kept = pieces(ids)
        assert len(ids) <= limit
        assert ids[:-1] == full[: len(ids) - 1]
        assert len(kept) == 1 or kept[-1]  # no marker alone at the end
        assert len(ids) >= min(limit, len(full)) - 1  # and nothing else is given up
        assert cut["num_truncated_tokens"] == len(full) - len(ids)
        whole = sum(sum(lengths[: i + 1]) < len(ids) for i in range(len(lengths)))
        assert cut["num_truncated_sentences"] == len(lengths) - whole
        assert len(cut["segment_ids"]) == len(cut["attention_mask"]) == len(ids)


def test_the_end_of_a_cut_dialogue_is_of_a_role_that_is_left(processor: HatBartProcessor) -> None:
    turns = [{"role": "Ann", "content": "Yes."}, {"role": "Bob", "content": "No, no, no."}]
    first = len(processor(turns=turns[:1])["input_ids"])
    for limit in range(2, len(processor(turns=turns)["input_ids"]) + 1):
        cut = processor(turns=turns, truncation=True, max_length=limit)["segment_ids"]
        assert cut[-1] == cut[-2]
        assert (1 in cut) == (len(cut) > first)


def test_empty_sentences_that_are_cut_count(processor: HatBartProcessor) -> None:
    sentences = ["", "A", "", "", "Two words"]
    full = pieces(processor(sentences=sentences)["input_ids"])
    for limit in range(2, 15):
        cut = processor(sentences=sentences, truncation=True, max_length=limit, return_truncation=True)
        kept = pieces(cut["input_ids"])
        whole = sum(a == b for a, b in zip(kept, full, strict=False))
        assert cut["num_truncated_sentences"] == len(sentences) - whole
        assert kept[-1] or len(kept) == 1


# ------------------------------------------------------------------------------------------------------------ padding


def test_the_model_takes_it(processor: HatBartProcessor, tiny_model: torch.nn.Module) -> None:
    encoded = processor(turns=[TURNS, TURNS[:1]], text_target=SUMMARIES[:2], padding=True, return_tensors="pt")
    assert torch.isfinite(tiny_model(**encoded).loss)


# ---------------------------------------------------------------------------------------------- saving, and decoding


# ----------------------------------------------------------------------------------------------------- any tokenizer


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", [*DOCUMENTS, "Ünï cödé. 他来了。她走了。 Ⅷ ﬁn. İstanbul. Two."])
def test_any_tokenizer(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]()
    processor = HatBartProcessor(tokenizer)
    ids = processor(text=text)["input_ids"]
    starts = [i for i, token in enumerate(ids) if token == tokenizer.bos_token_id]
    spans = processor.split_sentences(text)
    assert len(starts) == len(spans)
    assert ids[-1] == tokenizer.eos_token_id
    assert [i for i in ids[:-1] if i != tokenizer.bos_token_id] == plain_ids(tokenizer, text)
    if text in DOCUMENTS:  # here a sentence's ids are those of its text, with the space before it
        for k, (start, end) in enumerate(zip(starts, [*starts[1:], len(ids) - 1], strict=True)):
            sentence = text[spans[k - 1][1] if k else 0 : spans[k][1]]
            alone = plain_ids(tokenizer, sentence)
            assert ids[start + 1 : end] == alone


@pytest.mark.parametrize("name", TOKENIZERS)
def test_no_vocabulary_takes_literal_tokens_for_markers(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    text = "One <s> two </s> three <pad> four. Five<s>six </s> . <s>"
    processor = HatBartProcessor(tokenizer)
    ids = processor(text=text)["input_ids"]
    assert ids.count(tokenizer.bos_token_id) == len(processor.split_sentences(text)) == 3
    assert ids.count(tokenizer.eos_token_id) == 1
    assert tokenizer.pad_token_id not in ids


def test_both_ways_of_finding_sentences_agree(tokenizer: PreTrainedTokenizerFast) -> None:
    """Token widths (byte-level vocabularies) and character offsets (all others) put the markers in the same places."""
    widths = HatBartProcessor(tokenizer)
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.normalizer = normalizers.Sequence([])  # no change, but widths are not relied on
    offsets = HatBartProcessor(PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL))
    assert widths._widths() is not None
    assert offsets._widths() is None
    for text in [*DOCUMENTS, MIXED, "", "  ", "a\n\n\n b"]:
        assert widths(text=text) == offsets(text=text)


@pytest.mark.parametrize("side", ["right", "left"])
def test_offsets_are_those_of_the_running_text(processor, side):
    texts = ["One café. Two  more! And three?", "Short."]
    found = processor(text=texts, return_offsets_mapping=True, padding=True, padding_side=side)
    for text, ids, offsets in zip(texts, found["input_ids"], found["offset_mapping"], strict=True):
        assert len(ids) == len(offsets)
        special = processor.tokenizer.all_special_ids
        assert all((tuple(place) == (0, 0)) == (token in special) for token, place in zip(ids, offsets, strict=True))
        covered = {i for a, b in offsets for i in range(a, b)}  # a letter may have several tokens
        assert covered >= {i for i, sign in enumerate(text) if not sign.isspace()}
    cut = processor(text=texts[0], return_offsets_mapping=True, max_length=9, return_truncation=True)
    whole = processor(text=texts[0], return_offsets_mapping=True)
    assert cut["offset_mapping"] == [*whole["offset_mapping"][:8], (0, 0)]
    turns = [{"role": "Ann", "content": "Hello there."}, {"role": "Bob", "content": "Yes."}]
    spoken = processor(turns=turns, return_offsets_mapping=True)
    running = "Ann: Hello there. Bob: Yes."
    assert "".join(running[a:b] for a, b in spoken["offset_mapping"]).split() == running.split()
