"""Gradients of pooling and of padding: sums over what an element was read for, as one kernel with eager's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from search_spaces import InputError
from untuned import untuned_kernels

# Few different numbers: most windows hold their largest one several times.
X = (torch.arange(2 * 3 * 9 * 8) * 7 % 5).float().view(2, 3, 9, 8)
NAN = X.clone()
NAN[0, 0, 2, 1:4], NAN[1, 2, 5, 5] = math.nan, math.inf

CASES: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "means": (lambda x: F.avg_pool2d(x, 3, 2, 1), X),
    "means side by side": (lambda x: F.avg_pool2d(x, 2), X),
    "means without padding": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), X),
    "means of windows that end outside": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), X),
    "sums over a number": (lambda x: F.avg_pool2d(x, (2, 3), (1, 2), divisor_override=7), X),
    "means along a line": (lambda x: F.avg_pool1d(x, 3, 2, 1), X[0]),
    "means of blocks": (lambda x: F.avg_pool3d(x, 2, 1, 1), X),
    "as many means": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), X),
    "means of windows of several sizes": (lambda x: F.adaptive_avg_pool2d(x, (4, 5)), X),
    "means of volumes of several sizes": (lambda x: F.adaptive_avg_pool3d(x, (2, 4, 9)), X),
    "largest of windows": (lambda x: F.max_pool2d(x, 3, 2, 1), X),
    "largest of what is no number": (lambda x: F.max_pool2d(x, 3, 1, 1), NAN),
    "largest of elements apart": (lambda x: F.max_pool2d(x, 2, 1, dilation=2), X),
    "largest of windows with gaps": (lambda x: F.max_pool2d(x, 2, 3), X),
    "largest of windows that end outside": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), X),
    "largest of blocks": (lambda x: F.max_pool3d(x, 2, 2, 1), X),
    "as many maxima": (lambda x: F.adaptive_max_pool2d(x, (3, 4)), X),
    "maxima of windows of several sizes": (lambda x: F.adaptive_max_pool2d(x, (4, 5)), X),
    "maxima of what is no number": (lambda x: F.adaptive_max_pool2d(x, (4, 10)), NAN),
    "maxima of volumes of several sizes": (lambda x: F.adaptive_max_pool3d(x, (2, 4, 9)), X),
    # Each element of a gradient is the sum of all places that may have read it, one by one: few are enough.
    "of another size by repeating": (lambda x: F.interpolate(x, (3, 5), mode="nearest-exact"), X[:, :, :5, :4]),
    "enlarged": (lambda x: F.interpolate(x, (3, 4), mode="bilinear"), X[:, :1, :2, :3]),
    "windows as columns": (lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=1, stride=(2, 1)), X),
    "elements at known places": (lambda x: x[:, :, torch.tensor([3, 0, 3, 8, -1])], X),
    "windows that overlap": (lambda x: x.unfold(2, 4, 2) * 2.0, X),
    "repeated ends": (lambda x: F.pad(x, (2, 2, 1, 3), mode="replicate"), X),
    "repeated ends of a part": (lambda x: F.pad(x, (2, -1, -2, 3), mode="replicate"), X),
    "mirrored ends": (lambda x: F.pad(x, (2, 2, 1, 3), mode="reflect"), X),
    "a circle": (lambda x: F.pad(x, (2, 2, 1, 3), mode="circular"), X),
}

# Those that put elements at places, by several dimensions or several of each window.
IN_SEVERAL_KERNELS = {"windows that overlap", "of another size by repeating", "enlarged", "windows as columns"}


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_windows_and_padding_are_those_of_eager(name: str) -> None:
    function, x = CASES[name]
    traced = trace(function, x.clone().requires_grad_(), backward=True)
    kernel = loaded(traced, untuned_kernels((*traced.forward.workloads, *traced.backward.workloads), cpu_target()))
    weight = torch.linspace(-1, 1, function(x).numel()).view(function(x).shape)

    def gradient(of: Callable[[Tensor], Tensor]) -> Tensor:
        given = x.clone().requires_grad_()
        (found,) = torch.autograd.grad((of(given) * weight).sum(), given)
        return found

    assert len(traced.backward.steps) == 1 or name in IN_SEVERAL_KERNELS
    torch.testing.assert_close(gradient(kernel), gradient(function), rtol=1e-5, atol=1e-5)


def test_a_gradient_of_too_many_windows_is_refused_by_their_number() -> None:
    x = torch.empty(1, 1, 40, 40, device="meta", requires_grad=True)
    with pytest.raises(InputError, match="in 400 windows; at most 256"):
        trace(lambda x: F.avg_pool2d(x, 20, 1), x, backward=True)
