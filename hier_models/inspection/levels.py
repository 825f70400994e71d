"""How much each level of a hierarchical attention counts, as a picture and as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .heatmap import require_matplotlib


@dataclass
class LevelWeights:
    """The weight of each level in each hierarchical attention of a model.

    Args:
        weights: For each attention, by the name of its module, the weight of each level; they sum to one.

    Raises:
        ValueError: If there is no attention, or one without levels.
    """

    weights: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        if not self.weights or not all(len(levels) for levels in self.weights.values()):
            raise ValueError("`weights` must hold the levels of at least one attention, got none")

    def to_text(self) -> str:
        """Write a table in Markdown: a row for each attention, a column for each level.

        Returns:
            The table.
        """
        depth = max(len(levels) for levels in self.weights.values())
        lines = [["attention", *(str(level) for level in range(1, depth + 1))], ["---"] * (depth + 1)]
        for name, levels in self.weights.items():
            numbers = [f"{weight:.3f}" for weight in levels]
            lines.append([name, *numbers, *["–"] * (depth - len(numbers))])
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)

    def to_png(self, path: str | Path) -> Path:
        """Draw a line for each attention over its levels, beside what levels of equal weight would have.

        Args:
            path: Where to write it; folders are made.

        Returns:
            The same path.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        require_matplotlib()
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(7, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for name, levels in self.weights.items():
            axes.plot(range(1, len(levels) + 1), list(levels), marker="o", label=name)
        depth = max(len(levels) for levels in self.weights.values())
        axes.axhline(1 / depth, color="0.6", linestyle=":", label="equal weights")
        axes.set(xlabel="level", ylabel="weight", ylim=(0, None), title="Weights of the levels of attention")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize="small")
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
        return path


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
        elif isinstance(numbers := getattr(module, "level_weights", None), torch.nn.Parameter):  # of the readers
            found[name] = numbers.detach().softmax(dim=0).tolist()
    if not found:
        raise ValueError(
            f"`model` must have a hierarchical attention, as those of HAM have; got a {type(model).__name__}, which "
            "has none"
        )
    return LevelWeights(found)
