"""How much each level of a hierarchical attention counts, as a table, a picture and a page."""

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .heatmap import printable, require_matplotlib


# A cell is the darker, the more its level counts beside the one that counts most.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ margin: 2rem; font: 15px/1.6 system-ui, sans-serif; }}
h1 {{ font-size: 1.45rem; overflow-wrap: anywhere; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .6rem; text-align: right; white-space: nowrap; }}
th:first-child {{ text-align: left; font-weight: 400; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>How much each level counts in what an attention gives; levels of equal weight would have {equal:.3f} each.</p>
<div><table>
<thead><tr><th scope="col">attention</th>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
</body>
</html>
"""


@dataclass
class LevelWeights:
    """The weight of each level in each hierarchical attention of a model.

    Args:
        weights: For each attention, by the name of its module, the weight of each level; they sum to one.
        title: The heading of picture and page.

    Raises:
        ValueError: If there is no attention, or one without levels.
    """

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

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the table as a page that needs nothing else, shaded by weight.

        Args:
            path: The file to write.

        Returns:
            The path written.
        """
        most = max(max(levels) for levels in self.weights.values())
        rows = []
        for name, levels in self.weights.items():
            cells = [
                f'<td style="background: rgb(255 176 0 / {weight / most:.2f})">{weight:.3f}</td>' for weight in levels
            ]
            cells += ["<td>–</td>"] * (self.depth - len(levels))
            rows.append(f'<tr><th scope="row">{html.escape(printable(name))}</th>{"".join(cells)}</tr>')
        page = _PAGE.format(
            title=html.escape(printable(self.title)),
            equal=1 / self.depth,
            head="".join(f'<th scope="col">{level}</th>' for level in range(1, self.depth + 1)),
            rows="\n".join(rows),
        )
        Path(path).write_text(page, encoding="utf-8")
        return Path(path)

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
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(7, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for name, levels in self.weights.items():
            axes.plot(range(1, len(levels) + 1), list(levels), marker="o", label=name)
        axes.axhline(1 / self.depth, color="0.6", linestyle=":", label="equal weights")
        axes.set(xlabel="level", ylabel="weight", ylim=(0, None))
        axes.set_title(printable(self.title)).set_parse_math(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize="small")
        figure.savefig(path, dpi=150)
        return Path(path)


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
