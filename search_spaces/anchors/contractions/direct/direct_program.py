"""Direct contractions: register tiles that stay in registers over the whole reduction, taps and channels alike.

Before:  for p, q, f: out[p, q, f] = epilogue(sum over r, s, c of x[p + r, q + s, c] * w[r, s, c, f])
After:   panels[f.0, r, s, c, :] = w[r, s, c, f.0*32 : +32]                              a kernel of its own
         x_box[h, w, c] = x[h - 1, w - 1, c] else 0                                      another, if x is padded
         grid f.0, p (shared out to threads), or p, f.0:
           for j, for i (or i, j):
             c = 0                                                                       c stays in registers
             for r, for s: c += dot(x_box[p + r, q.i + s : +14, :], panels[f.0 + j, r, s, :, :])
             store out = epilogue(c)

No guard is in the inner loops, and nothing is copied for each tap. Low-level loops are those of "Anatomy of
high-performance deep learning convolutions on SIMD architectures" (Georganas et al., SC 2018), for any affine operand.
"""

from __future__ import annotations

from search_spaces.anchors.contractions.direct.column_panels import ColumnPanels
from search_spaces.anchors.contractions.direct.direct_tiles import panel_blocks, row_blocks
from search_spaces.anchors.contractions.direct.operand_boxes import OperandBox, operand_box
from search_spaces.decisions.memory.packing import IN_PLACE
from search_spaces.decisions.programs.ordering import ROW_MAJOR
from search_spaces.devices.target import Target
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, buffers, slices_at, start_of
from search_spaces.programs.statements import Dot, Fill, For, Load, Statement
from search_spaces.programs.tile_program import Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Workload


def direct_program(workload: Workload, form: Contraction, target: Target, values: Values) -> TileProgram:
    """The kernels that copy operands, then the one that multiplies them."""
    ((a,), (b,)) = form.operands
    _, columns = values.tiling("register")
    panels = None if values["pack_b"] == IN_PLACE else ColumnPanels(form, b, columns)
    box = None if values["pack_a"] == IN_PLACE else operand_box(form, a, target.lanes)
    copies = (*((panels.kernel(target.lanes),) if panels else ()), *((box.kernel,) if box else ()))
    workspaces = (*((panels.workspace,) if panels else ()), *((box.workspace,) if box else ()))
    constants = (*((form.constant_of(b),) if panels else ()), *((form.constant_of(a),) if box else ()))
    once = tuple((w.name, read) for w, read in zip(workspaces, constants, strict=True) if read)
    kernel = _Parts(workload, form, panels, box, values).kernel(target)
    return TileProgram(workload.name, buffers(workload, *workspaces), (*copies, kernel), prepared=once)


class _Parts:
    """The parts of the kernel that multiplies."""

    def __init__(
        self, workload: Workload, form: Contraction, panels: ColumnPanels | None, box: OperandBox | None, values: Values
    ) -> None:
        self.workload, self.form, self.panels, self.box, self.values = workload, form, panels, box, values
        self.rows, self.columns = values.tiling("register")
        self.own_rows, self.grid_m = row_blocks(form, values)
        self.own_panels, self.grid_n = panel_blocks(form, values)
        self.m_start = start_of(("m.0", self.own_rows * self.rows), ("i", self.rows))
        self.panel = start_of(("n.0", self.own_panels), ("j", 1))
        self.n_start = self.panel * self.columns
        self.place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in (*form.outer, *form.around)}
        self.place[form.m.name] = Slice(self.m_start, self.rows, form.m.name)
        self.place[form.n.name] = Slice(self.n_start, self.columns, form.n.name)
        self.place[form.k.name] = Slice(Affine(), form.k.extent, form.k.name)

    def kernel(self, target: Target) -> Kernel:
        form = self.form
        columns = [x for x in form.outer if x in form.columns]
        rows = [GridAxis(f"{x.name}.0", x.extent) for x in form.outer if x in form.rows]
        rows.append(GridAxis("m.0", self.grid_m))
        blocks = [*(GridAxis(f"{x.name}.0", x.extent) for x in columns), GridAxis("n.0", self.grid_n)]
        batch = [GridAxis(f"{x.name}.0", x.extent) for x in form.outer if x not in (*form.rows, *form.columns)]
        inner = (*rows, *blocks) if self.values["order"] == ROW_MAJOR else (*blocks, *rows)
        launch = Launch(lanes=target.lanes, vectors=1)
        return Kernel(self.workload.name, Grid((*batch, *inner)), (self._register_loops(),), launch)

    def _register_loops(self) -> For:
        """The loops over register tiles, in the order of the knob `inner`."""
        bounds = {"i": Bound(self.m_start, self.form.m.extent), "j": Bound(self.n_start, self.form.n.extent)}
        extents = {"i": self.own_rows, "j": self.own_panels}
        slow, fast = tuple(self.values.word("inner"))
        inner = For(fast, extents[fast], tuple(self._register_tile()), bound=bounds[fast])
        return For(slow, extents[slow], (inner,), bound=bounds[slow])

    def _register_tile(self) -> list[Statement]:
        form = self.form
        c = Tile("c", (form.m.name, form.n.name), (self.rows, self.columns))
        body: tuple[Statement, ...] = (*self._loads(), Dot(c, "a", "b", form.k.name))
        # The innermost axis has a loop of one iteration if it is the only one.
        for x in reversed(form.around):
            body = (For(f"{x.name}.0", x.extent, body),)
        if not form.around:
            body = (For(f"{form.k.name}.0", 1, body),)
        return [Fill(c, 0.0), *body, *self._finish(c)]

    def _loads(self) -> tuple[Load, Load]:
        ((a,), (b,)) = self.form.operands
        read = self.box.read if self.box else a
        assert isinstance(read, Access)
        of_a = self._load("a", read.tensor, slices_at(read, self.place))
        if self.panels:
            return of_a, self._load("b", self.panels.workspace.name, self.panels.slices(self.place, self.panel))
        assert isinstance(b, Access)
        return of_a, self._load("b", b.tensor, slices_at(b, self.place))

    def _load(self, name: str, buffer: str, slices: tuple[Slice, ...]) -> Load:
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        return Load(Tile.along(slices, name, dtypes.get(buffer, "float32")), buffer, slices)

    def _finish(self, c: Tile) -> list[Statement]:
        form, names = self.form, Names({"a", "b", "c"})
        emitter = Emitter(self.place, {t.name: t.dtype for t in self.workload.inputs}, names, {form.dots[0].stage: c})
        for name, result in form.results:
            emitter.store(name, tuple(x.name for x in form.axes), emitter.tile(result, "out"))
        return emitter.body
