"""Search strategies: what they look for first, what they learn from, and that the default beats random search."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

import best_spaces
import cost_models
import search_spaces
from autosched import strategies
from autosched.strategies import Strategy
from autosched.strategies.evolution.transfer import adapted
from autosched.strategies.strategy import draw
from cost_models import CostModel
from cost_models.roofline import latency_s
from recorded_spaces import PARTS, read_table, table_space
from row_kinds import of_kind
from search_spaces import InputError, Schedule, SearchSpace, TileProgram, ops, target_named
from search_spaces.devices.target import cpu
from search_spaces.schedules.knobs import KnobValue, Values
from search_spaces.schedules.sketch import Sketch
from tuning_logs import Measurement, Provenance, TuningRecord

H200 = target_named("h200")
CPU = cpu("A CPU", lanes=16, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)

Answer = Callable[[Schedule], TuningRecord]


class Device:
    """What a real device adds to the estimate: a factor per knob value and pair of values, noise, and failures.

    Tile sizes within a factor of two have the same effect.
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self.space, self.seed = space, seed
        self._noise = np.random.default_rng(seed)
        self._effects: dict[str, float] = {}

    def latency_s(self, schedule: Schedule) -> float:
        values = [f"{schedule.sketch} {k}={_coarse(v)}" for k, v in schedule.values]
        pairs = [a + b for i, a in enumerate(values) for b in values[:i]]
        effect = 0.15 * sum(map(self._effect, values)) + 0.05 * sum(map(self._effect, pairs))
        limits = self.space.backends[schedule.backend]
        return latency_s(self.space.lower(schedule), self.space.target, limits) * float(np.exp(effect))

    def measure(self, schedules: Sequence[Schedule], first_trial: int) -> list[TuningRecord]:
        return [self._record(s, trial) for trial, s in enumerate(schedules, first_trial)]

    def _record(self, schedule: Schedule, trial: int) -> TuningRecord:
        if self._effect(f"fails {schedule.values[0]} {schedule.values[-1]}") > 1.5:
            measurement = Measurement("compile_error", detail="no")
        else:
            measured = self.latency_s(schedule) * (1.0 + 0.02 * abs(self._noise.standard_normal()))
            measurement = Measurement("ok", (measured,))
        provenance = Provenance("g", "cold", 0.0, self.seed, trial)
        return TuningRecord(self.space.workload, self.space.target, schedule, measurement, provenance)

    def _effect(self, what: str) -> float:
        if what not in self._effects:
            seeds = [self.seed, zlib.crc32(what.encode())]
            self._effects[what] = float(np.random.default_rng(seeds).standard_normal())
        return self._effects[what]


def _coarse(value: KnobValue) -> KnobValue:
    return tuple(factor.bit_length() for factor in value[1:]) if isinstance(value, tuple) else value


def create(name: str, space: SearchSpace, model: str = "xgboost", seed: int = 0) -> Strategy:
    return strategies.create(name, space, cost_models.create(model, seed), np.random.default_rng(seed))


def best_after(name: str, space: SearchSpace, seed: int, batches: Sequence[int]) -> float:
    """The true latency of the best schedule measured in so many batches."""
    device, strategy = Device(space, seed), create(name, space, seed=seed)
    records: list[TuningRecord] = []
    for count in batches:
        told = device.measure(strategy.ask(count), len(records))
        strategy.tell(told)
        records += told
    return min(device.latency_s(r.schedule) for r in records if r.measurement.ok)


def record(space: SearchSpace, schedule: Schedule, latency: float) -> TuningRecord:
    provenance = Provenance("g", "cold", 0.0, 0, 0)
    return TuningRecord(space.workload, space.target, schedule, Measurement("ok", (latency,)), provenance)


def differing_knobs(a: Schedule, b: Schedule) -> int:
    return sum(x != y for x, y in zip(a.values, b.values, strict=True)) if a.sketch == b.sketch else len(a.values)


@pytest.mark.parametrize(
    ("workload", "target"),
    [(ops.matmul(1024, 1024, 1024, dtype="bfloat16"), H200), (ops.matmul(256, 256, 256), CPU)],
    ids=["h200", "cpu"],
)
def test_evolution_with_trees_beats_random_search(
    workload: search_spaces.Workload, target: search_spaces.Target
) -> None:
    batches = [16, 16, 16]
    ratios = []
    for seed in range(3):
        space = best_spaces.build(workload, target)
        ratios.append(best_after("evolutionary", space, seed, batches) / best_after("random", space, seed, batches))
    assert np.median(ratios) < 0.85


def test_before_any_data_half_of_a_batch_is_what_the_prior_ranks_first() -> None:
    whole = best_spaces.build(ops.softmax(512, 3000), target_named("h200"))
    space = replace(whole, sketches=tuple(replace(s, seeds=()) for s in whole.sketches))
    asked = create("evolutionary", space).ask(16)
    estimates = [latency_s(space.lower(s), space.target, space.backends[s.backend]) for s in asked]
    assert max(estimates[:8]) <= np.median(estimates[8:])


def test_what_is_proposed_first_is_lowered_once_for_its_limits_its_features_and_its_compiler() -> None:
    lowered: list[tuple[str, Values]] = []

    def lower(sketch: Sketch, values: Values) -> TileProgram:
        lowered.append((sketch.name, values))
        return sketch.lower(values)

    whole = best_spaces.build(ops.matmul(1024, 1024, 1024, dtype="bfloat16"), H200)
    space = replace(whole, sketches=tuple(replace(s, lower=partial(lower, s)) for s in whole.sketches))
    for schedule in create("evolutionary", space).ask(4):
        assert schedule.program
    assert lowered
    assert max(Counter((name, *values.items()) for name, values in lowered).values()) == 1


def test_the_first_batch_begins_with_the_points_that_sketches_propose() -> None:
    space = best_spaces.build(ops.matmul(512, 512, 512), CPU)
    assert set(create("evolutionary", space).ask(16)[: len(space.seeds())]) == set(space.seeds())


def test_after_a_good_trial_its_neighbours_are_tried_without_crowding_the_batch() -> None:
    space = best_spaces.build(ops.matmul(512, 512, 512), CPU)
    rng = np.random.default_rng(0)
    centre = space.sample(rng)
    strategy = create("evolutionary", space)
    strategy.tell([record(space, centre, 1e-6), *(record(space, space.sample(rng), 1e-3) for _ in range(30))])
    asked = strategy.ask(16)
    near = sum(differing_knobs(s, centre) <= 1 for s in asked)
    assert 1 <= near <= 12
    assert len(set(asked)) == 16


def test_a_large_batch_is_spread_over_the_space() -> None:
    space = best_spaces.build(ops.matmul(1024, 1024, 1024, dtype="bfloat16"), H200)
    device, strategy = Device(space, 0), create("evolutionary", space)
    strategy.tell(device.measure(strategy.ask(32), 0))
    asked = strategy.ask(32)
    close = Counter(differing_knobs(a, b) for i, a in enumerate(asked) for b in asked[:i])
    assert close[0] == 0
    assert close[1] < 0.2 * sum(close.values())


def test_the_best_of_another_shape_are_where_a_search_starts() -> None:
    small = best_spaces.build(ops.matmul(512, 512, 512), CPU)
    large = best_spaces.build(ops.matmul(1024, 1024, 1024), CPU)
    ratios = []
    for seed in range(3):
        device, first = Device(small, seed), create("evolutionary", small)
        records = [r for n in (0, 16, 32) for r in device.measure(first.ask(16), n)]
        cold, warm = create("evolutionary", large), create("evolutionary", large)
        warm.tell([TuningRecord.from_json(r.to_json()) for r in records])
        there = Device(large, seed)
        latencies = [np.median([there.latency_s(s) for s in strategy.ask(16)]) for strategy in (cold, warm)]
        ratios.append(latencies[1] / latencies[0])
    assert np.median(ratios) < 0.95


def test_a_schedule_is_adapted_by_its_inner_tiles() -> None:
    small, large = (best_spaces.build(ops.gelu_scale(n), CPU) for n in (2**16, 2**20))
    rng = np.random.default_rng(0)
    for _ in range(20):
        schedule = small.sample(rng)
        found = adapted(large, schedule)
        assert found is not None
        assert large.why_illegal(found) is None
        tile, there = schedule.knobs["columns"], found.knobs["columns"]
        assert isinstance(tile, tuple)
        assert isinstance(there, tuple)
        assert tile[1:] == there[1:]
        assert schedule.knobs["vectors"] == found.knobs["vectors"]


def test_a_schedule_of_an_unknown_sketch_cannot_be_adapted() -> None:
    space = best_spaces.build(ops.gelu_scale(2**16), CPU)
    assert adapted(space, Schedule("gone", ())) is None


def test_a_draw_from_a_nearly_known_space_finds_what_is_left() -> None:
    space = best_spaces.build(ops.gelu_scale(4096), CPU)
    everything = list(space)
    known = set(everything[:-3])
    assert set(draw(space, 10, known, np.random.default_rng(0))) == set(everything[-3:])
    assert len(draw(space, 2, known, np.random.default_rng(0))) == 2
    assert draw(space, 10, set(everything), np.random.default_rng(0)) == []


def test_exhaustive_search_follows_the_order_of_the_space() -> None:
    space = best_spaces.build(ops.gelu_scale(4096), CPU)
    strategy = create("exhaustive", space)
    assert [*strategy.ask(5), *strategy.ask(5)] == list(space)[:10]


@pytest.mark.parametrize("strategy", ["evolutionary", "random", "exhaustive"])
def test_what_was_tried_before_a_knob_was_added_is_known_and_never_tried_again(strategy: str) -> None:
    whole = best_spaces.build(ops.softmax(512, 50257, dtype="bfloat16"), H200)
    space = of_kind(
        whole,
        "streamed",
        rows=[(512, 1)],
        columns=[(25, 2048)],
        warps=[4, 8],
        stages=[1, 2],
        grid=["tiles"],
    )
    added = {"aligned": False}
    device, everything = Device(space, 0), list(space)
    told = device.measure(everything[::2], 0)
    before = [
        replace(r, schedule=replace(r.schedule, values=tuple(v for v in r.schedule.values if v[0] not in added)))
        for r in told
        if all(r.schedule.knobs[name] == value for name, value in added.items())
    ]
    assert added.keys() <= told[0].schedule.knobs.keys()
    assert 4 < len(before) < len(everything) < 500
    searcher = strategies.create(strategy, space, cost_models.create("roofline", 0), np.random.default_rng(0))
    searcher.tell(before)
    asked: list[Schedule] = []
    while batch := searcher.ask(64):
        asked += batch
        searcher.tell(device.measure(batch, len(told) + len(asked)))
    known = {space.bind(r.schedule) for r in before}
    assert len({*asked}) == len(asked) == len(everything) - len(known)
    assert not known & {*asked}


def test_different_seeds_give_different_proposals() -> None:
    space = best_spaces.build(ops.matmul(512, 512, 512), CPU)
    assert create("random", space, seed=0).ask(8) != create("random", space, seed=1).ask(8)


class Warned:
    """A cost model whose warnings are replaced, and that scores as before."""

    def __init__(self, model: CostModel, chance: float) -> None:
        self._model, self._chance = model, chance
        self.fit, self.predict = model.fit, model.predict

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        return np.full(len(schedules), self._chance)


def proposals(space: SearchSpace, model: CostModel, answer: Answer, batches: int, seed: int) -> list[TuningRecord]:
    """What came of so many batches of 16."""
    strategy = strategies.create("evolutionary", space, model, np.random.default_rng(seed))
    records: list[TuningRecord] = []
    for _ in range(batches):
        told = [answer(s) for s in strategy.ask(16)]
        strategy.tell(told)
        records += told
    return records


def test_schedules_that_fail_by_a_planted_rule_are_soon_left_out() -> None:
    """Tiles of 256 fail, which the prior likes best: of the second to fourth batch fewer than half as many fail."""
    space, table = table_space(), {r.schedule: r for r in read_table()}

    def answer(schedule: Schedule) -> TuningRecord:
        fails = schedule.knobs.tile("m") == 256 or schedule.knobs.tile("n") == 256
        failed = Measurement("run_timeout", detail="planted")
        return replace(table[schedule], measurement=failed) if fails else table[schedule]

    def failures(model: CostModel) -> int:
        return sum(not r.measurement.ok for r in proposals(space, model, answer, 4, seed=0)[16:])

    heeded = failures(cost_models.create("xgboost", 0))
    ignored = failures(Warned(cost_models.create("xgboost", 0), 0.0))
    assert heeded < ignored / 2


def test_without_failures_predicting_them_changes_nothing() -> None:
    space = best_spaces.build(ops.matmul(256, 256, 256), CPU)

    def answer(schedule: Schedule) -> TuningRecord:
        return record(space, schedule, latency_s(space.lower(schedule), space.target))

    model = cost_models.create("xgboost", 0)
    heeded, ignored = (proposals(space, m, answer, 3, 0) for m in (model, Warned(model, 0.0)))
    assert [r.schedule for r in heeded] == [r.schedule for r in ignored]


def test_a_model_that_expects_every_schedule_to_fail_does_not_starve_the_search() -> None:
    space = best_spaces.build(ops.matmul(256, 256, 256), CPU)
    pessimist = Warned(cost_models.create("roofline", 0), 1.0)
    strategy = strategies.create("evolutionary", space, pessimist, np.random.default_rng(0))
    for _ in range(3):
        asked = strategy.ask(16)
        assert len(set(asked)) == 16
        strategy.tell([record(space, s, 1e-3) for s in asked])
    assert strategy.stopped.infeasible > 0


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    space = best_spaces.build(ops.gelu_scale(4096), CPU)
    with pytest.raises(InputError, match=r"unknown strategy 'evolution'.*\(allowed: evolutionary, exhaustive, random"):
        create("evolution", space)


def test_strategies_are_found_by_listing_the_folder() -> None:
    assert set(strategies.names()) >= {"evolutionary", "exhaustive", "random"}


@pytest.mark.parametrize("name", PARTS)
def test_recorded_parts_of_spaces_are_searched_whole(name: str) -> None:
    space, records = table_space(name), read_table(name)
    some = records[::3]
    legal = sum(space.why_illegal(space.bind(r.schedule)) is None for r in some)
    assert legal > 0.99 * len(some)
    rng, known = np.random.default_rng(0), {r.schedule for r in records}
    assert {space.sample(rng) for _ in range(100)} <= known
