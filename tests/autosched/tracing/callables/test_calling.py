"""Calls of the kernels of traced functions as users make them, and within what PyTorch transforms."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autosched
from autosched import InputError, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import LoadedFunction, Traced, TracedKernel, loaded
from autosched.tracing.callables.call_arguments import CallArguments
from untuned import untuned_kernels

X, W = torch.randn(4, 8), torch.randn(8)


def scaled(x: Tensor, w: Tensor) -> Tensor:
    return (x * w).softmax(-1)


def kernel_of(traced: Traced) -> LoadedFunction:
    return loaded(traced, untuned_kernels(traced.workloads, cpu_target()))


@functools.cache
def kernels() -> dict[str, LoadedFunction]:
    trained = X.clone().requires_grad_()
    return {
        "TracedKernel": kernel_of(trace(scaled, X, W)),
        "DifferentiableKernel": kernel_of(trace(scaled, trained, W, backward=True)),
        "DynamicKernel": kernel_of(trace(scaled, X, W, dynamic={"x": 0}, sizes=(1, 8), points=(4,))),
    }


KINDS = ("TracedKernel", "DifferentiableKernel", "DynamicKernel")


@pytest.fixture
def kernel() -> TracedKernel:
    made = kernels()["TracedKernel"]
    assert isinstance(made, TracedKernel)
    return made


@pytest.fixture(autouse=True)
def without_compiled_functions() -> Iterator[None]:
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_may_be_given_by_name(kind: str) -> None:
    kernel = kernels()[kind]
    torch.testing.assert_close(kernel(X, w=W), scaled(X, W))
    torch.testing.assert_close(kernel(w=W, x=X), scaled(X, W))


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_the_function_does_not_have_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match=r"scaled takes the tensors x, w, and returns new ones; got 2 tensors, out="):
        kernels()[kind](X, W, out=torch.empty(4, 8))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_printed_of_a_kernel_says_what_it_computes_and_of_how_many_kernels_it_is(kind: str) -> None:
    shown = repr(kernels()[kind])
    assert shown.startswith(f"<{kind} scaled(x[4, 8] float32, w[8] float32)")
    assert "1 kernel" in shown
    assert len(shown) < 150


def test_what_is_printed_of_a_traced_function_is_short() -> None:
    assert repr(trace(scaled, X, W)) == "<TracedFunction scaled(x[4, 8] float32, w[8] float32): 1 kernel>"


@pytest.mark.parametrize("kind", KINDS)
def test_a_deep_copy_of_what_holds_a_kernel_calls_the_same_kernel(kind: str) -> None:
    assert copy.deepcopy({"kernel": kernels()[kind]})["kernel"] is kernels()[kind]


def test_the_kernel_of_a_workload_is_pickled_as_its_record(kernel: TracedKernel) -> None:
    (one,) = kernel.kernels
    again = pickle.loads(pickle.dumps(one))
    assert (again.record, again.workload) == (one.record, one.workload)
    assert torch.equal(again(X, W), one(X, W))
    assert copy.deepcopy(one) is one


TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "vmap": lambda f: torch.vmap(f, (0, None))(X[None], W),
    "jvp": lambda f: torch.func.jvp(f, (X, W), (X, W)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_call_within_a_transform_is_refused_with_a_way_out(transform: str, kernel: TracedKernel) -> None:
    for called in (kernel, kernel.kernels[0]):
        with pytest.raises(InputError, match=r"a transform such as torch\.vmap.*trace\(torch\.vmap\(function\), …\)"):
            TRANSFORMS[transform](called)
    assert len(trace(torch.vmap(scaled, (0, None)), X[None], W).launched) == 1


def test_a_gradient_by_torch_func_is_refused_as_any_other(kernel: TracedKernel) -> None:
    with pytest.raises(InputError, match="x requires a gradient"):
        torch.func.grad(lambda x: kernel(x, W).sum())(X)


def test_a_call_within_compiled_code_breaks_the_graph_and_says_why(kernel: TracedKernel) -> None:
    def around(x: Tensor) -> Any:
        return kernel(x * 2, W) + 1

    wanted = scaled(X * 2, W) + 1
    torch.testing.assert_close(torch.compile(around, backend="aot_eager")(X), wanted)
    torch.compiler.reset()
    with pytest.raises(Exception, match="the kernels of a traced function are no operator"):
        torch.compile(around, backend="aot_eager", fullgraph=True)(X)


def test_a_kernel_within_a_function_that_is_traced_is_refused_with_the_way_out(kernel: TracedKernel) -> None:
    with pytest.raises(InputError, match=r"scaled is called on a tensor without data.*trace or export the function"):
        trace(lambda x: kernel(x, W) * 2, X)


REFUSED = {
    "DynamicKernel": r"sizes from 1 to 8: expected one of these sizes, as in autosched\.compare_kernel\(….at\(4\)\)",
    "DifferentiableKernel": "expected the function without its gradient, as traced without backward=True",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_single_function_is_not_compared_and_a_message_says_what_is(kind: str) -> None:
    with pytest.raises(InputError, match=REFUSED[kind]):
        autosched.compare_kernel(kernels()[kind])  # type: ignore[arg-type]  # that is what is refused


def test_a_function_of_several_sizes_is_compared_and_exported_at_one_of_them() -> None:
    dynamic = trace(scaled, X, W, dynamic={"x": 0}, sizes=(1, 8), points=(4,))
    for call in (autosched.compare, lambda op: autosched.export(op, "file.py")):
        with pytest.raises(InputError, match=r"expected one of these sizes, as in autosched\.\w+\(….at\(4\)\)"):
            call(dynamic)  # type: ignore[operator]


def test_tensors_that_no_kernel_reads_cost_a_call_no_closer_look() -> None:
    state = torch.zeros(2, dtype=torch.uint64)
    traced = trace(lambda x, state: x * 2, X, state)
    arguments = CallArguments("f", traced.arguments, X.device, 1)
    assert not arguments.taken([X, state]).copied
    assert arguments.taken([X, state.repeat_interleave(2)[::2]]).copied
    with pytest.raises(InputError, match=r"expected state\[2\] uint64"):
        arguments.taken([X, torch.zeros(2)])
