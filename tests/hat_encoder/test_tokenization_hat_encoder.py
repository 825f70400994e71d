"""HatEncoderTokenizer: a tokenizer of Transformers in every respect, with markers; more in the processor's tests."""

import copy
import json
import threading
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    DataCollatorForTokenClassification,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)

from hier_models import HatEncoderProcessor, HatEncoderTokenizer
from tests.conftest import DOCUMENTS


BOS, PAD, EOS, UNK, MASK = 0, 1, 2, 3, 4


@pytest.fixture(scope="module")
def ours(tokenizer: PreTrainedTokenizerFast) -> HatEncoderTokenizer:
    return HatEncoderTokenizer.from_tokenizer(tokenizer)


@pytest.fixture(scope="module")
def roberta(ours: HatEncoderTokenizer) -> RobertaTokenizer:
    return RobertaTokenizer(tokenizer_object=ours.backend_tokenizer, model_max_length=128)


def without_inner_markers(ids: list[int]) -> list[int]:
    return [token for i, token in enumerate(ids) if token != BOS or i == 0]


def test_without_markers_it_is_robertas(ours: HatEncoderTokenizer, roberta: RobertaTokenizer) -> None:
    for text in DOCUMENTS:
        assert without_inner_markers(ours(text)["input_ids"]) == roberta(text)["input_ids"]
        assert without_inner_markers(ours(text, text)["input_ids"]) == roberta(text, text)["input_ids"]
        for options in ({}, {"return_offsets_mapping": True}, {"max_length": 9, "truncation": True}):
            plain = ours(text, add_special_tokens=False, **options)
            assert plain == roberta(text, add_special_tokens=False, **options)


def test_what_is_read_from_text(ours: HatEncoderTokenizer, roberta: RobertaTokenizer) -> None:
    text = "A <s> b</s> <mask> c<pad> <unk>. Two."
    ids = ours(text)["input_ids"]
    assert [ids.count(token) for token in (BOS, PAD, EOS, UNK, MASK)] == [2, 0, 1, 0, 1]
    ids = ours(text, split_special_tokens=True)["input_ids"]
    assert [ids.count(token) for token in (BOS, PAD, EOS, UNK, MASK)] == [2, 0, 1, 0, 0]
    plain = ours(text, add_special_tokens=False)["input_ids"]
    assert plain == roberta(text, add_special_tokens=False)["input_ids"]
    assert [plain.count(token) for token in (BOS, PAD, EOS, UNK, MASK)] == [1, 1, 1, 1, 1]


def test_the_other_ways_to_call_it(ours: HatEncoderTokenizer, roberta: RobertaTokenizer) -> None:
    text, pair = DOCUMENTS[2], DOCUMENTS[1]
    ids = ours(text, pair)["input_ids"]
    assert ours.encode(text, pair) == ids
    assert ours.encode(text, add_special_tokens=False) == roberta.encode(text, add_special_tokens=False)
    assert ours.tokenize(text, pair, add_special_tokens=True) == ours.convert_ids_to_tokens(ids)
    assert ours.tokenize(text) == roberta.tokenize(text)
    assert ours([(text, pair), [pair, text]])["input_ids"] == [ids, ours.encode(pair, text)]
    assert ours(text, tokenizer_kwargs={"truncation": True, "max_length": 7}) == ours(
        text, truncation=True, max_length=7
    )
    assert ours(text, max_length=7) == ours(text, truncation=True, max_length=7)  # as in Transformers
    labelled = ours(text, text_target=pair)
    assert labelled["labels"] == roberta(pair)["input_ids"]
    assert ours(text_target=pair) == roberta(text_target=pair)
    full = ours([text], return_token_type_ids=True, return_length=True, return_attention_mask=False)
    assert full["token_type_ids"] == [[0] * len(ours(text)["input_ids"])]
    assert full["length"] == [len(ours(text)["input_ids"])]
    assert "attention_mask" not in full
    with pytest.raises(TypeError, match="truncate"):
        ours(text, truncate=True)


def test_words_in_pairs(ours: HatEncoderTokenizer) -> None:
    words = [["One", ".", "Two", "."], ["Three", "."]]
    encoded = ours([words], is_split_into_words=True)
    assert encoded.sequence_ids(0)[0] is None
    assert [i for i in encoded.sequence_ids(0) if i is not None][-1] == 1
    assert encoded["input_ids"][0].count(BOS) == 3
    assert encoded["input_ids"] == ours([words[0]], [words[1]], is_split_into_words=True)["input_ids"]


def test_labels_of_words_as_scripts_align_them(ours: HatEncoderTokenizer) -> None:
    """The usual script for named entities: labels at each word's first token, -100 elsewhere."""
    words, tags = ["Ada", "came", ".", "Bob", "left", "."], [1, 0, 0, 2, 0, 0]
    encoded = ours([words, words[:3]], is_split_into_words=True, truncation=True)
    labels = []
    for i in range(2):
        row: list[int] = []
        before = None
        for word in encoded.word_ids(i):
            row.append(-100 if word is None or word == before else tags[word])
            before = word
        labels.append(row)
    features = [
        {"input_ids": encoded["input_ids"][i], "attention_mask": encoded["attention_mask"][i], "labels": labels[i]}
        for i in range(2)
    ]
    batch = DataCollatorForTokenClassification(ours)(features)
    kept = [[label for label in row if label != -100] for row in batch["labels"].tolist()]
    assert kept == [tags, tags[:3]]
    assert (batch["labels"][batch["input_ids"] == BOS] == -100).all()


def test_a_squad_script_of_before_finds_answers_over_markers(ours: HatEncoderTokenizer) -> None:
    """The walk over sequence_ids and offset_mapping that question-answering scripts do."""
    context = " ".join(DOCUMENTS[:2])
    for answer in ("the second pillar", "six weeks. The town", "Bees", "closed on Monday. Engineers"):
        encoded = ours(
            "What?",
            context,
            truncation="only_second",
            max_length=100,
            stride=40,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        begin = context.index(answer)
        end = begin + len(answer)
        found = []
        for i, offsets in enumerate(encoded["offset_mapping"]):
            sequences = encoded.sequence_ids(i)
            first, last = sequences.index(1), len(sequences) - 1 - sequences[::-1].index(1)
            if offsets[first][0] > begin or offsets[last][1] < end:
                continue
            while first < len(offsets) and offsets[first][0] <= begin:
                first += 1
            while offsets[last][1] >= end:
                last -= 1
            found.append(context[offsets[first - 1][0] : offsets[last + 1][1]])
        assert found
        assert set(found) == {answer}


def test_threads_do_not_disturb_each_other(tokenizer: PreTrainedTokenizerFast) -> None:
    ours = HatEncoderTokenizer.from_tokenizer(copy.deepcopy(tokenizer))
    text = "A mark <s> in <mask> text. Another </s> here."
    calls = [{}, {"split_special_tokens": True}, {"truncation": True, "max_length": 9}]
    expected = [ours(text, **options)["input_ids"] for options in calls]
    wrong: list[Any] = []

    def work(options: dict[str, Any], ids: list[int]) -> None:
        for _ in range(100):
            got = ours(text, **options)["input_ids"]
            if got != ids:
                wrong.append(got)

    threads = [threading.Thread(target=work, args=job) for job in list(zip(calls, expected, strict=True)) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_maps_a_data_set(ours: HatEncoderTokenizer) -> None:
    data = datasets.Dataset.from_dict({"text": DOCUMENTS})
    mapped = data.map(lambda rows: ours(rows["text"], truncation=True, max_length=60), batched=True)
    assert mapped["input_ids"][:] == ours(data["text"], truncation=True, max_length=60)["input_ids"]
    mapped.set_format("torch")
    assert isinstance(mapped[0]["input_ids"], torch.Tensor)


# ---------------------------------------------------------------------------------------------------- other tokenizers


def test_loads_what_robertas_tokenizer_loads(ours: HatEncoderTokenizer, tmp_path: Path) -> None:
    roberta = RobertaTokenizer(
        tokenizer_object=ours.backend_tokenizer,
        mask_token=AddedToken("<mask>", lstrip=True, special=True, normalized=False),
        model_max_length=77,
    )
    roberta.add_special_tokens({"mask_token": AddedToken("<mask>", lstrip=True, special=True, normalized=False)})
    roberta.save_pretrained(tmp_path / "whole")
    loaded = HatEncoderTokenizer.from_pretrained(tmp_path / "whole", language="german")
    assert loaded.model_max_length == 77
    assert loaded.language == "german"
    text = "It is <mask>. Yes."
    assert without_inner_markers(loaded(text)["input_ids"]) == roberta(text)["input_ids"]
    assert "Ġ" not in loaded.tokenize("is <mask>")  # the space is the mask's
    converted = HatEncoderTokenizer.from_tokenizer(roberta)
    assert converted(text) == loaded(text)

    content = json.loads(ours.backend_tokenizer.to_str())["model"]
    files = tmp_path / "files"  # as the first checkpoints of RoBERTa have it
    files.mkdir()
    (files / "vocab.json").write_text(json.dumps(content["vocab"]), encoding="utf-8")
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["merges"]]
    (files / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
    from_files = HatEncoderTokenizer.from_pretrained(files)
    assert from_files(DOCUMENTS)["input_ids"] == ours(DOCUMENTS)["input_ids"]


def unigram() -> XLMRobertaTokenizer:
    """A tokenizer of XLM-RoBERTa's kind: Unigram over text with marks for spaces, a normalizer before it."""
    words = ["▁", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?<>/1", "▁The", "▁a", "s>"]
    vocabulary = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    backend = Tokenizer(models.Unigram([*vocabulary, *((w, -float(i)) for i, w in enumerate(words, 1))], unk_id=3))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="<mask>", **names)


def word_level() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "One": 4, ".": 5}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="<mask>", **names)


@pytest.mark.parametrize("make", [unigram, word_level])
def test_any_fast_tokenizer(make: Any, tmp_path: Path) -> None:
    plain = make()
    processor = HatEncoderProcessor(plain)
    text = "One. The ﬁsh <s> ½ came.  Two <mask> </s>! One."
    encoded = processor(text, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    assert ids.count(BOS) == 4
    assert ids.count(EOS) == 1
    assert len(processor.tokenizer) == len(plain)
    begins = [
        text[start:].lstrip()[:3]
        for token, (start, _) in zip(ids, encoded["offset_mapping"], strict=True)
        if token == BOS
    ]
    assert begins == ["One", "The", "Two", "One"]
    assert plain.mask_token_id in processor(text, split_special_tokens=False)["input_ids"]
    processor.save_pretrained(tmp_path)
    loaded = HatEncoderProcessor.from_pretrained(tmp_path)
    assert loaded(text) == processor(text)
    assert len(loaded.tokenizer) == len(plain)


def test_slow_tokenizers_are_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(ValueError, match="no fast backend"):
        HatEncoderTokenizer.from_tokenizer(Slow())  # type: ignore[arg-type]
