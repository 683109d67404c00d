"""Checks of rewrites on the constants at hand: what loses precision is refused, with the reason."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

import autosched
from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.instances import why_refused
from autosched.tracing.rewriting.rule import Match
from autosched.tracing.rewriting.rules import sums_of_products
from autosched.tracing.rewriting.rules.scales_into_weights import RULE
from autosched.tracing.values.values import Leaf, Value
from search_spaces.workloads.expressions import expression as ex

SIZE = 64
X, R = leaf("x", (8, SIZE)), leaf("r", (8, 1))
W, S = leaf("w", (SIZE, SIZE), constant=True), leaf("s", (SIZE,), constant=True)


def tensors(scale: Tensor | None = None) -> dict[Leaf, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        W: torch.randn(SIZE, SIZE, generator=generator),
        S: torch.rand(SIZE, generator=generator) + 0.5 if scale is None else scale,
    }


def scaled() -> tuple[Value, Value]:
    """Columns of a product that are scaled, and the product with the scale in its weights; all in float32."""
    return pointwise(ex.mul, matmul(X, W), S), matmul(X, pointwise(ex.mul, W, S))


def why(before: Value, after: Value, scale: Tensor | None = None) -> str:
    return why_refused(RULE, Match(((before, after),)), tensors(scale).get) or ""


def test_scales_in_weights_of_float32_are_exact_enough() -> None:
    assert not why(*scaled())


def test_weights_rounded_once_more_are_refused_where_nothing_else_is_rounded() -> None:
    x, w = leaf("x", (8, SIZE), dtype="bfloat16"), leaf("w", (SIZE, SIZE), constant=True, dtype="bfloat16")
    narrow = Result("scaled", w.shape, "bfloat16", "").pointwise(ex.mul, w, S)
    before = Result("made", (8, SIZE), "float32", "").pointwise(ex.mul, matmul(x, w), S)
    data = {**tensors(), w: tensors()[W].bfloat16()}
    found = why_refused(RULE, Match(((before, matmul(x, narrow)),)), data.get) or ""
    assert "with usual inputs, the error is" in found


def test_arguments_without_dimensions_are_drawn_too() -> None:
    number = leaf("t", ())
    assert not why(*(pointwise(ex.mul, side, number) for side in scaled()))


def test_wrong_algebra_is_refused() -> None:
    assert why(scaled()[0], matmul(X, W))


def test_scales_that_overflow_are_refused() -> None:
    huge = torch.full((SIZE,), 1e38)
    before = pointwise(lambda x, s: ex.mul(ex.mul(x, ex.Literal(1e-30)), s), matmul(X, W), S)
    squared = pointwise(lambda s: ex.mul(ex.mul(s, s), ex.Literal(1e-30)), S)
    after = pointwise(ex.div, matmul(X, pointwise(ex.mul, W, squared)), S)
    assert "no finite numbers any more" in why(before, after, huge)


def test_cancellation_is_refused_where_outliers_or_shifts_show_it() -> None:
    """Variances by squares less the square of a mean."""
    sums = Result("sums", (8, 1), "float32", "")
    mean = pointwise(lambda t: ex.mul(t, ex.Literal(1 / SIZE)), sums.keeping(sums.reduced("sum", X, [1]), [1], True))
    shifted = pointwise(lambda x, m: ex.sub(ex.add(x, ex.Literal(1000.0)), ex.add(m, ex.Literal(1000.0))), X, mean)
    assert "error" in why(matmul(pointwise(ex.sub, X, mean), W), matmul(shifted, W))


def test_constants_without_data_are_a_reason() -> None:
    found = why_refused(RULE, Match((scaled(),)), lambda _: None)
    assert found == "not checked: the elements of w are not known yet"


def test_large_weights_are_not_checked_and_say_so() -> None:
    size = 1 << 13
    x, w, s = leaf("x", (size, size)), leaf("w", (size, size), constant=True), leaf("s", (size,), constant=True)
    pair = pointwise(ex.mul, matmul(x, w), s), matmul(x, pointwise(ex.mul, w, s))
    found = why_refused(RULE, Match((pair,)), lambda v: torch.empty(()).expand(v.shape)) or ""
    assert found.startswith("not checked: it has 2.2e+12 multiplications and additions")


@pytest.mark.parametrize("scale", [1.0, 1e38])
@pytest.mark.parametrize("batched", [False, True])
def test_many_rows_are_judged_by_some_of_them(scale: float, batched: bool) -> None:
    """Rows in their own dimension, or with those of other batches in one; weights by their last elements."""
    rows, size = 1 << 16, 256
    w, s = leaf("w", (size, size), constant=True), leaf("s", (size,), constant=True)
    x: Value = leaf("x", (64, rows // 64, size) if batched else (rows, size))
    x = reshape(x, (rows, size)) if batched else x
    column = torch.ones(size)
    column[-1] = scale
    data = {w: torch.randn(size, size, generator=torch.Generator().manual_seed(0)), s: column}
    # The scale and its inverse: in weights they have no finite products.
    before = pointwise(ex.mul, matmul(pointwise(lambda e: ex.mul(e, ex.Literal(1e-10)), x), w), s)
    wide = pointwise(lambda e, t: ex.mul(ex.mul(e, t), ex.mul(t, ex.Literal(1e10))), w, s)
    after = pointwise(ex.div, matmul(pointwise(lambda e: ex.mul(e, ex.Literal(1e-20)), x), wide), s)
    found = why_refused(RULE, Match(((before, after),)), data.get) or ""
    assert found.startswith("with usual inputs, " if scale > 1 else "")
    assert bool(found) == (scale > 1)


def test_large_sums_in_another_order_have_the_bound_of_their_rule() -> None:
    size = 1 << 12
    a, b, c = (leaf(name, (size, size)) for name in "abc")
    pair = pointwise(ex.add, matmul(a, b), matmul(a, c)), matmul(a, pointwise(ex.add, b, c))
    assert why_refused(sums_of_products.RULE, Match((pair,)), lambda _: None) is None


def test_traced_functions_name_what_was_refused_and_do_without() -> None:
    """Weights of float16 that do not hold their products with the scale."""
    gamma, weight = torch.full((32,), 100.0).half(), torch.full((32, 8), 1000.0).half()

    def function(x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True)) * gamma).half() @ weight

    traced = autosched.trace(function, torch.randn(6, 32).half(), numerics="fold")
    (refused,) = traced.refused
    # The user's line, before → after, and the reason.
    assert re.match(
        r"refused: norm into product \(test_instances.py:\d+: return .*@ weight\): .* → .*: with usual", refused
    )
    assert "no finite numbers any more" in refused
    assert not any(cut.rewrites for cut in traced.cuts)
