"""Texts of rewrites: the terms that were found, in a line."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import permute, piece
from autosched.tracing.rewriting.examples import folded, leaf, matmul, pointwise
from autosched.tracing.rewriting.preparing import prepared
from autosched.tracing.rewriting.texts import formulas
from autosched.tracing.values.values import Joined, Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Literal

X, W, V, B = leaf("x", (2, 3)), leaf("w", (3, 4), constant=True), leaf("v", (3, 5), constant=True), leaf("b", (4,))
JOINED = Result("joined", (3, 9), "float32", "").of(Joined, parts=(W, V), dim=1)
TURNED = permute(Result("turned", (4, 3), "float32", ""), W, (1, 0))
SUM = pointwise(ex.add, matmul(X, W), B, name="sum")
FORMULAS = {
    "x[2, 3] @ w[3, 4]": matmul(X, W),
    "(x[2, 3] @ w[3, 4]) + b[4]": SUM,
    "(x[2, 3] @ cat(w[3, 4], v[3, 5], dim=1))[:, 0:4]": piece(matmul(X, JOINED), 1, 0, 4),
    "x[2, 3] @ w[3, 4].mT.mT": product(Result("y", (2, 4), "float32", ""), X, TURNED, (2, 4), (0, 2), (1, 2)),
    'einsum("ca, cb -> ab", x[2, 3], w[3, 4])': product(
        Result("y", (2, 2), "float32", ""), leaf("x", (2, 3)), W, (3, 4), (2, 0), (2, 1)
    ),
    "x[2, 3] - max(x[2, 3], 1)": pointwise(ex.sub, X, folded("max", X)),
    "where(x[2, 3], -inf, -(x[2, 3] * 2))": pointwise(
        lambda x: ex.call("where", x, Literal(float("-inf")), ex.call("neg", ex.mul(x, Literal(2.0)))), X
    ),
    "prepared(cat(w[3, 4], v[3, 5], dim=1))": prepared(JOINED),
    "x[2, 3]": reshape(Result("half", (2, 3), "float16", "").pointwise(lambda x: x, X), (6,)),
}


@pytest.mark.parametrize("text", FORMULAS)
def test_a_value_is_shown_by_what_computes_it(text: str) -> None:
    before = leaf("before", (1,))
    assert formulas(before, FORMULAS[text]) == f"before[1] → {text}"


def test_what_both_sides_are_computed_from_has_a_name() -> None:
    other = pointwise(ex.mul, SUM, leaf("c", (2, 4)))
    assert formulas(other, pointwise(ex.mul, leaf("d", (2, 4)), SUM)) == "sum[2, 4] * c[2, 4] → d[2, 4] * sum[2, 4]"


def test_a_large_part_has_its_name() -> None:
    def many(value: Value) -> Value:
        for number in range(9):
            value = pointwise(lambda e: ex.add(ex.mul(e, e), Literal(0.25)), value, name=f"value_{number}")
        return value

    _, text = formulas(X, pointwise(ex.add, many(X), B)).split(" → ")
    assert text == "value_8[2, 3] + b[4]"


def test_rewrites_say_what_stood_there_and_what_stands_there_now() -> None:
    gate, up = nn.Linear(8, 16, bias=False), nn.Linear(8, 16, bias=False)

    def function(x: Tensor) -> Tensor:
        return F.silu(gate(x)) * up(x)

    with torch.no_grad():
        cuts = autosched.trace(function, torch.randn(4, 8)).cuts
    assert any(
        "x[4, 8] @ gate.weight[16, 8].mT → (x[4, 8] @ cat(gate.weight[16, 8], up.weight[16, 8], dim=0).mT)[:, 0:16]"
        in text
        for cut in cuts
        for text in cut.rewrites
    )
