"""The heatmap of hierarchical attention, as a PNG and as a page, of weights that `capture.py` gets from a model."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from .pages import Page, counted, printable, require_matplotlib, save_figure


if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = npt.NDArray[np.float32]

# Light to dark on white paper, and dark to light on a dark screen: zero is the background in both.
LIGHT_RAMP = ("#ffffff", "#e3f0ea", "#a9d8d0", "#5cb4c4", "#2c82b5", "#33509b", "#3a2670", "#26103f")
DARK_RAMP = ("#14171f", "#1d2a4a", "#27467c", "#2a6ea3", "#35989f", "#6bc192", "#bfe28c", "#fdf8bd")
COLOR_POWER = 0.5  # most of 16 shares of one are far below one; the square root spreads the small ones over the colors

# Inches from one label to the next.
SENTENCE_ROOM = 0.115
TOKEN_ROOM = 0.12
DPI, MOST_DPI = 150, 400  # cells that are narrower than a pixel at the highest resolution are merged
PAGE_SCALE = 10_000  # the page keeps weights as whole ten-thousandths


def top_sentences(weights: npt.ArrayLike, top_k: int = 16) -> FloatArray:
    """Aggregate the heads of one layer's hierarchical attention as the paper's heatmaps do.

    The paper writes: "we aggregate across the attentions heads by choosing only the 16 BOS tokens with the highest
    weight for each generated token. We normalize the distribution such that the weights sum to 1." Where that leaves
    a choice, it is made so:

    - The weight of a BOS token for a generated token is its highest weight in any head (the maximum, not the sum or
      the mean: a sentence that a single head looks at hard is kept).
    - The `top_k` are chosen among these maxima, so that a BOS token counts once however many heads look at it. Of
      equal weights, the earlier sentence is kept.
    - A document with no more than `top_k` sentences keeps them all; its weights are normalized all the same.
    - A generated token that looks at nothing (all weights zero) keeps a row of zeros.

    Args:
        weights: The attention of one layer, (heads, target, sentences), in [0, 1].
        top_k: How many sentences each generated token keeps.

    Returns:
        (sentences, target): at most `top_k` nonzero entries in each column, and each column sums to 1.

    Raises:
        ValueError: If `weights` has not three axes, or `top_k` is below 1.

    Source: HAT-BART, section 6 and Figures 2 to 4.
    """
    array = np.asarray(weights, dtype=np.float32)
    if array.ndim != 3:
        raise ValueError(f"weights: got shape {array.shape}; expected three axes, (heads, target, sentences)")
    if top_k < 1:
        raise ValueError(f"top_k: got {top_k}; at least 1 sentence must be kept")
    highest = array.max(axis=0)  # (target, sentences)
    if highest.shape[1] > top_k:
        # A stable sort of the negated weights puts the earlier of equals first.
        dropped = np.argsort(-highest, axis=1, kind="stable")[:, top_k:]
        np.put_along_axis(highest, dropped, 0.0, axis=1)
    total = highest.sum(axis=1, keepdims=True)
    shares: FloatArray = np.divide(highest, total, out=np.zeros_like(highest), where=total > 0).T
    return shares


@dataclass
class HierarchicalAttentionMap(Page):
    """Where each token of a summary looked in its document, layer by layer.

    On its page, the pointer or the arrow keys show the whole sentence, the token and the weight of a cell.

    Args:
        weights: (decoder_layers, sentences, target), each column of each layer summing to 1 (see `top_sentences`).
        sentences: The sentences (or turns, or segments) of the document in order, whole.
        tokens: The text of each token of the summary, one for each column; joined they give the summary with its
            special tokens.
        summary: The summary as text.
        top_k: How many sentences each token kept; None for all, of a model without decoder layers of heads, whose only
            attention over sentences `weights` are.
        num_truncated_tokens: How many tokens of the document were cut away before the model saw it.
        unit: What a row stands for, in the singular ("sentence", "turn", "segment").
        title: The heading of the pictures.
        num_omitted_tokens: How many tokens were left out of the document, where the model reads what says the most.

    Raises:
        ValueError: If the lengths of `sentences` and `tokens` do not fit the shape of `weights`.
    """

    template: ClassVar[str] = "inspection/heatmap.html"

    weights: FloatArray
    sentences: list[str]
    tokens: list[str]
    summary: str = ""
    top_k: int | None = 16
    num_truncated_tokens: int = 0
    unit: str = "sentence"
    title: str = "Hierarchical attention"
    num_omitted_tokens: int = 0

    def __post_init__(self) -> None:
        self.weights = np.asarray(self.weights, dtype=np.float32)
        shape = self.weights.shape
        if self.weights.ndim != 3 or 0 in shape:
            raise ValueError(f"weights: got shape {shape}; (decoder_layers, sentences, target), none of them empty")
        if shape[1:] != (len(self.sentences), len(self.tokens)):
            there = f"{len(self.sentences)} sentences and {len(self.tokens)} tokens"
            raise ValueError(f"weights: got shape {shape}; it must be that of {there}")

    def save_png(self, path: str | os.PathLike[str]) -> Path:
        """Draw the heatmaps of the layers side by side, as in Figures 2 to 4 of the paper.

        Args:
            path: The file to write. Large maps have more pixels per inch, so that no cell is thinner than a pixel.

        Returns:
            The path written.

        Raises:
            ImportError: If matplotlib is not installed.

        Source: HAT-BART, section 6 and Figures 2 to 4.
        """
        require_matplotlib()
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LinearSegmentedColormap, PowerNorm
        from matplotlib.figure import Figure

        num_layers, num_sentences, num_tokens = self.weights.shape
        columns = 2 if num_layers == 4 else min(num_layers, 3)  # 4 x 3 for the paper's model
        rows = math.ceil(num_layers / columns)
        # Inches. A lone panel may be large; the panels of a grid share a page.
        widest = 10.0 if columns == 1 else 14.0 / columns
        tallest = 9.0 if rows == 1 else 4.6 if rows == 2 else 3.6
        panel_width = min(max(num_tokens * 0.13, 2.6), widest)
        panel_height = min(max(num_sentences * 0.15, 1.5), tallest)
        labels_width, gap, top, bar = 3.1, 0.32, 0.95, 0.95
        tokens_height = 0.75 if num_tokens <= int(panel_width / TOKEN_ROOM) else 0.3
        width = labels_width + columns * panel_width + (columns - 1) * gap + bar
        height = top + rows * (panel_height + gap) + tokens_height
        densest = max(num_sentences / panel_height, num_tokens / panel_width)  # cells per inch
        dpi = max(DPI, math.ceil(min(densest, MOST_DPI)))

        figure = Figure(figsize=(width, height), facecolor="white")
        look: dict[str, Any] = {
            "cmap": LinearSegmentedColormap.from_list("hierarchical_attention", LIGHT_RAMP),
            "norm": PowerNorm(COLOR_POWER, vmin=0.0, vmax=float(self.weights.max()) or 1.0),
        }
        extent = (-0.5, num_tokens - 0.5, num_sentences - 0.5, -0.5)
        ticks: dict[str, Any] = {"length": 2, "width": 0.6, "color": "#b8b8c0", "labelcolor": "#333333"}
        for layer, weights in enumerate(self.weights):
            row, column = divmod(layer, columns)
            left = labels_width + column * (panel_width + gap)
            bottom = height - top - row * (panel_height + gap) - panel_height
            axes = figure.add_axes((left / width, bottom / height, panel_width / width, panel_height / height))
            cells = _fit(weights, (int(panel_height * dpi), int(panel_width * dpi)))
            axes.imshow(cells, **look, aspect="auto", interpolation="nearest", extent=extent)
            if self.top_k is not None:
                axes.set_title(f"Layer {layer + 1}", fontsize=9, loc="left", pad=4, color="#333333")
            for spine in axes.spines.values():
                spine.set(color="#b8b8c0", linewidth=0.6)
            axes.tick_params(**ticks)
            self._label_sentences(axes, panel_height, labeled=column == 0)
            self._label_tokens(axes, panel_width, labeled=layer + columns >= num_layers)
        scale = figure.add_axes(
            ((width - bar + 0.3) / width, 1 - (top + panel_height) / height, 0.14 / width, panel_height / height)
        )
        colorbar = figure.colorbar(ScalarMappable(**look), cax=scale)
        colorbar.outline.set(edgecolor="#b8b8c0", linewidth=0.6)
        colorbar.ax.tick_params(labelsize=7, **ticks)
        colorbar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.1%}".replace(".0%", "%"))
        colorbar.ax.set_title("weight", fontsize=7, loc="left", pad=4, color="#333333")

        heading = figure.text(0.12 / width, 1 - 0.32 / height, printable(self.title), fontsize=13, weight="bold")
        heading.set_parse_math(False)
        figure.text(0.12 / width, 1 - 0.56 / height, self._caption(), fontsize=8, color="#55555f")
        return save_figure(figure, path, dpi)

    def _caption(self) -> str:
        num_layers, num_sentences, num_tokens = self.weights.shape
        parts = [counted(num_sentences, self.unit), counted(num_tokens, "summary token")]
        if self.top_k is not None:
            parts.append(counted(num_layers, "decoder layer"))
            parts.append(f"top {self.top_k} {self.unit}s per token across heads, normalized to 1")
        if self.num_truncated_tokens:
            parts.append(f"{counted(self.num_truncated_tokens, 'token')} of the document cut")
        if self.num_omitted_tokens:
            parts.append(f"{counted(self.num_omitted_tokens, 'token')} left out")
        return "  ·  ".join(parts)

    def _label_sentences(self, axes: Axes, height: float, *, labeled: bool) -> None:
        """Put the beginnings of the sentences on the vertical axis, as many as have room."""
        places = range(0, len(self.sentences), _step(len(self.sentences), int(height / SENTENCE_ROOM)))
        texts = {place: f"{_beginning(self.sentences[place], 44)}  {place + 1}" for place in places}
        _label(axes.yaxis, texts, labeled)

    def _label_tokens(self, axes: Axes, width: float, *, labeled: bool) -> None:
        """Put the tokens on the horizontal axis where all have room, and their numbers otherwise."""
        room, count = int(width / TOKEN_ROOM), len(self.tokens)
        if count <= room:
            texts = {place: _beginning(token, 12) or "·" for place, token in enumerate(self.tokens)}
            _label(axes.xaxis, texts, labeled, rotation=90)
            return
        step = _step(count, max(room // 5, 2))
        _label(axes.xaxis, {number - 1: str(number) for number in range(step, count + 1, step)}, labeled)
        if labeled:
            axes.set_xlabel("summary token", fontsize=7, color="#55555f")

    def _fields(self) -> dict[str, Any]:
        """Gather what the page's script reads; weights as [sentence, ten-thousandths, sentence, …] for each token."""
        scaled = np.rint(self.weights * PAGE_SCALE).astype(int)
        cells = [
            [[int(number) for kept in np.flatnonzero(column) for number in (kept, column[kept])] for column in layer.T]
            for layer in scaled
        ]
        data = {
            "unit": self.unit,
            "topK": self.top_k,
            "layered": self.top_k is not None,
            "scale": PAGE_SCALE,
            "power": COLOR_POWER,
            "ramps": {"light": LIGHT_RAMP, "dark": DARK_RAMP},
            "sentences": [printable(sentence) for sentence in self.sentences],
            "tokens": [printable(token, keep_spaces=True) for token in self.tokens],
            "summary": printable(self.summary),
            "layers": cells,
        }
        return {"caption": self._caption(), "data": data}


def _label(axis: Any, texts: dict[int, str], labeled: bool, rotation: int = 0) -> None:
    """Put ticks on an axis, with their texts or without; dollar signs in them are no mathematics."""
    labels = list(texts.values()) if labeled else [""] * len(texts)
    axis.set_ticks(list(texts), labels, fontsize=6.5, rotation=rotation)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)


def _step(count: int, room: int) -> int:
    """Choose how many places to move from one label to the next: 1, 2, 5, 10, 20, 50 and so on."""
    steps: Iterator[int] = (factor * 10**power for power in range(10) for factor in (1, 2, 5))
    return next((step for step in steps if math.ceil(count / step) <= max(room, 1)), count)


def _fit(weights: FloatArray, pixels: tuple[int, int]) -> FloatArray:
    """Merge neighboring cells by their maximum where there are more cells than pixels, so that no point is lost."""
    for axis in (0, 1):
        count = weights.shape[axis]
        merge = math.ceil(count / max(pixels[axis], 1))
        if merge > 1:
            weights = np.maximum.reduceat(weights, np.arange(0, count, merge), axis=axis)
    return weights


def _beginning(text: str, length: int) -> str:
    """Cut a text to its first characters for a label."""
    text = printable(text)
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
