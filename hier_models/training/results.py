"""Writing what a run found."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


FilePath = str | os.PathLike[str]


def write_json(path: FilePath, content: Mapping[str, Any]) -> None:
    """Write a results file, for people and programs: all of it or, if the process is killed, nothing."""
    path = _in_a_folder(path)
    text = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text + "\n", encoding="utf-8")
    unfinished.replace(path)


def write_json_lines(path: FilePath, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows to a file."""
    with _in_a_folder(path).open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _in_a_folder(path: FilePath) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
