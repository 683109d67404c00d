"""References of workloads that are computed piece by piece."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from autosched.checking.pieces import pieces
from autosched.checking.pieces.ranges import condition_of
from autosched.checking.random_inputs import random_inputs
from autosched.checking.reference import evaluate
from autosched.checking.rounding import analysis
from autosched.checking.rounding.analysis import rounding_error
from chained_workloads import Scores, attention
from search_spaces import ops
from search_spaces.workloads.expressions.expression import Apply, Literal, call, mul

WORKLOADS = (
    attention(4, 20, 30, 8, scores=Scores(causal=True, with_logarithm=True, slopes=True), shared=2),
    attention(1, 64, 70, 8, scores=Scores(causal=True, window=9, bias="mc")),
    # Windows have more elements than any stage.
    ops.conv(1, 20, (3, 3), 20, 3, padding=1, groups=20),
    # A matrix for each row; the rows of some are none, some are behind the last end.
    ops.grouped_matmul(5, 40, 6, 7),
    ops.grouped_matmul(5, 40, 6, 7, ragged="k"),
    ops.segment_sum(60, 5, 9),
)


@pytest.mark.parametrize("workload", WORKLOADS, ids=["heads", "rows", "windows", "segments", "ragged", "sums"])
def test_pieces_are_what_the_whole_is(workload, monkeypatch) -> None:
    inputs = random_inputs(workload, seed=0)
    whole, errors = evaluate(workload, inputs), rounding_error(workload, inputs)
    monkeypatch.setattr(pieces, "_LARGEST", 500)
    monkeypatch.setattr(pieces, "_LARGEST_WITHIN", 500)
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
