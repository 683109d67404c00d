"""Several searches over one session: who gets the trials, what is logged and resumed, what one shares with others."""

from __future__ import annotations

import signal
import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import autosched
from autosched.backends import spaces
from autosched.machine.policies import Policy
from autosched.measuring import UnfitWorkloadError
from autosched.strategies.random import Random
from cost_models import CostModel, SharedModel, bound_s
from cost_models.roofline_model import RooflineModel
from search_spaces import InputError, Schedule, SearchSpace, TargetUnavailableError, Workload, ops
from search_spaces.devices.target import cpu
from tuning_logs import Measurement, TuningLog, TuningRecord

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
SMALL, LARGE = ops.matmul(64, 64, 64), ops.matmul(256, 256, 256)
ROWS = ops.softmax(64, 256)


class FakeMeasurer:
    """Answers at once: a latency of microseconds that the schedule alone decides, and the flops of the workload."""

    environment = (("device", "Imaginary CPU"),)

    def __init__(self, overlaps: bool = False, unfit: Sequence[Workload] = (), broken: Sequence[Workload] = ()) -> None:
        self.overlaps = overlaps
        self.submitted: list[Workload] = []
        self.remeasured: list[Workload] = []
        self._unfit = {workload.key for workload in unfit}
        self._broken = {workload.key for workload in broken}

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        self.submitted += [workload] * len(schedules)
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for schedule, future in zip(schedules, futures, strict=True):
            if workload.key in self._unfit:
                future.set_exception(UnfitWorkloadError(f"{workload.label}: too large"))
            else:
                future.set_result(self._one(workload, schedule))
        return futures

    def _one(self, workload: Workload, schedule: Schedule) -> Measurement:
        if workload.key in self._broken:
            return Measurement("compile_error", detail="made up")
        made_up = 1000 + zlib.crc32(schedule.one_line.encode()) % 9000
        return Measurement("ok", (float(f"{made_up * workload.flops * 1e-14:.6g}"),))

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        self.remeasured.append(workload)
        return [self._one(workload, schedule) for schedule in schedules]

    def cancel(self) -> None:
        pass


class Alike(FakeMeasurer):
    """All workloads take the same: what is launched twice takes twice as long."""

    def _one(self, workload: Workload, schedule: Schedule) -> Measurement:
        return Measurement("ok", (1e-5 + 1e-9 * (zlib.crc32(schedule.one_line.encode()) % 100),))


class AtTheRoofline(FakeMeasurer):
    """Nothing can be any faster."""

    def _one(self, workload: Workload, schedule: Schedule) -> Measurement:
        return Measurement("ok", (float(f"{bound_s(workload, TARGET):.6g}"),))


def softmax_and_sum(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In one kernel, or in two."""
    return torch.softmax(x, -1), torch.logsumexp(x, -1)


def apart(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In two kernels."""
    return torch.softmax(x, -1), torch.cumsum(y, 0)


def search(log: Path, measurer: FakeMeasurer, trials: int, *given: object, **rest: object) -> autosched.TuneManyResult:
    arguments = {"strategy": "random", "cost_model": "random", **rest}
    return autosched.tune_many(given, TARGET, trials, log=log, measurer=measurer, **arguments)  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


def trials_of(log: Path, workload: Workload) -> list[TuningRecord]:
    return [r for r in TuningLog(log).records(workload, TARGET) if not r.provenance.finals]


def test_all_kernels_together_are_given_the_trials(log: Path) -> None:
    result = search(log, FakeMeasurer(), 96, (SMALL, 1), (LARGE, 1))
    counts = [len(trials_of(log, op)) for op in (SMALL, LARGE)]
    assert sum(counts) == result.trials_done == 96
    assert [r.trials_done for r in result.results if isinstance(r, autosched.TuneResult)] == counts


def test_few_trials_reach_every_kernel(log: Path) -> None:
    assert [s.result.trials_done for s in search(log, FakeMeasurer(), 8, (SMALL, 1), (LARGE, 1)).spent] == [4, 4]


def test_the_kernel_that_weighs_most_gets_most_of_them(log: Path) -> None:
    search(log, FakeMeasurer(), 320, (SMALL, 1), (LARGE, 1))
    assert len(trials_of(log, SMALL)) < len(trials_of(log, LARGE))


def test_a_weight_turns_that_around(log: Path) -> None:
    search(log, FakeMeasurer(), 320, (SMALL, 1000), (LARGE, 1))
    assert len(trials_of(log, SMALL)) > len(trials_of(log, LARGE))


def test_the_log_of_each_is_as_from_tune(log: Path, tmp_path: Path) -> None:
    search(log, FakeMeasurer(), 64, (SMALL, 1), (ROWS, 1))
    trials = trials_of(log, ROWS)
    other = tmp_path / "alone.jsonl"
    autosched.tune(
        ROWS, TARGET, len(trials), log=other, measurer=FakeMeasurer(), strategy="random", cost_model="random"
    )
    alone = trials_of(other, ROWS)
    assert [(r.schedule, r.measurement.latency_s) for r in trials] == [
        (r.schedule, r.measurement.latency_s) for r in alone
    ]
    assert [r.provenance.trial for r in trials] == list(range(len(trials)))


def test_a_second_call_asks_nothing_of_a_measurer(log: Path) -> None:
    first = search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 2))
    before = log.read_bytes()
    second = search(log, cast(FakeMeasurer, object()), 64, (SMALL, 1), (LARGE, 2))
    assert (second.trials_done, second.trials_known) == (0, 64)
    assert second.weighted_s == first.weighted_s
    assert log.read_bytes() == before


def test_tune_goes_on_with_what_was_tuned_together(log: Path) -> None:
    search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 1))
    known = len(trials_of(log, SMALL))
    result = autosched.tune(
        SMALL, TARGET, known + 5, log=log, measurer=FakeMeasurer(), strategy="random", cost_model="random"
    )
    assert (result.trials_known, result.trials_done) == (known, 5)


def test_batches_of_several_searches_are_under_way_at_once(log: Path) -> None:
    class Slow(FakeMeasurer):
        """Keeps everything until three batches are under way, or none is left to come."""

        def __init__(self) -> None:
            super().__init__(overlaps=True)
            self.kept: list[tuple[Future[Measurement], Measurement]] = []
            self.together: set[str] = set()

        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            self.together.add(workload.key)
            futures: list[Future[Measurement]] = [Future() for _ in schedules]
            self.kept += zip(futures, (self._one(workload, s) for s in schedules), strict=True)
            if len(self.kept) == 48:
                for future, measurement in self.kept:
                    future.set_result(measurement)
            return futures

    measurer = Slow()
    search(log, measurer, 48, (SMALL, 1), (LARGE, 1), (ROWS, 1))
    assert len(measurer.together) == 3


def test_a_kernel_whose_inputs_do_not_fit_takes_no_other_along(log: Path) -> None:
    result = search(log, FakeMeasurer(unfit=[LARGE]), 64, (SMALL, 1), (LARGE, 1))
    small, large = result.results
    assert isinstance(small, autosched.TuneResult)
    assert isinstance(large, autosched.TuneResult)
    assert (small.trials_done, large.trials_done, large.best, large.ending) == (64, 0, None, "unfit")


def test_a_kernel_of_which_every_trial_fails_is_given_up(log: Path) -> None:
    result = search(log, FakeMeasurer(broken=[LARGE]), 200, (SMALL, 1), (LARGE, 1))
    assert len(trials_of(log, LARGE)) == 48
    assert len(trials_of(log, SMALL)) == 152
    assert "no kernel" in str(result)


def test_what_has_no_schedule_is_left_out_and_named(log: Path) -> None:
    nothing = ops.matmul(64, 64, 64, dtype="float8_e4m3fn")
    result = search(log, FakeMeasurer(), 32, (nothing, 1), (SMALL, 1))
    assert result.results[0] is None
    assert [label for label, _ in result.refused] == [nothing.label]
    assert nothing.label in str(result)
    assert result.trials_done == 32


def test_the_sum_says_what_it_leaves_out(log: Path) -> None:
    result = search(log, FakeMeasurer(broken=[LARGE]), 200, (SMALL, 1), (LARGE, 1))
    assert result.without_kernel == (LARGE.label,)
    assert f"weighted, without {LARGE.label}: no kernel (" in str(result)


def test_a_way_to_cut_a_function_that_was_not_tried_is_nothing_left_out(log: Path) -> None:
    traced = autosched.trace(softmax_and_sum, torch.empty(64, 256))
    result = search(log, AtTheRoofline(), 64, traced)
    assert any(s.result.best is None for s in result.spent)
    assert result.without_kernel == ()


def test_when_none_succeeds_the_result_says_so_of_each(log: Path) -> None:
    result = search(log, FakeMeasurer(broken=[SMALL, LARGE]), 200, (SMALL, 1), (LARGE, 1))
    assert result.without_kernel == (SMALL.label, LARGE.label)
    assert (result.weighted_s, result.trials_done) == (0.0, 96)


def test_what_is_given_twice_is_tuned_once_and_counts_twice(log: Path) -> None:
    result = search(log, FakeMeasurer(), 32, (SMALL, 1), (SMALL, 2))
    first, second = result.results
    assert first is second
    assert [s.weight for s in result.spent] == [3.0]
    assert result.trials_done == 32


def test_a_torn_line_of_the_log_costs_its_trial_alone(log: Path) -> None:
    search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 1))
    lines, latencies = log.read_text().splitlines(), [r.measurement.latency_s for r in TuningLog(log)]
    # The slowest is in no finals, which would tell of it too.
    slowest = latencies.index(max(latencies))
    lines[slowest] = lines[slowest][:40]
    log.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match="line"):
        result = search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 1))
    assert (result.trials_known, result.trials_done) == (63, 1)


def test_the_first_batch_of_a_resumed_search_is_that_of_the_first_run(log: Path) -> None:
    first = search(log, FakeMeasurer(), 96, (SMALL, 1), (LARGE, 1))
    second = search(log, FakeMeasurer(), 160, (SMALL, 1), (LARGE, 1))
    assert [s.first_s for s in second.spent] == [s.first_s for s in first.spent]
    trials = [r.measurement.latency_s for r in trials_of(log, SMALL)[:16]]
    assert min(trials) in [s.first_s for s in first.spent]


class Once(Random):
    """Has nothing more to propose for one workload after a batch."""

    def __init__(self, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> None:
        super().__init__(space, cost_model, rng)
        self._over = False

    def ask(self, count: int) -> list[Schedule]:
        asked = [] if self._over else super().ask(count)
        self._over = self._space.workload.key == SMALL.key
        return asked


def test_a_search_that_has_nothing_left_to_propose_leaves_its_turn_to_others(log: Path) -> None:
    result = search(log, FakeMeasurer(overlaps=True), 96, (SMALL, 100), (LARGE, 1), strategy=Once)
    assert [s.result.ending for s in result.spent] == ["exhausted", "trials"]
    assert [sum(turn.trials for turn in s.turns) for s in result.spent] == [16, 80]


def test_a_measurer_that_breaks_keeps_what_was_measured(log: Path) -> None:
    class Breaks(FakeMeasurer):
        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            if len(self.submitted) >= 32:
                raise TargetUnavailableError("the device fell off the bus")
            return super().submit(workload, schedules)

    with pytest.raises(TargetUnavailableError, match="fell off"):
        search(log, Breaks(), 96, (SMALL, 1), (LARGE, 1))
    assert len(list(TuningLog(log))) == 32


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_ctrl_c_ends_all_searches_and_keeps_what_was_measured(log: Path) -> None:
    class Interrupted(FakeMeasurer):
        def submit(
            self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
        ) -> list[Future[Measurement]]:
            futures = super().submit(workload, schedules)
            if workload.key == LARGE.key:
                signal.raise_signal(signal.SIGINT)
            return futures

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = search(log, Interrupted(), 200, (SMALL, 1), (LARGE, 1), (ROWS, 1))
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.interrupted
    assert [s.result.trials_done for s in result.spent] == [16, 16, 0]
    assert "run it again to go on" in str(result)
    assert search(log, FakeMeasurer(), 200, (SMALL, 1), (LARGE, 1), (ROWS, 1)).trials_done == 168


class Listening(Random):
    """Remembers what it was told of other workloads."""

    heard: ClassVar[set[str]] = set()

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        super().tell(records, elsewhere=elsewhere)
        if elsewhere:
            self.heard |= {r.workload.key for r in records}


def test_similar_kernels_learn_from_each_other(log: Path) -> None:
    Listening.heard = set()
    search(log, FakeMeasurer(), 96, (SMALL, 1), (LARGE, 1), (ROWS, 1), strategy=Listening)
    assert Listening.heard & {SMALL.key, LARGE.key, ROWS.key} == {SMALL.key, LARGE.key}


@pytest.mark.parametrize("history", [None, ()])
def test_a_kernel_begins_with_what_similar_ones_of_the_same_call_found(log: Path, history: tuple[()] | None) -> None:
    told: dict[str, set[str]] = {}

    class Beginning(Random):
        def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
            super().tell(records, elsewhere=elsewhere)
            told.setdefault(self._space.workload.key, {r.workload.key for r in records})

    measurer = FakeMeasurer()
    search(log, measurer, 48, (SMALL, 1), (LARGE, 1), (ROWS, 1), strategy=Beginning, history=history)
    assert told[SMALL.key] == told[ROWS.key] == set()
    assert told[LARGE.key] == {SMALL.key}


class Counted(RooflineModel):
    """Says of everything how many records it was last fitted to."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.fits: list[str] = []
        self._records = 0

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        self.fits.append(space.workload.key)
        self._records = len(records)

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        return np.full(len(schedules), float(self._records))


def test_a_shared_model_knows_of_every_structure_what_was_last_told_of_it(log: Path) -> None:
    search(log, FakeMeasurer(), 32, (SMALL, 1), (ROWS, 1))
    product, rows = (spaces.build(op, TARGET) for op in (SMALL, ROWS))
    schedules = [product.sample(np.random.default_rng(0))]
    model = Counted()
    shared = SharedModel(model)
    shared.fit(product, trials_of(log, SMALL)[:3])
    shared.fit(rows, trials_of(log, ROWS)[:5])
    assert shared.predict(product, schedules)[0] == 3
    assert shared.predict(product, schedules)[0] == 3
    assert model.fits == [SMALL.key, ROWS.key, SMALL.key]


def test_every_turn_of_the_table_says_why_it_was_given(log: Path) -> None:
    result = search(log, FakeMeasurer(), 160, (SMALL, 1), (LARGE, 1))
    assert sum(len(s.turns) for s in result.spent) == len(result.report.split("\n\n")[0].splitlines()) - 1
    assert {turn.why for s in result.spent for turn in s.turns} >= {"first", "improving"}
    assert "1 first" in str(result)


def test_a_kernel_of_a_function_counts_for_every_launch(log: Path) -> None:
    def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.relu(x @ w) @ w)

    traced = autosched.trace(twice, torch.empty(64, 64), torch.empty(64, 64))
    result = search(log, FakeMeasurer(), 32, (traced, 3.0))
    (found,) = result.results
    assert isinstance(found, autosched.TracedTuneResult)
    assert max(s.weight for s in result.spent) == 6.0
    assert found.latency_s is not None
    assert result.weighted_s == pytest.approx(3 * found.latency_s)


def test_a_way_to_cut_a_function_that_is_clearly_slower_gets_no_more_trials(log: Path) -> None:
    traced = autosched.trace(softmax_and_sum, torch.empty(64, 256))
    assert [len(cut.workloads) for cut in traced.cuts] == [1, 2]
    result = search(log, Alike(), 240, traced)
    together, *apart = result.spent
    assert [s.weight for s in apart] == [0.0, 0.0]
    assert together.result.trials_done >= 240 - 32
    assert result.weighted_s == together.weighted_s


def test_a_way_to_cut_a_function_whose_roofline_is_slower_is_not_tried(log: Path) -> None:
    result = search(log, AtTheRoofline(), 64, autosched.trace(softmax_and_sum, torch.empty(64, 256)))
    assert [s.result.trials_done for s in result.spent] == [64, 0, 0]


def test_all_kernels_of_a_traced_function_are_given_the_trials_each(log: Path) -> None:
    traced = autosched.trace(apart, torch.empty(64, 128), torch.empty(128, 32))
    result = autosched.tune(
        traced, TARGET, 20, log=log, measurer=FakeMeasurer(), strategy="random", cost_model="random"
    )
    assert len(result.results) > 1
    assert {r.trials_known + r.trials_done for r in result.results if r.ending != "exhausted"} == {20}


def tune_apart(log: Path, trials: int, measurer: FakeMeasurer, **rest: object) -> autosched.TracedTuneResult:
    traced = autosched.trace(apart, torch.empty(64, 128), torch.empty(128, 32))
    arguments = {"strategy": "random", "cost_model": "random", **rest}
    return autosched.tune(traced, TARGET, trials, log=log, measurer=measurer, **arguments)  # type: ignore[call-overload, no-any-return]


def test_the_kernels_of_a_traced_function_take_turns(log: Path) -> None:
    measurer = FakeMeasurer()
    tune_apart(log, 64, measurer)
    keys = [workload.key for workload in measurer.submitted]
    assert sum(before != after for before, after in pairwise(keys)) > 2


def test_the_kernels_of_a_traced_function_share_one_model(log: Path) -> None:
    models: list[CostModel] = []

    def random_of(space: SearchSpace, model: CostModel, rng: np.random.Generator) -> Random:
        models.append(model)
        return Random(space, model, rng)

    tune_apart(log, 4, FakeMeasurer(), strategy=random_of)
    assert len(models) == 2
    assert models[0] is models[1]


def test_the_report_of_a_traced_function_says_where_the_trials_went_and_why(log: Path) -> None:
    result = tune_apart(log, 64, FakeMeasurer())
    where, turns, *_ = result.report.split("\n\n")
    assert [line.split()[0] for line in where.splitlines()[1:]] == [
        s.result.workload.label.split()[0] for s in result.spent
    ]
    assert "1 first" in where
    assert len(turns.splitlines()) == 1 + sum(len(s.turns) for s in result.spent)


def test_the_report_of_a_traced_function_that_was_known_says_so(log: Path) -> None:
    tune_apart(log, 16, FakeMeasurer())
    again = tune_apart(log, 16, cast(FakeMeasurer, object()))
    assert [(s.result.trials_done, s.result.trials_known, s.turns) for s in again.spent] == [(0, 16, ())] * 2
    assert "16" in again.report


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "at least one"),
        ((("matmul", 1),), "expected an operator such as"),
        (((SMALL, 0),), "positive number"),
        (((SMALL, -1),), "positive number"),
        (((SMALL, float("inf")),), "positive number"),
        (((SMALL, float("nan")),), "positive number"),
        (((SMALL, True),), "positive number"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_written(log: Path, given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(log, FakeMeasurer(), 32, *given)  # type: ignore[misc]
    assert not log.exists()


@pytest.mark.parametrize("ops", [None, SMALL, "gemm", {SMALL: 2.0}], ids=["none", "one", "text", "mapping"])
def test_what_are_not_several_operators_is_refused(log: Path, ops: object) -> None:
    with pytest.raises(InputError, match=r"expected several operators, as \[\(operator, weight\), …\]"):
        autosched.tune_many(ops, TARGET, 32, log=log, measurer=FakeMeasurer())  # type: ignore[arg-type]


def test_a_function_that_pytorch_computes_all_of_has_no_kernel_and_refuses_nothing(log: Path) -> None:
    traced = autosched.trace(torch.linalg.inv, torch.empty(8, 8), allow_fallback=True)
    result = search(log, FakeMeasurer(), 32, traced)
    assert (result.spent, result.refused, result.without_kernel) == ((), (), ())
    assert str(result).startswith("0 kernels on")


def test_progress_counts_the_trials_of_all_together(log: Path) -> None:
    seen: list[autosched.Progress] = []
    search(log, FakeMeasurer(), 64, (SMALL, 1), (LARGE, 1), on_progress=seen.append)
    trials = [p.trials for p in seen if p.phase == "search"]
    assert trials == sorted(trials)
    assert (trials[0], trials[-1], seen[-1].wanted) == (16, 64, 64) or (trials[0], trials[-1]) == (1, 64)
