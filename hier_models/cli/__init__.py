"""The `hier-models` command, a file for each of summarize, translate, train, evaluate, inspect and so on.

Exit codes: 0 done, 1 something failed, 2 a mistake in the command or in what it was given, 75 not
finished when its time was up (`stop_after_minutes`), 130 interrupted.

torch and transformers are imported by the commands when they run, so that `hier-models --help` answers at once.
"""

# Each adds its command, in this order.
from . import summarize, translate, train, evaluate, inspect, analyze, judge, phrases, poem, export, serve  # noqa: F401, I001
from .options import app


__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app()
