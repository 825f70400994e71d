"""What the page of `hier-models export --page` loses to Python by 8 bits, and what it takes: ROUGE, seconds, bytes.

    hier-models export -m mini --page my-page
    OMP_NUM_THREADS=1 python benchmarks/browser.py my-page
    OMP_NUM_THREADS=1 python benchmarks/browser.py my-page --papers 10 --chromium /usr/bin/chromium

Introductions and conclusions of the test papers of aclsum are summarized by the page, which is greedy, in Chromium
with one thread, and by `mini` in float32 in Python, greedily and with the checkpoint's beams; the references are the
abstracts. Differences are means over papers, with 95 % intervals of a paired bootstrap. Seconds are medians, of the
page as it says them, without loading.
"""

import argparse
import re
import shutil
import statistics
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from aclsum import ACLSum
from measuring import machine, table
from playwright.sync_api import sync_playwright
from tqdm import tqdm
from transformers import pipeline

from hier_models import MINI
from hier_models.training.metrics import score_documents


NAMES = ("rouge1", "rouge2", "rougeLsum")
MINUTES = 600_000  # milliseconds


def load_papers(number: int) -> list[tuple[str, str]]:
    """Texts and abstracts, without the spaces that these papers have around punctuation."""
    papers = []
    for paper in list(ACLSum("test"))[:number]:
        parts = (paper.get_all_sentences(["introduction", "conclusion"]), paper.sentences["abstract"])
        text, summary = (re.sub(r" ([,.;:?!%)\]])|([(\[]) ", r"\1\2", " ".join(part)) for part in parts)
        papers.append((text, summary))
    return papers


def by_pipeline(texts: list[str], **settings: Any) -> tuple[list[str], float]:
    summarize, written, seconds = pipeline("summarization", model=MINI), [], []
    for text in tqdm(texts, desc=f"Python {settings}"):
        began = time.perf_counter()
        written.append(summarize(text, **settings)[0]["summary_text"])
        seconds.append(time.perf_counter() - began)
    return written, statistics.median(seconds)


def by_page(texts: list[str], folder: Path, chromium: str) -> tuple[list[str], float, float]:
    """Summaries, the median of their seconds, and the seconds until the page was ready."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    written, seconds = [], []
    with sync_playwright() as engine:
        page = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
        page.set_default_timeout(MINUTES)
        began = time.perf_counter()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.locator("#status", has_text="Ready.").wait_for()
        loading = time.perf_counter() - began
        for text in tqdm(texts, desc="page"):
            page.fill("#text", text)
            page.click("#go")
            page.locator("#status", has_text="Done in").wait_for()
            written.append(page.locator("#summary").text_content())
            seconds.append(float(re.search(r"[\d.]+", page.locator("#status").text_content())[0]))
    server.shutdown()
    return written, statistics.median(seconds), loading


def scores_of(written: list[str], abstracts: list[str]) -> np.ndarray:
    """ROUGE of each paper in percent, (papers, names)."""
    found, _ = score_documents(written, abstracts)
    return np.array([found[name] for name in NAMES]).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `hier-models export -m mini --page` wrote")
    parser.add_argument("--papers", type=int, default=100)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    args = parser.parse_args()
    texts, abstracts = zip(*load_papers(args.papers), strict=True)
    print(table(["", "ROUGE-1", "ROUGE-2", "ROUGE-Lsum", "seconds a summary"], []))
    scores = []

    def row(way: str, written: list[str], seconds: float) -> list[str]:
        scores.append(scores_of(written, abstracts))
        cells = [way, *(f"{value:.2f}" for value in scores[-1].mean(axis=0)), f"{seconds:.1f}"]
        print("| " + " | ".join(cells) + " |", flush=True)
        return written

    *found, loading = by_page(texts, args.folder, args.chromium)
    page = row("page, int8, greedy", *found)
    greedy = row("Python, float32, greedy", *by_pipeline(texts, num_beams=1))
    differences = scores[0] - scores[1]
    samples = np.random.default_rng(0).integers(len(texts), size=(10_000, len(texts)))
    low, high = np.percentile(differences[samples].mean(axis=1), [2.5, 97.5], axis=0)
    for name, mean, a, b in zip(NAMES, differences.mean(axis=0), low, high, strict=True):
        print(f"{name}, page less Python, both greedy: {mean:+.2f} [{a:+.2f}, {b:+.2f}]")
    same = sum(one == two for one, two in zip(page, greedy, strict=True))
    print(f"The same summary of {same} of {len(texts)} papers. The page was ready after {loading:.1f} seconds.")
    for name, files in (("model files", ("*.onnx", "shared.bin")), ("whole folder", ("*",))):
        size = sum(file.stat().st_size for pattern in files for file in args.folder.glob(pattern))
        print(f"{name}: {size / 1e6:.1f} MB")
    print(machine(), flush=True)
    row("Python, float32, 4 beams", *by_pipeline(texts))


if __name__ == "__main__":
    main()
