"""Chained dots in Gluon: what is printed, that Triton compiles it without a GPU, what is refused, what a GPU computes.

Goldens are under goldens/triton, by test name; `pytest --update-goldens tests/test_gluon_walks.py` rewrites them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autosched.backends.triton.backend import TritonBackend
from search_spaces import target_named
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.statements import Dot, Fill, For, Load, Map, Position, Reduce, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.workloads.expressions.affine import Affine

BACKEND = TritonBackend()
H200 = target_named("h200")

FREE = Launch(num_warps=8, producer_warps=1, overlapped=True)
TURNS = replace(FREE, alternating=True)
IN_ORDER = replace(FREE, overlapped=False)


@dataclass(frozen=True)
class Attention:
    """out = softmax(q kᵀ / √d) v and the logarithm of its sums, of several heads; `causal`: what comes later is masked.

    Tiles of the boundary come first: there is always one.
    """

    heads: int = 4
    m: int = 512
    c: int = 512
    d: int = 64
    e: int = 64
    tile: tuple[int, int] = (128, 128)
    causal: bool = False
    logarithm: bool = False
    store: str = "descriptor"
    dtype: str = "bfloat16"
    launch: Launch = FREE
    stages: int = 2
    persistent: int | None = None

    def program(self) -> TileProgram:
        buffers = [
            Buffer("q", (self.heads, self.m, self.d), self.dtype, "input"),
            Buffer("k", (self.heads, self.c, self.d), self.dtype, "input"),
            Buffer("v", (self.heads, self.c, self.e), self.dtype, "input"),
            Buffer("out", (self.heads, self.m, self.e), self.dtype, "output"),
        ]
        if self.logarithm:
            buffers.append(Buffer("log", (self.heads, self.m), "float32", "output"))
        axes = (GridAxis("b.0", self.heads), GridAxis("m.0", -(-self.m // self.tile[0])))
        body = (*self._start(), *self._walk(), *self._end())
        kernel = Kernel("attention", Grid(axes, persistent=self.persistent), body, self.launch)
        return TileProgram("attention", tuple(buffers), (kernel,))

    @property
    def _head(self) -> Slice:
        return Slice(Affine.of(("b.0", 1)))

    @property
    def _rows(self) -> Slice:
        return Slice(Affine.of(("m.0", self.tile[0])), self.tile[0])

    def _row(self, name: str) -> Tile:
        return Tile(name, ("m",), (self.tile[0],))

    def _points(self, name: str, dtype: str = "float32") -> Tile:
        return Tile(name, ("m", "c"), self.tile, dtype)

    @property
    def _sums(self) -> Tile:
        return Tile("acc", ("m", "e"), (self.tile[0], self.e))

    def _start(self) -> list[Statement]:
        q = Tile("q", ("m", "d"), (self.tile[0], self.d), self.dtype)
        return [
            Load(q, "q", (self._head, self._rows, Slice(Affine(), self.d)), via="descriptor"),
            Fill(self._row("top"), -1e30),
            Fill(self._row("total"), 0.0),
            Fill(self._sums, 0.0),
        ]

    def _walk(self) -> list[Statement]:
        m, c = self.tile
        count = -(-self.c // c)
        if not self.causal:
            return [For("c.0", count, self._turn(Affine.of(("c.0", c)), False), pipeline_stages=self.stages)]
        # The tiles from the row tile's own on, of which later rows see a part, and those before.
        boundary = For("c.1", m // c, self._turn(Affine.of(("m.0", m), ("c.1", c)), True), self.stages)
        before = (Bound(Affine.of(("c.0", c), ("m.0", -m), offset=c), 1),)
        whole = For("c.0", count, self._turn(Affine.of(("c.0", c)), False), self.stages, useful=before)
        return [boundary, whole]

    def _turn(self, start: Affine, masked: bool) -> tuple[Statement, ...]:
        columns = Slice(start, self.tile[1])
        k = Tile("k", ("c", "d"), (self.tile[1], self.d), self.dtype)
        v = Tile("v", ("c", "e"), (self.tile[1], self.e), self.dtype)
        s, p = self._points("s"), self._points("p")
        at, seen = Tile("at", ("c",), (self.tile[1],)), self._row("seen")
        mask = [
            Position(at, columns),
            Position(seen, self._rows),
            Map(self._points("visible"), "le", ("at", "seen")),
            Map(s, "where", ("visible", "s", -math.inf)),
        ]
        return (
            Load(k, "k", (self._head, columns, Slice(Affine(), self.d)), via="descriptor"),
            Fill(s, 0.0),
            Dot(s, "q", "k", "d"),
            Map(s, "mul", ("s", math.log2(math.e) / math.sqrt(self.d))),
            *(mask if masked else []),
            Reduce(self._row("part"), "s", "c", "max"),
            Map(self._row("next"), "maximum", ("top", "part")),
            Map(self._row("rescale"), "sub", ("top", "next")),
            Map(self._row("rescale"), "exp2", ("rescale",)),
            Map(p, "sub", ("s", "next")),
            Map(p, "exp2", ("p",)),
            Reduce(self._row("sum"), "p", "c", "sum"),
            Map(self._row("total"), "mul", ("total", "rescale")),
            Map(self._row("total"), "add", ("total", "sum")),
            Map(self._sums, "mul", ("acc", "rescale")),
            Map(self._points("p16", self.dtype), "cast", ("p",)),
            Load(v, "v", (self._head, columns, Slice(Affine(), self.e)), via="descriptor"),
            Dot(self._sums, "p16", "v", "c"),
            Map(self._row("top"), "maximum", ("top", "next")),
        )

    def _end(self) -> list[Statement]:
        place = (self._head, self._rows, Slice(Affine(), self.e))
        out = [Map(self._sums, "div", ("acc", "total")), Store("out", place, "acc", via=self.store)]
        if not self.logarithm:
            return out
        log = self._row("log")
        return [
            *out,
            Map(log, "log", ("total",)),
            Map(self._row("scaled"), "mul", ("top", math.log(2))),
            Map(log, "add", ("log", "scaled")),
            Store("log", (self._head, self._rows), "log"),
        ]
