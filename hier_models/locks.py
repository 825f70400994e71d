"""Files and folders that are one process's at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def held(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a file or folder that is there; whether it is ours. Where the system has no such locks, it always is."""
    if fcntl is None:
        yield True
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        is_ours = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            is_ours = False
        except OSError:  # a file system without locks
            pass
        yield is_ours
    finally:
        os.close(handle)
