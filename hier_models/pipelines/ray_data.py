"""Pipelines over the machines of a Ray cluster, each model held by an actor."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ..data.record_readers import KINDS


if TYPE_CHECKING:
    import pyarrow
    import ray.data

TRIES = 5  # how often a process that died is started again, and a document that it had is tried again


def map_pipeline(
    dataset: ray.data.Dataset,
    load: Callable[[], Any],
    *,
    batch_size: int | str = 1,
    on_gpus: bool | None = None,
    **settings: Any,
) -> ray.data.Dataset:
    """Run a pipeline over a dataset: an actor with the model on each GPU of the cluster or, without, on each CPU.

    ```python
    papers = ray.data.read_json("papers/", lines=True)
    summaries = map_pipeline(papers, partial(pipeline, "summarization", model="/shared/my-model"))
    summaries.write_json("out/")
    ```

    Args:
        dataset: Rows with a column `text`, `sentences`, `turns` or `documents`, or with `document`, which is
            a document of any such kind as JSON. Other columns are kept.
        load: Makes the pipeline, in each actor; its model must be found on every machine.
        batch_size: Documents at a time in one actor, or "auto".
        on_gpus: Whether each actor takes a GPU. By default, if the cluster has any.
        **settings: Arguments of the pipeline's call.

    Returns:
        The rows, lazily, with the column `results` in the place of the document: as JSON, the list that the pipeline
        returns for it. A document whose machine is lost is done again on another, and comes out once. An actor that
        dies again and again, such as of too little memory, ends the work with `ray.exceptions.ActorDiedError`.

    Raises:
        ValueError: If the cluster has one CPU only, and no GPU.
    """
    import ray

    if on_gpus is None:
        on_gpus = count_workers(True) > 0
    if not on_gpus and count_workers(False) < 2:  # Ray would wait for a CPU without end
        raise ValueError(
            "the cluster has one CPU, which the process with the model takes, and Ray needs another to hand it "
            "documents: add a machine, start Ray with `--num-cpus 2`, or do without it."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the last two arguments, which Ray 2.64 will not have
        return dataset.map_batches(
            _Worker,
            fn_constructor_args=(load, batch_size, settings),
            batch_format="pyarrow",
            batch_size=cast(Any, batch_size),  # with GPUs Ray refuses None, and it knows "auto", too
            num_cpus=0 if on_gpus else 1,
            num_gpus=1 if on_gpus else None,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=max(count_workers(on_gpus), 1)),
            max_restarts=TRIES,
            max_task_retries=TRIES,
        )


def count_workers(on_gpus: bool) -> int:
    """Count the GPUs or the CPUs of the cluster."""
    import ray

    return int(ray.cluster_resources().get("GPU" if on_gpus else "CPU", 0))


class _Worker:
    """Holds a pipeline, in a process of its own."""

    def __init__(self, load: Callable[[], Any], batch_size: int | str, settings: dict[str, Any]) -> None:
        self.pipe, self.batch_size, self.settings = load(), batch_size, settings

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        import pyarrow

        rows = table.to_pylist()
        documents = [
            json.loads(row.pop("document"))
            if "document" in row
            else {kind: value for kind in KINDS if (value := row.pop(kind, None)) is not None}
            for row in rows
        ]
        results = self.pipe(iter(documents), batch_size=self.batch_size, **self.settings)
        return pyarrow.Table.from_pylist(
            [{**row, "results": json.dumps(result)} for row, result in zip(rows, results, strict=True)]
        )
