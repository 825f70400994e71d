"""A cache whose layers keep room for what is yet to be written.

[`DynamicLayer`] copies all of its keys and values into new memory for each token.
"""

import ctypes
import functools
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from .kernels import kernels, run_parts
from .torch_kernels import is_watched


ROOM = 32  # tokens
LEAST_OF_THREAD = 2**19  # numbers moved, for which it is worth waking one up


class GrowingLayer(DynamicLayer):
    """Keys and values of a layer, `(batch, heads, tokens, head_dim)`, as the beginning of larger tensors."""

    def __init__(self, found: list[Any] | None = None) -> None:
        super().__init__()
        self.rooms: list[torch.Tensor] = []  # of keys and of values, (batch, heads, room, head_dim)
        self.written = [0]  # tokens that the rooms hold; shared by shallow copies, which share the rooms
        # Which row wrote each token, (batch, tokens up to the last reordering); None where others read the rooms too.
        self.origins: torch.Tensor | None = None
        # What a reordering moves, found last, with what it was found of: all layers of a cache mostly move alike.
        self.found: list[Any] = [] if found is None else found

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the next keys and values behind the others, and return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin, new = self.get_seq_length(), [key_states, value_states]
        old: list[Any] = [self.keys, self.values] if begin else []
        # What is kept for gradients must stay as it is. Other devices: not measured.
        if (
            torch.compiler.is_compiling()
            or torch.is_grad_enabled()
            or is_watched()
            or key_states.device.type != "cpu"
            or any(_kind(of) != _kind(states) for of, states in zip(old, new, strict=False))
        ):
            self.rooms = []
            return super().update(key_states, value_states, *args, **kwargs)
        end = begin + key_states.shape[-2]
        if self.make_room(end - begin) is None:
            self._enlarge(begin, end, new, old)
        for larger, states in zip(self.rooms, new, strict=True):
            larger[:, :, begin:end] = states
        self.hold(end)
        return self.keys, self.values  # type: ignore[return-value]

    def make_room(self, tokens: int) -> list[torch.Tensor] | None:
        """Rooms of keys and of values, with place for some more tokens; None if nobody may write there."""
        if not self._in_rooms():
            return None
        begin = self.get_seq_length()
        if self.written[0] != begin or self.rooms[0].shape[-2] < begin + tokens:
            own: list[Any] = [self.keys, self.values]
            self._enlarge(begin, begin + tokens, own, own)
        return self.rooms

    def hold(self, tokens: int) -> None:
        """Have so many tokens of the rooms as keys and values."""
        self.keys, self.values = (room[:, :, :tokens] for room in self.rooms)
        self.written[0] = tokens

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Give each beam what the beam has written that it goes on from, with the room behind it.

        Beams of a document have most of their tokens in common. Where there is a compiled kernel, it moves the others,
        within the room.
        """
        if not self._in_rooms():
            self.rooms = []
            super().reorder_cache(beam_idx)
            return
        end, sources = self.get_seq_length(), beam_idx.to(self.rooms[0].device)
        begin, moved, self.origins = self._first_moved(sources, end)
        if begin is None:
            self._select(sources, end)
        else:
            for room in self.rooms:
                _move(room, sources, begin, end, moved)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some of the rows."""
        if not self._in_rooms():
            self.rooms = []
            super().batch_select_indices(indices)
            return
        self.origins = _no_origins(len(indices))
        self._select(indices, self.get_seq_length())

    def reset(self) -> None:
        """Forget all."""
        self.rooms = []
        super().reset()

    def __copy__(self) -> "GrowingLayer":
        """A branch, which shares the rooms; in these neither moves anything."""
        self.origins = None
        branch = type(self)()
        branch.__dict__.update(self.__dict__)
        return branch

    def _select(self, rows: torch.Tensor, end: int) -> None:
        """Have new rooms of these rows, with `end` tokens."""
        self.rooms, self.written = [room.index_select(0, rows.to(room.device)) for room in self.rooms], [end]
        self.hold(end)

    def _first_moved(self, beam_idx: torch.Tensor, end: int) -> tuple[torch.Tensor | None, int, torch.Tensor]:
        """The first token of each row that differs in the one that it goes on from, and how many tokens are moved.

        None if they may not be moved alone; and which row then wrote each token.
        """
        count = len(self.rooms[0])
        if self.origins is None or len(beam_idx) != count or not hasattr(kernels(), "move_tokens"):
            return None, 0, _no_origins(len(beam_idx))
        for origins, until, beams, found in self.found:
            if origins is self.origins and until == end and torch.equal(beams, beam_idx):
                return found  # type: ignore[no-any-return]
        before = torch.cat([self.origins[:, :end], torch.arange(count)[:, None].expand(-1, end)], dim=1)[:, :end]
        origins = before.index_select(0, beam_idx)  # which refuses what is no row
        differs = origins != before
        begin = torch.where(differs.any(dim=1), differs.int().argmax(dim=1), end)
        found = begin, int((end - begin).sum()), origins
        self.found[:] = [(self.origins, end, beam_idx.clone(), found)]
        return found

    def _enlarge(self, begin: int, end: int, like: list[torch.Tensor], old: list[Any]) -> None:
        """Copy what is there into rooms that have place up to `end`."""
        room = -(-end // ROOM) * ROOM
        self.rooms = [states.new_empty((*states.shape[:2], room, states.shape[-1])) for states in like]
        self.written, self.origins = [begin], _no_origins(len(like[0]))
        for larger, states in zip(self.rooms, old, strict=False):
            larger[:, :, :begin] = states

    def _in_rooms(self) -> bool:
        """Whether keys and values are still the beginning of the rooms, which may be written to."""
        return bool(self.rooms) and all(
            states is not None
            and (states.data_ptr(), states.stride()) == (room.data_ptr(), room.stride())
            and _kind(states) == _kind(room)
            and (torch.is_inference_mode_enabled() or not room.is_inference())
            for room, states in zip(self.rooms, (self.keys, self.values), strict=True)
        )


@functools.lru_cache(16)
def _no_origins(rows: int) -> torch.Tensor:
    """Before anything was moved, every row wrote its own tokens; of all layers the same."""
    with torch.inference_mode(False):
        return torch.empty(rows, 0, dtype=torch.int64)


def _move(room: torch.Tensor, sources: torch.Tensor, begin: torch.Tensor, end: int, moved: int) -> None:
    """Give rows of a room, (batch, heads, room, head_dim), what their sources have from `begin` on, (batch,) each."""
    library: Any = kernels()
    rows, heads, _, head_dim = room.shape
    size, of_head = (room.element_size() * stride for stride in (room.stride(2), room.stride(1)))
    held = room, sources.to(torch.int64).contiguous(), begin
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in held]

    def run(part: tuple[int, int], held: Any = held) -> None:
        # What is `held` stays in memory as long as a thread writes into it, also after an interrupt.
        numbers = map(ctypes.c_long, (rows, end, heads, size, of_head, *part))
        if library.move_tokens(*pointers, *numbers):
            raise MemoryError(f"no memory for {moved} tokens")

    if moved:
        run_parts(run, heads, max(1, min(torch.get_num_threads(), heads, moved * heads * head_dim // LEAST_OF_THREAD)))


def _kind(states: torch.Tensor) -> tuple[Any, ...]:
    return *states.shape[:2], states.shape[-1], states.dtype, states.device


def let_grow(cache: Cache | None) -> None:
    """Give a cache that is still empty, and grows token by token, layers that keep room."""
    if type(cache) is not DynamicCache or cache.offloading or torch.compiler.is_compiling():
        return
    if all(type(layer) is DynamicLayer and not layer.is_initialized for layer in cache.layers):
        found: list[Any] = []
        cache.layers = [GrowingLayer(found) for _ in cache.layers]
