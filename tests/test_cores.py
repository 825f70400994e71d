"""A process for each core: the same texts, also when a document, a process or the job comes to grief."""

import json
import multiprocessing
import os
import signal
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hier_models import cores
from hier_models.cli.errors import MistakeError, is_mistake
from hier_models.cores import on_cores
from hier_models.data.tokenizing import check_roles


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks"),
    pytest.mark.usefixtures("two_threads"),
]
PIPE = SimpleNamespace(device=torch.device("cpu"), model=SimpleNamespace(get_memory_footprint=lambda: 1))


def numbered(count: int):
    return ({"id": str(number)} for number in range(count))


def with_process(documents):
    for document in documents:
        yield document["id"], os.getpid(), torch.get_num_threads()


@pytest.mark.parametrize(("total", "batch_size"), [(2, 1), (50, 1), (50, 3), (50, 20)])
def test_all_are_done_in_their_order_by_several(total: int, batch_size: int):
    both = multiprocessing.get_context("fork").Barrier(2)
    waited: list[bool] = []  # in each process

    def work(documents):
        if not waited:
            both.wait(timeout=60)
        waited.append(True)
        yield from with_process(documents)

    done = list(on_cores(PIPE, work, numbered(total), total=total, batch_size=batch_size))
    assert [identifier for identifier, _, _ in done] == [str(number) for number in range(total)]
    assert {threads for _, _, threads in done} == {1}
    assert len({process for _, process, _ in done} - {os.getpid()}) == 2
    batches = [done[start : start + batch_size] for start in range(0, total, batch_size)]
    assert all(len({process for _, process, _ in batch}) == 1 for batch in batches)


@pytest.mark.parametrize(("total", "batch_size"), [(1, 1), (50, 50)])
def test_what_is_one_batch_is_done_here(total: int, batch_size: int):
    done = list(on_cores(PIPE, with_process, numbered(total), total=total, batch_size=batch_size))
    assert done == [(str(number), os.getpid(), 2) for number in range(total)]


@pytest.mark.parametrize("error", [ValueError("a bad one"), MistakeError("a bad one"), OSError("a bad one")])
def test_what_is_done_before_an_error_is_there(error: Exception):
    def work(documents):
        for document in documents:
            if document["id"] == "11":
                raise error
            yield document["id"]

    done = []
    with pytest.raises(type(error), match="a bad one"):
        done.extend(on_cores(PIPE, work, numbered(30), total=30))
    assert done == [str(number) for number in range(11)]


TOO_MANY = {"turns": [[{"role": role, "content": "Hello."} for role in "AB"]]}


@pytest.mark.parametrize(
    ("fails", "mistake"), [(lambda: json.loads("{"), False), (lambda: check_roles(TOO_MANY, 1), True)]
)
def test_whose_mistake_an_error_of_another_process_is(fails, mistake: bool):
    def work(documents):
        fails()
        yield from documents

    with pytest.raises(ValueError, match=r"property name|2 roles") as caught:
        list(on_cores(PIPE, work, numbered(30), total=30))
    assert is_mistake(caught.value) == mistake
    assert "in work" in "".join(traceback.format_exception(caught.value))


class Demanding(Exception):
    """One that cannot be sent to another process."""

    def __init__(self, first: int, second: int):
        super().__init__(f"{first} and {second}")


def test_an_error_that_cannot_be_sent_is_said():
    def work(documents):
        raise Demanding(1, 2)
        yield from documents

    with pytest.raises(RuntimeError, match="Demanding: 1 and 2"):
        list(on_cores(PIPE, work, numbered(30), total=30))


def test_a_document_that_cannot_be_read_comes_after_those_before_it():
    def documents():
        yield from numbered(11)
        raise FileNotFoundError("gone")

    done = []
    with pytest.raises(FileNotFoundError, match="gone"):
        done.extend(on_cores(PIPE, with_process, documents(), total=30))
    assert len(done) == 11


def test_a_killed_process_is_said():
    def work(documents):
        for document in documents:
            if document["id"] == "9":
                os.kill(os.getpid(), signal.SIGKILL)
            yield document["id"]

    with pytest.raises(RuntimeError, match="one of 2 processes was killed, most likely for lack of memory"):
        list(on_cores(PIPE, work, numbered(30), total=30))


def test_nothing_is_left_of_a_job_that_is_given_up():
    results = on_cores(PIPE, with_process, numbered(1000), total=1000)
    process = next(results)[1]
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_failure_ends_no_process_of_somebody_else():
    forks = multiprocessing.get_context("fork")
    waits, ends = forks.Pipe(duplex=False)
    other = forks.Process(target=waits.recv, daemon=True)
    other.start()

    def work(documents):
        raise ValueError("a bad one")
        yield from documents

    with pytest.raises(ValueError, match="a bad one"):
        list(on_cores(PIPE, work, numbered(30), total=30))
    ends.send(None)
    other.join(60)
    assert other.exitcode == 0


def in_a_pool():
    return list(on_cores(PIPE, with_process, numbered(30), total=30))


def test_a_worker_of_a_pool_has_no_processes_of_its_own():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        done = pool.apply(in_a_pool)
    assert [identifier for identifier, _, _ in done] == [str(number) for number in range(30)]
    assert len({process for _, process, _ in done} - {os.getpid()}) == 1


def test_how_many(monkeypatch: pytest.MonkeyPatch):
    model = SimpleNamespace(get_memory_footprint=lambda: 3 * 2**30)
    pipe = SimpleNamespace(device=torch.device("cpu"), model=model)
    monkeypatch.setattr(cores, "_free_memory", lambda: 2**40)
    assert [cores._count_processes(pipe, parts) for parts in (1, 2, 9)] == [1, 2, 2]
    monkeypatch.setattr(cores, "_free_memory", lambda: 5 * 2**30)
    assert cores._count_processes(pipe, 9) == 1
    model.get_memory_footprint = lambda: 1
    assert cores._count_processes(pipe, 9) == 2
    pipe.device = torch.device("cuda")
    assert cores._count_processes(pipe, 9) == 1
    assert cores._count_processes(SimpleNamespace(), 9) == 1  # chooses sentences


def test_free_memory_is_some():
    assert 2**20 < cores._free_memory() < 2**50


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes files of the system, by their paths; what a group has is in MiB."""
    monkeypatch.setattr(cores, "Path", lambda path: tmp_path / path.lstrip("/"))
    monkeypatch.setattr(cores, "CGROUPS", tmp_path / "sys/fs/cgroup", raising=False)

    def write(available: int | None = 8000, own: str | None = None, **groups: tuple[int | str, int, int]) -> int:
        files = {"proc/meminfo": "MemTotal: 9999999 kB\n"}
        if available is not None:
            files["proc/meminfo"] += f"MemAvailable: {available * 1024} kB\n"
        if own is not None:
            files["proc/self/cgroup"] = f"1:name=systemd:/init\n0::{own}\n"
            files["sys/fs/cgroup/cgroup.procs"] = ""
        for group, (most, used, kept) in groups.items():
            folder = f"sys/fs/cgroup/{group.replace('_', '/')}".rstrip("/")
            files[f"{folder}/memory.max"] = f"{most * 2**20 if isinstance(most, int) else most}\n"
            files[f"{folder}/memory.current"] = f"{used * 2**20}\n"
            files[f"{folder}/memory.stat"] = f"anon 5\nfile {9 * 2**40}\ninactive_file {kept * 2**20}\nslab 7\n"
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return cores._free_memory() // 2**20

    return write


@pytest.mark.parametrize(
    ("own", "groups", "free"),
    [
        ("/", {"_": (3000, 1000, 0)}, 2000),  # as within a container
        ("/pod/job", {"pod_job": (3000, 1000, 400)}, 2400),
        ("/pod/job", {"pod_job": ("max", 1000, 0), "pod": (2500, 1000, 0)}, 1500),
        ("/pod/job", {"pod_job": (9000, 2000, 0), "pod": (8500, 2500, 0)}, 6000),
        ("/pod/job", {"pod_job": (20_000, 1000, 0), "other": (2000, 1000, 0)}, 8000),
        ("/pod/job", {"pod_job": ("max", 1000, 0)}, 8000),
        ("/of/the/host", {"_": (3000, 1000, 0)}, 2000),  # which a container does not see
        ("/pod/job", {}, 8000),
        (None, {}, 8000),
    ],
)
def test_limits_of_a_container(machine, own: str | None, groups: dict[str, tuple[int | str, int, int]], free: int):
    assert machine(own=own, **groups) == free


def test_where_nothing_says_what_is_free_there_is_one_process(machine):
    assert machine(available=None) == 0
    assert cores._count_processes(PIPE, 9) == 1
    assert machine(own="/", _=(3000, 3500, 0)) < 0
    assert cores._count_processes(PIPE, 9) == 1
