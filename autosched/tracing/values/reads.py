"""What a kernel reads of memory while its elements are pulled: operands, each by the index that it is read at.

An element is read by plain axes, of a strided view that begins where the index does and lies in memory as its axes
walk; or, where no tensor has such strides, or the index may be outside, at its index by the tensor's own dimensions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.values.positions import as_integer, within
from autosched.tracing.values.tensor_reads import Lying, TensorRead, whole_of
from autosched.tracing.values.values import Index, Value, as_read
from search_spaces import InputError, Stage
from search_spaces.workloads.dtypes import dtype, is_float
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather
from search_spaces.workloads.names import Names
from search_spaces.workloads.strides import check_strides

# Kernels take addresses that are multiples of so many bytes: on a CPU a cache line, on a GPU a quarter of that.
ALIGNMENT_BYTES = 64


@dataclass
class Reads:
    """The operands of a kernel so far, which has axes of these `extents`; `names`: of everything in it.

    `origins`: of operands that are read by plain axes, what that is and at which index. `addresses`: where in the
    memory of a value it is read, but for what data says. `windows`: axes along windows, which are written out.
    """

    extents: Mapping[str, int]
    names: Names
    operands: dict[Hashable, TensorRead] = field(default_factory=dict)
    origins: dict[str, tuple[Lying, tuple[Affine, ...]]] = field(default_factory=dict)
    addresses: list[tuple[Value, Affine]] = field(default_factory=list)
    windows: set[str] = field(default_factory=set)

    def element(self, lies: Lying, index: Index, fill: float | int = 0, multiplied: bool = False) -> Expression:
        """An element of a tensor in memory; the fill where the index is outside of it.

        `multiplied`: for a product, which reads by plain axes wherever these begin.
        """
        address = Affine(offset=lies.offset)
        for at, stride in zip(index, lies.strides, strict=True):
            if not isinstance(at, Affine):
                return self._gathered(lies, index)
            address += at * stride
        self.addresses.append((lies.value, address))
        forms = tuple(i for i in index if isinstance(i, Affine))
        inside = self.is_inside(index, lies.shape)
        by_stride = tuple(sorted(address.terms, key=lambda term: -term[1]))
        plain = TensorRead(lies.value.name, lies.value, address.offset, by_stride)
        taken = multiplied or _is_aligned(lies.value, plain.offset) or not _is_aligned(lies.value, lies.offset)
        if inside and taken and self.windows.isdisjoint(plain.axes) and self._is_tensor(plain):
            operand = self.operand(plain)
            self.origins.setdefault(operand.name, (lies, forms))
            return as_read(at_its_axes(operand), lies.value.dtype)
        operand = self.operand(whole_of(lies))
        outside = None if inside else fill if is_float(lies.value.dtype) else int(fill)
        return as_read(Access(operand.name, forms, outside), lies.value.dtype)

    def is_inside(self, index: Index, shape: Sequence[int]) -> bool:
        """Whether an index that is no data is one of the shape for all positions."""
        return all(not isinstance(i, Affine) or within(i, n, self.extents) for i, n in zip(index, shape, strict=True))

    def operand(self, wanted: TensorRead) -> TensorRead:
        """What reads the same, by its name."""
        key = (wanted.value, wanted.offset, wanted.strides, wanted.sizes)
        if key not in self.operands:
            self.operands[key] = replace(wanted, name=self.names.fresh(wanted.name))
        return self.operands[key]

    def read_by(self, element: Expression) -> TensorRead | None:
        """The operand that this is an element of, at its own axes."""
        return next((o for o in self.operands.values() if element == at_its_axes(o)), None)

    def _is_tensor(self, read: TensorRead) -> bool:
        """Whether its strides are those of a tensor: none is below 0, and no two elements are the same."""
        try:
            check_strides(read.name, tuple(self.extents[v] for v, _ in read.strides), tuple(s for _, s in read.strides))
        except InputError:
            return False
        return True

    def _gathered(self, lies: Lying, index: Index) -> Expression:
        """An element at indices that are data: the tensor is an input with its own dimensions."""
        operand = self.operand(whole_of(lies))
        plain = (
            isinstance(i, Affine) and i.is_axis and within(i, size, self.extents)
            for i, size in zip(index, lies.shape, strict=True)
        )
        at = tuple(i if p else as_integer(i) for i, p in zip(index, plain, strict=True))
        return as_read(Gather(operand.name, at), lies.value.dtype)


def at_its_axes(tensor: Stage | TensorRead) -> Access:
    """The element of a stage or an operand at the axes that it has."""
    names = [a.name for a in tensor.axes] if isinstance(tensor, Stage) else [v for v, _ in tensor.strides]
    return Access(tensor.name, tuple(map(axis_index, names)))


def _is_aligned(value: Value, offset: int) -> bool:
    """Whether what begins so many elements behind the value in memory has an address that kernels take."""
    return offset * dtype(value.dtype).bytes % ALIGNMENT_BYTES == 0
