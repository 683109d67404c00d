"""Workloads that a library computes by one call: recognised by their structure, and right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched.baselines.library_calls import LibraryCall, is_as_precise, library_call_of
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from autosched.kernels.library_check import why_no_library
from autosched.machine import devices
from autosched.machine.library_precision import LibraryPrecision
from needed import needs_gpu
from search_spaces import Workload, ops, target_named

TARGET = devices.cpu_target(1)
attend = F.scaled_dot_product_attention


def image(*shape: int) -> Tensor:
    return torch.empty(*shape).to(memory_format=torch.channels_last)


def workload_of(function: Callable[..., Any], *inputs: Tensor) -> Workload:
    (found,) = autosched.trace(function, *inputs).workloads
    return found


def called(workload: Workload) -> LibraryCall:
    found = library_call_of(workload, TARGET)
    assert found is not None, workload
    return found


def check(workload: Workload) -> None:
    """The call writes what the reference has, where the workload has it."""
    inputs, (out,) = random_inputs(workload, 0), workload.outputs
    made = called(workload).compute(inputs, [0] * len(inputs))
    assert (tuple(made.shape), made.stride()) == (out.shape, out.effective_strides)
    assert why_wrong(made, expect(workload, inputs)[0]) is None


e = torch.empty
PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "product": (torch.mm, (e(8, 24), e(24, 32))),
    "transposed operands": (lambda a, b: a.t() @ b.t(), (e(24, 8), e(32, 24))),
    "transposed result": (lambda a, b: (a @ b).t().contiguous(), (e(8, 24), e(24, 32))),
    "one row": (torch.mm, (e(1, 24), e(24, 32))),
    "matrix and vector": (torch.mv, (e(8, 24), e(24))),
    "bias": (F.linear, (e(2, 4, 24), e(32, 24), e(32))),
    "slices": (lambda x, w, b: torch.addmm(b, x[:, 4:20], w[:, :16].t()), (e(8, 24), e(32, 24), e(32))),
    "bias and relu": (lambda x, w, b: F.relu(F.linear(x, w, b)), (e(8, 24), e(32, 24), e(32))),
    "residual": (torch.addmm, (e(8, 32), e(8, 24), e(24, 32))),
    # PyTorch rounds the product before it adds.
    "product and residual": (lambda x, w, y: x @ w + y, (e(8, 24), e(24, 32), e(8, 32))),
    "batch": (torch.matmul, (e(2, 3, 4, 8), e(2, 3, 8, 16))),
    "batch and residual": (torch.baddbmm, (e(2, 4, 5), e(2, 4, 8), e(2, 8, 5))),
}
CONVOLUTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "padded": (lambda x, w: F.conv2d(x, w, padding=1), (e(2, 4, 8, 8), e(6, 4, 3, 3))),
    "strided channels last": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), (image(2, 4, 9, 8), image(6, 4, 3, 3))),
    "dilated": (
        lambda x, w, b: F.conv2d(x, w, b, padding=(1, 0), dilation=(1, 2)),
        (e(2, 4, 8, 8), e(6, 4, 3, 3), e(6)),
    ),
    "one tap": (F.conv2d, (e(2, 4, 8, 8), e(6, 4, 1, 1), e(6))),
    "a column of taps": (lambda x, w: F.conv2d(x, w, padding=(1, 0)), (e(2, 4, 8, 8), e(6, 4, 3, 1))),
    "groups": (lambda x, w, b: F.conv2d(x, w, b, groups=2, padding=1), (image(2, 4, 8, 8), e(6, 2, 3, 3), e(6))),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=4, padding=1), (e(2, 4, 8, 8), e(4, 1, 3, 3))),
    "one image": (lambda x, w: F.conv2d(x, w, padding=1), (image(1, 3, 9, 9), e(6, 3, 3, 3))),
    "one dimension": (lambda x, w: F.conv1d(x, w, padding=2), (e(2, 4, 16), e(6, 4, 5))),
    "three dimensions": (lambda x, w: F.conv3d(x, w, padding=1), (e(2, 4, 5, 6, 7), e(6, 4, 3, 3, 3))),
}
# oneDNN makes NaN 0 there, and rounds twice.
BY_CUDNN_ALONE: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "relu": (lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), (e(2, 4, 8, 8), e(6, 4, 3, 3), e(6))),
    "residual and relu": (
        lambda x, w, b, y: F.relu(F.conv2d(x, w, b, padding=1) + y),
        (image(2, 4, 8, 8), image(6, 4, 3, 3), e(6), image(2, 6, 8, 8)),
    ),
}
QKV = (e(2, 3, 16, 8),) * 3
ATTENTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "attention": (attend, QKV),
    "causal": (lambda q, k, v: attend(q, k, v, is_causal=True, scale=0.3), QKV),
    "masked": (lambda q, k, v, m: attend(q, k, v, attn_mask=m), (*QKV, e(16, 16))),
    "shared keys": (lambda q, k, v: attend(q, k, v, enable_gqa=True), (QKV[0], e(2, 1, 16, 8), e(2, 1, 16, 8))),
    "heads side by side": (lambda q, k, v: attend(q, k, v).transpose(1, 2).reshape(2, 16, 24), QKV),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_one_call(name: str, dtype: torch.dtype) -> None:
    function, inputs = PRODUCTS[name]
    check(workload_of(function, *(x.to(dtype) for x in inputs)))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_one_call(name: str) -> None:
    function, inputs = CONVOLUTIONS[name]
    check(workload_of(function, *inputs))


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_is_one_call(name: str) -> None:
    function, inputs = ATTENTIONS[name]
    workload = workload_of(function, *inputs)
    assert called(workload).name == "scaled_dot_product_attention"
    check(workload)


@pytest.mark.parametrize(
    "workload",
    [
        ops.matmul(24, 16, 8, epilogue="bias", layout="nt"),
        ops.conv(2, 4, "8x8", 6, 3),
        ops.conv(2, 8, "9x9", 8, 3, padding=1, groups=8, epilogue="bias"),
        ops.conv(2, 8, "8x8", 12, 3, padding=1, groups=4),
        ops.conv(2, 4, "8x8", 6, 1, stride=2),
        ops.conv(2, 4, "8x8", 6, 1, layout="contiguous", epilogue="bias"),
    ],
    ids=lambda workload: workload.label,
)
def test_a_named_operator_is_the_same_as_a_traced_one(workload: Workload) -> None:
    check(workload)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, w: F.gelu(x @ w), (e(8, 24), e(24, 32))),
        (lambda x, w, b, y: F.linear(x, w, b) + y, (e(8, 24), e(32, 24), e(32), e(8, 32))),
        (lambda x, w: (x @ w).amax(-1), (e(8, 24), e(24, 32))),
        (lambda x, w: F.conv2d(F.pad(x, (1, 0, 1, 0)), w), (e(2, 4, 8, 8), e(6, 4, 3, 3))),
        (lambda x, w: F.conv2d(x + 1, w, padding=1), (e(2, 4, 8, 8), e(6, 4, 3, 3))),
        (lambda q, k, v: ((q @ k.mT).softmax(-1) + 1) @ v, QKV),
        # The library has 0 in rows that see no key, and this has NaN.
        (lambda q, k, v, m: ((q @ k.mT) * 0.3 + m).softmax(-1) @ v, (*QKV, e(16, 16))),
    ],
)
def test_what_takes_more_than_one_call_has_none(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
    first, *_ = autosched.trace(function, *inputs).workloads
    assert library_call_of(first, TARGET) is None


def test_an_image_of_one_row_that_windows_never_meet_is_no_convolution() -> None:
    workload = ops.conv(1, 6, "8x1", 2, "3x1", stride=3, padding=1, epilogue="relu")
    assert library_call_of(workload, TARGET) is None


def test_operands_begin_anywhere_in_their_tensors() -> None:
    workload = workload_of(torch.mm, e(8, 24), e(24, 32))
    a, b = random_inputs(workload, 0)
    within = torch.cat([torch.full((5,), torch.nan), a.flatten()])
    made = called(workload).compute([within[2:], b], [3, 0])
    assert why_wrong(made, expect(workload, [a, b])[0]) is None


def test_a_call_is_as_precise_as_pytorchs_switches_say() -> None:
    gpu = target_named("h100")
    product, image = ops.matmul(32, 32, 32, dtype="tf32"), ops.conv(2, 16, "8x8", 16, 3, dtype="tf32")
    calls = [(w, library_call_of(w, gpu)) for w in (product, image)]
    found = []
    for precision in (LibraryPrecision("ieee", "tf32"), LibraryPrecision("tf32", "ieee")):
        with precision.applied():
            found.append([call is not None and is_as_precise(w, gpu, call) for w, call in calls])
    assert found == [[False, True], [True, False]]


def test_a_gpu_has_other_libraries() -> None:
    gpu = target_named("nvidia-h100")
    residual = BY_CUDNN_ALONE["residual and relu"]
    assert all(library_call_of(workload_of(f, *x), TARGET) is None for f, x in BY_CUDNN_ALONE.values())
    names = [
        found.name
        for function, inputs in (PRODUCTS["bias"], residual, ATTENTIONS["causal"])
        if (found := library_call_of(workload_of(function, *inputs), gpu)) is not None
    ]
    assert names == ["cuBLAS", "cuDNN", "scaled_dot_product_attention"]


@pytest.mark.parametrize("shape", [(8, 4, 2), (8, 6, 3)])
def test_a_diagonal_of_windows_is_right_or_not_recognised(shape: tuple[int, ...]) -> None:
    """In memory the windows of the first are spread out evenly."""
    workload = workload_of(
        lambda x, w: torch.einsum("nkh,ok->noh", x.unfold(1, 3, 1).diagonal(0, 1, 2), w), e(*shape), e(6, 3)
    )
    if library_call_of(workload, TARGET) is not None:
        check(workload)


def test_a_call_that_hides_nan_is_no_choice() -> None:
    workload = workload_of(torch.mm, e(8, 24), e(24, 32))
    right = called(workload)
    hiding = replace(right, compute=lambda *given: right.compute(*given).nan_to_num(0.0))
    assert why_no_library(workload, TARGET, right, 1e-6) is None
    assert "nan" in str(why_no_library(workload, TARGET, replace(hiding, name="another"), 1e-6)).lower()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", [*PRODUCTS, *CONVOLUTIONS, *ATTENTIONS, *BY_CUDNN_ALONE])
def test_a_call_on_a_gpu_is_right(name: str) -> None:
    function, inputs = {**PRODUCTS, **CONVOLUTIONS, **ATTENTIONS, **BY_CUDNN_ALONE}[name]
    workload = workload_of(function, *(x.half() for x in inputs))
    found = library_call_of(workload, devices.detect())
    assert found is not None
    drawn = random_inputs(workload, 0, "cuda")
    made = found.compute(drawn, [0] * len(drawn))
    (expected,) = expect(workload, drawn)
    # Libraries may add partial sums of small operands in float16; the check before use refuses these calls.
    error = (made.double() - expected.values.double()).abs().max() / expected.values.abs().max()
    assert error < 1e-2
