"""Samples of rows: the same elements as among all rows, of weights that stay whole."""

from __future__ import annotations

import torch
from torch import Tensor

from autosched.tracing.fusion.regions import below
from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.rewriting.evaluation import evaluated
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.samples import samples
from autosched.tracing.values.values import Leaf, Value
from search_spaces.workloads.expressions import expression as ex

ROWS, SIZE = 48, 4
W, S = leaf("w", (SIZE, SIZE), constant=True), leaf("s", (SIZE,), constant=True)


def shapes(value: Value, *inputs: Value) -> list[tuple[int, ...]]:
    return [a.shape for a, _ in samples((value, value), dict.fromkeys(inputs))]


def tensors_of(value: Value, x: Tensor) -> dict[Value, Tensor]:
    """Elements of the leaves below a value: of constants always the same ones."""
    leaves = (v for v in below([value]) if isinstance(v, Leaf))
    return {v: torch.arange(v.elements).reshape(v.shape).double() if v.constant else x for v in leaves}


def test_rows_of_a_sample_are_those_of_the_whole() -> None:
    """Rows of 3 batches of 16, of which a sample has one."""
    given = leaf("x", (3, 16, SIZE))
    x = reshape(given, (ROWS, SIZE))
    total = Result("total", (ROWS, 1), "float32", "")
    normed = pointwise(ex.div, x, total.keeping(total.reduced("sum", x, [1]), [1], True))
    before, after = pointwise(ex.mul, matmul(normed, W), S), matmul(normed, pointwise(ex.mul, W, S))
    elements = torch.rand(3, 16, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (whole,) = evaluated([before], tensors_of(before, elements))
    rows = whole.reshape(3, 16, SIZE)
    found = {
        next(v.shape for v in below([a]) if isinstance(v, Leaf) and not v.constant): (a, b)
        for a, b in samples((before, after), {given: None})
    }
    # One row of every batch, and all rows of one batch.
    for shape, right, some in (
        ((3, 1, SIZE), rows[:, :1], elements[:, :1]),
        ((1, 16, SIZE), rows[:1], elements[:1]),
    ):
        for value in found[shape]:
            (made,) = evaluated([value], tensors_of(value, some))
            torch.testing.assert_close(made, right.reshape(-1, SIZE))


def test_constants_stay_whole() -> None:
    x = leaf("x", (SIZE, ROWS))
    assert shapes(matmul(W, x), x)
    assert all(shape[0] == SIZE for shape in shapes(matmul(W, x), x))
    assert not shapes(matmul(W, pointwise(ex.add, W, W)))


def test_inputs_whose_rows_depend_on_each_other_have_no_sample() -> None:
    x, y = leaf("x", (ROWS, SIZE)), leaf("y", (ROWS, SIZE))
    scores = (product(Result("p", (ROWS, ROWS), "float32", ""), x, b, (ROWS, ROWS), (0, 2), (1, 2)) for b in (x, y))
    of_one, of_two = (matmul(each, pointwise(ex.mul, leaf("z", (ROWS, SIZE)), S)) for each in scores)
    inputs = [v for v in below([of_one, of_two]) if isinstance(v, Leaf) and v is not S]
    assert not shapes(of_one, *inputs)
    assert shapes(of_two, *inputs)[0] == (16, SIZE)
