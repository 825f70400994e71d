"""How much each level of a hierarchical attention counts, as a table, a picture and a page."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .pages import Page, printable, require_matplotlib, save_figure


@dataclass
class LevelWeights(Page):
    """The weight of each level in each hierarchical attention of a model.

    Args:
        weights: For each attention, by the name of its module, the weight of each level; they sum to one.
        title: The heading of picture and page.

    Raises:
        ValueError: If there is no attention, or one without levels.
    """

    template: ClassVar[str] = "inspection/levels.html"

    weights: Mapping[str, Sequence[float]]
    title: str = "Weights of the levels of attention"

    def __post_init__(self) -> None:
        if not self.weights or not all(len(levels) for levels in self.weights.values()):
            raise ValueError("`weights` must hold the levels of at least one attention, got none")

    @property
    def depth(self) -> int:
        """Levels of the attention that has most."""
        return max(len(levels) for levels in self.weights.values())

    def table(self) -> str:
        """Write a table in Markdown: a row for each attention, a column for each level.

        Returns:
            The table.
        """
        depth = self.depth
        lines = [["attention", *(str(level) for level in range(1, depth + 1))], ["---"] * (depth + 1)]
        for name, levels in self.weights.items():
            numbers = [f"{weight:.3f}" for weight in levels]
            lines.append([name, *numbers, *["–"] * (depth - len(numbers))])
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)

    def _fields(self) -> dict[str, Any]:
        most = max(max(levels) for levels in self.weights.values())
        weights = {printable(name): levels for name, levels in self.weights.items()}
        return {"weights": weights, "depth": self.depth, "most": most}

    def save_png(self, path: str | os.PathLike[str]) -> Path:
        """Draw a line for each attention over its levels, beside what levels of equal weight would have.

        Args:
            path: The file to write.

        Returns:
            The path written.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        require_matplotlib()
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        for name, levels in self.weights.items():
            axes.plot(range(1, len(levels) + 1), list(levels), marker="o", label=name)
        axes.axhline(1 / self.depth, color="0.6", linestyle=":", label="equal weights")
        axes.set(xlabel="level", ylabel="weight", ylim=(0, None))
        axes.set_title(printable(self.title)).set_parse_math(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize="small")
        return save_figure(figure, path)


def level_weights(model: Any) -> LevelWeights:
    """Read how much each level of a model's hierarchical attentions counts.

    Args:
        model: A HAM model or reader, or any module with `HierarchicalAttention` in it.

    Returns:
        The weights, in the order that data flows.

    Raises:
        ValueError: If the model has no hierarchical attention.

    Source: HAM, section 3.1 ("these weights can tell us the relative importance" of the levels).
    """
    if hasattr(model, "get_level_weights"):
        return LevelWeights(model.get_level_weights())
    found = {}
    for name, module in model.named_modules():
        if hasattr(module, "mixture"):
            found[name or type(module).__name__] = module.mixture.detach().tolist()
    if not found:
        raise ValueError(f"`model` must have a hierarchical attention, as HAM has, got a {type(model).__name__}")
    return LevelWeights(found)
