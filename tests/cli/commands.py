"""The command `hier-models`, run in this process, and what goes in and comes out."""

import errno
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, pipeline
from typer.testing import CliRunner

from hier_models import cli


def run(*arguments: str, stdin: str | bytes | None = None, code: int = 0) -> Any:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    if code:
        assert "Traceback" not in result.stderr
    return result


def mistake(*arguments: str, says: str | list[str], stdin: str | bytes | None = None) -> None:
    result = run(*arguments, stdin=stdin, code=2)
    assert result.stdout == ""
    text = " ".join(result.stderr.split())
    for part in [says] if isinstance(says, str) else says:
        assert part in text
    assert len(result.stderr.strip().splitlines()) <= 6, result.stderr


def jsonl(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def expected(checkpoint: str, *inputs: Any, **kwargs: Any) -> list[str]:
    summarize = pipeline("summarization", model=checkpoint, device="cpu", **kwargs)
    return [result["summary_text"].strip() for result in summarize(list(inputs))]


def write_jsonl(name: str, rows: Iterable[Any]) -> str:
    Path(name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return name


def full_disk(patch: pytest.MonkeyPatch, room: int) -> None:
    """Give what is appended to files so many bytes; as on a disk, the last of them may be a part of a line."""
    usual = Path.open

    class Disk(io.FileIO):
        def write(self, content: Any) -> int:
            nonlocal room
            if not room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = super().write(bytes(content)[:room])
            room -= written
            return written

    def open_there(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if mode != "a":
            return usual(self, mode, *args, **kwargs)
        return io.TextIOWrapper(io.BufferedWriter(Disk(self, "a")), encoding=kwargs["encoding"])

    patch.setattr(Path, "open", open_there)


def save_judge(folder: str, checkpoint: str) -> None:
    """Save a tiny model of natural language inference, which may encode for BERTScore too."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    labels = {0: "entailment", 1: "neutral", 2: "contradiction"}
    config = BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, id2label=labels, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
