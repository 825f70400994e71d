"""Denoising after BART: the warm-up of encoder-decoder models before there are summaries to learn from."""

import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from datasets import Dataset, IterableDataset, concatenate_datasets
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin, Trainer

from ...data import load_documents
from ...data.infilling import NoisyChunks
from ...data.packing import PackingReport, pack_documents
from ...data.record_readers import KINDS
from ...data.tokenizer_training import WITH_MASK, train_byte_level
from ...data.tokenizing import language_of, plain_text, plain_tokenizer
from ...models.tokenization_hat_encoder import HatEncoderTokenizer
from ...pipelines.document_pipeline_hier import highlights, positions
from .. import key_phrases
from ..arguments import Recipe, RecipeError, check_smallest
from ..likelihood import READS, OtherSources, perplexity
from ..models import Processor
from .base import Task, as_dicts


logger = logging.getLogger(__name__)

LEAST_ENTRIES = 256 + len(WITH_MASK)  # bytes and special tokens


@dataclass
class DenoisingArguments:
    """The section `denoising` of a recipe."""

    mask_share: float = 0.3  # share of the tokens that text infilling replaces
    span_mean: float = 3.0  # mean length of a replaced span in tokens
    permute_sentences: bool = True  # whether the sentences of a chunk are shuffled
    copies: int = 1  # how many noises each chunk has before the first comes again; an epoch is all of them
    # From scratch, without a tokenizer: entries of one like BART's, trained on the documents, kept beside the model.
    tokenizer_entries: int | None = None
    also_train: list[str] | None = None  # more files or folders of training documents, of any kind

    def __post_init__(self) -> None:
        if not 0 < self.mask_share < 1:
            raise RecipeError(f"mask_share must be above 0 and below 1, got {self.mask_share}")
        if self.span_mean <= 0:
            raise RecipeError(f"span_mean must be above 0, got {self.span_mean}")
        check_smallest("denoising", self, {"copies": 1, "tokenizer_entries": LEAST_ENTRIES})


class DenoisingTask(Task):
    """Whole sentences in chunks, shuffled and masked, to be written as they were (Lewis et al., 2020, 2.2 and 5.1)."""

    arguments = DenoisingArguments
    metrics = ()
    unused = (
        *("summary_column", "test", "test_split", "phrases_column", "query_column", "several_references", "digits"),
        "long_documents",
        *("importance", "importance_tagger"),
    )

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._packing = {"train": PackingReport(), "validation": PackingReport()}
        self._validation: NoisyChunks | None = None
        self._key_phrases: dict[str, Any] = {}

    def check(self) -> None:
        super().check()
        key_phrases.check(self.recipe.data)
        if self.recipe.data.streaming:
            raise RecipeError("data: streaming does not go with denoising, whose noise belongs to numbered chunks")
        if self.recipe.training.predict_with_generate:
            raise RecipeError("training: predict_with_generate means nothing to denoising, scored by perplexity")
        sources = ("model_name_or_path", "from_bart", "from_encoder", "tokenizer")
        given = [name for name in sources if getattr(self.recipe.model, name)]
        if not given and not self.fits_tokenizer():
            raise RecipeError(f"model: give {', '.join(sources)}, or tokenizer_entries to have one trained")
        if given and self.fits_tokenizer():
            raise RecipeError(f"model: {given[0]} and denoising: tokenizer_entries are both given; leave one out")

    def fits_tokenizer(self) -> bool:
        return self.options.tokenizer_entries is not None

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        model, processor = super().load_model_and_processor()
        if isinstance(processor, ProcessorMixin) and not highlights(processor):
            why = f"denoising reads plain tokens, {model.config.model_type} has a processor"
            raise RecipeError(f"model: {why}; train model_type: bart or highlight_transformer")
        length = self.recipe.data.max_source_length
        most = min(positions(model.config, side) or length for side in ("encoder", "decoder"))
        if length > most:
            raise RecipeError(f"data: max_source_length is {length}, but the model has only {most} positions")
        return model, processor

    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Any:
        sources = self.rows("train")
        texts = IterableDataset.from_generator(_rows_of_texts, gen_kwargs={"sources": sources})
        self._key_phrases = key_phrases.prepare(self.recipe.data, model.config, processor, texts, whole=True)
        packed = [self._packed("train", documents, processor) for documents in sources]
        return self._noisy("train", concatenate_datasets(packed), processor, self.options.copies)

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Any:
        if self.rows("validation") is None:
            return None
        packed = self._packed("validation", self.rows("validation"), processor)
        self._validation = self._noisy("validation", packed, processor)
        return self._validation

    def evaluate(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:
        if self._validation is None:
            return None
        chunks = self._validation
        found = perplexity(model, processor, chunks, self.recipe.training)
        results = {"perplexity": found, "chunks": len(chunks)}
        if len(chunks) > 1:
            other = perplexity(model, processor, OtherSources(chunks), self.recipe.training)
            results["perplexity_of_another_source"] = other
            if other < READS * found:
                logger.warning(
                    f"the model hardly reads its source: the perplexity is {found:.4g}, and {other:.4g} with another "
                    "chunk; train it longer, or from other values (learning_rate, config_overrides: init_std)"
                )
        return results

    def reports(self) -> dict[str, Any]:
        return {"chunks": as_dicts(self._packing), **super().reports(), **self._key_phrases}

    def smoke_changes(self) -> dict[str, Any]:
        return {} if self.options.tokenizer_entries is None else {"tokenizer_entries": LEAST_ENTRIES + 40}

    def _noisy(self, part: str, chunks: Dataset, processor: Processor, copies: int = 1) -> NoisyChunks:
        own = self.options
        noise = {"mask_share": own.mask_share, "span_mean": own.span_mean, "permute": own.permute_sentences}
        return NoisyChunks(chunks, processor, copies=copies, seed=self.recipe.training.seed, part=part, **noise)

    def _packed(self, part: str, documents: Dataset, processor: Processor) -> Dataset:
        data = self.recipe.data
        marking = HatEncoderTokenizer.from_tokenizer(plain_tokenizer(processor), language_of(processor))
        options: dict[str, Any] = {"num_proc": data.num_proc, "report": self._packing[part]}
        options["pieces"] = getattr(processor, "key_phrases", None) is not None
        return cast(Dataset, pack_documents(documents, marking, max_length=data.max_source_length, **options))

    def load(self, part: str) -> Any:
        """The documents of a part; of the training, a dataset for each source."""
        data = self.recipe.data
        read = functools.partial(load_documents, summary_column="", fillers=data.fillers)
        first = self.load_by(read, part, text_column=data.text_column, source_kind=data.source_kind)
        if part == "validation":
            return first
        more = self.options.also_train or []
        return [first, *(self.load_by(read, f"also_train_{i}", name) for i, name in enumerate(more))]

    def fitted_tokenizer(self) -> PreTrainedTokenizerBase:
        entries, length = cast(int, self.options.tokenizer_entries), self.recipe.data.max_source_length
        tokenizer = train_byte_level(_texts(self.rows("train")), entries, model_max_length=length)
        if (found := len(tokenizer)) < entries:
            logger.warning("denoising: the training documents give only %d of %d tokenizer_entries", found, entries)
        return tokenizer


def _rows_of_texts(sources: list[Dataset]) -> Iterator[dict[str, str]]:
    yield from ({"text": text} for text in _texts(sources))


def _texts(sources: list[Dataset]) -> Iterator[str]:
    for documents in sources:
        kind = next(kind for kind in KINDS if kind in documents.column_names)
        for document in documents:
            yield plain_text(kind, document[kind])
