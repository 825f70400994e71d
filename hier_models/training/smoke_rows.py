"""Rows for `--smoke`, from `smoke_rows.json`: in the columns and of the kind that a recipe's own data have."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerBase

from ..data.overlap import texts_in
from ..data.tokenizer_training import WITH_MASK, as_tokenizer
from .arguments import DataArguments


# "um" and {vocalsound} of the turns are fillers, and Cem's second turn holds nothing else. Each text and each dialogue
# has one of the phrases. Of the second texts of classification, the label says how they go with the first.
ROWS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def train_tokenizer(rows: Sequence[Any], vocab_size: int = 500) -> PreTrainedTokenizerBase:
    """Train byte-level BPE on whatever text the rows hold, with the special tokens of BART and RoBERTa."""
    backend = ByteLevelBPETokenizer()
    options: dict[str, Any] = {"vocab_size": vocab_size, "special_tokens": list(WITH_MASK), "show_progress": False}
    backend.train_from_iterator(texts_in(rows), **options)
    return as_tokenizer(backend._tokenizer, WITH_MASK)


def documents_rows(data: DataArguments) -> list[dict[str, Any]]:
    """Make documents with summaries, of the kind and in the columns that a recipe names."""
    if data.source_kind == "turns":
        column = data.text_column or "turns"
        dialogues = [ROWS["turns"][i % 3 : 6 - i // 4] for i in range(8)]
        # Turns in a column named so are lists, in another one lines of text.
        sources: list[Any] = dialogues
        if column != "turns":
            sources = ["\r\n".join(f"{role}: {content}" for role, content in dialogue) for dialogue in dialogues]
        summaries = ROWS["turn_summaries"]
    else:
        column, texts = data.text_column or data.source_kind or "text", ROWS["texts"]
        sources = [[texts[i % 4], texts[(i + i // 4 + 1) % 4]] for i in range(8)]
        if data.source_kind not in ("sentences", "documents"):
            sources = [" ".join(pair) for pair in sources]
        summaries = ROWS["summaries"]
    others = {} if data.phrases_column is None else {data.phrases_column: ROWS["phrases"]}
    others |= {} if data.query_column is None else {data.query_column: "Who was there?"}
    return [
        {column: source, data.summary_column or "summary": summaries[i % len(summaries)], **others}
        for i, source in enumerate(sources)
    ]


def task_rows(task: str, columns: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Give the rows of a task of encoders, in the columns that a recipe names."""
    return [{columns.get(f"{name}_column") or name: value for name, value in row.items()} for row in ROWS[task]]
