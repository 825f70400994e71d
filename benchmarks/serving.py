"""Documents a second and latencies of `hier-models serve`, by batch size and number of clients, beside `summarize`.

    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/serving.py

Where other work shares the machine, seconds of a clock say little; the table also has those of the processor, which
the server alone used. Documents are the sentences of docs/ferry.txt in other orders, so all of one length.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from measuring import cost_of_command, machine, table


FERRY = (Path(__file__).parents[1] / "docs" / "ferry.txt").read_text(encoding="utf-8")
COMMAND = [sys.executable, "-m", "hier_models.cli"]


def documents(count: int) -> list[str]:
    sentences, choose = re.split(r"(?<=\.)\s+", FERRY.strip()), random.Random(0)
    return [" ".join(choose.sample(sentences, len(sentences))) for _ in range(count)]


def processor_seconds(process: subprocess.Popen[str]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(url: str, text: str) -> float:
    """Seconds until the summary is there."""
    body, begun = json.dumps({"text": text}).encode(), time.perf_counter()
    request = urllib.request.Request(f"{url}/summarize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["summary"]
    return time.perf_counter() - begun


def late(times: list[float]) -> float:
    """What 99 % of the times are not above."""
    return sorted(times)[math.ceil(0.99 * len(times)) - 1]


def served(model: str, batch_size: int, clients: list[int], texts: list[str]) -> list[list[str]]:
    """A row for each number of clients, each of which asks again when it has its answer."""
    options = ["--batch-size", str(batch_size), "--port", "0", "--timeout", "3600", "--queue", str(len(texts))]
    process = subprocess.Popen([*COMMAND, "serve", "-m", model, *options], stderr=subprocess.PIPE, text=True)
    rows = []
    try:
        assert process.stderr
        url = next(found[1] for line in process.stderr if (found := re.search(r"on (http://\S+)", line)))
        ask(url, texts[0])  # the first one is slow
        for count in clients:
            waiting, times = list(texts), []

            def visit(waiting: list[str] = waiting, times: list[float] = times) -> None:
                while waiting:
                    try:
                        text = waiting.pop()
                    except IndexError:
                        return
                    times.append(ask(url, text))

            begun, used = time.perf_counter(), processor_seconds(process)
            threads = [threading.Thread(target=visit) for _ in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            taken, used = time.perf_counter() - begun, processor_seconds(process) - used
            rates = [f"{len(times) / used:.2f}", f"{len(times) / taken:.2f}"]
            rows.append(
                ["serve", str(batch_size), str(count), *rates, f"{statistics.median(times):.2f}", f"{late(times):.2f}"]
            )
            print(rows[-1], file=sys.stderr, flush=True)
    finally:
        process.terminate()
        process.wait()
    return rows


def summarize(model: str, batch_size: int, texts: list[str]) -> tuple[float, float]:
    """Seconds of the processor, and of the clock, of one process of `summarize`, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "documents.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        command = [*COMMAND, "summarize", str(file), "-m", model, "--batch-size", str(batch_size)]
        return cost_of_command(command)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the server beside one process of summarize.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--documents", type=int, default=100, help="of each row of the table")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    arguments = parser.parse_args()
    texts = documents(arguments.documents)
    rows = []
    start = summarize(arguments.model, 1, texts[:1])  # with its one document it is taken off
    for size in arguments.batch_sizes:
        rows += served(arguments.model, size, arguments.clients, texts)
        taken = zip(summarize(arguments.model, size, texts), start, strict=True)
        rates = [f"{(len(texts) - 1) / (whole - first):.2f}" for whole, first in taken]
        rows.append(["summarize", str(size), "–", *rates, "–", "–"])
        print(rows[-1], file=sys.stderr, flush=True)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{arguments.documents} documents of {len(texts[0].split())} words, {machine()}; load {load}\n")
    header = ["command", "batch", "clients", "documents / s of processor", "documents / s", "median, s", "99 %, s"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
