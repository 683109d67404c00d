"""Panels of a constant operand, packed once: what packing does at every call, taken out of the call.

Before:  for k.0, n.1: copy b[k tile, n sweep] into panels;  for i, j: c += dot(rows i of a, panel j of b)
After:   once: grid n panel, k: b_panels[panel, k, :] = b[k, panel*columns : +columns]
         at a call: for k.0, n.1, i, j: c += dot(rows i of a, b_panels[panel, k tile, :])

Register tiles at the end of an axis are moved back to end with it, so that the last panel is, too: it begins at
n - columns. oneDNN and XNNPACK reorder weights like this, which they call packing or prepacking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.devices.target import Target
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import slices_at, start_of, workspace_name
from search_spaces.programs.statements import Load, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.workload import Axis, Tensor, Workload


@dataclass(frozen=True)
class PreparedPanels:
    """The panels of an operand, `width` positions of its own axis (rows or columns) each, as long as k is."""

    workload: Workload
    form: Contraction
    access: Access
    own: Axis
    width: int

    @property
    def tensor(self) -> Tensor:
        return self.form.map_of(self.access).tensor

    @property
    def others(self) -> tuple[Axis, ...]:
        """The other axes along which the operand changes: of each the panels have one position."""
        form, read = self.form, {x for i in self.access.index for x in i.axes}
        return tuple(x for x in (*form.outer, *form.around) if x.name in read)

    @property
    def panels(self) -> int:
        return -(-self.own.extent // self.width)

    @property
    def workspace(self) -> Buffer:
        shape = (*(x.extent for x in self.others), self.panels, self.form.k.extent, self.width)
        name = workspace_name(self.workload, f"{self.tensor.name}_panels")
        return Buffer(name, shape, self.tensor.dtype, "workspace")

    def load(self, name: str, panel: Affine, place: Mapping[str, Slice], k: Slice) -> Load:
        """One panel at the place of the other axes, along this slice of k."""
        own = Slice(Affine(), self.width, self.own.name)
        slices = (*(place[x.name] for x in self.others), Slice(panel), k, own)
        return Load(Tile.along(slices, name, self.tensor.dtype), self.workspace.name, slices)

    def kernels(self, target: Target) -> tuple[Kernel, ...]:
        """Kernels that fill the panels: of whole panels, and of the last one if it is moved back."""
        whole = max(1, self.own.extent // self.width)
        found = [self._kernel("", start_of(("panel.0", 1)), start_of(("panel.0", self.width)), whole, target)]
        if whole < self.panels:
            last = Affine(offset=self.own.extent - self.width)
            found.append(self._kernel("_end", Affine(offset=whole), last, 1, target))
        return tuple(found)

    def _kernel(self, suffix: str, panel: Affine, first: Affine, count: int, target: Target) -> Kernel:
        """A kernel that copies `count` panels, which begin at `first` along the operand's own axis."""
        place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in (*self.others, self.form.k)}
        place[self.own.name] = Slice(first, self.width, self.own.name)
        slices, fill = slices_at(self.access, place), self.access.fill or 0.0
        guarded = self.access.fill is not None or self.own.extent < self.width
        piece = Tile.along(slices, "piece", self.tensor.dtype)
        own = Slice(Affine(), self.width, self.own.name)
        where = (*(place[x.name] for x in self.others), Slice(panel), place[self.form.k.name], own)
        body = (
            Load(piece, self.tensor.name, slices, fill, guarded=guarded),
            Store(self.workspace.name, where, piece.name),
        )
        grid = [GridAxis(f"{x.name}.0", x.extent) for x in self.others]
        grid += GridAxis("panel.0", count), GridAxis(f"{self.form.k.name}.0", self.form.k.extent)
        launch = Launch(lanes=target.lanes, vectors=1)
        name = f"{self.workload.name}_prepare_{self.tensor.name}{suffix}"
        return Kernel(name, Grid(tuple(grid)), body, launch, auxiliary=True)
