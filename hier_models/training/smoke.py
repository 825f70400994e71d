"""`--smoke`: a recipe on a few rows made on the spot, with a tiny model, to see that it runs at all."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], split: str | None) -> Path:
    """Write rows as JSON lines.

    Args:
        path: The file.
        rows: The rows.
        split: Goes into a column `split`, by which `load_documents` finds the rows whatever the recipe's split is.

    Returns:
        The file.
    """
    split_column = {} if split is None else {"split": split}
    lines = (json.dumps({**row, **split_column}, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def train_tokenizer(rows: Sequence[Any], vocab_size: int = 500) -> PreTrainedTokenizerBase:
    """Train byte-level BPE on whatever text the rows hold, with the special tokens of BART and RoBERTa.

    Args:
        rows: Strings, or lists and mappings of them, of any depth.
        vocab_size: Most entries of the vocabulary.

    Returns:
        The tokenizer, with a vocabulary of a few hundred entries.
    """
    backend = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend.train_from_iterator(_texts(rows), vocab_size=vocab_size, special_tokens=special, show_progress=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend._tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return _texts(list(value.values()))
    return [text for item in value for text in _texts(item)] if isinstance(value, list | tuple) else []


_TEXTS = (
    "The bridge was closed on Monday. Engineers had found a crack in a pillar. Repairs will take six weeks.",
    "Bees find their way home by the sun. On cloudy days they use landmarks, such as a tall tree.",
    "The library opens at nine. It closes at six, but on Fridays it stays open until eight in the evening.",
    "Rain fell all night. The river rose by a metre. Nobody was hurt. The ferry did not run.",
)
_SUMMARIES = ("A crack closed the bridge.", "Bees navigate by sun.", "When the library is open.", "The river rose.")


def documents(text_column: str | None, summary_column: str | None) -> list[dict[str, Any]]:
    """Make documents with summaries.

    Args:
        text_column: The column of the text; None for `text`.
        summary_column: The column of the summary; None for `summary`.

    Returns:
        Eight rows.
    """
    text_column, summary_column = text_column or "text", summary_column or "summary"
    return [
        {text_column: f"{_TEXTS[i % 4]} {_TEXTS[(i + i // 4 + 1) % 4]}", summary_column: summary}
        for i, summary in enumerate(_SUMMARIES * 2)
    ]
