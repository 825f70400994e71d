"""Which words of a document are important: those whose lemma occurs in the reference summary, stopwords excepted.

The labels of the importance tagger, and the oracle weights of the Top-Down Transformer, as spans of characters.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Any, cast

from transformers import PreTrainedTokenizerBase, ProcessorMixin

from ..pipelines.importance_tagger_hier import Span
from .stopwords import load_stopwords


# Runs of letters and digits, with accents that may be characters of their own (as in texts from PDF files), and with
# an apostrophe inside or not; the parts of a compound with hyphens are words.
WORD = re.compile(r"[^\W_]+(?:[\u0300-\u036f]+[^\W_]*)*(?:['’][^\W_]+(?:[\u0300-\u036f]+[^\W_]*)*)*")

# A text's words are few and come again and again; a lemma costs 50 times what it costs to look it up here.
LEMMAS_IN_MEMORY = 2**18


def importance_spans(document: str, reference: str, language: str = "en") -> list[Span]:
    """Find the important words of a document: non-stopwords whose lemma is that of a word of the reference.

    Args:
        document: The running text.
        reference: Its summary.
        language: Language of both, as a code: en or de.

    Returns:
        (start, end, 1.0) in characters for each important word, as a processor's `importance` takes them; empty where
        no word is important.

    Raises:
        ValueError: If there is no list of stopwords of the language.
        ImportError: If simplemma is not installed.

    Source: section 2.3, step 1 of AdaPool.
    """
    load_stopwords(language)
    lemmas = {_lemma(word, language) for word in WORD.findall(reference)} - {""}
    if not lemmas:
        return []
    return [(*match.span(), 1.0) for match in WORD.finditer(document) if _lemma(match[0], language) in lemmas]


def check_importance_language(language: str) -> None:
    """Refuse, before many documents are read, what no labels can be made with."""
    load_stopwords(language)
    _lemma("words", language)


def oracle_spans(processor: Any, source: dict[str, list[Any]], references: list[str]) -> list[list[Span]]:
    """Find the important words of documents, whatever kind of source they are."""
    pairs = zip(processor.running_text(**source), references, strict=True)
    return [importance_spans(document, reference, processor.language) for document, reference in pairs]


class ImportanceLabels:
    """Maps a batch of documents with summaries to the inputs and labels of an importance tagger.

    For `map` of the datasets library, with `batched=True`; it holds only what decides the result, since datasets
    hashes it.

    Args:
        processor: A processor with `running_text` and `language`.
        kind: The column with the documents: `text`, `sentences`, `turns` or `documents`; their summaries are in
            `summary`.
        max_length: Tokens of an input, special tokens included.

    Raises:
        ValueError: If there is no list of stopwords of the processor's language.
        ImportError: If simplemma is not installed.
    """

    def __init__(self, processor: ProcessorMixin | PreTrainedTokenizerBase, kind: str, max_length: int) -> None:
        check_importance_language(cast(Any, processor).language)
        self.processor = processor
        self.kind = kind
        self.max_length = max_length

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Tokenize and label.

        Args:
            batch: The columns of some documents.

        Returns:
            `input_ids`, `attention_mask`, `labels` (see `token_labels`), and of each document `num_truncated_tokens`
            and whether it is `without_importance` (1: no token is important).
        """
        source = {self.kind: batch[self.kind]}
        important = oracle_spans(self.processor, source, batch["summary"])
        options = {"max_length": self.max_length, "return_offsets_mapping": True, "return_truncation": True}
        encoded = cast(Any, self.processor)(**source, importance=important, truncation=True, **options)
        names = ("input_ids", "attention_mask", "num_truncated_tokens", "without_importance")
        return {**{name: encoded[name] for name in names}, "labels": token_labels(encoded)}


def token_labels(encoded: Any) -> list[list[int]]:
    """Make the labels of the importance tagger of what a processor made of documents."""
    rows = zip(encoded["token_importance"], encoded["offset_mapping"], encoded["without_importance"], strict=True)
    return [
        [int(w > 0 and not without) if a < b else -100 for w, (a, b) in zip(weights, offsets, strict=True)]
        for weights, offsets, without in rows
    ]


@lru_cache(LEMMAS_IN_MEMORY)
def _lemma(word: str, language: str) -> str:
    """Lemma of a word, in small letters; empty for a stopword."""
    try:
        import simplemma
    except ImportError as error:
        raise ImportError("importance labels need simplemma: pip install 'hier_models[importance]'") from error
    word = unicodedata.normalize("NFC", word).replace("’", "'")
    bare = word[:-2] if word.lower().endswith("'s") else word  # of a name, dictionaries do not list the genitive
    if not {word.lower(), bare.lower()}.isdisjoint(load_stopwords(language)):
        return ""
    # As it is, since German nouns have a capital; then small, since a sentence's first word has one too.
    return str(simplemma.lemmatize(bare, lang=language)).lower()
