"""What a run costs (time, memory), on what it ran, and a limit of its time."""

import contextlib
import functools
import hashlib
import math
import os
import platform
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.utils.import_utils import is_torch_bf16_gpu_available

from ..data.cache_fingerprint import source_version
from ..data.data_files import visible_files
from ..data.record_readers import DATA_SUFFIXES, DOCUMENT_SUFFIXES, data_suffix
from ..models.attention_products import multiplies_bfloat16
from ..models.phrase_finder import KEY_PHRASES_FILE
from ..pipelines.int8_hier import hand_back_memory
from .arguments import Recipe, RecipeError


PARTS = ("train", "validation", "test")
FILES = {
    "data": (*PARTS, "fillers", "importance_tagger", "key_phrases", "stopwords"),
    "model": ("checkpoint", "word_vectors"),
}

# Which memory is measured: on CUDA the most that tensors took, on the fullest device of the first process; else the
# process' resident memory at its highest since training began, or in all, where that cannot be counted (not Linux).
CUDA, RESIDENT, PROCESS = "CUDA", "resident", "process"


class TimeUpError(Exception):
    """A run that was stopped at a checkpoint because its time was up; the same call goes on."""


class RunCosts(TrainerCallback, ExportableState):
    """Measures a run over all its sittings: each checkpoint knows what it took to get there."""

    def __init__(self, arguments: TrainingArguments) -> None:
        self._arguments = arguments
        self._earlier: dict[str, Any] = {}
        self._begun: float | None = None
        self._seconds, self._sittings = 0.0, 0
        if arguments.device.type == "cuda":
            for number in _devices(arguments):
                torch.cuda.reset_peak_memory_stats(number)
            self.memory_of = CUDA
        else:
            self.memory_of = RESIDENT if _forget_peak() else PROCESS
        self._peak = 0

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        saved: Any = state.stateful_callbacks or {}
        if type(self).__name__ in saved:
            self._earlier = saved[type(self).__name__]["attributes"]
        self._begun, self._sittings = time.monotonic(), 1

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Stop the clock: what comes after training is not counted."""
        self._measure()
        self._begun = None

    def state(self) -> dict[str, Any]:
        self._measure()
        return {"args": {}, "attributes": self.as_dict()}

    def as_dict(self) -> dict[str, Any]:
        """The costs so far, for a results file."""
        return {
            "training_seconds": self._earlier.get("training_seconds", 0.0) + self._seconds,
            "peak_memory": max(self._earlier.get("peak_memory", 0), self._peak),
            "sittings": self._earlier.get("sittings", 0) + self._sittings,
            "memory_of": self.memory_of,
        }

    def _measure(self) -> None:
        if self._begun is None:
            return
        self._seconds = time.monotonic() - self._begun
        if self.memory_of == CUDA:
            found = max(torch.cuda.max_memory_allocated(number) for number in _devices(self._arguments))
        else:
            found = _resident_peak() if self.memory_of == RESIDENT else _process_peak()
        self._peak = max(self._peak, found)


def _devices(arguments: TrainingArguments) -> list[int]:
    first = arguments.device.index or 0
    return list(range(first, first + max(1, arguments.n_gpu)))


def _forget_peak() -> bool:
    """Begin the count of the highest resident memory anew; False where that cannot be."""
    hand_back_memory()  # what is free is not this run's
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return _resident_peak() > 0
    except OSError:
        return False


def _resident_peak() -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def _process_peak() -> int:
    try:
        import resource
    except ImportError:  # there is none on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else 1024 * peak)


class DivergedError(RecipeError):
    """A run whose loss is no finite number any more."""


class StopDiverged(TrainerCallback):
    """Ends a run that has diverged where that is logged, so that no checkpoint is saved of it."""

    def __init__(self) -> None:
        self._sound = 0

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._sound = state.global_step

    def on_log(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        loss = kwargs["logs"].get("loss", kwargs["logs"].get("train_loss"))
        if loss is None:
            return
        if not math.isfinite(loss):
            steps = f"step {state.global_step} of {state.max_steps}, and was a number until step {self._sound}"
            remedy = "a lower learning_rate or max_grad_norm, or without bf16 and fp16"
            raise DivergedError(f"training: the loss is {loss} at {steps}; begin anew (run: overwrite) with {remedy}")
        self._sound = state.global_step


class LogAtCheckpoints(TrainerCallback):
    """Logs the loss before each checkpoint, which does not know the losses since the last entry of the log."""

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        control.should_log = control.should_log or control.should_save

    on_epoch_end = on_step_end


class TimeLimit(TrainerCallback):
    """Stops all processes at a checkpoint once the time is up, after a step whose loss is logged anyway."""

    def __init__(self, deadline: float) -> None:
        self.deadline, self.stopped = deadline, False

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if args.logging_strategy == "steps" and not control.should_log:
            return
        if is_up(self.deadline, args):
            control.should_save = control.should_training_stop = self.stopped = True

    def on_epoch_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self.stopped and state.epoch % 1:  # in its middle: what is to be done at its end is not yet
            control.should_evaluate = control.should_save = control.should_log = False
        elif self.stopped and control.should_evaluate:  # the checkpoint of its last step does not know of that
            control.should_save = True


def is_up(deadline: float, arguments: TrainingArguments) -> bool:
    """Tell whether the time is up, in one process and so in all."""
    up = time.monotonic() >= deadline
    if arguments.world_size == 1:
        return up
    flag = torch.tensor(float(up), device=arguments.device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


@functools.cache
def has_fast_bfloat16(use_cpu: bool = False) -> bool:
    """Tell whether this machine computes in bfloat16 faster than in float32.

    Args:
        use_cpu: Do not look for an accelerator.

    Returns:
        True for an accelerator with bfloat16 of its own, and for a CPU that multiplies it (AVX512-BF16, AMX, ARM's).
    """
    if not use_cpu and torch.accelerator.is_available():
        if torch.cuda.is_available():
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        return bool(is_torch_bf16_gpu_available())
    return multiplies_bfloat16()


def machine(arguments: TrainingArguments) -> dict[str, Any]:
    """Say on what a run computes."""
    if arguments.device.type == "cuda":
        device = torch.cuda.get_device_name(arguments.device)
        device = f"{arguments.n_gpu} x {device}" if arguments.n_gpu > 1 else device
    elif arguments.device.type == "cpu":
        device = f"CPU ({_cpu_name()}), {torch.get_num_threads()} threads"
    else:
        device = arguments.device.type
    precision = "bfloat16" if arguments.bf16 else "float16" if arguments.fp16 else "float32"
    return {"device": device, "processes": arguments.world_size, "precision": precision}


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def data_version(recipe: Recipe) -> dict[str, str]:
    """Say what is in the files that a recipe begins with, since files of the same names may be others later."""
    found = {
        name: _digest_of([file for source in sources for file in _files_of(name, source)])
        for name, (_, sources) in named_sources(recipe).items()
    }
    return {name: digest for name, digest in found.items() if digest}


def named_sources(recipe: Recipe) -> dict[str, tuple[str, list[str]]]:
    """Say what of a recipe names files or folders, here or on the Hub, that decide what a run learns or scores."""
    named = {
        name: (section, [source] if (source := getattr(getattr(recipe, section), name)) else [])
        for section, names in FILES.items()
        for name in names
    }
    return {**named, "also_train": (recipe.run.task, getattr(recipe.options, "also_train", None) or [])}


def _files_of(name: str, source: str) -> list[Path]:
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    if name in (*PARTS, "also_train"):
        return [file for file in visible_files(path) if data_suffix(file) in (*DATA_SUFFIXES, *DOCUMENT_SUFFIXES)]
    return sorted(path.glob(KEY_PHRASES_FILE if name == "key_phrases" else "*.safetensors"))


def _digest_of(files: list[Path]) -> str:
    digests = [_digest(file, file.stat().st_mtime_ns) for file in files]
    if any(file.suffix != ".safetensors" for file in files) and len(files) > 1:  # one for a folder of documents
        return hashlib.sha256("".join(digests).encode()).hexdigest()[:12]
    return "".join(digests)


@functools.cache
def _digest(path: Path, modified: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:12]


@functools.cache
def code_version() -> dict[str, Any]:
    """Say which code ran."""
    folder = Path(__file__).parent.parent
    found: dict[str, Any] = {"hier_models": version("hier_models"), "source": source_version()}
    try:
        # An installed package may lie inside of somebody else's repository.
        _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return found
    return {**found, "commit": commit + ("+" if changed else "")}


def _git(folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder / "training"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30, env=environment)
    return done.stdout.strip()
