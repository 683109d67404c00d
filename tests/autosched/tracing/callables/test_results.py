"""What a traced function returns: in the order of PyTorch's memory, and with the gradients of PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
    table = decompositions()
    assert not one_sided(joint.graph, table)
    del table[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default]
    assert one_sided(joint.graph, table) == {attention.default}


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


def written_over(x: Tensor) -> Tensor:
    made = torch.zeros_like(x)
    made[:] = x
    return made


def parts_of_a_changed_copy(x: Tensor) -> tuple[Tensor, ...]:
    made = x.clone()
    row = made[0]
    row += 1
    return row, made[1:].t(), made


def of_computed(x: Tensor) -> tuple[Tensor, ...]:
    return torch.meshgrid(x[0] * 2, x[:, 0].exp(), indexing="ij")


W = R(4, 6)
# Functions of a tensor, by what is to lie like PyTorch's.
PLACED: dict[str, Callable[[Tensor], Any]] = {
    "one part": lambda x: torch.cat((x,)),
    "one part of a stack": lambda x: torch.stack((x,))[0],
    "repeated once": lambda x: (x.repeat(1, 1), x.repeat(1, 1, 1), x.tile(())),
    "rolled by nothing": lambda x: (x.roll(0), x.roll(6, 1)),
    "padded by nothing": lambda x: F.pad(x, (0, 0)),
    "flipped along nothing": lambda x: x.flip(()),
    "copied into": lambda x: torch.empty_like(x).copy_(x),
    "written over": written_over,
    "scattered whole": lambda x: (x * 2).slice_scatter(x),
    "gathered in order": lambda x: (x.index_select(0, torch.arange(4)), x[[0, 1, 2, 3]]),
    "joined with nothing": lambda x: torch.cat((x, x[:0])),
    "copied beside itself": lambda x: (x, x.clone(), x.roll(0)),
    "computed and copied": lambda x: (lambda y: (y, y.roll(0), y.clone(), y))(x * 2),
    "every other row from the end": lambda x: x.flip(0)[::2],
    "flipped, and a view of that": lambda x: (lambda y: (y, y[1:], y[2].view(2, 3)))(x.flip(0)),
    "a grid of what is computed": of_computed,
    "views of an argument": lambda x: (x.t(), x[1:], x.view(-1)[::2], x, x.diagonal(), x.expand(2, 4, 6), x.detach()),
    "views of what is computed": lambda x: (lambda y: (y[1:], y.t(), y[0], y.unfold(1, 3, 2)))(x * 2),
    "what dropout leaves": lambda x: F.dropout(x, 0.5, training=False),
    "conversion to the same": lambda x: (x.to(x.dtype), x.contiguous(), x.to(x.dtype, copy=True), x.reshape(6, 4)),
    "what it closes over": lambda x: (W.t(), W, torch.cat((W,)), x * 2),
    "changed in place": parts_of_a_changed_copy,
    "sizes of 1": lambda x: (x[:1].clone(), x[:, :1].sum(1, keepdim=True), (x * 2)[:, None, 1:2]),
    "gaps": lambda x: torch.empty_strided((4, 6), (8, 1)).copy_(x),
}
LAYOUTS: dict[str, Tensor] = {
    "dense": R(4, 6),
    "transposed": R(6, 4).t(),
    "with gaps": R(4, 9)[:, 1:7],
}


def places(x: Tensor, made: Any) -> list[tuple[object, ...]]:
    """Of every result: strides, the tensor before it that it shares memory with, and how far apart they begin."""
    known, found = [x, W], []
    for result in (made,) if isinstance(made, Tensor) else made:
        memory = result.untyped_storage().data_ptr()
        same = next((n for n, t in enumerate(known) if t.untyped_storage().data_ptr() == memory), None)
        apart = None if same is None else result.data_ptr() - known[same].data_ptr()
        found.append((result.stride(), same, apart))
        known.append(result)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", PLACED)
def test_results_share_memory_as_those_of_pytorch_do(name: str, layout: str) -> None:
    function, x = PLACED[name], LAYOUTS[layout]
    if layout != "dense" and name in ("views of an argument", "conversion to the same"):
        function = {"views of an argument": lambda x: (x.t(), x[1:], x), "conversion to the same": torch.ravel}[name]
    traced = trace(function, x).for_target(cpu_target())
    made = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(x)
    wanted = function(x)
    torch.testing.assert_close(made, wanted)
    assert places(x, made) == places(x, wanted)


def test_a_copy_with_nothing_to_do_may_be_changed_without_its_argument() -> None:
    x = R(4, 6)
    before = x.clone()
    traced = trace(lambda x: torch.cat((x,)), x)
    loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(x).zero_()
    assert torch.equal(x, before)


def test_views_of_an_argument_that_is_not_aligned_are_views_of_it() -> None:
    memory = R(25)
    example, x = R(4, 6), memory[1:].view(4, 6)
    traced = trace(lambda x: (x.t(), x * 2), example)
    made, doubled = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(x)
    assert made.data_ptr() == x.data_ptr()
    torch.testing.assert_close((made, doubled), (x.t(), x * 2))


def with_gradients(x: Tensor) -> tuple[Tensor, ...]:
    y = x.exp()
    return y[1:], y.t(), x.t(), x, y.sum(0), y.roll(0), y[0].detach(), (x * 3)[:, ::2], (x + 1).t()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_with_gradients_share_memory_as_those_of_pytorch_do(layout: str) -> None:
    made, wanted = [], []
    x, y = (LAYOUTS[layout].detach().requires_grad_() for _ in range(2))
    traced = trace(with_gradients, x, backward=True).for_target(cpu_target())
    made = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(x)
    wanted = with_gradients(y)
    torch.testing.assert_close(made, wanted)
    assert places(x, made) == places(y, wanted)
    assert [m.requires_grad for m in made] == [w.requires_grad for w in wanted]
    weights = [torch.full_like(w, n + 1.0) for n, w in enumerate(wanted) if w.requires_grad]
    for results, given in ((made, x), (wanted, y)):
        torch.autograd.backward([r for r in results if r.requires_grad], weights, inputs=[given])
    torch.testing.assert_close(x.grad, y.grad)


def test_a_result_that_is_all_of_an_argument_has_its_gradient() -> None:
    x = R(4, 6).requires_grad_()
    traced = trace(lambda x: x.t(), x, backward=True)
    made = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(x)
    made.square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    assert made.data_ptr() == x.data_ptr()
