"""A server of `hier-models serve` as a process, and what one sends to it."""

import json
import os
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests import forks


@dataclass
class Running:
    """A server that runs."""

    process: forks.Fork
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self, **settings: Any) -> httpx.Client:
        # Without certificates, which take longer to load than most answers, and which nobody asks for.
        return httpx.Client(base_url=self.url, timeout=120, trust_env=False, verify=False, **settings)

    def ask(self, path: str = "/summarize", **asked: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=asked)

    def metric(self, name: str) -> float:
        with self.client() as client:
            text = client.get("/metrics").text
        return sum(
            float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        )

    def memory(self) -> int:
        """Bytes that the process holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def send_and_leave(self, body: bytes, path: str = "/summarize") -> None:
        """Send a whole request, and be gone before the answer comes."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(head(path, len(body)) + body)

    def send_whole(self, path: str, body: bytes) -> bytes:
        """Send a request to its end, and only then read, until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            connection.sendall(head(path, len(body)) + body)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def send_slowly(self, body: bytes, pause: float) -> bytes:
        """Send a request in ten pieces, and return all that the server sends until it closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            whole = head("/summarize", len(body)) + body
            step = len(whole) // 10 + 1
            for start in range(0, len(whole), step):
                connection.sendall(whole[start : start + step])
                if select.select([connection], [], [], pause)[0]:  # it does not wait for the rest
                    break
            received = b""
            while part := connection.recv(65536):
                received += part
            return received


def head(path: str, length: int) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {length}")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream."""
    found = re.findall(r"^event: (\w+)\ndata: (.*)$", text, re.MULTILINE)
    return [(name, json.loads(data)) for name, data in found]


@contextmanager
def serving(model: str, *options: str, port: int = 0, **env: str) -> Iterator[Running]:
    """Start a server, and end it if it still runs."""
    arguments = ["serve", "-m", model, "--port", str(port), "--device", "cpu", *options]
    process = forks.start(forks.COMMAND, *arguments, env={**os.environ, **env})
    try:
        end, log = time.monotonic() + 240, process.files[1]
        while not (found := re.search(r"on (http://127\.0\.0\.1:\d+) ", log.read_text() if log.exists() else "")):
            assert process.poll() is None, process.stderr
            assert time.monotonic() < end, process.stderr
            time.sleep(0.05)
        yield Running(process, found[1])
    finally:
        process.send_signal(9)
        process.wait()


class Visitors:
    """Threads that all do the same, each with its number; what one of them fails by is raised at the end."""

    def __init__(self, count: int, visit: Any) -> None:
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run, args=(visit, n), daemon=True) for n in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self, visit: Any, number: int) -> None:
        try:
            visit(number)
        except BaseException as error:
            self.errors.append(error)

    def finish(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        for thread in self.threads:
            thread.join(max(0, end - time.monotonic()))
        assert not any(thread.is_alive() for thread in self.threads), "something hangs"
        if self.errors:
            raise self.errors[0]
