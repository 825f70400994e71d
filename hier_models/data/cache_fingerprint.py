"""What datasets' cache must know beside the rows: the code that made something of them."""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


@functools.cache
def source_version() -> str:
    """Say which source files the package has."""
    folder = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


class Versioned:
    """A function for `Dataset.map`, which keeps its results by a hash of the function.

    That hash sees what an object holds, but of its class only the name: without the source's version, another version
    of the package would be given what this one made.
    """

    def __init__(self, function: Callable[..., dict[str, Any]]) -> None:
        parts = (*getattr(function, "args", ()), *getattr(function, "__dict__", {}).values())
        for part in (*parts, *getattr(function, "keywords", {}).values()):
            backend = getattr(getattr(part, "tokenizer", part), "backend_tokenizer", None)
            if backend is not None:  # traces of its last call, each of which sets both anew
                backend.no_truncation()
                backend.no_padding()
        self._function = function
        self._version = source_version()

    def __call__(self, *arguments: Any) -> dict[str, Any]:
        """Call the function."""
        return self._function(*arguments)
