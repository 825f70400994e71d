"""Summarization: the task of HAT-BART and of plain encoder-decoder models, and its evaluation."""

import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Seq2SeqTrainingArguments

from ...data import TruncationReport, load_documents, tokenize_documents
from ...data.columns import REFERENCES
from ...data.tokenizer_training import train_word_level
from ...data.tokenizing import Importance, LongDocuments, language_of, plain_text, plain_tokenizer, source_kind
from ...metrics import (
    DocumentScores,
    DocumentStatistics,
    bert_scores,
    document_keys,
    entailment_scores,
    reference_free_counts,
    reference_free_scores,
)
from ...metrics.document_scores import means
from ...pipelines.document_pipeline_hier import LENGTH_NAMES, prefix_of, task_params
from ...pipelines.importance_tagger_hier import load_importance_tagger
from ...pipelines.summarization_hier import SummarizationPipeline
from .. import key_phrases
from ..arguments import Recipe, RecipeError, mistakes_of
from ..evaluation import all_rows, generate, generation_settings, predicting, prediction_rows, write_evaluation
from ..likelihood import perplexities
from ..metrics import compute_summarization_metrics, decode, mean_length, score_documents
from ..models import (
    Processor,
    default_max_new_tokens,
    longest_source,
    remember_task,
    set_generation,
    set_lengths,
    warn_if_endless,
)
from ..smoke import tiny_tagger
from .base import WritingTask, as_dicts


logger = logging.getLogger(__name__)

# What of the section data says how documents are read.
READING = ("text_column", "summary_column", "source_kind", "fillers", "phrases_column", "several_references", "digits")


class SummarizationTask(WritingTask):
    """Documents and their summaries, scored with ROUGE."""

    fits_words = True
    metrics = ("rouge1", "rouge2", "rougeL", "rougeLsum", "rougeSU4", "gen_len")
    document_metrics = (*metrics[:-1], "perplexity")

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._cuts = {part: TruncationReport() for part in self.parts}
        self._importance_at_test: Importance | None = recipe.data.importance
        self._long_documents: LongDocuments = "cut"
        self._prefix = ""
        self._key_phrases: dict[str, Any] = {}

    def check(self) -> None:
        super().check()
        data = self.recipe.data
        if data.importance_tagger is not None and data.importance is None:
            raise RecipeError("data: importance_tagger goes with importance: oracle, which the summarizer trains with")
        if data.query_column is not None and data.phrases_column is not None:
            raise RecipeError("data: a query moves the characters that phrases_column names; leave out query_column")
        key_phrases.check(data)

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        model, processor = super().load_model_and_processor()
        set_generation(model, self.recipe)
        set_lengths(model.config, processor, self.recipe)
        if self.recipe.data.query_column is not None:
            remember_task(model.config, "summarization", reads_query=True)
        self._prepare_long_documents(model)
        self._prefix = prefix_of(model.config, "summarization")
        warn_if_endless(processor)
        self._prepare_importance(model, processor)
        if self.recipe.training.generation_max_length is None:
            own = _generation_of_task(model)
            most = own.get("max_new_tokens") or default_max_new_tokens(model, **own)
            # With the decoder's start token.
            self.recipe.training.generation_max_length = own.get("max_length") if most is None else most + 1
        return model, processor

    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset:
        documents = self.rows("train")
        if isinstance(documents, IterableDataset) and next(iter(documents), None) is None:
            data = self.recipe.data
            raise RecipeError(f"data: train has no usable documents ({data.train}, split {data.train_split})")
        self._key_phrases = key_phrases.prepare(self.recipe.data, model.config, processor, documents)
        return self._tokenized("train", documents, processor)

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset | None:
        if "test" in self.parts:
            # Now and not after training, so that what is wrong with them shows at once.
            self._tokenized("test", self.rows("test"), processor)
        documents = self.rows("validation")
        return None if documents is None else self._tokenized("validation", documents, processor)

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]] | None:
        # Without generation the predictions would be logits: gigabytes that nothing here would look at.
        if not self.recipe.training.predict_with_generate:
            return None
        return functools.partial(compute_summarization_metrics, tokenizer=processor)

    def reports(self) -> dict[str, Any]:
        for name, report in self._cuts.items():
            # Streams are counted only now, and the numbers are worth repeating after hours of training.
            if report.documents:
                logger.info("%s: %s", name, report)
        found = {"truncation": as_dicts(self._cuts), **super().reports(), **self._key_phrases}
        if (oracle := self.recipe.data.importance) is not None:
            at_test = self.recipe.data.importance_tagger or oracle
            found["importance"] = {part: oracle if part == "train" else at_test for part in self._cuts}
        return found

    def smoke_data(self, folder: Path) -> dict[str, Any]:
        changes = super().smoke_data(folder)
        if self.recipe.data.importance_tagger is not None:
            changes["importance_tagger"] = str(tiny_tagger(self.smoke_tokenizer(), folder / "tagger"))
        return changes

    def scores(self, part: str, model: PreTrainedModel, processor: Processor, **files: Any) -> dict[str, Any]:
        training, weights = self.recipe.training, self._importance_at_test
        settings = self.of_data("max_source_length", "max_target_length", "num_proc")
        settings |= {"importance": weights, "long_documents": self._long_documents}
        options: dict[str, Any] = {"training_args": training, **settings, **files}
        return run_evaluation(model, processor, self.rows(part), **options)

    def _prepare_long_documents(self, model: PreTrainedModel) -> None:
        """Have the model read long documents as it is trained to."""
        remembered = task_params(model.config, "summarization")
        self._long_documents = self.recipe.data.long_documents or remembered.get("long_documents", "cut")
        if self.recipe.data.long_documents or "long_documents" in remembered:
            reading = {"long_documents": self._long_documents, **self.of_data("max_source_length")}
            remember_task(model.config, "summarization", **reading)

    def _prepare_importance(self, model: PreTrainedModel, processor: Processor) -> None:
        """Have the model pool by importance where tokens have weights, and load the tagger."""
        data, config = self.recipe.data, model.config
        if data.importance is None:
            if getattr(config, "pooling", None) == "importance":
                raise RecipeError("data: importance is missing: the model pools by it; set importance: oracle")
            return
        if not hasattr(config, "pooling"):
            raise RecipeError(f"data: importance is for Top-Down Transformers, and this model is {config.model_type}")
        if config.top_down_update == "none":
            raise RecipeError("data: importance weighs the tokens of segments, and a plain model has none")
        if self.recipe.model.overrides().get("pooling", "importance") != "importance":
            raise RecipeError("data: importance does not go with config_overrides: pooling: average; leave one out")
        config.pooling = "importance"  # it has no weights of its own
        if data.importance_tagger is not None:
            training = self.recipe.training
            with mistakes_of("data: importance_tagger", OSError, KeyError):
                self._importance_at_test = load_importance_tagger(
                    data.importance_tagger, batch_size=training.per_device_eval_batch_size, device=training.device
                )

    def fitted_tokenizer(self) -> PreTrainedTokenizerBase:
        words = cast(int, self.recipe.model.tokenizer_words)
        tokenizer = train_word_level(_texts(self.rows("train")), words, digits=self.recipe.data.digits)
        if (found := len(tokenizer) - len(tokenizer.all_special_ids)) < words:
            logger.warning("model: the training documents have only %d words of tokenizer_words: %d", found, words)
        return tokenizer

    def load(self, part: str, **changes: Any) -> Any:
        """Load a part of the recipe's data, with changes of how it is read."""
        data = self.recipe.data
        options = {**self.of_data(*READING), **changes, "streaming": data.streaming and part == "train"}
        options["query_column"] = data.query_column or ""
        documents = self.load_by(load_documents, part, **options)
        if documents is not None and "summary" not in (documents.column_names or ["summary"]):
            source, _ = data.source_of(part)
            raise RecipeError(f"data: {part} has no summaries ({source}); name their column with summary_column")
        return documents

    def _tokenized(self, part: str, documents: Any, processor: Processor) -> Dataset | IterableDataset:
        weights = self.recipe.data.importance if part == "train" else self._importance_at_test
        settings = self.of_data("max_source_length", "max_target_length", "num_proc")
        settings |= {"long_documents": self._long_documents, "prefix": self._prefix, "report": self._cuts[part]}
        return tokenize_documents(documents, processor, importance=weights, **settings)


def run_evaluation(
    model: PreTrainedModel,
    processor: Processor,
    dataset: Dataset | IterableDataset,
    *,
    max_source_length: int | None = None,
    long_documents: LongDocuments | None = None,
    batch_size: int = 8,
    training_args: Seq2SeqTrainingArguments | None = None,
    predictions_file: str | os.PathLike[str] | None = None,
    results_file: str | os.PathLike[str] | None = None,
    scores_file: str | os.PathLike[str] | None = None,
    importance: Importance | None = None,
    num_proc: int | None = None,
    max_target_length: int | None = None,
    bert_score: str | None = None,
    nli: str | None = None,
    summarize: Callable[[Dataset], list[str]] | None = None,
    **generate_kwargs: Any,
) -> dict[str, Any]:
    """Summarize documents and score the summaries against their whole references.

    Sources have the model's prefix. Generation follows `generate_kwargs`, the model's `generation_config` and what its
    config says for summarization; where none says how long a summary may be, it is 256 tokens, as in the pipeline.
    References are never cut, unlike the labels that Trainer's own evaluation during training compares with. Of several
    references (the column `references`) the best counts, per score.

    Args:
        model: Any encoder-decoder model with a `generate`.
        processor: Its processor, or its tokenizer.
        dataset: Documents with `summary`, from `load_documents`.
        max_source_length: Tokens of a source; by default as many as its config says for summarization, else as the
            model has positions.
        long_documents: What is read of longer ones, "cut" or "condense"; see `tokenize_documents`. By default as the
            model was trained; that is "cut", if its config does not say.
        batch_size: Documents summarized at a time on each device, unless `training_args` says so.
        training_args: Arguments of the Trainer to run under (device, precision, batch size).
        predictions_file: JSON lines to write the summaries to: `id` if there is one, `summary`, `reference`.
        results_file: JSON file to write what is returned to.
        scores_file: JSON file to write the scores of each document to, as `DocumentScores`.
        importance: For a Top-Down Transformer with `pooling="importance"`, where the weights of tokens come from: an
            `ImportanceTagger` (the paper's AdaPool), or "oracle", the references (OracleAdaPool).
        num_proc: Processes that tokenize.
        max_target_length: Also give the perplexity of the references, of several that of the first, cut to so many
            tokens, and the one that they have with the sources of other documents, to see how much is read at all.
        bert_score: Also give BERTScore with this encoder; see `hier_models.metrics.bert_scores`.
        nli: Also judge the summaries with this model of inference; see `hier_models.metrics.entailment_scores`.
        summarize: Writes the summaries in place of `generate` alone, as a pipeline can, which keeps to the words of a
            document, or makes a page of paragraphs.
        **generate_kwargs: Passed to `generate`, such as `num_beams=4`.

    Returns:
        `rouge1`, `rouge2`, `rougeL`, `rougeLsum`, `rougeSU4` (mean F1 times 100), `gen_len` (tokens), `reference_free`
        (see `hier_models.metrics.reference_free_scores`), `documents`, `settings` of ROUGE, `generation` (the settings
        generated with) and `truncation` (what of the sources did not fit); with weights of tokens `importance`:
        "oracle" or "tagger"; with `max_target_length` also `perplexity` and, of two documents or more,
        `perplexity_of_another_source`; with `bert_score` and `nli` `bert_score` and `entailment` (means, times 100).

    Raises:
        ValueError: If the dataset has no summaries to compare with, or there are weights for a model that does not
            pool by importance.
    """
    pooling = getattr(model.config, "pooling", None)
    if importance is not None and pooling != "importance":
        raise ValueError(f"importance is for pooling='importance', and {type(model).__name__} has {pooling=}")
    documents = all_rows(dataset)
    references = references_of(documents)
    of_task = _generation_of_task(model, *generate_kwargs)
    most = default_max_new_tokens(model, **{**of_task, **generate_kwargs})
    if training_args is not None and training_args.generation_max_length is not None:
        generate_kwargs = {"max_length": training_args.generation_max_length, **generate_kwargs}
    elif most is not None:
        generate_kwargs = {**generate_kwargs, "max_new_tokens": most}
    generate_kwargs = {**of_task, **generate_kwargs}
    tokenizer = plain_tokenizer(processor)
    report = TruncationReport()
    sources = documents if importance == "oracle" or max_target_length else documents.remove_columns("summary")
    options: dict[str, Any] = {"importance": importance, "num_proc": num_proc, "report": report}
    options["prefix"] = prefix_of(model.config, "summarization")
    own = task_params(model.config, "summarization")
    options["max_source_length"] = (
        max_source_length or own.get("max_source_length") or longest_source(model.config, tokenizer)
    )
    options["long_documents"] = long_documents or own.get("long_documents", "cut")
    inputs = cast(Dataset, tokenize_documents(sources, processor, max_target_length=max_target_length, **options))
    found: dict[str, float] = {}
    of_labels: np.ndarray[Any, Any] | None = None
    with predicting(model, processor, training_args, batch_size) as trainer:
        settings = generation_settings(model.generation_config)
        without_labels = inputs.remove_columns([name for name in inputs.column_names if name == "labels"])
        if summarize is None:
            predictions: Any = generate(trainer, without_labels, **generate_kwargs)
            summaries = decode(predictions, tokenizer)
        else:
            summaries = summarize(documents)
            predictions = tokenizer(summaries)["input_ids"]
        if max_target_length is not None:
            of_labels, found = perplexities(model, processor, inputs, cast(Any, trainer.args))
    rouge, rouge_settings = score_documents(summaries, references)
    asked: dict[str, Any] = {"bert_score": bert_score, "nli": nli, "device": model.device}
    of_models, judges = scores_of_models(documents, summaries, references, **asked, language=language_of(processor))
    rouge |= of_models
    rouge_settings |= judges
    results = {
        **{name: sum(values) / len(values) for name, values in rouge.items()},
        **found,
        "gen_len": mean_length(predictions, tokenizer),
        "reference_free": against_documents(documents, summaries),
        "documents": len(documents),
        "settings": rouge_settings,
        "generation": {**settings, **generate_kwargs},
        "truncation": report.as_dict(),
        **({} if importance is None else {"importance": "oracle" if importance == "oracle" else "tagger"}),
    }

    def scores() -> DocumentScores:
        scores = means(rouge)
        if of_labels is not None:
            scores["perplexity"] = DocumentStatistics(of_labels, "perplexity")
        return DocumentScores(document_keys(references), scores)

    files = (results_file, predictions_file, scores_file)
    write_evaluation(trainer, results, summary_rows(documents, summaries), scores, files)
    return results


def _generation_of_task(model: PreTrainedModel, *asked: str) -> dict[str, Any]:
    """What the model's config says of generation for this task, and neither its generation config nor the caller."""
    params = task_params(model.config, "summarization")
    others = {*SummarizationPipeline.task_settings, *asked, *model.generation_config.to_diff_dict()}
    for names in map(set, LENGTH_NAMES):
        others |= names if names & others else set()
    return {name: value for name, value in params.items() if name not in others}


def references_of(documents: Dataset) -> list[str] | list[list[str]]:
    """Give what summaries are compared with."""
    if "summary" not in documents.column_names:
        raise ValueError(
            f"dataset must have a column 'summary' to score against, got {', '.join(documents.column_names)}; "
            "load_documents(…, summary_column=…) names it"
        )
    return list(documents[REFERENCES if REFERENCES in documents.column_names else "summary"])


def against_documents(documents: Dataset, summaries: Sequence[str]) -> dict[str, float | None]:
    """Score summaries against their documents, without references."""
    kind = source_kind(documents.column_names)
    pairs = zip(summaries, documents[kind], strict=True)
    return reference_free_scores(reference_free_counts(summary, plain_text(kind, source)) for summary, source in pairs)


def scores_of_models(
    documents: Dataset,
    summaries: list[str],
    references: Any,
    *,
    bert_score: str | None,
    nli: str | None,
    language: str = "english",
    device: Any = "cpu",
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Score each summary by the models that are named; give the scores, and by which models they are."""
    kind = source_kind(documents.column_names)
    found, judges = {}, {}
    if bert_score is not None:
        judges["bert_score"] = bert_score
        found["bert_score"] = bert_scores(summaries, references, bert_score, device=device)
    if nli is not None:
        judges["entailment"] = nli
        texts = [plain_text(kind, text) for text in documents[kind]]
        found["entailment"] = entailment_scores(summaries, texts, nli, language=language, device=device)
    return found, judges


def _texts(documents: Dataset | IterableDataset) -> Iterator[str]:
    """What a tokenizer is fitted to: sources and summaries."""
    columns = documents.column_names or list(next(iter(documents)))
    kind = source_kind(columns)
    for document in documents:
        yield plain_text(kind, document[kind])
        yield document["summary"]


def summary_rows(documents: Dataset, summaries: list[str]) -> list[dict[str, Any]]:
    """Put summaries beside their references."""
    several = {name: documents[name] for name in (REFERENCES,) if name in documents.column_names}
    return prediction_rows(documents, summary=summaries, reference=documents["summary"], **several)
