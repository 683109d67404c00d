"""Functions of tensors with one size that changes from call to call, such as the batch.

Kernels have their sizes as constants. A dynamic function is tuned at a few sizes; at any other it is traced again, and
takes the schedules of the next larger tuned size, adapted, or others of the space: the first one whose kernel passes a
trial in a separate process. That costs the compiling and one trial of a kernel at the first call with a size, once on a
machine, and nothing after it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from autosched.kernels.adapted_kernel import adapted_kernel, in_order_for
from autosched.kernels.kernel import Kernel
from autosched.kernels.strict import is_strict
from autosched.kernels.tier import Tier
from autosched.tracing.callables.cutting import argument_names, trace_function
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.kernel import TracedKernel
from autosched.tracing.capture.closed_over import name_of
from search_spaces import AutoschedError, InputError, Target, Workload
from tuning_logs import TuningRecord

# Number of sizes tuned by default: geometrically spaced, both ends included.
_POINTS = 4


@dataclass(frozen=True, eq=False, repr=False)
class DynamicFunction:
    """A function at every size from `low` to `high` of some dimensions of its arguments, tuned at `points`.

    `dims`: by the number of an argument, its dimension of that size. `target`: of its kernels; `cut`: the number of the
    partition.
    """

    function: Callable[..., Any]
    examples: tuple[Tensor, ...]
    dims: Mapping[int, int]
    low: int
    high: int
    points: tuple[int, ...]
    allow_fallback: bool = False
    target: Target | None = None
    cut: int = 0
    _traced: dict[int, TracedFunction] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return name_of(self.function)

    @property
    def label(self) -> str:
        return f"{self.at(self.points[-1]).label} for sizes from {self.low} to {self.high}"

    def at(self, size: int) -> TracedFunction:
        """The function at that size.

        Raises:
            InputError: the size is out of range, or the function cannot be traced at it.
        """
        if not self.low <= size <= self.high:
            raise InputError(f"{self.name}: size {size}; expected one from {self.low} to {self.high}")
        if size not in self._traced:
            examples = [_resized(t, self.dims.get(n), size) for n, t in enumerate(self.examples)]
            traced = trace_function(self.function, examples, self.allow_fallback, numerics="eager")
            self._traced[size] = traced if self.target is None else traced.for_target(self.target)
        cuts = self._traced[size].cuts
        return cuts[self.cut if self.cut < len(cuts) else 0]

    def for_target(self, target: Target) -> DynamicFunction:
        """The function partitioned so that every kernel has a schedule on the target, at every size.

        Raises:
            InputError: as `TracedFunction.for_target`.
        """
        known = {size: traced.for_target(target) for size, traced in self._traced.items()}
        return replace(self, target=target, _traced=known)

    @property
    def cuts(self) -> tuple[DynamicFunction, ...]:
        """The partitions into kernels: itself, and the others if there are any, at all sizes alike."""
        numbers = range(max(len(self.at(p).cuts) for p in self.points))
        return (self, *(replace(self, cut=n) for n in numbers if n != self.cut))

    def fastest(self, seconds: Mapping[str, float]) -> DynamicFunction:
        """The partition with the least time over all tuned sizes (`TracedFunction.fastest`)."""
        complete = [cut for cut in self.cuts if all(w.key in seconds for w in cut.workloads)]
        return min(complete or [self], key=lambda cut: cut.latency_s(seconds) if complete else 0.0)

    def latency_s(self, seconds: Mapping[str, float]) -> float:
        """Seconds of the launches of one call at every tuned size."""
        return sum(self.at(point).latency_s(seconds) for point in self.points)

    @property
    def launched(self) -> tuple[Workload, ...]:
        """The workloads of one call at every tuned size, one for every launch."""
        return tuple(w for point in self.points for w in self.at(point).launched)

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """The workloads of all tuned sizes, each once."""
        return tuple({w.key: w for point in self.points for w in self.at(point).workloads}.values())

    def __repr__(self) -> str:
        return f"<DynamicFunction {self.label}: {self.at(self.points[-1]).parts}>"

    def __str__(self) -> str:
        shown, last = ", ".join(map(str, self.points)), self.points[-1]
        return f"for sizes from {self.low} to {self.high}, tuned at {shown}; at {last}:\n{self.at(last)}"


def trace_dynamic(
    function: Callable[..., Any],
    inputs: Sequence[Tensor],
    dynamic: Mapping[str, int],
    sizes: tuple[int, int],
    points: Sequence[int] | None,
    allow_fallback: bool,
) -> DynamicFunction:
    """The function with one size that changes: that of dimension `dynamic[name]` of every argument named.

    Raises:
        InputError: an argument is unknown, the sizes are no range, or the function cannot be traced at a point.
    """
    if not dynamic:
        raise InputError("dynamic names no argument; expected {argument: dimension}")
    names = list(argument_names(function, len(inputs)))
    low, high = sizes
    if not 1 <= low <= high:
        raise InputError(f"sizes={sizes}; expected (least, greatest) with 1 <= least <= greatest")
    for name, dim in dynamic.items():
        if name not in names:
            raise InputError(
                f"dynamic names {name!r}, which is no argument of {name_of(function)} ({', '.join(names)})"
            )
        if not 0 <= dim < inputs[names.index(name)].ndim:
            raise InputError(f"{name} has no dimension {dim}; it has {inputs[names.index(name)].ndim}")
    chosen = tuple(sorted(set(points))) if points else _between(low, high)
    dims = {names.index(name): dim for name, dim in dynamic.items()}
    # Without data, and where the tensors are: what PyTorch computes depends on the device.
    with FakeTensorMode(allow_non_fake_inputs=True):
        examples = tuple(torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in inputs)
    made = DynamicFunction(function, examples, dims, low, high, chosen, allow_fallback)
    for point in chosen:
        made.at(point)
    return made


class DynamicKernel:
    """A dynamic function by tuned kernels: `kernel(*tensors)` at any size of its range.

    The first call with a size compiles its kernels, unless the size was tuned, and tries each in a separate process:
    seconds to start the first such process, a tenth of a second after that; nothing where this machine has found them
    right before. A kernel that does not pass is never called. A size at which no schedule passes is left to PyTorch,
    with a warning, where the function was traced with `allow_fallback`. `strict`, or `AUTOSCHED_STRICT=1`, refuses all
    sizes that need other kernels than those of the tuned ones.
    """

    def __init__(self, dynamic: DynamicFunction, kernels: Mapping[str, Kernel], strict: bool = False) -> None:
        """`kernels`: one for every workload of the tuned sizes, by the workload's key."""
        self.dynamic, self.strict = dynamic, strict
        self._tuned = {p: {w.key: kernels[w.key] for w in dynamic.at(p).workloads} for p in dynamic.points}
        self._kernels: dict[int, Callable[..., Any]] = {
            p: TracedKernel(dynamic.at(p), known) for p, known in self._tuned.items()
        }

    def __repr__(self) -> str:
        return f"<DynamicKernel {self.dynamic.label}: {self.dynamic.at(self.dynamic.points[-1]).parts}>"

    def __deepcopy__(self, memo: object) -> DynamicKernel:
        """Itself, like a function: kernels of further sizes are right for all copies."""
        return self

    def __call__(self, *tensors: Tensor, **named: Tensor) -> Any:
        """The function's results. Tensors may also be passed by name.

        Raises:
            InputError: the size is out of range; or as `TracedKernel`.
            AutoschedError: no kernel for this size passes its check.
        """
        if named:
            tensors = self.dynamic.at(self.dynamic.points[-1]).in_order(tensors, named)
        argument, dim = next(iter(self.dynamic.dims.items()))
        if len(tensors) <= argument or not isinstance(tensors[argument], Tensor) or tensors[argument].ndim <= dim:
            expected = f"{len(self.dynamic.examples)} tensors, of which number {argument} has a dimension {dim}"
            raise InputError(f"{self.dynamic.name} takes {expected}")
        return self.at(int(tensors[argument].shape[dim]))(*tensors)

    def at(self, size: int) -> Callable[..., Any]:
        """The `TracedKernel` for that size, made now if it was not yet; or the function itself, left to PyTorch.

        Raises:
            InputError, AutoschedError: as a call.
        """
        found = self._kernels.get(size)
        if found is None:
            found = self._kernels[size] = self._made(size)
        return found

    def _made(self, size: int) -> Callable[..., Any]:
        traced = self.dynamic.at(size)
        in_order = in_order_for(size, self.dynamic.points)
        # Steps that do not depend on the size keep their kernels.
        same = {key: kernel for tuned in self._tuned.values() for key, kernel in tuned.items()}
        try:
            kernels = {w.key: same.get(w.key) or self._adapted(w, n, in_order) for n, w in enumerate(traced.workloads)}
            made = TracedKernel(traced, kernels)
            made.ensure_right()
            return made
        except AutoschedError as error:
            if not self.dynamic.allow_fallback or is_strict(self.strict):
                raise
            warnings.warn(f"{traced.label} is left to PyTorch: {error}", stacklevel=4)
            return self.dynamic.function

    def _adapted(self, workload: Workload, number: int, in_order: Sequence[int]) -> Kernel:
        """The kernel of a workload by the first schedule that passes its check.

        Raises:
            InputError: `strict` refuses a size that was not tuned.
            AutoschedError: none does.
        """
        if is_strict(self.strict):
            points = ", ".join(map(str, self.dynamic.points))
            raise InputError(
                f"strict: {workload.label} is of a size that was not tuned; expected one of {points}; without strict "
                "schedules of these are adapted"
            )
        lenders = [
            self._tuned[point][same_step.key].schedule
            for point in in_order
            for same_step in self.dynamic.at(point).workloads[number : number + 1]
        ]
        return adapted_kernel(workload, lenders, self._any_record)

    def ensure_right(self) -> None:
        """As `TracedKernel.ensure_right`, at every tuned size."""
        for point in self.dynamic.points:
            kernel = self._kernels[point]
            if isinstance(kernel, TracedKernel):
                kernel.ensure_right()

    @property
    def tier(self) -> Tier:
        """As `TracedKernel.tier`, of the tuned sizes."""
        made = (self._kernels[point] for point in self.dynamic.points)
        return Tier.least(k.tier if isinstance(k, TracedKernel) else Tier.LIBRARY for k in made)

    @property
    def _any_record(self) -> TuningRecord:
        return next(iter(self._tuned[self.dynamic.points[0]].values())).record


def _resized(example: Tensor, dim: int | None, size: int) -> Tensor:
    """A tensor like the example, equally dense, with another size of that dimension."""
    if dim is None:
        return example
    shape = [*example.shape[:dim], size, *example.shape[dim + 1 :]]
    strides = example.stride()
    order = sorted(range(example.ndim), key=lambda d: -strides[d])
    assert isinstance(example, FakeTensor)
    with example.fake_mode:
        packed = torch.empty([shape[d] for d in order], dtype=example.dtype, device=example.device)
    return packed.permute([order.index(d) for d in range(example.ndim)])


def _between(low: int, high: int) -> tuple[int, ...]:
    """A few sizes from low to high, geometrically spaced."""
    ratio = (high / low) ** (1 / (_POINTS - 1))
    return tuple(sorted({round(low * ratio**n) for n in range(_POINTS)}))
