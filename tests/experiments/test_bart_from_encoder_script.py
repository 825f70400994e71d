"""examples/experiments/bart_from_encoder.py: what is refused before anything is trained."""

import json

import pytest

from tests.experiments.scripts import load_script


@pytest.mark.parametrize(
    ("pairs", "at", "message"),
    [
        (1695, "100", "--data: 1695 pairs, and 1696 are needed"),
        (1696, "201", "--at: trainings have 200 steps"),
        (1696, "-1", "--at: trainings have 200 steps"),
    ],
)
def test_too_few_pairs_and_steps_that_are_never_reached(tmp_path, monkeypatch, capsys, pairs, at, message):
    file = tmp_path / "pairs.jsonl"
    file.write_text((json.dumps({"document": "Bees dance.", "summary": "Bees."}) + "\n") * pairs, encoding="utf-8")
    # No encoder is there: it is refused before.
    given = ["--encoder", str(tmp_path / "encoder"), "--data", str(file), "--at", "50", at]
    monkeypatch.setattr("sys.argv", ["bart_from_encoder.py", *given])
    with pytest.raises(SystemExit) as stopped:
        load_script("bart_from_encoder").main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
