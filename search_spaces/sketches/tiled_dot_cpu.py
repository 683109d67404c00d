"""Contractions on a CPU: cache tiles, packed operands, register tiles, a fused epilogue.

Before:  for m, n: out[m, n] = epilogue(sum over k of a[m, k] * b[k, n])
After:   grid m.0, n.0 (shared out to threads):
           for k.0:
             a_tile, b_tile = load (packed in panels, or read in place)
             for j, for i (or i, j):
               c = 0, or the partial sum of the last turn
               c += dot(row panel i of a_tile, column panel j of b_tile)      c stays in registers
               store c as partial sum, or in the last turn out = epilogue(c)

The structure of GotoBLAS (Goto and van de Geijn, 2008) and BLIS, in Ansor's terms SSRSRS: which level holds which part
of m, n and k is searched, as are packing, loop orders and unrolling.
"""

from __future__ import annotations

from search_spaces.expression import Access, Affine
from search_spaces.knobs import Choice, Knob, KnobValue, Tiling, cover
from search_spaces.lowering import Emitter, Names, buffers
from search_spaces.space import Sketch, Values
from search_spaces.structure import ContractionForm, contraction_form
from search_spaces.target import Target
from search_spaces.tile_program import (
    Bound,
    Buffer,
    Dot,
    Fill,
    For,
    Grid,
    GridAxis,
    If,
    Kernel,
    Launch,
    Load,
    Panels,
    Slice,
    Statement,
    Store,
    Tile,
    TileProgram,
    View,
)
from search_spaces.workload import Workload

# Rows of a register tile; with two vectors per row, 14 fills the 32 registers of AVX-512.
REGISTER_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 13, 14, 16, 20, 24, 28)
REGISTER_VECTORS = (1, 2, 3, 4)
# Into how many pieces of about equal size a dimension is cut for the caches.
PIECES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
# Packed tiles of one program may take this much memory: beyond it packing cannot pay.
MAX_PACKED_BYTES = 64 * 2**20


def derive(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """One sketch for a float32 contraction with a pointwise epilogue on a CPU."""
    form = contraction_form(workload)
    if form is None or target.kind != "cpu":
        return ()
    return (
        Sketch(
            "tiled_dot_cpu",
            _knobs(form, target),
            lambda values: _lower(workload, form, target, values),
            ("m", "n", "k", "pack_a", "pack_b"),
            lambda values: _why_illegal(form, target, values),
        ),
    )


def _knobs(form: ContractionForm, target: Target) -> tuple[Knob, ...]:
    widths = tuple(v * target.lanes for v in REGISTER_VECTORS)
    heights = tuple(r for r in REGISTER_ROWS if r <= max(1, form.m.extent)) or (1,)
    packing_b: tuple[KnobValue, ...] = (False, True) if _runs_along(form.b, form.n.name) else (True,)
    return (
        Tiling("m", form.m.extent, ("grid", "cache", "register"), _three_levels(form.m.extent, heights)),
        Tiling("n", form.n.extent, ("grid", "cache", "register"), _three_levels(form.n.extent, widths)),
        Tiling("k", form.k.extent, ("loop", "cache"), _two_levels(form.k.extent)),
        Choice("pack_a", (False, True)),
        Choice("pack_b", packing_b),
        Choice("order", ("mn", "nm")),
        Choice("inner", ("ij", "ji")),
        Choice("unroll", (1, 2, 4, 8)),
    )


def _three_levels(extent: int, registers: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """(grid, cache, register): for each register extent, the cache level that cuts the extent into even pieces."""
    found = {
        cover(extent, (-(-(-(-extent // register)) // pieces), register))
        for register in registers
        for pieces in PIECES
        if pieces <= -(-extent // register)
    }
    return tuple(sorted(found))


def _two_levels(extent: int) -> tuple[tuple[int, ...], ...]:
    """(loop, cache): the reduction in even pieces, none shorter than 32 unless the whole is."""
    found = {cover(extent, (-(-extent // pieces),)) for pieces in PIECES if pieces == 1 or extent // pieces >= 32}
    return tuple(sorted(found))


def _runs_along(access: Access, axis: str) -> bool:
    """Whether neighbours along the axis are neighbours in memory."""
    return access.index[-1].terms[0][0] == axis


def _why_illegal(form: ContractionForm, target: Target, values: Values) -> str | None:
    (_, cache_m, rows), (_, cache_n, columns), (_, tile_k) = values["m"], values["n"], values["k"]  # type: ignore[misc]
    vectors = columns // target.lanes
    # Accumulators, one row of b, and one broadcast element of a must be in registers at once.
    need = rows * vectors + vectors + 1
    if need > target.registers_per_unit:
        return f"register tile {rows}x{columns} needs {need} vector registers; {target.name} has {target.registers_per_unit}"
    packed = 4 * tile_k * (rows * cache_m * bool(values["pack_a"]) + columns * cache_n * bool(values["pack_b"]))
    if packed > MAX_PACKED_BYTES:
        return f"packed tiles take {packed} bytes; at most {MAX_PACKED_BYTES} are allowed"
    return None


def _lower(workload: Workload, form: ContractionForm, target: Target, values: Values) -> TileProgram:
    m, n, (steps, _) = values["m"], values["n"], values["k"]  # type: ignore[misc]
    grid = [GridAxis(f"{x.name}.0", x.extent) for x in form.batch]
    tiles = [GridAxis("m.0", m[0]), GridAxis("n.0", n[0])]  # type: ignore[index]
    grid += reversed(tiles) if values["order"] == "nm" else tiles
    parts = _Parts(workload, form, values)
    loop = For("k.0", steps, tuple(parts.operands() + [parts.register_loops()]))
    launch = Launch(lanes=target.lanes, vectors=1)
    kernel = Kernel(workload.name, Grid(tuple(grid)), (loop,), launch)
    return TileProgram(workload.name, buffers(workload, *parts.workspaces()), (kernel,))


class _Parts:
    """The pieces of one lowered contraction; extents are those of the knobs' values."""

    def __init__(self, workload: Workload, form: ContractionForm, values: Values) -> None:
        self.workload, self.form, self.values = workload, form, values
        (self.grid_m, self.cache_m, self.rows) = values["m"]  # type: ignore[misc]
        (self.grid_n, self.cache_n, self.columns) = values["n"]  # type: ignore[misc]
        (self.steps, self.tile_k) = values["k"]  # type: ignore[misc]
        self.block_m, self.block_n = self.cache_m * self.rows, self.cache_n * self.columns
        self.outer = {x.name: Slice(Affine.of((f"{x.name}.0", 1))) for x in form.batch}

    def workspaces(self) -> tuple[Buffer, ...]:
        """Partial sums between turns of k.0, one register tile after another, when there is more than one turn."""
        if self.steps == 1:
            return ()
        batch = tuple(x.extent for x in self.form.batch)
        shape = (*batch, self.grid_m * self.cache_m, self.grid_n * self.cache_n, self.rows, self.columns)
        return (Buffer("partial", shape, "float32", "workspace"),)

    def operands(self) -> list[Statement]:
        """The cache tiles of a and b, packed or to be read in place."""
        form, values = self.form, self.values
        place = {
            **self.outer,
            form.m.name: Slice(Affine.of(("m.0", self.block_m)), self.block_m),
            form.n.name: Slice(Affine.of(("n.0", self.block_n)), self.block_n),
            form.k.name: Slice(Affine.of(("k.0", self.tile_k)), self.tile_k),
        }
        dtypes = {t.name: t.dtype for t in self.workload.inputs}

        def load(access: Access, name: str, panels: Panels | None) -> Load:
            slices = tuple(place[i.terms[0][0]] for i in access.index)
            kept = [(i.terms[0][0], s.extent) for i, s in zip(access.index, slices, strict=True)]
            axes = tuple(x for x, e in kept if e is not None)
            dst = Tile(name, axes, tuple(e for _, e in kept if e is not None), dtypes[access.tensor])
            return Load(dst, access.tensor, slices, panels=panels)

        a = load(form.a, "a", Panels(form.m.name, self.rows) if values["pack_a"] else None)
        b = load(form.b, "b", Panels(form.n.name, self.columns) if values["pack_b"] else None)
        return [a, b]

    def register_loops(self) -> For:
        """The loops over register tiles of the block, in the order of the knob `inner`."""
        form = self.form
        m_start, n_start = Affine.of(("m.0", self.block_m), ("i", self.rows)), Affine.of(("n.0", self.block_n), ("j", self.columns))
        body = tuple(self._register_tile(m_start, n_start))
        bounds = {"i": Bound(m_start, form.m.extent), "j": Bound(n_start, form.n.extent)}
        extents = {"i": self.cache_m, "j": self.cache_n}
        slow, fast = str(self.values["inner"])
        return For(slow, extents[slow], (For(fast, extents[fast], body, bound=bounds[fast]),), bound=bounds[slow])

    def _register_tile(self, m_start: Affine, n_start: Affine) -> list[Statement]:
        form = self.form
        c = Tile("c", (form.m.name, form.n.name), (self.rows, self.columns))
        clear = Fill(c, 0.0)
        views = [self._view("a", form.a, form.m.name, "i", self.rows), self._view("b", form.b, form.n.name, "j", self.columns)]
        unroll = self.values["unroll"]
        assert isinstance(unroll, int)
        dot = Dot(c, "a_panel", "b_panel", form.k.name, unroll=unroll)
        finish = self._finish(c, m_start, n_start)
        if self.steps == 1:
            return [clear, *views, dot, *finish]
        where = (
            *self.outer.values(),
            Slice(Affine.of(("m.0", self.cache_m), ("i", 1))),
            Slice(Affine.of(("n.0", self.cache_n), ("j", 1))),
            Slice(Affine(), self.rows),
            Slice(Affine(), self.columns),
        )
        begin = If("k.0", 0, (clear,), (Load(c, "partial", where),))
        end = If("k.0", self.steps - 1, tuple(finish), (Store("partial", where, "c"),))
        return [begin, *views, dot, end]

    def _view(self, tile: str, access: Access, axis: str, variable: str, width: int) -> View:
        """The panel of an operand that one register tile needs, over the whole reduction tile."""
        names = [i.terms[0][0] for i in access.index if i.terms[0][0] not in self.outer]
        pieces = {axis: Slice(Affine.of((variable, width)), width), self.form.k.name: Slice(Affine(), self.tile_k)}
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        shape = tuple(pieces[x].extent or 1 for x in names)
        dst = Tile(f"{tile}_panel", tuple(names), shape, dtypes[access.tensor])
        return View(dst, tile, tuple(pieces[x] for x in names))

    def _finish(self, c: Tile, m_start: Affine, n_start: Affine) -> list[Statement]:
        form = self.form
        place = {**self.outer, form.m.name: Slice(m_start, self.rows), form.n.name: Slice(n_start, self.columns)}
        names = Names({"a", "b", "c", "a_panel", "b_panel"})
        emitter = Emitter(place, {t.name: t.dtype for t in self.workload.inputs}, names, {form.contraction.name: c})
        result = emitter.tile(form.result, "out")
        emitter.store(self.workload.output.name, tuple(x.name for x in form.contraction.axes), result)
        return emitter.body
