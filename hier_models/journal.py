"""What a long job has done, as JSON lines, from which a stopped job goes on."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


_BEGINS = b'{"id": "'


@dataclass(frozen=True)
class Journal:
    """A file of JSON lines, each the record of something that is done, and of how: a job goes on only so."""

    path: Path  # it need not be there yet
    product: str  # what one record holds, in messages: "summary"
    making: Mapping[str, Any]  # what each record says of its making

    def read(self, inputs: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
        """Read the records by their id, hold them against all inputs (id -> digest), and cut off half a last line."""
        if not self.path.exists():
            return {}
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        lines, rest = whole.splitlines(), content[len(whole) :]
        if lacks_end := _is_json(rest):
            lines.append(rest)
            rest = b""
        done: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                identifier, made = record["id"], {name: record[name] for name in self.making}
                record[self.product]
                hash(identifier)
            except (ValueError, TypeError, KeyError) as error:
                raise self._not_ours(number) from error
            if inputs is not None and identifier not in inputs:
                raise ValueError(
                    f"{self.path}:{number}, of {identifier!r}, belongs to another job, without this document; "
                    "give another place"
                )
            if other := [name for name in self.making if made[name] != self.making[name]]:
                before, now = ({name: values[name] for name in other} for values in (made, self.making))
                raise ValueError(
                    f"{self.path}:{number} was made with {_as_json(before)}, and this job has {_as_json(now)}; "
                    "give another place, or what it was made with"
                )
            if inputs is not None and record.get("made_of") != inputs[identifier]:
                raise ValueError(
                    f"{self.path}:{number} is the {self.product} of another text than {identifier!r} is now, or of "
                    "another version of hier_models; give another place, or remove this line to have it made anew"
                )
            done[identifier] = record
        if not rest.startswith(_BEGINS) and not _BEGINS.startswith(rest):
            raise self._not_ours(len(lines) + 1)
        if rest:
            os.truncate(self.path, len(whole))
        if lacks_end:
            with self.path.open("ab") as stream:
                stream.write(b"\n")
        return done

    def line(self, identifier: str, product: str, **others: Any) -> str:
        """Write down what is done; the `id` stands first, so that half a line is known from one of another file."""
        return _as_json({"id": identifier, self.product: product, **others, **self.making})

    def _not_ours(self, line: int) -> ValueError:
        return ValueError(f"{self.path}:{line} is no {self.product} of an earlier run; give another place")


def is_begun(path: Path) -> bool:
    """Whether a file holds what a job has done, which could go on."""
    if not path.is_file():
        return False
    with path.open("rb") as lines:
        first = lines.readline()
    return first.startswith(_BEGINS) and _is_json(first) and "made_of" in json.loads(first)


def _is_json(line: bytes) -> bool:
    """Whether a line is whole, of whoever it is."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _as_json(value: Any) -> str:
    # Lone surrogates, which a model's tokens can decode to, cannot be written to a file.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")


def digest(value: Any) -> str:
    """Name a value."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
