"""The key phrases of a recipe for the Highlight-Transformer: fitted on its training documents, or loaded."""

import logging
from pathlib import Path
from typing import Any, cast

from datasets import Dataset, IterableDataset
from transformers import PretrainedConfig
from transformers.utils.hub import cached_file

from ..data.key_phrases import fit_key_phrases
from ..data.phrase_columns import PHRASES
from ..models.phrase_finder import KEY_PHRASES_FILE, PhraseFinder
from ..pipelines.document_pipeline_hier import highlights
from .arguments import DataArguments, RecipeError, mistakes_of
from .models import Processor


logger = logging.getLogger(__name__)

FIT = "fit"
WITHOUT_CORPUS = ("textrank", "title")


def check(data: DataArguments) -> None:
    """Refuse, before anything is loaded, what does not fit together."""
    if data.stopwords is not None and data.key_phrases not in (FIT, *WITHOUT_CORPUS):
        raise RecipeError(f"data: stopwords goes with key_phrases: fit, {' or '.join(WITHOUT_CORPUS)}")


def prepare(
    data: DataArguments,
    config: PretrainedConfig,
    processor: Processor,
    documents: Dataset | IterableDataset,
    whole: bool = False,
) -> dict[str, Any]:
    """Give the processor its key phrases; of whole documents, or of what one source of the model takes."""
    wanted = data.key_phrases
    if not highlights(processor):
        if name := next((name for name in ("key_phrases", "phrases_column") if getattr(data, name) is not None), None):
            raise RecipeError(f"data: {name} is for Highlight-Transformers, and this model is {config.model_type}")
        return {}
    reader = cast(Any, processor)
    if not getattr(config, "highlighted_layers", []):
        reader.key_phrases = None  # nothing is highlighted
        return {}
    with mistakes_of("data: key_phrases", OSError):
        if wanted in (FIT, *WITHOUT_CORPUS):
            length = None if whole else data.max_source_length
            options: dict[str, Any] = {"max_source_length": length, "stopwords": data.stopwords}
            options |= {} if wanted == FIT else {"finder": wanted}
            reader.key_phrases = fit_key_phrases(documents, processor, **options)
        elif wanted is not None:
            path = Path(wanted).expanduser()
            file = path if path.is_file() else cached_file(str(path) if path.exists() else wanted, KEY_PHRASES_FILE)
            reader.key_phrases = PhraseFinder.load(cast(Any, file))
    if (found := reader.key_phrases) is None:
        if PHRASES in (documents.column_names or ()):
            return {}
        raise RecipeError(
            "data: key_phrases is missing: the model highlights key phrases, and its processor finds none; set "
            "key_phrases: fit (or config_overrides: highlight_heads: 0 for a model without)"
        )
    logger.info("%s", found)
    if not hasattr(found, "documents"):
        return {"key_phrases": {"finder": found.name}}
    return {"key_phrases": {"documents": found.documents, "phrases": len(found), "uncounted": found.uncounted}}
