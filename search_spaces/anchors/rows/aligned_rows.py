"""Rows that begin between vectors, as those of 50257 elements of 2 bytes: read from the vector that contains the start.

Before:  load x[r, c.0*W : +W]                      rows begin at any element, so elements are loaded one by one
After:   load x[r, c.0*W - skew(r) : +W]            whole vectors; elements of neighbouring rows are masked

The loop's middle iterations need no mask; the first and the last ones do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from search_spaces.devices.target import Target
from search_spaces.programs.lowering import Place
from search_spaces.programs.tiles import Skew
from search_spaces.schedules.knobs import Values
from search_spaces.structure.axes import Structure
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather
from search_spaces.workloads.expressions.walking import accesses, walk
from search_spaces.workloads.workload import MAX_EXTENT


@dataclass(frozen=True)
class AlignedRows:
    """Distances of neighbours along the parallel axes in elements, modulo a vector."""

    apart: tuple[tuple[str, int], ...]
    vector: int

    def skew(self, place: Place) -> Skew:
        """The distance by which rows at the place are shifted back to a vector."""
        return Skew(tuple((place[axis], elements) for axis, elements in self.apart), self.vector)

    @property
    def most(self) -> int:
        """The longest distance by which a row is shifted back, in elements."""
        return self.vector - math.gcd(self.vector, *(elements for _, elements in self.apart))


def aligned_rows(structure: Structure, target: Target) -> AlignedRows | None:
    """Alignment of the largest of the tensors with rows; None if its rows begin at vectors.

    None, too, if columns are read at other indices than their own, a mask by position leaves some out, scans would get
    elements of the row before, or the distances of all rows exceed 32 bits.
    """
    if structure.scans:
        return None
    if target.kind != "gpu" or structure.outer or len(structure.reduced) > 1:
        return None
    column, bodies = structure.column.name, _bodies(structure)
    if not all(_is_plain(e, column) for body in bodies for e in walk(body)):
        return None
    _, apart, vector = _largest(structure, bodies, target)
    behind = tuple((axis, elements % vector) for axis, elements in apart.items() if elements % vector)
    extents = {x.name: x.extent for x in structure.parallel}
    # Ends of rows are rounded up to vectors.
    counted = max(sum(extents[axis] * elements for axis, elements in behind), structure.column.extent + 2 * vector)
    return AlignedRows(behind, vector) if behind and counted <= MAX_EXTENT else None


def vector_of_rows(structure: Structure, target: Target) -> int:
    """Elements of a vector of the largest of the tensors with rows."""
    return _largest(structure, _bodies(structure), target)[2]


def _bodies(structure: Structure) -> list[Expression]:
    return [structure.body_of(s) for s in structure.workload.stages]


def _largest(structure: Structure, bodies: Sequence[Expression], target: Target) -> tuple[int, dict[str, int], int]:
    return max(_rows(structure, bodies, target.features.load_bytes), key=lambda row: row[0], default=(0, {}, 1))


def with_aligned(seeds: Sequence[Values]) -> tuple[Values, ...]:
    """The starts with a way to read rows if they have none: each by whole vectors, the first one also unaligned."""
    return tuple(Values({**seed, "aligned": way}) for way in (True, False) for seed in (seeds if way else seeds[:1]))


def _is_plain(e: Expression, column: str) -> bool:
    """True if a read has columns at their own index."""
    match e:
        case Access(index=index, fill=fill):
            moving = [i for i in index if column in dict(i.terms)]
            return all(i.is_axis for i in moving) and (fill is None or not moving)
        case Gather(index=index):
            return not any(isinstance(i, Affine) and column in dict(i.terms) for i in index)
        case _:
            return True


def _rows(
    structure: Structure, bodies: Sequence[Expression], vector_bytes: int
) -> Iterator[tuple[int, dict[str, int], int]]:
    """Alignment of the tensors that are contiguous along the columns: their elements along the axes, the distance of
    neighbours along every parallel axis, and the elements of a vector."""
    tensors = {t.name: t for t in structure.workload.inputs}
    read = [(tensors[a.tensor], a.index) for body in bodies for a in accesses(body) if a.tensor in tensors]
    stages = {s.name: s for s in structure.workload.stages}
    written = [(t, tuple(axis_index(x.name) for x in stages[t.name].axes)) for t in structure.workload.outputs]
    extents = {x.name: x.extent for x in (*structure.parallel, *structure.reduced)}
    for tensor, index in (*read, *written):
        apart = dict.fromkeys(extents, 0)
        for form, stride in zip(index, tensor.effective_strides, strict=True):
            for axis, step in form.terms:
                apart[axis] += step * stride
        if apart.pop(structure.column.name) == 1:
            elements = math.prod(extents[axis] for axis, between in apart.items() if between)
            yield elements, apart, max(1, vector_bytes // dtype(tensor.dtype).bytes)
