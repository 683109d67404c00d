"""Tile programs written by hand: products, a softmax, pointwise functions, and numbers to run them on."""

from __future__ import annotations

import math

import numpy as np

from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.statements import Dot, Fill, For, Load, Map, Reduce, Split, Store, produced, statements
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.workloads.expressions.affine import Affine


def at(*terms: tuple[str, int], offset: int = 0, extent: int | None = None, axis: str = "") -> Slice:
    """A slice of an extent is along the axis, or without its name along that of the first variable."""
    named = axis or next((variable.split(".")[0] for variable, _ in terms), "")
    return Slice(Affine.of(*terms, offset=offset), extent, named if extent is not None else "")


def matmul_program(
    m: int,
    n: int,
    k: int,
    dtype: str = "float16",
    layout: str = "nn",
    via: str = "pointer",
    halves: bool = False,
    group: int = 0,
    persistent: int | None = None,
    flatten: bool = False,
    tile: tuple[int, int, int] = (32, 32, 16),
) -> TileProgram:
    """out = relu(a @ b), with `a` stored as k x m for layout "t?" and `b` as n x k for layout "?t"."""
    tile_m, tile_n, tile_k = tile
    rows, columns, steps = at(("m.0", tile_m), extent=tile_m), at(("n.0", tile_n), extent=tile_n), -(-k // tile_k)
    depth = at(("k.0", tile_k), extent=tile_k)
    a_axes = (("m", m, rows), ("k", k, depth)) if layout[0] == "n" else (("k", k, depth), ("m", m, rows))
    b_axes = (("k", k, depth), ("n", n, columns)) if layout[1] == "n" else (("n", n, columns), ("k", k, depth))

    def load(name, axes):
        dst = Tile(f"{name}_tile", tuple(x for x, _, _ in axes), tuple(s.extent for _, _, s in axes), dtype)
        return Load(dst, name, tuple(s for _, _, s in axes), via=via)

    acc = Tile("acc", ("m", "n"), (tile_m, tile_n))
    loop = For(
        "k.0",
        steps,
        (load("a", a_axes), load("b", b_axes), Dot(acc, "a_tile", "b_tile", "k")),
        pipeline_stages=3,
        flatten=flatten,
    )
    body = [Fill(acc, 0.0), loop]
    if halves:
        left, right = (Tile(name, ("m", "n"), (tile_m, tile_n // 2)) for name in ("left", "right"))
        body.append(Split(left, right, "acc", "n"))
        for part, offset in ((left, 0), (right, tile_n // 2)):
            where = (rows, at(("n.0", tile_n), offset=offset, extent=tile_n // 2))
            body += [Map(part, "maximum", (part.name, 0.0)), Store("out", where, part.name, via=via)]
    else:
        body += [Map(acc, "maximum", ("acc", 0.0)), Store("out", (rows, columns), "acc", via=via)]
    grid = Grid(
        (GridAxis("m.0", -(-m // tile_m)), GridAxis("n.0", -(-n // tile_n))),
        ("m.0", group) if group else None,
        persistent,
    )
    buffers = (
        Buffer("a", tuple(e for _, e, _ in a_axes), dtype, "input"),
        Buffer("b", tuple(e for _, e, _ in b_axes), dtype, "input"),
        Buffer("out", (m, n), dtype, "output"),
    )
    return TileProgram("matmul", buffers, (Kernel("matmul", grid, tuple(body), Launch(num_warps=4, num_stages=3)),))


def split_matmul_program(m: int, n: int, k: int, splits: int) -> TileProgram:
    """out += a @ b over a part of k in each program, with atomic adds; turns beyond k are left out by a bound."""
    per_split = -(-k // (16 * splits))
    depth = at(("k.0", 16), ("s", 16 * per_split), extent=16)
    rows, columns = at(("m.0", 16), extent=16), at(("n.0", 16), extent=16)
    acc = Tile("acc", ("m", "n"), (16, 16))
    loop = For(
        "k.0",
        per_split,
        (
            Load(Tile("a", ("m", "k"), (16, 16)), "a", (rows, depth)),
            Load(Tile("b", ("k", "n"), (16, 16)), "b", (depth, columns)),
            Dot(acc, "a", "b", "k"),
        ),
        bound=Bound(depth.start, k),
    )
    body = (Fill(acc, 0.0), loop, Store("out", (rows, columns), "acc", atomic=True))
    grid = Grid((GridAxis("s", splits), GridAxis("m.0", -(-m // 16)), GridAxis("n.0", -(-n // 16))))
    buffers = tuple(
        Buffer(name, shape, "float32", role)
        for name, shape, role in (("a", (m, k), "input"), ("b", (k, n), "input"), ("out", (m, n), "output"))
    )
    return TileProgram("split", buffers, (Kernel("split", grid, body),), zeroed=("out",))


def softmax_program(rows: int, columns: int, height: int, width: int, dtype: str = "float32") -> TileProgram:
    """Row softmax in two passes over the columns: running maximum and sum, then the quotient."""
    where = (at(("r.0", height), extent=height), at(("c.0", width), extent=width))
    bound = Bound(where[1].start, columns)
    x = Tile("x", ("r", "c"), (height, width), dtype)
    top, new, total, scale, part = (Tile(t, ("r",), (height,)) for t in ("top", "new", "total", "scale", "part"))
    e = Tile("e", ("r", "c"), (height, width))
    first = For(
        "c.0",
        -(-columns // width),
        (
            Load(x, "x", where, fill=-math.inf),
            Reduce(part, "x", "c", "max", bound),
            Map(new, "maximum", ("top", "part")),
            Map(scale, "sub", ("top", "new")),
            Map(scale, "exp", ("scale",)),
            Map(total, "mul", ("total", "scale")),
            Map(e, "sub", ("x", "new")),
            Map(e, "exp", ("e",)),
            Reduce(part, "e", "c", "sum", bound),
            Map(total, "add", ("total", "part")),
            Map(top, "maximum", ("top", "new")),
        ),
    )
    second = For(
        "c.0",
        -(-columns // width),
        (
            Load(x, "x", where, eviction="evict_first"),
            Map(e, "sub", ("x", "top")),
            Map(e, "exp", ("e",)),
            Map(e, "div", ("e", "total")),
            Store("out", where, "e", streaming=True),
        ),
    )
    body = (Fill(top, -1e30), Fill(total, 0.0), first, second)
    buffers = (Buffer("x", (rows, columns), dtype, "input"), Buffer("out", (rows, columns), dtype, "output"))
    kernel = Kernel("softmax", Grid((GridAxis("r.0", -(-rows // height)),)), body)
    return TileProgram("softmax", buffers, (kernel,))


def pointwise_program(elements: int, operator: str, *more: float, width: int = 64) -> TileProgram:
    """out = operator(x, constants), one tile of `width` a program."""
    where = (at(("i.0", width), extent=width),)
    x, y = Tile("x", ("i",), (width,)), Tile("y", ("i",), (width,))
    body = (Load(x, "x", where), Map(y, operator, ("x", *more)), Store("out", where, "y"))
    buffers = (Buffer("x", (elements,), "float32", "input"), Buffer("out", (elements,), "float32", "output"))
    kernel = Kernel(operator, Grid((GridAxis("i.0", -(-elements // width)),)), body)
    return TileProgram(operator, buffers, (kernel,))


def random_inputs(program: TileProgram, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {b.name: rng.standard_normal(b.shape).astype(b.dtype) for b in program.buffers if b.role == "input"}


def largest_tile(program: TileProgram) -> int:
    """The elements of the largest tile that a program makes, by which compilers take longer."""
    return max(tile.elements for k in program.kernels for s in statements(k.body) for tile in produced(s))
