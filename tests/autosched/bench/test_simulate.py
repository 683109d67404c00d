"""`autosched simulate`: replayed tables, what is told of them, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from autosched.bench.simulated.figures import best_so_far, figures
from autosched.bench.simulated.replayed import ReplayedTable, replay
from autosched.bench.simulated.running import Simulation, check, simulate
from autosched.bench.simulated.score import expected_of_random, score, scored_range
from autosched.bench.simulated.strategies import STRATEGIES, RandomSearch
from autosched.cli.commands import app
from autosched.machine.blas_threads import one_in_new_processes
from log_records import record
from recorded_tables import small_table
from search_spaces import InputError
from search_spaces.schedules.plain_space import Point
from tuning_logs import TuningLog
from tuning_logs.exchange.files import write_table

TABLE = ReplayedTable.of(small_table(), "small")
# Ten configurations that take 1 to 10 seconds.
TEN = np.arange(1.0, 11.0)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_table(tmp_path / "small.json.gz", small_table(), "kernel-tuner")
    return tmp_path / "small.json.gz"


def test_a_table_is_scored_where_random_search_comes_near_its_optimum() -> None:
    # 1 % of the way from the median, 5.5, to 1 is 5.455, which rank 5 from the worst reaches: 5 / (11 - 5) draws. 95 %
    # is 1.225, which only the optimum reaches; one rank before it takes 8 / (11 - 8) draws.
    assert scored_range(TEN) == (1, 3)


def test_random_search_is_expected_at_the_rank_of_its_best_draw() -> None:
    # Ranks 11 / 2, 22 / 3 and 33 / 4 from the worst.
    assert expected_of_random(TEN, np.array([1, 2, 3])).tolist() == [4, 3, 2]


def test_the_score_is_the_mean_part_of_the_way_from_random_to_the_optimum() -> None:
    # 4, 1 and 1 where 4, 3 and 2 are expected: 0 of 3, 2 of 2 and 1 of 1.
    assert score(TEN, [np.array([4.0, 1.0, 7.0])], 400) == pytest.approx(2 / 3)


def test_the_score_looks_at_the_median_of_the_runs_and_holds_what_a_short_one_found() -> None:
    runs = [np.array([4.0, 1.0, 7.0]), np.array([np.inf]), np.array([4.0, 2.0])]
    # 4, then the median rank of 1 and 2: half a rank, which is rounded to the even one; so 4, 1, 1.
    assert score(TEN, runs, 400) == pytest.approx(2 / 3)


def test_a_smaller_budget_ends_the_range() -> None:
    assert score(TEN, [np.array([4.0, 1.0])], 2) == pytest.approx(1 / 2)


def test_where_everything_is_the_optimum_the_score_is_one() -> None:
    assert score(np.ones(1), [np.ones(1)], 400) == 1
    assert score(np.ones(5), [np.ones(5)], 400) == 1


def test_the_best_so_far_begins_at_the_first_success_and_is_held_at_the_end() -> None:
    assert best_so_far(1.0, np.array([np.inf, 4.0, 5.0, 2.0]), 6).tolist() == [0, 0.25, 0.25, 0.5, 0.5, 0.5]


def test_figures_are_medians_over_the_runs() -> None:
    rows = {point: row for row, point in enumerate(TABLE.points)}
    best, worse = rows[64, 2, 1], rows[64, 1, 1]
    found = figures(TABLE, "any", [[worse, best], [worse, worse, best], [worse]], budget=30, search_s=1.2)
    assert found.fractions == {25: 1.0}
    assert found.evaluations == {0.9: 3, 0.95: 3, 0.99: 3}
    assert found.reached == {0.9: 2, 0.95: 2, 0.99: 2}
    assert found.curve[:, 0].tolist() == [0.5, 0.5, 0.5]
    assert found.seconds_each == pytest.approx(0.2)


def test_a_replay_measures_every_point_once_and_no_more_than_the_budget() -> None:
    everything = replay(TABLE, RandomSearch(TABLE.space, 0), 400, to_the_end=True)
    assert sorted(everything) == list(range(24))
    assert replay(TABLE, RandomSearch(TABLE.space, 0), 7, to_the_end=True) == everything[:7]


def test_a_replay_ends_where_the_optimum_was_measured() -> None:
    class OneByOne(RandomSearch):
        def ask(self, count: int) -> list[Point]:
            return super().ask(1)

    rows = replay(TABLE, OneByOne(TABLE.space, 0), 400)
    assert TABLE.seconds[rows].min() == TABLE.ascending[0]
    assert TABLE.seconds[rows[:-1]].min() > TABLE.ascending[0]


def test_a_search_that_proposes_nothing_new_is_stopped() -> None:
    class Stuck(RandomSearch):
        def ask(self, count: int) -> list[Point]:
            return [TABLE.points[0]]

    assert replay(TABLE, Stuck(TABLE.space, 0), 20) == [0]


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_processes_find_what_one_process_finds(strategy: str) -> None:
    plan = Simulation([TABLE], strategy, budget=8, seeds=2)
    alone, shared = ([dataclasses.replace(f, seconds_each=0.0) for f in simulate(plan, jobs)] for jobs in (1, 2))
    assert [f.to_json() for f in alone] == [f.to_json() for f in shared]


def test_history_is_what_a_search_measures_of_the_other_table() -> None:
    other = ReplayedTable.of(small_table("Another GPU", slower=2.0), "other")
    (found,) = simulate(Simulation([TABLE], budget=12, seeds=1, sources=[other], source_budget=6))
    assert found.runs == 1


def test_a_table_is_no_history_of_itself_whatever_it_is_called() -> None:
    unknown = dataclasses.replace(TABLE, names=("block", "unroll", "vector"), name="other")
    assert check(Simulation([TABLE], sources=[unknown])) == ["small is searched cold: a table is no history of itself"]


def test_a_history_without_a_knob_of_the_table_is_refused() -> None:
    lacks = dataclasses.replace(TABLE, seconds=2 * TABLE.seconds, names=("block", "unroll", "vector"))
    with pytest.raises(InputError, match="small is no history for small: expected a value of the knob shared"):
        check(Simulation([TABLE], sources=[lacks]))


def test_a_history_that_does_not_tell_its_device_is_told_of() -> None:
    unknown = dataclasses.replace(TABLE, name="unknown", device="", seconds=2 * TABLE.seconds)
    assert check(Simulation([TABLE], sources=[unknown])) == ["unknown does not name its device"]


def test_a_history_with_other_values_is_told_of() -> None:
    values = (TABLE.values[0][:3], *TABLE.values[1:])
    fewer = dataclasses.replace(
        TABLE, name="fewer", values=values, points=TABLE.points[:18], seconds=TABLE.seconds[:18]
    )
    assert check(Simulation([fewer], sources=[TABLE])) == [
        "small for fewer: 6 of 24 points with values that the space has not were left out"
    ]


def test_the_command_prints_a_line_for_each_table_and_their_mean(tmp_path: Path, small: Path) -> None:
    write_table(tmp_path / "other.json", small_table(), "t4")
    shown = run(str(small), str(tmp_path / "other.json"), "--seeds", "2", "--budget", "50", "--jobs", "1")
    assert shown.exit_code == 0, shown.output
    head, *lines = shown.output.splitlines()
    assert head.split() == ["table", "@25", "@50", "to", "90%", "to", "95%", "to", "99%", "score", "ms", "each"]
    assert [line.split()[0] for line in lines] == ["small", "other", "mean"]


def test_the_command_prints_json(small: Path) -> None:
    shown = run(str(small), "--seeds", "2", "--budget", "24", "--strategy", "random", "--jobs", "1", "--json")
    told = json.loads(shown.output)
    assert told["tables"][0]["evaluations"].keys() == {"90%", "95%", "99%"}
    assert len(told["tables"][0]["curve"]["median"]) == 24
    assert told["tables"][0]["curve"]["median"][-1] == 1.0
    assert told["mean"]["score"] == told["tables"][0]["score"]


def test_our_own_logs_are_tables_one_for_each_kernel(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "tuning.jsonl")
    log.append(*(record(tile, tile * 1e-3) for tile in (1, 2, 4, 8)))
    shown = run(str(log.path), "--seeds", "1", "--strategy", "random", "--jobs", "1")
    assert shown.output.splitlines()[1].split()[0] == "tuning"


def test_the_plot_is_drawn(tmp_path: Path, small: Path) -> None:
    pytest.importorskip("matplotlib")
    shown = run(str(small), "--seeds", "2", "--budget", "10", "--jobs", "1", "--plot", str(tmp_path / "curves.svg"))
    assert shown.exit_code == 0, shown.output
    assert "median of 2" in (tmp_path / "curves.svg").read_text()


def test_without_matplotlib_the_plot_names_the_extra(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    shown = run(str(small), "--plot", "curves.png")
    assert shown.exit_code == 2
    assert 'pip install "autosched[plot]"' in shown.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budget", "0"], "--budget 0; expected an integer of at least 1"),
        (["--strategy", "random2"], "did you mean 'random'?"),
        (["--strategy", "recipe", "--history", "absent.json"], "--strategy recipe takes no history"),
        (["--plot", "curves.doc"], "expected a name that ends in one of"),
        (["--history-budget", "40"], "expected --history TABLE, too"),
        (["--history", "absent.json"], "cannot read absent.json"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(small: Path, arguments: list[str], said: str) -> None:
    shown = run(str(small), *arguments)
    assert shown.exit_code == 2
    assert said in shown.output


def test_a_table_in_which_nothing_succeeded_is_refused(tmp_path: Path) -> None:
    table = small_table()
    failed = dataclasses.replace(table, trials=tuple(t for t in table.trials if t.seconds is None))
    write_table(tmp_path / "failed.json", failed, "t4")
    shown = run(str(tmp_path / "failed.json"))
    assert shown.exit_code == 2
    assert "none of its 3 configurations succeeded" in shown.output


def test_processes_take_one_thread_each_and_this_one_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with one_in_new_processes():
        assert os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_a_process_that_replays_imports_no_compiler_and_not_pytorch() -> None:
    script = "import autosched.bench.simulated.running, sys; print({'torch', 'triton', 'llvmlite'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "set()\n"
