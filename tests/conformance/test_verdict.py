"""The judgement of a conformance run finds what it is there to find."""

import pytest

from verdict import judge


BART = {"test_a": "passed", "test_b": "skipped", "test_c": "failed"}


def problems(outcomes, baseline=BART, not_applicable=None):
    return judge("Ours", outcomes, baseline, not_applicable or {}).problems


def test_a_model_that_passes_what_bart_passes_conforms():
    verdict = judge("Ours", dict(BART), BART, {})
    assert verdict.problems == []
    assert verdict.counts == {"passed": 1, "skipped": 1, "failed": 1}


@pytest.mark.parametrize("outcome", ["failed", "skipped", "missing"])
def test_not_passing_where_bart_passes_is_a_problem(outcome):
    outcomes = {test: kind for test, kind in {**BART, "test_a": outcome}.items() if kind != "missing"}
    assert problems(outcomes) == [f"test_a: {outcome}, and BART passes it"]


def test_failing_where_bart_is_skipped_is_a_problem():
    assert problems({**BART, "test_b": "failed"}) == ["test_b: failed, and BART is skipped"]


def test_a_listed_test_may_fail_but_neither_pass_nor_be_gone():
    listed = {"test_a": "the reason"}
    assert problems({**BART, "test_a": "failed"}, not_applicable=listed) == []
    assert len(problems(BART, not_applicable=listed)) == 1
    assert len(problems(BART, not_applicable={"test_of_old": "the reason"})) == 1


def test_a_suite_that_did_not_run_is_a_problem():
    assert problems({}, baseline={}) != []
