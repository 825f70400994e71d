"""Counts that stay right when the workers of a data loader do the counting."""

from typing import Any

import torch
from torch.utils.data import get_worker_info


class SharedTotals:
    """A few counters in shared memory: what a data loader's workers add is seen by the process that started them.

    Args:
        size: Number of counters.
    """

    # One row for the main process and one for each worker, so that no two processes ever write to the same number.
    ROWS = 257

    def __init__(self, size: int) -> None:
        self._counts = torch.zeros((self.ROWS, size), dtype=torch.int64).share_memory_()

    def add(self, *amounts: int) -> None:
        """Add to the counters.

        Args:
            *amounts: What to add to each counter, in their order.
        """
        worker = get_worker_info()
        row = 0 if worker is None else 1 + worker.id % (self.ROWS - 1)
        self._counts[row] += torch.tensor(amounts, dtype=torch.int64)

    def __deepcopy__(self, memo: dict[int, Any]) -> "SharedTotals":
        """A copy counts into the same numbers; datasets copies what it interleaves."""
        return self

    def __getitem__(self, index: int) -> int:
        """Read one counter.

        Args:
            index: Which counter, from 0.

        Returns:
            Its sum over all processes.
        """
        return int(self._counts[:, index].sum())
