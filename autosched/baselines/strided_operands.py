"""Operands of a workload by its axes, and views of their memory as a library takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autosched.machine.element_types import torch_dtype
from search_spaces import Workload
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.strides import same_places

# Elements from one position of an axis to the next, by the axis.
Steps = Mapping[str, int]


@dataclass(frozen=True)
class View:
    """A view of the memory of tensor `number`, from an element on."""

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, tensors: Sequence[Tensor], begins: Sequence[int]) -> Tensor:
        """The view; `begins`: the element of each tensor at which the workload's operand begins."""
        tensor = tensors[self.number]
        begin = tensor.storage_offset() + begins[self.number] + self.offset
        return tensor.as_strided(self.shape, self.strides, begin)


@dataclass(frozen=True)
class Operand:
    """Memory of a tensor by axes; an axis that is not in `steps` has it all at each of its positions."""

    number: int
    steps: Steps
    offset: int = 0

    @staticmethod
    def of(workload: Workload, access: Access) -> Operand | None:
        """Operand of a read; None where its address falls along an axis, or it is filled outside of the tensor."""
        number = next(n for n, t in enumerate(workload.inputs) if t.name == access.tensor)
        steps: dict[str, int] = {}
        offset = 0
        for index, stride in zip(access.index, workload.inputs[number].effective_strides, strict=True):
            offset += index.offset * stride
            for axis, step in index.terms:
                steps[axis] = steps.get(axis, 0) + step * stride
        possible = access.fill is None and min(steps.values(), default=0) >= 0
        return Operand(number, steps, offset) if possible else None

    @staticmethod
    def of_output(workload: Workload) -> Operand:
        """The only output, as tensor 0."""
        names = [axis.name for axis in workload.stages[-1].axes]
        return Operand(0, dict(zip(names, workload.outputs[0].effective_strides, strict=True)))

    def view(self, extents: Mapping[str, int], dimensions: Sequence[Sequence[str]]) -> View | None:
        """A view whose dimensions are these axes, outermost first; None where memory does not merge them."""
        found = [merged(axes, extents, self.steps) for axes in dimensions]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        # BLAS asks for a leading dimension of at least the row, also where there is one row.
        outermost = max(1, *(size * step for size, step in known)) if known else 1
        strides = tuple(step if size > 1 else outermost for size, step in known)
        return View(self.number, tuple(size for size, _ in known), strides, self.offset)


def merged(axes: Sequence[str], extents: Mapping[str, int], steps: Steps) -> tuple[int, int] | None:
    """Extent and step of one axis in the place of several, outermost first; None where memory does not merge them."""
    size, step = 1, 0
    for axis in reversed(axes):
        own, extent = steps.get(axis, 0), extents[axis]
        if extent == 1:
            continue
        if size > 1 and own != step * size:
            return None
        step = step if size > 1 else own
        size *= extent
    return size, step


@dataclass(frozen=True)
class Placed:
    """The output of a workload in its memory; `view` as a library has it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    view: View

    @staticmethod
    def of(workload: Workload, dimensions: Sequence[Sequence[str]]) -> Placed | None:
        (out,), extents = workload.outputs, workload.stages[-1].extents
        view = Operand.of_output(workload).view(extents, dimensions)
        return None if view is None else Placed(out.shape, out.effective_strides, torch_dtype(out.dtype), view)

    def allocated(self, device: torch.device) -> Tensor:
        """A new tensor for it."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)

    def seen(self, made: Tensor) -> Tensor:
        """The tensor as a library has it."""
        alike = (self.view.shape, self.view.strides) == (self.shape, self.strides)
        return made if alike else self.view.of([made], [0])

    def written_by(self, result: Tensor) -> Tensor:
        """The output with a library's result: its own memory where that lies alike, or a copy."""
        if same_places(tuple(result.shape), result.stride(), self.view.strides):
            return result.as_strided(self.shape, self.strides, result.storage_offset())
        made = self.allocated(result.device)
        self.seen(made).copy_(result)
        return made


def by_steps(axes: Sequence[str], steps: Steps) -> list[str]:
    """The axes, outermost in memory first."""
    return sorted(axes, key=lambda axis: -steps.get(axis, 0))


def extent_of(axes: Sequence[str], extents: Mapping[str, int]) -> int:
    return math.prod(extents[axis] for axis in axes)
