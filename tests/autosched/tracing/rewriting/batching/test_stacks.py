"""Slices of one tensor, and constants, as one value: nothing is copied in a call."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from autosched.tracing.fusion.regions import below
from autosched.tracing.operators.rules import Result
from autosched.tracing.operators.view_translation import permute, piece, select
from autosched.tracing.rewriting.batching.stacks import stacked_constants, stacked_slices, whole_of
from autosched.tracing.rewriting.evaluation import evaluated
from autosched.tracing.rewriting.examples import leaf
from autosched.tracing.values.values import Joined, Leaf, Value

X = leaf("x", (4, 12))


def elements(values: Sequence[Value]) -> list[torch.Tensor]:
    leaves = [v for v in below(values) if isinstance(v, Leaf)]
    return evaluated(values, {v: torch.arange(v.elements).view(v.shape) + 100 * len(v.name) for v in leaves})


@pytest.mark.parametrize(
    "slices",
    [
        pytest.param([piece(X, 1, n, 4) for n in (0, 4, 8)], id="side by side"),
        pytest.param([piece(X, 1, n, 2) for n in (1, 6)], id="with others between"),
        pytest.param([piece(X, 1, n, 4) for n in (0, 2, 4)], id="overlapping"),
        pytest.param([piece(X, 1, n, 4, 3) for n in (0, 1, 2)], id="interleaved"),
        pytest.param([piece(X, 0, n, 2) for n in (0, 2)], id="rows"),
        pytest.param([select(Result(f"x{n}", (4,), "float32", ""), X, 1, n) for n in (2, 5, 8)], id="positions"),
    ],
)
def test_slices_at_equal_distances_are_a_view(slices: list[Value]) -> None:
    stacked = stacked_slices(slices, X)
    assert stacked is not None
    whole, *apart = elements([stacked, *slices])
    assert whole.equal(torch.stack(apart))


@pytest.mark.parametrize("places", [(0, 4, 9), (4, 0), (0, 0)], ids=str)
def test_slices_at_other_distances_are_none(places: Sequence[int]) -> None:
    assert stacked_slices([piece(X, 1, n, 3) for n in places], X) is None


def transposed(value: Value) -> Value:
    return permute(Result(f"{value.name}_transposed", value.shape[::-1], "float32", ""), value, (1, 0))


U, UV = leaf("u", (2, 3), constant=True), leaf("uv", (2, 3), constant=True)


@pytest.mark.parametrize(
    ("constants", "joined"),
    [
        pytest.param([U, UV], True, id="tensors"),
        pytest.param([transposed(U), transposed(UV)], True, id="transposed"),
        pytest.param([transposed(U), leaf("v", (3, 2), constant=True)], True, id="one transposed"),
        pytest.param([piece(U, 0, 0, 1), piece(U, 0, 1, 1)], False, id="slices of one"),
        pytest.param([piece(U, 1, 0, 1), piece(UV, 1, 0, 1)], True, id="slices of two"),
    ],
)
def test_constants_are_stacked(constants: list[Value], joined: bool) -> None:
    stacked = stacked_constants(constants)
    whole, *apart = elements([stacked, *constants])
    assert whole.equal(torch.stack(apart))
    assert any(isinstance(v, Joined) for v in below([stacked])) is joined


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_stack_is_concatenated_by_a_view(dim: int) -> None:
    x = leaf("x", (4, 2, 3, 5))
    shape = tuple(n * (4 if d == dim else 1) for d, n in enumerate(x.shape[1:]))
    whole, stacked = elements([whole_of(x, dim, shape), x])
    assert whole.equal(torch.cat([*stacked], dim))
