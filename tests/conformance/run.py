"""Run Transformers' own model tests over every model class we register, beside BART and RoBERTa: `make conformance`.

What these pass, each of ours that extends them passes, or the run ends with exit code 1. The tests come from the
source distribution of the installed Transformers release (see source.py).
"""

import argparse
import os
import sys
import time
from collections import defaultdict
from pathlib import Path


HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache" / "conformance"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="run only the tests whose names match, and judge only those")
    parser.add_argument("-v", action="store_true", help="show the tracebacks of failed tests, the baselines' too")
    args = parser.parse_args()

    # Before transformers is imported. The models are tiny and made on the spot: nothing is to be downloaded.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_TEST_DEVICE", "cpu")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # there is a worker on every core
    import pytest
    import transformers

    from source import SuiteUnavailable, fetch_suite

    try:
        sys.path.insert(0, str(fetch_suite(transformers.__version__, CACHE)))
    except SuiteUnavailable as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2

    recorder = Recorder()
    started = time.monotonic()
    # -c: the settings of our own tests, in pyproject.toml, are not for these.
    tracebacks = "short" if args.v else "no"
    pytest_args = ["-c", os.devnull, "--rootdir", str(HERE), "-p", "no:cacheprovider", "-W", "ignore", "--no-header"]
    pytest_args += ["-n", "auto", "--dist", "worksteal", "--quiet", "--tb", tracebacks, "-k", args.k]
    pytest_args += ["--durations", "20", str(HERE / "suite.py")]
    pytest.main(pytest_args, plugins=[recorder])
    print(f"\ntransformers {transformers.__version__}: {time.monotonic() - started:.0f} s")
    return report(recorder.outcomes())


class Recorder:
    """pytest plugin that keeps how each test ended; the worst report of a test counts (setup, call, subtests)."""

    def __init__(self):
        self.reports = defaultdict(lambda: defaultdict(set))

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            _, test_class, test = report.nodeid.split("::", 2)
            self.reports[test_class.removeprefix("Test")][test].add(report.outcome)

    def pytest_collectreport(self, report):
        if report.failed:
            print(report.longreprtext, file=sys.stderr)

    def outcomes(self):
        """Model class name -> test name -> outcome."""
        rank = ("failed", "passed", "skipped")  # a test may skip one subtest and pass the others
        return {
            model: {test: min(seen, key=rank.index) for test, seen in tests.items()}
            for model, tests in self.reports.items()
        }


def report(outcomes) -> int:
    from families import FAMILIES
    from hier_models import families
    from verdict import judge

    covered = {model_class.__name__ for family in FAMILIES for model_class in family.baselines}
    registered = {name for family in families.FAMILIES.values() for name in family.models.values()}
    failed = False
    print(f"\n{'model':<48}{'passed':>8}{'skipped':>9}{'failed':>8}{'listed':>8}  held against")
    verdicts = []
    for family in FAMILIES:
        for model_class, baseline in family.baselines.items():
            name = model_class.__name__ + family.variant
            not_applicable = {} if model_class is baseline else family.not_applicable
            verdict = judge(name, outcomes.get(name, {}), outcomes.get(baseline.__name__, {}), not_applicable)
            verdicts.append(verdict)
            passed, skipped, failures = verdict.counts.values()
            against = "" if model_class is baseline else baseline.__name__
            print(f"{name:<48}{passed:>8}{skipped:>9}{failures:>8}{len(verdict.listed):>8}  {against}")
    for verdict in verdicts:
        for test, reason in verdict.listed.items():
            print(f"\nnot applicable to {verdict.model}: {test}\n    {reason}")
    for verdict in verdicts:
        for problem in verdict.problems:
            failed = True
            print(f"PROBLEM {verdict.model}: {problem}")
    for name in sorted(registered - covered):
        failed = True
        print(f"PROBLEM {name}: registered, but no tester in tests/conformance/families.py")
    print("\nconformance: " + ("FAILED" if failed else "passed"))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
