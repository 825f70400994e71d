"""Documents a second of `hier-models summarize --ray`, by workers: clusters on this machine, of nodes with one CPU.

    OMP_NUM_THREADS=1 python benchmarks/workers.py

Each worker needs a core that is free. Counted is from the first summary on: what Ray and the models take to begin is
left out. Documents are the sentences of docs/ferry.txt in other orders, so all of one length.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import machine, table
from ray.cluster_utils import Cluster
from serving import COMMAND, documents


NODE = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100 * 2**20}


def rate(workers: int, texts: list[str], options: list[str]) -> float:
    """Documents a second, of the clock, once the first is done."""
    with tempfile.TemporaryDirectory() as folder:
        file, part = Path(folder) / "documents.jsonl", Path(folder) / "out" / "part-00000.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        cluster = Cluster(initialize_head=True, head_node_args=NODE)
        try:
            for _ in range(workers - 1):
                cluster.add_node(**NODE)
            command = [*COMMAND, "summarize", str(file), "-o", str(part.parent), "--ray", cluster.address, *options]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            times: list[float] = []  # when each was written
            while len(times) < len(texts):
                assert not process.poll(), "summarize failed"
                lines = part.read_bytes().count(b"\n") if part.exists() else 0
                times += [time.perf_counter()] * (lines - len(times))
                time.sleep(0.02)
            process.wait()
        finally:
            cluster.shutdown()
    later = sum(moment > times[0] for moment in times)
    return later / (times[-1] - times[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a second worker brings.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    texts = documents(arguments.documents)
    rates = {}
    for workers in arguments.workers:
        rates[workers] = rate(workers, texts, ["-m", str(arguments.model)])
        print(workers, f"{rates[workers]:.2f}", file=sys.stderr, flush=True)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(texts)} documents of {len(texts[0].split())} words, {machine()}; load {load}\n")
    least = rates[arguments.workers[0]]
    rows = [[str(workers), f"{found:.2f}", f"{found / least:.2f}"] for workers, found in rates.items()]
    print(table(["workers", "documents / s", "growth"], rows))


if __name__ == "__main__":
    main()
