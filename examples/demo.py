"""Summarize with the model in the box, see what its summaries rest on, fine-tune it on real papers, score it.

    make demo                                   # 6 minutes on two cores
    python examples/demo.py --smoke             # the same with hardly any training, of few words, in a minute

The model is `mini`, which comes with the package (model_cards/mini.md). The papers are those of the Python package
aclsum (Takeshita et al., 2024: ACLSum: A New Dataset for Aspect-based Summarization of Scientific Publications; MIT
license): each paper's introduction and conclusion are the source; the summary says in a sentence each what its
challenge, its approach and its outcome are. mini has seen none of them, and no summaries of this kind. Nothing is
downloaded.
"""

import argparse
import json
import os
import re
import textwrap
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


# Before the libraries of Hugging Face are imported: nothing here needs their Hub.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from aclsum import ACLSum
from datasets import Dataset, disable_progress_bars
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    PreTrainedModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipeline,
    set_seed,
)

from hier_models import MINI, HierDataCollator, export
from hier_models.data import load_documents, tokenize_documents
from hier_models.inspection import hierarchical_attention
from hier_models.metrics import Rouge
from hier_models.pipelines import ExtractiveSummarizer
from hier_models.training import has_fast_bfloat16, run_evaluation


SEED = 42
SHOWN = "2020.acl-main.547"  # the paper that is summarized
MAX_SOURCE_LENGTH = 512  # tokens to train on and to score with: of longer papers, what says the most of them
MAX_TARGET_LENGTH = 160  # tokens of a summary to train on
ROUGE_NAMES = ("rouge1", "rouge2", "rougeLsum")


class Effort(NamedTuple):
    """How much is trained and scored."""

    papers: int = 25  # to score with
    steps: int = 30
    batch_size: int = 8
    least: int = 40  # tokens of a summary that is scored
    most: int = 160


SMOKE = Effort(papers=2, steps=2, batch_size=2, least=16, most=48)
DIALOGUE = [
    {"role": "Ann", "content": "Good morning. The heating in the reading room has been off since Friday."},
    {"role": "Bob", "content": "I know. The boiler lost pressure, and the part that we need comes on Wednesday."},
    {"role": "Ann", "content": "We have forty children here tomorrow for the story hour. It is eleven degrees."},
    {"role": "Bob", "content": "Could you move them to the music hall? It has its own heating."},
    {"role": "Ann", "content": "It is free until noon, so yes. I will tell the parents and put a sign on the door."},
    {"role": "Bob", "content": "Good. I will bring two electric heaters for the librarians this afternoon."},
]


def load_papers(output_dir: Path) -> tuple[Dataset, Dataset]:
    """Write the papers as JSON lines, as one would have one's own, and load them."""
    for name, split in (("train", "train"), ("validation", "val")):
        lines = []
        for paper in ACLSum(split):
            text = without_gaps(paper.get_all_sentences(["introduction", "conclusion"]))
            summary = " ".join(paper.summaries[aspect] for aspect in ("challenge", "approach", "outcome"))
            lines.append(json.dumps({"id": paper.id, "title": paper.title, "text": text, "summary": summary}))
        (output_dir / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_documents(output_dir / "train.jsonl"), load_documents(output_dir / "validation.jsonl")


def without_gaps(sentences: Iterable[str]) -> str:
    """Join sentences that have a space on either side of every punctuation mark."""
    text = " ".join(sentences)
    text = re.sub(r" ([,.;:?!%)\]])", r"\1", text)
    return re.sub(r"([(\[]) ", r"\1", text).replace(" n't", "n't").replace(" 's", "'s")


def fine_tune(model: PreTrainedModel, processor: Any, papers: Dataset, output_dir: Path, effort: Effort) -> None:
    """Train with the stock Trainer; nothing here is special to our models but the collator."""
    on_gpu = torch.cuda.is_available()
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=output_dir,
            max_steps=effort.steps,
            per_device_train_batch_size=effort.batch_size,
            learning_rate=8e-4,
            warmup_steps=2,
            bf16=has_fast_bfloat16(),
            logging_steps=max(effort.steps // 4, 1),
            save_strategy="no",
            report_to="none",
            seed=SEED,
            use_cpu=not on_gpu,
            dataloader_pin_memory=on_gpu,
        ),
        train_dataset=tokenize_documents(
            papers,
            processor,
            max_source_length=MAX_SOURCE_LENGTH,
            max_target_length=MAX_TARGET_LENGTH,
            long_documents="condense",
        ),
        data_collator=HierDataCollator(processor, model=model),
    )
    trainer.train()
    # Mixed precision was for training only.
    trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)


def load(effort: Effort, **config: Any) -> tuple[PreTrainedModel, Any]:
    """mini, or mini with another configuration, to be trained on; to write summaries of a length."""
    model = AutoModelForSeq2SeqLM.from_pretrained(MINI, **config)
    processor = AutoProcessor.from_pretrained(MINI)
    model.generation_config.update(
        forced_bos_token_id=processor.tokenizer.convert_tokens_to_ids("[short]"),
        max_new_tokens=effort.most,
        min_new_tokens=effort.least,
    )
    return model, processor


def table(rows: list[list[str]]) -> str:
    """Rows under a heading, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 110, initial_indent=indent, subsequent_indent=indent)


def step(text: str) -> None:
    print(f"\n== {text}", flush=True)


def show(papers: Dataset, output_dir: Path) -> list[Path]:
    """Summarize a paper and a dialogue with mini; return the files that show where it looked."""
    paper = next(paper for paper in papers if paper["id"] == SHOWN)
    title = next(paper.title for paper in ACLSum("val") if paper.id == SHOWN)
    summarize = pipeline("summarization")
    step(f"A paper that mini has not seen: {title}")
    for length in ("line", "short", "long"):
        started = time.perf_counter()
        record = summarize(paper["text"], length=length, return_sources=length == "short")[0]
        print(f"\n{length} ({time.perf_counter() - started:.1f} s)\n{wrapped(record['summary_text'], '  ')}")
        for number_of, sentence in enumerate(record.get("sources", ()), start=1):
            best = sentence["sources"][0]
            print(wrapped(f"[{number_of}] rests most ({best['weight']:.0%}) on: {best['text']}", "      "))
    attention = hierarchical_attention(summarize.model, summarize.processor, text=paper["text"], title=title)
    files = [attention.save_png(output_dir / "heatmap.png"), attention.save_html(output_dir / "heatmap.html")]

    step("A dialogue")
    print("\n".join(f"{turn['role']}: {turn['content']}" for turn in DIALOGUE))
    print(f"\n{wrapped(summarize(DIALOGUE)[0]['summary_text'], '  ')}")
    return files


def compare(papers: Dataset, unseen: Dataset, output_dir: Path, effort: Effort) -> Path:
    """Train, and score what all systems write; return the checkpoint."""
    to_score = unseen.select(range(effort.papers))
    words = sum(len(text.split()) for text in to_score["summary"]) // effort.papers
    rows = [["", "ROUGE-1", "ROUGE-2", "ROUGE-Lsum"]]

    def score(name: str, written: list[str]) -> None:
        found = Rouge().compute(
            predictions=written, references=to_score["summary"], use_stemmer=True, sentence_splitter="punkt"
        )
        rows.append([name, *(f"{100 * found[rouge]:.2f}" for rouge in ROUGE_NAMES)])

    def evaluate(name: str, model: PreTrainedModel, processor: Any) -> None:
        found = run_evaluation(
            model,
            processor,
            to_score,
            max_source_length=MAX_SOURCE_LENGTH,
            predictions_file=output_dir / f"{name.replace(' ', '-')}.jsonl",
        )
        rows.append([name, *(f"{found[rouge]:.2f}" for rouge in ROUGE_NAMES)])

    for method in ("lead", "lexrank"):
        summarizer = ExtractiveSummarizer(method, max_words=words)
        score(method, [summarizer(text=text) for text in to_score["text"]])
    step(f"mini summarizes {effort.papers} papers, before")
    model, processor = load(effort)
    evaluate("mini", model, processor)
    for name, config in (("twin without hierarchy", {"hierarchical_layers": 0}), ("mini, fine-tuned", {})):
        step(f"{name}: {effort.steps} steps on {len(papers)} papers")
        set_seed(SEED)
        model, processor = load(effort, **config)
        fine_tune(model, processor, papers, output_dir, effort)
        evaluate(name, model, processor)
    checkpoint = export(model, processor, output_dir / "model")
    print(f"\n{table(rows)}")
    print(f"F1 in percent, stemmed; lead and lexrank choose {words} words, as many as the summaries have on average.")
    return checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description="Summarize with mini, fine-tune it on papers, score it.")
    parser.add_argument("--smoke", action="store_true", help="hardly any training: shows that everything runs")
    parser.add_argument("--output-dir", type=Path, default=Path("outputs/demo"), help="default: %(default)s")
    options = parser.parse_args()
    output_dir = options.output_dir
    output_dir.mkdir(parents=True, exist_ok=True)
    disable_progress_bars()  # those of datasets, which are done in a moment
    begun = time.perf_counter()
    papers, unseen = load_papers(output_dir)
    heatmap, page = show(unseen, output_dir)
    checkpoint = compare(papers, unseen, output_dir, SMOKE if options.smoke else Effort())
    print(f"checkpoint  {checkpoint}\nheatmap     {heatmap}\n            {page} (hover to read the sentences)")
    print(f"all of it   {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
