"""What a sweep says of the comparison of its variants."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..training.arguments import RecipeError
from ..training.recipe_files import comparison_section


# What a variant and its twin must have in common; a comparison with anything else of these would be of two things.
FIXED = (
    *("task", "total_train_batch_size", "max_steps", "num_train_epochs", "train", "train_split", "validation"),
    *("validation_split", "test", "test_split", "config_name", "revision", "max_train_documents"),
    *("max_validation_documents", "max_test_documents", "held_out_validation", "held_out_test", "split_seed"),
)
MOST_SEED = 2**32 - 1  # that numpy takes
PARAMETERS_WITHIN = 0.03


@dataclass(frozen=True)
class Comparison:
    """The section `comparison` of a sweep.

    Args:
        question: Stands above the table.
        seeds: Each variant is trained with each of them, in place of the recipe's `seed`.
        twin: The variant that all others are compared with; or a mapping, variant -> its twin.
        metrics: Scores of the test part, as the task gives them; learning curves are titled by the question, and of
            the first metric the best value is bold.
        parameters_within: By how much, as a share, a variant's number of parameters may differ from its twin's; or a
            mapping, variant -> share, where the others have the default.
        differs: What else than the model a variant and its twin differ in, and why: name -> reason.
        check_overlap: Whether the training documents may share no text with the test documents; or further files,
            such as those of a warm-up, that may not either.
    """

    question: str
    seeds: Sequence[int]
    twin: str | Mapping[str, str]
    metrics: Sequence[str]
    parameters_within: float | Mapping[str, float] = PARAMETERS_WITHIN
    differs: Mapping[str, str] = field(default_factory=dict)
    check_overlap: bool | Sequence[str] = True

    def __post_init__(self) -> None:
        if not isinstance(self.question, str) or not self.question.strip():
            raise RecipeError(f"comparison: question must be a text, got {self.question!r}")
        for name, kind, what in (("seeds", int, "different whole numbers"), ("metrics", str, "different names")):
            values = getattr(self, name)
            fits = isinstance(values, list | tuple) and values and all(type(value) is kind for value in values)
            if not fits or len(set(values)) < len(values):
                raise RecipeError(f"comparison: {name} must be a list of {what}, got {values!r}")
        if any(not 0 <= seed <= MOST_SEED for seed in self.seeds):
            raise RecipeError(f"comparison: seeds must be from 0 to {MOST_SEED}, got {self.seeds!r}")
        shares: Any = self.parameters_within
        for share in shares.values() if isinstance(shares, dict) else [shares]:
            if type(share) not in (int, float) or not share >= 0:  # nor NaN
                allowed = "a share, such as 0.03, or a mapping"
                raise RecipeError(f"comparison: parameters_within must be {allowed}; got {shares!r}")
        reasons: Any = self.differs.values() if isinstance(self.differs, dict) else [None]
        if not all(str(reason or "").strip() for reason in reasons):
            raise RecipeError(f"comparison: differs must be a mapping of names to reasons, got {self.differs!r}")
        if fixed := [name for name in self.differs if name in FIXED]:
            raise RecipeError(f"comparison: differs: {fixed[0]} must be the same for a variant and its twin")
        if not isinstance(self.check_overlap, bool | list | tuple):
            raise RecipeError(f"comparison: check_overlap must be true, false or files, got {self.check_overlap!r}")

    def twins(self, variants: Sequence[str]) -> dict[str, str]:
        """Pair the variants.

        Args:
            variants: All variants of the sweep.

        Returns:
            Variant -> twin, in the order of the variants; without those that have none.

        Raises:
            RecipeError: If one of the names is of no variant, or nothing is compared.
        """
        if isinstance(self.twin, str):
            pairs = {name: self.twin for name in variants if name != self.twin}
        elif isinstance(self.twin, dict):
            pairs = {str(name): str(self.twin[name]) for name in self.twin}
        else:
            raise RecipeError(f"comparison: twin must be a variant, or a mapping of variants; got {self.twin!r}")
        for name in (*pairs, *pairs.values(), *([self.twin] if isinstance(self.twin, str) else [])):
            if name not in variants:
                raise RecipeError(f"comparison: twin: there is no variant {name!r}; there are {', '.join(variants)}")
        for name in map(str, self.parameters_within if isinstance(self.parameters_within, dict) else ()):
            if name not in pairs:
                raise RecipeError(f"comparison: parameters_within: there is no variant {name!r} that has a twin")
        if alone := [name for name, other in pairs.items() if name == other]:
            raise RecipeError(f"comparison: twin: {alone[0]} is its own")
        if not pairs:
            raise RecipeError("comparison: twin: there is no other variant to compare with it")
        return {name: pairs[name] for name in variants if name in pairs}


def read_comparison(path: str | os.PathLike[str]) -> Comparison | None:
    """Read what a sweep compares.

    Args:
        path: A YAML file with `variants:`.

    Returns:
        Its section `comparison`, or None if there is none.

    Raises:
        RecipeError: If something in it cannot be used.
    """
    if (section := comparison_section(path)) is None:
        return None
    items = dataclasses.fields(Comparison)
    known = [item.name for item in items]
    for name in section:
        if name not in known:
            raise RecipeError(f"{path}: comparison: unknown name {name!r}; allowed are {', '.join(known)}")
    needed = [item.name for item in items if item.default is item.default_factory is dataclasses.MISSING]
    if missing := [name for name in needed if name not in section]:
        raise RecipeError(f"{path}: comparison: {missing[0]} is missing")
    return Comparison(**section)
