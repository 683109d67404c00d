"""Reads of a kernel, found while its elements are pulled: its operands, each with the index that it is read at.

An element is read by plain axes, of a strided view that begins at the index's offset; or, where no tensor has such
strides, or the index may be outside, at its index by the tensor's own dimensions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.values.positions import as_integer, within
from autosched.tracing.values.tensor_reads import MemoryView, TensorRead, whole_of
from autosched.tracing.values.values import Index, Value, as_read
from search_spaces import InputError, Stage
from search_spaces.workloads.dtypes import dtype, is_float
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Segment
from search_spaces.workloads.names import Names
from search_spaces.workloads.strides import check_strides

# Alignment of the addresses that kernels take: on a CPU a cache line, on a GPU a quarter of that.
ALIGNMENT_BYTES = 64


@dataclass
class Reads:
    """The operands of a kernel so far. `extents`: of its axes; `names`: of everything in it.

    `origins`: source view and index of each operand that is read by plain axes. `addresses`: offsets at which the
    memory of a value is read, except those that data determines. `windows`: axes along windows, which are unrolled.
    """

    extents: Mapping[str, int]
    names: Names
    operands: dict[Hashable, TensorRead] = field(default_factory=dict)
    origins: dict[str, tuple[MemoryView, tuple[Affine, ...]]] = field(default_factory=dict)
    addresses: list[tuple[Value, Affine]] = field(default_factory=list)
    windows: set[str] = field(default_factory=set)

    def element(self, strided: MemoryView, index: Index, fill: float | int = 0, multiplied: bool = False) -> Expression:
        """An element of a tensor in memory; the fill where the index is outside of it.

        `multiplied`: for a product, which reads by plain axes at any alignment.
        """
        address = Affine(offset=strided.offset)
        for at, stride in zip(index, strided.strides, strict=True):
            if not isinstance(at, Affine):
                return self._gathered(strided, index, multiplied)
            address += at * stride
        self.addresses.append((strided.value, address))
        forms = tuple(i for i in index if isinstance(i, Affine))
        inside = self.is_inside(index, strided.shape)
        by_stride = tuple(sorted(address.terms, key=lambda term: -term[1]))
        plain = TensorRead(strided.value.name, strided.value, address.offset, by_stride)
        taken = multiplied or _is_aligned(strided.value, plain.offset) or not _is_aligned(strided.value, strided.offset)
        if inside and taken and self.windows.isdisjoint(plain.axes) and self._is_tensor(plain):
            operand = self.operand(plain)
            self.origins.setdefault(operand.name, (strided, forms))
            return as_read(at_its_axes(operand), strided.value.dtype)
        operand = self.operand(whole_of(strided))
        outside = None if inside else fill if is_float(strided.value.dtype) else int(fill)
        return as_read(Access(operand.name, forms, outside), strided.value.dtype)

    def segment(self, ends: MemoryView, position: Affine | Expression) -> Expression:
        """The segment that a position is in: the ends are an input with their own dimension."""
        return Segment(self.operand(whole_of(ends)).name, position, *ends.shape)

    def is_inside(self, index: Index, shape: Sequence[int]) -> bool:
        """True if every index that is no data is inside the shape for all positions."""
        return all(not isinstance(i, Affine) or within(i, n, self.extents) for i, n in zip(index, shape, strict=True))

    def operand(self, wanted: TensorRead) -> TensorRead:
        """The operand that makes the same read, added if new, under its name."""
        key = (wanted.value, wanted.offset, wanted.strides, wanted.sizes)
        if key not in self.operands:
            self.operands[key] = replace(wanted, name=self.names.fresh(wanted.name))
        return self.operands[key]

    def read_by(self, element: Expression) -> TensorRead | None:
        """The operand whose element at its own axes this is."""
        return next((o for o in self.operands.values() if element == at_its_axes(o)), None)

    def _is_tensor(self, read: TensorRead) -> bool:
        """True if the strides are those of a tensor: none negative, no two indices at one element."""
        try:
            check_strides(read.name, tuple(self.extents[v] for v, _ in read.strides), tuple(s for _, s in read.strides))
        except InputError:
            return False
        return True

    def _gathered(self, strided: MemoryView, index: Index, multiplied: bool) -> Expression:
        """An element at indices that are data: the tensor is an input with its own dimensions.

        Of a dimension that an axis goes through a part of, the input has this part, if kernels take its address.
        """
        part = self._part(strided, index)
        if part is not None and (multiplied or _is_aligned(strided.value, part[0].offset)):
            strided, index = part
        operand = self.operand(whole_of(strided))
        plain = (
            isinstance(i, Affine) and i.is_axis and within(i, size, self.extents)
            for i, size in zip(index, strided.shape, strict=True)
        )
        at = tuple(i if p else as_integer(i) for i, p in zip(index, plain, strict=True))
        return as_read(Gather(operand.name, at), strided.value.dtype)

    def _part(self, strided: MemoryView, index: Index) -> tuple[MemoryView, Index] | None:
        """The part of a tensor that axes go through, and the index in it; None where that is all of it."""
        at, shape, offset = list(index), list(strided.shape), strided.offset
        for d, (i, size) in enumerate(zip(index, strided.shape, strict=True)):
            if not isinstance(i, Affine) or not (own := i - Affine(offset=i.offset)).is_axis:
                continue
            if within(i, size, self.extents):
                at[d], shape[d] = own, self.extents[own.axis]
                offset += i.offset * strided.strides[d]
        if shape == [*strided.shape]:
            return None
        return replace(strided, shape=tuple(shape), offset=offset), tuple(at)


def at_its_axes(tensor: Stage | TensorRead) -> Access:
    """The element of a stage or an operand at its own axes."""
    names = [a.name for a in tensor.axes] if isinstance(tensor, Stage) else [v for v, _ in tensor.strides]
    return Access(tensor.name, tuple(map(axis_index, names)))


def _is_aligned(value: Value, offset: int) -> bool:
    """True if an offset in elements from the value's first has an address that kernels take."""
    return offset * dtype(value.dtype).bytes % ALIGNMENT_BYTES == 0
