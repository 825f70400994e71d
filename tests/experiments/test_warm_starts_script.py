"""examples/experiments/warm_starts.py: its command line."""

import pytest

from tests.experiments.scripts import load_script


@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("--nothing", 2)])
def test_options_are_no_checkpoints(monkeypatch, capsys, option, code):
    monkeypatch.setattr("sys.argv", ["warm_starts.py", option])
    with pytest.raises(SystemExit) as stopped:
        load_script("warm_starts").main()
    assert stopped.value.code == code
    assert "usage: warm_starts.py" in "".join(capsys.readouterr())
