"""Parallel corpora: documents with their translations, sentence by sentence, and their cutting into aligned chunks."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

from datasets import Dataset, IterableDataset, List
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from ..pipelines.chunking_hier import pack
from .cache_fingerprint import Versioned
from .columns import (
    PROBLEMS,
    TEXT,
    BadRecord,
    check_column,
    find_id,
    get_id,
    get_strings,
    listing,
    matching,
    wrong_type,
)
from .loading import LoadOptions, Source, load_rows
from .shared_counts import Counting, SharedCounts
from .tokenizing import DOCUMENTS_IN_MEMORY, check_lengths, plain_tokenizer


logger = logging.getLogger(__name__)

SOURCE_ALIASES = ("source", "src", "source_sentences", "source_text", "source_lines")
TARGET_ALIASES = ("target", "tgt", "trg", "target_sentences", "target_text", "target_lines")
# As the Hub's translation data sets have it: {"translation": {"en": …, "de": …}}.
CONTAINER = "translation"
# Columns of a chunk that are no inputs of a model: the number of its document, and how many sentences it has.
DOCUMENT = "document"
SENTENCES = "num_sentences"


# Rows


@dataclass(frozen=True)
class ParallelFormat:
    """Columns of aligned documents, made by `resolve_parallel`."""

    source: str  # column with the sentences of the source
    target: str  # column with the sentences of the translation
    id: str | None  # column with the identifier, or None
    container: str | None  # column that holds the two as a mapping, or None

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        features: dict[str, Any] = {"source": List(TEXT), "target": List(TEXT)}
        return features if self.id is None else {"id": TEXT, **features}

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into `source`, `target` (lists of sentences, as many in both) and `id`.

        A pair of sentences that are both empty says nothing and is left out. A pair of which one is empty cannot be
        learned from: it is left out of the document and reported.
        """
        source, target = (self._side(row, name) for name in (self.source, self.target))
        if len(source) != len(target):
            names = f"columns {self.source!r} and {self.target!r}"
            have = f"{len(source)} and {len(target)} sentences"
            raise BadRecord(f"{names} must be aligned, sentence by sentence, but have {have}")
        for name, side in ((self.source, source), (self.target, target)):
            if not any(side):
                raise BadRecord(f"column {name!r} is empty: a document needs at least one sentence on each side")
        document: dict[str, Any] = {"source": [], "target": []}
        problems = []
        for number, (a, b) in enumerate(zip(source, target, strict=True), start=1):
            if a and b:
                document["source"].append(a)
                document["target"].append(b)
            elif a or b:
                empty = self.target if a else self.source
                raw = json.dumps({self.source: a, self.target: b}, ensure_ascii=False)
                problems.append((f"sentence {number}: column {empty!r} is empty and the other is not", raw))
        if not document["source"]:
            raise BadRecord(f"no sentence has text in both columns {self.source!r} and {self.target!r}")
        if self.id is not None:
            document |= get_id({self.id: None, **row}, self.id)
        return {**document, PROBLEMS: problems} if problems else document

    def _side(self, row: Mapping[str, Any], name: str) -> list[str]:
        holder = row if self.container is None else row.get(self.container)
        if not isinstance(holder, Mapping):
            raise wrong_type(str(self.container), holder, "both languages by name")
        if name not in holder:
            where = "this record" if self.container is None else f"column {self.container!r}"
            raise BadRecord(f"column {name!r} is missing; {where} has {listing(list(holder))}")
        value = holder[name]
        if isinstance(value, str):
            # As in a text file, the last line may or may not end with a line break.
            value = value.removesuffix("\n").split("\n")
        wanted = "a list of sentences, or a string with a sentence on each line"
        return [" ".join(sentence.split()) for sentence in get_strings(name, value, wanted)]


def resolve_parallel(
    row: Mapping[str, Any], source_column: str | None = None, target_column: str | None = None
) -> ParallelFormat:
    """Recognize the columns of a parallel corpus."""
    inner = row.get(CONTAINER)
    named = [name for name in (source_column, target_column) if name]
    container = CONTAINER if isinstance(inner, Mapping) and not any(name in row for name in named) else None
    columns = list(inner) if container and isinstance(inner, Mapping) else list(row)
    found = []
    for argument, given, aliases in (
        ("source_column", source_column, SOURCE_ALIASES),
        ("target_column", target_column, TARGET_ALIASES),
    ):
        check_column(argument, given, columns)
        names = [given] if given else matching(columns, aliases)
        if len(names) != 1:
            what = f"{argument.removesuffix('_column')}: the columns are {listing(columns)}. Pass {argument}=…"
            raise ValueError(f"cannot tell which column holds the {what}")
        found += names
    if found[0] == found[1]:
        raise ValueError(f"source_column and target_column are both {found[0]!r}; they must differ")
    return ParallelFormat(found[0], found[1], find_id(row), container)


def load_parallel(
    source: Source,
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    **options: Unpack[LoadOptions],
) -> Dataset | IterableDataset:
    """Load documents with their translations, aligned sentence by sentence.

    A record is a document. Its two columns (`source` and `target`, or those that are named) hold lists of as many
    sentences each, or strings with as many lines each; they may also stand in a mapping, as in
    `{"translation": {"en": […], "de": […]}}`.

    Args:
        source: File, files, folder or id of a dataset on the Hub; see `load_documents`.
        source_column: Column with the source; None to recognize it by its name.
        target_column: Column with the translation; None to recognize it by its name.
        **options: `split`, `config_name`, `revision`, `streaming`, `bad_lines`, `set_aside_file` and `report` as in
            `load_documents`. A record is bad, too, if a whole side is empty or the sides have different lengths. Of a
            pair of sentences of which one is empty, only the pair is set aside.

    Returns:
        A dataset with `source` and `target` (lists of sentences, white space reduced to single spaces) and `id` if
        there is such a column.
    """
    resolve = partial(resolve_parallel, source_column=source_column, target_column=target_column)
    return load_rows(source, resolve, **options)


# Chunks


class ChunkReport(SharedCounts):
    """What became of the documents of a parallel corpus when they were cut into chunks.

    `documents` and `sentences` (pairs) were read and `chunks` made; `left_out_sentences` are pairs of which one side
    alone is longer than a chunk, and of `left_out_documents` nothing was left.
    """

    NAMES = ("documents", "sentences", "chunks", "left_out_sentences", "left_out_documents")

    def add_chunks(self, chunks: Mapping[str, Sequence[int]], documents: int, sentences: int) -> None:
        """Count the chunks of some documents."""
        self.add(
            documents=documents,
            sentences=sentences,
            chunks=len(chunks[DOCUMENT]),
            left_out_sentences=sentences - sum(chunks[SENTENCES]),
            left_out_documents=documents - len(set(chunks[DOCUMENT])),
        )

    def __str__(self) -> str:
        """One line for a log."""
        text = f"{self.documents} documents ({self.sentences} sentences) made {self.chunks} chunks"
        if not self.left_out_sentences:
            return text
        whole = f", and with them {self.left_out_documents} whole documents" if self.left_out_documents else ""
        return f"{text}; {self.left_out_sentences} sentences were left out, longer than a chunk by themselves{whole}"


@dataclass
class _Chunking:
    """Maps a batch of documents to chunks; holds only what decides the result, since datasets hashes it."""

    processor: ProcessorMixin | PreTrainedTokenizerBase
    limits: tuple[int | None, int | None]  # tokens of a chunk's source and target

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        rows: list[dict[str, Any]] = []
        for index, source, target in zip(indices, batch["source"], batch["target"], strict=True):
            rows += [{**chunk, DOCUMENT: index} for chunk in self._chunks(source, target)]
        extra = getattr(self.processor, "extra_inputs", {})
        names = ("input_ids", "attention_mask", *extra, "labels", SENTENCES, DOCUMENT)
        # A processor may have inputs that it makes only where it is given what they come from.
        return {name: [row[name] for row in rows] for name in names if not rows or name in rows[0]}

    def _chunks(self, source: list[str], target: list[str]) -> Iterator[dict[str, Any]]:
        """The chunks of a document, without the pairs that are too long for any."""
        sizes = list(zip(self._sizes(source, 1), self._sizes(target, 0), strict=True))

        def encode(start: int, end: int) -> tuple[dict[str, Any], tuple[int, int]]:
            chunk = self._encode(source[start:end], target[start:end])
            return chunk, (len(chunk["input_ids"]), len(chunk["labels"]))

        for start, end, chunk, fits in pack(sizes, self.limits, encode):
            if fits:
                yield {**chunk, SENTENCES: end - start}

    def _sizes(self, sentences: list[str], markers: int) -> list[int]:
        tokenizer = plain_tokenizer(self.processor)
        if isinstance(self.processor, PreTrainedTokenizerBase):
            markers = 0
        pieces = [f" {sentence}" for sentence in sentences]
        encoded = tokenizer(pieces, add_special_tokens=False, verbose=False)["input_ids"]
        return [len(ids) + markers for ids in encoded]

    def _encode(self, source: list[str], target: list[str]) -> dict[str, Any]:
        reference = " ".join(target)
        if isinstance(self.processor, PreTrainedTokenizerBase):
            return dict(self.processor(" ".join(source), text_target=reference, verbose=False))
        return dict(self.processor(sentences=source, text_target=reference))


def _count_batch(
    report: ChunkReport, chunks: Mapping[str, Sequence[int]], batch: Mapping[str, Sequence[Any]], indices: list[int]
) -> None:
    report.add_chunks(chunks, len(indices), sum(map(len, batch["source"])))


def chunk_parallel(
    dataset: Dataset | IterableDataset,
    processor: ProcessorMixin | PreTrainedTokenizerBase,
    *,
    max_source_length: int | None = 512,
    max_target_length: int | None = 512,
    num_proc: int | None = None,
    report: ChunkReport | None = None,
) -> Dataset | IterableDataset:
    """Cut aligned documents into chunks of whole sentences, the same sentences on both sides, and tokenize them.

    A chunk has as many sentences as fit both limits. A pair of sentences of which one alone is longer than a limit
    cannot be cut so that the halves stay aligned: it is left out and counted.

    Args:
        dataset: What `load_parallel` gives.
        processor: A processor of one of our families, or the tokenizer of a model that sees no structure.
        max_source_length: Tokens of the source of a chunk, markers included; None for no limit.
        max_target_length: Tokens of its translation, special tokens included; None for no limit.
        num_proc: Processes to use; None for one. A streamed dataset ignores it.
        report: Is given the counts, if passed.

    Returns:
        A dataset with one row for each chunk: `input_ids`, `attention_mask`, the processor's extra inputs, `labels`,
        and two that are no inputs: `num_sentences`, and `document`, the number of its document in `dataset`.

    Raises:
        ValueError: If a length is too small, or the dataset has not the columns `source` and `target`.

    Source: HAT-BART, section 4.2 ("chunks of at most 512 tokens", split "at sentence boundaries").
    """
    check_lengths(max_source_length=max_source_length, max_target_length=max_target_length)
    columns = dataset.column_names or list(next(iter(dataset)))
    if not {"source", "target"} <= set(columns):
        raise ValueError(f"dataset must have the columns source and target, got {', '.join(columns)}")
    report = ChunkReport() if report is None else report
    chunking = _Chunking(processor, (max_source_length, max_target_length))
    options: dict[str, Any] = {"batched": True, "batch_size": DOCUMENTS_IN_MEMORY, "remove_columns": columns}
    options["with_indices"] = True
    if isinstance(dataset, IterableDataset):
        return dataset.map(Counting(chunking, partial(_count_batch, report)), **options)
    chunks = dataset.map(Versioned(chunking), num_proc=num_proc, desc="Cutting into chunks", **options)
    sources = dataset.select_columns("source").iter(batch_size=DOCUMENTS_IN_MEMORY)
    sentences = sum(len(source) for batch in sources for source in batch["source"])
    counted = {name: list(chunks[name]) if len(chunks) else [] for name in (SENTENCES, DOCUMENT)}
    report.add_chunks(counted, len(dataset), sentences)
    logger.log(logging.WARNING if report.left_out_sentences else logging.INFO, "%s", report)
    if len(chunks) == 0:
        raise ValueError(f"dataset: no chunk is left ({report}); raise max_source_length and max_target_length")
    return chunks
