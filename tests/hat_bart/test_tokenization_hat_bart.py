"""HatBartTokenizer: what AutoTokenizer gives for every HAT-BART checkpoint, and only for those."""

import copy
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoProcessor,
    AutoTokenizer,
    BartConfig,
    BertTokenizer,
    PhobertTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
)

from hier_models import HatBartConfig, HatBartProcessor, HatBartTokenizer, HatEncoderProcessor, HatEncoderTokenizer
from hier_models.data.tokenizer_training import train_characters, train_joint_bpe, train_word_level
from tests.conftest import DOCUMENTS, SUMMARIES


MIXED = "Er kam. Zwei  Sätze!\n\nA heading\n\n他来了。“她走了。”是的。 🙂🙂 emoji. No <s> mark </s>. [CLS] [SEP]. End"
TEXTS = [*DOCUMENTS, MIXED, "", "  One.  ", "Dr. Li came. He left?! Yes..."]


def byte_level() -> PreTrainedTokenizerFast:
    return RobertaTokenizer(tokenizer_object=train_joint_bpe(DOCUMENTS, 200).backend_tokenizer, model_max_length=900)


def joint_bpe() -> PreTrainedTokenizerFast:
    return train_joint_bpe(DOCUMENTS, 100)


def characters() -> PreTrainedTokenizerFast:
    return train_characters([*DOCUMENTS, MIXED])  # without a post-processor, as the next


def word_level() -> PreTrainedTokenizerFast:
    return train_word_level(DOCUMENTS)


def word_piece() -> PreTrainedTokenizerFast:
    """BERT's, with its ends of texts as BOS and EOS."""
    letters = sorted({letter for text in DOCUMENTS for letter in text.lower() if not letter.isspace()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    ids = {token: i for i, token in enumerate([*vocabulary, "the", "##ing"])}
    return BertTokenizer(vocab=ids, bos_token="[CLS]", eos_token="[SEP]", model_max_length=900)


def unigram() -> PreTrainedTokenizerFast:
    """XLM-RoBERTa's kind: spaces are marks, and the text is normalized before."""
    letters = sorted({letter for text in TEXTS for letter in text if not letter.isspace()})
    scores = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -1.0), ("▁The", -2.0), ("s>", -2.0)]
    backend = Tokenizer(models.Unigram([*scores, *((letter, -3.0) for letter in letters if letter != "他")], unk_id=3))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    ends = [("<s>", 0), ("</s>", 2)]
    backend.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=ends)
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


KINDS = [byte_level, joint_bpe, characters, word_level, word_piece, unigram]


def saved(tokenizer: Any, folder: Path, config: Any = None) -> Path:
    """A checkpoint with what was given, a tokenizer or a processor."""
    (config or HatBartConfig(d_model=16, vocab_size=1000)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def named_class(folder: Path) -> str:
    return str(json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"])


@pytest.fixture(scope="module")
def ours() -> HatBartTokenizer:
    return HatBartTokenizer.from_tokenizer(byte_level())


# -------------------------------------------------------------------------------------------- what AutoTokenizer gives


@pytest.mark.parametrize("by_processor", [False, True])
@pytest.mark.parametrize("make", KINDS)
def test_any_saved_checkpoint_gets_the_processors_ids(make: Any, by_processor: bool, tmp_path: Path) -> None:
    plain = make()
    processor = HatBartProcessor(plain)
    tokenizer = AutoTokenizer.from_pretrained(saved(processor if by_processor else plain, tmp_path))
    assert named_class(tmp_path) != "HatBartTokenizer"
    assert type(tokenizer) is HatBartTokenizer
    assert len(tokenizer) == len(plain)
    assert tokenizer.special_tokens_map == plain.special_tokens_map
    want = processor(text=TEXTS, text_target=TEXTS[::-1])
    got = tokenizer(TEXTS, text_target=TEXTS[::-1])
    assert dict(got) == dict(want)
    assert list(got) == ["input_ids", "attention_mask", "labels"]
    assert tokenizer.batch_decode(got["labels"]) == plain.batch_decode(want["labels"])
    assert tokenizer.decode(got["input_ids"][0], skip_special_tokens=True) == plain.decode(
        want["input_ids"][0], skip_special_tokens=True
    )
    backends = [json.loads(each.backend_tokenizer.to_str()) for each in (plain, tokenizer)]
    assert backends[0] == backends[1]
    # The processor sets no second markers, and comes back as it was.
    for again in (HatBartProcessor(tokenizer), *([AutoProcessor.from_pretrained(tmp_path)] if by_processor else [])):
        assert dict(again(text=TEXTS, text_target=TEXTS[::-1])) == dict(want)
    # Saved again, it names its own class.
    tokenizer.save_pretrained(tmp_path)
    assert named_class(tmp_path) == "HatBartTokenizer"
    assert dict(AutoTokenizer.from_pretrained(tmp_path)(TEXTS, text_target=TEXTS[::-1])) == dict(want)
    # Without markers, it is as Transformers' own.
    ids = plain(TEXTS, add_special_tokens=False)["input_ids"]
    assert tokenizer(TEXTS, add_special_tokens=False)["input_ids"] == ids
    unmarked = tokenizer.without_markers()
    assert not isinstance(unmarked, HatBartTokenizer)
    assert unmarked(TEXTS)["input_ids"] == plain(TEXTS)["input_ids"]


@pytest.mark.parametrize("make", KINDS)
def test_truncation_is_the_processors(make: Any) -> None:
    plain, draw = make(), random.Random(0)
    processor, tokenizer = HatBartProcessor(plain), HatBartTokenizer.from_tokenizer(make())
    words = [word for text in TEXTS for word in text.split()]
    for _ in range(20):
        texts = [" ".join(draw.choices(words, k=draw.randrange(40))) for _ in range(3)]
        for length in (2, 3, draw.randrange(4, 60)):
            options = {"truncation": True, "max_length": length, "text_target": texts}
            want = processor(text=texts, max_target_length=length, **options)
            assert dict(tokenizer(texts, **options)) == dict(want)
        counts = {"truncation": True, "max_length": 9, "return_truncation": True}
        assert dict(tokenizer(texts, **counts)) == dict(processor(text=texts, **counts))


def test_plain_checkpoints_are_left_alone(tmp_path: Path) -> None:
    for name, make, config in (("bart", byte_level, BartConfig()), ("words", word_level, BartConfig())):
        plain = make()
        loaded = AutoTokenizer.from_pretrained(saved(plain, tmp_path / name, config))
        assert type(loaded) is type(plain)
        assert loaded(TEXTS)["input_ids"] == plain(TEXTS)["input_ids"]


def test_a_slow_tokenizer_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{letter}@@ 1\n" for letter in "abcdefghinorstuy"))
    (tmp_path / "bpe.codes").write_text("t h 1\n")
    slow = PhobertTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "bpe.codes"))
    loaded = AutoTokenizer.from_pretrained(saved(HatBartProcessor(slow), tmp_path / "saved"))
    assert type(loaded) is PhobertTokenizer
    assert loaded(DOCUMENTS)["input_ids"] == slow(DOCUMENTS)["input_ids"]
    assert AutoProcessor.from_pretrained(tmp_path / "saved")(text=DOCUMENTS) == HatBartProcessor(slow)(text=DOCUMENTS)
    with pytest.raises(ValueError, match="no fast backend"):
        HatBartTokenizer.from_tokenizer(slow)


def test_files_as_the_first_checkpoints_of_bart_have_them(ours: HatBartTokenizer, tmp_path: Path) -> None:
    """No names of special tokens, then no tokenizer.json either."""
    folder = saved(ours, tmp_path)
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 900}')
    first = AutoTokenizer.from_pretrained(folder)
    content = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(content["vocab"]), encoding="utf-8")
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
    for loaded in (first, AutoTokenizer.from_pretrained(folder)):
        assert type(loaded) is HatBartTokenizer
        assert loaded.model_max_length == 900
        assert loaded(DOCUMENTS) == ours(DOCUMENTS)


def test_the_language_is_the_processors(tmp_path: Path) -> None:
    text = "Das gilt z. B. am 3. Mai. Und danach."
    plain = byte_level()
    german = HatBartProcessor(plain, language="german")
    tokenizer = AutoTokenizer.from_pretrained(saved(german, tmp_path))
    assert tokenizer.language == "german"
    assert tokenizer(text)["input_ids"] == german(text=text)["input_ids"]
    assert tokenizer(text) != AutoTokenizer.from_pretrained(tmp_path, language="english")(text)
    # And the other way round, where the processor is not given one.
    assert HatBartProcessor(tokenizer).language == "german"
    assert HatBartProcessor(tokenizer, language="french").tokenizer.language == "french"
    tokenizer.save_pretrained(tmp_path / "alone")
    assert AutoTokenizer.from_pretrained(tmp_path / "alone").language == "french"


# --------------------------------------------------------------------------------------------------- as a tokenizer


def test_targets_are_not_marked(ours: HatBartTokenizer) -> None:
    plain, text = byte_level(), DOCUMENTS[2]
    assert ours(text_target=text) == plain(text_target=text)
    assert ours(text, text_target=text)["labels"] == plain(text)["input_ids"]
    both = ours([text] * 2, text_target=[text, "One."], padding=True, max_target_length=9, return_tensors="pt")
    cut = plain(text_target=[text, "One."], padding=True, max_length=9, truncation=True, return_tensors="pt")
    assert both["input_ids"].shape[1] == len(ours(text)["input_ids"])
    assert both["labels"].shape[1] > 9  # as in Transformers: no truncation was asked for
    both = ours([text] * 2, text_target=[text, "One."], padding=True, truncation=True, max_target_length=9)
    assert both["labels"] == cut["input_ids"].tolist()
    target = "All <s> is </s> text. So."
    (labels,) = ours(text_target=[target])["input_ids"]
    assert [labels.count(i) for i in (plain.bos_token_id, plain.eos_token_id)] == [1, 1]
    assert ours.decode(labels[1:-1]) == target


def test_targets_end_where_the_backend_says_otherwise() -> None:
    plain = byte_level()
    plain.backend_tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
    ours = HatBartTokenizer.from_tokenizer(plain)
    assert ours(text_target="a")["input_ids"] == [0, *plain("a", add_special_tokens=False)["input_ids"], 2]


def test_what_is_read_from_text(ours: HatBartTokenizer) -> None:
    tokenizer = copy.deepcopy(ours)
    tokenizer.add_special_tokens({"mask_token": "<mask>", "extra_special_tokens": ["<turn>"]})
    mask, turn = tokenizer.convert_tokens_to_ids(["<mask>", "<turn>"])
    text = "A <s> b</s> <mask><turn>. Two."
    ids = tokenizer(text)["input_ids"]
    assert [ids.count(i) for i in (0, 2, mask, turn)] == [2, 1, 1, 1]
    text_only = tokenizer(text, split_special_tokens=True)["input_ids"]
    assert [text_only.count(i) for i in (0, 2, mask, turn)] == [2, 1, 0, 0]
    assert text_only == HatBartProcessor(tokenizer)(text=text)["input_ids"]


def test_pairs_and_the_other_ways_to_call_it(ours: HatBartTokenizer) -> None:
    text, pair = DOCUMENTS[2], DOCUMENTS[1]
    first, second = ours(text)["input_ids"], ours(pair)["input_ids"]
    assert ours(text, pair)["input_ids"] == [*first, 2, *second]
    assert ours.encode(text) == first
    assert ours.tokenize(text, add_special_tokens=True) == ours.convert_ids_to_tokens(first)
    assert ours.pad({"input_ids": [first, second]})["input_ids"][0][len(first) :] == [1] * (len(second) - len(first))
    assert ours("One \ud800. Two.") == ours("One \ufffd. Two.")  # as the processor has it
    windows = ours(pair, max_length=40, truncation=True, return_overflowing_tokens=True, stride=4)
    assert all(row[0] == 0 and row[-1] == 2 and len(row) <= 40 for row in windows["input_ids"])
    assert pickle.loads(pickle.dumps(ours))(text) == ours(text)
    chat = copy.deepcopy(ours)
    chat.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    ids = chat.apply_chat_template([{"role": "user", "content": text}], return_dict=False)
    assert ids == byte_level()(f"{text} ", add_special_tokens=False)["input_ids"]
    assert HatBartTokenizer.from_tokenizer(chat.without_markers()).chat_template == chat.chat_template


def test_there_must_be_padding_to_pad(ours: HatBartTokenizer) -> None:
    tokenizer = copy.deepcopy(ours)
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="no pad_token"):
        tokenizer(DOCUMENTS, padding=True)


def test_the_two_tokenizers_are_not_taken_for_each_other(tokenizer: PreTrainedTokenizerFast) -> None:
    bart = HatBartTokenizer.from_tokenizer(tokenizer, "german")
    encoder = HatEncoderProcessor(bart).tokenizer
    assert type(encoder) is HatEncoderTokenizer
    assert encoder.language == "german"
    assert type(HatBartTokenizer.from_tokenizer(encoder)) is HatBartTokenizer
    all_three: list[PreTrainedTokenizerBase] = [tokenizer, bart, encoder]
    rows = [dict(HatBartProcessor(each)(text=DOCUMENTS, text_target=SUMMARIES)) for each in all_three]
    assert rows[0] == rows[1] == rows[2]
