"""Traced convolutions: eager's numbers and strides, in as few kernels as they need, with what surrounds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from autosched import InputError, trace
from autosched.backends.spaces import why_no_schedule
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.operators.windows import transposed as transposed_rules
from search_spaces import target_named
from traced_convolutions import COMBINATIONS, R, check, checked, laid_out, made, name_of
from traced_gradients import graded, wanted
from untuned import untuned_kernels

Function = Callable[..., Any]
X, W, B = R(2, 4, 7, 6), R(8, 4, 3, 3), R(8)
# Of a 1 x 1 and of a depthwise convolution of 8 channels.
POINT, EACH = R(4, 8, 1, 1), R(8, 1, 3, 3)
MEAN, VAR, GAIN, SHIFT = R(8), R(8).abs() + 0.5, R(8), R(8)


@pytest.mark.parametrize("kind", COMBINATIONS, ids=name_of)
def test_a_convolution_gives_the_numbers_and_strides_of_eager(kind: Mapping[str, Any]) -> None:
    function, given = made(kind)
    traced = checked(function, *given)
    # What a single window reads of larger images may be gathered first.
    if kind["kind"] == "ordinary" and kind["size"] > 1:
        assert len(traced.steps) == 1, str(traced)


def conv(x: Tensor, w: Tensor = W, b: Tensor | None = None, padding: int = 1) -> Tensor:
    return F.conv2d(x, w, b, padding=padding, groups=x.shape[1] // w.shape[1])


def norm(x: Tensor, mean: Tensor, var: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return F.batch_norm(x, mean, var, gain, shift)


def squeezed(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    return conv(x, w) * s.sigmoid()[:, :, None, None]


# name: a function of one kernel, and its arguments.
AFTER: dict[str, tuple[Function, *tuple[Tensor, ...]]] = {
    "bias": (conv, X, W, B),
    "activation": (lambda x, w, b: F.silu(conv(x, w, b)), X, W, B),
    "inference batch norm": (lambda x, w, *n: norm(conv(x, w), *n), X, W, MEAN, VAR, GAIN, SHIFT),
    "batch norm and activation": (
        lambda x, w, *n: F.relu6(norm(conv(x, w), *n)), X, W, MEAN, VAR, GAIN, SHIFT,
    ),
    "residual": (lambda x, w, b, r: F.relu(conv(x, w, b) + r), X, W, B, R(2, 8, 7, 6)),
    "scale of channels": (lambda x, w, b, s: conv(x, w, b) * s[:, None, None], X, W, B, R(8)),
    "squeeze and excite": (squeezed, X, W, R(2, 8)),
    "residual of another layout": (
        lambda x, w, r: conv(x, w) + r, X, W, R(2, 6, 7, 8).permute(0, 3, 2, 1),
    ),
    "channel shuffle": (
        lambda x, w, b: conv(x, w, b).view(2, 4, 2, 7, 6).transpose(1, 2).flatten(1, 2), X, W, B,
    ),
    "what multiplies by a number": (lambda x, w: (conv(x, w) * 0.5 + 1).clamp(-1, 1), X, W),
    "pixel shuffle": (lambda x, w, b: F.pixel_shuffle(conv(x, w, b), 2), X, W, B),
    "a part of it": (lambda x, w, b: conv(x, w, b).chunk(2, 1)[0] * 2, X, W, B),
    "tokens": (lambda x, w, b: F.conv2d(x, w, b, stride=3).flatten(2).transpose(1, 2), X, W, B),
    "depthwise": (lambda x, w, b: F.gelu(conv(x, w, b)), R(2, 8, 7, 6), EACH, B),
    "pointwise": (lambda x, w: F.relu(conv(x, w, padding=0)), R(2, 8, 7, 6), POINT),
}  # fmt: skip


@pytest.mark.parametrize("name", AFTER)
@pytest.mark.parametrize("layout", ["first", "last"])
def test_what_follows_a_convolution_is_computed_in_its_kernel(name: str, layout: str) -> None:
    function, *given = AFTER[name]
    traced = checked(function, *(laid_out(x, layout) if x.dim() == 4 else x for x in given))
    assert len(traced.steps) == 1, str(traced)


def reflected(x: Tensor, w: Tensor) -> Tensor:
    return conv(F.pad(x, (1, 1, 1, 1), mode="reflect"), w, padding=0)


def preactivated(x: Tensor, w: Tensor, *n: Tensor) -> Tensor:
    return conv(F.relu(norm(x, *n)), w)


def line(x: Tensor, w: Tensor) -> Tensor:
    return F.conv1d(F.silu(x + 1), w, padding=1, groups=x.shape[1] // w.shape[1])


NORM4 = tuple(t[:4] for t in (MEAN, VAR, GAIN, SHIFT))
# name: the function, its arguments, and the fewest kernels that it is cut into.
NEIGHBOURS: dict[str, tuple[Function, tuple[Tensor, ...], int]] = {
    "relu": (lambda x, w: conv(F.relu(x), w), (X, W), 1),
    "a sum": (lambda x, y, w: conv(x + y, w), (X, R(2, 4, 7, 6), W), 1),
    "batch norm": (preactivated, (X, W, *NORM4), 1),
    "batch norm, pointwise": (
        lambda x, w, *n: conv(F.relu(norm(x, *n)), w, padding=0), (X, POINT[:, :4], *NORM4), 1,
    ),
    "batch norm, depthwise": (preactivated, (R(2, 8, 7, 6), EACH, MEAN, VAR, GAIN, SHIFT), 1),
    "batch norm, in groups": (preactivated, (X, R(6, 2, 3, 3), *NORM4), 1),
    "squeeze and excite": (lambda x, s, w: conv(x * s.sigmoid()[:, :, None, None], w), (X, R(2, 4), W), 1),
    "a line": (line, (R(2, 4, 9), R(8, 4, 3)), 1),
    "a line, channel by channel": (line, (R(2, 4, 9), R(4, 1, 3)), 1),
    "volumes": (lambda x, w: F.conv3d(F.relu(x - 1), w, padding=1), (R(1, 2, 3, 4, 5), R(3, 2, 3, 3, 3)), 1),
    "transposed": (lambda x, w: F.conv_transpose2d(F.relu(x), w, stride=2), (X, R(4, 3, 2, 2)), 1),
    "padding by reflection": (reflected, (X, W), 2),
    "padding with zeros": (lambda x, w: conv(F.pad(x, (1, 0, 2, 1)), w), (X, W), 1),
    "padding with a number": (lambda x, w: conv(F.pad(x, (1, 1, 1, 1), value=2.0), w, padding=0), (X, W), 2),
    "a part of channels": (lambda x, w: conv(x[:, 2:6], w), (R(2, 8, 7, 6), W), 1),
    "every other row": (lambda x, w: conv(x[:, :, ::2], w), (X, W), 1),
    "an enlarged image": (lambda x, w: conv(F.interpolate(x, scale_factor=2), w), (X, W), 2),
    "a pooled image": (lambda x, w: conv(F.max_pool2d(x, 2), w), (X, W), 2),
    "pooling of what is activated": (lambda x: F.max_pool2d(F.silu(x), 3, 2, 1), (X,), 1),
    "shuffled pixels": (lambda x, w: conv(F.pixel_unshuffle(x[:, :1, :6], 2), w), (X, W), 1),
    "concatenated channels": (lambda x, y, w: conv(torch.cat((x, y), 1), w), (X[:, :3], X[:, 3:], W), 1),
    "scaled weights": (lambda x, w, s: conv(x, w * s[:, None, None, None]), (X, W, R(8)), 1),
    "another convolution": (lambda x, w, v: conv(F.relu(conv(x, w)), v, padding=0), (X, W, POINT), 2),
    "depthwise and pointwise": (
        lambda x, d, p: F.relu(conv(F.relu6(conv(x, d)), p, padding=0)), (R(2, 8, 7, 6), EACH, POINT), 2,
    ),
    "a residual block": (
        lambda x, w, v: F.relu(x + conv(F.relu(conv(x, w)), v, padding=0)), (X, W, POINT), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_what_precedes_a_convolution_may_be_computed_in_its_kernel(name: str) -> None:
    """In one of the cuts that are measured. What padding multiplies is 0, whatever the function makes of a 0."""
    function, (x, *more), fewest = NEIGHBOURS[name]
    x = x.clone()
    x[(0,) * x.dim()], x[(-1,) * x.dim()] = math.nan, math.inf
    traced = trace(function, x, *more)
    assert min(len(cut.launched) for cut in traced.cuts) == fewest, "\n".join(map(str, traced.cuts))
    for cut in traced.cuts:
        check(cut, function, x, *more)


PAIR = W[:2, :, :1, :2].half()


def padded_only(x: Tensor, pair: Tensor) -> Tensor:
    """Zeros: taps that are six apart are on both sides of two columns."""
    return F.conv2d(x[..., :2], pair, dilation=(1, 6), padding=(0, 3))


def pooled_padding(x: Tensor, pair: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(F.max_pool2d(padded_only(x, pair), 2).relu(), w, padding=1)


# name: the function, its arguments.
EDGES: dict[str, tuple[Function, *tuple[Tensor, ...]]] = {
    "one pixel": (conv, X[:, :, :1, :1], W, B),
    "a kernel larger than the image": (lambda x, w: F.conv2d(x, w, padding=3), X[:, :, :2, :3], R(8, 4, 7, 7)),
    "windows beside the image": (lambda x, w: F.conv2d(x, w, padding=(0, 3), stride=(1, 20)), X[..., :1], POINT[:, :4]),
    "an image without a batch": (conv, X[0], W, B),
    "a line without a batch": (lambda x, w: F.conv1d(x, w, padding=1), R(4, 9), R(8, 4, 3)),
    "a transposed one without a batch": (lambda x, w: F.conv_transpose2d(x, w, stride=2), X[0], R(4, 3, 2, 2)),
    "one number for all dimensions": (
        lambda x, w: torch.convolution(x, w, None, [2], [1], [1], False, [0], 1), X, W,
    ),
    "a step beyond the taps": (lambda x, w: F.conv2d(x, w, stride=4), X, R(8, 4, 2, 2)),
    "even taps with the image's size": (lambda x, w: F.conv2d(x, w, padding="same"), X, R(8, 4, 2, 4)),
    "windows in the padding alone": (padded_only, X.half(), PAIR),
    "what is made of these": (pooled_padding, X.half(), PAIR, W[:, :2].half()),
    "residues of nothing": (lambda x, w: F.conv_transpose2d(x, w, stride=(5, 2)), X, R(4, 3, 2, 1)),
    "residues without taps": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=3, output_padding=2), X, R(4, 3, 1, 2), R(3),
    ),
    "a batch by vmap": (torch.vmap(conv, in_dims=(0, None)), R(3, 2, 4, 7, 6), W),
    "weights by vmap": (torch.vmap(conv, in_dims=(None, 0)), X, R(3, 8, 4, 3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_edges_of_convolutions_are_those_of_eager(name: str) -> None:
    checked(*EDGES[name])


@pytest.mark.parametrize("transposed", [False, True])
def test_without_images_there_is_no_kernel(transposed: bool) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return F.relu(F.conv_transpose2d(x, w) if transposed else F.conv2d(x, w))

    given = (X[:0], W.transpose(0, 1) if transposed else W)
    traced = trace(function, *given)
    assert not traced.workloads
    assert loaded(traced, {})(*given).shape == function(*given).shape


def test_strides_are_those_of_the_libraries_that_torch_export_leaves_out() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return F.max_pool3d(F.relu(F.conv3d(x, w)), 2)

    given = R(2, 4, 6, 7, 9), laid_out(R(8, 4, 2, 3, 3), "last")
    (result,) = trace(function, *given).results
    assert result.memory_strides == function(*given).stride()


@pytest.mark.parametrize("size", [2, 16])
def test_a_transposed_convolution_to_patches_is_one_kernel(size: int) -> None:
    traced = trace(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=size), X, R(4, 3, size, size), R(3))
    assert len(traced.steps) == 1, str(traced)


@pytest.mark.parametrize(
    "follow",
    [
        lambda y, s: y,
        lambda y, s: F.silu(y * 0.5) + 1,
        lambda y, s: F.gelu(y * s) + torch.arange(y.shape[3]),
        lambda y, s: y * y.sigmoid() + y,
    ],
    ids=["nothing", "activation", "broadcast operands", "several readers"],
)
def test_residues_of_a_transposed_convolution_and_what_follows_are_stored_in_place(
    follow: Callable[[Tensor, Tensor], Tensor],
) -> None:
    image, weight, scale = R(2, 4, 5, 6), R(4, 3, 3, 3), R(1, 3, 1, 1)
    traced = checked(lambda x, w, s: follow(F.conv_transpose2d(x, w, stride=2, padding=1), s), image, weight, scale)
    copies = [w for w in traced.launched if all(s.is_pointwise for s in w.stages)]
    assert all(math.prod(w.outputs[0].shape) < weight.numel() for w in copies), str(traced)
    assert len(traced.launched) - len(copies) == 4


def test_what_follows_a_convolution_is_looked_at_once() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        made = F.conv2d(x, w)
        for _ in range(24):
            made = made * made.sigmoid()
        for _ in range(150):
            made = made + 1.5
        return made

    assert trace(function, R(2, 4, 5, 6), R(3, 4, 3, 3)).launched


def test_residues_that_reductions_read_are_stored_before() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        made = F.conv_transpose2d(x, w, stride=2)
        return F.relu(made) + made.sum((2, 3), keepdim=True)

    checked(function, R(2, 4, 5, 6), R(4, 3, 3, 3))


@pytest.mark.parametrize(
    "first",
    [
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda x, w: F.conv2d(x, w[:, :2], padding=1, groups=2),
        lambda x, w: F.conv2d(x, w[:4, :1], padding=1, groups=4),
        lambda x, w: F.conv_transpose2d(x, w[:4, :, :2, :2], stride=2),
    ],
    ids=["dense", "groups", "depthwise", "transposed"],
)
def test_what_lies_between_convolutions_has_eagers_strides(first: Callable[..., Tensor]) -> None:
    x, w = R(2, 4, 8, 8).to(memory_format=torch.channels_last), R(8, 4, 3, 3)
    channels = first(x, w).shape[1]
    traced = trace(lambda x, w, v: F.conv2d(F.relu(first(x, w)), v), x, w, R(8, channels, 3, 3))
    stored = [v for step in traced.steps for v in step.values if len(v.shape) >= 4]
    assert len(stored) >= 2
    assert all(min(v.memory_strides) == v.memory_strides[-3 if len(v.shape) == 4 else 2] == 1 for v in stored)


@pytest.mark.parametrize("kernel", [3, 4])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_residues_of_large_transposed_convolutions_have_channels_innermost(
    kernel: int, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy comes last, with what follows, if residues would alternate within sectors of memory."""
    monkeypatch.setattr(transposed_rules, "_LAUNCH_BYTES", 0.0)
    image, weight = R(2, 4, 5, 6).to(memory_format=layout), R(4, 32, kernel, kernel)
    traced = checked(lambda x, w: F.relu(F.conv_transpose2d(x, w, stride=2, padding=1)), image, weight)
    copied = layout == torch.contiguous_format
    assert sum(w.outputs[0].strides is not None for w in traced.workloads) == 4
    assert any(w.name.endswith("relu") for w in traced.workloads) == copied


@pytest.mark.parametrize("transposed", [False, True])
def test_numbers_at_an_edge_reach_their_own_windows_alone(transposed: bool) -> None:
    """Products of padding are 0."""
    x = X.clone()
    x[0, 0, 0, 0], x[0, 1, -1, -1], x[1, 2, 0, -1] = math.nan, math.inf, -math.inf
    if transposed:
        checked(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), x, R(4, 3, 4, 4))
        checked(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), x, R(4, 3, 3, 3))
    else:
        checked(lambda x, w: F.conv2d(x, w, padding=2), x, W)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["batch norm and activation", "residual", "squeeze and excite", "pointwise"])
def test_narrow_convolutions_and_what_follows_are_rounded_as_eager_does_or_less(name: str, dtype: torch.dtype) -> None:
    function, *given = AFTER[name]
    checked(function, *(x.to(dtype) for x in given), tolerance=2.0**-8 if dtype is torch.float16 else 2.0**-5)


def test_autocast_narrows_convolutions() -> None:
    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.relu(conv(x, w, b))

    traced = checked(function, X, W, B, tolerance=2.0**-5)
    assert traced.results[0].dtype == "bfloat16"


def test_strides_under_autocast_are_those_of_the_libraries() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.relu(F.conv3d(x, w))

    given = R(2, 4, 6, 7, 9).half(), laid_out(R(8, 4, 2, 3, 3), "last").half()
    (result,) = trace(function, *given).results
    assert result.memory_strides == function(*given).stride()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.float64])
def test_element_types_without_kernels_are_refused_by_name(dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match=str(dtype).removeprefix("torch.")):
        trace(lambda x, w: F.conv2d(x, w), X.to(dtype), W.to(dtype))


# Precision


def elsewhere(*tensors: Tensor, device: str = "cuda") -> list[Tensor]:
    """Tensors on a device that need not be there, without data."""
    with FakeTensorMode():
        return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device) for t in tensors]


# name: the function, its arguments, and the precision on a GPU.
PRECISIONS: dict[str, tuple[Function, tuple[Tensor, ...], set[str]]] = {
    "a line": (lambda x, w: F.conv1d(x, w), (R(2, 4, 9), R(8, 4, 3)), {"tf32"}),
    "an image": (conv, (X, W, B), {"tf32"}),
    "volumes": (lambda x, w: F.conv3d(x, w, padding=1), (R(2, 2, 3, 4, 5), R(3, 2, 2, 3, 3)), {"tf32"}),
    "groups": (conv, (X, R(6, 2, 3, 3)), {"tf32"}),
    "a pixel": (lambda x, w: conv(x, w, padding=0), (X, R(8, 4, 1, 1)), {"tf32"}),
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (X, R(4, 3, 2, 2)), {"tf32"}),
    "transposed by residue": (lambda x, w: F.conv_transpose2d(x, w, dilation=2), (X, R(4, 3, 2, 2)), {"tf32"}),
    # No dot computes them.
    "depthwise": (conv, (R(2, 8, 7, 6), EACH), {"ieee"}),
    "narrow": (conv, (X.half(), W.half()), {"ieee"}),
    # By cuBLAS, which does not cut float32 by default.
    "with a product behind it": (
        lambda x, w, v: F.linear(conv(x, w).flatten(1), v), (X, W, R(5, 8 * 42)), {"tf32", "ieee"},
    ),
}  # fmt: skip


def precisions(function: Function, *tensors: Tensor) -> set[str]:
    found = (w for cut in trace(function, *tensors).cuts for w in cut.launched)
    return {w.precision for w in found if w.contracted}


@pytest.mark.parametrize("name", PRECISIONS)
def test_convolutions_of_float32_on_a_gpu_are_as_precise_as_cudnns(name: str) -> None:
    function, given, expected = PRECISIONS[name]
    assert precisions(function, *elsewhere(*given)) == expected


def test_convolutions_are_not_cut_on_a_cpu_or_where_cudnn_is_not_to() -> None:
    assert precisions(conv, X, W) == {"ieee"}
    try:
        torch._C._set_cudnn_allow_tf32(False)
        assert precisions(conv, *elsewhere(X, W)) == {"ieee"}
    finally:
        torch._C._set_cudnn_allow_tf32(True)


def test_convolutions_are_as_precise_as_pytorch_on_the_target_of_their_kernels() -> None:
    here, there = trace(conv, X, W), trace(conv, *elsewhere(X, W))
    expected = {"h200": {"tf32"}, "v100": {"ieee"}, "cpu": {"ieee"}}
    for name, precision in expected.items():
        target = cpu_target() if name == "cpu" else target_named(name)
        for traced in (here, there):
            assert {w.precision for w in traced.for_target(target).workloads} == precision, name


def test_gradients_are_as_precise_as_the_convolution() -> None:
    given = [torch.empty(t.shape, device="meta", requires_grad=True) for t in (X, W)]
    traced = trace(lambda x, w: F.conv2d(x, w, stride=2), *given, backward=True)
    made = (*traced.forward.workloads, *traced.backward.workloads)
    assert {w.precision for w in made if w.contracted} == {"tf32"}


def test_sizes_that_change_are_traced_for_the_device_of_the_examples() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.BatchNorm2d(8)).eval()
    changing: dict[str, Any] = {"dynamic": {"x": 0}, "sizes": (1, 8), "points": (2, 8)}
    assert {w.precision for w in trace(lambda x: module(x), X, **changing).workloads} == {"ieee"}
    traced = trace(lambda x, w: conv(x, w), *elsewhere(X, W), **changing)
    assert {w.precision for w in traced.workloads} == {"tf32"}


# Gradients

GRADIENTS: dict[str, tuple[Function, *tuple[Tensor, ...]]] = {
    "3 x 3": (conv, X, W, B),
    "strided": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), X, W),
    "strided beyond the taps": (lambda x, w: F.conv2d(x, w, stride=3), X, R(8, 4, 2, 2)),
    "dilated": (lambda x, w: F.conv2d(x, w, dilation=2, padding=2), X, W),
    "grouped": (conv, X, R(6, 2, 3, 3), R(6)),
    "depthwise": (lambda x, w: F.silu(conv(x, w)), R(2, 8, 7, 6), EACH),
    "pointwise": (lambda x, w: F.gelu(conv(x, w, padding=0)), R(2, 8, 7, 6), POINT),
    "a line": (lambda x, w: F.conv1d(x, w, stride=2, padding=1), R(2, 4, 9), R(8, 4, 3)),
    "volumes": (lambda x, w: F.conv3d(x, w, padding=1), R(2, 2, 3, 4, 5), R(3, 2, 2, 3, 3)),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), X, R(4, 3, 3, 3), R(3)),
    "transposed in groups": (lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2), X, R(4, 3, 2, 2)),
    "channels last": (conv, laid_out(X, "last"), laid_out(W, "last"), B),
    "an image without a batch": (conv, X[0], W, B),
    "two of them": (lambda x, w, v: conv(F.relu(conv(x, w)), v, padding=0), X, W, POINT),
    "norm of a batch": (
        lambda x, w, g, s: F.relu(F.batch_norm(conv(x, w), None, None, g, s, training=True)), X, W, GAIN, SHIFT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_convolutions_are_those_of_float64(name: str) -> None:
    function, *arguments = GRADIENTS[name]
    given = tuple(x.detach().requires_grad_() for x in arguments)
    slope = R(*function(*given).shape)
    traced = trace(function, *given, backward=True)
    for got, want in zip(graded(traced, given, slope), wanted(function, given, slope), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["strided", "grouped", "transposed", "channels last"])
def test_kernels_of_gradients_have_the_numbers_and_strides_of_eager(name: str) -> None:
    function, *arguments = GRADIENTS[name]
    given = tuple(x.detach().requires_grad_() for x in arguments)
    traced = trace(function, *given, backward=True)
    kernel = loaded(traced, untuned_kernels((*traced.forward.workloads, *traced.backward.workloads), cpu_target()))
    slope = R(*function(*given).shape)
    found, eager = (torch.autograd.grad((of(*given) * slope).sum(), given) for of in (kernel, function))
    for got, want in zip(found, eager, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-4)


def test_gradients_are_computed_where_they_are_wanted_alone() -> None:
    given = X, W.clone().requires_grad_()
    traced = trace(conv, *given, backward=True)
    assert len(traced.backward.steps) == 1, str(traced)


def test_a_depthwise_convolution_of_what_is_looked_up_has_kernels_on_a_cpu() -> None:
    weight = torch.randn(3, 1, 1, 1)

    def function(x: Tensor) -> Tensor:
        return F.conv2d(F.interpolate(x, [2, 3], mode="nearest-exact"), weight, groups=3)

    traced, target = trace(function, torch.randn(2, 3, 5, 7)), cpu_target()
    assert traced.again is not None
    here = traced.again(traced.settings.on_target(target), target)
    assert all(why_no_schedule(workload, target) is None for workload in here.workloads)
