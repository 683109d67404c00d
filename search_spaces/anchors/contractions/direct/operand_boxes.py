"""Copies of operands as boxes, which a main loop reads in place and without guards.

Before:  relu(x[2*p + r - 1, 2*q + s - 1, c] else 0)          of 56 p and q, 3 taps r and s, 64 channels
After:   box[h, w, c] = relu(x[h - 1, w - 1, c] else 0)       of 113 h and w, then box[2*p + r, 2*q + s, c]

Ansor's rule "cache stage" (Zheng et al., 2020, table 1); padding ahead of a convolution, as in oneDNN and TVM.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, start_of, workspace_name
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice
from search_spaces.structure.contraction import Contraction
from search_spaces.structure.copied_boxes import box_of, read_of_box
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.expressions.walking import reindexed
from search_spaces.workloads.names import Names


@dataclass(frozen=True)
class OperandBox:
    """A workspace, the kernel that fills it, and the read of it that replaces the operand."""

    workspace: Buffer
    kernel: Kernel
    read: Access


@lru_cache(64)  # One per operand: every schedule of a workload shares it.
def operand_box(form: Contraction, operand: Expression, lanes: int) -> OperandBox:
    """The box of an operand, of float32."""
    workload, box = form.workload, box_of(form, operand)
    names = Names({x.name for x in (*form.axes, *form.reduced)})
    named = {linear: names.fresh(f"h{n}") for n, linear in enumerate(box)}
    sizes = {named[x]: size for x, size in box.items()}
    workspace = Buffer(workspace_name(workload, "box"), tuple(sizes.values()), "float32", "workspace")

    def moved(index: Affine) -> Affine:
        linear = Affine(index.terms)
        least = Affine(offset=linear.minimum(form.extents) + index.offset)
        return axis_index(named[linear]) + least if index.terms else index

    tiled = list(sizes)[-2:]
    place = {x: Slice(Affine(), n, x) if x in tiled else Slice(start_of((f"{x}.0", 1))) for x, n in sizes.items()}
    emitter = Emitter(place, {t.name: t.dtype for t in workload.inputs}, Names())
    emitter.store(workspace.name, tuple(sizes), emitter.tile(reindexed(operand, moved), "copied"))
    grid = Grid(tuple(GridAxis(f"{x}.0", 1 if x in tiled else n) for x, n in sizes.items()))
    launch = Launch(lanes=lanes, vectors=1)
    kernel = Kernel(f"{workload.name}_box", grid, tuple(emitter.body), launch, auxiliary=True)
    return OperandBox(workspace, kernel, read_of_box(form, operand, workspace.name))
