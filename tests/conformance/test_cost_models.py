"""Every cost model in the folder keeps the contract of `cost_models.CostModel`."""

from collections.abc import Sequence

import numpy as np
import pytest

import cost_models
from autosched.backends import spaces
from cost_models import CostModel
from cost_models.roofline import latency_s
from search_spaces import Schedule, SearchSpace, Target, Workload, ops, target_named
from search_spaces.devices.target import cpu
from tuning_logs import Measurement, Provenance, TuningRecord

CPU = cpu("A CPU", lanes=8, threads=2, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
CASES: list[tuple[Workload, Target]] = [
    (ops.matmul(256, 128, 512), CPU),
    (ops.matmul(1024, 1024, 1024, dtype="bfloat16", epilogue="bias_gelu"), target_named("h200")),
    (ops.softmax(512, 1000), CPU),
    (ops.gelu_scale(10**6), target_named("a100")),
]

every_model = pytest.mark.parametrize("name", cost_models.names())
every_case = pytest.mark.parametrize(("workload", "target"), CASES, ids=[f"{w.name}-{t.name}" for w, t in CASES])


def sampled(space: SearchSpace, count: int, seed: int = 0) -> list[Schedule]:
    rng = np.random.default_rng(seed)
    return [space.sample(rng) for _ in range(count)]


def measured(space: SearchSpace, schedules: Sequence[Schedule]) -> list[TuningRecord]:
    """Records as a device would give them: every seventh trial fails."""
    records = []
    for trial, schedule in enumerate(schedules):
        failed = trial % 7 == 6
        latency = latency_s(space.lower(schedule), space.target, space.backends[schedule.backend]) * (
            1.0 + 0.1 * (trial % 3)
        )
        measurement = Measurement("run_error", detail="no") if failed else Measurement("ok", (latency,))
        provenance = Provenance("g", "cold", 0.0, 0, trial)
        records.append(TuningRecord(space.workload, space.target, schedule, measurement, provenance))
    return records


def check_scores(model: CostModel, space: SearchSpace, schedules: list[Schedule]) -> None:
    scores = model.predict(space, schedules)
    assert scores.shape == (len(schedules),)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    chances = model.failure_chance(space, schedules)
    assert chances.shape == (len(schedules),)
    assert ((chances >= 0.0) & (chances <= 1.0)).all()


@every_model
@every_case
def test_it_scores_before_and_after_it_has_data(name: str, workload: Workload, target: Target) -> None:
    space = spaces.build(workload, target)
    model = cost_models.create(name, seed=0)
    schedules = sampled(space, 40)
    check_scores(model, space, schedules)
    model.fit(space, measured(space, schedules))
    check_scores(model, space, sampled(space, 20, seed=1))


@every_model
def test_it_scores_an_empty_list(name: str) -> None:
    space = spaces.build(*CASES[0])
    model = cost_models.create(name, seed=0)
    check_scores(model, space, [])
    model.fit(space, measured(space, sampled(space, 30)))
    check_scores(model, space, [])


@every_model
def test_it_takes_failures_alone_and_no_records_at_all(name: str) -> None:
    space = spaces.build(*CASES[0])
    model = cost_models.create(name, seed=0)
    model.fit(space, [])
    check_scores(model, space, sampled(space, 3))
    model.fit(space, [r for r in measured(space, sampled(space, 70)) if not r.measurement.ok])
    check_scores(model, space, sampled(space, 3))


@every_model
def test_it_takes_records_of_other_workloads_targets_and_generations(name: str) -> None:
    space = spaces.build(*CASES[0])
    foreign = [spaces.build(ops.matmul(64, 64, 64), CPU), spaces.build(*CASES[1])]
    records = [r for s in (space, *foreign) for r in measured(s, sampled(s, 15))]
    # As a log gives them: unbound, and one of a sketch that no longer exists.
    records = [TuningRecord.from_json(r.to_json()) for r in records]
    gone = TuningRecord(
        space.workload,
        space.target,
        Schedule("gone", ()),
        Measurement("ok", (1e-9,)),
        Provenance("g", "cold", 0.0, 0, 0),
    )
    model = cost_models.create(name, seed=0)
    model.fit(space, [*records, gone])
    check_scores(model, space, sampled(space, 10))


@every_model
def test_the_same_seed_and_the_same_calls_give_the_same_scores(name: str) -> None:
    def scores() -> list[float]:
        space = spaces.build(*CASES[0])
        model = cost_models.create(name, seed=3)
        model.fit(space, measured(space, sampled(space, 60)))
        return list(model.predict(space, sampled(space, 10, seed=1)))

    assert scores() == scores()


@every_model
def test_a_later_fit_forgets_the_earlier_one(name: str) -> None:
    space = spaces.build(*CASES[0])
    records = measured(space, sampled(space, 60))
    once, twice = cost_models.create(name, seed=0), cost_models.create(name, seed=0)
    twice.fit(space, records[:30])
    once.fit(space, records)
    twice.fit(space, records)
    asked = sampled(space, 10, seed=1)
    assert list(once.predict(space, asked)) == list(twice.predict(space, asked))


@every_model
def test_without_failures_no_schedule_is_predicted_to_fail(name: str) -> None:
    space = spaces.build(*CASES[0])
    model = cost_models.create(name, seed=0)
    assert not model.failure_chance(space, sampled(space, 10)).any()
    model.fit(space, [r for r in measured(space, sampled(space, 60)) if r.measurement.ok])
    assert not model.failure_chance(space, sampled(space, 10)).any()
