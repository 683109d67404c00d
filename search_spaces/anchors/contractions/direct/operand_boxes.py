"""Copies of shifted, padded or computed operands as boxes, which a main loop reads in place and without guards.

Before:  relu(x[2*p + r - 1, 2*q + s - 1, c] else 0)          of 56 p and q, 3 taps r and s, 64 channels
After:   x_box[h, w, c] = relu(x[h - 1, w - 1, c] else 0)     of 113 h and w, then x_box[2*p + r, 2*q + s, c]

An element is copied once, however many taps read it: im2col would copy it nine times here. Where a dimension is longer
than what is read of it, the box ends earlier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, start_of, workspace_name
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Position
from search_spaces.workloads.expressions.walking import accesses, distinct, reindexed
from search_spaces.workloads.names import Names

# A box has at most so many times the elements that the tensors have: further apart, nothing would be copied once.
_MOST_GROWTH = 4
# Elements that may always be copied: padding of a few positions multiplies a small tensor.
_FEW = 2**16


@dataclass(frozen=True)
class OperandBox:
    """A workspace, the kernel that fills it, and the read of it that replaces the operand."""

    workspace: Buffer
    kernel: Kernel
    read: Access


def in_place(operand: Expression) -> bool:
    """True if a main loop may read the operand as it is: a tensor, of which nothing outside is read."""
    return isinstance(operand, Access) and operand.fill is None


@lru_cache(64)  # One per operand: every schedule of a workload shares it.
def operand_box(form: Contraction, operand: Expression, lanes: int) -> OperandBox:
    """The box of an operand, of float32."""
    workload, coordinates = form.workload, _coordinates(form, operand)
    names = Names({x.name for x in (*form.axes, *form.reduced)})
    named = {linear: names.fresh(f"h{n}") for n, linear in enumerate(coordinates)}
    least = {linear: linear.minimum(form.extents) for linear in coordinates}
    sizes = {named[x]: size for x, size in _sizes(form, coordinates).items()}
    workspace = Buffer(workspace_name(workload, "box"), tuple(sizes.values()), "float32", "workspace")

    def moved(index: Affine) -> Affine:
        linear = Affine(index.terms)
        return axis_index(named[linear]) + Affine(offset=least[linear] + index.offset) if index.terms else index

    tiled = list(sizes)[-2:]
    place = {x: Slice(Affine(), n, x) if x in tiled else Slice(start_of((f"{x}.0", 1))) for x, n in sizes.items()}
    emitter = Emitter(place, {t.name: t.dtype for t in workload.inputs}, Names())
    emitter.store(workspace.name, tuple(sizes), emitter.tile(reindexed(operand, moved), "copied"))
    grid = Grid(tuple(GridAxis(f"{x}.0", 1 if x in tiled else n) for x, n in sizes.items()))
    launch = Launch(lanes=lanes, vectors=1)
    kernel = Kernel(f"{workload.name}_box", grid, tuple(emitter.body), launch, auxiliary=True)
    read = Access(workspace.name, tuple(x + Affine(offset=-least[x]) for x in coordinates))
    return OperandBox(workspace, kernel, read)


def why_no_box(form: Contraction, operand: Expression) -> str | None:
    """Reason that the operand is not copied to a box, or None."""
    if any(isinstance(e, Gather | Position) for e in distinct(operand)):
        return "an operand depends on data or on positions as indices"
    elements = math.prod(_sizes(form, _coordinates(form, operand)).values())
    read = {a.tensor for a in accesses(operand)}
    known = sum(math.prod(t.shape) for t in form.workload.inputs if t.name in read)
    if elements > max(_FEW, _MOST_GROWTH * known):
        return f"a box of {elements} elements would be read from {known}"
    return None


def _coordinates(form: Contraction, operand: Expression) -> tuple[Affine, ...]:
    """The forms without offsets that index dimensions, each once, in the order of the first tensor's memory."""
    first, *others = accesses(operand)
    (tensor,) = (t for t in form.workload.inputs if t.name == first.tensor)
    strides = tensor.effective_strides
    ordered = sorted(range(len(strides)), key=lambda n: -strides[n])
    return tuple(_linear([*(i for a in others for i in a.index), *(first.index[n] for n in ordered)], last=True))


def _linear(indices: Iterable[Affine], last: bool) -> Iterable[Affine]:
    found = [Affine(i.terms) for i in indices if i.terms]
    # The later of two equal ones stays: the first tensor's order counts.
    return reversed(dict.fromkeys(reversed(found))) if last else dict.fromkeys(found)


def _sizes(form: Contraction, coordinates: Iterable[Affine]) -> dict[Affine, int]:
    extents = form.extents
    return {x: x.maximum(extents) - x.minimum(extents) + 1 for x in coordinates}
