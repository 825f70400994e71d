"""Benchmarks whose models take turns."""

import importlib
import sys
from itertools import pairwise
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MARKED = "# A card\n\n<!-- benchmark: begin -->\nOld.\n\n{}\n<!-- benchmark: end -->\n\nMore.\n"


@pytest.fixture
def load(monkeypatch):
    """Import a benchmark, and forget it after: examples have modules of the same names."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    # They set these for their own process. With the first, forks of later tests would wait for threads they lack.
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    names = [path.stem for path in BENCHMARKS.glob("*.py")]
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_all_have_a_turn_before_any_has_its_second(load):
    measuring, order = load("measuring"), []

    def run(name):
        order.append(name)
        return measuring.Cost(len(order), 2 * len(order))

    found = measuring.rounds({name: lambda name=name: run(name) for name in "ab"}, 3)
    assert order == list("ababab")
    assert found["b"].tolist() == [[2, 4], [4, 8], [6, 12]]


def test_who_sleeps_costs_the_processor_nothing(load):
    measuring = load("measuring")
    asleep = measuring.cost(lambda: measuring.time.sleep(0.3))
    assert asleep.processor < 0.2 < 0.3 <= asleep.clock


def test_ratios_are_within_a_round_and_growth_is_a_fit_over_all_lengths(load, monkeypatch):
    benchmark = load("top_down_transformer")
    slow = np.array([1.0, 2.0, 9.0])[:, None]  # how slow the machine is in each round

    def in_turn(names, mode, dtype, length, repeats):
        costs = {"LED": slow * [length**1.5, length], "BART": slow * [2 * length**1.5, 4 * length]}
        return costs, {"LED": 2**30, "BART": 2**31}

    monkeypatch.setattr(benchmark, "in_turn", in_turn)
    rows = benchmark.measure_all(["LED", "BART"], "forward", torch.bfloat16, [4, 16, 64], 3)
    assert rows[3] == [
        *("forward beside LED", "bfloat16", "16", "BART", "256.000 (128.000 to 1152.000)"),
        *("128.000 (64.000 to 576.000)", "2.00", "2.00 (2.00 to 2.00)", "4.00 (4.00 to 4.00)", "2.00"),
    ]
    growth = ["1.50 (1.50 to 1.50)", "1.00 (1.00 to 1.00)", "", "", "", ""]
    assert rows[-1] == ["forward, power of the length", "bfloat16", "4 to 64", "BART", *growth]


def test_generation_writes_as_much_with_every_model(load, monkeypatch):
    benchmark, written = load("top_down_transformer"), {}
    for name, value in {"WIDTH": 24, "INNER": 32, "HEADS": 2, "LAYERS": 2}.items():
        monkeypatch.setattr(benchmark, name, value)
    for name, (make_config, make_model) in dict(benchmark.GENERATORS).items():

        class Watched(make_model):
            def generate(self, *args, name=name, **kwargs):
                written[name] = super().generate(*args, **kwargs)

        benchmark.GENERATORS[name] = (make_config, Watched)
        run = benchmark._make(name, "generation", torch.float32, 600)
        run()
        run()
    assert {tuple(ids.shape) for ids in written.values()} == {(1, benchmark.WRITTEN + 1)}
    assert written.keys() == benchmark.GENERATORS.keys()


@pytest.mark.parametrize(("header", "kept"), [("old | header", []), ("model | time", ["| LED | 2 |"])])
def test_rows_that_were_not_measured_stay_unless_the_header_has_changed(load, tmp_path, header, kept):
    card = tmp_path / "card.md"
    card.write_text(MARKED.format(f"| {header} |\n| --- | --- |\n| LED | 2 |\n| BART | 3 |"), encoding="utf-8")
    load("measuring").update(card, "Old.", ["model", "time"], [["BART", "4"]], keys=1)
    table = "\n".join(["| model | time |", "| --- | --- |", *kept, "| BART | 4 |"])
    assert card.read_text(encoding="utf-8") == MARKED.format(table)


def test_cells_that_were_not_measured_stay(load, tmp_path):
    card, header = tmp_path / "card.md", "| sentences | Model 3 | Model 0 |\n| --- | --- | --- |\n"
    card.write_text(MARKED.format(f"{header}| 10 | 1 ms | 2 ms |"), encoding="utf-8")
    rows = [["10", "3 ms", "–"], ["100", "4 ms", "–"]]
    load("measuring").update(card, "Old.", ["sentences", "Model 3", "Model 0"], rows, keys=1)
    assert card.read_text(encoding="utf-8") == MARKED.format(f"{header}| 10 | 3 ms | 2 ms |\n| 100 | 4 ms | – |")


def test_the_speed_of_the_processor_does_not_tell_its_row_from_others(load, monkeypatch):
    pytest.importorskip("aclsum")
    benchmark, keys = load("hat_bart"), set()
    for slow in (1, 2):
        monkeypatch.setattr(benchmark, "medians", lambda runs, repeats, slow=slow: dict.fromkeys(runs, slow))
        [cells] = benchmark.processor_rows(1)
        assert len(cells) == len(benchmark.HEADER)
        assert "M characters/s" in cells[3]
        keys.add(tuple(cells[:2]))
    assert len(keys) == 1


@pytest.mark.parametrize(
    "name", ["coarse_to_fine_lstm", "ham", "hat_bart", "hat_encoder", "highlight_transformer", "top_down_transformer"]
)
def test_a_card_of_another_machine_is_refused_before_anything_is_measured(load, monkeypatch, tmp_path, name):
    benchmark, card = load(name), tmp_path / "card.md"
    card.write_text(MARKED.format("| model | time |\n| --- | --- |\n| BART | 3 |"), encoding="utf-8")
    for function in {"measure", "measure_all", "size_rows"} & vars(benchmark).keys():
        monkeypatch.setattr(benchmark, function, lambda *args: pytest.fail("measured"))
    monkeypatch.setattr(sys, "argv", [name, "--update", str(card)])
    with pytest.raises(SystemExit, match="of another setting or machine"):
        benchmark.main()


def test_a_table_of_another_machine_is_left_alone(load, tmp_path):
    card = tmp_path / "card.md"
    card.write_text(MARKED.format("| model | time |\n| --- | --- |\n| BART | 3 |"), encoding="utf-8")
    before = card.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match=r"of another setting or machine: Old\."):
        load("measuring").update(card, "New.", ["model", "time"], [["BART", "4"]], keys=1)
    assert card.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_is_measured_in_the_number_format_of_its_name(load, monkeypatch, dtype):
    benchmark, made = load("end_to_end"), []

    def pipeline(*args, **kwargs):
        made.append(benchmark.transformers.pipeline(*args, **kwargs))
        return made[0]

    monkeypatch.setattr(benchmark, "pipeline", pipeline)
    name = "hat_bart" if dtype == torch.float32 else "hat_bart_bfloat16"
    summarize = benchmark.with_pipeline(name, benchmark.TINY, 3)
    assert {parameter.dtype for parameter in made[0].model.parameters()} == {dtype}
    assert summarize(benchmark.documents(1, 40), 1)[1] == 3


@pytest.mark.parametrize(("modes", "want"), [(["forward", "training"], "Encoders alone"), (["generation"], "Gen")])
def test_a_table_is_headed_by_what_was_measured(load, modes, want):
    assert load("top_down_transformer").heading(modes).startswith(want)


@pytest.mark.parametrize(("name", "want"), [("LongT5 global", 0.0), ("LongT5 local with attention dropout", 0.1)])
def test_longt5_drops_attention_weights_where_its_name_says_so(load, monkeypatch, name, want):
    benchmark = load("top_down_transformer")
    for constant, value in {"WIDTH": 24, "INNER": 32, "HEADS": 2, "LAYERS": 2}.items():
        monkeypatch.setattr(benchmark, constant, value)
    modules = benchmark.make_encoder(name, 600).modules()
    found = [
        module.dropout for module in modules if type(module).__name__.endswith(("LocalAttention", "GlobalAttention"))
    ]
    assert found == [want, want]


def test_the_slowest_of_a_hundred_is_not_the_99th_percentile(load):
    late = load("serving").late
    assert late([*range(1, 101)]) == 99
    assert late([*range(1, 51)]) == 50
    assert late([7]) == 7


def test_encoding_is_the_median_of_repeats_after_one_to_warm_up(load, monkeypatch):
    benchmark, taken = load("coarse_to_fine_lstm"), iter([100.0, 3.0, 1.0, 2.0])
    monkeypatch.setattr(benchmark.Encoded, "_encode", lambda self: None)
    monkeypatch.setattr(benchmark, "seconds", lambda run: next(taken))
    assert benchmark.Encoded("Model 0", MagicMock(), 1, 2, repeats=3, budget=9).seconds == 2


def test_the_column_of_ratios_names_the_depth_that_is_compared_with(load, monkeypatch, capsys):
    benchmark = load("ham")
    monkeypatch.setattr(benchmark, "measure", lambda arguments: [])
    monkeypatch.setattr(sys, "argv", ["ham", "--depths", "5", "10"])
    benchmark.main()
    assert "| times depth 5 |" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "want"), [(300, 250), (250, 250), (200, 200), (12, 12)])
def test_papers_are_chosen_at_equal_distances(load, monkeypatch, tmp_path, count, want):
    measuring, folder = load("measuring"), tmp_path / "dataset" / "paper_jsons"
    folder.mkdir(parents=True)
    for number in range(250):
        (folder / f"{number:03}.json").write_text(str(number), encoding="utf-8")
    monkeypatch.setattr(measuring, "files", lambda package: tmp_path)
    found = measuring.papers(count)
    assert len(found) == want
    assert {after - before for before, after in pairwise(found)} == {max(1, 250 // count)}
