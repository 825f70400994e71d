"""The state of a recurrent decoder between decoding steps, and the loop over the steps of a target."""

from collections.abc import Callable
from typing import Any

import torch
from transformers.cache_utils import Cache


class RecurrentCache(Cache):
    """State of a decoder after each token (until beams are reordered, for [`crop`]), and what attention needs."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        # Context, hidden states, cells of an LSTM: each (batch, 1 + layers, width) or (batch, 1 + 2 * layers, width).
        self.states: list[torch.Tensor] = []
        self.seen = 0
        self.memory: Any = None

    @property
    def state(self) -> torch.Tensor | None:
        """State after the last token."""
        return self.states[-1] if self.states else None

    @property
    def encoded_rows(self) -> torch.Tensor | None:
        """Rows that were read of each document, `(documents,)`, if they are read on demand."""
        store = getattr(self.memory, "store", None)
        return None if store is None else store.encoded_rows.clone()

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle the state alone: what attention needs is made anew of the encoder's outputs."""
        return {**self.__dict__, "memory": None}

    def keep(self, memory: Any, states: list[torch.Tensor]) -> "RecurrentCache":
        """Add the states after further tokens."""
        self.memory = memory
        self.states += states
        self.seen += len(states)
        return self

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens that went in."""
        return self.seen

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Return -1: there is no limit."""
        return -1

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Give each beam the state of the beam that it goes on from, of the same source."""
        self._change(lambda state: state.index_select(0, beam_idx.to(state.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each state."""
        self.memory = None
        self._change(lambda state: state.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Select sequences."""
        self.memory = None
        self._change(lambda state: state[indices.to(state.device)])

    def _change(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.states = [function(state) for state in self.states[-1:]]

    def crop(self, tokens_to_remove: int) -> None:
        """Take the last tokens back: their number, negative, as Transformers' caches want it."""
        removed = -tokens_to_remove
        if removed < 0:
            raise ValueError(f"`tokens_to_remove` must be 0 or negative, got {tokens_to_remove}.")
        if removed > self.seen or (removed >= len(self.states) and removed < self.seen):
            raise ValueError(
                f"`tokens_to_remove` must be at most the {max(0, len(self.states) - 1)} tokens whose states are kept, "
                f"got {tokens_to_remove}. States before the last reordering of beams are not kept."
            )
        if removed:
            del self.states[-removed:]
            self.seen -= removed

    def reset(self) -> None:
        """Forget everything."""
        self.states, self.seen, self.memory = [], 0, None

    @property
    def batch_size(self) -> int:
        """Sequences in the cache, -1 before the first token."""
        return len(self.states[-1]) if self.states else -1

    @property
    def is_initialized(self) -> bool:
        """Whether a token went in."""
        return bool(self.states)

    @property
    def is_linear(self) -> list[bool]:
        """Not linear attention, which `generate` takes a cache without layers for: it would read all tokens again."""
        return [False]


def begin_steps(
    decoder: Any, cache: Cache | None, use_cache: bool | None, make_memory: Callable[[], Any]
) -> tuple[RecurrentCache | None, Any, torch.Tensor | None, bool]:
    """What a target goes on from: cache, what attention needs of the source, state, and whether it is to be kept."""
    use_cache = decoder.config.use_cache if use_cache is None else use_cache
    if decoder.training and decoder.step.gradient_checkpointing and torch.is_grad_enabled():
        use_cache = False
    own = cache if isinstance(cache, RecurrentCache) else None  # generation makes an empty one of Transformers'
    if own is None and cache is not None and cache.get_seq_length():
        got = f"a {type(cache).__name__} with {cache.get_seq_length()} tokens"
        raise ValueError(f"`cache` must be what this model returned, got {got}.")
    memory = None if own is None else own.memory
    memory = make_memory() if memory is None else memory
    if own is None and use_cache:
        own = RecurrentCache()
    return own, memory, None if own is None else own.state, bool(use_cache)


def take_steps(
    step: Callable[..., Any],
    words: torch.Tensor,  # (batch, target, …)
    state: torch.Tensor,  # (batch, state, width)
    attention_mask: torch.Tensor | None,  # (batch, target), or with earlier tokens in front
    *arguments: Any,
) -> tuple[list[torch.Tensor], list[Any]]:
    """Take a step for each word: the state after each, which padding leaves as it is, and what was found at each."""
    is_padding = None
    if attention_mask is not None:
        is_padding = (attention_mask[:, -words.shape[1] :, None, None] == 0).to(state.device)
    states, found = [], []
    for position, word in enumerate(words.unbind(dim=1)):
        new, *others = step(word, state, *arguments)
        state = new if is_padding is None else torch.where(is_padding[:, position], state, new)
        states.append(state)
        found.append(others)
    return states, found
