"""The form of lines of quatrains: repeated characters, rhymes, and the tones of regulated verse."""

from collections.abc import Iterable, Sequence

from ..models.poem_sounds import PoemSounds, line_patterns
from .poem_bleu import LINES, by_length


def poem_form(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], sounds: PoemSounds | None = None
) -> dict[str, float]:
    """Measure the form of lines, each written after the lines of a poem before it.

    For whole poems of a model give their last three lines, and the poems themselves as `references`; for those of
    poets as well.

    Args:
        predictions: For each poem the three lines that were written: the second, third and fourth.
        references: For each poem the four lines, of which those before a written one are what it was written after.
        sounds: How characters sound, such as `processor.poem_keywords.sounds`; None to leave out rhymes and tones.

    Returns:
        For each length n of lines that there is, as shares: repeats_n (lines with a character twice), earlier_n
        (characters that an earlier line has), rhymes_n (fourth lines that rhyme with the second), and tones_n (lines
        with the tones that a line in their place has in one of the forms of regulated quatrains).

    Raises:
        ValueError: If the numbers or lengths of lines are not those of quatrains.
    """
    found: dict[str, float] = {}
    for length, numbers in by_length(predictions, references).items():
        lines = [(references[i][: k + 1], line) for i in numbers for k, line in enumerate(predictions[i])]
        found[f"repeats_{length}"] = _share(len(set(line)) < len(line) for _, line in lines)
        found[f"earlier_{length}"] = _share(c in "".join(before) for before, line in lines for c in line)
        if sounds is not None:
            patterns = [line_patterns(length, place) for place in range(LINES)]
            last = [(before, line) for before, line in lines if len(before) == 3 and line]
            found[f"rhymes_{length}"] = _share(sounds.rhyme(before[1][-1], line[-1]) for before, line in last)
            found[f"tones_{length}"] = _share(
                len(line) == length and any(sounds.fits(line, pattern) for pattern in patterns[len(before)])
                for before, line in lines
            )
    return found


def _share(values: Iterable[bool]) -> float:
    found = list(values)
    return sum(found) / max(1, len(found))
