"""Documents to rows of whole sentences, for pretraining."""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from datasets import Dataset, Features, IterableDataset, List, Value
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from ..models.tokenization_hat_encoder import HatEncoderTokenizer
from .cache_fingerprint import Versioned
from .shared_counts import Counting, SharedCounts
from .tokenizing import DOCUMENTS_IN_MEMORY, plain_text, plain_tokenizer, source_kind


logger = logging.getLogger(__name__)

COUNTS = ("num_tokens", "num_sentences", "num_cut_sentences")
PIECES = "pieces"
ROWS_TO_COUNT = 10_000


class PackingReport(SharedCounts):
    """What became of the documents that were packed.

    There are `rows` with `tokens` and `sentences`; `cut_sentences` are pieces of sentences that are longer than a row,
    of which nothing is lost.
    """

    NAMES = ("rows", "tokens", "sentences", "cut_sentences")


class _Packing:
    """Maps a batch of documents to rows; holds only what decides the result, since datasets hashes it."""

    def __init__(
        self,
        processor: ProcessorMixin | PreTrainedTokenizerBase,
        kind: str,
        length: int,
        across_documents: bool,
        pieces: bool,
    ) -> None:
        tokenizer = plain_tokenizer(processor)
        self.kind = kind
        self.length = length
        self.across_documents = across_documents
        self.pieces = pieces
        # A model without hierarchy gets the same sentences, without the markers before all but the first.
        self.markers = hasattr(tokenizer, "encode_sentences")
        self.tokenizer = HatEncoderTokenizer.from_tokenizer(tokenizer)

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        texts = [plain_text(self.kind, source) for source in batch[self.kind]]
        bos, eos = cast(int, self.tokenizer.bos_token_id), cast(int, self.tokenizer.eos_token_id)
        if not self.pieces:
            rows = list(self._rows(self.tokenizer.encode_sentences(texts), [bos], [eos]))
            return {name: [row[number] for row in rows] for number, name in enumerate(("input_ids", *COUNTS))}
        rows = list(self._rows(self.tokenizer.encode_with_pieces(texts), [(bos, "")], [(eos, "")]))
        columns = {name: [row[number] for row in rows] for number, name in enumerate(COUNTS, 1)}
        both = {name: [[token[i] for token in row[0]] for row in rows] for i, name in enumerate(("input_ids", PIECES))}
        return {**both, **columns}

    def _rows(
        self, documents: list[list[list[Any]]], bos: list[Any], eos: list[Any]
    ) -> Iterator[tuple[list[Any], int, int, int]]:
        """(tokens, how many, sentences, pieces of too long sentences) of each row."""
        begin, marker = ([], bos) if self.markers else (bos, [])
        longest = self.length - len(bos) - len(eos)
        ids, end, sentences, cut = list(begin), eos, 0, 0  # `end` is empty where the row has its EOS already
        for document in documents:
            for sentence in document:
                for start in range(0, len(sentence), longest):
                    piece = [*marker, *sentence[start : start + longest]]
                    if len(ids) + len(piece) + len(eos) > self.length:
                        yield [*ids, *end], len(ids) + len(end), sentences, cut
                        ids, sentences, cut = list(begin), 0, 0
                    ids, end, sentences, cut = ids + piece, eos, sentences + 1, cut + (len(sentence) > longest)
            if sentences:
                ids, end = [*ids, *end], []
            if sentences and not self.across_documents:
                yield ids, len(ids), sentences, cut
                ids, sentences, cut = list(begin), 0, 0
        if sentences:
            yield ids, len(ids), sentences, cut


def _count_rows(report: PackingReport, rows: dict[str, list[Any]], *_: Any) -> None:
    """Count some rows, and take the counts away."""
    tokens, sentences, cut = (rows.pop(name) for name in COUNTS)
    report.add(rows=len(tokens), tokens=sum(tokens), sentences=sum(sentences), cut_sentences=sum(cut))


def pack_documents(
    dataset: Dataset | IterableDataset,
    processor: ProcessorMixin | PreTrainedTokenizerBase,
    *,
    max_length: int,
    across_documents: bool = False,
    pieces: bool = False,
    num_proc: int | None = None,
    report: PackingReport | None = None,
) -> Dataset | IterableDataset:
    """Pack the sentences of documents into rows, as many whole ones as fit into each.

    Nothing is lost: a sentence that is longer than a row is cut into pieces, which are counted.

    Args:
        dataset: What `load_documents` gives.
        processor: A processor or tokenizer that puts a marker before every sentence; or a plain one, of a model
            without hierarchy, whose rows then hold the same sentences with one BOS at the beginning.
        max_length: Tokens of a row, markers included.
        across_documents: Whether a row that is not full goes on with the next document, behind an EOS. Rows end where
            datasets' batches of documents do.
        pieces: Whether to give the characters of each token, too.
        num_proc: Processes to use; None for one.
        report: Is given the counts, if passed.

    Returns:
        A dataset with `input_ids`, `<s> sentence <s> sentence … </s>`; with `pieces` also of each token its characters
        and what is between them and those of the token before, "" of a marker.

    Raises:
        ValueError: If a row could not hold a marker, a token and the end.

    Source: section 7 follows RoBERTa's pre-processing, DOC-SENTENCES (its section 4.2): rows of whole sentences up to
        512 tokens that do not cross documents. FULL-SENTENCES are those that do.
    """
    if max_length < 3:
        raise ValueError(f"max_length must be at least 3 (a marker, a token and the end), got {max_length}")
    report = PackingReport() if report is None else report
    columns = dataset.column_names or list(next(iter(dataset)))
    packing = _Packing(processor, source_kind(columns), max_length, across_documents, pieces)
    options: dict[str, Any] = {"batched": True, "batch_size": DOCUMENTS_IN_MEMORY, "remove_columns": columns}
    features = {"input_ids": List(Value("int32")), **({PIECES: List(Value("string"))} if pieces else {})}
    if isinstance(dataset, IterableDataset):
        return dataset.map(Counting(packing, partial(_count_rows, report)), features=Features(features), **options)
    counted = Features({**features, **{name: Value("int32") for name in COUNTS}})
    packed = dataset.map(Versioned(packing), num_proc=num_proc, features=counted, desc="Packing sentences", **options)
    for counts in packed.select_columns(list(COUNTS)).iter(batch_size=ROWS_TO_COUNT):
        _count_rows(report, counts)
    logger.info("%s", report.as_dict())
    return packed.remove_columns(list(COUNTS))
