"""Contractions on a CPU: cache tiles, packed operands, register tiles, a fused epilogue.

Before:  for m, n: out[m, n] = epilogue(sum over k of a[m, k] * b[k, n])
After:   grid m.0, n.0 (shared out to threads):
           for k.0 (within a loop over every other axis that is reduced):
             a_tile = load (packed in panels, packed in padded rows, or read in place)
             for n.1:
               b_tile = load (packed in panels, or read in place)
               for j, for i (or i, j; then a may be loaded row panel by row panel in between):
                 c = 0                                                          c stays in registers
                 c += dot(row panel i of a_tile, column panel j of b_tile)
                 c += the partial sum of the iterations before, after the first
                 store c as partial sum, or in the last iteration out = epilogue(c)

The structure of GotoBLAS (Goto and van de Geijn, 2008) and BLIS, in Ansor's terms SSRSRS: the levels of m, n and k
are searched, as are packing, loop orders and unrolling.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.anchors.contractions.packed.cache_tiles import column_tiles, row_tiles
from search_spaces.anchors.contractions.packed.prepared_panels import PreparedPanels
from search_spaces.decisions.memory.packing import IN_PLACE, PANELS, PREPARED
from search_spaces.devices.target import Target
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, buffers, slices_at, start_of, workspace_name
from search_spaces.programs.statements import Dot, Fill, For, If, Load, Map, Prefetch, Statement, Store, View
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Bound, Panels, Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Workload

# Variables of blocks of rows and of tiles along k; and the one that is 1 in the last iteration of a k that data cuts.
ROW_BLOCKS, STEPS, IS_LAST = "m.0", "k.0", "k.last"


def packed_program(workload: Workload, form: Contraction, target: Target, values: Values) -> TileProgram:
    """One kernel, whose programs have blocks of rows and columns."""
    parts = _Parts(workload, form, values)
    grid = [*(GridAxis(f"{x.name}.0", x.extent) for x in form.outer)]
    grid += GridAxis(ROW_BLOCKS, parts.grid_m), GridAxis("n.0", parts.grid_n)
    before = () if parts.pack_in_i else parts.load_a()
    loop = For(STEPS, parts.steps, (*before, parts.sweep()))
    for x in reversed(form.around):
        loop = For(f"{x.name}.0", x.extent, (loop,))
    launch = Launch(lanes=target.lanes, vectors=1)
    kernel = Kernel(workload.name, Grid(tuple(grid)), (loop,), launch)
    once = tuple(filter(None, parts.prepared))
    return TileProgram(
        workload.name,
        buffers(workload, *parts.workspaces(), *(p.workspace for p in once)),
        (*(k for p in once for k in p.kernels(target)), kernel),
        prepared=tuple((p.workspace.name, p.tensor.name) for p in once),
    )


def _where_all(
    values: Mapping[str, int], then: tuple[Statement, ...], otherwise: tuple[Statement, ...]
) -> tuple[Statement, ...]:
    """The statements if all variables have these values, and the others otherwise."""
    for variable, value in [*values.items()][::-1]:
        then = (If(variable, value, then, otherwise),)
    return then


class _Parts:
    """The parts of one lowered contraction."""

    def __init__(self, workload: Workload, form: Contraction, values: Values) -> None:
        self.workload, self.form, self.values = workload, form, values
        self.rows, self.columns = values.tiling("register")
        self.cache_m, self.grid_m = row_tiles(form, values)
        self.cache_n, self.sweeps, self.grid_n = column_tiles(form, values)
        self.steps, self.tile_k = values.tiling("k")
        self.block_m = self.cache_m * self.rows
        # The register tile's columns begin at n.0 * block_n + n.1 * sweep_n + j * columns.
        self.sweep_n = self.cache_n * self.columns
        self.block_n = self.sweeps * self.sweep_n
        self.columns_before = ("n.0", self.block_n), ("n.1", self.sweep_n)
        self.n_start = start_of(*self.columns_before)
        self.outer = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in form.outer}
        self.around = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in form.around}
        # The loops over the reduction, outermost first.
        loops = (*((f"{x.name}.0", x.extent) for x in form.around), (STEPS, self.steps))
        self.loops = tuple((variable, extent) for variable, extent in loops if extent > 1)
        self.pack_in_i = values.word("inner") == "i_pack_j"
        self.prepared = tuple(
            PreparedPanels(workload, form, access, own, width) if values[f"pack_{side}"] == PREPARED else None
            for side, access, own, width in zip(
                "ab", form.tensors, (form.m, form.n), (self.rows, self.columns), strict=True
            )
        )

    @property
    def rows_are_cut(self) -> bool:
        """True if data cuts the rows, so that tiles at one segment's end overlap the next one."""
        return self.form.cuts[0] == self.form.m.name

    @property
    def sums_in_output(self) -> bool:
        """True if partial sums can wait in the output: it is float32, and register tiles never overlap."""
        if self.rows_are_cut:
            return False
        whole = self.form.m.extent % self.rows == 0 and self.form.n.extent % self.columns == 0
        return whole and len(self.workload.outputs) == 1 and self.workload.outputs[0].dtype == "float32"

    def workspaces(self) -> tuple[Buffer, ...]:
        """Partial sums between iterations of k.0, one register tile after another, unless they wait in the output."""
        if not self.loops or self.sums_in_output:
            return ()
        name, tiles = workspace_name(self.workload, "partial"), (self.cache_m, self.sweeps * self.cache_n)
        if self.rows_are_cut:
            # Segments need different numbers of tiles: each program has room for its own.
            return (Buffer(name, (*tiles, self.rows, self.columns), "float32", "own"),)
        batch = tuple(x.extent for x in self.form.outer)
        shape = (*batch, self.grid_m * tiles[0], self.grid_n * tiles[1], self.rows, self.columns)
        return (Buffer(name, shape, "float32", "workspace"),)

    def load_a(self) -> tuple[Load, ...]:
        """The cache tile of a, or the one row panel of it of loop i's iteration; nothing if it is prepared."""
        if self.prepared[0]:
            return ()
        place = Slice(start_of((ROW_BLOCKS, self.block_m)), self.block_m, self.form.m.name)
        if self.pack_in_i:
            place = Slice(start_of((ROW_BLOCKS, self.block_m), ("i", self.rows)), self.rows, self.form.m.name)
        packing = self.values["pack_a"]
        panels = None if packing == IN_PLACE else Panels(self.form.m.name, self.rows, packing == PANELS)
        return (self._load(self.form.tensors[0], "a_panel" if self.pack_in_i else "a", place, panels),)

    def sweep(self) -> For:
        """The loop over the parts of the block's columns: load the cache tile of b, then compute its register tiles."""
        place = Slice(self.n_start, self.sweep_n, self.form.n.name)
        panels = None if self.values["pack_b"] == IN_PLACE else Panels(self.form.n.name, self.columns)
        load = () if self.prepared[1] else (self._load(self.form.tensors[1], "b", place, panels),)
        bound = Bound(self.n_start, self.form.n.extent)
        return For("n.1", self.sweeps, (*load, self._register_loops()), bound=bound)

    def _load(self, access: Access, name: str, piece: Slice, panels: Panels | None) -> Load:
        along_k = Slice(start_of((STEPS, self.tile_k)), self.tile_k, self.form.k.name)
        place = {**self.outer, **self.around, piece.axis: piece, along_k.axis: along_k}
        slices = slices_at(access, place)
        element = next(t.dtype for t in self.workload.inputs if t.name == access.tensor)
        return Load(Tile.along(slices, name, element), access.tensor, slices, panels=panels)

    def _register_loops(self) -> For:
        """The loops over register tiles, in the order of the knob `inner`."""
        form = self.form
        m_start = start_of((ROW_BLOCKS, self.block_m), ("i", self.rows))
        n_start = start_of(*self.columns_before, ("j", self.columns))
        body = tuple(self._register_tile(m_start, n_start))
        bounds = {"i": Bound(m_start, form.m.extent), "j": Bound(n_start, form.n.extent)}
        extents = {"i": self.cache_m, "j": self.cache_n}
        slow, fast = self.values.word("inner")[0], self.values.word("inner")[-1]
        between = self.load_a() if self.pack_in_i else ()
        inner = For(fast, extents[fast], body, bound=bounds[fast])
        return For(slow, extents[slow], (*between, inner), bound=bounds[slow])

    def _register_tile(self, m_start: Affine, n_start: Affine) -> list[Statement]:
        form = self.form
        c = Tile("c", (form.m.name, form.n.name), (self.rows, self.columns))
        views = self._panels()
        rows, columns = Slice(m_start, self.rows, form.m.name), Slice(n_start, self.columns, form.n.name)
        place = {**self.outer, rows.axis: rows, columns.axis: columns}
        dot = Dot(c, "a_panel", "b_panel", form.k.name)
        finish = self._finish(c, place)
        buffer, where = self._sums(place)
        start: list[Statement] = [Fill(c, 0.0), *views, Prefetch(c, buffer, where), dot]
        if not self.loops:
            return [*start, *finish]
        before = Tile("before", c.axes, c.shape)
        # The sum starts from 0 in every iteration: one that starts from memory would wait for it before the first step.
        first, last = {v: 0 for v, _ in self.loops}, {v: extent - 1 for v, extent in self.loops}
        if self.form.cuts[0] == form.k.name:
            last = {IS_LAST: 1}
        join = _where_all(first, (), (Load(before, buffer, where), Map(c, "add", ("c", "before"))))
        end = _where_all(last, tuple(finish), (Store(buffer, where, "c"),))
        return [*start, *join, *end]

    def _sums(self, place: dict[str, Slice]) -> tuple[str, tuple[Slice, ...]]:
        """Buffer and slices of a register tile's sum between iterations of k.0; with only one, those of the result."""
        if not self.loops or self.sums_in_output:
            return self.workload.output_names[0], tuple(place[x.name] for x in self.form.axes)
        ours = self.rows_are_cut
        outer = () if ours else tuple(self.outer.values())
        row = () if ours else ((ROW_BLOCKS, self.cache_m),)
        column = () if ours else (("n.0", self.sweeps * self.cache_n),)
        return workspace_name(self.workload, "partial"), (
            *outer,
            Slice(start_of(*row, ("i", 1))),
            Slice(start_of(*column, ("n.1", self.cache_n), ("j", 1))),
            Slice(Affine(), self.rows, self.form.m.name),
            Slice(Affine(), self.columns, self.form.n.name),
        )

    def _panels(self) -> list[Statement]:
        """The panels of both operands for one register tile: of prepared ones, or views of cache tiles."""
        form, (once_a, once_b) = self.form, self.prepared
        place, k = {**self.outer, **self.around}, Slice(start_of((STEPS, self.tile_k)), self.tile_k, self.form.k.name)
        found: list[Statement] = []
        if once_a:
            found.append(once_a.load("a_panel", start_of((ROW_BLOCKS, self.cache_m), ("i", 1)), place, k))
        elif not self.pack_in_i:
            found.append(self._view("a", form.tensors[0], form.m.name, "i", self.rows))
        if once_b:
            number = start_of(("n.0", self.sweeps * self.cache_n), ("n.1", self.cache_n), ("j", 1))
            return [*found, once_b.load("b_panel", number, place, k)]
        return [*found, self._view("b", form.tensors[1], form.n.name, "j", self.columns)]

    def _view(self, tile: str, access: Access, axis: str, variable: str, width: int) -> View:
        """The panel of an operand for one register tile, over the whole reduction tile."""
        own, k = Slice(start_of((variable, width)), width, axis), self.form.k.name
        names = filter(None, self.form.map_of(access).axes({axis, k}))
        pieces = {axis: own, k: Slice(Affine(), self.tile_k, k)}
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        slices = tuple(pieces[x] for x in names)
        return View(Tile.along(slices, f"{tile}_panel", dtypes[access.tensor]), tile, slices)

    def _finish(self, c: Tile, place: dict[str, Slice]) -> list[Statement]:
        form, names = self.form, Names({"a", "b", "c", "a_panel", "b_panel", "before"})
        emitter = Emitter(place, {t.name: t.dtype for t in self.workload.inputs}, names, {form.dots[0].stage: c})
        for name, result in form.results:
            emitter.store(name, tuple(x.name for x in form.axes), emitter.tile(result, "out"))
        return emitter.body
