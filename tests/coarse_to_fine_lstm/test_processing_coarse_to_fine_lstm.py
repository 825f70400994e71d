"""CoarseToFineLstmProcessor: rows of sentences and of a grid, truncation, padding, saving, any tokenizer."""

from collections.abc import Iterable
from itertools import chain, groupby
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hier_models import CoarseToFineLstmProcessor, HierDataCollator
from hier_models.data import tokenize_documents, train_word_level
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


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


def test_a_target_may_be_its_end_alone(processor: CoarseToFineLstmProcessor) -> None:
    assert processor(text_target="", truncation=True, max_target_length=1)["labels"] == [EOS]


def test_surrogates_are_replaced(processor: CoarseToFineLstmProcessor) -> None:
    assert rows(processor(text="a \ud800 b"))[0].count(UNK) >= 1


# ---------------------------------------------------------------------------------------------------------- truncation


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


# ------------------------------------------------------------------------------------------------- padding and batches


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


def test_row_ids_count_rows_without_gaps_where_no_sentence_is_empty(processor: CoarseToFineLstmProcessor) -> None:
    found = [row for row, _ in groupby(processor(text=DOCUMENTS[0])["row_ids"])]
    assert found == list(range(6))
