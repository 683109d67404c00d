"""Slices of products: nothing but what a slice needs is computed, and results stay where PyTorch has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.digits import placed_digit
from autosched.tracing.rewriting.examples import leaf
from autosched.tracing.values.values import Product
from autosched.tracing.values.views import Placement
from rewritten_values import kernel_of, rewritten, right_rewritings

X, W, B = torch.randn(2, 16, 32), torch.randn(24, 32), torch.randn(24)


class Head(nn.Module):
    """The last block of a model and its head, for the last position."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear, self.head = nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(32, 48, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x + F.gelu(self.linear(self.norm(x)))
        return self.head(y)[:, -1]


def products(results: Any) -> list[tuple[int, ...]]:
    return [v.shape for v in below(results) if isinstance(v, Product)]


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        pytest.param(lambda x, w, b: F.linear(x, w, b)[:, -1], (2, 24), id="the last row of each"),
        pytest.param(lambda x, w, b: F.linear(x, w, b)[1], (16, 24), id="one of the batch"),
        pytest.param(lambda x, w, b: F.linear(x, w, b)[:, -2:], (4, 24), id="two rows of each"),
        pytest.param(lambda x, w, b: F.linear(x, w, b)[:1, 3], (1, 24), id="a row of one"),
        pytest.param(lambda x, w, b: F.linear(x, w, b)[..., 4:12].relu(), (32, 8), id="columns"),
        pytest.param(lambda x, w, b: F.linear(x, w, b)[:, ::4].relu(), (8, 24), id="every fourth row"),
        pytest.param(lambda x, w, b: F.linear(x, w, b)[:, -1].float().softmax(-1), (2, 24), id="a softmax of one row"),
        pytest.param(lambda x, w, b: (F.linear(x, w).softmax(-1) @ w)[:, 0].relu(), (2, 32), id="two products"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products_have_no_more_rows_and_columns_than_are_read(
    function: Callable[..., Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    found = right_rewritings(function, [t.to(dtype) for t in (X, W, B)], "eager")[0]
    assert products(found.results)[-1] == shape


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, w, b: (lambda y: y[:, -1].relu() + y.sum(1))(F.linear(x, w, b)), id="read elsewhere"),
        pytest.param(lambda x, w, b: F.linear(x, w, b).cumsum(1)[:, -1].relu(), id="a scan between"),
        pytest.param(lambda x, w, b: F.linear(x, w, b).chunk(3, -1)[0] * F.linear(x, w, b)[..., 8:16], id="two slices"),
    ],
)
def test_a_product_that_is_needed_whole_is_left(function: Callable[..., Tensor]) -> None:
    assert not right_rewritings(function, [X, W, B], "eager")


VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda t: t[:, -1],
    lambda t: t[1],
    lambda t: t[1:],
    lambda t: t[:, 1:3],
    lambda t: t[:, 2].T,
    lambda t: t.permute(2, 0, 1)[1:3],
    lambda t: t[..., 0],
    lambda t: t.transpose(0, 1),
    lambda t: t[1:, 2],
    lambda t: t[:, 1:3, 1:],
    lambda t: t[:, ::2],
    lambda t: t[:1].expand(3, 4, 6),
    lambda t: t.diagonal(0, 0, 1),
    lambda t: t.view(3, 2, 2, 6)[:, 1],
]


@pytest.mark.parametrize("number", range(len(VIEWS)))
@pytest.mark.parametrize("shape", [(3, 4, 6), (12, 6), (72,)], ids=str)
def test_a_place_in_memory_is_a_slice_of_the_elements_that_lie_there(number: int, shape: tuple[int, ...]) -> None:
    elements = torch.arange(72)
    part = VIEWS[number](elements.view(3, 4, 6))
    found = placed_digit(leaf("base", shape), Placement(tuple(part.shape), tuple(part.stride()), part.storage_offset()))
    if found is not None:
        digit, at = found
        before, after = math.prod(shape[: digit.dim]), math.prod(shape[digit.dim + 1 :])
        apart = elements.view(before, digit.outer, digit.size, digit.inner, after)
        taken = apart[:, :, at.start : at.start + at.count : at.step]
        assert taken.flatten().sort().values.equal(part.flatten().sort().values)
    assert (found is None) == (number in (7, 8, 9, 11, 12)) or len(shape) < 3


def test_a_last_block_is_computed_for_the_last_position_alone() -> None:
    torch.manual_seed(0)
    model = Head().eval()
    with torch.no_grad():
        cut = rewritten(autosched.trace(model, X))[0]
        result, expected = kernel_of(cut)(X), model(X)
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()
    assert max(w.flops for w in cut.launched) < 2 * 2 * 2 * 32 * 48


def test_convolutions_are_of_the_images_that_are_read() -> None:
    images, weight = torch.randn(5, 3, 8, 8), torch.randn(4, 3, 3, 3)
    found = right_rewritings(lambda x, w: F.conv2d(x, w, padding=1)[:2].relu(), [images, weight], "eager")[0]
    assert [shape[0] for shape in products(found.results)] == [2]
    (rows,) = right_rewritings(lambda x, w: F.conv2d(x, w, padding=1)[:, :, 2:].relu(), [images, weight], "eager")
    assert products(rows.results) == [(5, 4, 6, 8)]
