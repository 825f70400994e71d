"""BiDAF, Match-LSTM and R-NET with hierarchical attention: a question and a context in, the answer's span out.

Source: "Hierarchical Attention: What Really Counts in Various NLP Tasks", sections 3 and 5.1.

In the order data flows: here the layout of documents; word_encoder.py (words and characters); readers.py, with its
attentions (question_attention.py, match_recurrence.py) and its pointer; and here the model.

Axes in shape comments: batch (questions, each with its context), words (of a context, of all its documents), keys
(words of a question), chars (characters of a word), depth (levels of an attention).
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import initialization as init
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple

from .configuration_ham_reader import HamReaderConfig
from .hierarchical_attention import HamLevelWeights, WeighsLevels
from .input_checks import check_shape, check_source, check_values
from .losses import span_loss
from .question_attention import BidafAttention
from .readers import READERS
from .warm_start import FreezesEmbeddings
from .word_encoder import WordEncoder


class Layout:
    """Moves words between the order they are given in and a row for each document, its padding on the right."""

    def __init__(self, mask: torch.Tensor, document_ids: torch.Tensor | None = None):
        batch, words = mask.shape
        self.given_mask = mask
        self.rows_of_batch: torch.Tensor | None = None  # the context of each row, where that is not its own number
        self.flat: torch.Tensor | None = None  # place of each word in the rows, if they are not as given
        lengths = mask.sum(-1)
        if document_ids is None:
            places = mask.cumsum(-1) - 1
            self.mask = torch.arange(words, device=mask.device) < lengths[:, None]
            self.lengths = lengths
            if bool((self.mask != mask).any()):
                self.flat = places + torch.arange(batch, device=mask.device)[:, None] * words
            return
        most = int(document_ids.masked_fill(~mask, 0).max()) + 1 if mask.numel() else 1
        keys = torch.arange(batch, device=mask.device)[:, None] * most + document_ids
        # A context without any word has a row too, of padding.
        empty = torch.arange(batch, device=mask.device)[lengths == 0] * most
        known, numbers = torch.cat([keys[mask], empty]).unique(return_inverse=True)
        numbers = numbers[: int(lengths.sum())]
        counts = torch.bincount(numbers, minlength=len(known))
        width = max(1, int(counts.max()))
        order = numbers.argsort(stable=True)
        starts = counts.cumsum(0) - counts
        places = torch.empty_like(numbers)
        places[order] = torch.arange(len(numbers), device=mask.device) - starts[numbers[order]]
        self.mask = torch.arange(width, device=mask.device) < counts[:, None]
        self.lengths = counts
        self.rows_of_batch = known // most
        self.flat = mask.new_zeros(mask.shape, dtype=torch.long)
        self.flat[mask] = numbers * width + places

    def to_rows(self, given: torch.Tensor) -> torch.Tensor:  # given (batch, words, …)
        """Bring what there is for each word into rows."""
        if self.flat is None:
            return given
        rows = given.new_zeros(self.mask.numel(), *given.shape[2:])
        rows[self.flat[self.given_mask]] = given[self.given_mask]
        return rows.view(*self.mask.shape, *given.shape[2:])  # (rows, words of the longest, …)

    def to_given(self, rows: torch.Tensor) -> torch.Tensor:  # rows (rows, words of the longest, …)
        """Bring what there is for each word of the rows into the order of the batch."""
        if self.flat is None:
            return rows
        given = rows.new_zeros(*self.given_mask.shape, *rows.shape[2:])
        given[self.given_mask] = rows.flatten(0, 1)[self.flat[self.given_mask]]
        return given  # (batch, words, …)

    def of_rows(self, questions: torch.Tensor) -> torch.Tensor:  # questions (batch, …)
        """Give each row what there is for its context."""
        return questions if self.rows_of_batch is None else questions[self.rows_of_batch]  # (rows, …)


@dataclass
class HamReaderOutput(ModelOutput):
    """Output of a reader."""

    # mean of the cross entropies of starts and ends, with `start_positions` and `end_positions`.
    loss: torch.Tensor | None = None
    # scores of words as the answer's first, the least number for padding, (batch, words).
    start_logits: torch.Tensor | None = None
    end_logits: torch.Tensor | None = None  # scores of words as the answer's last, as those, (batch, words)
    # weights of the levels of each attention, the same for all of the batch, (batch, attentions, depth); R-NET has
    # two, the matching's and the self-matching's.
    level_weights: torch.Tensor | None = None
    # attention of the context to the question, all levels together, (batch, words, keys); with `output_attentions`.
    question_attention: torch.Tensor | None = None


class HamReaderPreTrainedModel(WeighsLevels, FreezesEmbeddings):
    """What the models of this family share."""

    config: HamReaderConfig
    config_class = HamReaderConfig
    base_model_prefix = ""
    _no_split_modules = ["WordEncoder"]

    def _freeze(self) -> None:
        """Make embeddings of words untrainable, if they are to be."""
        embeddings = self.get_input_embeddings()
        if self.config.freeze_embeddings:
            embeddings.weight.requires_grad_(False)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Embeddings normal, levels as the config says, recurrent and linear layers as torch has them."""
        if isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.initializer_range)
            if module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, HamLevelWeights):
            module.reset_parameters()
        elif isinstance(module, BidafAttention):
            bound = module.product_score.numel() ** -0.5
            init.uniform_(module.product_score, -bound, bound)
        elif isinstance(module, nn.Linear | nn.Conv1d):
            bound = module.weight[0].numel() ** -0.5
            for parameter in module.parameters(recurse=False):
                init.uniform_(parameter, -bound, bound)
        elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
            bound = module.hidden_size**-0.5
            for parameter in module.parameters(recurse=False):
                init.uniform_(parameter, -bound, bound)


class HamReaderForQuestionAnswering(HamReaderPreTrainedModel):
    """A reader, BiDAF, Match-LSTM or R-NET, that finds the answer to a question in a context. Source: section 5.1."""

    def __init__(self, config: HamReaderConfig):
        super().__init__(config)
        self.words = WordEncoder(config)
        self.reader = READERS[config.reader](config)
        self._no_split_modules = [*type(self)._no_split_modules, type(self.reader).__name__]
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the embedding of words."""
        return self.words.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the embedding of words."""
        self.words.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        char_ids: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        question_ids: torch.Tensor | None = None,
        question_attention_mask: torch.Tensor | None = None,
        question_char_ids: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HamReaderOutput:
        """Look for the answers to questions.

        Args:
            input_ids: words of contexts, `(batch, words)`.
            attention_mask: 1 for words, 0 for padding, `(batch, words)`.
            char_ids: characters of the words, 0 for padding, `(batch, words, chars)`; of a model that reads them.
            document_ids: document of each word, counted from 0, not decreasing; anything for padding,
                `(batch, words)`. Each document is read with the question for itself, and the answer is looked for in
                all of them. Without them, a context is one document.
            question_ids: words of questions, `(batch, keys)`.
            question_attention_mask: 1 for words, 0 for padding, `(batch, keys)`.
            question_char_ids: characters of those words, `(batch, keys, chars)`.
            start_positions: place of the answer's first word in `input_ids`, `(batch,)`. A place outside of them is
                left out of the loss.
            end_positions: place of its last word, `(batch,)`.
            inputs_embeds: embeddings in place of `input_ids`, `(batch, words, embedding_size)`.
            **kwargs: `output_attentions` and `return_dict`.

        Returns:
            Scores of starts and ends, and what else was asked for.

        Raises:
            ValueError: if inputs are missing or given twice, have a wrong shape or are out of range, a question has no
                word, or one of start and end is missing.
        """
        config = self.config
        shape = check_source(config, input_ids, inputs_embeds, attention_mask, "embedding_size", "words")
        _check_characters("char_ids", config, char_ids, shape)
        _check_questions(config, question_ids, question_attention_mask, question_char_ids, shape[0])
        given = inputs_embeds if input_ids is None else self.words.embed_tokens(input_ids)
        asked = self.words.embed_tokens(question_ids)
        mask = _mask(attention_mask, given)
        question_mask = _mask(question_attention_mask, asked)
        _check_documents(document_ids, mask)
        _check_question(question_mask)

        layout = Layout(mask, document_ids)
        asked_layout = Layout(question_mask)
        question = self.reader.encode(_words(self.words, asked, question_char_ids, asked_layout), asked_layout.lengths)
        context = self.reader.encode(_words(self.words, given, char_ids, layout), layout.lengths)
        read, attention = self.reader.read(
            context, layout.lengths, layout.mask, layout.of_rows(question), layout.of_rows(asked_layout.mask)
        )
        scores = self.reader.point(tuple(map(layout.to_given, read)), mask, question, asked_layout.mask)
        start, end = (score.masked_fill(~mask, torch.finfo(score.dtype).min) for score in scores)
        wanted = kwargs.get("output_attentions")
        if wanted is None:
            wanted = config.output_attentions
        return HamReaderOutput(
            loss=_loss(start, end, start_positions, end_positions),
            start_logits=start,
            end_logits=end,
            level_weights=self._level_weights(start),
            question_attention=_in_given_order(attention, layout, asked_layout) if wanted else None,
        )


def _words(
    encoder: WordEncoder, embeddings: torch.Tensor, char_ids: torch.Tensor | None, layout: Layout
) -> torch.Tensor:
    chars = None if char_ids is None else layout.to_rows(char_ids)
    return encoder(layout.to_rows(embeddings), layout.mask, chars)


def _mask(attention_mask: torch.Tensor | None, words: torch.Tensor) -> torch.Tensor:
    if attention_mask is None:
        return torch.ones(words.shape[:2], dtype=torch.bool, device=words.device)
    return attention_mask.to(torch.bool)


def _loss(
    start: torch.Tensor, end: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor | None
) -> torch.Tensor | None:
    """The loss of spans, where both ends are given."""
    if starts is None and ends is None:
        return None
    if starts is None or ends is None:
        missing = "start_positions" if starts is None else "end_positions"
        raise ValueError(f"Give both `start_positions` and `end_positions`, got no `{missing}`.")
    return span_loss(start, end, starts, ends)


def _check_questions(
    config: HamReaderConfig,
    ids: torch.Tensor | None,  # (batch, keys)
    mask: torch.Tensor | None,  # (batch, keys)
    char_ids: torch.Tensor | None,  # (batch, keys, chars)
    batch: int,
) -> None:
    """Refuse questions that cannot be read, or that are not as many as contexts."""
    if ids is None:
        raise ValueError("Give `question_ids`, got none.")
    if ids.dim() != 2 or len(ids) != batch or not ids.shape[1]:
        raise ValueError(
            f"`question_ids` must be (batch, words), a question for each of {batch} contexts, got shape "
            f"{tuple(ids.shape)}."
        )
    check_values("question_ids", ids, config.vocab_size, "vocab_size")
    check_shape("question_attention_mask", mask, ids.shape)
    _check_characters("question_char_ids", config, char_ids, ids.shape)


def _check_characters(
    name: str, config: HamReaderConfig, char_ids: torch.Tensor | None, shape: tuple[int, ...]
) -> None:  # char_ids (batch, words, chars), shape (batch, words)
    """Refuse characters that the model does not read, or that are not those of its words."""
    if not config.char_vocab_size:
        if char_ids is not None:
            raise ValueError(
                f"`{name}` must not be given to a model that reads words only (char_vocab_size=0), got the shape "
                f"{tuple(char_ids.shape)}."
            )
        return
    if char_ids is None:
        raise ValueError(f"Give `{name}`, got none: the model reads characters of words.")
    if char_ids.dim() != 3 or tuple(char_ids.shape[:2]) != tuple(shape) or not char_ids.shape[2]:
        raise ValueError(
            f"`{name}` must be (batch, words, characters) for words of {tuple(shape)}, got {tuple(char_ids.shape)}."
        )
    check_values(name, char_ids, config.char_vocab_size, "char_vocab_size")


def _check_documents(document_ids: torch.Tensor | None, mask: torch.Tensor) -> None:
    """Refuse documents that do not follow each other."""  # document_ids (batch, words), mask (batch, words)
    if document_ids is None:
        return
    check_shape("document_ids", document_ids, mask.shape)
    of_words = document_ids.masked_fill(~mask, -1)
    if bool((document_ids[mask] < 0).any()):
        raise ValueError(f"`document_ids` must be 0 or more for every word, got {int(document_ids[mask].min())}.")
    if bool(((of_words.cummax(-1).values != of_words) & mask).any()):
        raise ValueError("`document_ids` must not decrease in a context, got some that do.")


def _check_question(mask: torch.Tensor) -> None:  # mask (batch, words)
    """Refuse a question without words."""
    empty = (~mask.any(-1)).nonzero().flatten().tolist()
    if empty:
        raise ValueError(f"`question_ids` must have a word in every question, got none in question {empty[0]}.")


def _in_given_order(attention: torch.Tensor, layout: Layout, asked: Layout) -> torch.Tensor:
    """Attention of the rows, `(batch, words, keys)` as words of context and question were given."""
    given = layout.to_given(attention) * layout.given_mask[..., None]
    return asked.to_given(given.transpose(1, 2)).transpose(1, 2)
