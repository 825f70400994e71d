"""What every processor of documents promises, whatever its family; a new family adds one `ProcessorCase`."""

import copy
import json
import pickle
import re
from dataclasses import dataclass, field
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from transformers import AutoProcessor, PreTrainedTokenizerFast, ProcessorMixin
from transformers.utils import logging

import hier_models
from hier_models.data import HierDataCollator
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS
from tests.odd_tokenizers import MIXED, plain_ids


BOS, PAD, EOS = 0, 1, 2
KINDS: dict[str, list[Any]] = {
    "text": [*DOCUMENTS[:3], ""],
    "sentences": [["One. ", "", "Two."], ["Three."], []],
    "turns": [TURNS, TURNS[2:], []],
    "documents": [DOCUMENTS[:2], DOCUMENTS[2:], [""]],
}


@dataclass(frozen=True)
class ProcessorCase:
    """A family's processor.

    `marks` is what stands around two sentences, `begin` what targets begin with. `pads` are the per-token inputs that
    it makes of any text, `reads` all inputs beyond ids and mask, `other` settings that are not the defaults.
    `extra` is an argument with its value for one document of any length, and `kept` that value as `datasets` has it.
    """

    name: str
    marks: list[int]
    begin: list[int]
    reads: list[str]
    other: dict[str, Any]
    pads: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    def make(self, tokenizer: Any, **settings: Any) -> ProcessorMixin:
        return getattr(hier_models, self.name)(tokenizer, **{**self.settings, **settings})

    def of(self, number: int) -> dict[str, Any]:
        """The extra argument for a batch."""
        return {name: [value] * number for name, value in self.extra.items()}


CASES = {
    "coarse_to_fine_lstm": ProcessorCase(
        name="CoarseToFineLstmProcessor",
        marks=[EOS, EOS],
        begin=[],
        reads=["row_ids"],
        pads={"row_ids": -1},
        other={"rows": "grid", "row_length": 5, "num_rows": 3, "pad_grid": True, "language": "german"},
    ),
    "ham": ProcessorCase(name="HamProcessor", marks=[EOS], begin=[], reads=["keyword_mask"], other={}),
    "hat_bart": ProcessorCase(
        name="HatBartProcessor",
        marks=[BOS, BOS, EOS],
        begin=[BOS],
        reads=["segment_ids"],
        pads={"segment_ids": 0},
        settings={"num_segments": 4},
        other={"num_segments": 3, "language": "german"},
    ),
    "highlight_transformer": ProcessorCase(
        name="HighlightTransformerProcessor",
        marks=[BOS, EOS],
        begin=[BOS],
        reads=["phrase_positions", "phrase_values"],
        other={"max_phrase_length": 16, "language": "de"},
        extra={"phrases": [("the", 0.5)]},
        kept={"phrases": [{"text": "the", "value": 0.5}]},
    ),
    "top_down_transformer": ProcessorCase(
        name="TopDownTransformerProcessor",
        marks=[BOS, EOS],
        begin=[BOS],
        reads=["token_importance"],
        other={"language": "de"},
        extra={"importance": [(0, 3, 0.5)]},
        kept={"importance": [[0, 3, 0.5]]},
    ),
}


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> ProcessorCase:
    return CASES[request.param]


@pytest.fixture
def processor(case: ProcessorCase, tokenizer: PreTrainedTokenizerFast) -> Any:
    return case.make(copy.deepcopy(tokenizer))


# ------------------------------------------------------------------------------------------------------------- input


def test_the_tokenizer_and_the_processor_are_left_as_they_were(case, tokenizer):
    tokenizer = copy.deepcopy(tokenizer)
    backend = tokenizer.backend_tokenizer
    backend.enable_truncation(7)
    backend.enable_padding(length=9)
    before = backend.to_str()
    processor = case.make(tokenizer)
    state = pickle.dumps(processor)
    assert len(processor(text=DOCUMENTS[0], **case.extra)["input_ids"]) > 9
    processor(text=DOCUMENTS, truncation=True, max_length=4)
    assert tokenizer.backend_tokenizer is backend
    assert backend.to_str() == before
    assert not backend.encode_special_tokens
    assert pickle.dumps(processor) == state  # what `datasets` hashes for its cache
    assert pickle.loads(state)(text=MIXED) == processor(text=MIXED)
    assert copy.deepcopy(processor)(text=MIXED) == processor(text=MIXED)


def test_literal_special_tokens_are_text(case, processor):
    text = "First <s> with marks</s><pad> here. Second <mask> <unk>."
    special = processor.tokenizer.all_special_ids
    ids = processor(text=text)["input_ids"]
    assert [i for i in ids if i in special] == case.marks
    assert processor.decode([i for i in ids if i not in special]) == text


def test_a_lone_surrogate_is_replaced(processor):
    assert processor(text="One \ud800 two.")["input_ids"] == processor(text="One \ufffd two.")["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_its_members(processor, kind):
    batch = processor(**{kind: KINDS[kind]}, return_truncation=True)
    for i, one in enumerate(KINDS[kind]):
        single = processor(**{kind: one}, return_truncation=True)
        assert {key: values[i] for key, values in batch.items()} == dict(single)


def test_columns_of_a_data_set(case, processor):
    kept = {name: [value] * len(DOCUMENTS) for name, value in case.kept.items()}
    data = datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES, **kept})
    encoded = processor(text=data["text"], text_target=data["summary"], **{name: data[name] for name in kept})
    assert encoded == processor(text=DOCUMENTS, text_target=SUMMARIES, **case.of(len(DOCUMENTS)))
    mapped = data.map(lambda rows: processor(text=rows["text"], text_target=rows["summary"]), batched=True)
    assert mapped["input_ids"][2] == encoded["input_ids"][2]


def test_targets(case, processor):
    only = processor(text_target=SUMMARIES)
    assert set(only) == {"labels"}
    expected = [[*case.begin, *plain_ids(processor.tokenizer, summary), EOS] for summary in SUMMARIES]
    assert only["labels"] == expected
    assert processor(text=DOCUMENTS[0], text_target=SUMMARIES[0])["labels"] == expected[0]
    assert processor(text_target="One. Two.")["labels"].count(BOS) == len(case.begin)


def test_decoding_goes_to_the_tokenizer(processor):
    ids = processor(text=DOCUMENTS, padding=True)["input_ids"]
    assert processor.batch_decode(ids, skip_special_tokens=True) == DOCUMENTS
    assert processor.decode(ids[0], skip_special_tokens=True) == DOCUMENTS[0]


# -------------------------------------------------------------------------------------------------------- truncation


def test_a_limit_alone_cuts(processor):
    """As in Transformers, where nothing is padded; each limit cuts its own side, and `truncation=False` leaves all."""
    whole = processor(text=DOCUMENTS[1])
    short = processor(text=DOCUMENTS[1], max_length=9)
    assert short == processor(text=DOCUMENTS[1], max_length=9, truncation=True)
    assert len(short["input_ids"]) == 9 < len(whole["input_ids"])
    target = processor(text=DOCUMENTS[1], text_target=DOCUMENTS[1], max_target_length=4)
    assert (target["input_ids"], len(target["labels"])) == (whole["input_ids"], 4)
    for options in ({"truncation": False}, {"padding": True}):
        assert processor(text=[DOCUMENTS[1]], max_length=9, **options)["input_ids"][0] == whole["input_ids"]


def test_the_limit_of_the_tokenizer_is_the_default(case, processor):
    text = " ".join(DOCUMENTS * 3)
    whole = processor(text=text)["input_ids"]
    assert len(whole) > 128
    assert len(processor(text=text, truncation=True)["input_ids"]) in (127, 128)
    endless = copy.deepcopy(processor.tokenizer)
    endless.model_max_length = int(1e30)
    assert case.make(endless)(text=text, truncation=True)["input_ids"] == whole


def test_a_tokenizer_that_cuts_on_the_left(processor):
    processor.tokenizer.truncation_side = "left"
    whole = processor(text=DOCUMENTS[0], text_target=SUMMARIES[0], truncation=True, max_length=500)
    assert whole["input_ids"] == processor(text=DOCUMENTS[0])["input_ids"]
    refused = r'`tokenizer\.truncation_side` is "left".*cut at the right only.*Set it to "right"'
    for cut in ({"text": DOCUMENTS[0], "max_length": 9}, {"text_target": SUMMARIES[0], "max_target_length": 5}):
        with pytest.raises(ValueError, match=refused):
            processor(**cut)


@pytest.mark.parametrize("limit", [4, 6])
def test_truncated_targets(processor, limit):
    full = processor(text_target=SUMMARIES)["labels"]
    cut = processor(
        text=DOCUMENTS, text_target=SUMMARIES, truncation=True, max_target_length=limit, return_truncation=True
    )
    for labels, whole, lost in zip(cut["labels"], full, cut["num_truncated_target_tokens"], strict=True):
        assert labels == ([*whole[: limit - 1], EOS] if len(whole) > limit else whole)
        assert lost == len(whole) - len(labels)


def test_a_cut_is_logged(processor, caplog):
    logger = logging.get_logger(type(processor).__module__)
    logging.enable_propagation()
    logging.set_verbosity_info()
    try:
        with caplog.at_level("INFO", logger=logger.name):
            processor(text=DOCUMENTS, truncation=True, max_length=1000)
            processor(text=DOCUMENTS, truncation=True, max_length=20, return_truncation=True)
            assert not caplog.records
            options = {"truncation": True, "max_length": 20, "max_target_length": 10}
            for _ in range(2):
                found = processor(text=DOCUMENTS, text_target=SUMMARIES, **options)
                assert not any(name.startswith("num_truncated") for name in found)
            counted = processor(text=DOCUMENTS, text_target=SUMMARIES, **options, return_truncation=True)
    finally:
        logging.disable_propagation()
        logging.set_verbosity_warning()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    tokens, targets = counted["num_truncated_tokens"], counted["num_truncated_target_tokens"]
    for number in (
        f"Truncation cut {sum(tokens)} tokens of {sum(map(bool, tokens))} texts",
        f"{sum(targets)} tokens of {sum(map(bool, targets))} targets",
        "return_truncation=True",
    ):
        assert number in caplog.records[0].message


# ----------------------------------------------------------------------------------------------------------- padding


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("padding", [True, "longest", "max_length"])
@pytest.mark.parametrize("kind", ["pt", "np"])
def test_padding(case, processor, side, padding, kind):
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
    for key, value in {"input_ids": PAD, "attention_mask": 0, **case.pads}.items():
        assert isinstance(padded[key], torch.Tensor if kind == "pt" else np.ndarray)
        for row, short in zip(padded[key].tolist(), flat[key], strict=True):
            fill = [value] * (length - len(short))
            assert row == (fill + short if side == "left" else short + fill)
    for row, short in zip(padded["labels"].tolist(), flat["labels"], strict=True):
        assert row == short + [-100] * (len(row) - len(short))
    assert padded["labels"].shape[1] % 8 == 0


def test_tensors_of_a_single_input(case, processor):
    encoded = processor(text=DOCUMENTS[0], return_tensors="pt", return_truncation=True)
    assert encoded["num_truncated_tokens"].tolist() == [0]
    for name in ("input_ids", "attention_mask", *case.pads):
        assert encoded[name].shape == (1, len(processor(text=DOCUMENTS[0])["input_ids"]))
        assert encoded[name].dtype == torch.long
    fixed = processor(text="One.", padding="max_length", max_length=20, return_tensors="pt")
    assert fixed["input_ids"].shape == (1, 20)


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_collator_pads_as_the_processor_on_the_tokenizer_s_own_side(case, tokenizer, side):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.padding_side = side
    processor = case.make(tokenizer)
    expected = processor(
        text=DOCUMENTS, text_target=SUMMARIES, **case.of(len(DOCUMENTS)), padding=True, return_tensors="pt"
    )
    outer = expected["input_ids"][:, -1 if side == "right" else 0]
    assert (outer == PAD).sum() == len(DOCUMENTS) - 1
    rows = [
        dict(processor(text=text, text_target=target, **case.extra, return_truncation=True))
        for text, target in zip(DOCUMENTS, SUMMARIES, strict=True)
    ]
    batch = HierDataCollator(processor)(rows)
    assert set(batch) == set(expected)
    for name, value in batch.items():
        assert value.dtype == expected[name].dtype
        assert torch.equal(value, expected[name]), name


# ------------------------------------------------------------------------------------------------------------ saving


def test_save_and_load(case, tokenizer, tmp_path):
    processor = case.make(tokenizer, **case.other)
    assert processor.model_input_names == ["input_ids", "attention_mask", *case.reads]
    texts = [*DOCUMENTS, MIXED]
    processor(text=texts)
    processor.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "processor_config.json").read_text())
    assert {name: value for name, value in saved.items() if value is not None} == {
        **case.other,
        "processor_class": case.name,
    }
    for loaded in (type(processor).from_pretrained(tmp_path), AutoProcessor.from_pretrained(tmp_path)):
        assert type(loaded) is type(processor)
        assert {name: getattr(loaded, name) for name in case.other} == case.other
        assert loaded(text=texts) == processor(text=texts)
    for name, value in case.other.items():
        if isinstance(value, int) and not isinstance(value, bool):
            assert getattr(type(processor).from_pretrained(tmp_path, **{name: value + 2}), name) == value + 2


# -------------------------------------------------------------------------------------------------------- wrong calls

TURN = {"role": "A", "content": "Yes"}
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ValueError, "give exactly one of `text`, `sentences`, `turns`.* and .*got none"),
    ({"text": "a", "turns": [TURN]}, ValueError, "got text and turns"),
    ({"text": None}, ValueError, "got none"),
    ({"text": b"bytes"}, TypeError, "`text` must be a string or a list of strings, got bytes"),
    ({"text": 3}, TypeError, "`text` must be a string or a list of strings, got int"),
    ({"text": {"a": 1}}, TypeError, "`text`.*got dict"),
    ({"text": []}, ValueError, "`text` is an empty list"),
    ({"text": ["a", None]}, TypeError, r"`text\[1\]` must be a string, got NoneType"),
    ({"text": ["a", b"b"]}, TypeError, r"`text\[1\]` must be a string, got bytes"),
    ({"text": [["a"]]}, TypeError, r"`text\[0\]` must be a string, got list"),
    ({"sentences": "One. Two."}, TypeError, "`sentences` must be a list of strings, or a list of such lists, got str"),
    ({"sentences": ["a", 3]}, TypeError, r"`sentences\[1\]` must be a string, got int"),
    ({"sentences": [["a"], "b"]}, TypeError, r"`sentences\[1\]` must be a list of strings, got str"),
    ({"sentences": [["a"], ["b", None]]}, TypeError, r"`sentences\[1\]\[1\]` must be a string, got NoneType"),
    ({"sentences": [3]}, TypeError, r"`sentences\[0\]` must be a list of strings, got int"),
    ({"documents": "One."}, TypeError, "`documents` must be a list of strings"),
    ({"documents": ["a", ["b"]]}, TypeError, r"`documents\[1\]` must be a string, got list"),
    ({"documents": [["a"], [1]]}, TypeError, r"`documents\[1\]\[0\]` must be a string, got int"),
    ({"turns": TURN}, TypeError, "`turns` must be a list of turns"),
    ({"turns": "A: Yes"}, TypeError, "`turns` must be a list of turns"),
    ({"turns": ["A: Yes"]}, TypeError, r"`turns\[0\]` must be a list of turns, got str"),
    ({"turns": [TURN, "A: Yes"]}, TypeError, r"`turns\[1\]` must be .*role.*content.*got str"),
    ({"turns": [[TURN], [3]]}, TypeError, r"`turns\[1\]\[0\]` must be"),
    (
        {"turns": [TURN, {"role": "A"}]},
        ValueError,
        r"`turns\[1\]` must have the keys role and content, got \['role'\]",
    ),
    ({"turns": [{**TURN, "text": "x"}]}, ValueError, r"`turns\[0\]`.*got \['role', 'content', 'text'\]"),
    ({"turns": [[TURN], [TURN, {"role": "A", "content": 1}]]}, TypeError, r"`turns\[1\]\[1\]\['content'\]`.*got int"),
    ({"turns": [{"role": None, "content": "a"}]}, TypeError, r"`turns\[0\]\['role'\]`.*got NoneType"),
    ({"turns": [{"role": " ", "content": "a"}]}, ValueError, r"`turns\[0\]\['role'\]` is empty; name the speaker"),
    ({"text": "a", "text_target": ["b"]}, ValueError, "`text_target` must match `text`, got a list of 1 for one"),
    ({"text": ["a"], "text_target": "b"}, ValueError, "`text_target` must match `text`, got one for a list of 1"),
    ({"text": ["a", "b"], "text_target": ["b"]}, ValueError, "got a list of 1 for a list of 2"),
    ({"turns": [TURN], "text_target": 3}, TypeError, "`text_target` must be a string or a list of strings, got int"),
    ({"text": "a", "truncation": "left"}, ValueError, "`truncation` must be True or False, got 'left'"),
    ({"text": "a", "truncation": True, "max_length": 9.5}, ValueError, r"`max_length`.*got 9\.5"),
    ({"text_target": "a", "truncation": True, "max_target_length": 0}, ValueError, "`max_target_length`.*got 0"),
    ({"text": "a", "padding": "short"}, ValueError, "short is not a valid PaddingStrategy"),
    ({"text": "a", "padding_side": "up", "padding": "max_length"}, ValueError, "up"),
    ({"text": ["a", "a b c"], "return_tensors": "pt"}, ValueError, "padding"),
]


@pytest.mark.parametrize(("arguments", "kind", "message"), WRONG)
def test_wrong_calls(processor, arguments, kind, message):
    with pytest.raises(kind, match=message):
        processor(**arguments)


def test_a_limit_that_leaves_no_room(case, processor):
    least = 1 + len(case.begin)
    with pytest.raises(ValueError, match=f"`max_length` must be an integer of at least {least}"):
        processor(text="a", truncation=True, max_length=least - 1)


def test_a_tokenizer_that_has_no_end(case, tokenizer):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match=re.escape("has no eos_token") + ".*add_special_tokens"):
        case.make(tokenizer)
    with pytest.raises(TypeError, match="tokenizer"):
        case.make("facebook/bart-base")
