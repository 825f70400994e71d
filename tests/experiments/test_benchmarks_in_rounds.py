"""Benchmarks whose models take turns, in their smallest form."""

from pathlib import Path

import pytest

from tests import forks


ROOT = Path(__file__).parents[2]
MARKED = "# A card\n\n<!-- benchmark: begin -->\nOld.\n\n{}\n<!-- benchmark: end -->\n\nMore.\n"


@pytest.mark.slow
def test_ratios_are_to_the_first_model_and_a_table_with_another_header_goes(tmp_path):
    card = tmp_path / "card.md"
    card.write_text(MARKED.format("| old | header |\n| --- | --- |\n| old | row |"), encoding="utf-8")
    models = ["Top-Down int8", "Top-Down"]
    settings = ["--models", *models, "--lengths", "16", "64", "--repeats", "2", "--update", str(card)]
    result = forks.run(forks.SCRIPT, str(ROOT / "benchmarks" / "top_down_transformer.py"), *settings)
    assert result.returncode == 0, result.stderr
    content = card.read_text(encoding="utf-8")
    assert content.startswith("# A card\n")
    assert content.endswith("\nMore.\n")
    lines = [line.strip("|") for line in content.splitlines() if "|" in line]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    header, _, *rows = rows
    assert "old" not in header
    assert [row[1:4] for row in rows] == [
        *(
            [kind, length, name]
            for length in ("16", "64")
            for kind, name in zip(("int8", "bfloat16"), models, strict=True)
        ),
        ["int8", "16 to 64", models[0]],
        ["bfloat16", "16 to 64", models[1]],
    ]
    for row in rows[:4]:
        median, least, most = (float(number.strip("(")) for number in row[4].rstrip(")").replace(" to", "").split())
        assert 0 < least <= median <= most
        is_first = row[3] == models[0]
        assert (row[7:] == ["1.00 (1.00 to 1.00)"] * 2 + ["1.00"]) == is_first
