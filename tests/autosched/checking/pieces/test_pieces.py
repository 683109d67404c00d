"""References of workloads that are computed piece by piece."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from autosched.checking.pieces import pieces, runs
from autosched.checking.pieces.ranges import condition_of
from autosched.checking.random_inputs import random_inputs
from autosched.checking.reference import evaluate
from autosched.checking.rounding import analysis
from autosched.checking.rounding.analysis import rounding_error
from chained_workloads import Scores, attention
from search_spaces import Workload, ops
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Literal,
    Position,
    call,
    mul,
)
from search_spaces.workloads.expressions.walking import rewritten

WORKLOADS = (
    attention(4, 20, 30, 8, scores=Scores(causal=True, with_logarithm=True, slopes=True), shared=2),
    attention(1, 64, 70, 8, scores=Scores(causal=True, window=9, bias="mc")),
    # Windows have more elements than any stage.
    ops.conv(1, 20, (3, 3), 20, 3, padding=1, groups=20),
    # A matrix for each row; the rows of some are none, some are behind the last end.
    ops.grouped_matmul(5, 40, 6, 7),
    ops.grouped_matmul(5, 40, 6, 7, ragged="k"),
    ops.segment_sum(60, 5, 9),
    ops.block_sparse_matmul(24, 6, 10, 60, 1),
)


@pytest.mark.parametrize(
    "workload", WORKLOADS, ids=["heads", "rows", "windows", "segments", "ragged", "sums", "sparse"]
)
def test_pieces_are_what_the_whole_is(workload, monkeypatch) -> None:
    inputs = random_inputs(workload, seed=0)
    whole, errors = evaluate(workload, inputs), rounding_error(workload, inputs)
    monkeypatch.setattr(pieces, "_LARGEST", 120)
    monkeypatch.setattr(pieces, "_LARGEST_WITHIN", 120)
    monkeypatch.setattr(runs, "_AT_ONCE", {"cpu": 50})
    found = pieces.pieces_of(workload, inputs, evaluate)
    assert found is not None
    assert len(found.parts) > 1
    for got, expected in zip(evaluate(workload, inputs), whole, strict=True):
        torch.testing.assert_close(got, expected)
    asked: list[str] = []
    monkeypatch.setattr(analysis, "memory_for", lambda what, needed, device: asked.append(what) or nullcontext())
    for got, expected in zip(rounding_error(workload, inputs), errors, strict=True):
        torch.testing.assert_close(got, expected)
    assert len(asked) >= len(found.parts)


@pytest.mark.parametrize(("rows", "columns", "count"), [(40, 1, 2), (40, 120, 5), (4, 120, 4)])
def test_short_segments_are_cut_together_unless_they_are_fewer_pieces_alone(
    rows: int, columns: int, count: int, monkeypatch
) -> None:
    workload = ops.grouped_matmul(5, rows, columns, 4)
    inputs = random_inputs(workload, seed=3)  # equal segments
    monkeypatch.setattr(pieces, "_LARGEST", 120)
    found = pieces.pieces_of(workload, inputs, evaluate)
    assert found is not None
    assert len(found.parts) == count


def test_what_is_small_is_one_piece() -> None:
    workload = ops.softmax(100, 100)
    assert pieces.pieces_of(workload, random_inputs(workload, seed=0), evaluate) is None


def test_factors_of_different_conditions_have_no_common_one() -> None:
    (stage,) = ops.grouped_matmul(5, 40, 6, 7, ragged="k").stages
    a, b = stage.factors
    assert isinstance(b, Apply)
    condition, element, zero = b.arguments
    assert condition_of(stage) == condition
    for other in (
        call("where", condition.arguments[0], element, zero),
        element,
        call("where", condition, element, Literal(1.0)),
    ):
        assert condition_of(replace(stage, expression=mul(a, other))) is None


def a_sparse_product(infinite: bool) -> tuple[Workload, list[torch.Tensor]]:
    """With a row that is 0, whose factors of other rows may be infinite; bounds that are looked up may overlap."""
    workload = ops.block_sparse_matmul(24, 6, 10, 60, 1)
    (bounds,) = (t.name for t in workload.inputs if t.shape == (25,))

    def looked_up(e: Expression) -> Expression | None:
        if isinstance(e, Access) and e.tensor == bounds:
            return Gather(e.tensor, tuple(call("to_integer", Position(i)) for i in e.index))
        return None

    stages = tuple(replace(s, expression=rewritten(s.expression, looked_up)) for s in workload.stages)
    workload = replace(workload, stages=stages)
    values, rows, columns, b = random_inputs(workload, seed=0)
    rows.copy_(torch.arange(25) * 60 // 24)
    columns.copy_(torch.arange(60) % 9)
    columns[2:5] = 9
    b[9] = torch.inf if infinite else 1
    return workload, [values, rows, columns, b]


@pytest.mark.parametrize("infinite", [False, True])
def test_a_condition_of_all_factors_is_asked_once_where_that_adds_no_zero_times_infinity(infinite, monkeypatch) -> None:
    workload, inputs = a_sparse_product(infinite)
    (whole,) = evaluate(workload, inputs)
    monkeypatch.setattr(pieces, "_LARGEST", 500)
    monkeypatch.setattr(pieces, "_LARGEST_WITHIN", 500)
    found = pieces.pieces_of(workload, inputs, evaluate)
    assert found is not None
    torch.testing.assert_close(evaluate(workload, inputs)[0], whole, equal_nan=True)
    conditions = [str(part).count("where(") for part, _ in found.parts]
    assert set(conditions) == ({1, 2} if infinite else {1})
    # 60 elements in all: a piece has those of its rows.
    assert sum(axis.extent for part, _ in found.parts for axis in part.stages[0].reduction.axes[:1]) == 60


def test_positions_between_bounds_are_found_without_a_look_at_them(monkeypatch) -> None:
    workload, inputs = a_sparse_product(False)
    monkeypatch.setattr(pieces, "_LARGEST", 500)
    monkeypatch.setattr(pieces, "_LARGEST_WITHIN", 500)
    asked: list[int] = []

    def counted(part: Workload, read: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        asked.append(max(s.points for s in part.stages))
        return evaluate(part, read)

    assert pieces.pieces_of(workload, inputs, counted)
    assert max(asked) < 24 * 60
