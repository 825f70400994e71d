"""`--ray`: a job on several machines writes what it writes on one."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from transformers import pipeline

from hier_models.cli.jobs import alone
from hier_models.cli.ray_cluster import LOCK
from hier_models.pipelines.ray_data import map_pipeline
from tests.cli.commands import expected, jsonl, mistake, run, write_jsonl
from tests.conftest import DOCUMENTS


ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Two machines of one CPU each."""
    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100 * 2**20}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    yield cluster.address
    cluster.shutdown()


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": f"d{number}", "text": f"{number}. {DOCUMENTS[number % 4]}"} for number in range(count)]


def parts(folder: str) -> list[dict[str, Any]]:
    return [record for part in sorted(Path(folder).glob("part-*.jsonl")) for record in jsonl(part.read_text())]


def by_id(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=lambda record: record["id"])


def kill_a_worker(killed: list[int], folder: Path, after: int) -> None:
    """Kill one of the processes that hold a model, once so many lines are written."""
    while sum(part.read_bytes().count(b"\n") for part in folder.glob("part-*.jsonl")) < after:
        time.sleep(0.02)
    workers = [each for each in psutil.process_iter(["cmdline"]) if "_Worker" in " ".join(each.info["cmdline"] or ())]
    ours = [each for each in workers if str(os.getpid()) in map(str, (up.pid for up in each.parents()))]
    if ours:
        os.kill(ours[0].pid, signal.SIGKILL)
        killed.append(ours[0].pid)


@pytest.mark.slow
def test_the_lines_of_one_process_although_a_worker_is_killed(address: str, checkpoint: str):
    count = int(os.environ.get("RAY_DOCUMENTS", "200"))  # 10,000 take six minutes on one core
    lines = [json.dumps(row) for row in rows(count)]
    Path("papers.jsonl").write_text("\n".join([*lines[:50], "{broken", *lines[50:]]) + "\n")
    arguments = ["summarize", "papers.jsonl", "-m", checkpoint, "--set-aside"]
    run(*arguments, "bad1.jsonl", "-o", "one.jsonl", "--batch-size", "8")
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(killed, Path("out"), count // 10), daemon=True)
    killer.start()
    result = run(*arguments, "bad2.jsonl", "-o", "out", "--batch-size", "8", "--ray", address)
    killer.join(10)
    assert killed
    assert "1 records could not be used" in result.stderr
    assert Path("bad2.jsonl").read_text() == Path("bad1.jsonl").read_text()
    assert by_id(parts("out")) == by_id(jsonl(Path("one.jsonl").read_text()))

    # Stopped in the middle of a line, it goes on with what is missing.
    part = Path("out/part-00000.jsonl")
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    left = part.read_bytes().count(b"\n")
    result = run(*arguments, "bad2.jsonl", "-o", "out", "--batch-size", "8", "--ray", address)
    assert f"holds {left} of {count} summaries" in result.stderr
    assert by_id(parts("out")) == by_id(jsonl(Path("one.jsonl").read_text()))
    assert "nothing is left to do" in run(*arguments, "bad2.jsonl", "-o", "out", "--ray", address).stderr


@pytest.mark.slow
def test_a_pipeline_over_a_dataset(address: str, checkpoint: str):
    ray.init(address, log_to_driver=False)
    try:
        dataset = ray.data.from_items([{"name": n, "text": text} for n, text in enumerate(DOCUMENTS)])
        load = partial(pipeline, "summarization", model=str(Path(checkpoint).absolute()), device="cpu")
        found = sorted(map_pipeline(dataset, load, batch_size=2).take_all(), key=lambda row: row["name"])
    finally:
        ray.shutdown()
    assert [json.loads(row["results"])[0]["summary_text"].strip() for row in found] == expected(checkpoint, *DOCUMENTS)


def test_mistakes(checkpoint: str, records: str):
    arguments = ["summarize", records, "-m", checkpoint, "--ray"]
    mistake(*arguments, "local", says="--output must be a folder")
    mistake(*arguments, "local", "-o", "out.jsonl", says="--output must be a folder")
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    mistake(*arguments, "local", "-o", "out", says="out holds notes.txt")
    Path("out/notes.txt").unlink()
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    for address in (nobody, "head"):
        mistake(*arguments, address, "-o", "out", says=f"--ray: no cluster at '{address}'")
    with alone(Path("out") / LOCK):
        mistake(*arguments, "local", "-o", "out", says="another process is writing out")
    write_jsonl("out/part-00000.jsonl", [{"id": "other", "summary": "x"}])
    mistake(*arguments, "local", "-o", "out", says="out/part-00000.jsonl:1")
