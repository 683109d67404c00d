"""Operators with one size that changes from call to call, such as the number of tokens.

Kernels have their sizes as constants. A dynamic operator is tuned at a few sizes together; its kernel looks the size of
a call up in the table of those that were measured, and compiles for others the schedule of the next larger one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from autosched.kernels.adapted_kernel import adapted_kernel, in_order_for
from autosched.kernels.kernel import Kernel
from autosched.kernels.prepared_constants import PreparedWeight
from autosched.kernels.strict import is_strict
from autosched.kernels.tier import Tier
from search_spaces import InputError, Schedule, Target, Workload
from search_spaces.workloads.stages import MAX_EXTENT


@dataclass(frozen=True)
class _Place:
    """Dimension `dim` of an input, of `slope` · size + `offset` elements."""

    number: int
    dim: int
    slope: int
    offset: int


@dataclass(frozen=True, eq=False, repr=False)
class DynamicOperator:
    """An operator at any size, tuned at `points`, least first.

    `between` are further sizes, at which the schedules of the points below and above were compared
    (`replaying.measured_sizes`).
    """

    of_size: Callable[[int], Workload]
    points: tuple[int, ...]
    between: tuple[int, ...] = ()
    _made: dict[int, Workload] = field(default_factory=dict)

    def at(self, size: int) -> Workload:
        """The workload of that size.

        Raises:
            InputError: the size is none, or the operator does not exist at it.
        """
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_EXTENT:
            raise InputError(f"size {size!r}; expected a number from 1 to {MAX_EXTENT}")
        if size not in self._made:
            made = self.of_size(size)
            if not isinstance(made, Workload):
                raise InputError(f"the function of a size returned {made!r}; expected an operator")
            self._made[size] = made
        return self._made[size]

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes of the table, least first."""
        return tuple(sorted({*self.points, *self.between}))

    def with_between(self, sizes: Sequence[int]) -> DynamicOperator:
        """The same with these sizes between its points."""
        return replace(self, between=tuple(sizes))

    @property
    def name(self) -> str:
        return self.at(self.points[-1]).name

    @property
    def label(self) -> str:
        return f"{self.at(self.points[-1]).label} and at sizes {', '.join(map(str, self.points[:-1]))}"

    def for_target(self, target: Target) -> DynamicOperator:
        """Itself: an operator is one kernel on every target."""
        return self

    @property
    def cuts(self) -> tuple[DynamicOperator, ...]:
        """Itself: there is no other way to compute it."""
        return (self,)

    def fastest(self, seconds: Mapping[str, float]) -> DynamicOperator:
        """Itself, as the only cut."""
        return self

    def latency_s(self, seconds: Mapping[str, float]) -> float:
        """Seconds of one call at every size of the table, by the keys of workloads."""
        return sum(seconds[workload.key] for workload in self.workloads)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The workloads of all sizes of the table."""
        return tuple({w.key: w for w in map(self.at, self.sizes)}.values())

    @property
    def launched(self) -> tuple[Workload, ...]:
        """The same: each is one launch."""
        return self.workloads

    @cached_property
    def place(self) -> _Place:
        """The first dimension of an input that grows linearly with the size, at all points.

        Raises:
            InputError: no input has one, or its size is no linear function of the operator's.
        """
        changing = list(self._changing())
        if not changing:
            raise InputError(f"{self.label}: no dimension of an input changes with the size; expected one that does")
        found = next((place for place, told in changing if place is not None), None)
        if found is None:
            extents = ", ".join(f"{extent} at {point}" for point, extent in changing[0][1].items())
            raise InputError(f"{self.label}: a dimension is {extents}; expected one that grows evenly with the size")
        return found

    def _changing(self) -> Iterator[tuple[_Place | None, Mapping[int, int]]]:
        """The dimensions that change, with their extents at every point; no place where these are not linear."""
        low, high = self.points[0], self.points[-1]
        inputs = [self.at(point).inputs for point in self.points]
        for number, of_points in enumerate(zip(*inputs, strict=False)):
            for dim, extents in enumerate(zip(*(t.shape for t in of_points), strict=False)):
                told = dict(zip(self.points, extents, strict=True))
                if len({*extents}) > 1:
                    slope = (told[high] - told[low]) // (high - low)
                    offset = told[low] - slope * low
                    linear = slope > 0 and all(extent == slope * point + offset for point, extent in told.items())
                    yield _Place(number, dim, slope, offset) if linear else None, told

    def size_of(self, tensors: Sequence[Tensor]) -> int:
        """The size that these inputs have.

        Raises:
            InputError: they are none of the operator at any size.
        """
        place, example = self.place, self.at(self.points[-1])
        if len(tensors) != len(example.inputs) or tensors[place.number].ndim != len(example.inputs[place.number].shape):
            shapes = ", ".join(f"{t.name}{list(t.shape)}" for t in example.inputs)
            raise InputError(f"{self.name}: expected {len(example.inputs)} tensors, as {shapes} at {self.points[-1]}")
        extent = tensors[place.number].shape[place.dim]
        size, rest = divmod(extent - place.offset, place.slope)
        if rest or size < 1:
            what = f"dimension {place.dim} of {example.inputs[place.number].name} is {extent}"
            raise InputError(
                f"{self.name}: {what}; expected {place.slope} · size + {place.offset}, of a size from 1 on"
            )
        return size

    def __repr__(self) -> str:
        return f"<DynamicOperator {self.label}>"


def dynamic(of_size: Callable[[int], Workload], points: Sequence[int]) -> DynamicOperator:
    """An operator with a size that changes, as `lambda m: ops.matmul(m, 4096, 4096)`, to be tuned at these sizes.

    Raises:
        InputError: fewer than two points, or none that are sizes; or no input tells the size.
    """
    chosen = tuple(sorted(set(points)))
    if len(chosen) < 2:
        raise InputError(f"points={points!r}; expected two sizes at least, such as (1, 16, 256, 4096)")
    made = DynamicOperator(of_size, chosen)
    assert made.place
    return made


class WeightAtAnySize:
    """A constant that a dynamic operator's kernels take in the place of a tensor, each in the layout that it reads.

    Kernels that read the same layout share its memory. Calls prepare it again after changes of the tensor that PyTorch
    counts; after others call `update`.
    """

    def __init__(self, tensor: Tensor, name: str, kernels: Iterable[Kernel]) -> None:
        """Prepared for these kernels now, and for others when they are first called with it."""
        self.tensor, self.name = tensor, name
        self._made: dict[Kernel, PreparedWeight] = {}
        self._making = threading.Lock()
        for kernel in kernels:
            self.of(kernel)

    def of(self, kernel: Kernel) -> PreparedWeight:
        """Memory that this kernel takes."""
        with self._making:
            if kernel not in self._made:
                self._made[kernel] = kernel.prepare(self.tensor, self.name, self._made.values())
            return self._made[kernel]

    def update(self) -> None:
        """Prepare the present values of the tensor for all of these kernels, in the same memory."""
        with self._making:
            for weight in self._made.values():
                weight.update()


class DynamicOperatorKernel:
    """A dynamic operator by tuned kernels: `kernel(*inputs)` at any size.

    A size of the table has its own kernel. Any other one takes the schedule of the next larger size of the table, above
    all of them that of the largest: its first call compiles it and tries it in a separate process, as of
    `DynamicKernel`. `strict`, or `AUTOSCHED_STRICT=1`, refuses sizes that are not in the table.
    """

    def __init__(self, operator: DynamicOperator, kernels: Mapping[str, Kernel], strict: bool = False) -> None:
        """`kernels`: one for every workload of the operator's sizes, by the workload's key."""
        self.operator, self.strict = operator, strict
        tuned = {size: operator.at(size) for size in operator.sizes}
        self._tuned = {size: kernels[w.key].called_as(w) for size, w in tuned.items()}
        self._kernels = dict(self._tuned)
        self._making = threading.Lock()

    @property
    def table(self) -> tuple[tuple[int, Schedule], ...]:
        """Schedules with the largest size that each serves, least first; the last one also serves all above."""
        found: list[tuple[int, Schedule]] = []
        for size, kernel in self._tuned.items():
            if found and found[-1][1] == kernel.schedule:
                found.pop()
            found.append((size, kernel.schedule))
        return tuple(found)

    @property
    def tier(self) -> Tier:
        """The least sure tier of the sizes of the table."""
        return Tier.least(kernel.tier for kernel in self._tuned.values())

    def at(self, size: int) -> Kernel:
        """The kernel for that size, made now if it was not yet.

        Raises:
            InputError: the operator does not exist at that size, or `strict` refuses it.
            AutoschedError: no kernel for this size passes its check.
        """
        found = self._kernels.get(size)
        if found is None:
            with self._making:
                found = self._kernels.get(size) or self._adapted(size)
                self._kernels[size] = found
        return found

    def _adapted(self, size: int) -> Kernel:
        workload = self.operator.at(size)
        if is_strict(self.strict):
            sizes = ", ".join(map(str, self._tuned))
            raise InputError(f"strict: {workload.label} was not tuned; expected one of the sizes {sizes}")
        lenders = [self._tuned[tuned] for tuned in in_order_for(size, self._tuned)]
        return adapted_kernel(workload, [kernel.schedule for kernel in lenders], lenders[0].record)

    def prepare(self, weight: Tensor, name: str = "") -> WeightAtAnySize:
        """A constant in the layouts that the kernels of all sizes of the table read; calls take it in its place.

        A size that is not in the table prepares it at its first call. `name`: that of the input, if there are several
        constant ones.

        Raises:
            InputError, OutOfMemoryError: as `Kernel.prepare`.
        """
        return WeightAtAnySize(weight, name, self._tuned.values())

    def ensure_right(self) -> None:
        """Nothing is left to check: every kernel was when it was loaded."""

    def __call__(self, *tensors: Tensor | WeightAtAnySize, out: Any = None) -> Any:
        """The operator's output, as of `Kernel`; constants may be what `prepare` returned.

        Raises:
            InputError, AutoschedError: as `at`, and as a call of `Kernel`.
        """
        plain = [t.tensor if isinstance(t, WeightAtAnySize) else t for t in tensors]
        kernel = self.at(self.operator.size_of(plain))
        given: list[Any] = [t.of(kernel) if isinstance(t, WeightAtAnySize) else t for t in tensors]
        return kernel(*given, out=out)

    def __deepcopy__(self, memo: object) -> DynamicOperatorKernel:
        """Itself, like a function."""
        return self

    def __repr__(self) -> str:
        return f"<DynamicOperatorKernel {self.operator.label}>"

    def __str__(self) -> str:
        lines = [f"  up to {size}: {schedule.one_line}" for size, schedule in self.table]
        return "\n".join([f"{self.operator.label}:", *lines])
