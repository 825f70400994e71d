"""Reading what tokenizers that mark sentences, and processors, are given: texts, pairs, words, multiple choices."""

import re
from collections.abc import Sequence
from typing import Any


NO_PADDING = (False, None, "do_not_pad")
NO_LIMIT = 10**9  # tokens; a tokenizer without a limit says so with a huge number
# Blanks, and behind a word, too, but not in get_item, _private or _not_, which are words.
BLANK = re.compile(r"(?P<word>(?<!\w)_+[^\W_]\w*)|(?<!\w)_+|_+(?!\w)", re.ASCII)
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def check_text(name: str, value: object) -> str:
    """Check that a value is text."""
    if not isinstance(value, str):
        raise TypeError(f"`{name}` must be a string, got {type(value).__name__}")
    return value if value.isascii() else LONE_SURROGATE.sub("\ufffd", value)


def check_ends(tokenizer: Any) -> None:
    """Refuse a tokenizer whose BOS token, a marker, is its EOS token too."""
    if tokenizer.bos_token_id == tokenizer.eos_token_id:
        raise ValueError(
            f"`tokenizer` has {tokenizer.bos_token!r} as bos_token and as eos_token, so that the end would count as a "
            'sentence. Add another bos_token with tokenizer.add_special_tokens({"bos_token": …}).'
        )


def without_special(ids: list[int], special: set[int], unknown: int | None) -> list[int]:
    """Turn special tokens that a vocabulary still finds in text (Unigram, whole words) into unknowns."""
    if special.isdisjoint(ids):
        return list(ids)
    if unknown is None:
        raise ValueError("the text contains a special token, and `tokenizer` has no unk_token to put in its place")
    return [unknown if i in special else i for i in ids]


def longest_text(model: Any, tokenizer: Any) -> int | None:
    """How many tokens an encoder takes, special ones included; None if it has no limit."""
    if (own := getattr(model.config, "max_encoder_position_embeddings", None)) is not None:
        return int(own)
    limit = getattr(model.config, "max_position_embeddings", None) or NO_LIMIT
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if (padding := getattr(table, "padding_idx", None)) is not None:
        limit -= padding + 1  # in the manner of RoBERTa, positions begin behind that of padding
    limit = int(min(limit, tokenizer.model_max_length))
    return limit if limit < NO_LIMIT else None


def check_language_code(language: object) -> None:
    """Check that a language is given by its code."""
    if not isinstance(language, str) or not re.fullmatch("[a-z]{2,3}", language):
        raise ValueError(f"`language` must be a code of two or three small letters, such as en, got {language!r}")


def check_integer(name: str, value: object, least: int = 1, optional: bool = False) -> None:
    """Check that a value is a whole number and large enough, or None where that is allowed."""
    is_right = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not is_right and not (optional and value is None):
        also = " or None" if optional else ""
        raise ValueError(f"`{name}` must be an integer of at least {least}{also}, got {value!r}")


def check_words(name: str, value: object) -> list[str]:
    """Check that a value is a list of strings: words or sentences."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"`{name}` must be a list of strings, got {type(value).__name__}")
    return [check_text(f"{name}[{i}]", item) for i, item in enumerate(value)]


def _one(name: str, value: object, words: bool) -> str | list[str]:
    """Check one text: a string, or its words."""
    return check_words(name, value) if words else check_text(name, value)


def _is_batch(name: str, value: object, words: bool) -> bool:
    """Whether a value is a list of texts; with words, whether it is a list of lists."""
    if isinstance(value, str):
        return False
    if not isinstance(value, Sequence):
        raise TypeError(f"`{name}` must be a string or a list of strings, got {type(value).__name__}")
    return not words or (len(value) > 0 and not isinstance(value[0], str))


def read_texts(text: Any, text_pair: Any, words: bool) -> tuple[list[Any], list[Any] | None, bool]:
    """Bring one text or many, alone or in pairs, to lists."""
    if not _is_batch("text", text, words):
        if text_pair is not None and _is_batch("text_pair", text_pair, words):
            raise ValueError(f"`text_pair` must be one text, as `text` is, got a list of {len(text_pair)}")
        pair = None if text_pair is None else [_one("text_pair", text_pair, words)]
        return [_one("text", text, words)], pair, False
    if not text:
        raise ValueError("`text` is an empty list; give at least one text")
    if text_pair is None and all(
        isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str) != words for item in text
    ):
        text, text_pair = zip(*text, strict=True)  # a list of pairs, as pipelines give it
    if text_pair is not None and (not _is_batch("text_pair", text_pair, words) or len(text) != len(text_pair)):
        got = f"a list of {len(text_pair)}" if _is_batch("text_pair", text_pair, words) else "one text"
        raise ValueError(f"`text_pair` must match `text`, a list of {len(text)}; got {got}")
    firsts = [_one(f"text[{i}]", item, words) for i, item in enumerate(text)]
    seconds = None
    if text_pair is not None:
        seconds = [_one(f"text_pair[{i}]", item, words) for i, item in enumerate(text_pair)]
    return firsts, seconds, True


def read_choices(text: Any, text_pair: Any, choices: Any) -> tuple[list[str], list[str], int, bool]:
    """Make a pair of texts for every choice."""
    batched = not isinstance(text, str)
    texts = check_words("text", text) if batched else [check_text("text", text)]
    if text_pair is None:
        questions = [""] * len(texts)
    else:
        if isinstance(text_pair, str) == batched:
            raise ValueError("`text_pair` must be one question for one text, or a list for a list of texts")
        questions = check_words("text_pair", text_pair) if batched else [check_text("text_pair", text_pair)]
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise TypeError(f"`choices` must be a list of strings for each text, got {type(choices).__name__}")
    if batched:
        rows = [check_words(f"choices[{i}]", row) for i, row in enumerate(choices)]
    else:
        rows = [check_words("choices", choices)]
    for name, values in (("text_pair", questions), ("choices", rows)):
        if len(values) != len(texts):
            raise ValueError(f"`{name}` must match `text`, got {len(values)} for {len(texts)}")
    sizes = sorted({len(row) for row in rows})
    if len(sizes) != 1 or sizes[0] == 0:
        raise ValueError(f"`choices` must be as many for every text, and at least one; got {sizes}")
    firsts = [passage for passage in texts for _ in range(sizes[0])]
    pairs = zip(questions, rows, strict=True)
    seconds = [complete(question, choice) for question, row in pairs for choice in row]
    return firsts, seconds, sizes[0], batched


def complete(question: str, choice: str) -> str:
    """Put a choice in the place of a question's blanks, or behind it."""
    if any(match["word"] is None for match in BLANK.finditer(question)):
        return BLANK.sub(lambda match: match["word"] or choice, question)
    return f"{question} {choice}" if question else choice
