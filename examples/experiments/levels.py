"""What do the levels of HAM still know of their query? Of trained poem models on true poems, and BiDAF on questions.

    python examples/experiments/levels.py experiments/poems/test.jsonl runs/experiments/ham_poems/*/seed_*
    python examples/experiments/levels.py experiments/squad/validation.jsonl runs/experiments/ham_reader_squad/*/seed_*

For each level: how far its attention at one character of a line, or word of a context, lies from that at another, on
average over all pairs (total variation distance). At 1 they have nothing in common; at 0 the level looks at the
source, or question, in the same way whatever the query is, and so tells nothing about it. And the weight of the level.
"""

import copy
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from tqdm import tqdm
from transformers import AutoConfig

from hier_models import HamForConditionalGeneration, HamProcessor, HamReaderForQuestionAnswering, HamReaderProcessor
from hier_models.data.loading import load_rows
from hier_models.data.poems import in_vocabulary, load_poems, poem_lines
from hier_models.data.reading_comprehension_rows import resolve_reading
from hier_models.models.hierarchical_attention import HamLevelWeights


SHOWN = (1, 2, 3, 5, 10, 20)


def of_poems(model: HamForConditionalGeneration, processor: HamProcessor, file: Path) -> Iterator[torch.Tensor]:
    """Give each level's attention at each character of lines, `(depth, characters, source)`.

    Args:
        model: HAM with a GRU body.
        processor: Its processor, with keywords.
        file: Poems, as they are trained on.
    """
    for row in poem_lines(load_poems(str(file)), processor.poem_keywords, in_vocabulary(processor)):
        if row["keyword"] is not None:
            inputs = processor(
                keywords=row["keyword"], lines=row["before"], text_target=row["line"], return_tensors="pt"
            )
            yield model(**inputs, output_attentions=True).level_attentions[0].mean(dim=1)


def of_questions(
    model: HamReaderForQuestionAnswering, processor: HamReaderProcessor, file: Path
) -> Iterator[torch.Tensor]:
    """Give each level's attention to the question at each word of contexts, `(depth, words, question)`.

    Args:
        model: BiDAF.
        processor: Its processor.
        file: Questions on a context, as they are trained on.
    """
    levels = [copy.deepcopy(model.reader.attention) for _ in range(model.config.attention_depth)]
    for number, level in enumerate(levels, start=1):  # the last of so many counts alone
        level.level_weights = HamLevelWeights(number, "last")
    given = {}
    model.reader.attention.register_forward_pre_hook(lambda _, inputs: given.update(inputs=inputs))
    for row in load_rows(file, resolve_reading):
        model(**processor(row["question"], "\n".join(row["documents"]), return_tensors="pt"))
        yield torch.cat([level(*given["inputs"])[2] for level in levels])


@torch.no_grad()
def distances(attentions: Iterator[torch.Tensor], number: int) -> torch.Tensor:
    """Compare the attention at the characters of a line, or words of a context, level by level.

    Args:
        attentions: Of each line or question, `(depth, queries, keys)`.
        number: How many to read.

    Returns:
        The mean distance of each level, `(depth,)`, between 0 and 1.

    Raises:
        typer.BadParameter: If there is nothing to compare.
    """
    found = []
    for attention in tqdm(islice(attentions, number), "Reading", leave=False, disable=None):
        apart = sum((keys[:, :, None] - keys[:, None]).abs() for keys in attention.double().unbind(dim=-1)) / 2
        queries = attention.shape[1]
        found.append(apart.sum(dim=(1, 2)) / max(queries * (queries - 1), 1))
    if not found:
        raise typer.BadParameter("DATA: nothing to read, or no line has a keyword that the model knows")
    return torch.stack(found).mean(dim=0)


def main(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Poems or questions: JSON lines.", exists=True)],
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Trained models.", exists=True)],
    number: Annotated[
        int, typer.Option(min=1, metavar="N", help="Lines or questions to read, from the first on.")
    ] = 1000,
) -> None:
    """Print a table: a model, and for each level its distance and, in brackets, its weight."""
    typer.echo("".join(["model".ljust(24), *(f"level {level}".rjust(14) for level in SHOWN)]))
    for folder in models:
        config = AutoConfig.from_pretrained(folder)
        body = getattr(config, "reader", None) or getattr(config, "body", config.model_type)
        if body == "gru":
            model = HamForConditionalGeneration.from_pretrained(folder).eval()
            (weights,) = model.get_level_weights().values()
            attentions = of_poems(model, HamProcessor.from_pretrained(folder), data)
        elif body == "bidaf":
            model = HamReaderForQuestionAnswering.from_pretrained(folder).eval()
            (weights,) = model.get_level_weights().values()
            attentions = of_questions(model, HamReaderProcessor.from_pretrained(folder), data)
        else:
            raise typer.BadParameter(f"MODEL: {folder} is {body}; only poem models (gru) and bidaf are read")
        found = distances(attentions, number)
        cells = [f"{found[level - 1]:.3f} ({weights[level - 1]:.2f})" for level in SHOWN if level <= len(found)]
        typer.echo("".join(["/".join(folder.parts[-2:]).ljust(24), *(cell.rjust(14) for cell in cells)]))


if __name__ == "__main__":
    typer.run(main)
