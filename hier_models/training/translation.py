"""Document translation: the task of HAT-BART from scratch and of other encoder-decoder models, and its evaluation."""

import copy
import dataclasses
import functools
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import Dataset, IterableDataset
from transformers import (
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
)

from ..data import HierDataCollator, LoadReport
from ..data.parallel import DOCUMENT, SENTENCES, ChunkReport, chunk_parallel, load_parallel
from ..data.tokenizer_training import train_joint_bpe
from ..data.tokenizing import plain_tokenizer
from ..metrics import Bleu, DocumentScores, DocumentStatistics, document_keys
from ..metrics.document_bleu import document_bleu
from ..pipelines.chunking_hier import join_chunks
from ..pipelines.document_pipeline_hier import total_length
from ..pipelines.translation_hier import COUNTS, TranslationPipeline
from .arguments import ModelArguments, Recipe, RecipeError, for_prediction, reading_data
from .likelihood import reading
from .metrics import decode, mean_length
from .models import Processor, set_generation, set_lengths, warn_if_endless
from .own_tokenizer import own_tokenizer
from .results import write_json
from .smoke import POSITIONS
from .summarization import generation_settings
from .tasks import PREDICTIONS_FILE, SCORES_FILE, Task, in_order


logger = logging.getLogger(__name__)


@dataclass
class TranslationArguments:
    """The section `translation` of a recipe.

    Args:
        source_column: Column with the sentences of the source; recognized by its name if not given.
        target_column: Column with the sentences of the translation; recognized by its name if not given.
        source_language: Language of the source, for splitting text into sentences when the model is used.
        bpe_codes: From scratch and without a tokenizer, train one on both sides of the training documents, with so
            many merges; it is kept in the output folder.
        bleu_tokenizer: sacrebleu's tokenizer: 13a, intl, zh, char, …
    """

    source_column: str | None = field(default=None, metadata={"help": "Column with the sentences of the source."})
    target_column: str | None = field(default=None, metadata={"help": "Column with those of the translation."})
    source_language: str = field(default="english", metadata={"help": "Language of the source."})
    bpe_codes: int | None = field(default=None, metadata={"help": "Merges of a tokenizer to train for both sides."})
    bleu_tokenizer: str = field(default="13a", metadata={"help": "sacrebleu's tokenizer."})


class TranslationTask(Task):
    """Aligned documents in two languages, cut into chunks, scored with BLEU of whole documents (d-BLEU).

    Args:
        recipe: The whole recipe.
        output_dir: Folder of the run.

    Source: HAT-BART, section 4.2.
    """

    arguments = TranslationArguments
    document_metrics = ("bleu", "perplexity")

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        data = recipe.data
        tested = data.test is not None or data.test_split is not None
        self._chunked = {"train": ChunkReport(), "validation": ChunkReport()}
        self._set_aside = {part: LoadReport() for part in ("train", "validation", *(["test"] if tested else []))}
        self._documents: dict[str, Any] = {}
        self._owners: list[int] = []

    def check(self) -> None:  # noqa: D102  # as in Task
        model, codes = self.recipe.model, self.options.bpe_codes
        for name in ("importance", "importance_tagger", "several_references", "digits"):
            if getattr(self.recipe.data, name) not in (None, False):
                raise RecipeError(f"data: {name} means nothing to translation (run: task); leave it out")
        if codes is not None and codes < 1:
            raise RecipeError(f"translation: bpe_codes must be at least 1, got {codes}")
        if not (_names_a_tokenizer(model) or codes):
            raise RecipeError(
                "model: give model_name_or_path, or (to train from scratch) tokenizer, or translation: bpe_codes to "
                "have one trained"
            )

    def trainer_class(self) -> type[Trainer]:  # noqa: D102
        return in_order(Seq2SeqTrainer)

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:  # noqa: D102
        model_arguments = self.recipe.model
        if not _names_a_tokenizer(model_arguments):
            folder = own_tokenizer(self.recipe, self.output_dir, self._trained_tokenizer)
            self.recipe.model = dataclasses.replace(model_arguments, tokenizer=str(folder))
        model, processor = super().load_model_and_processor()
        self.recipe.model = model_arguments
        set_generation(model, self.recipe)
        set_lengths(model.config, processor, self.recipe)
        warn_if_endless(processor)
        if hasattr(processor, "language"):
            processor.language = self.options.source_language
        # The pipeline cuts documents into chunks as long as those of training; `export` sees what the model is for.
        params = getattr(model.config, "task_specific_params", None) or {}
        chunk = {"max_source_length": self.recipe.data.max_source_length}
        model.config.task_specific_params = {**params, "translation": {**params.get("translation", {}), **chunk}}
        generation = model.generation_config
        if generation.max_length is None and generation.max_new_tokens is None:
            # `generate` alone would stop after 20 tokens.
            generation.max_length = self.recipe.data.max_target_length
        return model, processor

    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset:  # noqa: D102
        chunks = self._chunks("train", self._load("train"), processor)
        return chunks.remove_columns([DOCUMENT, SENTENCES])

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | None:  # noqa: D102
        if "test" in self._set_aside:
            self._load("test")  # now and not after training, so that what is wrong with them shows at once
        documents = self._load("validation")
        if documents is None:
            return None
        chunks = self._chunks("validation", documents, processor)
        assert isinstance(chunks, Dataset)
        self._owners = list(chunks[DOCUMENT])
        return chunks.remove_columns([DOCUMENT, SENTENCES])

    def collator(self, model: PreTrainedModel, processor: Processor) -> HierDataCollator:  # noqa: D102
        return HierDataCollator(processor, model=model)

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]] | None:  # noqa: D102
        if not self.recipe.training.predict_with_generate:
            return None
        return functools.partial(
            compute_translation_metrics,
            tokenizer=processor,
            owners=self._owners,
            bleu_tokenizer=self.options.bleu_tokenizer,
        )

    def evaluate(  # noqa: D102
        self, trainer: Trainer, model: PreTrainedModel, processor: Processor
    ) -> dict[str, Any] | None:
        documents = self._documents.get("validation")
        if documents is None or not self.recipe.training.predict_with_generate:
            return None
        return self._scores(documents, model, processor, "predictions.jsonl")

    def test(self, trainer: Trainer, model: PreTrainedModel, processor: Processor) -> dict[str, Any] | None:  # noqa: D102
        documents = self._documents.get("test")
        if documents is None:
            return None
        return self._scores(documents, model, processor, PREDICTIONS_FILE, SCORES_FILE)

    def reports(self) -> dict[str, Any]:  # noqa: D102
        return {
            "chunks": {name: report.as_dict() for name, report in self._chunked.items()},
            "set_aside": {name: report.as_dict() for name, report in self._set_aside.items()},
        }

    @staticmethod
    def table(evaluation: dict[str, Any]) -> str:  # noqa: D102
        return bleu_table(evaluation)

    def smoke_rows(self) -> list[dict[str, Any]]:  # noqa: D102
        source, target = self.options.source_column or "source", self.options.target_column or "target"
        documents = [_SMOKE[number:] + _SMOKE[:number] for number in range(len(_SMOKE))]
        return [
            {"id": str(number), source: [en for en, _ in pairs], target: [de for _, de in pairs]}
            for number, pairs in enumerate(documents)
        ]

    def smoke_changes(self) -> dict[str, Any]:  # noqa: D102
        # A translation is as long as its source, unlike a summary.
        changes: dict[str, Any] = {"max_target_length": min(self.recipe.data.max_target_length, POSITIONS)}
        return changes if self.options.bpe_codes is None else {**changes, "bpe_codes": 200}

    def _scores(
        self, documents: Dataset, model: PreTrainedModel, processor: Processor, file: str, scores: str | None = None
    ) -> dict[str, Any]:
        return run_translation_evaluation(
            model,
            processor,
            documents,
            max_source_length=self.recipe.data.max_source_length,
            training_args=self.recipe.training,
            predictions_file=self.output_dir / file,
            scores_file=None if scores is None else self.output_dir / scores,
            bleu_tokenizer=self.options.bleu_tokenizer,
            max_target_length=self.recipe.data.max_target_length,
        )

    def _trained_tokenizer(self) -> PreTrainedTokenizerBase:
        """Train the joint tokenizer."""
        documents = self._load("train")
        codes = self.options.bpe_codes
        tokenizer = train_joint_bpe(_texts(documents), codes, model_max_length=self.recipe.data.max_source_length)
        found = len(tokenizer) - 256 - len(tokenizer.all_special_ids)
        if found < codes:
            logger.warning("translation: the training documents give only %d BPE codes of %d", found, codes)
        return tokenizer

    def _chunks(self, part: str, documents: Any, processor: Processor) -> Dataset | IterableDataset:
        data = self.recipe.data
        return chunk_parallel(
            documents,
            processor,
            max_source_length=data.max_source_length,
            max_target_length=data.max_target_length,
            num_proc=data.num_proc,
            report=self._chunked[part],
        )

    def _load(self, part: str) -> Any:
        """The documents of a part, read once."""
        if part not in self._documents:
            self._documents[part] = self._loaded(part)
        return self._documents[part]

    def _loaded(self, part: str) -> Any:
        data = self.recipe.data
        source, split = data.source_of(part)
        if source is None:
            return None
        with reading_data(f"data: {part}"):
            documents = load_parallel(
                **data.reading(source, split),
                source_column=self.options.source_column,
                target_column=self.options.target_column,
                streaming=data.streaming and part == "train",
                set_aside_file=self.set_aside_file(part),
                report=self._set_aside[part],
            )
        if isinstance(documents, IterableDataset) and next(iter(documents), None) is None:
            raise RecipeError(f"data: {part} has no usable documents ({source}, split {split})")
        most = getattr(data, f"max_{part}_documents", None)
        if most is None:
            return documents
        return documents.take(most if isinstance(documents, IterableDataset) else min(most, len(documents)))


def _names_a_tokenizer(model: ModelArguments) -> bool:
    return any((model.model_name_or_path, model.from_bart, model.from_encoder, model.tokenizer))


def _texts(documents: Any) -> Iterator[str]:
    for document in documents:
        yield " ".join(document["source"])
        yield " ".join(document["target"])


def compute_translation_metrics(
    eval_prediction: EvalPrediction | tuple[Any, Any],
    tokenizer: Processor,
    *,
    owners: Sequence[int] | None = None,
    bleu_tokenizer: str = "13a",
) -> dict[str, float]:
    """Score generated translations; bind the tokenizer with `functools.partial` to make it a `compute_metrics`.

    Args:
        eval_prediction: Generated token ids (chunks, length) and labels (chunks, length); either may be filled up with
            -100 or the padding token, and the predictions may be the first of a tuple.
        tokenizer: Decodes them; a processor is taken for its tokenizer.
        owners: For each chunk the number of its document (the column `document` of `chunk_parallel`): chunks of one
            document are joined before they are scored. None scores them as they are.
        bleu_tokenizer: sacrebleu's tokenizer.

    Returns:
        `bleu` in percent, against the labels, so without sentences that fit into no chunk; `gen_len`: mean number of
        generated tokens of a chunk, special tokens counted but padding not.

    Raises:
        ValueError: If predictions, labels and `owners` differ in number, or the predictions are no token ids.
    """
    predictions, labels = eval_prediction[0], eval_prediction[1]
    predictions = predictions[0] if isinstance(predictions, tuple) else predictions
    labels = labels[0] if isinstance(labels, tuple) else labels
    owners = range(len(labels)) if owners is None else owners
    if not len(predictions) == len(labels) == len(owners):
        raise ValueError(
            f"eval_prediction: {len(predictions)} predictions, {len(labels)} labels and {len(owners)} owners do not "
            "belong together"
        )
    text_tokenizer = plain_tokenizer(tokenizer)
    translations, references = (_joined(decode(ids, text_tokenizer), owners) for ids in (predictions, labels))
    scores = Bleu().compute(predictions=translations, references=references, tokenize=bleu_tokenizer)
    return {"bleu": scores["bleu"], "gen_len": mean_length(predictions, text_tokenizer)}


def _joined(texts: Sequence[str], owners: Sequence[int]) -> list[str]:
    """The chunks of each document joined, in the documents' order."""
    documents: dict[int, list[str]] = {}
    for text, owner in zip(texts, owners, strict=True):
        documents.setdefault(owner, []).append(text)
    return [join_chunks(chunks) for _, chunks in sorted(documents.items())]


def run_translation_evaluation(
    model: PreTrainedModel,
    processor: Processor,
    dataset: Dataset | IterableDataset,
    *,
    max_source_length: int | None = None,
    batch_size: int = 8,
    training_args: Seq2SeqTrainingArguments | None = None,
    predictions_file: str | os.PathLike[str] | None = None,
    results_file: str | os.PathLike[str] | None = None,
    scores_file: str | os.PathLike[str] | None = None,
    bleu_tokenizer: str = "13a",
    max_target_length: int | None = None,
    **generate_kwargs: Any,
) -> dict[str, Any]:
    """Translate documents chunk by chunk, as the pipeline does, and score the whole translations.

    Chunks are cut by the source alone. Generation follows the model's `generation_config` and `generate_kwargs`.

    Args:
        model: Any encoder-decoder model with a `generate`.
        processor: Its processor, or its tokenizer.
        dataset: Documents with `source` and `target`, from `load_parallel`.
        max_source_length: Tokens of a chunk; by default what the pipeline takes.
        batch_size: Chunks translated at a time on each device, unless `training_args` says so.
        training_args: Arguments of the Trainer to run under (device, precision, batch size).
        predictions_file: JSON lines to write the translations to: `id` if there is one, `translation`, `reference`.
        results_file: JSON file to write what is returned to.
        scores_file: JSON file to write what each document adds to BLEU to, as `DocumentScores`.
        bleu_tokenizer: sacrebleu's tokenizer.
        max_target_length: Also give the perplexity of the references, in chunks of whole sentences whose translations
            have so many tokens at most, and the one that they have with the sources of other chunks, to see how much
            is read at all. Sentences that are longer by themselves are left out.
        **generate_kwargs: Passed to `generate`, such as `num_beams=4`.

    Returns:
        `bleu` (d-BLEU in percent, the documents' sentences on one line), `precisions`, `bp`, `sys_len` and `ref_len`,
        `signature` (sacrebleu's), `gen_len` (tokens of a chunk), `documents`, `chunks`, `counts` (sentences split
        because they are longer than a chunk, chunks without an end, tokens cut), `generation` (the settings generated
        with); with `max_target_length` also `perplexity` and, of two chunks or more, `perplexity_of_another_source`.

    Source: HAT-BART, section 4.2 (d-BLEU).
    """
    documents = Dataset.from_list(list(dataset)) if isinstance(dataset, IterableDataset) else dataset
    name = "tokenizer" if isinstance(processor, PreTrainedTokenizerBase) else "processor"
    given: dict[str, Any] = {name: processor}
    pipe = TranslationPipeline(model=model, device=model.device, **given)
    owners: list[int] = []
    examples = []
    for number, sentences in enumerate(documents["source"]):
        for item in pipe.preprocess({"sentences": sentences}, max_source_length=max_source_length):
            owners.append(number)
            examples.append(item["examples"])
    inputs = Dataset.from_list([example.inputs for example in examples])
    # Longest first: batches of equal lengths need little padding, and memory runs out at once or never.
    order = np.argsort([-len(example) for example in examples], kind="stable")
    with tempfile.TemporaryDirectory() as scratch:
        arguments = training_args or Seq2SeqTrainingArguments(
            output_dir=scratch, per_device_eval_batch_size=batch_size, report_to="none"
        )
        trainer = Seq2SeqTrainer(
            model=model,
            args=for_prediction(arguments, predict_with_generate=True),
            processing_class=processor,
            data_collator=HierDataCollator(processor, model=model),
        )
        models_own = copy.deepcopy(model.generation_config)
        # What the pipeline would generate with, languages and lengths that nobody set included.
        generation, others = pipe._generation_config({**examples[0].settings, **generate_kwargs}, examples)
        generated = trainer.predict(
            inputs.select(order), metric_key_prefix="test", generation_config=generation, **others
        ).predictions
        model.generation_config = models_own  # the Trainer writes every default into it
        found: dict[str, float] = {}
        if max_target_length is not None:
            limit = pipe._chunk_limit(max_source_length, pipe._languages(None, None))
            aligned = chunk_parallel(
                documents, processor, max_source_length=limit, max_target_length=max_target_length
            )
            chunks = cast(Dataset, aligned)
            in_chunks = np.array(chunks[DOCUMENT])
            of_labels, found = reading(model, processor, chunks.remove_columns([DOCUMENT, SENTENCES]), arguments)
    predictions = generated[np.argsort(order)]
    tokenizer = plain_tokenizer(processor)
    translations = _joined(decode(predictions, tokenizer), owners)
    references = [" ".join(sentences) for sentences in documents["target"]]
    metric = Bleu()
    scores = metric.compute(predictions=translations, references=references, tokenize=bleu_tokenizer)
    longest = (training_args and training_args.generation_max_length) or total_length(generation, "max", 1)
    results = {
        **{name: scores[name] for name in ("bleu", "precisions", "bp", "sys_len", "ref_len")},
        **metric.settings,
        **found,
        "gen_len": mean_length(predictions, tokenizer),
        "documents": len(documents),
        "chunks": len(examples),
        "counts": {name: sum(example.counts.get(name, 0) for example in examples) for name in COUNTS},
        "generation": generation_settings(generation),
    }
    results["counts"]["num_unfinished_chunks"] = _unfinished(predictions, tokenizer, longest)
    if trainer.is_world_process_zero():
        if predictions_file is not None:
            _write_predictions(Path(predictions_file), documents, translations, references)
        if scores_file is not None:
            statistics = {"bleu": document_bleu(translations, references, bleu_tokenizer)}
            if max_target_length is not None:
                of_documents = np.zeros((len(documents), 2))
                np.add.at(of_documents, in_chunks, of_labels)
                statistics["perplexity"] = DocumentStatistics(of_documents, "perplexity")
            DocumentScores(document_keys(references), statistics).save(Path(scores_file))
        if results_file is not None:
            write_json(Path(results_file), results)
    return results


def bleu_table(results: dict[str, Any]) -> str:
    """Lay out d-BLEU, its signature and the lengths.

    Args:
        results: What `run_translation_evaluation` returns.

    Returns:
        One line for each.
    """
    counts = results["counts"]
    rows = [
        ("d-BLEU", f"{results['bleu']:.2f}"),
        ("signature", results["signature"]),
        ("precisions", " ".join(f"{value:.1f}" for value in results["precisions"])),
        ("brevity penalty", f"{results['bp']:.3f}"),
        ("documents", f"{results['documents']} in {results['chunks']} chunks"),
    ]
    for name, shown in (("perplexity", "perplexity"), ("perplexity_of_another_source", "… with another source")):
        if name in results:
            rows.append((shown, f"{results[name]:.2f}"))
    if counts["num_split_sentences"]:
        rows.append(("split sentences", f"{counts['num_split_sentences']} (longer than a chunk)"))
    if counts["num_unfinished_chunks"]:
        rows.append(("unfinished chunks", f"{counts['num_unfinished_chunks']} (ended at the maximum length)"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _unfinished(predictions: Any, tokenizer: PreTrainedTokenizerBase, longest: int | None) -> int:
    if longest is None:
        return 0
    rows = np.asarray(predictions)
    # Up to the last token of each: the decoder may begin with the padding token, as those of T5 and Marian do.
    written = (rows >= 0) & (rows != tokenizer.pad_token_id)
    lengths = np.where(written.any(axis=1), rows.shape[1] - np.argmax(written[:, ::-1], axis=1), 0)
    return int((lengths >= longest).sum())


def _write_predictions(path: Path, documents: Dataset, translations: list[str], references: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    identifiers = list(documents["id"]) if "id" in documents.column_names else None
    with path.open("w", encoding="utf-8") as stream:
        for number, (translation, reference) in enumerate(zip(translations, references, strict=True)):
            row = {"translation": translation, "reference": reference}
            if identifiers is not None:
                row = {"id": identifiers[number], **row}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


# For --smoke: (English, German)
_SMOKE = [
    ("The bridge was closed on Monday.", "Die Brücke wurde am Montag gesperrt."),
    ("Engineers had found a crack in a pillar.", "Ingenieure hatten einen Riss in einem Pfeiler gefunden."),
    ("Traffic now takes the old road.", "Der Verkehr nimmt jetzt die alte Straße."),
    ("Repairs will take six weeks.", "Die Reparatur wird sechs Wochen dauern."),
    ("Bees find their way home by the sun.", "Bienen finden mit Hilfe der Sonne nach Hause."),
    ("On cloudy days they use landmarks.", "An trüben Tagen nutzen sie Wegmarken."),
    ("The library opens at nine.", "Die Bibliothek öffnet um neun."),
    ("Nobody was hurt.", "Niemand wurde verletzt."),
]
