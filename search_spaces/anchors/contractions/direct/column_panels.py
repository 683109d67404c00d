"""Columns in panels, packed by a kernel of their own: what one register tile reads is contiguous, in the loops' order.

Before:  w[r, s, c, f]                                       of 3 x 3 taps, 64 channels, 100 filters
After:   panels[f.0, r, s, c, 32 of f] = w[r, s, c, f.0*32 + f] else 0      of 4 panels

The whole reduction of a panel is one stream. A weight that is constant is packed once (BLIS, oneDNN's blocked formats).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, Place, start_of, workspace_name
from search_spaces.programs.statements import For, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.expressions.walking import rewritten, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis


@dataclass(frozen=True)
class ColumnPanels:
    """Panels of `width` columns of an operand of a contraction, in the order of its reduced axes."""

    form: Contraction
    operand: Expression
    width: int

    @property
    def outer(self) -> tuple[Axis, ...]:
        """Axes with panels of their own, besides the tiled columns: the batch, and further columns."""
        own = variables(self.operand)
        return tuple(x for x in self.form.outer if x.name in own)

    @property
    def workspace(self) -> Buffer:
        form = self.form
        count = -(-form.n.extent // self.width)
        shape = (*(x.extent for x in (*self.outer,)), count, *(x.extent for x in form.reduced), self.width)
        return Buffer(workspace_name(form.workload, "panels"), shape, "float32", "workspace")

    def slices(self, place: Place, panel: Affine) -> tuple[Slice, ...]:
        """The part of a panel at a place of the reduced axes, and of those with panels of their own."""
        reduced = (place[x.name] for x in self.form.reduced)
        columns = Slice(Affine(), self.width, self.form.n.name)
        return (*(place[x.name] for x in self.outer), Slice(panel), *reduced, columns)

    def kernel(self, lanes: int) -> Kernel:
        """The kernel that fills the workspace."""
        form, n = self.form, self.form.n
        *around, k = form.reduced
        place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in (*self.outer, *around)}
        place[k.name] = Slice(Affine(), k.extent, k.name)
        place[n.name] = Slice(start_of(("n.0", self.width)), self.width, n.name)
        emitter = Emitter(place, {t.name: t.dtype for t in form.workload.inputs}, Names())
        source = self.operand if n.extent % self.width == 0 else _filled(self.operand)
        tile = emitter.everywhere((k.name, n.name), emitter.tile(source, "packed"))
        stored = Store(self.workspace.name, self.slices(place, start_of(("n.0", 1))), tile.name)
        body: tuple[Statement, ...] = (*emitter.body, stored)
        for x in reversed(around):
            body = (For(f"{x.name}.0", x.extent, body),)
        outer = (GridAxis(f"{x.name}.0", x.extent) for x in self.outer)
        grid = Grid((*outer, GridAxis("n.0", -(-n.extent // self.width))))
        return Kernel(f"{form.workload.name}_panels", grid, body, Launch(lanes=lanes, vectors=1), auxiliary=True)


def _filled(operand: Expression) -> Expression:
    """The operand with 0 where a read is outside of its tensor, as in columns beyond the last one."""

    def change(e: Expression) -> Expression | None:
        return replace(e, fill=0.0) if isinstance(e, Access) and e.fill is None else None

    return rewritten(operand, change)
