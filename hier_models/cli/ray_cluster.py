"""Jobs on a Ray cluster: `--ray`."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.record_readers import COMPRESSION_SUFFIXES, DATA_SUFFIXES
from ..journal import digest
from .documents import Documents
from .errors import MistakeError, check_parent, lacks_memory, local_path, mistakes, state


if TYPE_CHECKING:
    import ray.data


LOCK = "job.lock"


def check_folder(output: Path | None) -> None:
    """Refuse a place that is no folder of parts of a job."""
    endings = (*DATA_SUFFIXES, *COMPRESSION_SUFFIXES, ".txt")
    named_as_a_file = output is not None and output.suffix.lower() in endings
    if output is None or output.is_file() or (named_as_a_file and not output.is_dir()):
        raise MistakeError(f"--ray: --output must be a folder, for parts of the output, got {output}")
    check_parent(output, "--output")
    for file in output.iterdir() if output.is_dir() else ():
        if not file.match("part-*.jsonl") and file.name != LOCK:
            raise MistakeError(f"--output: {output} holds {file.name}, which is no part of such a job; give another")


@contextmanager
def cluster(address: str) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine, unless this process has."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns
    if not state.debug:
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    if address != "local":  # or Ray tries for a quarter of an hour where something else listens
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
        os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "10")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MistakeError('--ray needs Ray: pip install "hier_models[ray]"') from error
    where = f"--ray: no cluster at {address!r}; give local, auto, or HOST:PORT"
    if address not in ("local", "auto"):
        host, _, port = address.rpartition(":")
        with mistakes(where, OSError, ValueError, OverflowError):
            socket.create_connection((host, int(port)), timeout=10).close()
    if not state.debug:
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        # That nothing is free in the cluster is worth knowing.
        logging.getLogger("ray.data._internal.execution.resource_manager").setLevel(logging.WARNING)
    own: dict[str, Any] = {}
    if address == "local":  # nobody looks at it, and it tells nobody
        own["include_dashboard"] = False
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with mistakes(where, ConnectionError, ValueError):
        ray.init(address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR, **own)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # the job has one
    context.target_max_block_size = 2**20  # or the first documents wait until 128 MiB are read
    try:
        yield
    finally:
        try:
            # A thread that still asked the cluster for something would end this process, without a word.
            for thread in threading.enumerate():
                if thread.name.startswith(("StreamingExecutor", "ray-data-metadata")):
                    thread.join(timeout=60)
        finally:
            ray.shutdown()


def absolute(name: str) -> str:
    """Make a path one that is found in any folder; the id of a model on the Hub stays."""
    return str(local_path(name).absolute()) if local_path(name).exists() else name


def make_on_ray(
    documents: Documents,
    done: set[str],
    total: int,
    load: Callable[[], Any],
    batch_size: int | str,
    on_gpus: bool | None,
    settings: dict[str, Any],
) -> Generator[tuple[str, str, list[dict[str, Any]]], None, None]:
    """Yield the id, the digest and the results of each document, as they are done."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from ..pipelines.ray_data import count_workers, map_pipeline

    folder = Path.cwd()

    def read(_: Any) -> Iterator[dict[str, str]]:
        os.chdir(folder)  # paths are read, and said, as they were given
        for document in documents:
            if (identifier := document.pop("id")) not in done:
                yield {"id": identifier, "input": digest(document), "document": json.dumps(document)}

    # The files may be on this machine only. Small blocks: a stop loses what is being done.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    least = batch_size if isinstance(batch_size, int) else 1
    workers = max(count_workers(True) if on_gpus is not False else 0, count_workers(False))
    rows = ray.data.from_items([0]).flat_map(
        read, num_cpus=0, ray_remote_args_fn=lambda: {"scheduling_strategy": here}
    )
    rows = rows.repartition(target_num_rows_per_block=max(least, min(16, total // (4 * workers))))
    with mistakes("--ray", ValueError):
        results: Any = map_pipeline(rows, load, batch_size=batch_size, on_gpus=on_gpus, **settings)
    with _readable_errors(), closing(_rows(results)) as made:
        for row in made:
            yield row["id"], row["input"], json.loads(row["results"])


def _rows(dataset: ray.data.Dataset) -> Generator[dict[str, Any], None, None]:
    """Yield the rows as they are done, in this thread: those of `iter_rows` outlive a loop that ends early."""
    import ray

    for bundle in dataset.iter_internal_ref_bundles():
        for block in ray.get(bundle.block_refs):
            yield from block.to_pylist()


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Say what went wrong in another process, without the way it took through Ray."""
    from ray.exceptions import OutOfMemoryError, RayActorError, RayError

    try:
        yield
    except RayError as error:
        # The last line of the first traceback; the others are Ray's.
        *_, line = str(error).split("\n\nThe above exception")[0].strip().splitlines()
        kind, _, text = line.partition(": ")
        if kind.endswith(MistakeError.__name__):
            raise MistakeError(f"--ray: on a machine of the cluster: {text}") from error
        died = isinstance(error, RayActorError) and not error.actor_init_failed
        killed = died or isinstance(error, OutOfMemoryError)
        if not killed and not lacks_memory(line):
            raise RuntimeError(f"on a machine of the cluster: {line}") from error
        raise RuntimeError(
            f"a process with a model {'was killed again and again' if killed else f'failed ({line})'}, most likely "
            "for lack of memory: there is one for each CPU, or GPU, of the cluster. Give Ray fewer CPUs (ray start "
            "--num-cpus N), or take --dtype bfloat16 or a smaller --batch-size"
        ) from error
