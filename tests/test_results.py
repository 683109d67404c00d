"""What a traced function returns: in the order of PyTorch's memory, and with the gradients of PyTorch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._subclasses import FakeTensorMode

from autosched import trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.capture.decomposing import one_sided
from autosched.tracing.capture.decompositions import decompositions

sys.path.append(str(Path(__file__).parent))
from untuned import untuned_kernels

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
IMAGES = R(2, 3, 4, 5).to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: x * 2 + 1, (IMAGES,)),
        (lambda x, w: F.conv2d(x, w, padding=1).relu(), (IMAGES, R(4, 3, 3, 3))),
        (lambda x: x.relu(), (R(4, 5, 3).permute(2, 0, 1),)),
        (lambda x: x.t().clone(), (R(4, 5),)),
        (lambda x: x.t().contiguous(), (R(4, 5),)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (R(2, 3, 4, 8), R(2, 3, 4, 8), R(2, 3, 4, 8))),
    ],
)
def test_results_lie_in_memory_as_those_of_pytorch(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
    traced = trace(function, *inputs, allow_fallback=True)
    traced = traced.for_target(cpu_target())
    got = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(*inputs)
    want = function(*inputs)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


GRADIENTS: dict[str, tuple[Callable[..., Any], *tuple[Tensor, ...]]] = {
    "windows that are kept": (lambda x: x.unfold(0, 3, 1).square() @ x[:3], R(9)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *(R(1, 2, 6, 8) for _ in range(3)),
    ),
    "batch statistics": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), R(4, 5, 3), R(5), R(5)),
    "places of largest elements": (lambda x: F.max_pool2d(x, 2), R(2, 3, 4, 4)),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, padding=1), R(2, 3, 4, 4), R(4, 3, 3, 3), R(4)),
    "checked solution": (lambda x, b: torch.linalg.solve(x, b), R(4, 4) + 4 * torch.eye(4), R(4, 2)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_pytorchs_where_it_computes_a_part_of_them(name: str) -> None:
    function, *given = GRADIENTS[name]
    inputs = [x.clone().requires_grad_() for x in given]
    traced = trace(function, *inputs, backward=True, allow_fallback=True)
    traced = traced.for_target(cpu_target())
    made = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(*inputs)
    wanted = function(*inputs)
    weights = torch.randn_like(wanted)
    got, want = torch.autograd.grad(made, inputs, weights), torch.autograd.grad(wanted, inputs, weights)
    for a, b in zip((made, *got), (wanted, *want), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_an_operator_that_keeps_something_for_its_gradient_is_not_decomposed_without_it() -> None:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
        return (attention(q, k, v)[0].clone(),)

    with FakeTensorMode() as mode:
        fake = tuple(mode.from_tensor(R(1, 2, 6, 8).requires_grad_()) for _ in range(3))
        joint: Any = aot_export_joint_simple(function, fake, trace_joint=True, decompositions={})
    assert one_sided(joint.graph, decompositions()) == {attention.default}
    both = {attention.default: None, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default: None}
    assert not one_sided(joint.graph, both)  # type: ignore[arg-type]  # only the names matter


def test_views_of_a_result_in_another_order_are_views_of_that() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y[1:3], y, y.t(), y[0]

    x = R(7, 5).t()
    traced = trace(function, x)
    assert [len(w.outputs) for w in traced.workloads] == [1]
    made = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(x)
    wanted = function(x)
    torch.testing.assert_close(made, wanted)
    assert [m.stride() for m in made] == [w.stride() for w in wanted]
    assert len({m.untyped_storage().data_ptr() for m in made}) == 1
