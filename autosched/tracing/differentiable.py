"""Functions with their gradients: the forward graph and the backward graph, each cut into kernels.

AOTAutograd gives the graph of both, and cuts it where the fewest bytes have to be kept from the first to the second
(Zheng et al., "Pointwise operations in functorch", and its min-cut partitioner in PyTorch).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses import FakeTensorMode
from torch.autograd.function import once_differentiable

from autosched.kernel import Kernel
from autosched.tracing.capture import Captured, decompositions, name_of
from autosched.tracing.function import TracedFunction, argument_names, cut
from autosched.tracing.kernel import TracedKernel
from search_spaces import InputError, Target, Workload


@dataclass(frozen=True)
class DifferentiableFunction:
    """A traced function with its gradient.

    `forward` returns the function's results, and after them what is kept for `backward`, which takes that and the
    gradients of the `differentiable` ones of the results. `gradients`: for every argument, which result of `backward`
    is its gradient, or None; `required`: whether one was wanted of it when the function was traced.
    """

    forward: TracedFunction
    backward: TracedFunction
    results: int
    differentiable: tuple[int, ...]
    gradients: tuple[int | None, ...]
    required: tuple[bool, ...]
    single: bool

    @property
    def name(self) -> str:
        return self.forward.name

    @property
    def label(self) -> str:
        return f"{self.forward.label} with its gradient"

    def for_target(self, target: Target) -> DifferentiableFunction:
        """The function with both directions cut so that every kernel has a schedule on the target.

        Raises:
            InputError: as `TracedFunction.for_target`.
        """
        return replace(self, forward=self.forward.for_target(target), backward=self.backward.for_target(target))

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """What the kernels of both directions compute, each once."""
        return tuple({w.key: w for w in (*self.forward.workloads, *self.backward.workloads)}.values())

    def __str__(self) -> str:
        return f"forward: {self.forward}\nbackward: {self.backward}"


def trace_with_gradient(
    function: Callable[..., Any], inputs: Sequence[Tensor], allow_fallback: bool
) -> DifferentiableFunction:
    """The function and its gradient for those of the inputs that require one.

    Raises:
        InputError: it cannot be captured or differentiated, something in it is not supported, or no input requires a
            gradient.
    """
    if not any(t.requires_grad for t in inputs):
        raise InputError("backward=True, but no example input requires a gradient; expected one with requires_grad")

    def called(*arguments: Tensor) -> tuple[Tensor, ...]:
        # AOTAutograd wants results that are tensors of their own.
        made = _listed(function(*arguments))
        return tuple(m.clone() if m._base is not None or any(m is a for a in arguments) else m for m in made)

    name, names = name_of(function), argument_names(function, len(inputs))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = tuple(mode.from_tensor(t) for t in inputs)
        try:
            example = function(*fake)
            _check_results(name, example)
            joint: Any = aot_export_joint_simple(called, fake, trace_joint=True, decompositions=decompositions())
        except InputError:
            raise
        except Exception as error:
            # PyTorch raises whatever the function, or one of its own layers, does.
            raise InputError(f"{name} cannot be captured with its gradient: {type(error).__name__}: {error}") from error
    results = len(_output(joint)) - len(inputs)
    forward, backward = min_cut_rematerialization_partition(joint, (), num_fwd_outputs=results)
    kept = [n.name for n in backward.graph.nodes if n.op == "placeholder"]
    gradients = _output(backward)
    places = iter(range(len(gradients)))
    return DifferentiableFunction(
        forward=cut(_captured(forward), function, name, names, allow_fallback),
        backward=cut(_captured(backward), function, f"{name}_backward", kept, allow_fallback, gradients=True),
        results=results,
        differentiable=tuple(n for n, r in enumerate(_listed(example)) if r.requires_grad),
        gradients=tuple(None if g is None else next(places) for g in gradients),
        required=tuple(t.requires_grad for t in inputs),
        single=isinstance(example, Tensor),
    )


class DifferentiableKernel:
    """A function and its gradient by tuned kernels: `kernel(*tensors)`, differentiable where tensors require it."""

    def __init__(self, traced: DifferentiableFunction, kernels: Mapping[str, Kernel]) -> None:
        """`kernels`: one for every workload of both directions, by the workload's key."""
        self.traced = traced
        self.forward = TracedKernel(traced.forward, kernels)
        self.backward = TracedKernel(traced.backward, kernels)

    def __call__(self, *tensors: Tensor) -> Any:
        """What the function returns: a tensor, or a tuple of tensors.

        Raises:
            OutOfMemoryError: there is no memory for a result.
            InputError: as `TracedKernel`, or a tensor requires a gradient that was not traced.
        """
        self.forward.check_constants()
        for argument, tensor, required in zip(self.forward.arguments, tensors, self.traced.required, strict=False):
            if not required and isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled():
                raise InputError(
                    f"{argument.name} requires a gradient, and was traced without; trace with an example that does"
                )
        results = _Call.apply(self, *tensors)  # type: ignore[no-untyped-call]  # PyTorch leaves it without types
        return results[0] if self.traced.single else results


class _Call(torch.autograd.Function):
    """One call of a differentiable kernel."""

    @staticmethod
    def forward(ctx: Any, kernel: DifferentiableKernel, *tensors: Tensor) -> tuple[Tensor, ...]:
        made = kernel.forward(*tensors)
        results, kept = made[: kernel.traced.results], made[kernel.traced.results :]
        ctx.kernel = kernel
        ctx.save_for_backward(*kept)
        ctx.mark_non_differentiable(*(r for n, r in enumerate(results) if n not in kernel.traced.differentiable))
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        kernel: DifferentiableKernel = ctx.kernel
        wanted = [gradients[n] for n in kernel.traced.differentiable]
        made = kernel.backward(*ctx.saved_tensors, *wanted)
        return (None, *(None if place is None else made[place] for place in kernel.traced.gradients))


def _listed(made: Any) -> Sequence[Tensor]:
    return (made,) if isinstance(made, Tensor) else made


def _check_results(name: str, made: Any) -> None:
    """Raise InputError unless a function returned what can be differentiated: a tensor, or a sequence of them."""
    if not isinstance(made, Tensor) and not (
        isinstance(made, tuple | list) and all(isinstance(m, Tensor) for m in made)
    ):
        raise InputError(f"{name} returns {type(made).__name__}; expected a tensor, or a tuple or list of tensors")
    if not any(m.requires_grad for m in _listed(made)):
        raise InputError(f"no result of {name} has a gradient")


def _captured(module: fx.GraphModule) -> Captured:
    constants = {n.name: getattr(module, str(n.target)) for n in module.graph.nodes if n.op == "get_attr"}
    return Captured(module.graph, constants, single=False)


def _output(module: fx.GraphModule) -> list[Any]:
    (node,) = (n for n in module.graph.nodes if n.op == "output")
    return list(node.args[0])
