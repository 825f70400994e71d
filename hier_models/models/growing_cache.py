"""A cache whose layers keep room for what is yet to be written, and let beams change places in it.

[`DynamicLayer`] copies all of its keys and values for each token, and once more where beams change places, each time
into new memory.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

from .torch_kernels import is_watched


ROOM = 32  # tokens; what moves with beams is whole rooms


class GrowingLayer(DynamicLayer):
    """Keys and values of a layer, `(batch, heads, tokens, head_dim)`, as the beginning of larger tensors.

    Args:
        spare: a tensor that beams may be moved to, for all layers of a cache.
    """

    def __init__(self, spare: list[torch.Tensor]) -> None:
        super().__init__()
        self.spare = spare
        self.rooms: list[torch.Tensor] = []  # of keys and of values, (batch, heads, room, head_dim)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the next keys and values behind the others, and return all."""
        # What is kept for gradients must stay as it is. Other devices: not measured.
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or is_watched() or key_states.device.type != "cpu":
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin = self.get_seq_length()
        end = begin + key_states.shape[-2]
        if not self._in_rooms() or self.rooms[0].shape[-2] < end:
            room = -(-end // ROOM) * ROOM
            self.rooms = [new.new_empty((*new.shape[:2], room, new.shape[-1])) for new in (key_states, value_states)]
            written: list[Any] = [self.keys, self.values] if begin else []
            for larger, old in zip(self.rooms, written, strict=False):
                larger[:, :, :begin] = old
        for larger, new in zip(self.rooms, (key_states, value_states), strict=True):
            larger[:, :, begin:end] = new
        self.keys, self.values = (larger[:, :, :end] for larger in self.rooms)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Give each beam what the beam has written that it goes on from."""
        if torch.is_grad_enabled() or not self._in_rooms() or len(beam_idx) != len(self.rooms[0]):
            super().reorder_cache(beam_idx)
            return
        end = self.get_seq_length()
        for index, room in enumerate(self.rooms):
            fits = self.spare and self.spare[0].shape == room.shape and self.spare[0].dtype == room.dtype
            moved = self.spare.pop() if fits else torch.empty_like(room)
            self.rooms[index] = torch.index_select(room, 0, beam_idx, out=moved)
            self.spare[:] = [room]
        self.keys, self.values = (room[:, :, :end] for room in self.rooms)

    def _in_rooms(self) -> bool:
        """Whether keys and values are still the beginning of the rooms, which may be written to."""
        pairs = zip(self.rooms, (self.keys, self.values), strict=False)
        return bool(self.rooms) and all(
            states is not None
            and states.data_ptr() == room.data_ptr()
            and states.stride() == room.stride()
            and len(states) == len(room)
            and (torch.is_inference_mode_enabled() or not room.is_inference())
            for room, states in pairs
        )


def let_grow(cache: Cache | None) -> None:
    """Give a cache that is still empty, and grows token by token, layers that keep room."""
    if cache is None or cache.offloading or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return
    if all(type(layer) is DynamicLayer and not layer.is_initialized for layer in cache.layers):
        spare: list[torch.Tensor] = []
        cache.layers = [GrowingLayer(spare) for _ in cache.layers]
