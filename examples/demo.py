"""Train a hierarchical summarizer on real papers, score it, show a summary and where the model looked.

    make demo                                   # 8 minutes on two cores
    python examples/demo.py --smoke             # the same with hardly any training, in a minute

Two models of one width and depth are trained from random weights in the same way: HAT-BART, which sees where sentences
begin, and plain BART, which does not. Their data are the papers of the Python package aclsum (Takeshita et al., 2024:
ACLSum: A New Dataset for Aspect-based Summarization of Scientific Publications; MIT license): each paper's
introduction and conclusion are the source, its abstract is the summary. Nothing is downloaded.

A hundred papers are few. So the models first learn to read and to copy: of passages of the training papers they write
the first sentence (the idea is that of Zhu et al., 2021: Leveraging Lead Bias). Then come the abstracts.
A small model trained for minutes is no good writer all the same; what you see here is how everything fits together.
"""

import argparse
import itertools
import json
import os
import re
import textwrap
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


# Before the libraries of Hugging Face are imported: nothing here needs their Hub.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from aclsum import ACLSum
from datasets import Dataset, disable_progress_bars
from tokenizers import ByteLevelBPETokenizer
from tokenizers.processors import TemplateProcessing
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipeline,
    set_seed,
)

from hier_models import HatBartConfig, HatBartForConditionalGeneration, HatBartProcessor, HierDataCollator, export
from hier_models.data import load_documents, tokenize_documents
from hier_models.inspection import hierarchical_attention
from hier_models.metrics import Rouge
from hier_models.training import has_fast_bfloat16, run_evaluation


SEED = 42
SHOWN = "2020.acl-main.547"  # the paper whose summary is shown
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
MAX_SOURCE_LENGTH = 1024  # tokens; what does not fit is cut, and counted
MAX_TARGET_LENGTH = 320
ROUGE_NAMES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


@dataclass
class Settings:
    """How much is done: optimizer steps on passages and on papers, papers to summarize, tokens of a summary, width."""

    passage_steps: int
    paper_steps: int
    papers: int
    summary_length: int
    width: int


FULL = Settings(passage_steps=280, paper_steps=40, papers=50, summary_length=256, width=256)
SMOKE = Settings(passage_steps=4, paper_steps=2, papers=4, summary_length=40, width=64)


# Data


def load_papers(output_dir: Path) -> tuple[Dataset, Dataset, list[str]]:
    """Write the papers as JSON lines, as one would have one's own, and load them; also the training papers' text."""
    full_texts: list[str] = []
    for name, split in (("train", "train"), ("validation", "val")):
        lines = []
        for paper in ACLSum(split):
            text = without_gaps(paper.get_all_sentences(["introduction", "conclusion"]))
            summary = without_gaps(paper.sentences["abstract"])
            lines.append(json.dumps({"id": paper.id, "title": paper.title, "text": text, "summary": summary}))
            if name == "train":
                body = paper.get_fulltext_parse()["pdf_parse"]["body_text"]
                full_texts.append(" ".join(paragraph["text"] for paragraph in body))
        (output_dir / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    train, validation = (load_documents(output_dir / f"{name}.jsonl") for name in ("train", "validation"))
    return train, validation, full_texts


def without_gaps(sentences: Iterable[str]) -> str:
    """Join sentences that have a space on either side of every punctuation mark."""
    text = " ".join(sentences)
    text = re.sub(r" ([,.;:?!%)\]])", r"\1", text)
    return re.sub(r"([(\[]) ", r"\1", text).replace(" n't", "n't").replace(" 's", "'s")


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer with BART's special tokens."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=4096, special_tokens=SPECIAL_TOKENS, show_progress=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer,
        **dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL_TOKENS, strict=True)),
        model_max_length=MAX_SOURCE_LENGTH,
    )
    # What plain BART wants around its text. HAT-BART's processor puts its own markers in.
    ends = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return tokenizer


def passages(texts: Iterable[str], processor: HatBartProcessor, length: int = 400) -> Dataset:
    """Cut papers into passages of at least `length` characters, whose summary is their first sentence."""
    rows = []
    for text in texts:
        passage: list[str] = []
        for start, end in processor.split_sentences(text):
            sentence = text[start:end].strip()
            # A table or a formula that was read as one sentence ends the passage and is left out.
            passage = [] if len(sentence) > 600 else [*passage, sentence]
            if len(passage) > 1 and sum(map(len, passage)) >= length:
                rows.append({"text": " ".join(passage), "summary": passage[0]})
                passage = []
    return Dataset.from_list(rows)


# Training


def build_models(tokenizer: PreTrainedTokenizerFast, settings: Settings) -> dict[str, tuple[PreTrainedModel, Any]]:
    """Make both models with random weights, each with what turns text into its inputs."""
    shared = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": MAX_SOURCE_LENGTH,
        "d_model": settings.width,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 4 * settings.width,
        "decoder_ffn_dim": 4 * settings.width,
        "dropout": 0.0,  # so little training does not overfit
        # BART's 0.02 fits a width of 1024; in so narrow a model attention would take twice as long to find its words.
        "init_std": settings.width**-0.5,
    }
    set_seed(SEED)
    hat_bart = HatBartForConditionalGeneration(HatBartConfig(hierarchical_layers=1, **shared))
    set_seed(SEED)
    bart = BartForConditionalGeneration(BartConfig(**shared))
    for model in (hat_bart, bart):
        model.generation_config.update(
            max_length=settings.summary_length, min_length=settings.summary_length * 3 // 5, no_repeat_ngram_size=3
        )
    return {"HAT-BART": (hat_bart, HatBartProcessor(tokenizer)), "BART": (bart, tokenizer)}


def train(
    model: PreTrainedModel,
    processor: Any,
    dataset: Dataset,
    output_dir: Path,
    steps: int,
    batch_size: int,
    learning_rate: float,
) -> None:
    """Train with the stock Trainer; nothing here is special to our models but the collator."""
    tokenized = tokenize_documents(
        dataset, processor, max_source_length=MAX_SOURCE_LENGTH, max_target_length=MAX_TARGET_LENGTH
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=trainer_arguments(
            output_dir=output_dir,
            max_steps=steps,
            per_device_train_batch_size=batch_size,
            learning_rate=learning_rate,
            bf16=has_fast_bfloat16(),
            warmup_steps=max(steps // 10, 1),
            weight_decay=0.01,
            adam_beta2=0.98,
            logging_steps=max(steps // 4, 1),
            save_strategy="no",
        ),
        train_dataset=tokenized,
        data_collator=HierDataCollator(processor, model=model),
    )
    trainer.train()
    # Mixed precision was for training only.
    trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)


def trainer_arguments(**arguments: Any) -> Seq2SeqTrainingArguments:
    on_gpu = torch.cuda.is_available()
    places = {"use_cpu": not on_gpu, "dataloader_pin_memory": on_gpu}
    return Seq2SeqTrainingArguments(report_to="none", seed=SEED, **places, **arguments)


# Results


def first_sentences(papers: Dataset, count: int, processor: HatBartProcessor) -> list[str]:
    """The first `count` sentences of every paper."""
    return [text[: processor.split_sentences(text)[:count][-1][1]] for text in papers["text"]]


def closest_count(papers: Dataset, processor: HatBartProcessor) -> int:
    """How many first sentences have as many words as an abstract, on average over the papers."""

    def words(texts: Iterable[str]) -> int:
        return sum(len(text.split()) for text in texts)

    wanted = words(papers["summary"])
    return min(range(1, 20), key=lambda count: abs(words(first_sentences(papers, count, processor)) - wanted))


def table(rows: list[list[str]]) -> str:
    """Rows under a heading, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def side_by_side(left: tuple[str, str], right: tuple[str, str], width: int = 56) -> str:
    """Two texts with their headings in two columns."""
    columns = [[heading, "-" * width, *textwrap.wrap(text, width)] for heading, text in (left, right)]
    lines = itertools.zip_longest(*columns, fillvalue="")
    return "\n".join(f"{first:<{width}}   {second}".rstrip() for first, second in lines)


def step(text: str) -> None:
    print(f"\n== {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a hierarchical summarizer, score it, see where it looks.")
    parser.add_argument("--smoke", action="store_true", help="hardly any training: shows that everything runs")
    parser.add_argument("--output-dir", type=Path, default=Path("outputs/demo"), help="default: %(default)s")
    options = parser.parse_args()
    settings, output_dir = (SMOKE if options.smoke else FULL), options.output_dir
    output_dir.mkdir(parents=True, exist_ok=True)
    disable_progress_bars()  # those of datasets, which are done in a moment
    begun = time.perf_counter()

    step("Papers and tokenizer")
    papers, unseen, full_texts = load_papers(output_dir)
    tokenizer = train_tokenizer([*papers["text"], *papers["summary"], *full_texts])
    models = build_models(tokenizer, settings)
    hat_bart, processor = models["HAT-BART"]
    pretraining = passages(full_texts, processor)
    to_score = unseen.select(range(settings.papers))
    print(f"{len(papers)} papers and {len(pretraining)} passages of them to train on, {len(to_score)} to summarize")

    count = closest_count(papers, processor)
    lead = first_sentences(to_score, count, processor)
    scores = Rouge().compute(
        predictions=lead, references=to_score["summary"], use_stemmer=True, sentence_splitter="punkt"
    )
    rows = [["", "ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum", "parameters", "training"]]
    first_row = [f"first {count} sentences", *(f"{100 * scores[name]:.2f}" for name in ROUGE_NAMES), "0", "0 s"]
    for name, (model, inputs) in models.items():
        started = time.perf_counter()
        set_seed(SEED)
        step(f"{name} learns from passages")
        train(model, inputs, pretraining, output_dir, settings.passage_steps, batch_size=16, learning_rate=1e-3)
        step(f"{name} learns from papers")
        train(model, inputs, papers, output_dir, settings.paper_steps, batch_size=8, learning_rate=5e-4)
        costs = [f"{model.num_parameters() / 1e6:.2f} M", f"{time.perf_counter() - started:.0f} s"]
        step(f"{name} summarizes {len(to_score)} papers it has not seen")
        scores = run_evaluation(
            model,
            inputs,
            to_score,
            max_source_length=MAX_SOURCE_LENGTH,
            training_args=trainer_arguments(output_dir=output_dir, per_device_eval_batch_size=25),
            predictions_file=output_dir / f"{name}.jsonl",
        )
        rows.append([name, *(f"{scores[rouge]:.2f}" for rouge in ROUGE_NAMES), *costs])
    print("\n" + table([*rows, first_row]))
    print("F1 in percent, stemmed; trained for minutes on a hundred papers: no good writers, but the same for both.")

    step("A paper that it has not seen")
    paper = next(paper for paper in unseen if paper["id"] == SHOWN)
    title = next(paper.title for paper in ACLSum("val") if paper.id == SHOWN)
    attention = hierarchical_attention(hat_bart, processor, text=paper["text"], title=title)
    print(title + "\n\n" + side_by_side(("HAT-BART", attention.summary), ("Abstract", paper["summary"])))
    heatmap = attention.save_png(output_dir / "heatmap.png", dpi=100)
    page = attention.save_html(output_dir / "heatmap.html")

    step("The checkpoint, loaded again")
    checkpoint = export(hat_bart, processor, output_dir / "model")
    summarize = pipeline("summarization", model=str(checkpoint))
    same = summarize(paper["text"])[0]["summary_text"].strip() == attention.summary
    print(f'pipeline("summarization", model="{checkpoint}") writes the same summary: {"yes" if same else "NO"}')
    print(f"checkpoint  {checkpoint}\nheatmap     {heatmap}\n            {page} (hover to read the sentences)")
    print(f"all of it   {time.perf_counter() - begun:.0f} s")
    if not same:
        raise SystemExit("The loaded checkpoint writes another summary than the model that was saved.")


if __name__ == "__main__":
    main()
