"""A process for each core: the same texts, also when a document, a process or the job comes to grief."""

import multiprocessing
import os
import signal
import sys
from types import SimpleNamespace

import pytest
import torch

from hier_models import cores
from hier_models.cli.errors import MistakeError
from hier_models.cores import count_processes, on_cores


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


def numbered(count: int):
    return ({"id": str(number)} for number in range(count))


def with_process(documents):
    for document in documents:
        yield document["id"], os.getpid(), torch.get_num_threads()


@pytest.mark.parametrize(("total", "batch_size"), [(1, 1), (2, 1), (50, 1), (50, 3), (50, 20)])
def test_all_are_done_in_their_order_by_several(total: int, batch_size: int):
    both = multiprocessing.get_context("fork").Barrier(min(2, total))
    waited: list[bool] = []  # in each process

    def work(documents):
        if not waited:
            both.wait(timeout=60)
        waited.append(True)
        yield from with_process(documents)

    done = list(on_cores(work, numbered(total), total=total, processes=2, batch_size=batch_size))
    assert [identifier for identifier, _, _ in done] == [str(number) for number in range(total)]
    assert {threads for _, _, threads in done} == {1}
    assert len({process for _, process, _ in done} - {os.getpid()}) == min(2, total)
    batches = [done[start : start + batch_size] for start in range(0, total, batch_size)]
    assert all(len({process for _, process, _ in batch}) == 1 for batch in batches)


@pytest.mark.parametrize("error", [ValueError("a bad one"), MistakeError("a bad one"), OSError("a bad one")])
def test_what_is_done_before_an_error_is_there(error: Exception):
    def work(documents):
        for document in documents:
            if document["id"] == "11":
                raise error
            yield document["id"]

    done = []
    with pytest.raises(type(error), match="a bad one"):
        done.extend(on_cores(work, numbered(30), total=30, processes=2))
    assert done == [str(number) for number in range(11)]


def test_a_document_that_cannot_be_read_comes_after_those_before_it():
    def documents():
        yield from numbered(11)
        raise FileNotFoundError("gone")

    done = []
    with pytest.raises(FileNotFoundError, match="gone"):
        done.extend(on_cores(with_process, documents(), total=30, processes=2))
    assert len(done) == 11


def test_a_killed_process_is_said():
    def work(documents):
        for document in documents:
            if document["id"] == "9":
                os.kill(os.getpid(), signal.SIGKILL)
            yield document["id"]

    with pytest.raises(RuntimeError, match="one of 2 processes was killed, most likely for lack of memory"):
        list(on_cores(work, numbered(30), total=30, processes=2))


def test_nothing_is_left_of_a_job_that_is_given_up():
    results = on_cores(with_process, numbered(1000), total=1000, processes=2)
    process = next(results)[1]
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_how_many(two_threads, monkeypatch: pytest.MonkeyPatch):
    model = SimpleNamespace(get_memory_footprint=lambda: 3 * 2**30)
    pipe = SimpleNamespace(device=torch.device("cpu"), model=model)
    monkeypatch.setattr(cores, "_free_memory", lambda: 2**40)
    assert [count_processes(pipe, documents) for documents in (1, 2, 9)] == [1, 2, 2]
    monkeypatch.setattr(cores, "_free_memory", lambda: 5 * 2**30)
    assert count_processes(pipe, 9) == 1
    model.get_memory_footprint = lambda: 1
    assert count_processes(pipe, 9) == 2
    pipe.device = torch.device("cuda")
    assert count_processes(pipe, 9) == 1
    assert count_processes(SimpleNamespace(), 9) == 1  # chooses sentences


def test_free_memory_is_some():
    assert 2**20 < cores._free_memory() < 2**50
