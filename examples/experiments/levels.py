"""What do the levels of HAM still know of their query? Of trained poem models, on the lines of true poems.

    python examples/experiments/levels.py experiments/poems/test.jsonl runs/experiments/ham_poems/*/seed_*

For each level: how far its attention at one character of a line lies from that at another, on average over all pairs
(total variation distance). At 1 they have nothing in common; at 0 the level looks at the source in the same way
whatever the query is, and so tells the decoder nothing about what to write next. And the weight of the level.
"""

from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from tqdm import tqdm

from hier_models import HamForConditionalGeneration, HamProcessor
from hier_models.data.poems import in_vocabulary, load_poems, poem_lines


SHOWN = (1, 2, 3, 5, 10, 20)


@torch.no_grad()
def distances(model: HamForConditionalGeneration, processor: HamProcessor, file: Path, lines: int) -> torch.Tensor:
    """Compare the attention at the characters of a line, level by level.

    Args:
        model: HAM with a GRU body.
        processor: Its processor, with keywords.
        file: Poems, as they are trained on.
        lines: How many lines to read.

    Returns:
        The mean distance of each level, `(depth,)`, between 0 and 1.

    Raises:
        typer.BadParameter: If no line has a keyword in the model's vocabulary.
    """
    examples = poem_lines(load_poems(str(file)), processor.poem_keywords, in_vocabulary(processor))
    found = torch.zeros(model.config.attention_depth, dtype=torch.float64)
    usable = list(islice((row for row in examples if row["keyword"] is not None), lines))
    if not usable:
        raise typer.BadParameter(f"POEMS: no line of {file} has a keyword that the model knows")
    for row in tqdm(usable, "Reading lines", leave=False, disable=None):
        inputs = processor(keywords=row["keyword"], lines=row["before"], text_target=row["line"], return_tensors="pt")
        attention = model(**inputs, output_attentions=True).level_attentions[0].mean(dim=1)  # (depth, target, source)
        apart = (attention[:, :, None] - attention[:, None]).abs().sum(dim=-1) / 2
        characters = attention.shape[1]
        found += apart.sum(dim=(1, 2)) / (characters * (characters - 1))
    return found / len(usable)


def main(
    poems: Annotated[Path, typer.Argument(metavar="POEMS", help="Poems: JSON lines.", exists=True)],
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Trained models.", exists=True)],
    lines: Annotated[int, typer.Option(min=1, metavar="N", help="Lines to read, from the first poem on.")] = 1000,
) -> None:
    """Print a table: a model, and for each level its distance and, in brackets, its weight."""
    typer.echo("".join(["model".ljust(24), *(f"level {level}".rjust(14) for level in SHOWN)]))
    for folder in models:
        model = HamForConditionalGeneration.from_pretrained(folder).eval()
        if model.config.body != "gru":
            raise typer.BadParameter(
                f"MODEL: {folder} has body={model.config.body!r}; only poem models (gru) are read"
            )
        found = distances(model, HamProcessor.from_pretrained(folder), poems, lines)
        (weights,) = model.get_level_weights().values()
        cells = [f"{found[level - 1]:.3f} ({weights[level - 1]:.2f})" for level in SHOWN if level <= len(found)]
        typer.echo("".join(["/".join(folder.parts[-2:]).ljust(24), *(cell.rjust(14) for cell in cells)]))


if __name__ == "__main__":
    typer.run(main)
