"""Rows for `--smoke`, from `smoke_rows.json`: in the columns and of the kind that a recipe's own data have."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerBase

from ..data.overlap import texts_in
from ..data.tokenizer_training import WITH_MASK, as_tokenizer
from .arguments import DataArguments


# "um" and {vocalsound} of the turns are fillers, and Cem's second turn holds nothing else. Each text and each dialogue
# has one of the phrases. A claim follows from its story, contradicts it, or is left open by it.
ROWS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
STORIES: list[str] = ROWS["stories"]
QUESTIONS: list[Any] = ROWS["questions"]  # (story, question, answer, wrong answers)
CLAIM_CLASSES = ("entailment", "contradiction", "neutral")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], split: str | None) -> Path:
    """Write rows as JSON lines."""
    split_column = {} if split is None else {"split": split}
    lines = (json.dumps({**row, **split_column}, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def train_tokenizer(rows: Sequence[Any], vocab_size: int = 500) -> PreTrainedTokenizerBase:
    """Train byte-level BPE on whatever text the rows hold, with the special tokens of BART and RoBERTa."""
    backend = ByteLevelBPETokenizer()
    special_tokens = list(WITH_MASK)
    backend.train_from_iterator(
        texts_in(rows), vocab_size=vocab_size, special_tokens=special_tokens, show_progress=False
    )
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
    phrases = {} if data.phrases_column is None else {data.phrases_column: ROWS["phrases"]}
    return [
        {column: source, data.summary_column or "summary": summaries[i % len(summaries)], **phrases}
        for i, source in enumerate(sources)
    ]


def texts(text_column: str | None, source_kind: str | None = None) -> list[dict[str, Any]]:
    """Make documents to pretrain on, of the kind and in the column that a recipe names."""
    pairs = [[STORIES[i % 4], STORIES[(i + 1 + i // 4) % 4]] for i in range(8)]
    of_kind: dict[str | None, Callable[[list[str]], Any]] = {
        "turns": lambda pair: [list(turn) for turn in zip(("Ann", "Bob"), pair, strict=True)],
        **dict.fromkeys(("sentences", "documents"), list),
    }
    make = of_kind.get(source_kind, " ".join)
    return [{text_column or source_kind or "text": make(pair)} for pair in pairs]


def questions(options: Any) -> list[dict[str, Any]]:
    """Make questions on a context, some of them without an answer."""
    question, context = options.question_column or "question", options.context_column or "context"
    answers = options.answers_column or "answers"
    answered = [
        {
            question: text.replace(" _ .", " what?"),
            context: STORIES[story],
            answers: {"text": [answer], "answer_start": [STORIES[story].index(answer)]},
        }
        for story, text, answer, _ in QUESTIONS
    ]
    unanswered = [
        {question: text, context: story, answers: {"text": [], "answer_start": []}}
        for text, story in zip(ROWS["unanswered"], STORIES, strict=True)
    ]
    rows = [answered[0], unanswered[0], answered[1], unanswered[1], *answered[2:], *unanswered[2:]]
    return [{"id": f"smoke-{number}", **row} for number, row in enumerate(rows)]


def labelled_pairs(text_column: str | None, options: Any) -> list[dict[str, Any]]:
    """Make pairs of a story and a sentence, labelled as in MNLI."""
    second, label = options.second_column or "hypothesis", options.label_column or "label"
    rows = []
    for story, claims in zip(STORIES, ROWS["claims"], strict=True):
        for number, (name, claim) in enumerate(zip(CLAIM_CLASSES, claims, strict=True)):
            value: Any = name
            if options.classes:
                value = options.classes.index(name) if name in options.classes else number % len(options.classes)
            rows.append({text_column or "premise": story, second: claim, label: value})
    return rows


def questions_with_options(options: Any) -> list[dict[str, Any]]:
    """Make questions with four options as in RACE."""
    rows = []
    for number, (story, question, right, wrong) in enumerate(QUESTIONS):
        place = number % 4
        rows.append(
            {
                options.context_column or "article": STORIES[story],
                options.question_column or "question": question,
                options.options_column or "options": [*wrong[:place], right, *wrong[place:]],
                options.answer_column or "answer": "ABCD"[place],
            }
        )
    return rows
