"""Rows that begin nowhere in particular, as those of 50257 elements of 2 bytes: read from the vector that each is in.

Before:  load x[r, c.0*W : +W]                      rows begin at any element, so elements are loaded one by one
After:   load x[r, c.0*W - skew(r) : +W]            whole vectors; those of the row before and after are left out

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
    """How many elements neighbours along the parallel axes are apart, modulo a vector."""

    apart: tuple[tuple[str, int], ...]
    vector: int

    def skew(self, place: Place) -> Skew:
        """How far rows at the place are moved back."""
        return Skew(tuple((place[axis], elements) for axis, elements in self.apart), self.vector)

    @property
    def most(self) -> int:
        """The most elements that a row is moved back by."""
        return self.vector - math.gcd(self.vector, *(elements for _, elements in self.apart))


def aligned_rows(structure: Structure, target: Target) -> AlignedRows | None:
    """How the largest of the tensors with rows lies, where its rows do not begin at vectors; None where they do.

    None, too, where columns are read elsewhere than where they are, where a mask by position leaves some out, where
    scans would have elements of the row before, and where 32 bits do not count how far all rows are moved back.
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
    """The elements of a vector of the largest of the tensors with rows."""
    return _largest(structure, _bodies(structure), target)[2]


def _bodies(structure: Structure) -> list[Expression]:
    return [structure.body_of(s) for s in structure.workload.stages]


def _largest(structure: Structure, bodies: Sequence[Expression], target: Target) -> tuple[int, dict[str, int], int]:
    return max(_rows(structure, bodies, target.features.load_bytes), key=lambda row: row[0], default=(0, {}, 1))


def with_aligned(seeds: Sequence[Values]) -> tuple[Values, ...]:
    """Starts that do not say how rows are read: each read by whole vectors, and the first one as they begin."""
    return tuple(Values({**seed, "aligned": way}) for way in (True, False) for seed in (seeds if way else seeds[:1]))


def _is_plain(e: Expression, column: str) -> bool:
    """Whether a read has columns where they are."""
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
    """Of tensors whose neighbours along the columns are neighbours in memory: their elements along the axes, how many
    elements neighbours along every parallel axis are apart, and the elements of a vector."""
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
