"""Judges a conformance run: what the class of Transformers passes, each of our models that extends it passes."""

from dataclasses import dataclass, field


PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"

Outcomes = dict[str, str]
"""Test name -> "passed", "skipped" or "failed"."""


@dataclass
class Verdict:
    """Findings on one model class.

    Args:
        model: Name of the model class.
        counts: How many tests ended in each outcome.
        listed: Tests that cannot apply, each with its reason.
        problems: Why the run fails; none if the class conforms.
    """

    model: str
    counts: dict[str, int]
    listed: dict[str, str]
    problems: list[str] = field(default_factory=list)


def judge(model: str, outcomes: Outcomes, baseline: Outcomes, not_applicable: dict[str, str]) -> Verdict:
    """Compare one model class with the class of Transformers that it is held against.

    Args:
        model: Name of the model class.
        outcomes: How each test ended for it.
        baseline: How each test ended for the class of Transformers.
        not_applicable: Test name -> reason, for tests that cannot apply to the model. A name with a star at its end
            stands for all tests whose names begin so.

    Returns:
        Counts and problems. It is a problem if the model does not pass what the baseline passes, if it fails where the
        baseline is skipped, if a listed test passes or does not exist, and if the baseline passed nothing at all.
    """
    counts = {kind: sum(outcome == kind for outcome in outcomes.values()) for kind in (PASSED, SKIPPED, FAILED)}
    not_applicable = _spell_out(not_applicable, baseline.keys() | outcomes.keys())
    verdict = Verdict(model, counts, not_applicable)
    if PASSED not in baseline.values():
        verdict.problems.append("the baseline passed no test at all: the suite did not run")
    for test in sorted(baseline.keys() | outcomes.keys() | not_applicable.keys()):
        ours, theirs = outcomes.get(test, "missing"), baseline.get(test, "missing")
        if test in not_applicable:
            if ours in (PASSED, "missing"):
                verdict.problems.append(f"{test}: {ours}, yet listed as not applicable: take it off the list")
        elif theirs == PASSED != ours:
            verdict.problems.append(f"{test}: {ours}, and the baseline passes it")
        elif ours == FAILED != theirs:
            verdict.problems.append(f"{test}: failed, and the baseline is {theirs}")
    return verdict


def _spell_out(not_applicable: dict[str, str], tests: set[str]) -> dict[str, str]:
    spelled = {}
    for name, reason in not_applicable.items():
        found = [test for test in sorted(tests) if name.endswith("*") and test.startswith(name[:-1])]
        spelled.update(dict.fromkeys(found or [name], reason))
    return spelled
