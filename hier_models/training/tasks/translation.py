"""Document translation: the task of HAT-BART from scratch and of other encoder-decoder models, and its evaluation."""

import functools
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import Dataset, IterableDataset
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase, Seq2SeqTrainingArguments

from ...data.parallel import DOCUMENT, SENTENCES, ChunkReport, chunk_parallel, load_parallel
from ...data.tokenizer_training import train_joint_bpe
from ...data.tokenizing import plain_tokenizer
from ...metrics import Bleu, DocumentScores, DocumentStatistics, document_keys
from ...metrics.bleu import bleu_with
from ...metrics.document_bleu import document_bleu
from ...pipelines.chunking_hier import join_chunks
from ...pipelines.document_pipeline_hier import total_length
from ...pipelines.translation_hier import COUNTS, TranslationPipeline
from ..arguments import Recipe, RecipeError, check_smallest, mistakes_of
from ..evaluation import all_rows, generate, generation_settings, predicting, prediction_rows, write_evaluation
from ..likelihood import perplexities
from ..metrics import decode, first_of_tuples, mean_length
from ..models import Processor, in_language, remember_task, set_generation, set_lengths, warn_if_endless
from ..smoke import POSITIONS
from ..smoke_rows import ROWS
from .base import OF_DOCUMENTS, OF_SUMMARIES, WritingTask, as_dicts


logger = logging.getLogger(__name__)


@dataclass
class TranslationArguments:
    """The section `translation` of a recipe; columns are recognized by their names if not given."""

    source_column: str | None = None  # with the sentences of the source
    target_column: str | None = None  # with the sentences of the translation
    source_language: str | None = None  # for splitting text into sentences when the model is used; by default model's
    # From scratch, without a tokenizer: merges of one that is trained on both sides, and kept in the output folder.
    bpe_codes: int | None = None
    bleu_tokenizer: str = "13a"  # of sacrebleu: 13a, intl, zh, char, …


def bleu_table(evaluation: dict[str, Any]) -> str:
    """Lay out d-BLEU, its signature and the lengths."""
    counts = evaluation["counts"]
    rows = {
        "d-BLEU": f"{evaluation['bleu']:.2f}",
        "signature": evaluation["signature"],
        "precisions": " ".join(f"{value:.1f}" for value in evaluation["precisions"]),
        "brevity penalty": f"{evaluation['bp']:.3f}",
        "documents": f"{evaluation['documents']} in {evaluation['chunks']} chunks",
    }
    for name, shown in (("perplexity", "perplexity"), ("perplexity_of_another_source", "… with another source")):
        if name in evaluation:
            rows[shown] = f"{evaluation[name]:.2f}"
    if split := counts["num_split_sentences"]:
        rows["split sentences"] = f"{split} (longer than a chunk)"
    if unfinished := counts["num_unfinished_chunks"]:
        rows["unfinished chunks"] = f"{unfinished} (ended at the maximum length)"
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


class TranslationTask(WritingTask):
    """Aligned documents in two languages, cut into chunks, scored with d-BLEU (HAT-BART, section 4.2)."""

    arguments = TranslationArguments
    unused = (*OF_DOCUMENTS, *OF_SUMMARIES)
    in_order = True
    metrics = ("bleu", "gen_len")
    document_metrics = ("bleu", "perplexity")
    table = staticmethod(bleu_table)

    def __init__(self, recipe: Recipe, output_dir: Path) -> None:
        super().__init__(recipe, output_dir)
        self._chunked = {"train": ChunkReport(), "validation": ChunkReport()}
        self._owners: list[int] = []

    def check(self) -> None:
        super().check()
        check_smallest("translation", self.options, {"bpe_codes": 1})
        with mistakes_of("translation: bleu_tokenizer", RuntimeError):
            bleu_with(self.options.bleu_tokenizer)
        if self.options.source_language is not None and self.recipe.model.language is not None:
            raise RecipeError("translation: source_language says again what model: language says; leave one out")
        if self.fits_tokenizer() and not self.options.bpe_codes:
            raise RecipeError("model: give model_name_or_path, or tokenizer, or bpe_codes to have one trained")

    def fits_tokenizer(self) -> bool:
        model = self.recipe.model
        return not any((model.model_name_or_path, model.from_bart, model.from_encoder, model.tokenizer))

    def fitted_tokenizer(self) -> PreTrainedTokenizerBase:
        codes = self.options.bpe_codes
        texts = (" ".join(document[side]) for document in self.rows("train") for side in ("source", "target"))
        tokenizer = train_joint_bpe(texts, codes, model_max_length=self.recipe.data.max_source_length)
        if (found := len(tokenizer) - 256 - len(tokenizer.all_special_ids)) < codes:
            logger.warning("translation: the training documents give only %d BPE codes of %d", found, codes)
        return tokenizer

    def load_model_and_processor(self) -> tuple[PreTrainedModel, Processor]:
        model, processor = super().load_model_and_processor()
        set_generation(model, self.recipe, self.recipe.data.max_target_length)
        set_lengths(model.config, processor, self.recipe)
        # Looked at before it is used: it then takes the source's language for the target's.
        tokenizer: Any = plain_tokenizer(processor)
        if hasattr(tokenizer, "src_lang") and getattr(tokenizer, "tgt_lang", None) is None:
            raise RecipeError(
                f"model: {type(tokenizer).__name__} does not say which of its languages it writes (tgt_lang); save "
                "one that does, AutoTokenizer.from_pretrained(name, src_lang=…, tgt_lang=…).save_pretrained(folder), "
                "and give the folder as model: tokenizer"
            )
        warn_if_endless(processor)
        language = self.options.source_language
        if language is not None and hasattr(tokenizer, "src_lang"):
            raise RecipeError(f"translation: leave source_language out: {type(tokenizer).__name__} has src_lang")
        if language is not None and hasattr(processor, "language"):
            with mistakes_of("translation: source_language"):
                processor = in_language(processor, language)
        # The pipeline cuts documents into chunks as long as those of training.
        remember_task(model.config, "translation", max_source_length=self.recipe.data.max_source_length)
        return model, processor

    def train_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | IterableDataset:
        chunks = self._chunks("train", self.rows("train"), processor)
        return chunks.remove_columns([DOCUMENT, SENTENCES])

    def validation_dataset(self, model: PreTrainedModel, processor: Processor) -> Dataset | None:
        if "test" in self.parts:
            self.rows("test")  # now and not after training, so that what is wrong with them shows at once
        if (documents := self.rows("validation")) is None:
            return None
        chunks = self._chunks("validation", documents, processor)
        assert isinstance(chunks, Dataset)
        self._owners = list(chunks[DOCUMENT])
        return chunks.remove_columns([DOCUMENT, SENTENCES])

    def compute_metrics(self, processor: Processor) -> Callable[..., dict[str, float]] | None:
        if not self.recipe.training.predict_with_generate:
            return None
        options: dict[str, Any] = {"owners": self._owners, "bleu_tokenizer": self.options.bleu_tokenizer}
        return functools.partial(compute_translation_metrics, tokenizer=processor, **options)

    def reports(self) -> dict[str, Any]:
        return {"chunks": as_dicts(self._chunked), **super().reports()}

    def smoke_rows(self) -> list[dict[str, Any]]:
        source, target = self.options.source_column or "source", self.options.target_column or "target"
        pairs: list[list[str]] = ROWS["translations"]
        documents = [pairs[number:] + pairs[:number] for number in range(len(pairs))]
        return [
            {"id": str(number), source: [en for en, _ in document], target: [de for _, de in document]}
            for number, document in enumerate(documents)
        ]

    def smoke_changes(self) -> dict[str, Any]:
        # A translation is as long as its source, unlike a summary.
        codes = {} if self.options.bpe_codes is None else {"bpe_codes": 200}
        return {"max_target_length": min(self.recipe.data.max_target_length, POSITIONS), **codes}

    def scores(self, part: str, model: PreTrainedModel, processor: Processor, **files: Any) -> dict[str, Any]:
        training, tokenizer = self.recipe.training, self.options.bleu_tokenizer
        lengths = self.of_data("max_source_length", "max_target_length")
        options: dict[str, Any] = {"training_args": training, "bleu_tokenizer": tokenizer, **lengths, **files}
        return run_translation_evaluation(model, processor, self.rows(part), **options)

    def _chunks(self, part: str, documents: Any, processor: Processor) -> Dataset | IterableDataset:
        settings = self.of_data("max_source_length", "max_target_length", "num_proc")
        return chunk_parallel(documents, processor, report=self._chunked[part], **settings)

    def load(self, part: str) -> Any:
        streaming = self.recipe.data.streaming and part == "train"
        documents = self.load_by(load_parallel, part, **self.columns(), streaming=streaming)
        if isinstance(documents, IterableDataset) and next(iter(documents), None) is None:
            source, split = self.recipe.data.source_of(part)
            raise RecipeError(f"data: {part} has no usable documents ({source}, split {split})")
        return documents


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
    predictions, labels = first_of_tuples(eval_prediction)
    owners = range(len(labels)) if owners is None else owners
    if not len(predictions) == len(labels) == len(owners):
        numbers = f"{len(predictions)} predictions, {len(labels)} labels and {len(owners)} owners"
        raise ValueError(f"eval_prediction: {numbers} do not belong together")
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
    documents = all_rows(dataset)
    given: Any = {"tokenizer" if isinstance(processor, PreTrainedTokenizerBase) else "processor": processor}
    pipe = TranslationPipeline(model=model, device=model.device, **given)
    owners: list[int] = []
    examples = []
    for number, sentences in enumerate(documents["source"]):
        for item in pipe.preprocess({"sentences": sentences}, max_source_length=max_source_length):
            owners.append(number)
            examples.append(item["examples"])
    inputs = Dataset.from_list([example.inputs for example in examples])
    found: dict[str, float] = {}
    with predicting(model, processor, training_args, batch_size) as trainer:
        # What the pipeline would generate with, languages and lengths that nobody set included.
        generation, others = pipe._generation_config({**examples[0].settings, **generate_kwargs}, examples)
        predictions = generate(trainer, inputs, generation_config=generation, **others)
        if max_target_length is not None:
            limit = pipe._chunk_limit(max_source_length, pipe._languages(None, None))
            lengths: dict[str, Any] = {"max_source_length": limit, "max_target_length": max_target_length}
            chunks: Any = chunk_parallel(documents, processor, **lengths)
            in_chunks = np.array(chunks[DOCUMENT])
            labelled = chunks.remove_columns([DOCUMENT, SENTENCES])
            of_labels, found = perplexities(model, processor, labelled, cast(Any, trainer.args))
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

    def document_scores() -> DocumentScores:
        statistics = {"bleu": document_bleu(translations, references, bleu_tokenizer)}
        if max_target_length is not None:
            of_documents = np.zeros((len(documents), 2))
            np.add.at(of_documents, in_chunks, of_labels)
            statistics["perplexity"] = DocumentStatistics(of_documents, "perplexity")
        return DocumentScores(document_keys(references), statistics)

    rows = prediction_rows(documents, translation=translations, reference=references)
    write_evaluation(trainer, results, rows, document_scores, (results_file, predictions_file, scores_file))
    return results


def _unfinished(predictions: Any, tokenizer: PreTrainedTokenizerBase, longest: int | None) -> int:
    if longest is None:
        return 0
    rows = np.asarray(predictions)
    # Up to the last token of each: the decoder may begin with the padding token, as those of T5 and Marian do.
    written = (rows >= 0) & (rows != tokenizer.pad_token_id)
    lengths = np.where(written.any(axis=1), rows.shape[1] - np.argmax(written[:, ::-1], axis=1), 0)
    return int((lengths >= longest).sum())
