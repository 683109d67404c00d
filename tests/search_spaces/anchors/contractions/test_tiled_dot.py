"""Tiled contractions on a GPU: no knob changes what is computed, and what the space forbids it gives a reason for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import best_spaces
from autosched.backends.triton.backend import TritonBackend
from autosched.backends.triton.resources import resources
from autosched.checking.correctness import Expectation, error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Target, Workload, ops, target_named
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.statements import statements
from search_spaces.programs.tiles import Slice
from search_spaces.schedules.knobs import KnobValue, Values

H200 = target_named("h200")
# So few units that persistent programs have several tiles of a small product each.
SMALL = replace(H200, num_sms=4)
BACKEND = TritonBackend()


@lru_cache
def tiled_space(workload: Workload, target: Target = SMALL) -> SearchSpace:
    return best_spaces.build(workload, target).restricted("contraction")


def schedule(space: SearchSpace, **chosen: KnobValue) -> Schedule:
    """The schedule with these values and the first one of every other knob; of a tiling, with this innermost level."""
    (sketch,) = space.sketches
    values: dict[str, KnobValue] = {k.name: k.values[0] for k in sketch.knobs}
    for name, value in {"m": 16, "n": 32, "k": 64, "warps": 4, **chosen}.items():
        is_size = isinstance(values[name], tuple) and isinstance(value, int)
        values[name] = next(v for v in knob_values(space, name) if v[-1] == value) if is_size else value  # type: ignore[index,misc]
    return space.bind(Schedule(sketch.name, tuple(values.items())))


def knob_values(space: SearchSpace, name: str) -> tuple[KnobValue, ...]:
    return next(k.values for k in space.sketches[0].knobs if k.name == name)


def why_illegal(workload: Workload, target: Target = SMALL, **chosen: KnobValue) -> str | None:
    space = tiled_space(workload, target)
    return space.why_illegal(schedule(space, **chosen))


@lru_cache
def inputs_of(workload: Workload) -> list[torch.Tensor]:
    return random_inputs(workload, seed=3)


@lru_cache
def expected_of(workload: Workload) -> Expectation:
    return expect(workload, inputs_of(workload))[0]


def assert_computes(workload: Workload, chosen: Schedule) -> None:
    """The program of a legal schedule yields the workload's output, in the NumPy interpreter of tile programs."""
    assert tiled_space(workload).why_illegal(chosen) is None
    got = torch.from_numpy(interpreted(workload, chosen.program, inputs_of(workload))[0])
    assert error_ratio(got, expected_of(workload)) <= 1, str(chosen)


def assert_changes_nothing_but_speed(workload: Workload, **chosen: KnobValue) -> None:
    space = tiled_space(workload)
    other = schedule(space, **chosen)
    assert other.program != schedule(space).program
    assert_computes(workload, other)


# Every size leaves a rest, no row begins where a descriptor could say, and the last of four parts of k is empty.
ODD = {
    "nn": ops.matmul(33, 70, 515, dtype="float16", batch=3),
    "nt": ops.matmul(33, 70, 515, dtype="float32", layout="nt", epilogue="bias_gelu"),
    "tn": ops.matmul(33, 70, 515, dtype="float16", layout="tn", epilogue="rowscale_colscale"),
    "tt": ops.matmul(33, 70, 515, dtype="int8", layout="tt"),
    "int8": ops.matmul(33, 70, 515, dtype="int8", epilogue="rowscale_colscale", out_dtype="float32"),
}
# Descriptors can address every row, but tiles reach beyond the end.
ALIGNED = {
    layout: ops.matmul(80, 48, 272, dtype=dtype, layout=layout, batch=batch, epilogue=epilogue)
    for layout, dtype, batch, epilogue in (
        ("nn", "float16", 3, ""),
        ("nt", "float32", None, "bias_gelu_residual"),
        ("tn", "float16", None, "residual"),
        ("tt", "int8", 2, ""),
    )
}
ON_ODD_SIZES = pytest.mark.parametrize("workload", ODD.values(), ids=list(ODD))
ON_ALIGNED_SIZES = pytest.mark.parametrize("workload", ALIGNED.values(), ids=list(ALIGNED))


class TestKnobsChangeNothingButSpeed:
    @ON_ODD_SIZES
    @pytest.mark.parametrize(
        "others", [{}, {"m": 32, "subtiles": 2}, {"grid": "stream_k", "partials": "atomic"}], ids=str
    )
    def test_swapped_operands(self, workload: Workload, others: dict[str, KnobValue]) -> None:
        assert_changes_nothing_but_speed(workload, swap=True, **others)

    @ON_ODD_SIZES
    @pytest.mark.parametrize("partials", ["workspace", "atomic"])
    @pytest.mark.parametrize("splits", [2, 4])
    def test_a_split_reduction(self, workload: Workload, splits: int, partials: str) -> None:
        assert_changes_nothing_but_speed(workload, split=splits, partials=partials)

    @ON_ODD_SIZES
    @pytest.mark.parametrize("per_sm", [1, 3])
    def test_a_streamed_reduction(self, workload: Workload, per_sm: int) -> None:
        assert_changes_nothing_but_speed(workload, grid="stream_k", partials="atomic", per_sm=per_sm, n=64, subtiles=2)

    @ON_ODD_SIZES
    @pytest.mark.parametrize("grid", ["persistent", "persistent_flat"])
    def test_programs_that_walk_the_grid(self, workload: Workload, grid: str) -> None:
        assert_changes_nothing_but_speed(workload, grid=grid, per_sm=2)

    @ON_ODD_SIZES
    @pytest.mark.parametrize("order", ["row_major", "column_major"])
    def test_the_order_of_tiles(self, workload: Workload, order: str) -> None:
        assert_changes_nothing_but_speed(workload, order=order, group=2)

    @ON_ODD_SIZES
    @pytest.mark.parametrize("subtiles", [2, 4])
    def test_an_output_tile_in_parts(self, workload: Workload, subtiles: int) -> None:
        assert_changes_nothing_but_speed(workload, n=64, subtiles=subtiles)

    @ON_ODD_SIZES
    def test_a_peeled_last_step(self, workload: Workload) -> None:
        assert_changes_nothing_but_speed(workload, tail="peeled")

    @ON_ODD_SIZES
    def test_operands_copied_into_aligned_rows(self, workload: Workload) -> None:
        assert_changes_nothing_but_speed(workload, a_load="copied", b_load="copied")

    @pytest.mark.parametrize("name", ["tt", "int8"])
    def test_an_operand_turned_round(self, name: str) -> None:
        across_k = {"tt": "a_load", "int8": "b_load"}[name]
        assert_changes_nothing_but_speed(ODD[name], **{across_k: "transposed"})

    @ON_ALIGNED_SIZES
    def test_tiles_moved_by_descriptor(self, workload: Workload) -> None:
        assert_changes_nothing_but_speed(workload, a_load="descriptor", b_load="descriptor", store="descriptor")

    @ON_ALIGNED_SIZES
    def test_partial_sums_stored_by_descriptor(self, workload: Workload) -> None:
        assert_changes_nothing_but_speed(workload, grid="stream_k", partials="atomic", store="descriptor")

    @pytest.mark.parametrize("name", ["nt", "tn"])
    @pytest.mark.parametrize("swap", [False, True])
    def test_a_residual_read_by_descriptor(self, name: str, swap: bool) -> None:
        chosen = {"m": 32, "n": 32, "swap": swap, "subtiles": 2}
        assert_changes_nothing_but_speed(ALIGNED[name], epilogue_load="descriptor", **chosen)

    @pytest.mark.parametrize("kind", ["cooperative", "pingpong"])
    @pytest.mark.parametrize("name", ["nn", "tn"])
    def test_specialised_warps(self, name: str, kind: str) -> None:
        half_units = {
            "m": 64,
            "n": 16,
            "stages": 2,
            "grid": "persistent",
            "a_load": "descriptor",
            "b_load": "descriptor",
        }
        rows = {"m": 128} if kind == "cooperative" else {}
        assert_changes_nothing_but_speed(ALIGNED[name], specialize=kind, warps=8, **{**half_units, **rows})


def test_rows_beyond_the_end_are_clamped_and_never_stored() -> None:
    """Loads by pointer need no mask along rows: the last row is read in their place, and the reference is met."""
    workload = ODD["nt"]
    chosen = schedule(tiled_space(workload))
    assert all(piece.clamped == (position == 0) for s in operand_loads(chosen) for position, piece in enumerate(s))
    assert_computes(workload, chosen)


def operand_loads(chosen: Schedule) -> Iterator[tuple[Slice, ...]]:
    for s in statements(chosen.program.kernels[0].body):
        if getattr(s, "buffer", "") in ("a", "b"):
            yield s.slices  # type: ignore[union-attr]


# Interpreting takes milliseconds for every tile and turn.
FEW_TILES = {"m": 32, "n": 64}


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"swap": True, "subtiles": 2},
        {"n": 128, "subtiles": 4},
        {"split": 4},
        {"split": 2, "partials": "atomic"},
        {"grid": "stream_k", "partials": "atomic"},
        {"grid": "persistent_flat", "order": "column_major", "group": 2},
        {"tail": "peeled"},
        {"a_load": "copied", "b_load": "copied"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["nt", "tn"])
def test_printed_kernels_compute_the_workload(triton_interpreter: Any, name: str, chosen: dict[str, KnobValue]) -> None:
    workload = ODD[name]
    made = schedule(tiled_space(workload), **{**FEW_TILES, **chosen})
    assert tiled_space(workload).why_illegal(made) is None
    got = triton_interpreter.computed(
        BACKEND.render(made.program, made.one_line, H200), workload, made.program, inputs_of(workload)
    )[0]
    assert error_ratio(torch.from_numpy(got), expected_of(workload)) <= 1


class TestStreams:
    @given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 40))
    def test_every_turn_of_every_tile_is_dealt_once(self, tiles: int, turns: int, programs: int) -> None:
        dealt = [(tile, turn) for tile, share in streaming(tiles, turns, programs).shares() for turn in share]
        assert dealt == [(tile, turn) for tile in range(tiles) for turn in range(turns)]

    @given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 40))
    def test_shares_are_contiguous_and_differ_by_one_turn_at_most(self, tiles: int, turns: int, programs: int) -> None:
        grid = streaming(tiles, turns, programs)
        ends = np.cumsum([len(share) for _, share in grid.shares()]).tolist()
        # Where the equal share of a program ends, a piece of a tile does.
        shortest, longer = divmod(tiles * turns, grid.programs)
        assert all(p * shortest + min(p, longer) in ends for p in range(1, grid.programs + 1))
        assert shortest >= 1


def streaming(tiles: int, turns: int, programs: int) -> Grid:
    return Grid((GridAxis("m", tiles),), persistent=programs, stream=("k", turns))


HALF = ALIGNED["nn"]
EXACT = ALIGNED["nt"]
THIN_BYTES = ops.matmul(512, 16, 512, dtype="int8")
BYTES = ops.matmul(512, 512, 512, dtype="int8")
SUMS_OF_BYTES = ops.matmul(512, 512, 512, dtype="float8_e4m3fn", layout="nt")
BROUGHT = {"a_load": "descriptor", "b_load": "descriptor", "stages": 2, "m": 64}
SPECIAL = {**BROUGHT, "specialize": "cooperative"}


@pytest.mark.parametrize(
    ("workload", "chosen", "reason"),
    [
        (ops.matmul(8, 64, 64), {"m": 8}, "at least 16 rows, got 8; swap"),
        (HALF, {"subtiles": 4}, "subtiles=4 needs at least 64 columns of the accumulator, got 32"),
        (ODD["nn"], {"tail": "peeled", "split": 2}, "tail=peeled is for the last step"),
        (ODD["nn"], {"tail": "peeled", "a_load": "copied", "b_load": "copied"}, "read by pointers"),
        (EXACT, {"epilogue_load": "descriptor", "split": 2}, "epilogue in the same kernel: split=1"),
        (HALF, {"grid": "stream_k"}, "needs split=1 and partials=atomic"),
        (HALF, {"grid": "stream_k", "split": 2, "partials": "atomic"}, "needs split=1 and partials=atomic"),
        (HALF, {"partials": "atomic"}, "needs a shared reduction: split above 1"),
        (HALF, {"per_sm": 2}, "grid=tiles has one per tile"),
        (HALF, {"grid": "persistent_flat", "per_sm": 3, "m": 64, "n": 64}, "per_sm=3 adds programs to 8, got 6 pieces"),
        (HALF, {"ctas": 2, "m": 64}, "expected more columns than rows, got 64 x 32"),
        (HALF, {"ctas": 2, "m": 32, "n": 64}, "64 rows at least; got subtiles=1, 32 rows"),
        (BYTES, {"ctas": 2, "m": 64, "n": 128}, "ctas=2 compiles for operands of 16 and 32 bits"),
        (THIN_BYTES, {"n": 8, "b_load": "descriptor"}, "rows of 16 bytes at least, got 8 int8 along n"),
        (HALF, {"specialize": "cooperative"}, "by descriptor, not by pointers"),
        (HALF, {**SPECIAL, "grid": "persistent_flat"}, "needs grid=tiles or grid=persistent"),
        (HALF, {**SPECIAL, "warps": 2}, "num_warps=2; expected 4 or 8"),
        (HALF, {**SPECIAL, "specialize": "pingpong", "warps": 8}, "two warp groups, more tiles than programs"),
        (HALF, {**SPECIAL, "m": 32}, "32 rows for a warp group; expected a multiple of 64"),
        (BYTES, {**SPECIAL, "m": 256, "n": 128}, "256 x 128 sums for a warp group; expected at most 16384"),
        (HALF, {**SPECIAL, "stages": 1}, "1 stages; expected at least 2"),
        (SUMS_OF_BYTES, {**SPECIAL, "k": 256}, "256 products of float8_e4m3fn in a row; expected at most 128"),
        (ops.matmul(512, 16, 512, dtype="float16"), {**SPECIAL, "n": 8}, "rows of tiles of in1 have 8 elements"),
        (ops.matmul(512, 512, 512), SPECIAL, "no dots of float32 as ieee"),
        (BYTES, {**SPECIAL, "n": 256}, "256 columns of sums of int8; expected at most 128"),
        (BYTES, {**SPECIAL, "n": 64}, "in1 has to run along k where it is the dot's columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_rule_is_named_with_what_was_expected(workload: Workload, chosen: dict[str, KnobValue], reason: str) -> None:
    assert reason in str(why_illegal(workload, **chosen))


def test_a_product_of_8_by_8_has_legal_schedules() -> None:
    space = tiled_space(ops.matmul(8, 8, 8, dtype="int8"))
    assert len(space.seeds()) >= 4


def test_a_peeled_step_adds_to_the_same_registers() -> None:
    workload = ODD["nn"]
    plain, peeled = (schedule(tiled_space(workload), tail=tail).program for tail in ("masked", "peeled"))
    assert resources(plain, plain.kernels[0], H200) == resources(peeled, peeled.kernels[0], H200)


WIDE = {"m": 128, "n": 128, "k": 64, "warps": 8, "stages": 4, "a_load": "descriptor", "b_load": "descriptor"}
MEDIUM = {**WIDE, "n": 64, "warps": 4, "stages": 5}
SWAPPED_THIN = {**WIDE, "m": 16, "n": 128, "k": 128, "swap": True}
SUMMED_TWICE = {"split": 4, "partials": "atomic"}
WALKING = {"grid": "persistent", "store": "descriptor"}
SQUARE = ops.matmul(4096, 4096, 4096, dtype="bfloat16", layout="nt")


@pytest.mark.parametrize(
    ("workload", "chosen"),
    [
        (SQUARE, {**MEDIUM, **SUMMED_TWICE}),
        (SQUARE, {**WIDE, "grid": "persistent_flat", "store": "descriptor", "subtiles": 2}),
        (SQUARE, {**MEDIUM, "grid": "stream_k", "partials": "atomic", "store": "descriptor", "subtiles": 2}),
        (SQUARE, {**WIDE, **WALKING, "specialize": "pingpong", "stages": 6, "subtiles": 4}),
        (SQUARE, {**WIDE, **WALKING, "specialize": "cooperative", "n": 256, "subtiles": 8}),
        (ops.matmul(2048, 2048, 2048, dtype="tf32"), {**MEDIUM, "k": 32}),
        (ops.matmul(1024, 1024, 1024, dtype="int8", layout="nt"), {**MEDIUM, "k": 128, "split": 2}),
        (ops.matmul(16, 6144, 4096, dtype="bfloat16", layout="nt"), {**SWAPPED_THIN, "split": 2}),
    ],
    ids=str,
)
def test_shared_memory_is_foreseen(workload: Workload, chosen: dict[str, KnobValue]) -> None:
    space = tiled_space(workload, H200)
    made = schedule(space, **chosen)
    assert space.why_illegal(made) is None
    program = made.program
    reported = BACKEND.compile(BACKEND.render(program, "", H200), program, H200).facts.shared_memory_bytes
    foreseen = max(resources(program, kernel, H200).shared_memory_bytes for kernel in program.kernels)
    assert abs(foreseen - reported) <= 64
    assert foreseen >= 0.99 * reported


# (batch, m, n, k, dtype, layout) of products in language models, encoders and benchmarks of the field; multiples of a
# tile, of 16 bytes, and of nothing.
SHAPES = [
    (None, 512, 512, 512, "bfloat16", "nt"),
    (None, 1024, 1024, 1024, "bfloat16", "nt"),
    (None, 4096, 4096, 4096, "bfloat16", "nt"),
    (None, 8192, 8192, 8192, "bfloat16", "nt"),
    (None, 4096, 4096, 4096, "float16", "nn"),
    (None, 2048, 2048, 2048, "tf32", "nn"),
    (None, 1, 6144, 4096, "bfloat16", "nt"),
    (None, 16, 6144, 4096, "bfloat16", "nt"),
    (None, 128, 4096, 4096, "bfloat16", "nt"),
    (None, 128, 4096, 14336, "bfloat16", "nt"),
    (None, 2048, 28672, 4096, "bfloat16", "nt"),
    (None, 2048, 4096, 14336, "bfloat16", "nt"),
    (None, 16384, 768, 768, "float16", "nt"),
    (None, 16384, 3072, 768, "float16", "nt"),
    (None, 1000, 1000, 1000, "bfloat16", "nt"),
    (None, 1021, 2039, 4093, "bfloat16", "nt"),
    (None, 5124, 700, 2048, "float16", "nn"),
    (None, 35, 8457, 2560, "float16", "nn"),
    (None, 7680, 1500, 2560, "float16", "nn"),
    (None, 64, 64, 131072, "bfloat16", "nt"),
    (64, 512, 512, 64, "float16", "nn"),
    (None, 4096, 4096, 4096, "float8_e4m3fn", "nt"),
]


@pytest.mark.parametrize(("batch", "m", "n", "k", "dtype", "layout"), SHAPES)
def test_a_search_has_points_to_start_from(batch: int | None, m: int, n: int, k: int, dtype: str, layout: str) -> None:
    space = tiled_space(ops.matmul(m, n, k, dtype=dtype, layout=layout, batch=batch), H200)
    starts = space.seeds()
    assert len(starts) >= 4
    assert all(BACKEND.render(s.program, "", H200) for s in starts[:4])


def test_what_a_program_needs_is_looked_at_once_a_candidate_at_most() -> None:
    """Lowering takes most of the time that drawing takes: few candidates are illegal, and those that agree share it."""
    space = tiled_space(ops.matmul(4096, 4096, 4096, dtype="bfloat16"), H200)
    (sketch,) = space.sketches
    lowered: list[Values] = []

    def counted(values: Values):  # type: ignore[no-untyped-def]
        lowered.append(values)
        return sketch.lower(values)

    counting = SearchSpace(space.workload, space.target, (replace(sketch, lower=counted),), space.backends)
    rng = np.random.default_rng(0)
    drawn = [counting.sample(rng) for _ in range(200)]
    candidates = len(drawn) + counting.rejected
    assert len(lowered) <= candidates < 2 * len(drawn)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_8_bit_types_have_warp_specialised_kernels_to_start_from_in_every_layout(dtype: str, layout: str) -> None:
    starts = tiled_space(ops.matmul(4096, 4096, 4096, dtype=dtype, layout=layout), H200).seeds()
    specialised = [s for s in starts if s.knobs["specialize"] != "none"]
    assert len(specialised) >= 6
    turned = {"a_load": layout[0] == "t", "b_load": layout[1] == "n"}
    assert all((s.knobs[x] == "transposed") == wanted for s in specialised for x, wanted in turned.items())


@pytest.mark.parametrize("target", ["t4", "v100", "rtx4090"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gpus_with_little_shared_memory_have_points_to_start_from_too(target: str, dtype: str) -> None:
    space = tiled_space(ops.matmul(512, 512, 512, dtype=dtype), target_named(target))
    assert len(space.seeds()) >= 6


def test_the_start_that_is_hungriest_for_shared_memory_fits_a_gpu_with_little() -> None:
    space = tiled_space(ops.matmul(512, 512, 512, dtype="float16"), target_named("rtx4090"))
    hungriest = max(space.seeds(), key=operands_in_flight)
    artefact = BACKEND.compile(BACKEND.render(hungriest.program, "", space.target), hungriest.program, space.target)
    assert artefact.facts.shared_memory_bytes <= space.target.shared_memory_bytes


def operands_in_flight(schedule: Schedule) -> int:
    """Elements of a turn's tiles, times the turns that are in flight."""
    m, n, k = (schedule.knobs[axis][-1] for axis in "mnk")
    return (m + n) * k * schedule.knobs["stages"]
