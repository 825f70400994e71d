"""The judgement of a conformance run finds what it is there to find."""

import pytest

from verdict import judge


BASELINE = {"test_a": "passed", "test_b": "skipped", "test_c": "failed"}


def problems(outcomes, baseline=BASELINE, not_applicable=None):
    return judge("Ours", outcomes, baseline, not_applicable or {}).problems


def test_a_model_that_passes_what_the_baseline_passes_conforms():
    verdict = judge("Ours", dict(BASELINE), BASELINE, {})
    assert verdict.problems == []
    assert verdict.counts == {"passed": 1, "skipped": 1, "failed": 1}


@pytest.mark.parametrize("outcome", ["failed", "skipped", "missing"])
def test_not_passing_where_the_baseline_passes_is_a_problem(outcome):
    outcomes = {test: kind for test, kind in {**BASELINE, "test_a": outcome}.items() if kind != "missing"}
    assert problems(outcomes) == [f"test_a: {outcome}, and the baseline passes it"]


def test_failing_where_the_baseline_is_skipped_is_a_problem():
    assert problems({**BASELINE, "test_b": "failed"}) == ["test_b: failed, and the baseline is skipped"]


def test_a_listed_test_may_fail_but_neither_pass_nor_be_gone():
    listed = {"test_a": "the reason"}
    assert problems({**BASELINE, "test_a": "failed"}, not_applicable=listed) == []
    assert len(problems(BASELINE, not_applicable=listed)) == 1
    assert len(problems(BASELINE, not_applicable={"test_of_old": "the reason"})) == 1


def test_a_star_stands_for_what_follows():
    listed = {"test_a*": "the reason"}
    baseline = {"test_a_1": "passed", "test_a_2": "passed", "test_b": "passed"}
    outcomes = {"test_a_1": "failed", "test_a_2": "skipped", "test_b": "passed"}
    assert problems(outcomes, baseline, listed) == []
    assert len(problems(baseline, baseline, listed)) == 2
    assert len(problems({"test_b": "passed"}, {"test_b": "passed"}, listed)) == 1


def test_a_suite_that_did_not_run_is_a_problem():
    assert problems({}, baseline={}) != []
