"""Functions with images channels last between convolutions: one more way to cut them, with PyTorch's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched.machine import devices
from autosched.tracing import TracedFunction, TracedKernel
from image_models import image_models
from program_check import places
from untuned import untuned_kernels

FORMAT = "memory format: channels last"
W, V = torch.randn(4, 4, 3, 3), torch.randn(6, 4, 1, 1)


def cuts_of(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> list[TracedFunction]:
    """The cuts with images channels last."""
    traced = autosched.trace(function, *inputs, **options).for_target(devices.cpu_target())
    return [cut for cut in traced.cuts if FORMAT in cut.rewrites]


def check(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> list[TracedFunction]:
    """Such cuts, after results of the first and the last were PyTorch's and lay where PyTorch's do."""
    cuts = cuts_of(function, *inputs, **options)
    assert cuts
    right = function(*inputs)
    for cut in dict.fromkeys((cuts[0], cuts[-1])):
        made = TracedKernel(cut, untuned_kernels(cut.workloads, devices.cpu_target()))(*inputs)
        torch.testing.assert_close(made, right, rtol=1e-4, atol=1e-4)
        several = (made, right) if isinstance(made, tuple) else ((made,), (right,))
        assert places(inputs, several[0]) == places(inputs, several[1])
    return cuts


@pytest.mark.parametrize("name", image_models())
def test_models_have_their_results_where_they_were(name: str) -> None:
    model, x = image_models()[name]
    rewrites = check(model, x)[-1].rewrites
    assert any("strided convolutions" in r for r in rewrites) == (name in ("ResNet", "UNet"))


def test_what_is_stored_between_convolutions_is_channels_last() -> None:
    (cut,) = cuts_of(lambda x: F.conv2d(F.conv2d(x, W).relu(), V), torch.randn(2, 4, 8, 8))
    first, second = cut.launched
    assert first.output_strides == ((144, 1, 24, 4),)
    assert second.output_strides == (None,)


def test_other_functions_have_no_such_cut() -> None:
    assert not cuts_of(lambda x: F.conv2d(x, W).relu(), torch.randn(2, 4, 8, 8))
    assert not cuts_of(lambda x: F.conv2d(F.conv2d(x, W).relu(), V), torch.randn(2, 8, 8, 4).permute(0, 3, 1, 2))


def test_images_and_results_may_be_in_any_format() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        made = F.conv2d(F.conv2d(x + y[:, :1].expand_as(x), W, padding=1).relu(), W, padding=1)
        return made, made + y, F.conv2d(made[:, :, 1:], V).transpose(2, 3), x[:1]

    x, y = torch.randn(2, 4, 6, 6), torch.randn(2, 6, 6, 4).permute(0, 3, 1, 2)
    check(function, x, y)
    check(function, y.transpose(2, 3), x)
    check(lambda x: function(x, torch.ones(4, 1, 1).expand(2, 4, 6, 6)), x)


def test_calls_of_pytorch_take_images_in_any_format() -> None:
    def function(x: Tensor) -> Tensor:
        made = F.conv2d(F.conv2d(x, W, padding=1), W, padding=1)
        return F.conv2d(made.sort(2)[0] + torch.special.bessel_j1(made), V)

    check(function, torch.randn(2, 4, 6, 6), allow_fallback=True)


@pytest.mark.filterwarnings("ignore::autosched.tracing.callables.whole_check.UncheckedWarning")
def test_changed_tensors_are_changed_where_they_are() -> None:
    def function(x: Tensor) -> Tensor:
        y = F.conv2d(F.conv2d(x, W, padding=1).relu(), W, padding=1)
        x.copy_(y)
        return y + 1

    (cut, *_), x = cuts_of(function, torch.randn(2, 4, 6, 6)), torch.randn(2, 4, 6, 6)
    expected = x.clone()
    kernel = TracedKernel(cut, untuned_kernels(cut.workloads, devices.cpu_target()))
    torch.testing.assert_close(kernel(x), function(expected), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(x, expected, rtol=1e-4, atol=1e-4)


def test_gradients_are_left_as_they_were_written() -> None:
    x = torch.randn(2, 4, 6, 6, requires_grad=True)
    traced = autosched.trace(lambda x: F.conv2d(F.conv2d(x, W).relu(), V), x, backward=True)
    assert not any(cut.rewrites for cut in (*traced.forward.cuts, *traced.backward.cuts))


def test_a_view_that_the_other_format_has_not_reads_the_image_as_it_was() -> None:
    def flat(x: Tensor) -> Tensor:
        return F.conv2d(F.relu(F.conv2d(x, W)), V).flatten(1).cumsum(1)

    check(flat, torch.randn(2, 4, 8, 8))


def test_operators_of_others_have_the_memory_that_they_had() -> None:
    """They may read it as if it were dense."""
    seen: list[tuple[int, ...]] = []
    with torch.library._scoped_library("autosched_memory_formats", "DEF") as library:
        library.define("of_memory(Tensor x) -> Tensor")

        @torch.library.impl(library, "of_memory", "CPU")
        def of_memory(x: Tensor) -> Tensor:
            seen.append(x.stride())
            return x.as_strided((x.numel(),), (1,)).clone()

        @torch.library.register_fake("autosched_memory_formats::of_memory", lib=library)
        def without_data(x: Tensor) -> Tensor:
            return x.new_empty((x.numel(),))

        def function(x: Tensor) -> Tensor:
            made = F.conv2d(F.relu(F.conv2d(x, W)), V)
            return torch.ops.autosched_memory_formats.of_memory(made) * 2.0

        check(function, torch.randn(2, 4, 8, 8), allow_fallback=True)
    assert {*seen} == {(216, 36, 6, 1)}
