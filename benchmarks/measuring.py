"""What the benchmarks share: time and memory taken alike for a model and its peers, the table of it, and papers."""

import gc
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from tqdm import tqdm


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Run = Callable[[], object]
Name = TypeVar("Name")  # what a case is called


class Cost(NamedTuple):
    """Seconds of a run."""

    processor: float  # of the user and of the system, all threads: other processes do not count
    clock: float


def training_step(model: torch.nn.Module, batch: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Run:
    """Make one step of training, in mixed precision unless the dtype is float32."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-5, fused=True)

    def step() -> None:
        with torch.autocast(DEVICE, dtype=dtype, enabled=dtype != torch.float32):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def cost(run: Run) -> Cost:
    """Time one run."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    begun, start = time.process_time(), time.perf_counter()
    run()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return Cost(time.process_time() - begun, time.perf_counter() - start)


def seconds(run: Run) -> float:
    """Time one run by the clock."""
    return cost(run).clock


def rounds(runs: Mapping[Name, Callable[[], Cost]], repeats: int) -> dict[Name, np.ndarray]:
    """What the runs cost, (repeats, 2), taken in turn, so that a slow minute hurts all."""
    taken: dict[Name, list[Cost]] = {name: [] for name in runs}
    for name in tqdm([*runs] * repeats, disable=None, leave=False):
        taken[name].append(runs[name]())
    return {name: np.array(costs) for name, costs in taken.items()}


def medians(runs: dict[Name, Run], repeats: int) -> dict[Name, float]:
    """Median seconds of runs in turn, after one of each to warm up. Forgets the runs."""
    for run in runs.values():
        run()
    taken = rounds({name: partial(cost, run) for name, run in runs.items()}, repeats)
    runs.clear()
    gc.collect()
    return {name: float(np.median(costs[:, 1])) for name, costs in taken.items()}


def spread(values: Sequence[float] | np.ndarray, digits: int) -> str:
    """Median, and in brackets the least and the most."""
    median, least, most = (f"{value:.{digits}f}" for value in (np.median(values), min(values), max(values)))
    return median if len(values) == 1 else f"{median} ({least} to {most})"


_prepared: list[Run] = []  # what this process measures


def prepare(make: Callable[..., Run], *arguments: object) -> float:
    """Make a run and take it once, in a process of its own: peak bytes of it, less what there was when it was made."""
    run = make(*arguments)
    peak = peak_of(run)
    _prepared.append(run)
    return peak


def peak_of(run: Run) -> float:
    """Peak bytes of a run, less what there was before."""
    if DEVICE == "cuda":
        run()  # what is made once, such as a library's workspace, is no part of it
    before = peak_so_far(reset=True)
    run()
    return peak_so_far() - before


def together(workers: Sequence[ProcessPoolExecutor]) -> Cost:
    """Run at once what processes have prepared: the processor's seconds of all, the clock's of the slowest."""
    asked = [worker.submit(_run_prepared) for worker in workers]
    costs = [future.result() for future in asked]
    return Cost(sum(found.processor for found in costs), max(found.clock for found in costs))


def _run_prepared() -> Cost:
    return cost(_prepared[0])


def peak_of_training(make_step: Callable[[], Run]) -> int:
    """Peak bytes of two training steps, less what there was before the model; call it in a fresh process."""
    before = peak_so_far()
    step = make_step()
    step()
    step()
    return peak_so_far() - before


def peak_in_fresh_process(script: str, name: str, dtype: torch.dtype) -> float:
    """GiB that `script --peak-of name` prints in bytes."""
    command = [sys.executable, script, "--peak-of", name, "--dtypes", dtype_name(dtype)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 2**30


def peak_so_far(reset: bool = False) -> int:
    """Peak bytes of this process; with `reset`, what it holds now, which the peak is counted from then on.

    On a GPU, of the tensors there.
    """
    if DEVICE == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() if reset else torch.cuda.max_memory_allocated()
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    # Not ru_maxrss: on Linux a process inherits that of the one that started it.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def cost_of_command(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of the processor, and of the clock, of a process, from its start to its end."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    taken, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, taken


def dtype_name(dtype: torch.dtype) -> str:
    """As on the command line: bfloat16."""
    return str(dtype).removeprefix("torch.")


def machine() -> str:
    """What it was measured on."""
    if DEVICE == "cuda":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()  # older torch lacks it
    amx = "with AMX" if capabilities.get("amx_bf16") else "without AMX"
    return f"{torch.get_num_threads()} threads of {platform.machine()} {amx}, torch {torch.__version__}"


def papers(count: int) -> list[dict[str, Any]]:
    """Papers of the package aclsum at equal distances, from the first; all, where it has fewer."""
    found = sorted(files("aclsum").joinpath("dataset", "paper_jsons").iterdir(), key=lambda file: file.name)
    chosen = found[:: max(1, len(found) // count)][:count]
    return [json.loads(file.read_text(encoding="utf-8")) for file in chosen]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out in Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *rows])


def update(card: Path, setting: str, header: Sequence[str], rows: Sequence[Sequence[str]], keys: int = 2) -> None:
    """Put rows into the table between a card's benchmark marks; rows and cells ("–") not measured now stay.

    The first `keys` cells of a row tell it from others. Where the old table has another header, nothing of it stays.
    """
    head, old, tail = benchmark_of(card, setting)
    lines = [line for line in old.splitlines() if line.startswith("| ")]
    known = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    before = {tuple(cells[:keys]): cells for cells in known[2:] if known[0] == list(header)}
    measured = [
        [
            last if cell == "–" else cell
            for cell, last in zip(cells, before.pop(tuple(cells[:keys]), cells), strict=True)
        ]
        for cells in rows
    ]
    card.write_text(f"{head}\n{setting}\n\n{table(header, [*before.values(), *measured])}\n{tail}")


def publish(
    card: Path | None, setting: str, header: Sequence[str], measure: Callable[[], list[list[str]]], keys: int = 2
) -> None:
    """Measure, print the table, and put it into a card, if there is one; that it can take it is seen before."""
    if card is not None:
        benchmark_of(card, setting)
    rows = measure()
    print(f"{setting}\n\n{table(header, rows)}")
    if card is not None:
        update(card, setting, header, rows, keys)


def benchmark_of(card: Path, setting: str) -> tuple[str, str, str]:
    """What a card has up to its benchmark, in it and behind it.

    A table of another setting or machine is left alone: rows of two would stand under the name of one.
    """
    begin, end = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"
    content = card.read_text()
    if begin not in content or end not in content:
        sys.exit(f"{card} has no marks {begin} and {end}")
    head, (old, tail) = content.split(begin)[0], content.split(begin)[1].split(end)
    measured_on = old.strip().partition("\n")[0]
    if measured_on not in ("", setting):
        sys.exit(
            f"{card} has a table of another setting or machine: {measured_on}\nEmpty it, and measure all its rows."
        )
    return head + begin, old, end + tail
