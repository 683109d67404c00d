"""Gradients from one number of a row, where that is as right as two are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attention_forms import R
from traced_gradients import graded_by_graphs, wanted

ROWS, WALKED, SIZE = 64, 80, 16
SEEN = torch.arange(ROWS)[:, None] > torch.arange(WALKED)


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)


def divided(q: Tensor, k: Tensor, v: Tensor, by: Tensor) -> Tensor:
    s = scores(q, k)
    return torch.exp(s - s.amax(-1, keepdim=True)) / by @ v


def with_a_sink(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    s = scores(q, k)
    top = torch.maximum(s.amax(-1, keepdim=True), sink)
    power = torch.exp(s - top)
    return power / (power.sum(-1, keepdim=True) + torch.exp(sink - top)) @ v


def filled(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return torch.softmax(scores(q, k).masked_fill(~seen, -1e30), -1) @ v


def biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return torch.softmax(scores(q, k) + bias, -1) @ v


def check(function: Callable[..., Tensor], last: Tensor) -> int:
    """That the gradient is right; how many numbers it keeps of a row."""
    tensors = (*(R(1, 2, n, SIZE) for n in (ROWS, WALKED, WALKED)), last)
    given = tuple(x.requires_grad_() if x.is_floating_point() else x for x in tensors)
    slope = R(1, 2, ROWS, SIZE)
    found, kept = graded_by_graphs(function, given, slope)
    for got, want in zip(found, wanted(function, given, slope), strict=True):
        torch.testing.assert_close(got, want)
    return sum(x.numel() == 2 * ROWS for x in kept)


def test_exponentials_may_be_divided_by_negative_numbers() -> None:
    check(divided, R(1, 2, ROWS, 1))


def test_exponentials_may_be_divided_by_a_sum_with_a_sink() -> None:
    check(with_a_sink, R(1, 2, 1, 1))


def test_what_exponentials_are_about_may_have_a_factor() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
        s = scores(q, k)
        power = torch.exp(torch.sub(s, s.amax(-1, keepdim=True), alpha=0.5))
        return power / torch.add(power.sum(-1, keepdim=True), torch.exp(sink), alpha=-0.5) @ v

    check(function, R(1, 2, 1, 1))


def test_a_bias_may_be_one_of_several_results() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return torch.softmax(scores(q, k) + bias.max(-2, keepdim=True)[0], -1) @ v

    check(function, R(1, 2, 3, WALKED))


@pytest.mark.parametrize(
    ("function", "last"), [(filled, SEEN), (biased, torch.where(SEEN, 0.0, torch.finfo(torch.float32).min))]
)
def test_a_row_that_large_numbers_mask_is_of_equal_weights(function: Callable[..., Tensor], last: Tensor) -> None:
    assert check(function, last) == 2


def test_of_masks_by_infinity_a_row_keeps_one_number() -> None:
    assert (
        check(lambda q, k, v, seen: torch.softmax(scores(q, k).masked_fill(~seen, -torch.inf), -1) @ v, SEEN | True)
        == 1
    )
