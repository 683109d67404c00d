"""What a search is made of may be somebody else's: a strategy, a cost model, and the machine that measures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import autosched
import cost_models
from autosched.backends import spaces
from autosched.backends.environment import environment
from autosched.machine.policies import Policy
from autosched.strategies import Stopped
from autosched.tuning.tuner import tune
from cost_models import CostModel, XGBoostModel
from cost_models.roofline import latency_s
from search_spaces import InputError, Schedule, SearchSpace, Workload, ops
from search_spaces.devices.target import cpu
from tuning_logs import Measurement, Provenance, TuningLog, TuningRecord

TARGET = cpu("A CPU of a server", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
OP, OTHER = ops.matmul(64, 64, 64), ops.matmul(128, 64, 96)


class RemoteMeasurer:
    """As one that asks a server would be: it knows what is installed there, and that every schedule takes a while."""

    capacity = 192
    environment = (("torch", "2.9 of the server"), ("device", TARGET.device))

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for schedule, future in zip(schedules, futures, strict=True):
            future.set_result(Measurement("ok", (latency_s(schedule.program, TARGET),)))
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement] | None:
        return [f.result() for f in self.submit(workload, schedules)]

    def cancel(self) -> None:
        pass


class InOrder:
    """A strategy: the schedules of the space as they come, every `step`-th of them."""

    def __init__(self, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator, step: int = 1) -> None:
        self._space, self._step = space, step
        self._left = iter(space)
        self._known: set[Schedule] = set()

    def ask(self, count: int) -> list[Schedule]:
        asked: list[Schedule] = []
        for number, schedule in enumerate(self._left, 1):
            if schedule not in self._known and number % self._step == 0:
                asked.append(schedule)
            if len(asked) == count:
                break
        return asked

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        if not elsewhere:
            self._known |= {r.schedule for r in records}

    @property
    def stopped(self) -> Stopped:
        return Stopped()


class Panels:
    """A cost model that would have b packed in panels. It counts how often it is asked and trained."""

    def __init__(self) -> None:
        self.asked = self.fitted = 0

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        self.fitted += 1

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        self.asked += 1
        return np.array([panelled(s) for s in schedules], dtype=np.float64)

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        return np.zeros(len(schedules))


def panelled(schedule: Schedule) -> bool:
    return schedule.knobs["pack_b"] == "panels"


def tried(log: Path) -> list[Schedule]:
    return [r.schedule for r in TuningLog(log) if not r.provenance.finals]


# Strategies


def test_the_class_of_a_strategy_is_a_strategy(tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    result = tune(OP, TARGET, 20, strategy=InOrder, log=log, measurer=RemoteMeasurer())
    space = spaces.build(OP, TARGET)
    assert tried(log) == [s for s, _ in zip(space, range(20), strict=False)]
    assert result.trials_done == 20
    again = tune(OP, TARGET, 25, strategy=InOrder, log=log, measurer=RemoteMeasurer())
    assert (again.trials_known, again.trials_done) == (20, 5)


def test_a_strategy_takes_what_arguments_it_is_given(tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    tune(OP, TARGET, 5, strategy=partial(InOrder, step=3), log=log, measurer=RemoteMeasurer())
    space = spaces.build(OP, TARGET)
    assert tried(log) == [s for n, s in zip(range(1, 16), space, strict=False) if n % 3 == 0]


def test_every_kernel_of_a_traced_function_has_a_strategy_of_its_own(tmp_path: Path) -> None:
    def two_kernels(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 1) @ x.T

    traced = autosched.trace(two_kernels, torch.randn(16, 24))
    made: list[Workload] = []

    def counted(space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> InOrder:
        made.append(space.workload)
        return InOrder(space, cost_model, rng)

    log = tmp_path / "tuning.jsonl"
    result = tune(traced, TARGET, 1, strategy=counted, cost_model=Panels(), log=log, measurer=RemoteMeasurer())
    assert len(made) == len(result.results) > 1


# Cost models


def test_an_object_steers_a_search_as_a_cost_model(tmp_path: Path) -> None:
    model, log = Panels(), tmp_path / "tuning.jsonl"
    tune(OP, TARGET, 48, cost_model=model, log=log, measurer=RemoteMeasurer())
    assert model.asked
    assert model.fitted
    assert sum(map(panelled, tried(log))) > 0.6 * 48


@pytest.mark.parametrize("arguments", [{"strategy": 7}, {"cost_model": 7}, {"cost_model": XGBoostModel}])
def test_what_is_neither_a_name_nor_of_use_is_refused_before_anything_is_written(
    arguments: dict[str, object], tmp_path: Path
) -> None:
    log = tmp_path / "tuning.jsonl"
    with pytest.raises(InputError, match=r"expected a name \(.*random"):
        tune(OP, TARGET, 5, log=log, measurer=RemoteMeasurer(), **arguments)  # type: ignore[call-overload]  # of many types
    assert not log.exists()


class Forgetful(InOrder):
    """A strategy that knows of no searches but this one."""

    def tell(self, records: Sequence[TuningRecord]) -> None:  # type: ignore[override]  # the mistake under test
        pass


class Uncounted(InOrder):
    stopped = 3  # type: ignore[assignment]  # the mistake under test


class Unsure(Panels):
    failure_chance = None  # type: ignore[assignment]  # the mistake under test


class Spaceless(Panels):
    def predict(self, schedules: Sequence[Schedule]) -> NDArray[np.float64]:  # type: ignore[override]  # as above
        return np.zeros(len(schedules))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": lambda space: InOrder}, "to be called with a search space, a cost model and .*; got <func"),
        ({"strategy": lambda *_: 7}, r"got 7, which has no ask\(count\), no tell\(records\)"),
        ({"strategy": Forgetful}, r"Forgetful.*, which has no tell\(records, elsewhere=…\)$"),
        ({"strategy": Uncounted}, r"Uncounted.*, whose `stopped` is no autosched\.strategies\.Stopped"),
        ({"cost_model": Unsure()}, r"Unsure.*, which has no failure_chance\(space, schedules\)$"),
        ({"cost_model": Spaceless()}, r"Spaceless.*, which has no predict\(space, schedules\)$"),
        ({"cost_model": XGBoostModel}, r"got <class .*XGBoostModel'>, which has no fit\(space, records\), no predict"),
    ],
    ids=("no strategy", "a number", "forgetful", "uncounted", "unsure", "spaceless", "a class"),
)
def test_an_object_of_the_wrong_shape_is_refused_with_what_it_lacks(
    arguments: dict[str, object], message: str, tmp_path: Path
) -> None:
    log = tmp_path / "tuning.jsonl"
    with pytest.raises(InputError, match=message):
        tune(OP, TARGET, 5, log=log, measurer=RemoteMeasurer(), **arguments)  # type: ignore[call-overload]  # of many types
    assert not log.exists()


def records_of(op: Workload, count: int) -> tuple[SearchSpace, list[TuningRecord]]:
    """As a device would give them that cannot run what packs a, and does well with panels of b."""
    space, rng = spaces.build(op, TARGET), np.random.default_rng(0)
    records = []
    for number, schedule in enumerate(dict.fromkeys(space.sample(rng) for _ in range(count))):
        latency = latency_s(space.lower(schedule), TARGET) * (1.5 - 0.5 * panelled(schedule))
        failed = schedule.knobs["pack_a"] != "no"
        measurement = Measurement("run_error", detail="no") if failed else Measurement("ok", (latency,))
        records.append(TuningRecord(op, TARGET, schedule, measurement, Provenance("g", "cold", 0.0, 0, number)))
    return space, records


@pytest.fixture
def saved(tmp_path: Path) -> tuple[XGBoostModel, Path]:
    model, path = XGBoostModel(seed=3), tmp_path / "model.json"
    model.fit(*records_of(OP, 80))
    model.save(path)
    return model, path


def test_a_loaded_model_predicts_what_the_saved_one_does(saved: tuple[XGBoostModel, Path]) -> None:
    model, path = saved
    loaded = XGBoostModel.load(path)
    for op in (OP, OTHER):
        space, records = records_of(op, 40)
        schedules = [r.schedule for r in records]
        assert list(loaded.predict(space, schedules)) == list(model.predict(space, schedules))
        chances = loaded.failure_chance(space, schedules)
        assert chances.any()
        assert list(chances) == list(model.failure_chance(space, schedules))


def test_a_loaded_model_learns_more_and_is_saved_again(saved: tuple[XGBoostModel, Path], tmp_path: Path) -> None:
    loaded, again = XGBoostModel.load(saved[1]), tmp_path / "again.json"
    space, records = records_of(OTHER, 60)
    schedules = [r.schedule for r in records]
    before = loaded.predict(space, schedules)
    loaded.fit(space, records[:4])
    assert list(loaded.predict(space, schedules)) == list(before)
    loaded.fit(space, records)
    after = loaded.predict(space, schedules)
    assert list(after) != list(before)
    loaded.save(again)
    assert list(XGBoostModel.load(again).predict(space, schedules)) == list(after)


def test_what_failed_on_one_device_says_nothing_of_another(saved: tuple[XGBoostModel, Path]) -> None:
    elsewhere = spaces.build(OP, cpu("Another CPU", 8, 1, 32 * 1024, 2**20, 1e11))
    schedules = [elsewhere.sample(np.random.default_rng(0)) for _ in range(20)]
    assert not XGBoostModel.load(saved[1]).failure_chance(elsewhere, schedules).any()


def test_a_model_that_learnt_nothing_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    XGBoostModel(seed=1).save(path)
    space, records = records_of(OP, 10)
    schedules = [r.schedule for r in records]
    assert list(XGBoostModel.load(path).predict(space, schedules)) == list(XGBoostModel(1).predict(space, schedules))


def test_a_search_trains_the_model_that_it_is_given_and_another_one_starts_from_it(tmp_path: Path) -> None:
    model, path = XGBoostModel(seed=0), tmp_path / "model.json"
    tune(OP, TARGET, 40, cost_model=model, log=tmp_path / "first.jsonl", measurer=RemoteMeasurer())
    model.save(path)
    assert json.loads(path.read_text())["scores"]
    found = tune(
        OTHER,
        TARGET,
        16,
        cost_model=XGBoostModel.load(path),
        log=tmp_path / "second.jsonl",
        measurer=RemoteMeasurer(),
    )
    assert found.trials_done == 16


def edited(change: Callable[[dict[str, object]], object]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        data = json.loads(text)
        change(data)
        return json.dumps(data)

    return edit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "is no saved cost model: expected JSON"),
        (lambda text: "[1, 2]", "expected the format 'autosched cost model: xgboost', got 'list'"),
        (lambda text: '{"learner": {}, "version": [3, 2, 0]}', "expected the format .*, got None"),
        (edited(lambda data: data.update(version=99)), "expected version 1 of the format, got 99"),
        (
            edited(lambda data: data.update(features=["dots", "swizzle"])),
            r"trained on 2 features, expected the \d+ of this version \(not among these: swizzle; new: ",
        ),
        (edited(lambda data: data.pop("seed")), "is damaged"),
        (edited(lambda data: data.update(scores={"slope": 1.0})), "is damaged"),
        (
            edited(lambda data: data.update(failures={"columns": [0], "booster": {"learner": {}}})),
            "is damaged",
        ),
    ],
)
def test_a_file_that_holds_no_such_model_is_refused(
    saved: tuple[XGBoostModel, Path], change: Callable[[str], str], message: str
) -> None:
    path = saved[1]
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=message):
        XGBoostModel.load(path)


def test_a_model_that_cannot_be_read_or_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*absent\.json: No such file"):
        XGBoostModel.load(tmp_path / "absent.json")
    with pytest.raises(InputError, match=r"cannot write .*: No such file"):
        XGBoostModel(seed=0).save(tmp_path / "absent" / "model.json")


def test_names_still_make_cost_models() -> None:
    assert {type(cost_models.create(name, 0)).__name__ for name in cost_models.names()} == {
        "RandomModel",
        "RooflineModel",
        "XGBoostModel",
    }


# The machine that measures


def test_records_tell_the_machine_that_measured_and_not_the_one_that_asked(tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    tune(OP, TARGET, 20, log=log, measurer=RemoteMeasurer())
    found = list(TuningLog(log))
    assert {r.provenance.versions for r in found} == {RemoteMeasurer.environment}
    assert any(r.provenance.finals for r in found)
    assert str(torch.__version__) not in log.read_text()


def test_the_measurer_of_this_machine_tells_what_is_installed_here() -> None:
    target = autosched.cpu_target()
    with autosched.LocalMeasurer(target) as measurer:
        assert measurer.environment == environment(target)
