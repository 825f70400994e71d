"""HatBartProcessor: markers, the four kinds of input, truncation, padding, saving, any tokenizer."""

import copy
import itertools
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    AutoProcessor,
    MBartTokenizerFast,
    PreTrainedTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5TokenizerFast,
)
from transformers.utils import logging

from hier_models import HatBartProcessor
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS, assert_a_limit_alone_cuts


BOS, PAD, EOS, UNK = 0, 1, 2, 3
MIXED = (
    "Dies steht da. Zwei  Sätze!\n\nA heading\n\n他来了。“她走了。”是的。 🙂🙂 emoji. <s> no marker </s>. End <mask>."
)


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


def plain_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


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


def test_literal_special_tokens_are_text(processor: HatBartProcessor) -> None:
    text = "First <s> with marks</s><pad> here. Second <mask> <unk>."
    sentences = pieces(processor(text=text)["input_ids"])
    assert [processor.decode(sentence) for sentence in sentences] == [text[:35], text[35:]]
    assert not set(flat(sentences)) & set(processor.tokenizer.all_special_ids)


def test_the_tokenizer_is_left_as_it_was(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(7)
    backend.enable_padding(length=9)
    before = backend.to_str()
    processor = HatBartProcessor(tokenizer)
    state = pickle.dumps(processor)
    assert len(processor(text=DOCUMENTS[0])["input_ids"]) > 9
    assert tokenizer.backend_tokenizer is backend
    assert backend.to_str() == before
    assert not backend.encode_special_tokens
    assert pickle.dumps(processor) == state  # what `datasets` hashes for its cache


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


@pytest.mark.parametrize("kind", ["text", "sentences", "turns", "documents"])
def test_a_batch_is_its_members(processor: HatBartProcessor, kind: str) -> None:
    inputs: dict[str, list[Any]] = {
        "text": DOCUMENTS,
        "sentences": [["One.", "Two."], ["Three."], []],
        "turns": [TURNS, TURNS[2:], []],
        "documents": [DOCUMENTS[:2], DOCUMENTS[2:], [""]],
    }
    batch = processor(**{kind: inputs[kind]}, return_truncation=True)
    for i, one in enumerate(inputs[kind]):
        single = processor(**{kind: one}, return_truncation=True)
        assert {key: values[i] for key, values in batch.items()} == dict(single)


def test_empty_documents(processor: HatBartProcessor) -> None:
    for empty in ({"text": ""}, {"sentences": []}, {"turns": []}, {"documents": []}, {"documents": [""]}):
        assert processor(**empty)["input_ids"] == [BOS, EOS]
    assert processor(text=["", "One."])["input_ids"][0] == [BOS, EOS]
    assert pieces(processor(text=" \n")["input_ids"]) == [plain_ids(processor.tokenizer, " \n")]


def test_a_column_of_a_data_set(processor: HatBartProcessor) -> None:
    data = datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES})
    encoded = processor(text=data["text"], text_target=data["summary"])
    assert encoded == processor(text=DOCUMENTS, text_target=SUMMARIES)
    mapped = data.map(lambda rows: processor(text=rows["text"], text_target=rows["summary"]), batched=True)
    assert mapped["input_ids"][2] == encoded["input_ids"][2]


def test_targets(processor: HatBartProcessor) -> None:
    only = processor(text_target=SUMMARIES)
    assert set(only) == {"labels"}
    expected = [[BOS, *plain_ids(processor.tokenizer, summary), EOS] for summary in SUMMARIES]
    assert only["labels"] == expected
    assert processor(text=DOCUMENTS[0], text_target=SUMMARIES[0])["labels"] == expected[0]
    assert processor(text_target="One. Two.")["labels"].count(BOS) == 1


# --------------------------------------------------------------------------------------------------------- truncation


def test_a_limit_alone_cuts_as_in_transformers(processor: HatBartProcessor) -> None:
    assert_a_limit_alone_cuts(processor)


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


def test_truncation_defaults_to_the_tokenizers_length(processor: HatBartProcessor) -> None:
    text = " ".join(DOCUMENTS * 3)
    assert len(processor(text=text)["input_ids"]) > 128
    assert len(processor(text=text, truncation=True)["input_ids"]) in (127, 128)
    endless = copy.deepcopy(processor.tokenizer)
    endless.model_max_length = int(1e30)
    assert HatBartProcessor(endless)(text=text, truncation=True)["input_ids"] == processor(text=text)["input_ids"]


def test_truncated_targets(processor: HatBartProcessor) -> None:
    full = processor(text_target=SUMMARIES)["labels"]
    cut = processor(
        text=DOCUMENTS, text_target=SUMMARIES, truncation=True, max_target_length=6, return_truncation=True
    )
    for labels, whole, lost in zip(cut["labels"], full, cut["num_truncated_target_tokens"], strict=True):
        assert labels == ([*whole[:5], EOS] if len(whole) > 6 else whole)
        assert lost == len(whole) - len(labels)


def test_a_cut_is_logged(processor: HatBartProcessor, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.get_logger("hier_models.models.processing_hat_bart")
    logging.enable_propagation()
    logging.set_verbosity_info()
    try:
        with caplog.at_level("INFO", logger=logger.name):
            processor(text=DOCUMENTS, truncation=True, max_length=1000)
            processor(text=DOCUMENTS, truncation=True, max_length=20, return_truncation=True)
            assert not caplog.records
            options = {"truncation": True, "max_length": 20, "max_target_length": 10}
            for _ in range(2):
                processor(text=DOCUMENTS, text_target=SUMMARIES, **options)
            counted = processor(text=DOCUMENTS, text_target=SUMMARIES, **options, return_truncation=True)
    finally:
        logging.disable_propagation()
        logging.set_verbosity_warning()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    tokens, targets = counted["num_truncated_tokens"], counted["num_truncated_target_tokens"]
    for number in (
        f"{sum(tokens)} tokens of {sum(map(bool, tokens))} texts",
        f"{sum(targets)} tokens of {sum(map(bool, targets))} targets",
        "return_truncation=True",
    ):
        assert number in caplog.records[0].message


# ------------------------------------------------------------------------------------------------------------ padding


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("padding", [True, "longest", "max_length"])
@pytest.mark.parametrize("kind", ["pt", "np"])
def test_padding(processor: HatBartProcessor, side: str, padding: bool | str, kind: str) -> None:
    turns = [TURNS, TURNS[1:2]]
    flat = processor(turns=turns, text_target=SUMMARIES[:2])
    padded = processor(
        turns=turns,
        text_target=SUMMARIES[:2],
        padding=padding,
        max_length=120,
        max_target_length=60,
        pad_to_multiple_of=8,
        padding_side=side,
        return_tensors=kind,
    )
    longest = max(map(len, flat["input_ids"]))
    length = 120 if padding == "max_length" else -(-longest // 8) * 8
    for key, value in {"input_ids": PAD, "attention_mask": 0, "segment_ids": 0}.items():
        assert isinstance(padded[key], torch.Tensor if kind == "pt" else np.ndarray)
        for row, short in zip(padded[key].tolist(), flat[key], strict=True):
            fill = [value] * (length - len(short))
            assert row == (fill + short if side == "left" else short + fill)
    for row, short in zip(padded["labels"].tolist(), flat["labels"], strict=True):
        assert row == short + [-100] * (len(row) - len(short))
    assert padded["labels"].shape[1] % 8 == 0


def test_tensors_of_a_single_input(processor: HatBartProcessor) -> None:
    encoded = processor(text=DOCUMENTS[0], return_tensors="pt", return_truncation=True)
    assert encoded["input_ids"].shape == (1, len(processor(text=DOCUMENTS[0])["input_ids"]))
    assert encoded["num_truncated_tokens"].tolist() == [0]
    assert encoded["input_ids"].dtype == torch.long
    assert processor(text="", return_tensors="pt")["segment_ids"].tolist() == [[0, 0]]


def test_the_tokenizers_own_padding_side(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.padding_side = "left"
    encoded = HatBartProcessor(tokenizer, num_segments=2)(text=DOCUMENTS, padding=True)
    assert [ids[0] for ids in encoded["input_ids"]].count(PAD) == len(DOCUMENTS) - 1
    assert all(ids[-1] == EOS for ids in encoded["input_ids"])


def test_the_model_takes_it(processor: HatBartProcessor, tiny_model: torch.nn.Module) -> None:
    encoded = processor(turns=[TURNS, TURNS[:1]], text_target=SUMMARIES[:2], padding=True, return_tensors="pt")
    assert torch.isfinite(tiny_model(**encoded).loss)


# ---------------------------------------------------------------------------------------------- saving, and decoding


def test_save_and_load(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    processor = HatBartProcessor(tokenizer, num_segments=3, language="german")
    processor(text=DOCUMENTS)
    processor.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "processor_config.json").read_text())
    assert saved == {"language": "german", "num_segments": 3, "processor_class": "HatBartProcessor"}
    for loaded in (HatBartProcessor.from_pretrained(tmp_path), AutoProcessor.from_pretrained(tmp_path)):
        assert type(loaded) is HatBartProcessor
        assert (loaded.num_segments, loaded.language) == (3, "german")
        assert loaded(text=[*DOCUMENTS, MIXED]) == processor(text=[*DOCUMENTS, MIXED])
    assert HatBartProcessor.from_pretrained(tmp_path, num_segments=5).num_segments == 5
    assert pickle.loads(pickle.dumps(processor))(text=MIXED) == processor(text=MIXED)


def test_decoding_goes_to_the_tokenizer(processor: HatBartProcessor) -> None:
    encoded = processor(text=DOCUMENTS, padding=True)
    assert processor.batch_decode(encoded["input_ids"], skip_special_tokens=True) == DOCUMENTS
    assert processor.decode(encoded["input_ids"][0], skip_special_tokens=True) == DOCUMENTS[0]


# ----------------------------------------------------------------------------------------------------- any tokenizer

CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'\"<>/-()"
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def unigram(first: list[str]) -> list[tuple[str, float]]:
    words = ["▁the", "▁a", "ing", "▁S"]
    return [(t, 0.0) for t in first] + [("▁", -2.0)] + [(c, -3.0) for c in CHARACTERS] + [(w, -4.0) for w in words]


def mbart() -> PreTrainedTokenizerBase:
    return MBartTokenizerFast(vocab=unigram(["<s>", "<pad>", "</s>", "<unk>"]))


def t5_with_bos() -> PreTrainedTokenizerBase:
    tokenizer = T5TokenizerFast(vocab=unigram(["<pad>", "</s>", "<unk>"]))
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    return tokenizer


def words() -> PreTrainedTokenizerBase:
    """Whole words, lower-cased; special tokens are words of its vocabulary."""
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "the", "bridge", "was", "six", "it", "at", "<mask>"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)


def byte_level(**options: Any) -> PreTrainedTokenizerBase:
    """Characters as bytes, with a space in front, or lower-cased, or whatever the options say."""
    vocabulary = [*SPECIAL.values(), *pre_tokenizers.ByteLevel.alphabet()]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=options.get("prefix", False))
    if options.get("lower"):
        backend.normalizer = normalizers.Lowercase()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)


class SlowTokenizer(PreTrainedTokenizer):
    """A tokenizer in Python: one token per character."""

    def __init__(self, **kwargs: Any) -> None:
        self.characters = [*SPECIAL.values(), *CHARACTERS, " "]
        super().__init__(**SPECIAL, **kwargs)

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def get_vocab(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.characters)} | self.added_tokens_encoder

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self.characters.index(token) if token in self.characters else UNK

    def _convert_id_to_token(self, index: int) -> str:
        return self.characters[index]


TOKENIZERS = {
    "mbart": mbart,
    "t5": t5_with_bos,
    "words": words,
    "bytes": byte_level,
    "bytes with a space in front": lambda: byte_level(prefix=True),
    "bytes, lower case": lambda: byte_level(lower=True),
    "slow": SlowTokenizer,
}


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
