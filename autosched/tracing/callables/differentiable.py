"""Functions with their gradients: the forward graph and the backward graph, each cut into kernels.

AOTAutograd captures both, and partitions them so that the fewest bytes are kept from the first to the second (Zheng et
al., "Pointwise operations in functorch", and its min-cut partitioner in PyTorch).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel

from autosched.kernels.kernel import Kernel
from autosched.kernels.tier import Tier
from autosched.tracing.callables.cutting import argument_names, cut
from autosched.tracing.callables.differentiable_results import DifferentiableResult, memory_of_results
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.kernel import TracedKernel
from autosched.tracing.callables.whole_check import Claim, FirstUse
from autosched.tracing.capture.capture import Captured, digest_of
from autosched.tracing.capture.closed_over import name_of, named_by_user
from autosched.tracing.capture.fused_functions.written_out import TakenApart
from autosched.tracing.capture.graph_nodes import device_of, precision_of
from autosched.tracing.capture.joint_graphs.parting import joint_graph, parted, results_of
from autosched.tracing.capture.plain_graphs import read_from_their_memory, without_tokens
from autosched.tracing.capture.result_memory import ResultMemory, strides_of
from autosched.tracing.capture.result_tree import ResultTree, flattened
from autosched.tracing.capture.scans import scans_kept
from autosched.tracing.capture.state import called_without_data, check_data
from autosched.tracing.capture.user_lines import LinesKept, why_not_captured
from search_spaces import InputError, Target, Workload


@dataclass(frozen=True, repr=False)
class DifferentiableFunction:
    """A traced function with its gradient.

    `forward` returns the `memory` of the function's results, that many tensors, followed by the tensors kept for
    `backward`, which takes those and the gradients of the `differentiable` ones of the memory; `results` are views of
    the memory, and `structure` their containers. `gradients`: for every argument, the number of `backward`'s result
    that is its gradient, or None; `required`: True where a gradient was requested when the function was traced.
    """

    forward: TracedFunction
    backward: TracedFunction
    memory: int
    differentiable: tuple[int, ...]
    gradients: tuple[int | None, ...]
    required: tuple[bool, ...]
    results: tuple[DifferentiableResult, ...]
    structure: ResultTree

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
    def cuts(self) -> tuple[DifferentiableFunction, ...]:
        """The partitions of both directions into kernels, this one first."""
        both = itertools.product(self.forward.cuts, self.backward.cuts)
        return tuple(replace(self, forward=forward, backward=backward) for forward, backward in both)

    def fastest(self, seconds: Mapping[str, float]) -> DifferentiableFunction:
        """The function with the fastest partition of both directions (`TracedFunction.fastest`)."""
        return replace(self, forward=self.forward.fastest(seconds), backward=self.backward.fastest(seconds))

    def latency_s(self, seconds: Mapping[str, float]) -> float:
        """Seconds of all launches of both directions."""
        return self.forward.latency_s(seconds) + self.backward.latency_s(seconds)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The workloads of both directions' kernels, each once."""
        return tuple({w.key: w for w in (*self.forward.workloads, *self.backward.workloads)}.values())

    @property
    def launched(self) -> tuple[Workload, ...]:
        """The workloads of both directions' kernels, one for every launch, in order."""
        return (*self.forward.launched, *self.backward.launched)

    @property
    def parts(self) -> str:
        """The numbers of kernels and operators of both directions."""
        return f"{self.forward.parts} forward, {self.backward.parts} backward"

    def __repr__(self) -> str:
        return f"<DifferentiableFunction {self.forward.label}: {self.parts}>"

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
        with TakenApart(), LinesKept():
            made, _ = flattened(function(*arguments))
        return tuple(m.of(made, arguments) for m in memory)

    name, names = name_of(function), argument_names(function, len(inputs))
    check_data(function)
    # Attention is decomposed before there is a gradient: its fused operators keep state that only they understand.
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, sdpa_kernel(SDPBackend.MATH), scans_kept():
        fake = tuple(mode.from_tensor(t) for t in inputs)
        try:
            example, structure = called_without_data(function, fake, mode)
            if not any(m.requires_grad for m in example):
                raise InputError(f"no result of {name} has a gradient")
            memory, results = memory_of_results(example, fake)
            joint = joint_graph(called, fake)
        except InputError:
            raise
        except Exception as error:
            # PyTorch passes on any exception of the function, or of one of its own layers.
            raise InputError(f"{name} cannot be captured with its gradient{why_not_captured(error)}") from error
    digest = digest_of(joint)
    without_tokens(joint.graph)
    forward, backward = parted(joint, len(memory))
    kept = [n.name for n in backward.graph.nodes if n.op == "placeholder"]
    gradients = results_of(backward)
    places = iter(range(len(gradients)))
    return DifferentiableFunction(
        forward=cut(
            _captured(forward, function, digest, [m.strides for m in memory]), function, name, names, allow_fallback
        ),
        backward=cut(
            replace(_captured(backward, function, digest, []), is_gradient=True),
            function,
            f"{name}_backward",
            kept,
            allow_fallback,
        ),
        memory=len(memory),
        differentiable=tuple(n for n, m in enumerate(memory) if m.example.requires_grad),
        gradients=tuple(None if g is None else next(places) for g in gradients),
        required=tuple(t.requires_grad for t in inputs),
        results=tuple(results),
        structure=structure,
    )


class DifferentiableKernel:
    """A function and its gradient by tuned kernels: `kernel(*tensors)`, differentiable where tensors require it."""

    def __init__(self, traced: DifferentiableFunction, kernels: Mapping[str, Kernel]) -> None:
        """`kernels`: one for every workload of both directions, by the workload's key."""
        self.traced = traced
        self.forward = TracedKernel(traced.forward, kernels)
        self.backward = TracedKernel(traced.backward, kernels)
        # Neither direction alone is a function that PyTorch can run.
        self.first_use = self.forward.first_use = self.backward.first_use = FirstUse(self._claim)

    @property
    def tier(self) -> Tier:
        """As `TracedKernel.tier`, of both directions."""
        return Tier.least((self.forward.tier, self.backward.tier))

    def __repr__(self) -> str:
        return f"<DifferentiableKernel {self.traced.forward.label}: {self.traced.parts}>"

    def _claim(self) -> Claim:
        """The claim that its first use verifies."""
        traced, forward = self.traced, self.forward
        # If a closed-over tensor requires a gradient, the kernel only runs without gradients.
        gradients = not forward.trained and any(place is not None for place in traced.gradients)
        return Claim(
            parts=(traced.forward, traced.backward),
            computed=self._computed,
            captured=lambda inputs: [_captured_again(traced, inputs)],
            device=forward.device,
            target=forward.target if forward.kernels else None,
            seconds=forward.seconds + self.backward.seconds,
            required=traced.required if gradients else (),
        )

    def __deepcopy__(self, memo: object) -> DifferentiableKernel:
        """Itself, like a function: it is immutable."""
        return self

    def __call__(self, *tensors: Tensor, **named: Tensor) -> Any:
        """The function's results, in its own structure. Tensors may also be passed by name.

        Raises:
            OutOfMemoryError: there is no memory for a result.
            InputError: as `TracedKernel`, or a tensor requires a gradient that was not traced.
        """
        if named:
            tensors = self.traced.forward.in_order(tensors, named)
        if not self.first_use.passed:
            with torch.no_grad():
                self.forward.check(tensors)
            self.ensure_right()
        return self._computed(*tensors)

    def ensure_right(self) -> None:
        """As `TracedKernel.ensure_right`, for the results and their gradients."""
        self.first_use.ensure_right()

    def _computed(self, *tensors: Tensor) -> Any:
        self.forward.check_constants()
        for argument, tensor, required in zip(
            self.traced.forward.arguments, tensors, self.traced.required, strict=False
        ):
            if not required and isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled():
                raise InputError(
                    f"{argument.name} requires a gradient, and was traced without; trace with an example that does"
                )
        apply: Callable[..., Any] = _Call.apply
        memory = apply(self, *tensors)
        return self.traced.structure.of([result.of(memory, tensors) for result in self.traced.results])


def _captured_again(traced: DifferentiableFunction, inputs: Sequence[Tensor]) -> str:
    """The digest of PyTorch's capture of the function now."""
    given = [x.detach().requires_grad_(wanted) for x, wanted in zip(inputs, traced.required, strict=True)]
    return trace_with_gradient(traced.forward.function, given, allow_fallback=True).forward.captured


class _Call(torch.autograd.Function):
    """One call of a differentiable kernel."""

    @staticmethod
    def forward(ctx: Any, kernel: DifferentiableKernel, *tensors: Tensor) -> tuple[Tensor, ...]:
        made = kernel.forward.computed(*tensors)
        memory, kept = made[: kernel.traced.memory], made[kernel.traced.memory :]
        ctx.kernel = kernel
        ctx.save_for_backward(*kept)
        ctx.mark_non_differentiable(*(m for n, m in enumerate(memory) if n not in kernel.traced.differentiable))
        return tuple(memory)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        kernel: DifferentiableKernel = ctx.kernel
        wanted = [gradients[n] for n in kernel.traced.differentiable]
        made = kernel.backward.computed(*ctx.saved_tensors, *wanted)
        return (None, *(None if place is None else made[place] for place in kernel.traced.gradients))


def _captured(
    module: fx.GraphModule, function: Callable[..., Any], digest: str, own: Sequence[tuple[int, ...] | None]
) -> Captured:
    """A graph whose first results are memory of their `own`, by these strides."""
    tensors = {n.name: attrgetter(str(n.target))(module) for n in module.graph.nodes if n.op == "get_attr"}
    named = named_by_user(function, tensors)
    constants = {node: named[node][1] if node in named else other for node, other in tensors.items()}
    names = {node: name for node, (name, _) in named.items()}
    # A gradient that is None is no result.
    made = [m for m in results_of(module) if m is not None]
    _, structure = flattened(tuple(torch.empty(()) for _ in made))
    laid_out = read_from_their_memory(module.graph)
    strides = [strides_of(m.meta["val"]) for m in made]
    known = [given or found for given, found in zip(own, strides, strict=False)]
    memory = ResultMemory.as_returned([*known, *strides[len(own) :]], len(own))
    settings = precision_of(module.graph)
    precision = settings.on(device_of(module.graph))
    return Captured(
        module.graph,
        constants,
        structure,
        laid_out,
        memory,
        names,
        digest,
        settings=settings,
        precision=precision,
        numerics="eager",
    )
