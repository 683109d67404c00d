"""Cost models: counts and estimates against hand-computed figures, and what the learning model makes of records."""

import dataclasses
import math
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import best_spaces
import cost_models
import search_spaces
from autosched.backends.triton.limits import TritonLimits
from cost_models import bound_s
from cost_models.features import FEATURE_NAMES, features
from cost_models.program_counts import count, wave_extents
from cost_models.reuse import Nest
from cost_models.roofline import latency_s, microkernel_rate
from search_spaces import InputError, SearchSpace, TileProgram, ops, target_named
from search_spaces.devices.target import cpu
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.statements import Dot, Fill, For, If, Load, Statement, Store, View
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Bound, Panels, Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.schedules.limits import UNLIMITED
from search_spaces.workloads.expressions.affine import Affine
from tuning_logs import Measurement, Provenance, TuningRecord

H200 = target_named("h200")
LIMITS = TritonLimits()
CPU = cpu("A CPU", lanes=16, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
FASTER_CPU = dataclasses.replace(CPU, device="Another CPU", l2_bytes=2**22)

A, B = Buffer("a", (512, 512), "float32", "input"), Buffer("b", (512, 512), "float32", "input")
OUT = Buffer("out", (512, 512), "float32", "output")
EIGHT_WARPS = Launch(num_warps=8)
ACC = Tile("acc", ("m", "n"), (128, 64))


def piece(axis: str, extent: int, *terms: tuple[str, int]) -> Slice:
    return Slice(Affine.of(*terms), extent, axis)


def matmul(group: tuple[str, int] | None = None, launch: Launch = EIGHT_WARPS) -> TileProgram:
    """512³ in tiles of 128 x 64 x 32: 4 x 8 programs of 16 steps."""
    steps = (
        Load(Tile("a_tile", ("m", "k"), (128, 32)), "a", (piece("m", 128, ("m.0", 128)), piece("k", 32, ("k.0", 32)))),
        Load(Tile("b_tile", ("k", "n"), (32, 64)), "b", (piece("k", 32, ("k.0", 32)), piece("n", 64, ("n.0", 64)))),
        Dot(ACC, "a_tile", "b_tile", "k"),
    )
    body = (
        Fill(ACC, 0.0),
        For("k.0", 16, steps, pipeline_stages=3),
        Store("out", (piece("m", 128, ("m.0", 128)), piece("n", 64, ("n.0", 64))), "acc"),
    )
    kernel = Kernel("matmul", Grid((GridAxis("m.0", 4), GridAxis("n.0", 8)), group), body, launch)
    return TileProgram("matmul", (A, B, OUT), (kernel,))


def named(program: TileProgram, target: search_spaces.Target = H200) -> dict[str, float]:
    """Features by name, the logarithm undone."""
    return {
        n: math.copysign(2 ** abs(v) - 1, v)
        for n, v in zip(FEATURE_NAMES, features(program, target, LIMITS), strict=True)
    }


def records_of(space: SearchSpace, count: int, seed: int = 0, speed: float = 1.0) -> list[TuningRecord]:
    """Random schedules with the estimate as their latency, times what the estimate does not know: their loop order."""
    rng = np.random.default_rng(seed)
    records = []
    for trial in range(count):
        schedule = space.sample(rng)
        measurement = Measurement("ok", (truth(space, schedule) / speed,))
        provenance = Provenance("g", "cold", 0.0, seed, trial)
        records.append(TuningRecord(space.workload, space.target, schedule, measurement, provenance))
    return records


def truth(space: SearchSpace, schedule: search_spaces.Schedule) -> float:
    vectors = schedule.knobs.get("vectors")
    return latency_s(space.lower(schedule), space.target, space.backends[schedule.backend]) * (
        3.0 if vectors in (1, 8) else 1.0
    )


def test_operations_are_counted_over_the_whole_grid() -> None:
    (counts,) = count(matmul())
    assert counts.kernel.grid.tiles * counts.dot_flops == 2 * 512**3
    found = named(matmul())
    assert found["dot_flops"] == pytest.approx(2 * 512**3, rel=1e-4)
    assert (found["dot_m"], found["dot_n"], found["dot_k"]) == pytest.approx((128, 64, 32), rel=1e-4)


def test_loaded_bytes_are_the_repeats_and_unique_bytes_the_buffers() -> None:
    found = named(matmul())
    # Each of the 8 column tiles loads all of a, each of the 4 row tiles all of b.
    assert found["loaded_bytes"] == pytest.approx((8 + 4) * A.bytes, rel=1e-4)
    assert found["unique_bytes"] == pytest.approx(3 * A.bytes, rel=1e-4)


def test_a_masked_tile_does_not_count_what_lies_outside_the_buffer() -> None:
    x, y = Buffer("x", (100,), "float32", "input"), Buffer("y", (100,), "float32", "output")
    place, tile = (piece("i", 64, ("i.0", 64)),), Tile("t", ("i",), (64,))
    kernel = Kernel("copy", Grid((GridAxis("i.0", 2),)), (Load(tile, "x", place), Store("y", place, "t")))
    (counts,) = count(TileProgram("copy", (x, y), (kernel,)))
    assert counts.loads[0].covered == 1.28
    assert 2 * counts.loads[0].bytes_per_program == pytest.approx(400)


def test_a_branch_counts_as_often_as_it_is_taken_and_a_bound_cuts_trips() -> None:
    tile, place = Tile("t", ("i",), (8,)), (piece("i", 8, ("k", 8)),)
    load = Load(tile, "x", place)
    inner: tuple[Statement, ...] = (If("k", 0, (load,), (load, load)),)
    loop = For("k", 10, inner, bound=Bound(Affine.of(("k", 1)), 5))
    buffers = (Buffer("x", (80,), "float32", "input"),)
    (counts,) = count(TileProgram("p", buffers, (Kernel("p", Grid(()), (loop,)),)))
    assert [load.times for load in counts.loads] == pytest.approx([0.5, 4.5, 4.5])
    assert [load.taken for load in counts.loads] == pytest.approx([0.1, 0.9, 0.9])


def test_a_wave_covers_the_grid_in_its_order() -> None:
    assert wave_extents(matmul().kernels[0], 8) == {"m.0": 1, "n.0": 8}
    assert wave_extents(matmul().kernels[0], 12) == {"m.0": 2, "n.0": 8}
    assert wave_extents(matmul(("m.0", 4)).kernels[0], 8) == {"m.0": 4, "n.0": 2}
    assert wave_extents(matmul(("m.0", 2)).kernels[0], 32) == {"m.0": 4, "n.0": 8}


def test_grouping_moves_fewer_bytes_when_the_cache_holds_little() -> None:
    rows, groups = (Nest(count(matmul(group))[0]) for group in (None, ("m.0", 2)))
    assert groups.device_memory_bytes(8, 0) < rows.device_memory_bytes(8, 0)
    everything = groups.device_memory_bytes(8, 60 * 2**20)
    assert everything == pytest.approx(3 * A.bytes)


def test_a_cache_that_holds_everything_is_read_through_once() -> None:
    nest = Nest(count(matmul(launch=Launch(lanes=16)))[0])
    assert nest.bytes_through(2**30) == pytest.approx(3 * A.bytes)
    assert nest.working_sets[0] == 3 * A.bytes
    # One turn of the innermost loop: both operand tiles and the stored tile.
    assert nest.working_sets[-1] == 4 * (128 * 32 + 32 * 64 + 128 * 64)
    assert nest.bytes_through(2**10) > nest.bytes_through(3 * 2**20) > nest.bytes_through(2**30)


def panelled(panels: Panels | None) -> TileProgram:
    """One program that takes b by its 8 column panels of 64."""
    body: tuple[Statement, ...] = (
        Load(Tile("b_tile", ("k", "n"), (512, 512)), "b", (piece("k", 512), piece("n", 512)), panels=panels),
        For(
            "j",
            8,
            (View(Tile("panel", ("k", "n"), (512, 64)), "b_tile", (piece("k", 512), piece("n", 64, ("j", 64)))),),
        ),
    )
    return TileProgram("p", (B,), (Kernel("p", Grid(()), body, Launch(lanes=16)),))


def test_a_tile_read_in_place_is_touched_where_it_is_viewed() -> None:
    traffic = Nest(count(panelled(None))[0]).traffic
    assert [(t.place, t.tile_bytes, t.variables) for t in traffic] == [("b", 4 * 512 * 64, {"j"})]


def test_a_packed_tile_is_read_once_and_then_touched_in_its_copy() -> None:
    traffic = Nest(count(panelled(Panels("n", 64)))[0]).traffic
    assert [(t.place, t.tile_bytes) for t in traffic] == [("b", B.bytes), ("b_tile", 4 * 512 * 64)]


def test_features_tell_packing_grouping_and_pipelining_apart() -> None:
    small = dataclasses.replace(H200, num_sms=2)
    plain, grouped = named(matmul(), small), named(matmul(("m.0", 2)), small)
    assert {n for n in FEATURE_NAMES if plain[n] != grouped[n]} >= {"group", "wave_slow", "wave_fast"}
    assert plain["pipeline_stages"] == pytest.approx(3, rel=1e-4)
    two_warps = named(matmul(launch=Launch(num_warps=2)), small)
    assert {n for n in FEATURE_NAMES if plain[n] != two_warps[n]} >= {"num_warps", "threads", "registers_per_thread"}


@pytest.mark.parametrize("target", [CPU, H200, target_named("v100")], ids=lambda t: t.name)
@pytest.mark.parametrize(
    "workload",
    [
        ops.matmul(512, 384, 1000),
        ops.matmul(64, 48, 40, batch=3, epilogue="bias_silu", layout="tn"),
        ops.softmax(300, 1000),
        ops.layernorm(64, 4096),
        ops.gelu_scale(10**6),
    ],
    ids=lambda w: w.label.replace(" ", "-"),
)
def test_features_of_any_program_are_finite_and_of_fixed_length(
    workload: search_spaces.Workload, target: search_spaces.Target
) -> None:
    space = best_spaces.build(workload, target)
    rng = np.random.default_rng(0)
    for _ in range(20):
        schedule = space.sample(rng)
        vector = features(space.lower(schedule), target, space.backends[schedule.backend])
        assert vector.shape == (len(FEATURE_NAMES),)
        assert np.isfinite(vector).all()


def test_feature_names_are_distinct() -> None:
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)


def test_features_are_read_in_a_millisecond() -> None:
    program = matmul()
    fastest = math.inf
    for _ in range(50):
        start = time.perf_counter()
        features(program, H200, LIMITS)
        fastest = min(fastest, time.perf_counter() - start)
    assert fastest < 1e-3


def test_the_bound_is_the_longer_of_operations_and_bytes() -> None:
    large = ops.matmul(4096, 4096, 4096, dtype="bfloat16")
    assert bound_s(large, H200) == pytest.approx(2 * 4096**3 / H200.matrix_flops)
    thin = ops.matmul(1, 4096, 4096, dtype="bfloat16")
    assert bound_s(thin, H200) == pytest.approx(thin.min_bytes / H200.memory_bytes_per_s)
    copy = ops.gelu_scale(2**24)
    assert bound_s(copy, H200) == pytest.approx(2 * 4 * 2**24 / H200.memory_bytes_per_s)


def test_positions_of_segments_count_once_in_the_bound() -> None:
    ragged = ops.grouped_matmul(64, 2048, 2048, 32768, ragged="k")
    assert bound_s(ragged, H200) == pytest.approx(2 * 2048 * 2048 * 32768 / H200.matrix_flops)


def test_pairs_of_other_segments_count_for_nothing_in_the_bound() -> None:
    whole, cut = (ops.varlen_attention(8192, 16, 128, sequences) for sequences in (1, 16))
    pairs = 4 * 16 * 128 * 8192**2 / H200.matrix_flops
    assert pairs / 20 < bound_s(cut, H200) <= pairs / 16 < bound_s(whole, H200) <= pairs


def test_the_bound_of_float32_dots_follows_their_precision() -> None:
    assert bound_s(ops.matmul(4096, 4096, 4096), H200) == pytest.approx(2 * 4096**3 / H200.fp32_flops)
    tf32 = ops.matmul(4096, 4096, 4096, dtype="tf32")
    assert bound_s(tf32, H200) == pytest.approx(2 * 4096**3 / H200.tf32_flops)


@pytest.mark.parametrize("target", [CPU, H200], ids=lambda t: t.name)
def test_no_estimate_is_below_the_bound(target: search_spaces.Target) -> None:
    for workload in (ops.matmul(512, 512, 512), ops.softmax(4096, 4096), ops.gelu_scale(2**22)):
        space = best_spaces.build(workload, target)
        rng = np.random.default_rng(0)
        for _ in range(30):
            schedule = space.sample(rng)
            estimated = latency_s(space.lower(schedule), target, space.backends[schedule.backend])
            assert estimated >= 0.99 * bound_s(workload, target)


def test_a_register_tile_reaches_its_peak_with_enough_accumulators_only() -> None:
    assert microkernel_rate(14, 32, 512, 16) > 0.95
    assert microkernel_rate(1, 16, 512, 16) < 0.2
    assert microkernel_rate(6, 20, 512, 16) < microkernel_rate(6, 32, 512, 16)
    assert microkernel_rate(6, 32, 4, 16) < 0.6


def test_an_unknown_cost_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown cost model 'xgbost'; did you mean 'xgboost'\? .*random, roofline"):
        cost_models.create("xgbost", 0)


def test_xgboost_is_imported_when_a_model_is_first_asked() -> None:
    """Its import takes seconds, which a search has while the processes that measure start."""
    script = """
import sys, cost_models, search_spaces
from search_spaces import ops, target_named
model = cost_models.create("xgboost", 0)
assert "xgboost" not in sys.modules
space = search_spaces.build(ops.matmul(64, 64, 64), target_named("h200"))
model.predict(space, space.seeds()[:1])
assert "xgboost" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2], timeout=60)


def test_models_are_found_by_listing_the_folder() -> None:
    assert set(cost_models.names()) >= {"random", "roofline", "xgboost"}
    assert "cost" not in cost_models.names()


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation."""
    ranks = [np.argsort(np.argsort(x)).astype(float) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def held_out_correlation(name: str, space: SearchSpace, records: list[TuningRecord]) -> float:
    model = cost_models.create(name, seed=0)
    model.fit(space, records)
    unseen = [space.bind(r.schedule) for r in records_of(space, 60, seed=99)]
    speeds = np.array([1.0 / truth(space, s) for s in unseen])
    return correlation(model.predict(space, unseen), speeds)


def test_trees_learn_what_the_estimate_misses() -> None:
    space = best_spaces.build(ops.softmax(4096, 4096), CPU)
    learnt = held_out_correlation("xgboost", space, records_of(space, 100))
    assert learnt > 0.85
    assert learnt > held_out_correlation("roofline", space, []) + 0.1


def test_trees_start_from_the_estimate_when_there_is_little_data() -> None:
    space = best_spaces.build(ops.matmul(256, 256, 256), CPU)
    schedules = [space.bind(r.schedule) for r in records_of(space, 20)]
    prior, model = cost_models.create("roofline", 0), cost_models.create("xgboost", 0)
    expected = prior.predict(space, schedules)
    assert model.predict(space, schedules) == pytest.approx(expected, rel=1e-3)
    model.fit(space, records_of(space, 5))
    assert model.predict(space, schedules) == pytest.approx(expected, rel=1e-3)


def test_latencies_of_another_device_are_not_compared_with_ours() -> None:
    """A device ten thousand times faster does not make our schedules look like failures, and teaches their order."""
    space = best_spaces.build(ops.softmax(2048, 2048), CPU)
    other = best_spaces.build(ops.softmax(4096, 4096), FASTER_CPU)
    records = records_of(other, 100, speed=1e4)
    assert held_out_correlation("xgboost", space, records) > 0.8
    assert held_out_correlation("xgboost", space, [*records, *records_of(space, 40)]) > 0.8


@pytest.mark.parametrize("differs", ["policy", "device", "shape"])
def test_scales_of_another_policy_device_or_shape_are_not_mixed_with_ours(differs: str) -> None:
    """Whatever unit the others were measured in, the same is learnt of them."""
    space = best_spaces.build(ops.softmax(4096, 4096), CPU)
    shape = ops.softmax(2048, 4096) if differs == "shape" else space.workload
    other = best_spaces.build(shape, FASTER_CPU if differs == "device" else CPU)
    ours = records_of(space, 40)
    unseen = [space.bind(r.schedule) for r in records_of(space, 30, seed=99)]
    predicted = []
    for speed in (1.0, 1000.0):
        theirs = records_of(other, 40, seed=1, speed=speed)
        if differs == "policy":
            theirs = [
                dataclasses.replace(r, provenance=dataclasses.replace(r.provenance, policy="hot")) for r in theirs
            ]
        model = cost_models.create("xgboost", 0)
        model.fit(space, [*theirs, *ours])
        predicted.append(model.predict(space, unseen))
    np.testing.assert_allclose(predicted[0], predicted[1], rtol=1e-4)


def test_a_backend_that_is_slower_is_learnt() -> None:
    space = search_spaces.build(ops.softmax(2048, 2048), CPU, {"quick": UNLIMITED, "slow": UNLIMITED})
    records = [
        dataclasses.replace(r, measurement=Measurement("ok", (3 * r.measurement.latency_s,)))
        if r.backend == "slow"
        else r
        for r in records_of(space, 120)
    ]
    model = cost_models.create("xgboost", 0)
    model.fit(space, records)
    drawn = [space.sample(np.random.default_rng(seed)) for seed in range(100, 120)]
    quick, slow = (model.predict(space, [dataclasses.replace(s, backend=b) for s in drawn]) for b in ("quick", "slow"))
    assert np.median(quick / slow) > 2


def test_failures_are_learnt() -> None:
    space = best_spaces.build(ops.softmax(4096, 4096), CPU)

    def fails(schedule: search_spaces.Schedule) -> bool:
        return schedule.knobs["vectors"] == 4

    records = [
        dataclasses.replace(r, measurement=Measurement("run_error", detail="no")) if fails(r.schedule) else r
        for r in records_of(space, 120)
    ]
    model = cost_models.create("xgboost", 0)
    model.fit(space, records)
    unseen = [space.bind(r.schedule) for r in records_of(space, 60, seed=99)]
    scores = model.predict(space, unseen)
    bad = np.array([fails(s) for s in unseen])
    assert scores[bad].mean() < 0.5 * scores[~bad].mean()


def failing(records: list[TuningRecord], knob: str, value: int) -> list[TuningRecord]:
    """The records, those with this value having run out of time."""
    late = Measurement("run_timeout", detail="no")
    return [dataclasses.replace(r, measurement=late) if r.schedule.knobs[knob] == value else r for r in records]


def test_what_failed_is_predicted_to_fail_and_nothing_else() -> None:
    space = best_spaces.build(ops.softmax(4096, 4096), CPU)
    model = cost_models.create("xgboost", 0)
    model.fit(space, failing(records_of(space, 60), "vectors", 4))
    unseen = [space.bind(r.schedule) for r in records_of(space, 100, seed=99)]
    stopped = model.failure_chance(space, unseen) > 0.8
    bad = np.array([s.knobs["vectors"] == 4 for s in unseen])
    assert stopped[bad].mean() > 0.8
    assert stopped[~bad].mean() < 0.02


def test_three_failures_tell_nothing() -> None:
    space = best_spaces.build(ops.softmax(4096, 4096), CPU)
    model = cost_models.create("xgboost", 0)
    records = failing(records_of(space, 60), "vectors", 4)
    failed = [r for r in records if not r.measurement.ok]
    model.fit(space, [r for r in records if r.measurement.ok] + failed[:3])
    assert not model.failure_chance(space, [space.bind(r.schedule) for r in failed]).any()


def test_what_fails_on_another_device_may_work_here() -> None:
    space = best_spaces.build(ops.softmax(4096, 4096), CPU)
    other = best_spaces.build(ops.softmax(4096, 4096), FASTER_CPU)
    model = cost_models.create("xgboost", 0)
    model.fit(space, failing(records_of(other, 60), "vectors", 4))
    assert not model.failure_chance(space, [space.bind(r.schedule) for r in records_of(space, 60)]).any()


def test_features_are_read_once_however_often_a_schedule_is_asked_for() -> None:
    space = best_spaces.build(ops.softmax(4096, 4096), CPU)
    lowered: list[Values] = []

    def lower(original: Callable[[Values], TileProgram], values: Values) -> TileProgram:
        lowered.append(values)
        return original(values)

    sketches = tuple(dataclasses.replace(s, lower=partial(lower, s.lower)) for s in space.sketches)
    counted = dataclasses.replace(space, sketches=sketches)
    records = records_of(space, 40)
    schedules = list(dict.fromkeys(counted.bind(r.schedule) for r in records))
    model = cost_models.create("xgboost", 0)
    for _ in range(2):
        model.predict(counted, schedules)
        model.fit(counted, records)
        model.failure_chance(counted, schedules)
    assert len(lowered) == len(schedules)


def test_a_thousand_records_are_learnt_in_seconds() -> None:
    space = best_spaces.build(ops.softmax(4096, 4096), CPU)
    records = records_of(space, 1000)
    model = cost_models.create("xgboost", 0)
    model.fit(space, records)
    start = time.process_time()
    model.fit(space, records)
    assert time.process_time() - start < 5
