"""Traced functions with several results: in how few kernels, and as the functions themselves return them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import TracedFunction, trace
from autosched.comparing.agreement import why_disagrees
from autosched.kernels.kernel import Kernel
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from tuning_logs import Measurement
from untuned import untuned_kernels

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
H = functools.partial(R, dtype=torch.bfloat16)


def adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p * 0.99 - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def sum_and_norm(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x + r
    return F.rms_norm(h, (h.shape[-1],), w), h


def softmax_and_logsumexp(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.softmax(x.float(), -1), torch.logsumexp(x.float(), -1)


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().to(torch.int8), scale


def quantised_to_float8(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True).float() / 448.0
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def batch_norm(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    var, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(var + 1e-5) * w.view(1, -1, 1, 1) + b.view(1, -1, 1, 1), mean, var


def both_orders(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp(), (x * 2).t().contiguous()


def flat_and_not(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.view(-1, x.shape[-1]) * w


def grouped(x: Tensor) -> tuple[Tensor, Tensor]:
    groups = x.view(3, 2, 4, 5)
    return groups.sum((2, 3)), x.relu()


def rotated_pair(q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary embeddings of two tensors, which share no more than the angles."""

    def rotated(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * c + torch.cat((-b, a), -1) * s

    return rotated(q), rotated(k)


def product_and_activation(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    h = F.linear(x, w, b)
    return F.gelu(h), h


def gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    """Differences with both neighbours, each time cut out anew."""
    return x[1:, 1:] - x[:-1, 1:], x[1:, 1:] - x[1:, :-1]


def read_in_three_parts(x: Tensor) -> tuple[Tensor, ...]:
    a, b, c = x.chunk(3, -1)
    return a * 2, b.exp(), c + 1


# name: the function, its arguments, and how many kernels it takes.
CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int]] = {
    "adamw": (adamw, (R(35), R(35), R(35), R(35).abs()), 1),
    "adamw_of_a_number": (adamw, (R(()), R(()), R(()), R(()).abs()), 1),
    "sum_and_norm": (sum_and_norm, (H(6, 20), H(6, 20), H(20)), 1),
    "norm_and_statistics": (lambda x: torch.native_layer_norm(x, (20,), None, None, 1e-5), (H(6, 20),), 1),
    "softmax_and_logsumexp": (softmax_and_logsumexp, (H(6, 20),), 1),
    "quantised": (quantised, (R(6, 20),), 1),
    "quantised_to_float8": (quantised_to_float8, (H(6, 20),), 1),
    "batch_norm": (batch_norm, (R(4, 6, 5, 3), R(6), R(6)), 1),
    "maximum_and_place": (lambda x: x.max(-1), (R(6, 20),), 1),
    "moments": (lambda x: torch.var_mean(x), (R(6, 20) + 2,), 1),
    "both_orders": (both_orders, (R(6, 20),), 1),
    "flat_and_not": (flat_and_not, (R(2, 3, 20), R(20)), 1),
    "grouped": (grouped, (R(3, 8, 5) + 2,), 1),
    "widened": (lambda x, b: (x.unsqueeze(0) + b.unsqueeze(-1), x.sin()), (R(20), R(6)), 1),
    "rotated_pair": (rotated_pair, (R(2, 3, 4, 6), R(2, 3, 4, 6), R(4, 6), R(4, 6)), 1),
    "product_over_one": (lambda x, w: (x @ w, x.exp()), (R(6, 1), R(1, 5)), 1),
    "product_and_activation": (product_and_activation, (R(6, 8), R(5, 8), R(5)), 1),
    "parts_of_one": (read_in_three_parts, (R(4, 66),), 1),
    "gradients": (gradients, (R(9, 9),), 1),
    "joined_twice": (lambda a, b: (torch.cat((a, b)) * 2, torch.cat((a, b)).relu()), (R(4, 6), R(3, 6)), 1),
    "padded_twice": (lambda x: (F.pad(x, (1, 1)) * 2, F.pad(x, (1, 1), value=3.0)), (R(4, 6),), 1),
    "forwards_and_backwards": (lambda x: (x.roll(1, 0), x.flip(0)), (R(4, 6),), 1),
    "windows_folded_twice": (lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2)), (R(2, 3, 8, 8),), 1),
    "both_sums": (lambda x: (x.sum(0), x.sum(1)), (R(6, 20) + 2,), 2),
}


@functools.cache
def traced(name: str) -> TracedFunction:
    function, inputs, _ = CASES[name]
    return trace(function, *inputs).for_target(cpu_target())


@pytest.mark.parametrize("name", CASES)
def test_results_of_one_loop_are_computed_in_one_kernel(name: str) -> None:
    assert len(traced(name).launched) == CASES[name][2]


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_several_results_agree_with_the_function(name: str) -> None:
    inputs = CASES[name][1]
    for cut in traced(name).cuts:
        kernel = loaded(cut, untuned_kernels(cut.workloads, cpu_target()))
        assert why_disagrees(kernel, inputs) is None  # type: ignore[arg-type]  # without gradients and dynamic sizes


def called(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> Any:
    cut = trace(function, *inputs, **options).for_target(cpu_target())
    return loaded(cut, untuned_kernels(cut.workloads, cpu_target()))(*inputs)


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclasses.dataclass
class Output:
    hidden: Tensor
    others: Any
    size: int = 3


def test_results_come_in_what_the_function_returns_them_in() -> None:
    def function(x: Tensor) -> dict[str, Any]:
        return {"pair": Pair(x + 1, x - 1), "list": [x * 2, None], "record": Output(x.exp(), (Output(x.sin(), "s"),))}

    x = R(5)
    got, expected = called(function, x), function(x)
    assert type(got["pair"]) is Pair
    assert (type(got["record"]), got["record"].size, got["record"].others[0].others) == (Output, 3, "s")
    torch.testing.assert_close(got["pair"], expected["pair"])
    torch.testing.assert_close(got["list"][0], expected["list"][0])
    torch.testing.assert_close(got["record"].hidden, expected["record"].hidden)
    torch.testing.assert_close(got["record"].others[0].hidden, expected["record"].others[0].hidden)


def test_a_module_returns_its_dataclass() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Output:
            return Output(x + 1, x * 2)

    x = R(5)
    got = called(Module(), x)
    assert type(got) is Output
    torch.testing.assert_close((got.hidden, got.others), (x + 1, x * 2))


def test_what_runs_in_between_keeps_two_results_apart() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        h = x * 2
        return h, x + h.sort(-1)[0]

    x = R(4, 5)
    cut = trace(function, x, allow_fallback=True)
    assert [step.assembled is None for step in cut.steps] == [False, True, False]
    torch.testing.assert_close(called(function, x, allow_fallback=True), function(x))


def test_what_only_the_joined_kernel_reads_is_not_stored() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        h = x
        for _ in range(9):
            h = (h * h).cos()
        return h + 1, h + 2

    (step,) = trace(function, R(40, 50)).steps
    assert len(step.values) == 2


def test_statistics_are_also_computed_apart_from_what_they_normalise() -> None:
    assert [len(cut.launched) for cut in traced("batch_norm").cuts] == [1, 2]


def test_pointwise_results_are_cut_in_one_way() -> None:
    assert len(traced("adamw").cuts) == 1


def test_both_directions_of_a_gradient_compute_several_results_at_once() -> None:
    x, w = R(6, 20).requires_grad_(), R(20).requires_grad_()
    function = trace(lambda x, w: ((x * w).sin(), (x + w).cos()), x, w, backward=True).for_target(cpu_target())
    assert len(function.forward.launched) == 1
    kernel = loaded(function, untuned_kernels(function.workloads, cpu_target()))
    results = kernel(x, w)
    got = torch.autograd.grad(results[0].sum() + results[1].sum(), (x, w))
    expected = torch.autograd.grad((x * w).sin().sum() + (x + w).cos().sum(), (x, w))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_several_results_of_a_size_that_was_not_tuned() -> None:
    function = trace(lambda x: (x.sin(), x.sum(-1)), R(4, 20), dynamic={"x": 0}, sizes=(2, 9), points=(4, 9))
    dynamic = function.for_target(cpu_target())
    kernel = loaded(dynamic, untuned_kernels(dynamic.workloads, cpu_target()))
    for size in (4, 7):
        x = R(size, 20)
        assert len(dynamic.at(size).launched) == 1
        torch.testing.assert_close(kernel(x), (x.sin(), x.sum(-1)))


def with_latency(kernels: dict[str, Kernel], slow: Container[str]) -> dict[str, Kernel]:
    """The kernels with records that say how long they take."""
    for key, kernel in kernels.items():
        kernel.record = replace(kernel.record, measurement=Measurement("ok", (1e-3 if key in slow else 1e-6,)))
    return kernels


@pytest.mark.parametrize("slow", [0, 1])
def test_each_direction_of_a_gradient_and_every_size_takes_the_fastest_of_its_cuts(slow: int) -> None:
    x = R(6, 20).requires_grad_()
    gradient = trace(softmax_and_logsumexp, x, backward=True).for_target(cpu_target())
    dynamic = trace(softmax_and_logsumexp, R(6, 20), dynamic={"x": 0}, sizes=(2, 9), points=(4, 9))
    sized = dynamic.for_target(cpu_target())
    for cuts in (gradient.forward.cuts, sized.cuts):
        assert len(cuts) == 2
    workloads = [w for cut in (*gradient.cuts, *sized.cuts) for w in cut.workloads]
    avoided = {w.key for cut in (gradient.forward.cuts[slow], sized.cuts[slow]) for w in cut.workloads}
    kernels = with_latency(untuned_kernels(workloads, cpu_target()), avoided)
    fastest = 1 - slow
    assert loaded(gradient, kernels).traced.forward is gradient.forward.cuts[fastest]  # type: ignore[union-attr]
    assert loaded(sized, kernels).dynamic.cut == fastest  # type: ignore[union-attr]


def test_a_result_without_an_axis_is_not_written_anew_along_it() -> None:
    """One kernel would write the row of 16 KB at every position of 4096 others, which takes longer than a launch."""
    x, b = torch.empty(2, 4096, device="meta")
    assert len(trace(lambda x, b: (x + b.unsqueeze(-1), x.sin()), x, b).launched) == 2


def test_products_beside_each_other_are_also_computed_apart() -> None:
    """As one, or, where tensor cores are kept busy by one of them, as three."""
    inputs = (H(6, 8), H(8, 5), H(8, 5), H(8, 5))
    cuts = trace(lambda x, q, k, v: (x @ q, x @ k, x @ v), *inputs).cuts
    assert sorted(len(cut.launched) for cut in cuts) == [1, 3]
