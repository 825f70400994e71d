"""What pages and pictures have in common: templates without a network, texts that can be drawn, matplotlib."""

from __future__ import annotations

import html
import os
import re
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jinja2
from markupsafe import Markup


if TYPE_CHECKING:
    from matplotlib.figure import Figure


def printable(text: str, *, keep_spaces: bool = False) -> str:
    """Replace what has no picture, control characters and lone surrogates, one for one; join spaces unless kept."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = "".join(" " if unicodedata.category(char) == "Cc" and char not in "\n\t" else char for char in text)
    return text if keep_spaces else " ".join(text.split())


def _as_text(value: Any) -> Any:
    """Texts are never markup, however they look."""
    return value if isinstance(value, Markup) else Markup(html.escape(printable(str(value), keep_spaces=True)))


_FOLDER = Path(__file__).parent.parent  # books have a template of their own
_TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), finalize=_as_text, autoescape=True)
_TEMPLATES.filters["anchor"] = lambda name: re.sub(r"\W+", "-", name)
_TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}


def page(template: str, title: str, **fields: Any) -> str:
    """Fill in a page of HTML that needs nothing else: no network, no library, no server."""
    return _TEMPLATES.get_template(template).render(title=printable(title), **fields)


class Page:
    """What can be written as a page."""

    template: ClassVar[str]
    title: str

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write it as one page that needs nothing else: no network, no library, no server.

        Texts are data of the page, never markup.

        Args:
            path: The file to write.

        Returns:
            The path written.
        """
        Path(path).write_text(self.page(), encoding="utf-8")
        return Path(path)

    def page(self) -> str:
        """The page, without a file."""
        return page(self.template, **{"title": self.title, **self._fields()})

    def _repr_html_(self) -> str:
        """What a notebook shows of it: the page, in a frame that keeps its styles and scripts to itself."""
        frame = "width: 100%; height: 36rem; border: 0; resize: vertical; overflow: auto"
        title = html.escape(printable(self.title))
        return f'<iframe srcdoc="{html.escape(self.page())}" title="{title}" style="{frame}"></iframe>'

    def _fields(self) -> dict[str, Any]:
        """What the template asks for."""
        raise NotImplementedError


def require_matplotlib() -> None:
    """Refuse to draw a PNG without matplotlib, and say how to install it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "drawing a PNG needs matplotlib, which is not installed; install it with "
            'pip install "hier_models[plots]", or write an HTML page, which needs nothing'
        ) from error


def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: float = 150) -> Path:
    """Write a figure as a PNG."""
    with warnings.catch_warnings():
        # A character that no installed font has is drawn as a box; the page shows it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(path, dpi=dpi, format="png")
    return Path(path)


def counted(number: int, noun: str) -> str:
    """Say how many there are of something."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows of cells for a terminal: the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([f"{first:<{widths[0]}}", *cells]).rstrip())
    return "\n".join(lines)
