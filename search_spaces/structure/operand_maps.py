"""Operands as affine maps: from the axes of a contraction to the indices of a tensor, with values outside of it.

    x[n, 2*p + r - 1, 2*q + s - 1, c] else 0        of axes n, p, q, r, s, c: a convolution of stride 2, padded by 1

A tile moves each index along one of its axes at most, or its elements are gathered: with tiles along q and c the index
2*q + s - 1 moves by 2 from one position to the next, at one s.

    b[number * 128 + j, n]        number = col[e]: the rows of a block, whose place is looked up (`structure.looked_up`)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.expression import Access, Expression, Integer, call, mul
from search_spaces.workloads.workload import Axis, Tensor, Workload

# The least that descriptors move along the last dimension.
_VECTOR_BYTES = 16


@dataclass(frozen=True)
class LookedUp:
    """A variable of indices that is data: the `number` of a tile of `count`; elements of others are NaN."""

    variable: str
    number: Expression
    count: int

    @property
    def exists(self) -> Expression:
        """The condition that there is a tile of this number."""
        return mul(call("le", Integer(0), self.number), call("lt", self.number, Integer(self.count)))


@dataclass(frozen=True)
class OperandMap:
    """The map of an operand's read: an index for each dimension of the tensor."""

    tensor: Tensor
    access: Access

    @staticmethod
    def of(workload: Workload, access: Access) -> OperandMap:
        """The map of a read of an input."""
        return OperandMap(next(t for t in workload.inputs if t.name == access.tensor), access)

    def is_plain(self, extents: Mapping[str, int]) -> bool:
        """True if every index is an axis of its own, as long as the dimension: a descriptor can move such tiles."""
        axes = [i.axis for i in self.access.index]
        return (
            self.access.fill is None
            and len({*axes}) == len(axes)
            and all(extents.get(x) == size for x, size in zip(axes, self.tensor.shape, strict=True))
        )

    def is_box(self, axes: Collection[str]) -> bool:
        """True if every dimension moves along at most one tiled axis, one position at a time, with 0 outside.

        Rows of boxes begin at whole vectors: from a tap to the next they do not slide along the last dimension. (On an
        H100 descriptors of Triton 3.6 that do are illegal instructions.)
        """
        last = self.access.index[-1]
        vector = max(1, _VECTOR_BYTES // dtype(self.tensor.dtype).bytes)
        aligned = last.offset % vector == 0 and all(c % vector == 0 for x, c in last.terms if x not in axes)
        steps = all(i.step(x) in (0, 1) for i in self.access.index for x in axes)
        return not self.access.fill and steps and (aligned or not any(last.step(x) for x in axes))

    def axes(self, tiled: Collection[str]) -> tuple[str, ...]:
        """The tiled axis along each dimension, "" for a single position."""
        return tuple(i.along(tiled) for i in self.access.index)

    def between(self, axis: str) -> int:
        """Stride of an axis in elements."""
        steps = zip(self.access.index, self.tensor.effective_strides, strict=True)
        return sum(i.step(axis) * stride for i, stride in steps)

    def runs_along(self, axis: str) -> bool:
        """True if neighbours along the axis, in the last dimension, are neighbours in memory."""
        return self.access.index[-1].step(axis) != 0 and self.between(axis) == 1

    def is_zero_beyond(self, axis: Axis, extents: Mapping[str, int]) -> bool:
        """True if reads beyond the end of an axis are outside of the tensor, and harmless as a factor of 0."""
        # Of two fills that are multiplied, neither would be the 0.
        if self.access.fill:
            return False
        others = {**extents, axis.name: 1}
        sizes = zip(self.access.index, self.tensor.shape, strict=True)
        return any(
            i.step(axis.name) > 0 and i.minimum(others) + i.step(axis.name) * axis.extent >= size for i, size in sizes
        )
