"""Counts that stay right when the workers of a data loader do the counting."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch.utils.data import get_worker_info


class SharedCounts:
    """Named counts in shared memory: what a data loader's workers add is seen by the process that started them.

    Each name is an attribute. With a streamed dataset the numbers grow while it is iterated over, and every pass
    counts again.
    """

    NAMES: ClassVar[tuple[str, ...]] = ()
    # One row for the main process and one for each worker, so that no two processes ever write to the same number.
    ROWS: ClassVar[int] = 257

    def __init__(self) -> None:
        self._table = torch.zeros((self.ROWS, len(self.NAMES)), dtype=torch.int64).share_memory_()

    def add(self, **amounts: int) -> None:
        """Add to the counts of these names."""
        worker = get_worker_info()
        row = 0 if worker is None else 1 + worker.id % (self.ROWS - 1)
        self._table[row] += torch.tensor([amounts.get(name, 0) for name in self.NAMES], dtype=torch.int64)

    def __getattr__(self, name: str) -> int:
        if name not in self.NAMES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return int(self._table[:, self.NAMES.index(name)].sum())

    def as_dict(self) -> dict[str, Any]:
        """The report for a results file."""
        return {name: getattr(self, name) for name in self.NAMES}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy counts into the same numbers; datasets copies what it interleaves."""
        return self


class Counting:
    """A function for `map` of a streamed dataset, whose rows have to be counted as they go by."""

    def __init__(self, function: Callable[..., dict[str, Any]], count: Callable[..., None]) -> None:
        self._function, self._count = function, count

    def __call__(self, *arguments: Any) -> dict[str, Any]:
        """Call the function, and give what it returns, and its arguments, to what counts."""
        result = self._function(*arguments)
        self._count(result, *arguments)
        return result
