"""Sums of products in the cheapest order: each form is right, is found where it pays, and costs what it should."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.contractions.loops import Loops
from autosched.tracing.rewriting.contractions.ordering import Factors, cheapest_order, members_of
from autosched.tracing.rewriting.rewritings import Rewriting
from autosched.tracing.values.values import Prepared, Product, Reduced
from rewritten_values import kernel_of, rewritten, right_rewritings

Function = Callable[..., Tensor]
# Of weights (n, k) = (128, 96) and batches (2, 64, 96).
X, W, V, N = (2, 64, 96), (128, 96), (128, 96), (128,)
REASSOCIATED: dict[str, tuple[Function, list[tuple[int, ...]], int]] = {
    # A function, the shapes of its inputs, and the products that are left.
    "a common left factor": (lambda x, w, v: F.linear(x, w) - 2 * F.linear(x, v), [(2048, 96), W, V], 1),
    "a common right factor": (lambda a, c, w: F.linear(a, w) + F.linear(c, w), [(16, 96), (16, 96), W], 1),
    "three with a common factor": (
        lambda a, b, c, w: a @ w + b @ w + c @ w,
        [(16, 64), (16, 64), (16, 64), (64, 96)],
        1,
    ),
    "two of three with a common factor": (
        lambda a, b, c, w, v: a @ w + c @ v + b @ w,
        [(16, 64), (16, 64), (16, 32), (64, 96), (32, 96)],
        2,
    ),
    "a product and a vector": (lambda a, b, v: (a @ b) @ v, [(64, 96), (96, 128), N], 0),
    "a vector and a product": (lambda v, a, b: v @ (a @ b), [(64,), (64, 96), (96, 128)], 0),
    "a chain": (lambda a, b, c, d: a @ b @ c @ d, [(200, 8), (8, 200), (200, 8), (8, 200)], 3),
    "linear attention": (lambda q, k, v: q @ k.transpose(-1, -2) / 4 @ v, [(2, 3, 64, 16)] * 3, 2),
    "a sum of rows": (lambda a, b: (a @ b).sum(0), [(64, 96), (96, 128)], 0),
    "a sum of columns": (lambda x, w, b: F.linear(x, w, b).sum(-1), [X, W, N], 0),
    "a mean before a linear layer": (lambda x, w, b: F.linear(x, w, b).mean(1), [X, W, N], 1),
    "a sum of all": (lambda x, w: F.linear(x, w).sum(), [X, W], 0),
    "a mean that is kept": (lambda x, w: F.linear(x, w).mean((0, 1), keepdim=True) * 3, [X, W], 0),
}


def inputs_of(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def products(made: Rewriting) -> int:
    return sum(isinstance(v, Product) for v in below(made.results))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", REASSOCIATED)
def test_a_sum_of_products_in_the_cheapest_order_is_the_same_in_exact_arithmetic(case: str, dtype: torch.dtype) -> None:
    function, shapes, left = REASSOCIATED[case]
    found = right_rewritings(function, inputs_of(shapes, dtype), "reassociate")
    assert [r.rule.name for r in found[0].rewrites] == ["sums of products"]
    assert products(found[0]) == left


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        pytest.param(lambda a, b, c: (a @ b) @ c, [(8, 64), (64, 96), (96, 128)], id="the cheapest order already"),
        pytest.param(lambda x, w, v: x @ w + x @ v, [(1, 256), (256, 256), (256, 256)], id="a sum that costs more"),
        pytest.param(lambda a, b, v: (a @ b).relu() @ v, [(64, 96), (96, 128), N], id="no product of products"),
        pytest.param(lambda x: (x - x.mean(-1, keepdim=True)).pow(2).sum(-1), [X], id="no product"),
    ],
)
def test_what_promises_nothing_is_left(function: Function, shapes: list[tuple[int, ...]]) -> None:
    assert not right_rewritings(function, inputs_of(shapes), "reassociate")


def test_a_product_that_is_read_elsewhere_is_not_computed_twice() -> None:
    def function(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
        product = a @ b
        return product.relu().sum(1) + product @ v

    assert not right_rewritings(function, inputs_of([(64, 96), (96, 128), N]), "reassociate")


def test_sums_keep_their_order_where_numerics_are_eager() -> None:
    function, shapes, _ = REASSOCIATED["a product and a vector"]
    assert not right_rewritings(function, inputs_of(shapes), "eager")


def lora(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return F.linear(x, w) + F.linear(F.linear(x, a), b) * 0.5


def test_adapters_of_low_rank_are_added_to_their_constant_weight() -> None:
    inputs = inputs_of([X, (96, 96), (4, 96), (96, 4)])
    first = right_rewritings(lora, inputs, "fold", static=(1, 2, 3))[0]
    assert [r.rule.name for r in first.rewrites] == ["constants of products"]
    assert products(first) == 1
    assert any(isinstance(v, Prepared) for v in below(first.results))
    assert not right_rewritings(lora, inputs, "fold")


def test_constants_whose_product_is_much_larger_stay_apart() -> None:
    def function(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return F.linear(F.linear(x, a), b)

    small = inputs_of([(4, 512), (8, 512), (512, 8)])
    assert not right_rewritings(function, small, "fold", static=(1, 2))
    assert right_rewritings(function, inputs_of([(4, 96), (96, 96), (96, 96)]), "fold", static=(1, 2))


@pytest.mark.parametrize("case", ["a product and a vector", "a common right factor", "linear attention"])
def test_kernels_of_reassociated_products_are_as_close_as_pytorch(case: str) -> None:
    function, shapes, _ = REASSOCIATED[case]
    inputs = inputs_of(shapes, torch.bfloat16)
    exact = function(*(x.double() for x in inputs))
    limit = 1.5 * (function(*inputs) - exact).abs().max() + 2**-8 * exact.abs().max()
    cuts = rewritten(autosched.trace(function, *inputs, numerics="reassociate"))
    assert cuts
    for cut in cuts[:1]:
        assert (kernel_of(cut)(*inputs) - exact).abs().max() <= limit


def gates(x: Tensor, h: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    return F.linear(x, w, b) + F.linear(h, u)


def test_products_of_one_sum_have_one_accumulator() -> None:
    inputs = inputs_of([(4, 2, 32), (4, 2, 24), (48, 32), (48, 24), (48,)], torch.bfloat16)
    found = right_rewritings(gates, inputs, "reassociate", static=(2, 3, 4))[0]
    assert products(found) == 1
    exact = gates(*(x.double() for x in inputs))
    limit = 1.5 * (gates(*inputs) - exact).abs().max() + 2**-8 * exact.abs().max()
    cuts = rewritten(autosched.trace(gates, *inputs, numerics="reassociate"))
    assert cuts
    assert (kernel_of(cuts[0])(*inputs) - exact).abs().max() <= limit


def test_sums_within_products_are_no_products_themselves() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return F.linear(x, w).sum(-1)

    found = right_rewritings(function, inputs_of([X, W]), "reassociate")[0]
    assert sum(isinstance(v, Reduced) for v in below(found.results)) == 2


def test_constants_are_combined_in_the_cheapest_order_too() -> None:
    """Three matrices in a row, of which the first and the last have no loop in common."""
    loops = Loops()
    x, first, second, third, result = (loops.new(extent)[0] for extent in (32, 160, 160, 160, 160))
    chain = tuple(map(frozenset, ((x, first), (first, second), (second, third), (third, result))))
    constant = (False, True, True, True)
    factors = Factors(chain, frozenset((x, result)), constant, narrow=False, extents=loops, folded=True)
    _, tree = cheapest_order(factors)
    assert isinstance(tree, tuple)
    assert {frozenset(members_of(side)) for side in tree} == {frozenset([0]), frozenset([1, 2, 3])}
    combined = next(side for side in tree if side != 0)
    assert isinstance(combined, tuple)
    assert frozenset([1, 3]) not in {frozenset(members_of(side)) for side in combined}
