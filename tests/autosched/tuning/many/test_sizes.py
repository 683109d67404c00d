"""One search for several sizes of an operator: what they lend each other, where thresholds lie, what is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import autosched
from autosched import DynamicOperator, DynamicOperatorKernel
from autosched.replaying.measured_sizes import lent, with_measured_sizes
from cost_models import bound_s
from search_spaces import InputError, Schedule, ops
from several_searches import TARGET
from sized_measurer import LARGE_K, SMALL_K, TURN, SizedMeasurer, made_up_latency
from tuning_logs import TuningLog
from tuning_logs.ranking import tied_with


def product(*points: int) -> DynamicOperator:
    return autosched.dynamic(lambda m: ops.matmul(m, 256, 256), points)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


def tuned(log: Path, operator: DynamicOperator, measurer: SizedMeasurer, **rest: Any) -> autosched.TracedTuneResult:
    arguments: dict[str, Any] = {"trials": 48, "history": (), "cost_model": "random", **rest}
    return autosched.tune(operator, TARGET, log=log, measurer=measurer, **arguments)


def table_of(result: autosched.TracedTuneResult) -> Mapping[int, Schedule]:
    """The schedule of every size that was measured."""
    operator = result.traced
    assert isinstance(operator, DynamicOperator)
    best = {r.workload.key: r.best.schedule for r in result.results if r.best is not None}
    return {size: best[operator.at(size).key] for size in operator.sizes}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[int, Schedule]]:
    """The log of a search at three sizes, and its table."""
    log = tmp_path_factory.mktemp("sizes") / "tuning.jsonl"
    return log, table_of(tuned(log, product(16, 64, 256), SizedMeasurer()))


def test_thresholds_lie_where_another_schedule_becomes_faster(searched: tuple[Path, Mapping[int, Schedule]]) -> None:
    _, table = searched
    assert {size: schedule.knobs.tile("k") for size, schedule in table.items()} == {
        16: SMALL_K,
        32: SMALL_K,
        45: LARGE_K,
        64: LARGE_K,
        256: LARGE_K,
    }
    assert max(size for size in table if size <= TURN) == 32


def test_between_sizes_with_one_schedule_nothing_is_measured(log: Path) -> None:
    measurer = SizedMeasurer()
    table = table_of(tuned(log, product(64, 256), measurer, trials=24))
    assert [*table] == [64, 256]
    assert {rows for rows, _ in measurer.compared} == {64, 256}


def test_no_size_is_left_with_less_than_the_schedule_of_the_largest(log: Path) -> None:
    operator, measurer = product(48, 64, 256), SizedMeasurer()
    autosched.tune(operator.at(256), TARGET, 32, log=log, measurer=SizedMeasurer(), history=())
    table = table_of(tuned(log, operator, measurer, trials=1, strategy="random"))
    for size in (48, 64):
        workload = operator.at(size)
        (single,) = lent(workload, TARGET, [table[256]])
        (alone,) = (made_up_latency(workload, s) for rows, s in measurer.tried if rows == size)
        assert made_up_latency(workload, table[size]) == made_up_latency(workload, single) < alone


def test_what_is_fastest_at_a_size_is_measured_at_those_beside_it(log: Path) -> None:
    operator, measurer = product(64, 128, 256), SizedMeasurer()
    tuned(log, operator, measurer, trials=4, strategy="random")
    for size, other in [(64, 128), (128, 64), (128, 256), (256, 128)]:
        tried = [s for rows, s in measurer.tried if rows == other]
        best = min(tried, key=lambda s: made_up_latency(operator.at(size), s))
        (finals,) = (compared for rows, compared in measurer.compared if rows == size)
        assert {*lent(operator.at(size), TARGET, [best])} <= {*finals}


def test_a_second_call_asks_nothing_of_a_measurer(searched: tuple[Path, Mapping[int, Schedule]]) -> None:
    log, table = searched
    before, measurer = log.read_bytes(), SizedMeasurer()
    again = tuned(log, product(16, 64, 256), measurer)
    assert (measurer.tried, measurer.compared) == ([], [])
    assert table_of(again) == table
    assert log.read_bytes() == before


def test_the_table_follows_from_the_log(searched: tuple[Path, Mapping[int, Schedule]]) -> None:
    log, table = searched
    operator, records = product(16, 64, 256), TuningLog(log)

    def best(size: int) -> list[Schedule]:
        found = records.best(operator.at(size), TARGET)
        return tied_with(found, records.records(operator.at(size), TARGET)) if found else []

    found, missing = with_measured_sizes(operator, TARGET, best)
    assert (list(found.sizes), missing) == ([*table], [])
    assert {size: best(size)[0] for size in found.sizes} == table


def test_what_was_tuned_alone_is_compared_with_the_largest_too(log: Path) -> None:
    operator, measurer = product(64, 256), SizedMeasurer()
    autosched.tune(operator.at(64), TARGET, 4, log=log, measurer=SizedMeasurer(), strategy="random")
    result = tuned(log, operator, measurer, trials=4, strategy="random")
    (finals,) = (compared for rows, compared in measurer.compared if rows == 64)
    assert {*lent(operator.at(64), TARGET, [table_of(result)[256]])} <= {*finals}


def test_time_that_is_over_leaves_thresholds_at_the_points(log: Path) -> None:
    result = tuned(log, product(16, 256), SizedMeasurer(), seconds=1e-6)
    assert all(r.best is not None for r in result.results)
    assert [*table_of(result)] == [16, 256]
    assert len(table_of(tuned(log, product(16, 256), SizedMeasurer()))) > 2


def test_small_sizes_weigh_as_much_as_large_ones(log: Path) -> None:
    operator = product(16, 256)
    result = tuned(log, operator, SizedMeasurer(), trials=4, strategy="random")
    weights = {s.result.workload.key: s.weight for s in result.spent}
    relative = [weights[operator.at(size).key] * bound_s(operator.at(size), TARGET) for size in operator.points]
    assert relative == pytest.approx([1.0, 1.0])


def test_any_size_is_served_by_the_schedule_of_the_next_larger_one(tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    operator = autosched.dynamic(lambda m: ops.gelu_scale(64 * m), (1, 16))
    made = autosched.tune(operator, "cpu", 3, log=log, history=()).kernel
    again = autosched.replay(operator, "cpu", log=log)
    assert isinstance(made, DynamicOperatorKernel)
    assert isinstance(again, DynamicOperatorKernel)
    assert again.table == made.table
    assert f"up to 16: {made.table[-1][1].one_line}" in str(again)
    for size in (16, 7, 20):
        x = torch.randn(64 * size)
        torch.testing.assert_close(again(x), torch.nn.functional.gelu(x) * 2.0)
    strict = autosched.replay(operator, "cpu", log=log, strict=True)
    with pytest.raises(InputError, match=r"strict: .* was not tuned; expected one of the sizes 1, .*16"):
        strict(torch.randn(64 * 7))
