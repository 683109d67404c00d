"""Points that read what their neighbours read, and reads at an index that is selected: pooling, blurs, padding.

Every program runs in the interpreter, and printed in Triton's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from best_spaces import build
from scheduled_tensors import interpreted
from search_spaces import Axis, EmptySearchSpaceError, Schedule, Stage, Workload, target_named
from search_spaces import Tensor as Input
from search_spaces.programs.addressing import reach
from search_spaces.programs.grid import Grid
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.statements import Deinterleave, Interleave, Load, Store, statements
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import KnobValue
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Literal, Position, call

TRITON, TARGET = TritonBackend(), target_named("h200")


def blur(x: Tensor) -> Tensor:
    x = F.pad(x, (1, 1, 1, 1))
    return x[..., :-2, 1:-1] + x[..., 2:, 1:-1] + x[..., 1:-1, :-2] + x[..., 1:-1, 2:]


def both(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x[..., 1:-1]
    return x[..., 2:] + y, y * 2


def circular(x: Tensor) -> Tensor:
    return F.pad(x, (3, 3, 1, 2), mode="circular")


SHARING: dict[str, Callable[..., object]] = {
    "means": lambda x: F.silu(F.avg_pool2d(x, 3, padding=1, stride=1)),
    "means of others": lambda x: F.avg_pool2d(x, 3, padding=1, stride=2, count_include_pad=False),
    "largest": lambda x: F.max_pool2d(x, 3, 2, 1),
    "every third": lambda x: F.max_pool2d(x, 5, 3, 2),
    "blurred": blur,
    "two results": both,
    "pairs": lambda x: torch.stack((x[..., ::2] - x[..., 1::2], x[..., ::2] + x[..., 1::2]), -1).flatten(-2),
}
SELECTING: dict[str, Callable[..., object]] = {
    "reflected": lambda x: F.gelu(F.pad(x, (3, 3, 1, 2), mode="reflect")),
    "replicated": lambda x: F.pad(x, (3, 3, 1, 2), mode="replicate") * 2,
    "circular": circular,
    "rolled": lambda x: x.roll((5, -3), (1, 2)) + 1,
}


def workload_of(function: Callable[..., object]) -> Workload:
    (workload,) = trace(function, torch.empty(2, 14, 70, dtype=torch.float16)).workloads
    return workload


def schedules(workload: Workload, count: int = 4, **knobs: KnobValue) -> list[Schedule]:
    """So many schedules with these values, of few programs."""
    space = build(workload, TARGET)
    tall = [r for k in space.sketches[0].knobs if k.name == "rows" for r in k.values if r[-1] >= 8 or len(k.values) < 4]
    space = space.restricted("pointwise", rows=tall, **{name: (value,) for name, value in knobs.items()})
    rng = np.random.default_rng(5)
    return list(dict.fromkeys(space.sample(rng) for _ in range(count)))


def check(triton_interpreter, workload: Workload, schedule: Schedule) -> None:
    inputs = random_inputs(workload, seed=3)
    program = schedule.program
    by_numpy = interpreted(workload, program, [x.double() for x in inputs])
    printed = triton_interpreter.computed(TRITON.render(program, "", TARGET), workload, program, inputs)
    for expected, *found in zip(expect(workload, inputs), by_numpy, printed, strict=True):
        for got in found:
            values = torch.from_numpy(np.ascontiguousarray(got)).half().view(expected.values.shape)
            assert why_wrong(values, expected) is None, str(schedule)


WRITTEN_OUT = [*((name, 2, 4) for name in SHARING), ("means", 4, 1), ("largest", 1, 8)]


@pytest.mark.parametrize(("name", "rows", "columns"), WRITTEN_OUT)
def test_points_written_out_are_those_of_a_tile(triton_interpreter, name: str, rows: int, columns: int) -> None:
    workload = workload_of(SHARING[name])
    knobs = {k.name for s in build(workload, TARGET).sketches for k in s.knobs}
    wanted = {"unrolled_rows": rows, "unrolled_columns": columns}
    for schedule in schedules(workload, count=1, **{k: v for k, v in wanted.items() if k in knobs}):
        check(triton_interpreter, workload, schedule)


def test_what_neighbours_read_together_is_loaded_once() -> None:
    (schedule,) = schedules(workload_of(SHARING["means"]), count=1, unrolled_rows=2, unrolled_columns=4)
    loads = [s for s in statements(schedule.program.kernels[0].body) if isinstance(s, Load)]
    # Four rows, and in each the vector of four columns with its neighbours on both sides.
    assert len(loads) == 4 * 3
    assert all(s.slices[-1].step == 1 for s in loads)


@pytest.mark.parametrize("name", SELECTING)
def test_a_selection_of_reads_is_a_read_of_what_is_selected(triton_interpreter, name: str) -> None:
    workload = workload_of(SELECTING[name])
    for schedule in schedules(workload, count=2, selected=True, flat=0, unrolled_columns=1):
        (load,) = (s for s in statements(schedule.program.kernels[0].body) if isinstance(s, Load))
        assert any(piece.before for piece in load.slices)
        assert not load.guarded
        check(triton_interpreter, workload, schedule)


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("name", ["reflected", "circular"])
def test_rows_and_columns_are_walked_as_one_axis(triton_interpreter, name: str, width: int) -> None:
    workload = workload_of(SELECTING[name])
    space = build(workload, TARGET).restricted("pointwise", flat=(256,), unrolled_columns=(width,), grid=("tiles",))
    schedule = space.sample(np.random.default_rng(1))
    # 17 rows of 76 columns.
    assert schedule.program.kernels[0].grid.programs == 2 * -(-17 * 76 // (256 * width)), str(schedule)
    check(triton_interpreter, workload, schedule)


def test_what_is_selected_along_one_axis_needs_no_mask() -> None:
    space = build(workload_of(SELECTING["reflected"]), TARGET).restricted("pointwise", flat=(256,), selected=(True,))
    (load, *_) = (
        s for s in statements(space.sample(np.random.default_rng(1)).program.kernels[0].body) if isinstance(s, Load)
    )
    assert reach(load.slices[-1], {"d2.0": 100})[0] >= 0
    assert reach(load.slices[-1], {"d2.0": 100})[1] < 70


def test_a_vector_of_rows_that_are_one_axis_divides_them() -> None:
    space = build(workload_of(SELECTING["reflected"]), TARGET)
    only = space.restricted("pointwise", flat=(256,), unrolled_columns=(8,))
    with pytest.raises(EmptySearchSpaceError):
        only.sample(np.random.default_rng(0))


def test_a_selected_index_outside_of_the_tensor_reads_the_fill(triton_interpreter) -> None:
    i = axis_index("i")
    shifted = (Access("x", (i + Affine(offset=by),), fill=7.0) for by in (-5, 3))
    selection = call("where", call("lt", Position(i), Literal(20.0)), *shifted)
    workload = Workload("shifted", (Input("x", (100,), "float16"),), (Stage("out", (Axis("i", 100),), selection),))
    for schedule in schedules(dataclasses.replace(workload), count=3, selected=True):
        check(triton_interpreter, workload, schedule)


def test_work_without_shared_reads_has_no_such_decisions() -> None:
    (sketch,) = build(workload_of(lambda x: torch.cat((-x, x * 2), -1)), TARGET).sketches
    assert {k.name for k in sketch.knobs}.isdisjoint({"unrolled_rows", "unrolled_columns", "selected"})


@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("axis", ["i", "j"])
def test_positions_in_turn_are_taken_apart_and_put_together(triton_interpreter, parts: int, axis: str) -> None:
    shape = {"i": 8, "j": 16}
    whole = Tile("whole", ("i", "j"), (8, 16))
    divided = tuple(n // parts if x == axis else n for x, n in shape.items())
    turns = tuple(Tile(f"turn{p}", ("i", "j"), divided) for p in range(parts))
    place = tuple(Slice(Affine(), n, x) for x, n in shape.items())
    body = (
        Load(whole, "x", place),
        Deinterleave(turns, "whole", axis),
        Interleave(dataclasses.replace(whole, name="back"), tuple(t.name for t in (*turns[1:], turns[0])), axis),
        Store("out", place, "back"),
    )
    buffers = (Buffer("x", (8, 16), "float32", "input"), Buffer("out", (8, 16), "float32", "output"))
    program = TileProgram("turns", buffers, (Kernel("turns", Grid(()), body),))
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    along = "ij".index(axis)
    last = np.moveaxis(x, along, -1)
    # One position on, the last of each group being its first.
    turned = np.roll(last.reshape(-1, parts), -1, 1).reshape(last.shape)
    wanted = np.moveaxis(turned, -1, along)
    np.testing.assert_array_equal(interpret(program, [x])[0], wanted)
    np.testing.assert_array_equal(triton_interpreter.run(TRITON.render(program, "", TARGET), program, {"x": x}), wanted)
