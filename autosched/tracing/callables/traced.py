"""`trace`: a PyTorch function as a tunable object, and the callable that its kernels form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from autosched.kernels.dynamic_operator import DynamicOperator, DynamicOperatorKernel
from autosched.kernels.kernel import Kernel
from autosched.tracing.callables.cutting import trace_in_formats
from autosched.tracing.callables.differentiable import DifferentiableFunction, DifferentiableKernel, trace_with_gradient
from autosched.tracing.callables.dynamic import DynamicFunction, DynamicKernel, trace_dynamic
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.kernel import TracedKernel
from autosched.tracing.capture.capture import DEFAULT_NUMERICS, Numerics, check_numerics
from search_spaces import InputError

Traced = TracedFunction | DifferentiableFunction | DynamicFunction | DynamicOperator
LoadedFunction = TracedKernel | DifferentiableKernel | DynamicKernel | DynamicOperatorKernel


@overload
def trace(
    function: Callable[..., Any], *inputs: Tensor, allow_fallback: bool = ..., numerics: Numerics = ...
) -> TracedFunction: ...


@overload
def trace(
    function: Callable[..., Any], *inputs: Tensor, allow_fallback: bool = ..., backward: Literal[True]
) -> DifferentiableFunction: ...


@overload
def trace(
    function: Callable[..., Any],
    *inputs: Tensor,
    allow_fallback: bool = ...,
    dynamic: Mapping[str, int],
    sizes: tuple[int, int],
    points: Sequence[int] | None = ...,
) -> DynamicFunction: ...


def trace(
    function: Callable[..., Any],
    *inputs: Tensor,
    allow_fallback: bool = False,
    numerics: Numerics = DEFAULT_NUMERICS,
    backward: bool = False,
    dynamic: Mapping[str, int] | None = None,
    sizes: tuple[int, int] | None = None,
    points: Sequence[int] | None = None,
) -> Traced:
    """The function cut into workloads, at the shapes, element types and strides of these inputs.

    `function` takes tensors and returns tensors, bare or in tuples, lists, dicts, dataclasses and other pytrees of
    PyTorch; other arguments are to be bound before (`functools.partial`). It is captured by torch.export, once, so it
    must not decide by the data. The data of the inputs is not used, and they may be on any device. Tensors that it
    closes over are constants: read in place, or copied once when the kernel is made, if they are on another device or
    misaligned; they are not to change. Where an operator is not supported, or no kernel computes something,
    `allow_fallback` leaves that to PyTorch.

    Values are computed in float32, sums too, and are rounded where PyTorch eager rounds: after every operator whose
    result is narrower. A single operator of PyTorch is rounded once, here too; between products that one kernel chains,
    as in attention, only the operands of products are rounded.

    `numerics`: the algebra that may be used in place of what is written, each rewrite as one more way to be measured:
    "eager" keeps operations and roundings, "reassociate" may also sum in another order and leave roundings out, "fold"
    may also combine constants beforehand, which are rounded once more. Functions with gradients, and those for any
    size, are always as "eager".

    `backward`: with the gradient for those inputs that require one. `dynamic`: for any size within `sizes` of these
    dimensions, by name of the argument, which are tuned at `points` (four by default): `{"x": 0}` with
    `sizes=(1, 4096)` is a batch of up to 4096.

    Raises:
        InputError: the function cannot be captured, or an operator in it is not supported; the message names it, and
            the line of the function. Or arguments do not go together.
    """
    for number, given in enumerate(inputs):
        if not isinstance(given, Tensor):
            raise InputError(f"example input {number} is {type(given).__name__}; expected a torch.Tensor")
        if given.layout is not torch.strided:
            raise InputError(
                f"example input {number} is {given.layout}; expected a tensor with strides, as by to_dense()"
            )
    check_numerics(numerics)
    if numerics not in (DEFAULT_NUMERICS, "eager") and (backward or dynamic is not None):
        raise InputError(f'numerics="{numerics}" is for functions of one size without gradients; others are as "eager"')
    if dynamic is not None:
        if backward or sizes is None:
            raise InputError("dynamic=... needs sizes=(least, greatest), and is not available with backward=True")
        return trace_dynamic(function, inputs, dynamic, sizes, points, allow_fallback)
    if sizes is not None or points is not None:
        raise InputError("sizes and points say what dynamic dimensions may be; expected dynamic={argument: dimension}")
    if backward:
        return trace_with_gradient(function, inputs, allow_fallback)
    return trace_in_formats(function, inputs, allow_fallback, numerics)


def cuts_of(traced: Traced) -> tuple[Traced, ...]:
    """The partitions of a traced function into kernels; every device can compute the first."""
    return traced.cuts


def why_not_one(given: object, wanted: str) -> str | None:
    """Reason that an object is not one traced function for `wanted`: it has several sizes, or a gradient; None if it is
    one.
    """
    match given:
        case DynamicOperatorKernel(operator=known) | (DynamicOperator() as known):
            return f"{known.label}: expected one of these sizes, as in {wanted}(….at({known.points[-1]}))"
        case DynamicKernel(dynamic=known) | (DynamicFunction() as known):
            return f"{known.label}: expected one of these sizes, as in {wanted}(….at({known.points[-1]}))"
        case DifferentiableFunction() | DifferentiableKernel():
            return f"{given!r}: expected the function without its gradient, as traced without backward=True"
        case TracedKernel(traced=known) | (TracedFunction() as known) if known.written:
            changed = ", ".join(w.name for w in known.written)
            return f"{known.label} changes {changed}; {wanted} expects a function that gives the same in every call"
        case _:
            return None


def loaded(traced: Traced, kernels: Mapping[str, Kernel], strict: bool = False) -> LoadedFunction:
    """The function computed by these kernels, one for every one of its workloads, by the workload's key.

    Of several partitions, the one with least time among those with all of their kernels. `strict`: as `replay`.
    """
    seconds = {key: kernel.record.measurement.latency_s for key, kernel in kernels.items()}
    match traced:
        case TracedFunction():
            return TracedKernel(traced.fastest(seconds), kernels, cuts=traced.cuts, strict=strict)
        case DifferentiableFunction():
            return DifferentiableKernel(traced.fastest(seconds), kernels)
        case DynamicFunction():
            return DynamicKernel(traced.fastest(seconds), kernels, strict)
        case DynamicOperator():
            return DynamicOperatorKernel(traced, kernels, strict)
