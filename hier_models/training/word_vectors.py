"""Word vectors of word2vec or GloVe, for the embeddings of a model that is trained from scratch."""

import gzip
import logging
import os
import re
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from ..data.tokenizing import plain_tokenizer


logger = logging.getLogger(__name__)

CHUNK = 1 << 16  # bytes
LONGEST_WORD = 1 << 14  # bytes; what has no end before is no word
SHOWN = 20  # missing words in a report
NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
GZIP = b"\x1f\x8b"


@dataclass
class WordVectorCoverage:
    """How much of a vocabulary has word vectors.

    Args:
        file: Where they are from.
        size: Numbers of a vector.
        vectors: Vectors in the file.
        words: Words of the vocabulary, without special tokens.
        found: How many of them have a vector.
        other_case: How many of these were only found with other capitals.
        missing: The first words without a vector, which keep random embeddings.
    """

    file: str
    size: int
    vectors: int
    words: int
    found: int
    other_case: int
    missing: list[str]

    def __str__(self) -> str:
        share = f"{self.found / self.words:.1%}" if self.words else "none"
        text = f"{self.file}: vectors for {self.found} of {self.words} words of the vocabulary ({share})"
        if self.other_case:
            text += f", {self.other_case} of them with other capitals"
        if self.missing:
            more = ", …" if self.words - self.found > len(self.missing) else ""
            text += f"; random as before: {', '.join(self.missing)}{more}"
        return text


def set_word_vectors(
    model: PreTrainedModel, processor: ProcessorMixin | PreTrainedTokenizerBase, path: str | os.PathLike[str]
) -> WordVectorCoverage:
    """Fill a model's embeddings with word vectors.

    All embedding tables of the vocabulary are filled: of the Coarse-to-Fine LSTM those of source, target and bag of
    words. A token has the vector of the word that is written as it is; where the file has none, of the first that
    differs in capitals alone. Special tokens, and words that have no vector, keep what they have.

    Args:
        model: A model whose embeddings are as wide as the vectors.
        processor: Its processor, or its tokenizer, whose tokens are words.
        path: A file as word2vec writes it (text or binary) or GloVe (text), as it is or compressed by gzip. It is read
            once from beginning to end, and no more than the vectors of the vocabulary is held in memory.

    Returns:
        How many words were found.

    Raises:
        ValueError: If the file is none of these, has a line or a number of vectors that does not fit, or vectors of
            another size than the model's embeddings; or no word of the vocabulary has a vector.
        OSError: If the file cannot be read.

    Source: Coarse-to-Fine LSTM, section 5.4.
    """
    tokenizer = plain_tokenizer(processor)
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    tables = [table for table in embeddings if table.num_embeddings == model.config.vocab_size]
    sizes = sorted({table.embedding_dim for table in tables})
    if not sizes:
        raise ValueError(f"{type(model).__name__} has no embeddings of words to fill")
    special = set(tokenizer.all_special_ids)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    words = {word: index for word, index in vocabulary if index not in special}
    folded: dict[str, list[int]] = {}  # in small letters -> token ids
    for word, index in words.items():
        folded.setdefault(word.lower(), []).append(index)
    exact: dict[int, np.ndarray[Any, Any]] = {}
    other_case: dict[int, np.ndarray[Any, Any]] = {}
    vectors = 0
    for word, vector in read_word_vectors(path, folded, sizes):
        vectors += 1
        if vector is not None:
            for index in folded[word.lower()]:
                if words.get(word) == index:
                    exact.setdefault(index, vector)
                    other_case.pop(index, None)
                elif index not in exact:
                    other_case.setdefault(index, vector)
    found = {**other_case, **exact}
    if not found:
        such = f"({', '.join(list(words)[:5])}, …)"
        raise ValueError(f"{path} has a vector for no word of the vocabulary {such}; its tokens must be whole words")
    size = len(next(iter(found.values())))
    ids, values = torch.tensor(list(found)), torch.from_numpy(np.stack(list(found.values())))
    with torch.no_grad():
        for table in tables:
            if table.embedding_dim == size:
                table.weight[ids.to(table.weight.device)] = values.to(table.weight)
    missing = [word for word, index in words.items() if index not in found]
    return WordVectorCoverage(
        file=Path(path).name,
        size=size,
        vectors=vectors,
        words=len(words),
        found=len(found),
        other_case=len(found) - len(exact),
        missing=missing[:SHOWN],
    )


def read_word_vectors(
    path: str | os.PathLike[str], words: Collection[str] | None = None, sizes: Collection[int] | None = None
) -> Iterator[tuple[str, np.ndarray[Any, Any] | None]]:
    """Read a file of word vectors, one after the other.

    Args:
        path: As word2vec writes it (text or binary) or GloVe (text), as it is or compressed by gzip.
        words: In small letters, the words whose vectors are wanted; by default all.
        sizes: How many numbers a vector may have; by default any number.

    Yields:
        A word, and its vector in float32, or None if nobody wants it.

    Raises:
        ValueError: If the file is none of these, or has a line, a size or a number of vectors that does not fit.
        OSError: If it cannot be read.
    """
    try:
        with Path(path).expanduser().open("rb") as file:
            compressed = file.read(2) == GZIP
            file.seek(0)
            yield from _read(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if compressed else file, path, words, sizes)
    except (EOFError, zlib.error) as error:
        raise ValueError(f"{path} was cut short, or is damaged: {error}") from error


def _read(
    stream: BinaryIO, path: Any, words: Collection[str] | None, sizes: Collection[int] | None
) -> Iterator[tuple[str, np.ndarray[Any, Any] | None]]:
    first = stream.readline(CHUNK)
    header = re.fullmatch(rb"(\d+)[ \t]+(\d+)\s*", first)
    promised: int | None
    if header:
        promised, size = int(header[1]), int(header[2])
        is_text = _is_text(stream.read(LONGEST_WORD))
    else:
        # Which spaces are a word's own cannot be told in the first line: there it must have none.
        promised, size, is_text = None, len(_fields(first)) - 1, True
        if size < 1 or not all(map(NUMBER.fullmatch, _fields(first)[1:])):
            raise ValueError(
                f"{path} must hold vectors as word2vec writes them (text or binary) or as GloVe does (text), and its "
                "first line is neither a word with its numbers nor a count and a size; GloVe's binary files hold no "
                "words"
            )
    if size < 1 or (sizes is not None and size not in sizes):
        wanted = " or ".join(map(str, sizes or ()))
        raise ValueError(f"{path} has vectors of {size} numbers, and the model's embeddings have {wanted or 'more'}")
    stream.seek(len(first) if header else 0)
    read, count = _read_text if is_text else _read_binary, 0
    for word, vector in read(stream, path, size, promised, words):
        count += 1
        yield word, vector
    if promised is not None and count != promised:
        remedy = "if it was not cut short, correct that line"
        raise ValueError(f"{path} has {count} vectors, and its first line says {promised}; {remedy}")


def _read_text(
    stream: BinaryIO, path: Any, size: int, promised: int | None, words: Collection[str] | None
) -> Iterator[tuple[str, np.ndarray[Any, Any] | None]]:
    # Lines end with \n alone, and fields with a space: what else Unicode has for both is a part of some words.
    for number, line in enumerate(stream, start=1 if promised is None else 2):
        if not line.strip():
            continue
        fields = _fields(line)
        own = fields[: max(1, len(fields) - size)]  # a word may hold spaces
        values = fields[len(own) :]
        if len(values) != size or any(map(NUMBER.fullmatch, own[1:])):
            count = len(values) + sum(NUMBER.fullmatch(part) is not None for part in own[1:])
            raise ValueError(f"{path}, line {number}: a word and {size} numbers were expected, got {count} numbers")
        word = b" ".join(own).decode("utf-8", errors="replace")
        if words is not None and word.lower() not in words:
            yield word, None
            continue
        try:
            vector = np.array(list(map(float, values)), dtype=np.float32)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: what stands behind {word!r} are no numbers: {error}") from error
        yield word, _finite(vector, f"{path}, line {number}", word)


def _read_binary(
    stream: BinaryIO, path: Any, size: int, promised: int | None, words: Collection[str] | None
) -> Iterator[tuple[str, np.ndarray[Any, Any] | None]]:
    data, place, width = b"", 0, 4 * size
    for number in range(1, (promised or 0) + 1):
        while (space := data.find(b" ", place)) < 0 or len(data) < space + 1 + width:
            more = stream.read(CHUNK)
            if not more or (space < 0 and len(data) - place > LONGEST_WORD):
                raise ValueError(f"{path} ends in vector {number}, and its first line says that it has {promised}")
            data, place = data[place:] + more, 0
        word = data[place:space].lstrip(b"\n").decode("utf-8", errors="replace")
        if words is None or word.lower() in words:
            vector = np.frombuffer(data, dtype="<f4", count=size, offset=space + 1).astype(np.float32)
            yield word, _finite(vector, f"{path}, vector {number}", word)
        else:
            yield word, None
        place = space + 1 + width
    if data[place:].strip() or stream.read(CHUNK).strip():
        raise ValueError(f"{path} goes on after the {promised} vectors that its first line says it has")


def _fields(line: bytes) -> list[bytes]:
    return line.rstrip(b" \t\r\n").replace(b"\t", b" ").split(b" ")


def _is_text(start: bytes) -> bool:
    """Whether a number that is written out follows the first word."""
    _, _, values = start.replace(b"\t", b" ").lstrip(b"\n").partition(b" ")
    return re.match(rb"[ ]*[-+.\deEnaif]+([ \r\n]|\Z)", values) is not None


def _finite(vector: np.ndarray[Any, Any], where: str, word: str) -> np.ndarray[Any, Any]:
    if not np.isfinite(vector).all():
        raise ValueError(f"{where}: the vector of {word!r} has numbers that are infinite or none at all")
    return vector
