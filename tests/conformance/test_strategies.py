"""Every strategy in the folder keeps the contract of `autosched.strategies.Strategy`, with every cost model."""

from collections.abc import Sequence

import numpy as np
import pytest

import cost_models
from autosched import strategies
from autosched.backends import spaces
from autosched.strategies import Stopped, Strategy
from cost_models.roofline import latency_s
from search_spaces import Schedule, SearchSpace, Target, TileProgram, Workload, ops, target_named
from search_spaces.devices.target import cpu
from search_spaces.programs.grid import Grid
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.knobs import Choice, Values
from search_spaces.schedules.limits import USUAL, Distinguished, Offers, Resources
from search_spaces.schedules.sketch import Sketch
from tuning_logs import Measurement, Provenance, TuningRecord

CPU = cpu("A CPU", lanes=8, threads=1, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
WORKLOAD = ops.matmul(128, 128, 128)

every_strategy = pytest.mark.parametrize("name", strategies.names())
every_pair = pytest.mark.parametrize(
    ("name", "model"), [pytest.param(s, m, id=f"{s}-{m}") for s in strategies.names() for m in cost_models.names()]
)


class NoZeros:
    """The limits of a backend that cannot make what has x = 0."""

    def offers(self, target: Target) -> Offers:
        return USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        return None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        return "x is 0" if schedule.knobs["x"] == 0 else None

    def distinguished(self, schedule: Schedule, target: Target) -> Distinguished | None:
        return None

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return None


def tiny_space(values: int = 6) -> SearchSpace:
    """A space of values² schedules, of which those with x = 0 are illegal."""

    def lower(chosen: Values) -> TileProgram:
        return TileProgram("tiny", (), (Kernel("tiny", Grid(()), ()),))

    knobs = (Choice("x", tuple(range(values))), Choice("y", tuple(range(values))))
    return SearchSpace(WORKLOAD, CPU, (Sketch("tiny", knobs, lower, ("x",)),), {"": NoZeros()})


def create(name: str, space: SearchSpace, model: str = "random", seed: int = 0) -> Strategy:
    return strategies.create(name, space, cost_models.create(model, seed), np.random.default_rng(seed))


def answers(space: SearchSpace, schedules: Sequence[Schedule], first_trial: int) -> list[TuningRecord]:
    """Records as a device would give them: every ninth trial fails."""
    records = []
    for trial, schedule in enumerate(schedules, first_trial):
        failed = trial % 9 == 8
        latency = latency_s(space.lower(schedule), space.target, space.backends[schedule.backend]) * (
            1.0 + 0.1 * (trial % 3)
        )
        measurement = Measurement("wrong_result", detail="no") if failed else Measurement("ok", (latency,))
        provenance = Provenance("g", "cold", 0.0, 0, trial)
        records.append(TuningRecord(space.workload, space.target, schedule, measurement, provenance))
    return records


def searched(strategy: Strategy, space: SearchSpace, batches: Sequence[int]) -> list[Schedule]:
    """Everything proposed in so many batches, each told before the next is asked for."""
    asked: list[Schedule] = []
    for count in batches:
        batch = strategy.ask(count)
        assert len(batch) <= count
        strategy.tell(answers(space, batch, len(asked)))
        asked += batch
    return asked


@every_pair
def test_proposals_are_legal_bound_and_never_repeated(name: str, model: str) -> None:
    space = spaces.build(WORKLOAD, CPU)
    asked = searched(create(name, space, model), space, [1, 16, 16, 7])
    assert len(asked) == len(set(asked)) == 40
    for schedule in asked:
        assert space.why_illegal(schedule) is None
        assert schedule.program.kernels


@every_pair
def test_an_exhausted_space_is_proposed_whole_and_then_nothing(name: str, model: str) -> None:
    space = tiny_space()
    strategy = create(name, space, model)
    asked = searched(strategy, space, [8] * 4)
    assert len(asked) == len(set(asked)) == 30
    assert set(asked) == set(space)
    assert strategy.ask(8) == []


@every_strategy
def test_it_asks_for_fewer_when_fewer_are_left(name: str) -> None:
    space = tiny_space()
    strategy = create(name, space)
    assert len(searched(strategy, space, [25])) == 25
    assert len(strategy.ask(100)) == 5


@every_strategy
def test_two_asks_without_a_tell_do_not_overlap(name: str) -> None:
    space = spaces.build(WORKLOAD, CPU)
    strategy = create(name, space)
    first, second = strategy.ask(10), strategy.ask(10)
    assert len({*first, *second}) == 20


@every_strategy
def test_what_was_told_is_not_asked_again(name: str) -> None:
    space = tiny_space()
    known = list(space)[:20]
    records = [TuningRecord.from_json(r.to_json()) for r in answers(space, known, 0)]
    strategy = create(name, space)
    strategy.tell(records)
    asked = strategy.ask(100)
    assert set(asked) == set(space) - set(known)


@every_strategy
def test_what_was_told_of_another_target_is_still_asked(name: str) -> None:
    space = tiny_space()
    elsewhere = SearchSpace(space.workload, target_named("h200"), space.sketches)
    strategy = create(name, space)
    strategy.tell(answers(elsewhere, list(elsewhere), 0))
    assert set(strategy.ask(100)) == set(space)


@every_strategy
def test_records_of_schedules_that_no_longer_exist_do_not_stop_it(name: str) -> None:
    space = spaces.build(WORKLOAD, CPU)
    measurement, provenance = Measurement("ok", (1e-9,)), Provenance("g", "cold", 0.0, 0, 0)
    gone = [
        TuningRecord(space.workload, space.target, Schedule("gone", ()), measurement, provenance),
        TuningRecord(
            space.workload, space.target, Schedule(space.sketches[0].name, (("x", 1),)), measurement, provenance
        ),
    ]
    strategy = create(name, space, "xgboost")
    strategy.tell(gone)
    assert len(strategy.ask(8)) == 8


@every_strategy
def test_failures_alone_do_not_stop_it(name: str) -> None:
    space = spaces.build(WORKLOAD, CPU)
    strategy = create(name, space, "xgboost")
    for _ in range(3):
        batch = strategy.ask(16)
        failed = Measurement("compile_error", detail="no")
        strategy.tell(
            [TuningRecord(space.workload, space.target, s, failed, Provenance("g", "cold", 0.0, 0, 0)) for s in batch]
        )
    assert len(strategy.ask(16)) == 16


@every_pair
def test_the_same_seed_and_the_same_answers_give_the_same_proposals(name: str, model: str) -> None:
    def proposals() -> list[Schedule]:
        space = spaces.build(WORKLOAD, CPU)
        return searched(create(name, space, model, seed=5), space, [16, 16, 8])

    assert proposals() == proposals()


@every_pair
def test_what_it_stops_is_counted_from_its_creation(name: str, model: str) -> None:
    space = tiny_space()
    assert len(list(space)) == 30  # comes upon the illegal ones, before the strategy is there
    strategy = create(name, space, model)
    assert strategy.stopped == Stopped()
    searched(strategy, space, [8] * 5)
    assert strategy.stopped.illegal >= 6
    # What nothing is learnt of is never predicted to fail.
    assert strategy.stopped.infeasible == 0 or model == "xgboost"
