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
from tests import forks
from tests.cli.commands import expected, full_disk, jsonl, mistake, run, write_jsonl
from tests.conftest import DOCUMENTS


os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "10")  # as in the command, which is too late here
ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Two machines of one CPU each."""
    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # or workers starve where others work, too
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
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
    assert "nothing is left to do" in run(*arguments, "bad2.jsonl", "-o", "out", "--ray", address).stderr


@pytest.mark.slow
def test_a_cluster_of_one_cpu_is_refused(address: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch):
    """It would wait for another one without end."""
    monkeypatch.setattr(ray_data, "count_workers", lambda on_gpus: 0 if on_gpus else 1)
    arguments = ["-m", checkpoint, write_jsonl("texts.jsonl", rows(4)), "-o", "out"]
    mistake("summarize", *arguments, "--ray", address, says="--ray: the cluster has one CPU")


@pytest.mark.slow
def test_translations_and_poems(address: str, checkpoint: str, poet: str, monkeypatch: pytest.MonkeyPatch):
    on_one_machine(monkeypatch)
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
def test_a_pipeline_over_a_dataset(address: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch):
    on_one_machine(monkeypatch)
    ray.init(address, log_to_driver=False)
    try:
        items = [{"name": n, "text": text} for n, text in enumerate(DOCUMENTS)]
        dataset = ray.data.from_items(items)
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


def on_one_machine(patch: pytest.MonkeyPatch) -> None:
    """Let Ray start no more than the first process with a model."""
    scaling = ray.data.DataContext.get_current().autoscaling_config
    patch.setattr(scaling, "actor_pool_util_upscaling_threshold", 1000.0)


def grief(kind: str, begins: str = "") -> Callable[..., Any]:
    """What comes to a worker, which has no module of tests: by a document that begins so, or as it loads."""

    def comes(text: str = "") -> None:
        if not text.startswith(begins):
            return
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise {"memory": MemoryError, "path": MistakeError, "value": ValueError}[kind]("no room for 9 TiB")

    return comes


GOES_ON = "What is done is in out; the same command goes on from there"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "says", "code"),
    [
        ("killed", "a process with a model was killed again and again, most likely for lack of memory", 1),
        ("memory", "a process with a model failed (MemoryError: no room for 9 TiB), most likely for", 1),
        ("path", "Error: --ray: on a machine of the cluster: no room for 9 TiB", 2),
    ],
)
def test_grief_of_workers_that_load(
    address: str, checkpoint: str, kind: str, says: str, code: int, monkeypatch: pytest.MonkeyPatch
):
    """It comes to an end, in words."""
    monkeypatch.setattr(ray_data, "TRIES", 1)
    on_one_machine(monkeypatch)
    papers = write_jsonl("papers.jsonl", rows(1))
    in_workers(monkeypatch, grief(kind))
    result = run("summarize", papers, "-m", checkpoint, "-o", "out", "--ray", address, code=code)
    assert says in result.stderr
    assert code == 2 or GOES_ON in result.stderr


# Threads that need no cluster, and those of Ray that end with it.
THREADS = {"MainThread", "tqdm_monitor", "data-usage-metrics-poller", "PythonGCThread", "ray_listen_error_messages"}


@pytest.mark.slow
def test_a_job_goes_on_after_each_grief(address: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch):
    """It comes to an end, in words, what is done is not lost, and it goes on with what is missing."""
    monkeypatch.setattr(ray_data, "TRIES", 1)
    on_one_machine(monkeypatch)
    lines = [json.dumps(row) for row in rows(8)]
    Path("papers.jsonl").write_text("\n".join([*lines[:5], "{broken", *lines[5:]]) + "\n")
    arguments = ["summarize", "papers.jsonl", "--set-aside", "bad.jsonl", "-m", checkpoint, "-o", "out"]
    done = 0
    shutdown, before = ray.shutdown, set(threading.enumerate())

    def shut_down() -> None:
        """A thread that asks a cluster which has been left ends the process of the command, without a word."""
        others = {thread.name for thread in set(threading.enumerate()) - before}
        assert others <= THREADS, others
        shutdown()

    monkeypatch.setattr(ray, "shutdown", shut_down)

    def job(loads: Callable[[], Any], *says: str, code: int) -> int:
        """Run it, which goes on where it was; the number of summaries that there are then."""
        with monkeypatch.context() as patch:
            in_workers(patch, loads)
            result = run(*arguments, "--ray", address, code=code)
        assert all(each in result.stderr for each in says), result.stderr
        assert (f"out holds {done} of 8 summaries" in result.stderr) == (done > 0)
        assert (GOES_ON in result.stderr) == (code == 1)
        assert ("1 records could not be used" in result.stderr) == (code == 0)
        return sum(part.read_bytes().count(b"\n") for part in Path("out").glob("part-*.jsonl"))

    with monkeypatch.context() as patch:
        full_disk(patch, room=1000)
        job(echo(lambda text: None), "No space left on device", code=1)
    stopped = Path("out/part-00000.jsonl").read_text()
    assert len(stopped) == 1000  # in the middle of a line
    kept = jsonl(stopped.rpartition("\n")[0])
    done = len(kept)
    left = next(row["id"] for row in rows(8) if row["id"] not in [record["id"] for record in kept])
    for kind, says in (
        ("killed", "a process with a model was killed again and again, most likely for lack of memory"),
        ("value", "on a machine of the cluster: ValueError: no room for 9 TiB"),
    ):
        done = job(echo(grief(kind, f"{left[1:]}.")), says, code=1)
        assert left not in [record["id"] for record in parts("out")]
    kept = parts("out")
    job(echo(lambda text: None), code=0)
    found = by_id(parts("out"))
    assert [(record["id"], record["summary"]) for record in found] == [(row["id"], row["text"]) for row in rows(8)]
    assert all(record in found for record in kept)


@pytest.mark.slow
def test_something_else_listens_there(checkpoint: str, records: str):
    with socket.create_server(("", 0)) as server:
        other = f"127.0.0.1:{server.getsockname()[1]}"
        arguments = ("summarize", records, "-m", checkpoint, "-o", "out", "--ray", other)
        # In a process of its own, as Ray reads when it is imported how long to wait.
        environment = {**os.environ, "RAY_py_gcs_connect_timeout_s": "1"}
        result = forks.run(forks.COMMAND, *arguments, env=environment)
    assert (result.returncode, result.stdout) == (2, "")
    text = " ".join(result.stderr.split())
    assert f"--ray: no cluster at '{other}'; give local, auto, or HOST:PORT" in text
    assert len(result.stderr.strip().splitlines()) <= 6, result.stderr


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
