"""torch's LSTM, also in mixed precision on CPUs that have none, where torch ends in an error of oneDNN's."""

import functools
from typing import Any

import torch
from torch import nn


class AutocastLstm(nn.LSTM):
    """An LSTM that computes in its weights' precision where autocast on a CPU asks for one that the CPU has not."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Read sequences; see `torch.nn.LSTM`."""
        states = input.data if isinstance(input, nn.utils.rnn.PackedSequence) else input
        is_mixed = states.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        if not is_mixed or _works(torch.get_autocast_dtype("cpu")):
            return super().forward(input, hx)
        with torch.autocast("cpu", enabled=False):
            dtype = self.weight_ih_l0.dtype
            return super().forward(input.to(dtype), None if hx is None else tuple(state.to(dtype) for state in hx))


@functools.cache
def _works(dtype: torch.dtype) -> bool:
    """Whether this CPU has an LSTM in mixed precision, found out by trying."""
    lstm = nn.LSTM(1, 1, device="cpu", dtype=torch.float32)
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
            lstm(torch.zeros(1, 1, 1))
    except RuntimeError:
        return False
    return True
