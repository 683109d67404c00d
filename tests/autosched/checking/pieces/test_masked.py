"""References of attention under masks, of which a piece has the positions alone that its rows see."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from autosched.checking.pieces import pieces
from autosched.checking.random_inputs import random_inputs
from autosched.checking.reference import evaluate
from autosched.checking.rounding.analysis import rounding_error
from autosched.tracing import trace
from search_spaces import Workload
from search_spaces.workloads.expressions.expression import Apply, Expression, Literal
from search_spaces.workloads.expressions.walking import rewritten

ROWS, DOCUMENTS = 96, 6


def within_documents(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Each row sees those before it in its document: the first of one sees none."""
    at = torch.arange(ROWS, dtype=ends.dtype)
    document = torch.searchsorted(ends, at, right=True)
    seen = (document[:, None] == document) & (at[:, None] > at)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


@pytest.fixture(scope="module")
def workload() -> Workload:
    heads = [torch.empty(1, 2, ROWS, 8) for _ in range(3)]
    (found,) = trace(within_documents, *heads, torch.zeros(DOCUMENTS, dtype=torch.int32)).launched
    return found


def without_its_guard(workload: Workload) -> Workload:
    """The workload whose exponents have the top itself, which is -infinity of rows that see none."""

    def bare(e: Expression) -> Expression | None:
        match e:
            case Apply("where", (Apply("eq", (top, Literal(value))), _, other)) if top == other and value == -math.inf:
                return top
            case _:
                return None

    stages = (replace(s, expression=rewritten(s.expression, bare)) for s in workload.stages)
    return replace(workload, stages=tuple(stages))


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [("finite", True), ("a row that is no number", True), ("infinite values", False), ("no guard", False)],
)
def test_positions_that_no_row_of_a_piece_sees_change_nothing(
    kind: str, left_out: bool, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = without_its_guard(workload) if kind == "no guard" else workload
    inputs = random_inputs(workload, 0)
    if kind == "a row that is no number":
        inputs[0][..., 40, :] = torch.nan
    if kind == "infinite values":
        inputs[2][..., 40, :] = torch.inf
    ((whole,), ((_, error),)) = evaluate(workload, inputs), rounding_error(workload, inputs)
    monkeypatch.setattr(pieces, "_LARGEST", 2000)
    found = pieces.pieces_of(workload, inputs, evaluate)
    assert found is not None
    ((got,), ((_, known),)) = evaluate(workload, inputs), rounding_error(workload, inputs)
    torch.testing.assert_close(got, whole, equal_nan=True)
    assert (known <= error * (1 + 1e-5)).logical_or(error.isnan()).all()
    positions = [s.reduction.axes[0].extent for part, _ in found.parts for s in part.stages[1:2] if s.reduction]
    assert all(n < ROWS / 2 for n in positions) if left_out else positions == [ROWS] * len(found.parts)
