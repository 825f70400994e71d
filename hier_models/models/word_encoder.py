"""Words and their characters as vectors, and recurrent layers that read a batch of texts of any length.

Axes in shape comments: texts (contexts or questions), words (of a text) and chars (of a word), padding on the right.
"""

import torch
from torch import nn

from .autocast_lstm import AutocastLstm
from .configuration_ham_reader import HamReaderConfig


def reversed_places(lengths: torch.Tensor, count: int) -> torch.Tensor:
    """Places that bring the words of texts into the opposite order, and back; padding stays behind them."""
    places = torch.arange(count, device=lengths.device)
    return torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)  # (texts, count)


class RecurrentEncoder(nn.Module):
    """Recurrent layers that read in both directions; padding changes nothing."""

    def __init__(self, cell: str, input_size: int, hidden_size: int, layers: int = 1, *, dropout: float = 0.0):
        super().__init__()
        make = AutocastLstm if cell == "lstm" else nn.GRU
        sizes = [input_size] + [2 * hidden_size] * layers
        # Packed sequences would do without `backward_layers`, and are several times slower on CPU.
        self.layers, self.backward_layers = (
            nn.ModuleList(make(size, hidden_size, batch_first=True) for size in sizes[:layers]) for _ in range(2)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read texts."""  # states (texts, words, input_size)
        lengths = lengths.to(states.device)
        places = torch.arange(states.shape[1], device=states.device)
        mask = (places < lengths[:, None])[..., None]
        reverse = reversed_places(lengths, states.shape[1])
        rows = torch.arange(len(states), device=states.device)
        ends = (lengths - 1).clamp(min=0)
        final = states.new_zeros(len(states), 0)
        for layer, backward_layer in zip(self.layers, self.backward_layers, strict=True):
            states = self.dropout(states)
            there = layer(states)[0]
            back = backward_layer(states[rows[:, None], reverse])[0]
            states = torch.cat([there, back[rows[:, None], reverse]], -1) * mask
            final = torch.cat([there[rows, ends], back[rows, ends]], -1)
        return states, final


class CharacterEncoder(nn.Module):
    """A word's vector from its characters, padded behind: Seo et al. 2016, section 2; Wang et al. 2017, 3.1."""

    def __init__(self, config: HamReaderConfig):
        super().__init__()
        self.kernel_size = config.char_kernel_size
        self.embed_chars = nn.Embedding(config.char_vocab_size, config.char_embedding_size, padding_idx=0)
        self.dropout = nn.Dropout(config.dropout)
        self.convolution: nn.Module | None = None
        if config.char_encoder == "convolution":
            self.convolution = nn.Conv1d(config.char_embedding_size, config.char_hidden_size, config.char_kernel_size)
        else:
            self.recurrent = RecurrentEncoder("gru", config.char_embedding_size, config.char_hidden_size // 2)

    def forward(self, char_ids: torch.Tensor) -> torch.Tensor:  # char_ids (words, chars)
        """Read the characters of words."""
        mask = char_ids != 0
        states = self.dropout(self.embed_chars(char_ids))
        if self.convolution is None:
            return self.recurrent(states, mask.sum(-1))[1]  # type: ignore[no-any-return]
        states = nn.functional.pad(states * mask[..., None], (0, 0, 0, self.kernel_size - 1))
        filtered = self.convolution(states.transpose(1, 2)).relu()  # (words, char_hidden_size, chars)
        return torch.amax(filtered * mask[:, None], -1)  # none is negative


class HighwayLayer(nn.Module):
    """A highway layer. Source: Seo et al. 2016, section 2, layer 2."""

    def __init__(self, size: int):
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, states: torch.Tensor) -> torch.Tensor:  # states (…, size)
        """Transform a part of each number."""
        transformed: torch.Tensor = self.gate(states).sigmoid() * (self.transform(states).relu() - states)
        return states + transformed  # (…, size)


class WordEncoder(nn.Module):
    """Embeddings of words, what their characters give, and BiDAF's highway over both."""

    def __init__(self, config: HamReaderConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size, config.pad_token_id)
        self.chars = CharacterEncoder(config) if config.char_vocab_size else None
        self.char_size = config.char_hidden_size
        layers = config.highway_layers if config.reader == "bidaf" else 0
        self.highway = nn.ModuleList(HighwayLayer(config.word_size) for _ in range(layers))

    def forward(
        self, embeddings: torch.Tensor, mask: torch.Tensor, char_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Make the vectors of words."""
        # embeddings (texts, words, embedding_size), mask (texts, words), char_ids (texts, words, chars)
        states = embeddings
        if self.chars is not None and char_ids is not None:
            # A word without any character that is known to be one, such as padding, has a vector of zeros.
            spelled = mask & (char_ids != 0).any(-1)
            made = self.chars(char_ids[spelled]) if bool(spelled.any()) else states.new_zeros(0, self.char_size)
            of_chars = states.new_zeros(*mask.shape, made.shape[-1])
            of_chars[spelled] = made.to(states.dtype)
            states = torch.cat([states, of_chars], -1)
        for layer in self.highway:
            states = layer(states)
        return states  # (texts, words, word_size)
