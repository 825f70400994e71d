"""Documents and summaries to token ids, with a count of everything that did not fit."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast, get_args

import punkt
from datasets import Dataset, IterableDataset
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase, ProcessorMixin
from transformers.models.whisper.tokenization_whisper import LANGUAGES

from ..pipelines.document_pipeline_hier import as_text, highlights
from ..pipelines.importance_tagger_hier import ImportanceTagger, Span
from ..pipelines.long_documents_hier import is_about, only_sentences, shorten, sizes_of, with_query
from .cache_fingerprint import Versioned
from .columns import QUERY
from .importance import check_importance_language, oracle_spans
from .phrase_columns import PHRASES, has_places
from .record_readers import KINDS, Kind
from .shared_counts import Counting, SharedCounts


logger = logging.getLogger(__name__)

# Columns of a tokenized dataset that count what was cut; they are no inputs of a model.
CUT_TOKENS = "num_truncated_tokens"
CUT_SENTENCES = "num_truncated_sentences"
CUT_TARGET_TOKENS = "num_truncated_target_tokens"
CUT_COLUMNS = (CUT_TOKENS, CUT_SENTENCES, CUT_TARGET_TOKENS)
# Whether no token of a document is important, where its tokens have weights.
WITHOUT_IMPORTANCE = "without_importance"
# What became of the phrases to highlight, where the processor highlights any.
PHRASE_COLUMNS = ("num_missing_phrases", "num_truncated_phrases", "num_long_phrases", "without_phrases")
EXTRA_COLUMNS = (WITHOUT_IMPORTANCE, *PHRASE_COLUMNS)
COUNT_COLUMNS = (*CUT_COLUMNS, *EXTRA_COLUMNS)

# Where the weights of tokens come from: the reference summary ("oracle"), or a tagger.
Importance = Literal["oracle"] | ImportanceTagger

# What becomes of a document that is too long: its end is cut off, or what says the most of it is read.
LongDocuments = Literal["cut", "condense"]

DOCUMENTS_IN_MEMORY = 100
NO_LIMIT = 2**31  # processors take a missing limit for the tokenizer's own


class TruncationReport(SharedCounts):
    """What did not fit into the model's inputs, over all `documents` that were tokenized.

    `truncated_documents`, `truncated_tokens` and `truncated_sentences` (0 for a plain tokenizer, which tells none
    apart) count what lost a token of the sources, `truncated_summaries` and `truncated_summary_tokens` of the
    summaries. Documents `without_importance` have weights of tokens and no important one, so that all weigh the same.
    `missing_phrases` are not in their documents; `truncated_phrases` and `long_phrases` are occurrences that lost a
    token, or have too many to be highlighted; in documents `without_phrases` nothing is highlighted.
    """

    NAMES = (
        *("documents", "truncated_documents", "truncated_tokens", "truncated_sentences"),
        *("truncated_summaries", "truncated_summary_tokens"),
        *(column.removeprefix("num_") for column in EXTRA_COLUMNS),
    )

    def __init__(self) -> None:
        super().__init__()
        self._expected = set(self.NAMES[:6])

    def expect(self, *columns: str) -> None:
        """Make counts a part of the report that are not counted of all models."""
        self._expected |= {column.removeprefix("num_") for column in columns}

    def add_columns(self, columns: Mapping[str, Any], *_: Any) -> None:
        """Count some documents by the columns that a tokenization adds."""
        tokens, sentences, target_tokens = (list(columns[name]) for name in CUT_COLUMNS)
        self.add(
            documents=len(tokens),
            truncated_documents=sum(number > 0 for number in tokens),
            truncated_tokens=sum(tokens),
            truncated_sentences=sum(sentences),
            truncated_summaries=sum(number > 0 for number in target_tokens),
            truncated_summary_tokens=sum(target_tokens),
            **{name.removeprefix("num_"): sum(columns[name]) for name in EXTRA_COLUMNS if name in columns},
        )

    def as_dict(self) -> dict[str, Any]:
        """The report for a results file; what is not counted of all models, only where it is expected."""
        return {name: number for name, number in super().as_dict().items() if name in self._expected}

    def __str__(self) -> str:
        """One line for a log."""
        cuts = []
        if self.truncated_documents:
            sentences = f" ({self.truncated_sentences} sentences cut or lost)" if self.truncated_sentences else ""
            cuts.append(f"{self.truncated_documents} did not fit and lost {self.truncated_tokens} tokens{sentences}")
        if self.truncated_summaries:
            cuts.append(f"{self.truncated_summaries} summaries lost {self.truncated_summary_tokens} tokens")
        if self.without_importance:
            cuts.append(f"{self.without_importance} have no important token, and average pooling")
        for number, what in (
            (self.missing_phrases, "phrases are not in their documents"),
            (self.truncated_phrases, "occurrences of phrases lost tokens"),
            (self.long_phrases, "occurrences of phrases are too long and not highlighted"),
            (self.without_phrases, "documents have nothing highlighted"),
        ):
            if number:
                cuts.append(f"{number} {what}")
        return f"{self.documents} documents tokenized{': ' if cuts else ', nothing cut'}{'; '.join(cuts)}"


@dataclass
class _Tokenization:
    """Maps a batch of documents to model inputs; holds only what decides the result, since datasets hashes it."""

    processor: ProcessorMixin | PreTrainedTokenizerBase
    kind: Kind
    max_source_length: int | None
    max_target_length: int | None
    long_documents: LongDocuments
    prefix: str
    importance: Importance | None = None

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        queries = batch.get(QUERY) or [None] * len(batch[self.kind])
        read = [self._read(source, query or None) for source, query in zip(batch[self.kind], queries, strict=True)]
        if PHRASES in batch and highlights(self.processor):
            self._check_places(batch, [source for source, _ in read], queries)
        inputs = self._inputs({**batch, self.kind: [source for source, _ in read]})
        omitted = [number for _, number in read]
        inputs[CUT_TOKENS] = [sum(numbers) for numbers in zip(inputs[CUT_TOKENS], omitted, strict=True)]
        return inputs

    def _read(self, source: Any, query: str | None) -> tuple[Any, int]:
        """What is read of a document, after its query, and how many tokens of it are left out before it is cut."""

        def asked(kind: str, source: Any) -> Any:
            return with_query(kind, source, query) if query else source

        def length(source: Any, kind: str = self.kind) -> int:
            return self._length(kind, asked(kind, source))

        limit, kind = self.max_source_length, self.kind
        if self.long_documents == "cut" or limit is None:
            return asked(kind, source), 0
        tokens, sizes = length(source), partial(sizes_of, plain_tokenizer(self.processor))
        if tokens <= limit:
            read = only_sentences(source, sizes, self.processor) if kind == "text" and not query else source
            return asked(kind, read), 0 if read is source else tokens - length(read)
        wanted = query if query and is_about(query, plain_text(kind, source)) else None
        how = (max(1, limit - length("", "text")), sizes, self.processor, wanted)
        read = shorten(kind, source, *how, limit=limit, length=length)
        return asked(kind, read), tokens - length(read)

    def _check_places(self, batch: dict[str, list[Any]], read: list[Any], queries: list[str | None]) -> None:
        """Refuse phrases given by characters of a source that is not read as it is."""
        for number, (source, phrases) in enumerate(zip(batch[self.kind], batch[PHRASES], strict=True)):
            if read[number] != source and has_places(phrases):
                what = "a query before the document moves" if queries[number] else "condensing moves"
                wanted = "no query" if queries[number] else "long_documents='cut'"
                raise ValueError(
                    f"the document {_named(batch, number, plain_text(self.kind, source))} has the start and end of a "
                    f"phrase, which {what}; give its words, or {wanted}"
                )

    def _length(self, kind: str, source: Any) -> int:
        if isinstance(self.processor, PreTrainedTokenizerBase):
            return len(self.processor(self.prefix + plain_text(kind, source), verbose=False)["input_ids"])
        return len(self.processor(**{kind: [source]}, truncation=False, return_truncation=True)["input_ids"][0])

    def _inputs(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if isinstance(self.processor, PreTrainedTokenizerBase):
            return self._with_tokenizer(self.processor, batch)
        if self.kind == "turns":
            check_roles(batch, getattr(self.processor, "num_segments", 0))
        source: dict[str, list[Any]] = {self.kind: batch[self.kind]}
        weights = self._importance(source, batch)
        phrases = batch.get(PHRASES) if highlights(self.processor) else None
        try:
            inputs = self.processor(
                **source,
                text_target=batch.get("summary"),
                truncation=True,
                max_length=self.max_source_length or NO_LIMIT,
                max_target_length=self.max_target_length or NO_LIMIT,
                return_truncation=True,
                **({} if weights is None else {"importance": weights}),
                **({} if phrases is None else {"phrases": phrases}),
            )
        except ValueError:
            if phrases is not None:
                check_phrases(batch, self.kind, self.processor, self.max_source_length)  # says which document it is
            raise
        # A processor without markers counts no sentences.
        return {**dict.fromkeys(CUT_COLUMNS, [0] * len(inputs["input_ids"])), **inputs}

    def _importance(self, source: dict[str, list[Any]], batch: dict[str, list[Any]]) -> list[list[Span]] | None:
        """Spans of important characters for each document, or None where tokens have no weights."""
        if isinstance(self.importance, ImportanceTagger):
            return self.importance.tag_sources(self.processor, self.max_source_length, source)
        return None if self.importance is None else oracle_spans(self.processor, source, batch["summary"])

    def _with_tokenizer(self, tokenizer: PreTrainedTokenizerBase, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        texts = [self.prefix + plain_text(self.kind, source) for source in batch[self.kind]]
        inputs, cut = cut_texts(tokenizer, self.max_source_length, text=texts)
        counts = {CUT_TOKENS: cut, CUT_SENTENCES: [0] * len(texts), CUT_TARGET_TOKENS: [0] * len(texts)}
        if "summary" in batch:
            labels, counts[CUT_TARGET_TOKENS] = cut_texts(
                tokenizer, self.max_target_length, text_target=batch["summary"]
            )
            inputs["labels"] = labels["input_ids"]
        return {**inputs, **counts}


def check_roles(batch: dict[str, list[Any]], segments: int) -> None:
    """Refuse a dialogue with more roles than segments, and say which one; the processor sees only its batch."""
    for number, turns in enumerate(batch["turns"]):
        roles = list(dict.fromkeys(turn["role"].strip() for turn in turns))
        if segments and len(roles) > segments:
            found = f"{len(roles)} roles ({', '.join(roles[:5])}{', …' if len(roles) > 5 else ''})"
            raise ValueError(
                f"the dialogue {_named(batch, number, turns[0]['content'])} has {found}, but there are only "
                f"num_segments={segments} segment embeddings: set num_segments: {len(roles)}, or merge roles"
            )


def check_phrases(
    batch: dict[str, list[Any]], kind: str, processor: ProcessorMixin, max_length: int | None = None
) -> None:
    """Refuse phrases that cannot be highlighted, and say of which document; the processor sees only its batch."""
    for number, (source, phrases) in enumerate(zip(batch[kind], batch[PHRASES], strict=True)):
        if phrases:
            try:
                limit = NO_LIMIT if max_length is None else max_length
                options: dict[str, Any] = {"truncation": True, "max_length": limit, "return_truncation": True}
                cast(Any, processor)(**{kind: source}, phrases=phrases, **options)
            except ValueError as error:
                raise ValueError(f"the document {_named(batch, number, plain_text(kind, source))}: {error}") from error


def _named(batch: dict[str, list[Any]], number: int, text: str) -> str:
    return f"with id {batch['id'][number]!r}" if "id" in batch else f"that begins {text[:60]!r}"


def cut_texts(
    tokenizer: PreTrainedTokenizerBase, limit: int | None, **texts: list[str]
) -> tuple[dict[str, list[Any]], list[int]]:
    """Tokenize, cut to the limit, and count the tokens cut off each text."""
    encoding = tokenizer(**texts, verbose=False)
    lengths = [len(ids) for ids in encoding["input_ids"]]
    if limit is not None and max(lengths) > limit:
        encoding = tokenizer(**texts, truncation=True, max_length=limit)
    return dict(encoding), [before - len(ids) for before, ids in zip(lengths, encoding["input_ids"], strict=True)]


def language_of(processor: Any) -> str:
    """Give the name by which punkt knows the language of a processor's texts; some processors keep its code."""
    language = getattr(processor, "language", "english")
    name = LANGUAGES.get(language, language)
    return name if name in punkt.available_languages() else "english"


def plain_tokenizer(processor: ProcessorMixin | PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer of a processor."""
    return cast(PreTrainedTokenizerBase, getattr(processor, "tokenizer", processor))


def plain_text(kind: str, source: Any) -> str:
    """A source as one string, for models that see no structure, as their pipeline reads it."""
    return as_text(kind, source, replace=True)


def source_kind(columns: list[str]) -> Kind:
    """The column that holds the source."""
    found = [kind for kind in KINDS if kind in columns]
    if len(found) != 1:
        raise ValueError(
            f"dataset must have exactly one of the columns {', '.join(KINDS)}, got {', '.join(columns)}; "
            "load_documents gives such a dataset"
        )
    return found[0]


def tokenize_documents(
    dataset: Dataset | IterableDataset,
    processor: ProcessorMixin | PreTrainedTokenizerBase,
    *,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    importance: Importance | None = None,
    long_documents: LongDocuments = "cut",
    prefix: str = "",
    num_proc: int | None = None,
    report: TruncationReport | None = None,
) -> Dataset | IterableDataset:
    """Turn documents into model inputs and summaries into labels.

    What is cut is counted: for every document in the columns `num_truncated_tokens`, `num_truncated_sentences`
    (sentences that lost a token) and `num_truncated_target_tokens`, and altogether in `report`, which is logged once
    at the end, as a warning if anything was cut. A streamed dataset has no end that this function sees: log `report`
    yourself when you are done with it, as `run_training` does.

    Args:
        dataset: What `load_documents` gives: one of the columns `text`, `sentences`, `turns`, `documents`, and perhaps
            `summary`. A Highlight-Transformer's processor also takes a column `phrases`, the user's own phrases of
            each document as in its call (`{"text": …, "value": …}`), or None to find them. With a column `query`, a
            document begins with its query.
        processor: A processor of one of our families, or the tokenizer of a model that sees no structure: then
            sentences, turns and documents are joined to one text.
        max_source_length: Tokens of a source, markers included; None for no limit.
        max_target_length: Tokens of a summary, special tokens included; None for no limit.
        importance: Where the weights of the Top-Down Transformer's tokens come from: "oracle" (the words of a document
            whose lemma is in its summary weigh 1, the others 0), or an importance tagger; None for no weights. A
            document without an important token gets equal weights, and is counted.
        long_documents: "cut" takes the end off what is longer than `max_source_length`; "condense" keeps its beginning
            and the sentences that say the most of it, or are most like its query, and of any text no headings and
            lists, if it has enough sentences, as `pipeline("summarization")` does.
        prefix: What stands before every text that a model without structure reads, such as T5's "summarize: ".
        num_proc: Processes to use; None for one. A streamed dataset ignores it: the data loader's workers do the work.
            A tagger needs it no more than any model.
        report: Is given the counts, if passed.

    Returns:
        A dataset with `input_ids`, `attention_mask`, the processor's extra inputs, `labels` if there are summaries,
        and the three counts (with weights, also `without_importance`; with phrases, also what became of them).

    Raises:
        ValueError: If a length is not positive, the dataset does not have exactly one kind of source, or weights are
            asked for where the processor takes none, there is no summary, or documents to tag are streamed.
    """
    check_lengths(max_source_length=max_source_length, max_target_length=max_target_length)
    if long_documents not in get_args(LongDocuments):
        raise ValueError(f"long_documents must be 'cut' or 'condense', got {long_documents!r}")
    report = TruncationReport() if report is None else report
    columns = dataset.column_names or list(next(iter(dataset)))
    if importance is not None:
        _check_importance(importance, processor, dataset, columns)
        report.expect(WITHOUT_IMPORTANCE)
    if highlights(processor) and (PHRASES in columns or getattr(processor, "key_phrases", None) is not None):
        report.expect(*PHRASE_COLUMNS)
    settings = (processor, source_kind(columns), max_source_length, max_target_length, long_documents, prefix)
    tokenization = _Tokenization(*settings, importance)
    options: dict[str, Any] = {"batched": True, "batch_size": DOCUMENTS_IN_MEMORY, "remove_columns": columns}
    if isinstance(dataset, IterableDataset):
        return dataset.map(Counting(tokenization, report.add_columns), **options)
    if isinstance(importance, ImportanceTagger):
        # datasets is not to hash the tagger itself: a model is large.
        key = (dataset._fingerprint, Versioned(_Tokenization(*settings)), importance.fingerprint())
        tokenized = dataset.map(tokenization, new_fingerprint=Hasher.hash(key), desc="Tagging", **options)
    else:
        tokenized = dataset.map(Versioned(tokenization), num_proc=num_proc, desc="Tokenizing", **options)
    report.add_columns({column: tokenized[column] for column in COUNT_COLUMNS if column in tokenized.column_names})
    cut = report.truncated_documents or report.truncated_summaries or report.without_importance
    phrases = report.missing_phrases or report.truncated_phrases or report.long_phrases or report.without_phrases
    logger.log(logging.WARNING if cut or phrases else logging.INFO, "%s", report)
    return tokenized


def check_lengths(**lengths: int | None) -> None:
    """Refuse limits that leave no room for a token."""
    for name, length in lengths.items():
        if length is not None and length < 3:
            raise ValueError(f"{name} must be at least 3 (two markers and a token) or None for no limit, got {length}")


def _check_importance(importance: Importance, processor: Any, dataset: Any, columns: list[str]) -> None:
    if importance != "oracle" and not isinstance(importance, ImportanceTagger):
        raise ValueError(f"importance must be 'oracle', an ImportanceTagger or None, got {importance!r}")
    if "token_importance" not in getattr(processor, "extra_inputs", {}):
        wanted = "processors that give token_importance (TopDownTransformerProcessor)"
        raise ValueError(f"importance is for {wanted}, got {type(processor).__name__}")
    if isinstance(importance, ImportanceTagger):
        if isinstance(dataset, IterableDataset):
            raise ValueError("importance: documents are tagged where they are loaded, not streamed")
        return
    if "summary" not in columns:
        raise ValueError(f"importance='oracle' needs the column summary, got {', '.join(columns)}")
    check_importance_language(getattr(processor, "language", "en"))
