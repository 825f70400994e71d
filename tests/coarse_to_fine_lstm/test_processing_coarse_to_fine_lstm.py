"""CoarseToFineLstmProcessor: rows of sentences and of a grid, truncation, padding, saving, any tokenizer."""

import pickle
from collections.abc import Iterable
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoProcessor, PreTrainedTokenizerFast

from hier_models import CoarseToFineLstmConfig, CoarseToFineLstmProcessor, HierDataCollator
from hier_models.data import tokenize_documents, train_word_level
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS, assert_a_limit_alone_cuts


EOS, PAD, UNK = 2, 1, 3
SENTENCES = ["The library opens at nine.", "It closes at six."]


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    return train_word_level([*DOCUMENTS, *SUMMARIES])


@pytest.fixture
def processor(words: PreTrainedTokenizerFast) -> CoarseToFineLstmProcessor:
    return CoarseToFineLstmProcessor(words)


def rows(encoded: Any, number: int | None = None) -> list[list[int]]:
    """The tokens of each row; those of no row are left out."""
    ids, row_ids = (encoded[name] if number is None else encoded[name][number] for name in ("input_ids", "row_ids"))
    assert list(row_ids) == sorted(row_ids)
    found: list[list[int]] = [[] for _ in range(1 + max(row_ids))]
    for token, row in zip(ids, row_ids, strict=True):
        if row >= 0:
            found[row].append(token)
    return found


def flat(lists: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(lists))


def plain(processor: CoarseToFineLstmProcessor, text: str) -> list[int]:
    return list(processor.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


# --------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("text", DOCUMENTS)
def test_each_sentence_is_a_row_with_an_end(processor: CoarseToFineLstmProcessor, text: str) -> None:
    encoded = processor(text=text)
    spans = processor.split_sentences(text)
    assert rows(encoded) == [[*plain(processor, text[a:b]), EOS] for a, b in spans]
    assert encoded["attention_mask"] == [1] * len(encoded["input_ids"])
    assert set(encoded) == {"input_ids", "attention_mask", "row_ids"}


def test_the_ids_are_the_tokenizer_s_own_for_the_whole_text(tokenizer: PreTrainedTokenizerFast) -> None:
    """Pieces of words depend on the space before them."""
    processor = CoarseToFineLstmProcessor(tokenizer)
    for text in DOCUMENTS:
        found = rows(processor(text=text))
        assert [token for row in found for token in row[:-1]] == plain(processor, text)
        decoded = [processor.decode(row[:-1]).strip() for row in found]
        assert decoded == [text[a:b] for a, b in processor.split_sentences(text)]


def test_long_sentences_go_on_in_the_next_row(words: PreTrainedTokenizerFast) -> None:
    processor = CoarseToFineLstmProcessor(words, row_length=3)
    whole = rows(CoarseToFineLstmProcessor(words)(sentences=SENTENCES))
    found = rows(processor(sentences=SENTENCES))
    assert [len(row) for row in found] == [3, 3, 1, 3, 3]
    assert flat(found[:3]) == whole[0]
    assert flat(found[3:]) == whole[1]
    cut = processor(sentences=SENTENCES, truncation=True, return_truncation=True)
    assert (cut["num_truncated_tokens"], cut["num_truncated_sentences"]) == (0, 0)


def test_a_grid_is_full_row_by_row(words: PreTrainedTokenizerFast) -> None:
    processor = CoarseToFineLstmProcessor(words, rows="grid", row_length=5, num_rows=3)
    stream = flat(rows(CoarseToFineLstmProcessor(words)(text=DOCUMENTS[1])))
    cut = processor(text=DOCUMENTS[1], truncation=True, return_truncation=True)
    assert rows(cut) == [stream[i : i + 5] for i in (0, 5, 10)]
    assert cut["num_truncated_tokens"] == len(stream) - 15
    ends = np.flatnonzero(np.array(stream) == EOS) + 1
    assert cut["num_truncated_sentences"] == (ends > 15).sum() > 1
    uncut = processor(text=DOCUMENTS[1])
    assert rows(uncut) == [stream[i : i + 5] for i in range(0, len(stream), 5)]


def test_the_thesis_grid_is_the_default(words: PreTrainedTokenizerFast) -> None:
    processor = CoarseToFineLstmProcessor(words, rows="grid")
    assert (processor.row_length, processor.num_rows) == (40, 10)
    encoded = processor(text=" ".join(DOCUMENTS * 9), truncation=True, return_truncation=True)
    assert len(encoded["input_ids"]) == 400
    assert [len(row) for row in rows(encoded)] == [40] * 10
    assert encoded["num_truncated_tokens"] > 400
    sentences = CoarseToFineLstmProcessor(words)
    assert (sentences.row_length, sentences.num_rows) == (None, None)


def test_padding_of_the_grid_has_rows_and_no_mask(words: PreTrainedTokenizerFast) -> None:
    processor = CoarseToFineLstmProcessor(words, rows="grid", row_length=6, num_rows=4, pad_grid=True)
    encoded = processor(text=DOCUMENTS[2], truncation=True)
    stream = flat(rows(CoarseToFineLstmProcessor(words)(text=DOCUMENTS[2])))
    n = len(stream)
    assert 6 < n < 18
    assert encoded["input_ids"] == stream + [PAD] * (24 - n)
    assert encoded["attention_mask"] == [1] * n + [0] * (24 - n)
    assert encoded["row_ids"] == [i // 6 for i in range(24)]
    # In a batch with one that is not cut, what is beyond the grid is of no row.
    longer = processor(text=[DOCUMENTS[2], DOCUMENTS[1]], padding=True)
    assert longer["row_ids"][0][24:] == [-1] * (len(longer["row_ids"][1]) - 24) != []
    assert longer["row_ids"][0][:24] == encoded["row_ids"]
    assert longer["attention_mask"][0][n:] == [0] * (len(longer["row_ids"][1]) - n)


def test_empty_sentences_are_empty_rows(processor: CoarseToFineLstmProcessor) -> None:
    encoded = processor(sentences=["", SENTENCES[0], " \n", "", SENTENCES[1], ""], return_truncation=True)
    assert [len(row) for row in rows(encoded)] == [0, 7, 0, 0, 6]
    assert encoded["num_truncated_sentences"] == 0
    assert sorted(set(encoded["row_ids"])) == [1, 4]


@pytest.mark.parametrize(
    "empty",
    [{"text": ""}, {"text": " \n"}, {"sentences": []}, {"sentences": ["", ""]}, {"turns": []}, {"documents": [""]}],
)
@pytest.mark.parametrize("arrangement", [{}, {"rows": "grid", "row_length": 2, "num_rows": 2}, {"row_length": 1}])
def test_a_document_without_text_is_one_row(
    words: PreTrainedTokenizerFast, empty: dict[str, Any], arrangement: dict[str, Any]
) -> None:
    encoded = CoarseToFineLstmProcessor(words, **arrangement)(**empty, truncation=True)
    assert dict(encoded) == {"input_ids": [EOS], "attention_mask": [1], "row_ids": [0]}


def test_a_grid_of_nothing_is_padding(words: PreTrainedTokenizerFast) -> None:
    encoded = CoarseToFineLstmProcessor(words, rows="grid", row_length=2, num_rows=2, pad_grid=True)(text="")
    assert encoded["attention_mask"] == [1, 0, 0, 0]
    assert encoded["row_ids"] == [0, 0, 1, 1]


# ------------------------------------------------------------------------------------------------------ kinds of input


def test_sentences_of_running_text_give_the_same_as_text(processor: CoarseToFineLstmProcessor) -> None:
    for text in DOCUMENTS:
        sentences = [text[a:b] for a, b in processor.split_sentences(text)]
        assert processor(sentences=sentences) == processor(text=text)


def test_turns_are_rows(processor: CoarseToFineLstmProcessor) -> None:
    found = rows(processor(turns=TURNS))
    assert found == [[*plain(processor, f"{turn['role']}: {turn['content']}"), EOS] for turn in TURNS]
    assert len(rows(processor(turns=[{"role": "A", "content": " "}]))) == 1


def test_articles_are_split_and_follow_each_other(processor: CoarseToFineLstmProcessor) -> None:
    found = rows(processor(documents=DOCUMENTS[1:3]))
    assert found == [row for document in DOCUMENTS[1:3] for row in rows(processor(text=document))]


@pytest.mark.parametrize("kind", ["text", "sentences", "turns", "documents"])
def test_a_batch_is_its_members(processor: CoarseToFineLstmProcessor, kind: str) -> None:
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


def test_targets_end_and_do_not_begin(processor: CoarseToFineLstmProcessor) -> None:
    only = processor(text_target=SUMMARIES)
    assert only["labels"] == [[*plain(processor, summary), EOS] for summary in SUMMARIES]
    assert set(only) == {"labels"}
    assert processor(text=DOCUMENTS[0], text_target=SUMMARIES[0])["labels"] == only["labels"][0]
    cut = processor(text_target=SUMMARIES[0], truncation=True, max_target_length=4, return_truncation=True)
    assert cut["labels"] == [*only["labels"][0][:3], EOS]
    assert cut["num_truncated_target_tokens"] == len(only["labels"][0]) - 4
    assert processor(text_target="", truncation=True, max_target_length=1)["labels"] == [EOS]


def test_literal_special_tokens_are_text(processor: CoarseToFineLstmProcessor) -> None:
    found = rows(processor(text="The </s> ferry. <s> It <unk> closes<pad>."))
    assert len(found) == 2
    for row in found:
        assert set(row[:-1]).isdisjoint({0, PAD, EOS})


def test_surrogates_are_replaced(processor: CoarseToFineLstmProcessor) -> None:
    assert rows(processor(text="a \ud800 b"))[0].count(UNK) >= 1


# ---------------------------------------------------------------------------------------------------------- truncation


def test_a_limit_alone_cuts_as_in_transformers(words: PreTrainedTokenizerFast) -> None:
    assert_a_limit_alone_cuts(CoarseToFineLstmProcessor(words, rows="sentences"))


def test_truncation_counts_what_it_cuts(words: PreTrainedTokenizerFast) -> None:
    sentences = ["", "The bridge.", "", "A ferry runs every hour.", "Traffic", ""]
    for arrangement in ({}, {"row_length": 2}, {"rows": "grid", "row_length": 3, "num_rows": 99}):
        processor = CoarseToFineLstmProcessor(words, **arrangement)
        full = processor(sentences=sentences)
        stream, ends = full["input_ids"], np.flatnonzero(np.array(full["input_ids"]) == EOS) + 1
        for limit in range(1, len(stream) + 2):
            cut = processor(sentences=sentences, truncation=True, max_length=limit, return_truncation=True)
            kept = min(limit, len(stream))
            assert cut["input_ids"] == stream[:kept]
            assert cut["row_ids"] == full["row_ids"][:kept]
            assert cut["num_truncated_tokens"] == len(stream) - kept
            assert cut["num_truncated_sentences"] == (ends > kept).sum()


def test_rows_are_cut_too(words: PreTrainedTokenizerFast) -> None:
    processor = CoarseToFineLstmProcessor(words, num_rows=2)
    full = processor(text=DOCUMENTS[0])
    assert max(full["row_ids"]) == 5  # without truncation nothing is cut
    cut = processor(text=DOCUMENTS[0], truncation=True, return_truncation=True)
    assert rows(cut) == rows(full)[:2]
    assert cut["num_truncated_sentences"] == 4
    assert cut["num_truncated_tokens"] == sum(map(len, rows(full)[2:]))
    both = processor(text=DOCUMENTS[0], truncation=True, max_length=3)
    assert both["input_ids"] == full["input_ids"][:3]


def test_cuts_are_logged_once(processor: CoarseToFineLstmProcessor, caplog: pytest.LogCaptureFixture) -> None:
    from transformers.utils import logging

    logging.enable_propagation()
    with caplog.at_level("INFO"):
        for _ in range(2):
            processor(text=DOCUMENTS[2], text_target=SUMMARIES[2], truncation=True, max_length=9, max_target_length=4)
    logging.disable_propagation()
    found = [(record.levelname, record.getMessage()) for record in caplog.records if "cut" in record.getMessage()]
    assert [level for level, _ in found] == ["WARNING", "INFO"]
    assert found[0][1].startswith("Truncation cut 4 tokens of 1 texts and 6 tokens of 1 targets.")


# ------------------------------------------------------------------------------------------------- padding and batches


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_is_of_no_row(processor: CoarseToFineLstmProcessor, side: str) -> None:
    padded = processor(text=DOCUMENTS, text_target=SUMMARIES, padding=True, padding_side=side, return_tensors="pt")
    shape = padded["input_ids"].shape
    assert padded["row_ids"].shape == padded["attention_mask"].shape == shape
    assert padded["row_ids"].dtype == torch.long
    for i, text in enumerate(DOCUMENTS):
        alone = processor(text=text)
        seen = padded["attention_mask"][i].bool()
        for name in ("input_ids", "row_ids"):
            assert padded[name][i][seen].tolist() == alone[name]
        assert (padded["row_ids"][i][~seen] == -1).all()
        assert seen[0 if side == "right" else -1]
    assert (padded["labels"][3, 4:] == -100).all()


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_collator_pads_as_the_processor(words: PreTrainedTokenizerFast, side: str) -> None:
    tokenizer = type(words)(
        tokenizer_object=words.backend_tokenizer, padding_side=side, pad_token="<pad>", eos_token="</s>"
    )
    processor = CoarseToFineLstmProcessor(tokenizer)
    expected = processor(text=DOCUMENTS, text_target=SUMMARIES, padding=True, return_tensors="pt")
    batch = HierDataCollator(processor)(
        [dict(processor(text=text, text_target=target)) for text, target in zip(DOCUMENTS, SUMMARIES, strict=True)]
    )
    assert set(batch) == set(expected) == {"input_ids", "attention_mask", "row_ids", "labels"}
    for name, value in batch.items():
        assert torch.equal(value, expected[name]), name


def test_a_padded_grid_goes_through_the_collator(words: PreTrainedTokenizerFast) -> None:
    processor = CoarseToFineLstmProcessor(words, rows="grid", row_length=6, num_rows=4, pad_grid=True)
    documents = Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES})
    tokenized = tokenize_documents(documents, processor, max_source_length=24, max_target_length=8)
    batch = HierDataCollator(processor)([tokenized[i] for i in range(4)])
    assert batch["row_ids"].tolist() == [[i // 6 for i in range(24)]] * 4
    assert batch["attention_mask"].sum(1).tolist() == [24, 24, 13, 8]
    assert tokenized["num_truncated_tokens"][:2] == [40, 23]


def test_rows_stay_rows_at_a_limit(processor: CoarseToFineLstmProcessor) -> None:
    padded = processor(text=DOCUMENTS[2], padding="max_length", truncation=True, max_length=20, return_tensors="np")
    assert padded["row_ids"].shape == (1, 20)
    assert padded["row_ids"][0, -7:].tolist() == [-1] * 7


# -------------------------------------------------------------------------------------------- saving, other tokenizers


def test_saved_and_loaded(words: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    processor = CoarseToFineLstmProcessor(words, "grid", 5, 3, True, "german")
    processor.save_pretrained(tmp_path)
    loaded = CoarseToFineLstmProcessor.from_pretrained(tmp_path)
    assert vars(loaded).keys() == vars(processor).keys()
    for name in ("rows", "row_length", "num_rows", "pad_grid", "language"):
        assert getattr(loaded, name) == getattr(processor, name)
    assert loaded(text=DOCUMENTS) == processor(text=DOCUMENTS)
    assert CoarseToFineLstmProcessor.from_pretrained(tmp_path, num_rows=7).num_rows == 7


def test_pickling_does_not_change_with_use(processor: CoarseToFineLstmProcessor) -> None:
    state = pickle.dumps(processor)  # what `datasets` hashes for its cache
    processor(text=DOCUMENTS, truncation=True, max_length=4)
    assert pickle.dumps(processor) == state
    assert pickle.loads(state)(text=DOCUMENTS) == processor(text=DOCUMENTS)


def test_words_that_are_special_tokens_are_unknown() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0, "</s>": 1, "<unk>": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    processor = CoarseToFineLstmProcessor(
        PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
    )
    assert processor(text="a </s> a")["input_ids"] == [0, 2, 0, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": "lines"}, "`rows` must be one of sentences, grid, got 'lines'"),
        ({"row_length": 0}, "`row_length` must be an integer of at least 1 or None, got 0"),
        ({"num_rows": -1}, "`num_rows` must be an integer of at least 1 or None, got -1"),
        ({"num_rows": 2.0}, "`num_rows` must be an integer of at least 1 or None, got 2.0"),
        ({"num_rows": True}, "got True"),
        ({"pad_grid": True}, "`pad_grid` goes with rows=\"grid\", got rows='sentences'"),
        ({"pad_grid": 1, "rows": "grid"}, "`pad_grid` must be True or False, got 1"),
        ({"language": "klingon"}, "`language` must be one of"),
    ],
)
def test_wrong_settings(words: PreTrainedTokenizerFast, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CoarseToFineLstmProcessor(words, **settings)


def test_missing_tokens(words: PreTrainedTokenizerFast) -> None:
    backend = words.backend_tokenizer
    with pytest.raises(ValueError, match="has no eos_token; an EOS token ends each sentence"):
        CoarseToFineLstmProcessor(PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>"))
    without_padding = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    assert CoarseToFineLstmProcessor(without_padding, rows="grid")(text="a")["input_ids"]
    with pytest.raises(ValueError, match="has no pad_token; padding fills the grid"):
        CoarseToFineLstmProcessor(without_padding, rows="grid", pad_grid=True)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({}, ValueError, "give exactly one of .* got none"),
        ({"text": "a", "turns": TURNS}, ValueError, "got text and turns"),
        ({"text": 3}, TypeError, "`text` must be a string or a list of strings, got int"),
        ({"text": []}, ValueError, "`text` is an empty list"),
        ({"text": ["a", None]}, TypeError, r"`text\[1\]` must be a string, got NoneType"),
        ({"sentences": "a"}, TypeError, "`sentences` must be a list of strings, or a list of such lists, got str"),
        ({"sentences": [["a"], "b"]}, TypeError, r"`sentences\[1\]` must be a list of strings, got str"),
        ({"turns": [{"role": "A"}]}, ValueError, r"`turns\[0\]` must have the keys role and content, got \['role'\]"),
        ({"turns": [{"role": " ", "content": "a"}]}, ValueError, "name the speaker"),
        ({"documents": [["a"], [1]]}, TypeError, r"`documents\[1\]\[0\]` must be a string, got int"),
        ({"text": ["a"], "text_target": "b"}, ValueError, "`text_target` must match `text`, got one for a list of 1"),
        ({"text": "a", "truncation": "middle"}, ValueError, "`truncation` must be True or False, got 'middle'"),
        (
            {"text": "a", "truncation": True, "max_length": 0},
            ValueError,
            "`max_length` must be an integer of at least",
        ),
        ({"text_target": "a", "truncation": True, "max_target_length": 0}, ValueError, "`max_target_length` must be"),
    ],
)
def test_wrong_calls(
    processor: CoarseToFineLstmProcessor, call: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        processor(**call)


def test_row_ids_count_rows_without_gaps_where_no_sentence_is_empty(processor: CoarseToFineLstmProcessor) -> None:
    found = [row for row, _ in groupby(processor(text=DOCUMENTS[0])["row_ids"])]
    assert found == list(range(6))


def test_the_auto_class_finds_it(words: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    CoarseToFineLstmConfig(vocab_size=len(words)).save_pretrained(tmp_path)
    CoarseToFineLstmProcessor(words).save_pretrained(tmp_path)
    assert isinstance(AutoProcessor.from_pretrained(tmp_path), CoarseToFineLstmProcessor)
