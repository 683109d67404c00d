"""Search spaces: counting, legality, binding, printing."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import best_spaces
import search_spaces
from fused_workloads import gated, prepared
from search_spaces import EmptySearchSpaceError, InputError, Schedule, SearchSpace, anchors, ops
from search_spaces.build import _made
from search_spaces.devices.target import GPUS, cpu
from search_spaces.errors import UnmatchedError
from search_spaces.schedules.knobs import Choice, Knob, Tiling, cover
from search_spaces.schedules.sketch import Sketch

CPU = cpu("a CPU", lanes=16, threads=1, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
H200 = GPUS["h200"]


def changed(space: SearchSpace, schedule: Schedule, **values: object) -> Schedule:
    knobs = {**schedule.knobs, **values}
    return Schedule(schedule.sketch, tuple(knobs.items()), space.lower, schedule.backend)  # type: ignore[arg-type]  # of any value


def plain_start(space: search_spaces.SearchSpace) -> Schedule:
    """A starting point that leaves the pipeline to the compiler."""
    return next(s for s in space.seeds() if s.knobs["specialize"] == "none")


def test_a_4096_cubed_matmul_has_at_least_a_million_legal_schedules_on_hopper() -> None:
    assert best_spaces.build(ops.matmul(4096, 4096, 4096, dtype="bfloat16"), H200).size >= 10**6


@pytest.mark.parametrize("target", [CPU, H200])
def test_size_is_the_number_of_schedules_that_iteration_yields(target: search_spaces.Target) -> None:
    space = best_spaces.build(ops.softmax(12, 100), target)
    assert space.size == sum(1 for _ in space) == len(set(space))


def test_too_much_shared_memory_is_named_before_anything_compiles() -> None:
    space = best_spaces.build(ops.matmul(4096, 4096, 4096, dtype="bfloat16"), H200)
    large = changed(space, plain_start(space), m=(16, 256), n=(16, 256), k=(32, 128), stages=4)
    assert "bytes of shared memory; h200 allows" in str(space.why_illegal(large))


def test_too_many_registers_are_named() -> None:
    space = best_spaces.build(ops.matmul(4096, 4096, 4096, dtype="bfloat16"), H200)
    large = changed(space, plain_start(space), m=(16, 256), n=(16, 256), k=(128, 32), stages=1, warps=4)
    assert "registers per thread" in str(space.why_illegal(large))


def test_a_register_tile_that_does_not_fit_a_cpu_is_named() -> None:
    space = best_spaces.build(ops.matmul(512, 512, 512), CPU)
    large = changed(space, space.sample(np.random.default_rng(0)), register=(14, 48))
    assert "vector registers; cpu has 32" in str(space.why_illegal(large))


def test_the_same_generator_state_draws_the_same_schedules() -> None:
    space = best_spaces.build(ops.matmul(512, 512, 512), CPU)
    first, second = ([space.sample(np.random.default_rng(s)) for _ in range(5)] for s in (3, 3))
    assert first == second


def test_a_schedule_prints_as_its_loop_nest() -> None:
    space = best_spaces.build(ops.matmul(512, 512, 512, epilogue="bias_relu"), H200)
    text = str(changed(space, space.sample(np.random.default_rng(0)), split=1))
    for part in (
        "contraction",
        "kernel dot_512x512: grid",
        "for k.0 in",
        "acc += dot(in0, in1) over k",
        "maximum(",
        "store out0[",
    ):
        assert part in text


def test_a_schedule_of_another_space_is_refused_with_what_is_allowed() -> None:
    space = best_spaces.build(ops.matmul(512, 512, 512), CPU)
    schedule = space.sample(np.random.default_rng(0))
    with pytest.raises(InputError, match=r"unknown sketch 'contractio'.*allowed: contraction"):
        space.bind(Schedule("contractio", schedule.values))
    with pytest.raises(InputError, match="unroll=3 is not one of"):
        space.bind(changed(space, schedule, unroll=3))
    with pytest.raises(InputError, match="expected"):
        space.bind(Schedule(schedule.sketch, schedule.values[1:]))


def test_a_record_whose_knobs_are_in_another_order_binds() -> None:
    space = best_spaces.build(ops.matmul(512, 512, 512), CPU)
    schedule = space.sample(np.random.default_rng(0))
    assert space.bind(Schedule(schedule.sketch, schedule.values[::-1], backend=schedule.backend)) == schedule


def test_an_unbound_schedule_says_how_to_bind_it() -> None:
    with pytest.raises(InputError, match=r"SearchSpace\.bind"):
        _ = Schedule("reduction", ()).program


def test_a_tiling_moves_a_factor_between_two_levels() -> None:
    values = tuple(cover(96, inner) for inner in itertools.product((1, 2, 4, 8), (1, 2, 4, 8)))
    knob = Tiling("m", 96, ("grid", "cache", "vector"), values)
    for value in values:
        for near in knob.neighbours(value):
            ups = [n > v for n, v in zip(near, value, strict=True) if n != v]
            assert sorted(ups) == [False, True]
            assert np.prod(near) >= 96


def test_mutation_changes_the_value_whenever_there_is_another() -> None:
    rng = np.random.default_rng(0)
    for knob in (Choice("warps", (4, 8)), Tiling("k", 64, ("loop", "tile"), ((4, 16), (2, 32), (1, 64)))):
        assert all(knob.mutate(v, rng) != v for v in knob.values for _ in range(5))
    assert Choice("only", (1,)).mutate(1, rng) == 1


@pytest.mark.parametrize("make", [lambda: Choice("group", ()), lambda: Tiling("m", 8, ("grid", "tile"), ())])
def test_a_knob_without_values_is_none(make: Callable[[], Knob]) -> None:
    with pytest.raises(UnmatchedError, match="has no value that fits"):
        make()


def test_a_sketch_whose_knob_has_no_value_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def derive(*_: object) -> tuple[Sketch, ...]:
        return (Sketch("in_groups", (Choice("group", ()),), lambda values: pytest.fail(f"lowered {values}")),)

    monkeypatch.setattr(sys.modules["search_spaces.build"], "_made", _made.__wrapped__)
    monkeypatch.setattr(anchors, "anchors", lambda: [("in_groups", SimpleNamespace(derive=derive))])
    with pytest.raises(EmptySearchSpaceError, match=r"tried: in_groups \(knob group has no value that fits\)"):
        best_spaces.build(ops.matmul(64, 64, 64), CPU)


def test_descriptors_are_offered_only_where_strides_are_aligned() -> None:
    aligned = best_spaces.build(ops.matmul(512, 512, 512, dtype="float16"), H200)
    odd = best_spaces.build(ops.matmul(512, 333, 512, dtype="float16"), H200)
    knobs = {k.name: k.values for k in aligned.sketches[0].knobs}
    assert knobs["b_load"] == ("pointer", "descriptor")
    knobs = {k.name: k.values for k in odd.sketches[0].knobs}
    assert knobs["a_load"] == ("pointer", "descriptor")
    assert knobs["b_load"] == ("pointer", "copied")
    assert knobs["store"] == ("pointer",)
    because = "rows of 333 float16 are 666 bytes apart; descriptors need multiples of 16"
    assert odd.remarks == (
        f"in1: {because}, so in1 is read by pointers, or copied first",
        f"out0: {because}, so out0 is written by pointers",
    )


def test_candidates_that_are_not_legal_are_counted() -> None:
    space = best_spaces.build(ops.matmul(4096, 4096, 4096, dtype="bfloat16"), H200)
    assert space.rejected == 0
    found = space.sample(np.random.default_rng(0))
    drawn = space.rejected
    decisions = space.sketches[0].decisions(found.backend)
    near = [v for k in space.sketches[0].knobs for v in decisions.neighbours(found.knobs, k.name)]
    assert space.rejected == drawn
    legal = len(list(space.neighbours(found)))
    assert space.rejected == drawn + len(near) - legal


@pytest.mark.parametrize(
    "workload",
    [
        ops.matmul(4096, 4096, 4096, dtype="float16"),
        ops.matmul(1000, 1000, 3000, dtype="float16", epilogue="bias_gelu"),
        ops.matmul(16, 4096, 4096, dtype="bfloat16"),
        gated(2048, 14336, 4096, "bfloat16", layout="t"),
        prepared(2048, 4096, 4096, "bfloat16", prologue="normalised"),
        ops.softmax(4096, 4096),
        ops.layernorm(2048, 50257, dtype="bfloat16"),
        ops.row_sum(64, 100_000),
    ],
    ids=lambda w: w.label,
)
def test_most_of_what_is_drawn_is_legal(workload: search_spaces.Workload) -> None:
    """A draw of a float16 product came upon 25 illegal candidates for each legal one when knobs were independent."""
    whole = best_spaces.build(workload, H200)
    for sketch in whole.sketches:
        space, rng = whole.restricted(sketch.name), np.random.default_rng(0)
        for _ in range(100):
            space.sample(rng)
        assert space.rejected <= 100, sketch.name


def test_a_knob_that_means_nothing_keeps_its_neutral_value() -> None:
    space = best_spaces.build(ops.matmul(4096, 4096, 4096, dtype="float16"), H200)
    rng = np.random.default_rng(0)
    drawn = [space.sample(rng) for _ in range(40)]
    found = [*drawn, *(space.mutate(s, rng) for s in drawn), *space.neighbours(drawn[0])]
    found += [space.crossover(a, b, rng) for a, b in itertools.pairwise(drawn)]
    for knobs in (s.knobs for s in found):
        assert knobs["per_sm"] == 1 or knobs["grid"] != "tiles"
        assert knobs["partials"] == "workspace" or knobs["split"] != 1 or knobs["grid"] == "stream_k"


def test_a_change_takes_along_what_it_leaves_without_meaning() -> None:
    space = best_spaces.build(ops.matmul(4096, 4096, 4096, dtype="float16"), H200)
    walked = changed(space, plain_start(space), grid="persistent", per_sm=2, split=1)
    assert space.why_illegal(walked) is None
    whole = next(s for s in space.neighbours(walked) if s.knobs["grid"] == "tiles")
    assert whole.knobs["per_sm"] == 1


def test_a_space_can_be_restricted_to_some_values() -> None:
    space = best_spaces.build(ops.softmax(12, 100), H200)
    part = space.restricted("reduction", warps=[4, 8, 99], grid=["tiles"])
    assert {s.sketch for s in part} == {"reduction"}
    assert {s.knobs["warps"] for s in part} == {4, 8}
    assert all(space.bind(s) == s for s in part)
    with pytest.raises(InputError, match="unknown knob of reduction 'wraps'; did you mean 'warps'"):
        space.restricted("reduction", wraps=[4])
    with pytest.raises(InputError, match=r"warps: none of \[5\] is a value"):
        space.restricted("reduction", warps=[5])


@pytest.mark.parametrize("m", [16, 512])
def test_a_matmul_on_several_threads_starts_from_points_that_keep_each_busy(m: int) -> None:
    threads = 4
    target = cpu("a CPU", lanes=16, threads=threads, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
    space = best_spaces.build(ops.matmul(m, 1536, 512), target)
    starts = space.seeds()
    assert starts
    assert all(kernel.grid.tiles >= threads for s in starts for kernel in space.bind(s).program.kernels)


@pytest.mark.parametrize(("rows", "expected"), [(64, {False}), (4096, {False, True})])
def test_a_cpu_stores_past_its_caches_what_these_do_not_hold(rows: int, expected: set[bool]) -> None:
    space = search_spaces.build(ops.softmax(rows, 1024), CPU)
    assert {s.knobs["streaming"] for s in space} == expected


def test_records_that_store_past_caches_are_still_bound() -> None:
    space = search_spaces.build(ops.softmax(64, 1024), CPU)
    assert space.bind(changed(space, space.sample(np.random.default_rng(0)), streaming=True)).program
