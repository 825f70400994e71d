"""Many documents on the cores of this machine: a process for each, with the model that was loaded."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar


Document = TypeVar("Document")
Result = TypeVar("Result")
Work = Callable[[Iterator[Document]], Iterator[Result]]

CGROUPS = Path("/sys/fs/cgroup")
# Of version 2 and of version 1: the limit, what is taken, and what of that are files, which the system lets go.
LIMITS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
LEAST_MEMORY = 2**30  # bytes that are to be free for a process, beside the weights
AT_ONCE = 8  # documents that a process is given, or a batch: so many each are lost when a job is stopped


def on_cores(
    pipe: Any, work: Work[Document, Result], documents: Iterator[Document], *, total: int, batch_size: int | str = 1
) -> Generator[Result, None, None]:
    """Yield what `work`, which runs `pipe`, makes of documents, in their order: here, or by a process for each core.

    Each process is given whole batches, unless `batch_size` is "auto". What is made before an error is yielded before
    it is raised.
    """
    each = batch_size if isinstance(batch_size, int) else 1
    processes = _count_processes(pipe, -(-total // each))
    if processes == 1:
        yield from work(documents)
    else:
        yield from _by_processes(work, documents, total, processes, each)


def _count_processes(pipe: Any, parts: int) -> int:
    """How many processes pay: one, unless a model runs on several cores.

    A summarizer writes token by token, which several cores do hardly faster than one. The processes are forks, which
    have the weights in common; on other systems than Linux forks are not safe.
    """
    import torch

    device = getattr(pipe, "device", None)  # what only chooses sentences has none
    if device is None or device.type != "cpu" or sys.platform != "linux":
        return 1
    if multiprocessing.current_process().daemon:  # a worker of somebody's pool, which may have none of its own
        return 1
    for_each = max(LEAST_MEMORY, pipe.model.get_memory_footprint())
    fitting: int = _free_memory() // for_each
    return max(1, min(torch.get_num_threads(), parts, fitting))


def _free_memory() -> int:
    """Bytes that are free, or can be made so, on this machine and in its containers."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    for group in _groups():
        for limit, used, files in LIMITS:
            with suppress(OSError, ValueError):  # no file, or no number: "max"
                counts = (group / "memory.stat").read_text(encoding="ascii")
                kept = re.search(rf"^{files} (\d+)$", counts, re.MULTILINE)
                taken = int((group / used).read_text(encoding="ascii")) - (int(kept[1]) if kept else 0)
                free = min(free, int((group / limit).read_text(encoding="ascii")) - taken)
    return free


def _groups() -> Iterator[Path]:
    """The folders that say how much memory this process and those that it belongs to may have, of either version."""
    lines = []
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if not kinds or "memory" in kinds.split(","):
            root = CGROUPS / "memory" if kinds else CGROUPS
            own = root / path.lstrip("/")
            yield from (group for group in (own, *own.parents) if group.is_relative_to(root))


def _by_processes(
    work: Work[Document, Result], documents: Iterator[Document], total: int, processes: int, batch_size: int
) -> Iterator[Result]:
    rounds = max(1, -(-total // (processes * max(AT_ONCE, batch_size))))
    size = batch_size * -(-total // (processes * rounds * batch_size))  # all are busy in the last round, too
    waiting: deque[Future[tuple[list[Result], _Failure | None]]] = deque()
    forks = multiprocessing.get_context("fork")
    failure: Exception | None = None
    with ProcessPoolExecutor(processes, mp_context=forks, initializer=_begin, initargs=(work,)) as pool:
        try:
            while True:
                while failure is None and len(waiting) < 2 * processes:
                    part, failure = _read(documents, size)
                    if not part:
                        break
                    waiting.append(pool.submit(_run, part))
                if not waiting:
                    break
                results, ended_by = waiting.popleft().result()
                yield from results
                if ended_by is not None:
                    ended_by.raise_again()
        except BrokenProcessPool as broken:
            raise RuntimeError(
                f"one of {processes} processes was killed, most likely for lack of memory: each reads documents of "
                "its own. With OMP_NUM_THREADS=1 in the environment there is one"
            ) from broken
        except BaseException:
            for fork in list(pool._processes.values()):  # as `terminate_workers` does, from Python 3.14 on
                fork.terminate()
            raise
    if failure is not None:
        raise failure


def _read(documents: Iterator[Document], most: int) -> tuple[list[Document], Exception | None]:
    """Read documents; what goes wrong is raised when those before it are done."""
    part: list[Document] = []
    try:
        part.extend(islice(documents, most))
    except Exception as error:
        return part, error
    return part, None


_work: Work[Any, Any] | None = None  # of this process, if it is one of the forks


def _begin(work: Work[Any, Any]) -> None:
    """Make a fork ready: one thread of its own, and no longer there than its parent."""
    import torch

    global _work
    _work = work
    torch.set_num_threads(1)  # also because those of the parent are not there
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C comes to all; the parent says so

    def follow() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


class _Failure(NamedTuple):
    """An error, and what its traceback says, which stays in its process."""

    error: Exception
    raised_in: str
    traceback: str

    def raise_again(self) -> NoReturn:
        """Raise it with these."""
        self.error.raised_in = self.raised_in  # type: ignore[attr-defined]
        self.error.add_note(f"In another process:\n\n{self.traceback}")
        raise self.error


def _run(documents: list[Any]) -> tuple[list[Any], _Failure | None]:
    """Work, and say how far it came."""
    assert _work is not None
    made: list[Any] = []
    try:
        made.extend(_work(iter(documents)))  # as far as it comes
    except Exception as error:
        frame, _ = list(traceback.walk_tb(error.__traceback__))[-1]
        said = "".join(traceback.format_exception(error))
        return made, _Failure(_sendable(error), frame.f_globals.get("__name__", ""), said)
    return made, None


def _sendable(error: Exception) -> Exception:
    """Put another in the place of one whose class wants more than its message."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
