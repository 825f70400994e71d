"""Processes for tests, without the seconds that each of them would need to import torch and Transformers.

A server, one for each pytest process and set of libraries, imports the libraries and does nothing else; a process is a
fork of it. So it has nothing of what the tests before it did, and its own environment, folder and output.
"""

import atexit
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn


# What is imported before a process begins.
LIBRARIES = {
    # Nothing of Hugging Face, whose libraries read the environment when they are imported.
    "torch": "import torch, torch._dynamo, pandas, pyarrow.dataset, scipy.optimize, scipy.stats, sklearn.metrics",
    "hier_models": (
        "import hier_models.hub, hier_models.training, hier_models.pipelines\n"
        "from transformers import AutoModelForSeq2SeqLM, AutoProcessor, Seq2SeqTrainer, pipeline\n"
        "from transformers.models.bart import modeling_bart\n"
        "for name in hier_models.__all__: getattr(hier_models, name)"
    ),
}
# Transformers as it is imported where there is no hub and, of Hugging Face's libraries, no cache.
LIBRARIES["offline"] = f"""
import os, warnings
warnings.simplefilter("error", FutureWarning)
for name in [name for name in os.environ if name.startswith("HF_")]:
    del os.environ[name]
os.environ |= {{"HF_HUB_OFFLINE": "1", "HF_HOME": os.devnull}}
{LIBRARIES["torch"]}
import transformers.models.auto.modeling_auto, transformers.modeling_layers, transformers.pipelines
from transformers import AutoProcessor, GenerationMixin, PreTrainedTokenizerFast, ProcessorMixin
"""

# The code of the command `hier-models`.
COMMAND = "from hier_models.cli import main\nmain()"
# The code that runs a script; its path is the first argument.
SCRIPT = """
import os, runpy, sys
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Fork:
    """A process, as one of `subprocess`; its parent is the server."""

    def __init__(self, server: "Server", request: dict[str, Any]) -> None:
        self.server = server
        self.files = [Path(request[name]) for name in ("stdout", "stderr")]
        self.pid: int = server.ask(request)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.server.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float = 240) -> int:
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                os.kill(self.pid, 9)
                raise TimeoutError(f"still running after {timeout} s; its errors: {self.stderr[-4000:]}")
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def completed(self, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        """Wait for the end, and return what `subprocess.run` would."""
        return subprocess.CompletedProcess([], self.wait(timeout), self.stdout, self.stderr)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    @property
    def stdout(self) -> str:
        return self.files[0].read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        return self.files[1].read_text(encoding="utf-8", errors="replace")


class Server:
    """The client's end of a server."""

    def __init__(self, libraries: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, LIBRARIES[libraries]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # So that a process of one server has other hashes than one of another.
            env={**os.environ, "PYTHONHASHSEED": str(1 + list(LIBRARIES).index(libraries))},
        )
        self.folder = tempfile.TemporaryDirectory(prefix="forks-")
        self.count = 0
        atexit.register(self.stop)

    def ask(self, request: dict[str, Any]) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, request: dict[str, Any]) -> Fork:
        self.count += 1
        outputs = {name: f"{self.folder.name}/{self.count}.{name}" for name in ("stdout", "stderr")}
        return Fork(self, {**request, **outputs})

    def stop(self) -> None:
        # To close the pipe would not do: a process that the tests forked may hold it too.
        self.process.communicate("null\n")
        self.folder.cleanup()


_servers: dict[str, Server] = {}


def start(
    code: str,
    *arguments: str,
    env: dict[str, str] | None = None,
    cwd: str | Path | None = None,
    libraries: str = "hier_models",
) -> Fork:
    """Start a process that runs code, with arguments in `sys.argv[1:]`, as `python -c` does.

    With the libraries "torch" it may set variables that Hugging Face's libraries read when they are imported.
    """
    if libraries not in _servers:
        _servers[libraries] = Server(libraries)
    environment = dict(os.environ) if env is None else env
    request = {"code": code, "argv": ["-c", *arguments], "env": environment, "cwd": str(cwd or Path.cwd())}
    return _servers[libraries].start(request)


def run(code: str, *arguments: str, timeout: float = 240, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run code in a process, to its end."""
    return start(code, *arguments, **settings).completed(timeout)


def serve() -> dict[str, Any]:
    """Answer requests; return in each of the processes, with what it is to do."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else may be printed there
    for line in sys.stdin:
        request = json.loads(line)
        if request is None:
            break
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if not answer:
                answers.close()
                return request
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Take the place, the environment and the output of a new process."""
    for number, name in enumerate((os.devnull, request["stdout"], request["stderr"])):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    sys.path[0] = ""


def execute(code: str) -> NoReturn:
    """Run code as a program, in a module without the names of this one."""
    program = sys.modules["__main__"] = type(sys)("__main__")
    status: Any = 0
    try:
        exec(compile(code, "<code>", "exec"), vars(program))
    except SystemExit as end:
        status = end.code or 0
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # to clear away all modules would take seconds


if __name__ == "__main__":
    exec(sys.argv[1], {})
    gc.collect()
    gc.freeze()  # what is not looked at again stays shared
    asked = serve()
    become(asked)
    execute(asked["code"])
