"""Parts of all segments are dealt to programs of equal size, whatever the data is, and joined to each segment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.backends.triton.backend import TritonBackend
from best_spaces import build
from row_kinds import of_kind
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Schedule, Stage, Tensor, Workload, ops, target_named
from search_spaces.programs.statements import For, Load
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Integer, Literal, Position
from search_spaces.workloads.segments import in_segment, is_inside

H200 = target_named("h200")
g, t, c = axis_index("g"), axis_index("t"), axis_index("c")


def folded(operator: str, rows: int, columns: int, segments: int) -> Workload:
    """out[g, c] = the fold of x[t, c] over the rows of segment g; without columns, of x[t]."""
    many = columns > 1
    inputs = (
        Tensor("x", (rows, columns) if many else (rows,), "float32"),
        Tensor("offsets", (segments + 1,), "int32"),
    )
    x: Expression = Access("x", (t, c) if many else (t,))
    nothing = Literal(0.0 if operator == "sum" else -math.inf)
    axes = (Axis("g", segments), Axis("c", columns)) if many else (Axis("g", segments),)
    reduction = Reduction("sum" if operator == "sum" else "max", (Axis("t", rows),))
    body = ex.call("where", in_segment("offsets", "g", "t"), x, nothing)
    return Workload("folded", inputs, (Stage("out", axes, body, reduction),))


def right(operator: str, x: np.ndarray, offsets: Sequence[int]) -> np.ndarray:
    fold, nothing = (np.sum, 0.0) if operator == "sum" else (np.max, -math.inf)
    every = [x[max(0, begin) : max(0, end)] for begin, end in pairwise(offsets)]
    return np.stack([fold(part, 0, initial=nothing) for part in every])


def shared(workload: Workload, number: int, count: int = 1, **allowed: Sequence[str]) -> list[Schedule]:
    space, rng = of_kind(build(workload, H200), "shared", **allowed), np.random.default_rng(number)
    return [space.sample(rng) for _ in range(count)]


@given(st.data())
@settings(max_examples=15)
def test_segments_of_any_lengths_are_folded(data: st.DataObject) -> None:
    operator = data.draw(st.sampled_from(["sum", "max"]))
    columns, segments = data.draw(st.sampled_from([1, 9, 40])), data.draw(st.sampled_from([1, 2, 7, 300]))
    rows = data.draw(st.integers(2200, 2500) if columns == 1 else st.integers(300, 400))
    inside = st.integers(0, rows)
    cuts = data.draw(st.lists(inside, min_size=1, max_size=6))
    offsets = sorted(data.draw(st.lists(st.sampled_from(cuts), min_size=segments + 1, max_size=segments + 1)))
    workload = folded(operator, rows, columns, segments)
    x = np.random.default_rng(0).integers(-9, 9, (rows, columns) if columns > 1 else rows).astype(np.float32)
    (schedule,) = shared(workload, data.draw(st.integers(0, 100)))
    (got,) = interpreted(workload, schedule.program, [x, np.array(offsets, np.int32)])
    np.testing.assert_array_equal(got, right(operator, x, offsets))


@given(st.lists(st.integers(0, 350), min_size=7, max_size=7), st.integers(0, 100))
@settings(max_examples=6)
def test_folds_that_read_others_follow_them(cuts: list[int], number: int) -> None:
    """The maximum of each segment, by offsets, and the sum of powers that are relative to it, by ends."""
    x, at = Access("x", (t, c)), ex.call("to_integer", Position(t))
    power = ex.call("exp", ex.sub(x, Access("top", (g, c))))
    before, last = Access("ends", (g + Affine(offset=-1),), fill=0), Access("ends", (g,))
    inside = is_inside(at, *(ex.call("to_integer", e) for e in (before, last)))
    top = ex.call("where", in_segment("offsets", "g", "t"), x, Literal(-math.inf))
    axes, over = (Axis("g", 7), Axis("c", 9)), (Axis("t", 350),)
    stages = (
        Stage("top", axes, top, Reduction("max", over)),
        Stage("total", axes, ex.call("where", inside, power, Literal(0.0)), Reduction("sum", over)),
    )
    inputs = (Tensor("x", (350, 9), "float32"), Tensor("offsets", (8,), "int32"), Tensor("ends", (7,), "int32"))
    workload = Workload("powers", inputs, stages, output_names=("top", "total"))
    elements, offsets = np.random.default_rng(0).normal(0, 3, (350, 9)).astype(np.float32), [0, *sorted(cuts)]
    given = [elements, np.array(offsets, np.int32), np.array(offsets[1:], np.int32)]
    (schedule,) = shared(workload, number)
    assert [k.name.rsplit("_", 1)[1] for k in schedule.program.kernels] == ["items", "join", "items", "finish"]
    tops, totals = interpreted(workload, schedule.program, given)
    np.testing.assert_array_equal(tops, right("max", elements, offsets))
    parts = [np.exp(elements[a:b] - tops[n]).sum(0) for n, (a, b) in enumerate(pairwise(offsets))]
    np.testing.assert_allclose(totals, np.stack(parts), rtol=1e-5)


def test_a_program_has_a_part_of_the_longest_segment_at_most() -> None:
    workload = ops.segment_sum(2**20, 128, 2**12, "bfloat16")
    starts = [s for s in build(workload, H200).seeds() if s.knobs.integer("split") > 1]
    assert starts
    for schedule in starts:
        items, finish = schedule.program.kernels
        split = schedule.knobs.integer("split")
        count, width = schedule.knobs.tiling("columns")
        assert items.grid.axes[0].extent == split + 2**12 - 1
        (loop,) = (s for s in items.body if isinstance(s, For))
        assert loop.extent == count // split
        # The ends of the segment are read before.
        assert [s.dst.shape for s in loop.body if isinstance(s, Load)] == [(width, schedule.knobs.tile("rows"))]
        assert finish.launch.dependent == (schedule.knobs["join"] == "ahead")
        assert width * count == 2**20


@pytest.mark.parametrize("offsets", [[0, 500, 100, 350], [-70, 20, 90, 2000], [300, 200, 100, 0]])
def test_offsets_that_are_wrong_read_and_write_nothing_outside(offsets: list[int]) -> None:
    workload = folded("sum", 350, 9, 3)
    x = np.ones((350, 9), np.float32)
    for schedule in shared(workload, 3, 3):
        (got,) = interpreted(workload, schedule.program, [x, np.array(offsets, np.int32)])
        assert got.shape == (3, 9)
        if offsets == sorted(offsets):
            np.testing.assert_array_equal(got, right("sum", x, offsets))


def overlapping(kind: str) -> tuple[Workload, list[Any]]:
    """Sums of segments that need not end where the next one begins, and bounds with which they overlap."""
    apart = 2 if kind == "two apart" else 1
    places = [(g, Affine(offset=n)) if kind == "pairs" else (g + Affine(offset=n * apart),) for n in (0, 1)]
    first, last = (Access("bounds", at) for at in places)
    begin, end = ex.call("to_integer", first), ex.call("to_integer", last)
    end = ex.call("add", end, Integer(40)) if kind == "with a halo" else end
    body = ex.call(
        "where", is_inside(ex.call("to_integer", Position(t)), begin, end), Access("x", (t, c)), Literal(0.0)
    )
    bounds: dict[str, list[Any]] = {
        "pairs": [[0, 200], [50, 250], [100, 300], [150, 350]],
        "with a halo": [0, 60, 180, 200, 300],
        "two apart": [0, 50, 120, 200, 300, 350],
    }
    inputs = (Tensor("x", (350, 9), "float32"), Tensor("bounds", np.shape(bounds[kind]), "int32"))
    stage = Stage("out", (Axis("g", 4), Axis("c", 9)), body, Reduction("sum", (Axis("t", 350),)))
    return Workload("folded", inputs, (stage,)), bounds[kind]


@pytest.mark.parametrize("kind", ["pairs", "with a halo", "two apart"])
def test_segments_that_may_overlap_are_folded_whole(kind: str) -> None:
    workload, bounds = overlapping(kind)
    x, given_bounds = np.ones((350, 9), np.float32), np.array(bounds, np.int32)
    want = {"pairs": [200] * 4, "with a halo": [100, 160, 60, 140], "two apart": [120, 150, 180, 150]}[kind]
    for schedule in shared(workload, 3, 2):
        (got,) = interpreted(workload, schedule.program, [x, given_bounds])
        np.testing.assert_array_equal(got, np.broadcast_to(np.array(want)[:, None], (4, 9)))


def test_triton_folds_the_same(triton_interpreter) -> None:
    workload = folded("sum", 350, 9, 7)
    x = np.random.default_rng(0).integers(-9, 9, (350, 9)).astype(np.float32)
    offsets = [2, 2, 200, 210, 210, 340, 341, 345]
    given = [torch.from_numpy(x), torch.tensor(offsets, dtype=torch.int32)]
    for schedule in shared(workload, 5, 1, join=["after"]):  # Triton's interpreter launches nothing ahead.
        source = TritonBackend().render(schedule.program, "", H200)
        (got,) = triton_interpreter.computed(source, workload, schedule.program, given)
        np.testing.assert_array_equal(got.reshape(7, 9), right("sum", x, offsets))
