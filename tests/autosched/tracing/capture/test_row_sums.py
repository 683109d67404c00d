"""Sums of products that are products: where one takes the place of the other, and where it may not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attention_forms import R
from autosched import trace
from traced_gradients import graded_by_graphs, wanted

ROWS, WALKED, SIZE = 64, 80, 16


def weights(q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax(q.bmm(k.mT), -1)


def summed(p: Tensor, q: Tensor, v: Tensor) -> Tensor:
    return (p * q.bmm(v.mT)).sum(-1, keepdim=True)


def squared(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    p = weights(q, k)
    total = summed(p, q, v)
    return p.bmm(v) * (total * total)


def less(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    p = weights(q, k)
    return (p * 2.0 - p * summed(p, q, v)).bmm(v) + p.bmm(v)


def of_integers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    p = 50 * weights(q, k)
    return p.to(torch.int32).to(p.dtype).bmm(v) + summed(p, q, v)


def check(function: Callable[..., Tensor], *given: Tensor) -> None:
    given = tuple(x.requires_grad_() for x in given)
    slope = R(function(*given).shape)
    found, _ = graded_by_graphs(function, given, slope)
    for got, want in zip(found, wanted(function, given, slope), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("function", [squared, less, of_integers])
def test_what_is_computed_of_such_a_sum_has_its_gradient(function: Callable[..., Tensor]) -> None:
    check(function, R(2, ROWS, SIZE), R(2, WALKED, SIZE), R(2, WALKED, SIZE))


def test_such_a_sum_may_be_computed_before_the_product_is_returned() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        p = weights(q, k)
        out, total = p.bmm(v), summed(p, q, v)
        return total, out.view(2 * ROWS, SIZE)

    given = tuple(R(2, n, SIZE).requires_grad_() for n in (ROWS, WALKED, WALKED))
    assert trace(function, *given, backward=True).memory == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_shared_keys_are_products_over_their_heads(dtype: torch.dtype) -> None:
    given = [R(2, heads, ROWS, SIZE).to(dtype).requires_grad_() for heads in (8, 2, 2)]
    made = trace(partial(scaled_dot_product_attention, enable_gqa=True), *given, backward=True)
    assert [len(w.outputs) for w in made.backward.launched] == [1, 1, 2]


def test_gradients_are_of_what_was_written() -> None:
    made = trace(lambda x, y: x.exp().bmm(y).sum(), R(4, 64, 64).requires_grad_(), R(4, 64, 8), backward=True)
    assert not any(cut.forward.rewrites or cut.backward.rewrites for cut in made.cuts)


def test_sums_of_whole_products_are_no_products() -> None:
    check(lambda x, y: x.exp().bmm(y).sum(), R(4, 64, 64), R(4, 64, 8))
