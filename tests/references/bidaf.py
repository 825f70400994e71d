"""BiDAF as one would write it down in PyTorch: the peer of `benchmarks/ham.py`, without levels.

Source: Seo et al. 2016, section 2. Words and characters in, scores of starts and ends out, with the usual shortcuts:
the similarity is a tensor of (batch, words, keys, 6 · hidden_size) made by expanding, and padding is read like words.
"""

import torch
from torch import nn


class PlainBidaf(nn.Module):
    """BiDAF in its usual form.

    Args:
        vocab_size: words.
        char_vocab_size: characters.
        embedding_size: width of word embeddings.
        char_embedding_size: width of character embeddings.
        char_hidden_size: filters over characters.
        char_kernel_size: characters that a filter sees.
        hidden_size: units in each direction.
        dropout: before recurrent layers and the output.
    """

    def __init__(
        self,
        vocab_size: int,
        char_vocab_size: int,
        embedding_size: int = 100,
        char_embedding_size: int = 16,
        char_hidden_size: int = 100,
        char_kernel_size: int = 5,
        hidden_size: int = 100,
        dropout: float = 0.2,
    ):
        super().__init__()
        size = embedding_size + char_hidden_size
        self.embed_words = nn.Embedding(vocab_size, embedding_size)
        self.embed_chars = nn.Embedding(char_vocab_size, char_embedding_size)
        self.convolution = nn.Conv1d(char_embedding_size, char_hidden_size, char_kernel_size)
        self.transforms = nn.ModuleList(nn.Linear(size, size) for _ in range(2))
        self.gates = nn.ModuleList(nn.Linear(size, size) for _ in range(2))
        self.contextual = nn.LSTM(size, hidden_size, batch_first=True, bidirectional=True)
        self.similarity = nn.Linear(6 * hidden_size, 1, bias=False)
        self.modeling = nn.LSTM(
            8 * hidden_size, hidden_size, num_layers=2, batch_first=True, bidirectional=True, dropout=dropout
        )
        self.end_modeling = nn.LSTM(2 * hidden_size, hidden_size, batch_first=True, bidirectional=True)
        self.start = nn.Linear(10 * hidden_size, 1)
        self.end = nn.Linear(10 * hidden_size, 1)
        self.dropout = nn.Dropout(dropout)

    def words(self, ids: torch.Tensor, characters: torch.Tensor) -> torch.Tensor:
        batch, words, length = characters.shape
        spelled = self.embed_chars(characters).view(batch * words, length, -1).transpose(1, 2)
        spelled = self.convolution(spelled).relu().amax(-1).view(batch, words, -1)
        states = torch.cat([self.embed_words(ids), spelled], -1)
        for transform, gate in zip(self.transforms, self.gates, strict=True):
            opened = torch.sigmoid(gate(states))
            states = opened * torch.relu(transform(states)) + (1 - opened) * states
        return self.contextual(self.dropout(states))[0]

    def forward(
        self,
        context: torch.Tensor,
        context_characters: torch.Tensor,
        question: torch.Tensor,
        question_characters: torch.Tensor,
        mask: torch.Tensor,
        question_mask: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.words(context, context_characters)  # (batch, words, 2 · hidden_size)
        u = self.words(question, question_characters)  # (batch, keys, 2 · hidden_size)
        wide = h[:, :, None].expand(-1, -1, u.shape[1], -1)
        tall = u[:, None].expand(-1, h.shape[1], -1, -1)
        scores = self.similarity(torch.cat([wide, tall, wide * tall], -1)).squeeze(-1)
        scores = scores.masked_fill(~question_mask[:, None], -1e30)
        of_question = scores.softmax(-1) @ u
        best = scores.max(-1).values.masked_fill(~mask, -1e30).softmax(-1)
        of_context = (best[:, None] @ h).expand_as(h)
        joined = torch.cat([h, of_question, h * of_question, h * of_context], -1)
        modeled = self.modeling(self.dropout(joined))[0]
        for_end = self.end_modeling(self.dropout(modeled))[0]
        start = self.start(self.dropout(torch.cat([joined, modeled], -1))).squeeze(-1)
        end = self.end(self.dropout(torch.cat([joined, for_end], -1))).squeeze(-1)
        return start.masked_fill(~mask, -1e30), end.masked_fill(~mask, -1e30)
