"""Lines that cannot be used: reported, and kept in a file."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .shared_counts import SharedCounts


logger = logging.getLogger(__name__)


class LoadReport(SharedCounts):
    """What `load_documents` set aside and left out, filled in while it reads.

    `set_aside` is the number of lines, `filler_words` that of the filler words taken out, and `dropped_turns` that of
    the turns, or sentences, left out because no words were left in them. With `streaming=True` reading happens when
    the dataset is iterated over, so the numbers grow until then; a line that is met again in a later pass counts once,
    what is left out in every pass.
    """

    NAMES = ("set_aside", "filler_words", "dropped_turns")

    def __init__(self) -> None:
        super().__init__()
        self._leaves_out = False
        self.set_aside_file: str | None = None

    def add_left_out(self, filler_words: int, dropped_turns: int) -> None:
        """Count what was left out."""
        self._leaves_out = True
        self.add(filler_words=filler_words, dropped_turns=dropped_turns)

    def as_dict(self) -> dict[str, Any]:
        """The report for a results file; what was left out only of dialogues, and where fillers were taken out."""
        counts = super().as_dict()
        report = {"set_aside": counts.pop("set_aside"), "set_aside_file": self.set_aside_file}
        return report | counts if self._leaves_out else report


class SetAside:
    """Writes bad lines to a file, each once however often the data are read."""

    def __init__(self, path: str, report: LoadReport) -> None:
        self.path = path
        self._report = report
        report.set_aside_file = path
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("", encoding="utf-8")
        self._seen: set[str] | None = None

    def add(self, entry: str) -> None:
        """Write a line, if it does not stand in the file yet."""
        if self._seen is None:
            # A data loader's worker starts anew in every epoch: what it wrote before stands in the file.
            self._seen = set(Path(self.path).read_text(encoding="utf-8").split("\n"))
        if entry in self._seen:
            return
        self._seen.add(entry)
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(entry + "\n")
        self._report.add(set_aside=1)
        count = self._report.set_aside
        if str(count).strip("0") == "1":  # 1, 10, 100, …: a file full of bad lines must not fill the log
            record = json.loads(entry)
            where = f"{record['file']}:{record['line']}"
            logger.warning("%s set aside in %s: %s (%d so far)", where, self.path, record["reason"], count)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": None}


def check_set_aside_file(
    path: Path, source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], files: list[tuple[Path, str]]
) -> None:
    """Refuse to write bad lines over anything but the bad lines of an earlier call."""
    if path.is_dir():
        raise ValueError(f"set_aside_file: {path} is a folder; name a file")
    resolved = path.resolve()
    if any(resolved == file.resolve() for file, _ in files):
        raise ValueError(f"set_aside_file: {path} is a file of the source and would be overwritten; name another file")
    folder = Path(os.path.expanduser(source)).resolve() if files and isinstance(source, str | os.PathLike) else None
    if folder is not None and folder.is_dir() and resolved.is_relative_to(folder):
        raise ValueError(f"set_aside_file: {path} lies in the folder of the source, which is read; put it elsewhere")
    if not path.exists():
        return
    with path.open("rb") as stream:
        line = stream.readline()
    try:
        ours = not line or set(json.loads(line)) == {"file", "line", "reason", "raw"}
    except (ValueError, TypeError):
        ours = False
    if not ours:
        raise ValueError(f"set_aside_file: {path} is there already and holds something else; name another file")
