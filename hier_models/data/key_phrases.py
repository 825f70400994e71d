"""Making what finds key phrases for a Highlight-Transformer, from the documents that it is trained on or without."""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, cast

from datasets import Dataset, IterableDataset
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from ..models.key_phrase_extraction import KeyPhraseExtractor, RankedPhrases
from ..models.phrase_finder import TF_IDF
from ..models.phrase_ranking import ImportantPhrases, TextRankPhrases, TitlePhrases
from ..models.phrase_words import is_in_a_word, split_words
from ..pipelines.document_pipeline_hier import highlights
from .stopwords import LANGUAGES, NO_STOPWORDS, load_stopwords, read_stopwords
from .tokenizing import DOCUMENTS_IN_MEMORY, source_kind


logger = logging.getLogger(__name__)

IMPORTANCE = ImportantPhrases.name
FINDERS: dict[str, Any] = {
    kind.name: kind for kind in (KeyPhraseExtractor, TextRankPhrases, TitlePhrases, ImportantPhrases)
}


def fit_key_phrases(
    dataset: Dataset | IterableDataset | None,
    processor: ProcessorMixin | PreTrainedTokenizerBase,
    *,
    finder: str = TF_IDF,
    tagger: str | None = None,
    max_source_length: int | None = None,
    stopwords: str | os.PathLike[str] | Sequence[str] | None = None,
    lengths: Sequence[int] = (2, 3),
    top_k: int = 10,
    max_phrases: int = 1_000_000,
    min_documents: int = 2,
    max_counted: int = 8_000_000,
    show_progress: bool = False,
) -> RankedPhrases:
    """Make what finds the key phrases of any document, for a processor.

    For tf-idf the phrases of a corpus are counted; it is read once, from a stream too, in bounded memory.
    `processor.key_phrases = …` and `processor.save_pretrained` keep what is returned.

    Args:
        dataset: What `load_documents` gives: one of the columns `text`, `sentences`, `turns`, `documents`. All but
            tf-idf need none.
        processor: The processor of a Highlight-Transformer.
        finder: Who finds: "tf-idf", as in the paper; "textrank"; "title", by the words of the document's title;
            "importance", by a tagger.
        tagger: With "importance", a checkpoint of a token classifier that `task: importance_tagging` has trained.
        max_source_length: Count only what the model reads of a document: that many tokens, special tokens included,
            shared out among its articles (as the paper does). None counts whole documents, and is several times
            faster, as nothing is tokenized.
        stopwords: Words that are in no phrase: the code of a language (en, de), a file, or a list; by default those of
            the processor's language.
        lengths: How many words a phrase may have.
        top_k: How many phrases of a document are chosen.
        max_phrases: How many phrases to keep: those of the most documents.
        min_documents: Phrases of fewer documents are not kept.
        max_counted: How many phrases to count at a time; memory is about 50 bytes for each.
        show_progress: Whether to show a progress bar.

    Returns:
        The finder, fitted where it is by tf-idf.

    Raises:
        ValueError: If the processor finds no phrases, no finder has the name, the dataset does not have exactly one
            kind of source or no document, the tagger is none or does not go with the finder, the language has no list
            of stopwords, or a number is not allowed.

    Source: section 4.1.
    """
    if not highlights(processor):
        wanted = "one that highlights phrases (HighlightTransformerProcessor)"
        raise ValueError(f"processor must be {wanted}, got {type(processor).__name__}")
    if stopwords is None:
        language = cast(Any, processor).language
        if language not in LANGUAGES:
            problem = f"there is no list for the processor's language {language!r}, only for {' and '.join(LANGUAGES)}"
            raise ValueError(f"stopwords: {problem}; give a file or a list ({NO_STOPWORDS})")
        stopwords = sorted(load_stopwords(language))
    if finder not in FINDERS:
        raise ValueError(f"finder must be one of {', '.join(FINDERS)}, got {finder!r}")
    if (tagger is not None) != (finder == IMPORTANCE):
        raise ValueError(f"tagger, a checkpoint, goes with finder={IMPORTANCE!r}, got finder={finder!r}, {tagger=}")
    settings: dict[str, Any] = {} if tagger is None else {"tagger": tagger}
    words = sorted(read_stopwords(stopwords))
    made: Any = FINDERS[finder](stopwords=words, lengths=lengths, top_k=top_k, **settings)
    if finder == IMPORTANCE:
        made.check_tagger()
    if finder == TF_IDF:
        if dataset is None:
            raise ValueError(f"finder={TF_IDF!r} counts the phrases of documents; give a dataset")
        texts: Iterator[str | list[str]] = _texts(dataset, processor, max_source_length)
        total = len(dataset) if isinstance(dataset, Dataset) else None
        bar = tqdm(texts, desc="Counting phrases", total=total, unit=" documents", disable=not show_progress)
        made.fit(bar, max_phrases=max_phrases, min_documents=min_documents, max_counted=max_counted)
    logger.info("%s", made)
    return cast(RankedPhrases, made)


def _texts(dataset: Dataset | IterableDataset, reader: Any, max_source_length: int | None) -> Iterator[Any]:
    columns = dataset.column_names or list(next(iter(dataset), {}))
    if not columns:
        return
    kind = source_kind(columns)
    for batch in dataset.iter(batch_size=DOCUMENTS_IN_MEMORY):
        source = {kind: batch[kind]}
        texts = reader.running_text(**source)
        if max_source_length is None:
            yield from texts
            continue
        spans = reader.article_spans(batch[kind]) if kind == "documents" else [[(0, len(text))] for text in texts]
        kept = reader.kept_text(**source, max_length=max_source_length)
        for text, articles, parts in zip(texts, spans, kept, strict=True):
            yield [_whole_words(text, start, part) for (start, _), part in zip(articles, parts, strict=True)]


def _whole_words(text: str, start: int, part: str) -> str:
    """Leave out a word that is cut, which `find` does not look at either."""
    return part[: split_words(part)[1][-1, 0]] if is_in_a_word(text, start + len(part)) else part
