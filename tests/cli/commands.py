"""The command `hier-models`, run in this process, and what goes in and comes out."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import pipeline
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
