"""Files of word vectors: every kind that is about, and every way in which one can be broken."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from hier_models.training import set_word_vectors
from hier_models.training.word_vectors import read_word_vectors


VECTORS = {"the": [0.5, -1.0, 2.0], "london": [1e-3, 0.25, -0.0], "##": [3.0, 1.5, 1.0]}


def text(vectors=None, header=True, separator=" ", end="\n"):
    vectors = VECTORS if vectors is None else vectors
    lines = [f"{word}{separator}{separator.join(map(str, values))}{end}" for word, values in vectors.items()]
    size = len(next(iter(vectors.values())))
    return ("".join([f"{len(vectors)} {size}\n"] * header + lines)).encode()


def binary(vectors=None, between=b"\n"):
    vectors = VECTORS if vectors is None else vectors
    size = len(next(iter(vectors.values())))
    parts = [word.encode() + b" " + struct.pack(f"<{size}f", *values) for word, values in vectors.items()]
    return f"{len(vectors)} {size}\n".encode() + between.join(parts) + between


def write(folder, content):
    file = folder / "vectors"
    file.write_bytes(content)
    return file


KINDS = {
    "word2vec text": text(),
    "word2vec text with a space at the end": text(end=" \n"),
    "word2vec binary": binary(),
    "word2vec binary without line ends": binary(between=b""),
    "GloVe": text(header=False),
    "with tabs": text(separator="\t"),
    "from Windows": text(end="\r\n"),
    "with a blank line at the end": text() + b"\n",
    "compressed text": gzip.compress(text(header=False)),
    "compressed binary": gzip.compress(binary()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read(tmp_path, kind):
    found = dict(read_word_vectors(write(tmp_path, KINDS[kind])))
    assert list(found) == list(VECTORS)
    for word, values in VECTORS.items():
        assert found[word].dtype == np.float32
        assert found[word].tolist() == np.array(values, dtype=np.float32).tolist()


def test_only_what_is_wanted_is_made(tmp_path):
    for content in (text(), binary()):
        found = dict(read_word_vectors(write(tmp_path, content), words={"london"}))
        assert [word for word, vector in found.items() if vector is not None] == ["london"]


def test_words_with_spaces_and_odd_characters(tmp_path):
    vectors = {". . .": [1.0, 2.0], "at name@domain.com": [3.0, 4.0], "a\u0085b": [5.0, 6.0], "x\u00a0y": [7.0, 8.0]}
    content = text({"the": [0.0, 0.0], **vectors}, header=False)
    found = dict(read_word_vectors(write(tmp_path, content)))
    assert {word: found[word].tolist() for word in vectors} == vectors


def test_a_word_that_is_no_utf8_is_one_nobody_looks_for(tmp_path):
    content = b"2 1\n\xff\xfe 0.5\nthe 1.0\n"
    assert [word for word, _ in read_word_vectors(write(tmp_path, content))] == ["\ufffd\ufffd", "the"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 2 3\nb 1 2\nc 1 2 3\n", "line 2: a word and 3 numbers were expected, got 2 numbers"),
        (b"a 1 2 3\nb 1 2 3 4\n", "line 2: a word and 3 numbers were expected, got 4 numbers"),
        (b"2 3\na 1 2 3\nb 1 2 3 -4e-5\n", "line 3: a word and 3 numbers were expected, got 4 numbers"),
        (b"2 3\na 1 2 3\nb 1 2", "line 3: a word and 3 numbers were expected, got 2 numbers"),
        (b"a 1 2 3\nb 1 x 3\n", "line 2: what stands behind 'b' are no numbers: .*x"),
        (b"a 1 2 3\nb 1 nan 3\n", "line 2: the vector of 'b' has numbers that are infinite or none at all"),
        (b"3 3\na 1 2 3\nb 1 2 3\n", "has 2 vectors, and its first line says 3; if it was not cut short"),
        (b"1 3\na 1 2 3\nb 1 2 3\n", "has 2 vectors, and its first line says 1"),
        (binary()[:-9], "ends in vector 3, and its first line says that it has 3"),
        (binary() + b"the " + b"\1" * 12, "goes on after the 3 vectors"),
        (b"9 3\n" + b"\xaa" * 99_999, "ends in vector 1"),
        (binary({"a": [1.0, float("inf")]}), "vector 1: the vector of 'a' has numbers that are infinite"),
        # The time of making would be in the test's name, and workers would collect different tests.
        (gzip.compress(text() * 50, mtime=0)[:-30], "was cut short"),
        (struct.pack("<30d", *range(30)), "its first line is neither .* GloVe's binary files hold no words"),
        (b"", "its first line is neither"),
        (b"just some words\nand more\n", "its first line is neither"),
        (b"0 0\n", "has vectors of 0 numbers"),
    ],
)
def test_broken_files_are_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        list(read_word_vectors(write(tmp_path, content)))


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        list(read_word_vectors(tmp_path / "nowhere"))


@pytest.mark.parametrize("make", [text, binary])
def test_the_file_is_not_held_in_memory(tmp_path, make):
    file = write(tmp_path, make({f"word{number}": [0.125] * 100 for number in range(3_000)}))
    assert file.stat().st_size > 1.1e6
    tracemalloc.start()
    for _ in read_word_vectors(file, words={"word7"}):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.9e6


# Into a model


class TablesConfig(PreTrainedConfig):
    model_type = "tables"
    vocab_size: int = 8
    width: int = 3


class Tables(PreTrainedModel):
    config_class = TablesConfig

    def __init__(self, config):
        super().__init__(config)
        self.source = nn.Embedding(config.vocab_size, config.width, padding_idx=0)
        self.target = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(4, config.width)
        self.post_init()


WORDS = ["<pad>", "</s>", "<unk>", "the", "london", "##", "gone", "Paris"]


@pytest.fixture
def words():
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("make", [text, binary])
def test_all_tables_of_the_vocabulary_are_filled(tmp_path, words, make):
    model = Tables(TablesConfig())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    vectors = {**VECTORS, "</s>": [9.0, 9.0, 9.0], "paris": [4.0, 4.0, 4.0], "PARIS": [5.0, 5.0, 5.0]}
    report = set_word_vectors(model, words, write(tmp_path, make(vectors)))
    for table in (model.source, model.target):
        for word in VECTORS:
            assert table.weight[WORDS.index(word)].tolist() == torch.tensor(VECTORS[word]).tolist()
        assert table.weight[7].tolist() == [4.0, 4.0, 4.0]
    for name in ("source.weight", "target.weight"):  # special tokens, and what has no vector
        assert torch.equal(model.state_dict()[name][[0, 1, 2, 6]], before[name][[0, 1, 2, 6]])
    assert torch.equal(model.positions.weight, before["positions.weight"])
    assert model.source.weight.requires_grad
    assert vars(report) == {
        "file": "vectors",
        "size": 3,
        "vectors": 6,
        "words": 5,
        "found": 4,
        "other_case": 1,
        "missing": ["gone"],
    }


def test_a_words_own_capitals_come_first(tmp_path, words):
    model = Tables(TablesConfig())
    vectors = {"LONDON": [1.0, 1.0, 1.0], "london": [2.0, 2.0, 2.0], "London": [3.0, 3.0, 3.0]}
    report = set_word_vectors(model, words, write(tmp_path, text(vectors)))
    assert model.source.weight[4].tolist() == [2.0, 2.0, 2.0]
    assert report.other_case == 0


def test_of_words_that_are_there_twice_the_first_counts(tmp_path, words):
    model = Tables(TablesConfig())
    set_word_vectors(model, words, write(tmp_path, b"the 1 1 1\nthe 2 2 2\n"))
    assert model.source.weight[3].tolist() == [1.0, 1.0, 1.0]


def test_what_is_found_is_said(tmp_path, words):
    report = set_word_vectors(Tables(TablesConfig()), words, write(tmp_path, text()))
    assert "vectors for 3 of 5 words of the vocabulary (60.0%); random as before: gone, Paris" in str(report)


def test_vectors_of_another_size_are_refused(tmp_path, words):
    with pytest.raises(ValueError, match="has vectors of 3 numbers, and the model's embeddings have 4"):
        set_word_vectors(Tables(TablesConfig(width=4)), words, write(tmp_path, text()))


def test_vectors_of_other_words_are_refused(tmp_path, words):
    with pytest.raises(ValueError, match=r"has a vector for no word of the vocabulary \(the, london, ##, gone, Par"):
        set_word_vectors(Tables(TablesConfig()), words, write(tmp_path, text({"other": [1.0, 2.0, 3.0]})))


def test_a_model_in_half_precision(tmp_path, words):
    model = Tables(TablesConfig()).to(torch.bfloat16)
    set_word_vectors(model, words, write(tmp_path, text()))
    assert model.source.weight[3].tolist() == [0.5, -1.0, 2.0]
