"""The coarse level of the Coarse-to-Fine LSTM: one vector for each row, from word embeddings alone.

Axes in shape comments: tokens (in rows, of all rows), rows (of all documents), words (of a row, padded), windows.
"""

from collections.abc import Callable

import torch
from torch import nn

from .configuration_coarse_to_fine_lstm import CoarseToFineLstmConfig
from .rows import Rows


# Values that the convolution may make at once. More rows are done in turns, those of like length together.
_VALUES_AT_ONCE = 2**22


class CoarseToFineLstmRowRepresentation(nn.Module):
    """Represents each row by one vector. Source: thesis, section 4.3, equations 4.13 and 4.14."""

    def __init__(self, config: CoarseToFineLstmConfig):
        super().__init__()
        self.kind = config.coarse_representation
        if self.kind == "convolution":
            self.convolution = nn.Conv1d(config.embedding_size, config.coarse_filters, config.coarse_kernel_size)
        else:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size, config.pad_token_id)
        if config.row_position_size:
            self.embed_positions = nn.Embedding(config.max_rows, config.row_position_size)

    def forward(
        self,
        rows: Rows,
        documents: int,
        words: Callable[[torch.Tensor], torch.Tensor],  # (…, embedding_size)
        token_ids: torch.Tensor | None,
    ) -> torch.Tensor:
        """Represent the rows of a batch."""
        if self.kind == "convolution":
            vectors = self._convolve(rows, words)
        else:
            assert token_ids is not None
            embeddings = self.embed_tokens(token_ids)  # (tokens, embedding_size)
            zeros = embeddings.new_zeros(len(rows.lengths), embeddings.shape[-1])
            vectors = zeros.index_add(0, rows.row_of_each(), embeddings)  # equation 4.13
        vectors = vectors.unflatten(0, (documents, -1))
        if hasattr(self, "embed_positions"):
            positions = self.embed_positions(torch.arange(vectors.shape[1], device=vectors.device))
            vectors = torch.cat([vectors, positions.expand(documents, -1, -1)], dim=-1)
        return vectors  # (documents, rows, row_size)

    def _convolve(self, rows: Rows, words: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Equation 4.14, over windows inside of each row; a row shorter than the kernel is padded with zeros."""
        kernel = self.convolution.kernel_size[0]
        order = rows.lengths.argsort(descending=True, stable=True)
        lengths = rows.lengths[order].tolist()
        found, start = [], 0
        while start < len(lengths):
            width = max(lengths[start], kernel)
            end = min(len(lengths), start + max(1, _VALUES_AT_ONCE // (width * self.convolution.out_channels)))
            some, start = order[start:end], end
            places, exists = rows.table(width, some)
            embeddings = words(places).masked_fill(~exists.unsqueeze(-1), 0.0)  # (rows, words, embedding_size)
            scores = self.convolution(embeddings.transpose(1, 2))  # (rows, filters, windows)
            last = (rows.lengths[some] - kernel).clamp(min=0)
            outside = torch.arange(scores.shape[-1], device=scores.device) > last[:, None]
            # The hyperbolic tangent of the highest is the highest of the hyperbolic tangents.
            found.append(scores.masked_fill(outside[:, None], float("-inf")).amax(dim=-1).tanh())
        vectors = torch.cat(found).index_select(0, order.argsort())
        return vectors.masked_fill((rows.lengths == 0)[:, None], 0.0)
