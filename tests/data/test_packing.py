from itertools import chain

import pytest
from datasets import Dataset, IterableDataset
from transformers import RobertaTokenizer

from hier_models.data.packing import PackingReport, pack_documents
from hier_models.models.tokenization_hat_encoder import HatEncoderTokenizer
from tests.conftest import DOCUMENTS


@pytest.fixture
def roberta(tokenizer):
    return RobertaTokenizer(tokenizer_object=tokenizer.backend_tokenizer)


@pytest.fixture
def hat(roberta):
    return HatEncoderTokenizer.from_tokenizer(roberta)


def pack(tokenizer, documents, **options):
    report = PackingReport()
    packed = pack_documents(Dataset.from_dict({"text": documents}), tokenizer, report=report, **options)
    assert packed.column_names == ["input_ids"]
    return [list(row) for row in packed["input_ids"]], report.as_dict()


def split_at(row, token):
    """The pieces of a row that begin with a token, without it."""
    places = [number for number, value in enumerate(row) if value == token]
    return [row[a + 1 : b] for a, b in zip(places, [*places[1:], len(row)], strict=True)]


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("length", [20, 37, 64, 128, 500])
def test_whole_sentences_and_nothing_lost(hat, length, across):
    rows, report = pack(hat, DOCUMENTS, max_length=length, across_documents=across)
    sentences = [sentence for document in hat.encode_sentences(DOCUMENTS) for sentence in document]
    assert all(len(row) <= length for row in rows)
    assert all(row[0] == hat.bos_token_id and row[-1] == hat.eos_token_id for row in rows)
    pieces = [[token for token in piece if token != hat.eos_token_id] for row in rows for piece in split_at(row, 0)]
    assert hat.bos_token_id == 0
    assert list(chain(*pieces)) == list(chain(*sentences))
    room = length - 2
    long = [sentence for sentence in sentences if len(sentence) > room]
    cut = sum(-(-len(sentence) // room) for sentence in long)
    assert [piece for piece in pieces if piece in sentences] == [s for s in sentences if len(s) <= room]
    assert report == {
        "rows": len(rows),
        "tokens": sum(map(len, rows)),
        "sentences": len(sentences) - len(long) + cut,
        "cut_sentences": cut,
    }
    if across:
        # As few rows as the order allows: what begins a row did not fit into the one before.
        firsts = [next(piece for piece in split_at(row, 0)) for row in rows]
        for before, first in zip(rows, firsts[1:], strict=False):
            assert len(before) + 1 + len([token for token in first if token != 2]) + 1 > length
        assert length < 64 or any(2 in row[:-1] for row in rows)
    else:
        assert not any(2 in row[:-1] for row in rows)


def test_one_row_by_hand(hat):
    (first, second), (third,) = hat.encode_sentences(["The library opens at nine. It closes at six.", "A sentence."])
    whole = len(first) + len(second) + 3
    texts = ["The library opens at nine. It closes at six.", "A sentence."]
    assert pack(hat, texts, max_length=whole)[0] == [[0, *first, 0, *second, 2], [0, *third, 2]]
    assert pack(hat, texts, max_length=whole - 1)[0] == [[0, *first, 2], [0, *second, 2], [0, *third, 2]]
    across = pack(hat, texts, max_length=whole + len(third) + 2, across_documents=True)[0]
    assert across == [[0, *first, 0, *second, 2, 0, *third, 2]]
    across = pack(hat, texts, max_length=whole + len(third) + 1, across_documents=True)[0]
    assert across == [[0, *first, 0, *second, 2], [0, *third, 2]]


def test_a_model_without_hierarchy_gets_the_same_sentences_without_their_markers(hat, roberta):
    (first, second), (third,) = hat.encode_sentences(["The library opens at nine. It closes at six.", "A sentence."])
    texts = ["The library opens at nine. It closes at six.", "A sentence."]
    whole = len(first) + len(second) + 2
    assert pack(roberta, texts, max_length=whole)[0] == [[0, *first, *second, 2], [0, *third, 2]]
    assert pack(roberta, texts, max_length=whole - 1)[0] == [[0, *first, 2], [0, *second, 2], [0, *third, 2]]
    # What RoBERTa's tokenizer makes of them.
    assert pack(roberta, texts, max_length=whole)[0] == [list(ids) for ids in roberta(texts)["input_ids"]]


def test_a_stream_is_packed_and_counted_as_it_goes_by(hat):
    report = PackingReport()
    stream = IterableDataset.from_generator(lambda: ({"text": text} for text in DOCUMENTS))
    packed = pack_documents(stream, hat, max_length=64, report=report)
    assert report.as_dict()["rows"] == 0
    rows = [row["input_ids"] for row in packed]
    assert rows == pack(hat, DOCUMENTS, max_length=64)[0]
    assert report.as_dict()["rows"] == len(rows)


def test_documents_without_a_token_have_no_row(hat):
    assert len(pack(hat, ["", "One.", ""], max_length=16)[0]) == 1


def test_bad_input(hat):
    with pytest.raises(ValueError, match="max_length must be at least 3"):
        pack(hat, DOCUMENTS, max_length=2)
    with pytest.raises(ValueError, match="exactly one of the columns"):
        pack_documents(Dataset.from_dict({"words": ["a"]}), hat, max_length=16)
