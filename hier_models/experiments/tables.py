"""Tables of scores, as Markdown and as CSV."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd


_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
# As papers print scores: of 1 at most with three digits.
_TEMPLATES.filters["number"] = lambda value, sign="": f"{value:{sign}.{3 if abs(value) < 1 else 2}f}"


def fill_in(template: str, **values: Any) -> str:
    """Fill in a page of Markdown."""
    return _TEMPLATES.get_template(template).render(**values)


def markdown(table: pd.DataFrame) -> str:
    """Lay out a table of texts; all columns but the first stand on the right."""
    lines = [list(table), ["---", *["---:"] * (table.shape[1] - 1)], *table.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows, whose columns may differ."""
    pd.DataFrame(rows, dtype=object).to_csv(path, index=False)


def scores_of(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each variant: its numbers on the test data, or on the validation data where there are no others."""
    scores = {name: found.get("test") or found.get("evaluation") or {} for name, found in results.items()}
    return [
        {"variant": name, **{key: value for key, value in own.items() if isinstance(value, int | float)}}
        for name, own in scores.items()
    ]


def table_of(results: Mapping[str, Any]) -> str:
    """Lay out the scores of variants."""
    rows = [{column: _cell(value) for column, value in row.items()} for row in scores_of(results)]
    diverged = ", ".join(name for name, found in results.items() if has_diverged(found))
    said = [f"**Diverged**, so that the loss or a score is no finite number: {diverged}."] if diverged else []
    longer = made_longer({name: {0: found.get("made_longer_after", [])} for name, found in results.items()})
    return "\n\n".join([markdown(pd.DataFrame(rows).fillna("")), *said, *([longer] if longer else [])])


def has_diverged(found: Mapping[str, Any]) -> bool:
    """Tell whether a run found a number that is not finite, or was ended for it."""
    scores = [value for part in ("evaluation", "test") for value in (found.get(part) or {}).values()]
    return "diverged" in found or not all(math.isfinite(value) for value in scores if isinstance(value, float))


def write_tables(results: Mapping[str, Any], folder: Path) -> None:
    """Write the scores of variants as table.md and table.csv into the folder of theirs, if it was kept."""
    if folder.is_dir():
        (folder / "table.md").write_text(table_of(results) + "\n", encoding="utf-8")
        write_csv(folder / "table.csv", scores_of(results))


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3f}" if 0 < abs(value) < 1 else f"{value:.2f}"  # of scores up to 1, as papers print them


def made_longer(after: Mapping[str, Mapping[int, Sequence[int]]]) -> str:
    """Say of a table which runs were made longer: variant -> seed -> after how many steps."""
    groups: dict[str, list[str]] = {}
    for name, of_seeds in after.items():
        by_steps: dict[str, list[str]] = {}
        for seed, steps in of_seeds.items():
            by_steps.setdefault(" and ".join(map(str, steps)) or "never", []).append(str(seed))
        for steps_of, seeds in by_steps.items():
            groups.setdefault(steps_of, []).append(f"{name} ({', '.join(seeds)})" if len(by_steps) > 1 else name)
    if not groups.keys() - {"never"}:
        return ""
    said = "; ".join(f"{steps} ({', '.join(names)})" for steps, names in groups.items())
    other = "Unless its learning rate is constant, a run that is as long from the beginning is another one."
    return f"**Made longer** after so many steps: {said}. {other}"
