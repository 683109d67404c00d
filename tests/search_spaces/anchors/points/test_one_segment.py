"""Tiles within a segment look it up once, those across several for every row; both are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from autosched.checking.correctness import expect, why_wrong
from best_spaces import build
from scheduled_tensors import interpreted
from search_spaces import Axis, Stage, Tensor, Workload, target_named
from search_spaces.programs.statements import If, Load, statements
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Gather, Literal, Position, Segment, add, call

H200 = target_named("h200")
ROWS, COLUMNS, SEGMENTS = 70, 130, 5
t, c = axis_index("t"), axis_index("c")


def scaled(position: Affine = t) -> Workload:
    """out[t, c] = x[t, c] + |table[segment of the position]|."""
    own = Gather("table", (Segment("ends", position, SEGMENTS),))
    inputs = (
        Tensor("x", (ROWS, COLUMNS), "float32"),
        Tensor("ends", (SEGMENTS,), "int64"),
        Tensor("table", (SEGMENTS,), "float32"),
    )
    body = add(Access("x", (t, c)), call("abs", own))
    return Workload("scaled", inputs, (Stage("out", (Axis("t", ROWS), Axis("c", COLUMNS)), body),))


@pytest.mark.parametrize(
    "ends",
    [[70, 70, 70, 70, 70], [0, 0, 0, 0, 0], [16, 32, 48, 64, 70], [3, 17, 17, 40, 66], [0, 31, 32, 33, 33]],
    ids=["one hot", "behind all", "at tiles", "within tiles", "short"],
)
def test_rows_have_the_entry_of_their_segment(ends: list[int]) -> None:
    workload = scaled()
    given = [torch.randn(ROWS, COLUMNS), torch.tensor(ends), torch.randn(SEGMENTS)]
    (expected,) = expect(workload, given)
    for schedule in [s for s in build(workload, H200).seeds() if s.knobs.tile("rows") > 1][:3]:
        assert any(isinstance(s, If) for s in schedule.program.kernels[0].body)
        (made,) = interpreted(workload, schedule.program, given)
        assert why_wrong(torch.from_numpy(np.ascontiguousarray(made)), expected) is None, schedule.one_line


def test_reads_that_a_selection_makes_one_are_read_once() -> None:
    workload = scaled()
    rows = call("lt", Position(t), Literal(16.0))
    chosen = call("where", rows, Access("x", (t, c)), Access("x", (t + Affine(offset=16), c)))
    body = add(chosen, call("abs", Gather("table", (Segment("ends", t, SEGMENTS),))))
    inputs = (replace(workload.inputs[0], shape=(ROWS + 16, COLUMNS)), *workload.inputs[1:])
    workload = replace(workload, inputs=inputs, stages=(replace(workload.stages[0], expression=body),))
    found = [s for s in build(workload, H200).seeds() if s.knobs["selected"] and s.knobs.tile("rows") > 1]
    kernels = [s.program.kernels[0] for s in found[:1]]
    reads = [s for k in kernels for s in statements(k.body) if isinstance(s, Load) and len(s.dst.axes) == 2]
    assert len(reads) == 2 * len(kernels) == 2  # One in either branch.


def test_tiles_of_one_row_and_of_other_positions_have_no_branch() -> None:
    space = build(scaled(), H200)
    (rows,) = (k.values for k in space.sketch("pointwise").knobs if k.name == "rows")
    one = space.restricted("pointwise", rows=[v for v in rows if isinstance(v, tuple) and v[-1] == 1])
    moved = build(scaled(t + Affine(offset=1)), H200)
    for schedule in (one.sample(np.random.default_rng(0)), next(iter(moved.seeds()))):
        assert not any(isinstance(s, If) for s in schedule.program.kernels[0].body)
