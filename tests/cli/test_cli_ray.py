"""`--ray`: a job on several machines writes what it writes on one."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from transformers import pipeline

from hier_models.cli import jobs
from hier_models.cli.errors import MistakeError
from hier_models.cli.jobs import alone
from hier_models.cli.loading import load_pipeline
from hier_models.cli.ray_cluster import LOCK
from hier_models.pipelines import ray_data
from hier_models.pipelines.ray_data import map_pipeline
from tests.cli.commands import expected, full_disk, jsonl, mistake, run, write_jsonl
from tests.conftest import DOCUMENTS


os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "10")  # as in the command, which is too late here
ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Two machines of one CPU each."""
    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100 * 2**20}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # or workers starve where others work, too
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
        cluster.add_node(**node)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command sets for itself is not for the clusters of later tests."""
    monkeypatch.setenv("RAY_gcs_server_port_wait_time_s", "1")


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
    count = int(os.environ.get("RAY_DOCUMENTS", "100"))  # 10,000 take six minutes on one core
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
def test_a_cluster_of_one_cpu_is_refused(address: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch):
    """It would wait for another one without end."""
    monkeypatch.setattr(ray_data, "count_workers", lambda on_gpus: 0 if on_gpus else 1)
    arguments = ["-m", checkpoint, write_jsonl("texts.jsonl", rows(4)), "-o", "out"]
    mistake("summarize", *arguments, "--ray", address, says="--ray: the cluster has one CPU")


@pytest.mark.slow
def test_translations_and_poems(address: str, checkpoint: str, poet: str):
    poems = [{"id": f"p{number}", "text": text} for number, text in enumerate(("春风吹青山", "明月照花", "青山春风"))]
    for command, job in (
        ("translate", [write_jsonl("texts.jsonl", rows(4)), "-m", checkpoint, "--chunk-length", "40"]),
        ("poem", [write_jsonl("poems.jsonl", poems), "-m", poet, "--length", "5"]),
    ):
        run(command, *job, "-o", f"{command}.jsonl")
        run(command, *job, "-o", command, "--ray", address)
        found = by_id(parts(command))
        assert found == by_id(jsonl(Path(f"{command}.jsonl").read_text()))
        assert len(found) == {"translate": 4, "poem": 3}[command]


@pytest.mark.slow
def test_a_pipeline_over_a_dataset(address: str, checkpoint: str):
    ray.init(address, log_to_driver=False)
    try:
        dataset = ray.data.from_items([{"name": n, "text": text} for n, text in enumerate(DOCUMENTS)])
        load = partial(pipeline, "summarization", model=str(Path(checkpoint).absolute()), device="cpu")
        map_pipeline(dataset, load, on_gpus=True)  # Ray, which has none here, refuses some settings before it looks
        found = sorted(map_pipeline(dataset, load, batch_size=2).take_all(), key=lambda row: row["name"])
    finally:
        ray.shutdown()
    assert [json.loads(row["results"])[0]["summary_text"].strip() for row in found] == expected(checkpoint, *DOCUMENTS)


def in_workers(patch: pytest.MonkeyPatch, load: Callable[[], Any]) -> None:
    """Let the processes that hold a model load something else than that of the command does."""
    command = os.getpid()
    patch.setattr(jobs, "load_pipeline", lambda *given: load_pipeline(*given) if os.getpid() == command else load())


def echo(meet: Callable[[str], Any]) -> Callable[[], Any]:
    """Load a pipeline whose summary is the document, once it has been met."""

    def load() -> Any:
        def pipe(documents: Iterator[dict[str, Any]], **settings: Any) -> Iterator[list[dict[str, Any]]]:
            for document in documents:
                meet(document["text"])
                yield [{"summary_text": document["text"]}]

        return pipe

    return load


def grief(kind: str) -> Callable[..., Any]:
    """What comes to a worker, which has no module of tests."""

    def comes(text: str = "2.") -> None:
        if not text.startswith("2."):
            return
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise {"memory": MemoryError, "path": MistakeError, "value": ValueError}[kind]("no room for 9 TiB")

    return comes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "loading", "says", "code"),
    [
        ("killed", True, "a process with a model was killed again and again, most likely for lack of memory", 1),
        ("memory", True, "a process with a model failed (MemoryError: no room for 9 TiB), most likely for", 1),
        ("path", True, "Error: --ray: on a machine of the cluster: no room for 9 TiB", 2),
        ("killed", False, "a process with a model was killed again and again, most likely for lack of memory", 1),
        ("value", False, "on a machine of the cluster: ValueError: no room for 9 TiB", 1),
    ],
)
def test_grief_of_workers(
    address: str, checkpoint: str, kind: str, loading: bool, says: str, code: int, monkeypatch: pytest.MonkeyPatch
):
    """It comes to an end, in words, and what is done is not lost."""
    monkeypatch.setattr(ray_data, "TRIES", 1)
    papers = write_jsonl("papers.jsonl", rows(4))
    arguments = ["summarize", papers, "-m", checkpoint, "-o", "out", "--ray", address]
    come = grief(kind)
    with monkeypatch.context() as patch:
        in_workers(patch, come if loading else echo(come))
        result = run(*arguments, code=code)
    assert says in result.stderr
    assert code == 2 or "What is done is in out; the same command goes on from there" in result.stderr
    if not loading:
        assert "d2" not in [record["id"] for record in parts("out")]
        in_workers(monkeypatch, echo(lambda text: None))
        run(*arguments)
        assert [(record["id"], record["summary"]) for record in by_id(parts("out"))] == [
            (row["id"], row["text"]) for row in rows(4)
        ]


@pytest.mark.slow
def test_the_disk_is_full(address: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch):
    papers = write_jsonl("papers.jsonl", rows(8))
    arguments = ["summarize", papers, "-m", checkpoint, "--ray", address, "-o"]
    in_workers(monkeypatch, echo(lambda text: None))
    with monkeypatch.context() as patch:
        full_disk(patch, room=1000)
        result = run(*arguments, "out", code=1)
    assert "No space left on device" in result.stderr
    assert "What is done is in out; the same command goes on from there" in result.stderr
    part = Path("out/part-00000.jsonl").read_text()
    assert len(part) == 1000
    assert f"holds {len(part.splitlines()) - 1} of 8 summaries" in run(*arguments, "out").stderr
    assert [(record["id"], record["summary"]) for record in by_id(parts("out"))] == [
        (row["id"], row["text"]) for row in rows(8)
    ]


@pytest.mark.slow
def test_something_else_listens_there(checkpoint: str, records: str):
    with socket.create_server(("", 0)) as server:
        other = f"127.0.0.1:{server.getsockname()[1]}"
        says = f"--ray: no cluster at '{other}'; give local, auto, or HOST:PORT"
        mistake("summarize", records, "-m", checkpoint, "-o", "out", "--ray", other, says=says)


def test_mistakes(checkpoint: str, records: str):
    arguments = ["summarize", records, "-m", checkpoint, "--ray"]
    mistake(*arguments, "local", says="--output must be a folder")
    mistake(*arguments, "local", "-o", "out.jsonl", says="--output must be a folder")
    mistake(*arguments, "local", "-o", "out.txt.gz", says="--output must be a folder")
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    Path("there.txt").mkdir()
    for folder in ("summaries-v1.2", "there.txt"):  # a dot may be in the name of a folder
        mistake(*arguments, nobody, "-o", folder, says=f"--ray: no cluster at '{nobody}'")
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    mistake(*arguments, "local", "-o", "out", says="out holds notes.txt")
    Path("out/notes.txt").unlink()
    for address in (nobody, "head"):
        mistake(*arguments, address, "-o", "out", says=f"--ray: no cluster at '{address}'")
    with alone(Path("out") / LOCK):  # another run into the folder
        mistake(*arguments, "local", "-o", "out", says="another process is writing out")
    write_jsonl("out/part-00000.jsonl", [{"id": "other", "summary": "x"}])
    mistake(*arguments, "local", "-o", "out", says="out/part-00000.jsonl:1")
