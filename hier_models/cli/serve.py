"""`hier-models serve`."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checkpoints import MINI_NAME
from . import options
from .errors import MistakeError, mistakes, say, state
from .extractive import is_extractive
from .loading import load_pipeline
from .options import Dtype, command


@command("serve")
def serve(
    model: options.Model = MINI_NAME,
    host: Annotated[str, typer.Option(metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N")] = 8000,
    batch_size: options.BatchSize = 8,
    batch_wait: Annotated[float, typer.Option(min=0, metavar="MS")] = 10,
    queue: Annotated[int, typer.Option(min=1, metavar="N")] = 64,
    timeout: Annotated[float, typer.Option(min=1, metavar="S")] = 120,
    max_bytes: Annotated[int, typer.Option(min=1, metavar="N")] = 2**23,
    importance_tagger: options.OtherModel = None,
    device: options.Name = None,
    dtype: options.NumberFormat = Dtype.auto,
) -> None:
    """Serve summaries over HTTP."""
    try:
        import uvicorn

        from ..serving.server import TOKEN_VARIABLE, Limits, create_app, token_of_server
    except ImportError as error:
        raise MistakeError(f'{error.name} is missing: pip install "hier_models[serve]"') from error
    if is_extractive(model):
        raise MistakeError(f"--model: {model!r} chooses sentences, without a model; serve needs one")
    # A TypeError is of a host that is no name.
    with mistakes(f"--host {host} --port {port} (0 takes a free one)", OSError, TypeError):
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    pipe = load_pipeline(model, device, dtype, importance_tagger=importance_tagger)
    address, port = listener.getsockname()[:2]
    local = address in ("127.0.0.1", "::1")
    limits = Limits(batch_size, batch_wait, queue, timeout, max_bytes)
    # Where a folder lies is nobody's business outside.
    app = create_app(pipe, Path(model).resolve().name if Path(model).is_dir() else model, limits, local)
    level = "info" if state.debug else "warning"
    config = uvicorn.Config(
        app, log_level=level, access_log=state.debug, server_header=False, timeout_graceful_shutdown=10
    )

    class Server(uvicorn.Server):
        """Says where it is, finishes what waits before it stops, and refuses what is new."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not local and not token_of_server():
                say(f"Everybody who can reach {address} can use it; a token in {TOKEN_VARIABLE} keeps others out.")
            where = f"[{address}]" if ":" in address else address
            say(f"Serving {model} on http://{where}:{port} (Ctrl-C stops it)")

        def handle_exit(self, sig: int, frame: Any) -> None:
            if app.state.batcher.stopping:  # asked twice
                self.force_exit = self.should_exit = True
                return
            app.state.batcher.stopping = True
            threading.Thread(target=self.finish, daemon=True).start()

        def finish(self) -> None:
            say("Stopping when what waits is done; Ctrl-C stops at once.")
            app.state.batcher.finish(timeout)
            self.should_exit = True

    Server(config).run(sockets=[listener])
