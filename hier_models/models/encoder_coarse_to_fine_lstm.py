"""The encoder of the Coarse-to-Fine LSTM: an LSTM over the words of each row, and the rows' keys for coarse attention.

Axes in shape comments: batch (documents), source (source tokens), rows (of a document, or of all documents where they
stand in front), tokens (tokens in rows, of all rows, without padding).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import can_return_tuple

from .autocast_lstm import AutocastLstm
from .conditional_reading import CoarseToFineLstmRowStore
from .configuration_coarse_to_fine_lstm import CoarseToFineLstmConfig
from .input_checks import check_source
from .model_outputs import CoarseToFineLstmEncoderOutput
from .reinforce import RewardBaseline
from .rows import Rows, check_row_ids, find_rows
from .warm_start import FreezesEmbeddings


class CoarseToFineLstmPreTrainedModel(FreezesEmbeddings):
    """What the models of this family share."""

    config: CoarseToFineLstmConfig
    config_class = CoarseToFineLstmConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["CoarseToFineLstmEncoderLayer", "CoarseToFineLstmDecoderStep"]
    _reads_source = False
    # Models 2 and 3 load each other's checkpoints.
    _keys_to_ignore_on_load_unexpected = [r"reward_baseline\."]
    _keys_to_ignore_on_load_missing = [r"reward_baseline\."]

    def _freeze(self) -> None:
        """Make embeddings of the source's words untrainable, if they are to be."""
        if not self.config.freeze_source_embeddings:
            return
        for part in self.modules():
            if getattr(part, "_reads_source", False):
                for module in (part, getattr(part, "coarse", None)):
                    if hasattr(module, "embed_tokens"):
                        module.embed_tokens.weight.requires_grad_(False)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Thesis, section 5.4: all weights uniform."""
        for parameter in module.parameters(recurse=False):
            init.uniform_(parameter, -self.config.init_range, self.config.init_range)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            init.zeros_(module.weight[module.padding_idx])
        if isinstance(module, RewardBaseline):
            init.zeros_(module.values)


class CoarseToFineLstmEncoderLayer(GradientCheckpointingLayer):
    """One LSTM layer over packed rows. Source: equations 4.1 to 4.5."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.lstm = AutocastLstm(input_size, hidden_size)

    def forward(self, inputs: torch.Tensor, batch_sizes: torch.Tensor) -> torch.Tensor:
        """Return the states, `(tokens, hidden_size)`, for `(tokens, input_size)` in packed order."""
        return self.lstm(PackedSequence(inputs, batch_sizes))[0].data


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


class CoarseToFineLstmEncoder(CoarseToFineLstmPreTrainedModel):
    """Reads a document row by row. Source: thesis, sections 4.1 and 4.3."""

    _reads_source = True

    def __init__(self, config: CoarseToFineLstmConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size, config.pad_token_id)
        sizes = [config.embedding_size] + [config.hidden_size] * config.encoder_layers
        self.layers = nn.ModuleList(
            CoarseToFineLstmEncoderLayer(*sizes[i : i + 2]) for i in range(config.encoder_layers)
        )
        self.dropout = nn.Dropout(config.dropout)
        if config.attends_to_rows:
            self.coarse = CoarseToFineLstmRowRepresentation(config)
            # The bilinear matrix of attention over rows: keys once, then each decoding step is one product.
            self.row_keys = nn.Linear(config.row_size, config.hidden_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,  # (batch, source)
        attention_mask: torch.Tensor | None = None,  # (batch, source)
        row_ids: torch.Tensor | None = None,  # (batch, source)
        inputs_embeds: torch.Tensor | None = None,  # (batch, source, embedding_size)
        output_hidden_states: bool | None = None,
        read_on_demand: bool | None = None,
        **kwargs: Any,
    ) -> CoarseToFineLstmEncoderOutput:
        """Encode a source."""
        config = self.config
        check_source(config, input_ids, inputs_embeds, attention_mask, width="embedding_size")
        given: Any = input_ids if input_ids is not None else inputs_embeds
        shape = given.shape[:2]
        if input_ids is None and config.attends_to_rows and config.coarse_representation == "bag_of_words":
            raise ValueError(
                "`inputs_embeds` must not be given with coarse_representation='bag_of_words', which has embeddings of "
                "its own and needs the words. Give `input_ids`."
            )
        if row_ids is not None:
            check_row_ids(row_ids, shape)
        is_word = torch.ones(shape, dtype=torch.bool, device=given.device)
        if attention_mask is not None:
            is_word = attention_mask.to(given.device) != 0
        if row_ids is None:
            row_ids = torch.where(is_word, 0, -1)
        elif not config.attend_padding:
            row_ids = row_ids.to(given.device).where(is_word, -1)
        num_rows = max(1, int(row_ids.max()) + 1)
        if config.attends_to_rows and config.row_position_size and num_rows > config.max_rows:
            raise ValueError(
                f"`row_ids` has {num_rows} rows, more than max_rows={config.max_rows} row positions. Truncate the "
                "document (`truncation=True` with the processor's `num_rows`), or train a model with a larger "
                "`max_rows`, or without row positions (`row_position_size=0`)."
            )

        # Model 0 reads the document as one row, whatever rows its attention is looked at by.
        read_ids, num_read = (row_ids.clamp(max=0), 1) if config.attention == "standard" else (row_ids, num_rows)
        rows = find_rows(read_ids, num_read)
        is_padding = None
        if config.attend_padding:
            is_padding = ~is_word.flatten()[rows.tokens]
        words = self._embed(input_ids, inputs_embeds, rows, is_padding)

        keys = None
        if config.attends_to_rows:
            coarse_rows, token_ids = rows, None
            if config.coarse_representation == "bag_of_words":
                token_ids = input_ids.flatten()[rows.tokens]
                if is_padding is not None:
                    coarse_rows, token_ids = rows.only(~is_padding), token_ids[~is_padding]
            representations = self.coarse(coarse_rows, len(row_ids), words, token_ids)  # (batch, rows, row_size)
            keys = self.row_keys(representations)  # (batch, rows, hidden_size)
        if read_on_demand is None:
            read_on_demand = config.attention == "hard" and not torch.is_grad_enabled()
        if read_on_demand and not output_hidden_states:
            store = CoarseToFineLstmRowStore(self.read, words, rows, is_padding, keys, shape[1])
            return CoarseToFineLstmEncoderOutput(
                last_hidden_state=keys.new_empty(*shape, 0),
                document_ids=torch.arange(shape[0], device=given.device),
                row_store=store,
            )

        vectors = words(torch.arange(len(rows.tokens), device=given.device))  # (tokens, embedding_size)
        states = self.read(vectors, rows, is_padding)
        if not output_hidden_states:
            states = states[-1:]
        # (batch, source, width), zero outside of rows
        padded = [_scatter(state, rows.tokens, shape) for state in states]
        return CoarseToFineLstmEncoderOutput(
            last_hidden_state=padded[-1],
            row_ids=row_ids,
            row_keys=keys,
            row_tokens=None if keys is None else _row_tokens(rows, shape),
            hidden_states=tuple(padded) if output_hidden_states else None,
        )

    def read(self, vectors: torch.Tensor, rows: Rows, is_padding: torch.Tensor | None) -> list[torch.Tensor]:
        """Run the LSTM over rows, each from a state of zeros. Source: equation 4.12."""
        # vectors (tokens, embedding_size)
        all_states = [vectors]
        if is_padding is not None:
            rows = rows.only(~is_padding)
        if len(rows.tokens) == 0:
            return all_states + [vectors.new_zeros(len(vectors), self.config.hidden_size)] * len(self.layers)
        order, batch_sizes = rows.reading_order()
        places = order if is_padding is None else rows.tokens[order]
        states = vectors.index_select(0, places)
        for i, layer in enumerate(self.layers):
            states = layer(states if i == 0 else self.dropout(states), batch_sizes)
            zeros = states.new_zeros(len(vectors), states.shape[-1])
            all_states.append(zeros.index_copy(0, places, states))
        return all_states  # (tokens, width)

    def _embed(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        rows: Rows,
        is_padding: torch.Tensor | None,
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return what gives the embeddings of tokens at any places in `rows.tokens`."""
        if inputs_embeds is None and self.training:
            # In the source's shape, as NEFTune's noise needs it.
            inputs_embeds, input_ids = self.embed_tokens(input_ids), None
        flat: Any = None if inputs_embeds is None else inputs_embeds.flatten(0, 1)
        ids = None if input_ids is None else input_ids.flatten()

        def look_up(places: torch.Tensor) -> torch.Tensor:
            if len(rows.tokens) == 0:  # nothing but padding
                shape = (*places.shape, self.config.embedding_size)
                return torch.zeros(shape, dtype=self.dtype, device=places.device)
            tokens = rows.tokens[places]
            vectors = nn.functional.embedding(tokens, flat) if ids is None else self.embed_tokens(ids[tokens])
            if is_padding is not None:
                vectors = vectors.masked_fill(is_padding[places].unsqueeze(-1), 0.0)
            return vectors

        if not torch.is_grad_enabled() or len(rows.tokens) == 0:
            return look_up
        # Once, or each time would make a gradient as large as the whole embedding.
        found = look_up(torch.arange(len(rows.tokens), device=rows.tokens.device))
        return lambda places: nn.functional.embedding(places, found)


def _scatter(states: torch.Tensor, places: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    zeros = states.new_zeros(shape.numel(), states.shape[-1])
    return zeros.index_copy(0, places, states).unflatten(0, tuple(shape))


def _row_tokens(rows: Rows, shape: torch.Size) -> torch.Tensor:
    """Place in the source of each token of each row, `(batch, rows, words)`, -1 where there is none."""
    places, exists = rows.table(max(1, int(rows.lengths.max())))
    if len(rows.tokens) == 0:
        return torch.full_like(places, -1).unflatten(0, (shape[0], -1))
    return torch.where(exists, rows.tokens[places] % shape[1], -1).unflatten(0, (shape[0], -1))
