"""examples/mechanisms/ham.py in its smallest form."""

import json
from pathlib import Path

from tests import forks


SCRIPT = Path(__file__).parents[2] / "examples" / "mechanisms" / "ham.py"


def test_levels_look_up_in_hops_and_weights_find_how_many(tmp_path):
    result = forks.run(forks.SCRIPT, str(SCRIPT), "--quick", "--output", str(tmp_path))
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in (tmp_path / "ham_quick.jsonl").read_text(encoding="utf-8").splitlines()]
    right = {row["model"]: row["right answers"] for row in rows}
    assert right["as many levels as hops"] > 0.9
    assert right["6 levels"] > 0.9
    assert right["1 level"] < 0.1  # one of the 24 others by chance
    assert right["6 levels, keys are values"] < 0.1
    (found,) = [row["weights"] for row in rows if row["model"] == "6 levels"]
    assert found[2] > 0.9  # three hops
    assert result.stdout.count("| 3 |") == len(rows)
    assert (tmp_path / "ham_quick.svg").read_text(encoding="utf-8").startswith("<?xml")
