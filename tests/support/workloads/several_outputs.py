"""Workloads with several outputs of different shapes and element types, and programs for them written by hand."""

from __future__ import annotations

from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import buffers
from search_spaces.programs.statements import Load, Map, Reduce, Statement, Store
from search_spaces.programs.tile_program import Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Literal

ROWS, COLUMNS = 13, 40
# What a program of the grid has of them: neither divides.
TILE_ROWS, TILE_COLUMNS = 4, 64
R, C = Axis("r", ROWS), Axis("c", COLUMNS)
WHOLE = (axis_index("r"), axis_index("c"))


def added(dtype: str = "bfloat16", strides: tuple[int, ...] | None = None, rows: int = ROWS) -> Workload:
    """total = x + y, rounded, and the largest total of every row, of the rounded ones: in float32."""
    r = Axis("r", rows)
    rounded = ex.add(Access("x", WHOLE), Access("y", WHOLE))
    rounded = rounded if dtype == "float32" else ex.call(f"round_{dtype}", rounded)
    return Workload(
        "added",
        (Tensor("x", (rows, COLUMNS), dtype), Tensor("y", (rows, COLUMNS), dtype)),
        (
            Stage("total", (r, C), rounded, dtype=dtype),
            Stage("largest", (r,), Access("total", WHOLE), Reduction("max", (C,))),
        ),
        output_names=("total", "largest"),
        output_strides=(strides, None),
    )


def compared(strides: tuple[tuple[int, ...] | None, ...] = (None, None, None)) -> Workload:
    """Of x: e^x, whether it is positive, and 3 x rounded to float16."""
    x = Access("x", WHOLE)
    return Workload(
        "compared",
        (Tensor("x", (ROWS, COLUMNS), "float32"),),
        (
            Stage("power", (R, C), ex.call("exp", x)),
            Stage("positive", (R, C), ex.call("lt", Literal(0.0), x), dtype="bool"),
            Stage("tripled", (R, C), ex.mul(x, Literal(3.0)), dtype="float16"),
        ),
        output_names=("power", "positive", "tripled"),
        output_strides=strides,
    )


# Rows with gaps; the other way round; dense.
STRIDED = ((50, 1), (1, ROWS), None)


def program_of(workload: Workload, lanes: int = 4) -> TileProgram:
    """One kernel that computes and stores all outputs, a few rows a program."""
    body = _added(workload) if workload.name == "added" else _compared(workload)
    rows = workload.inputs[0].shape[0]
    grid = Grid((GridAxis("r.0", -(-rows // TILE_ROWS)),))
    launch = Launch(num_warps=1, lanes=lanes, vectors=1)
    return TileProgram(workload.name, buffers(workload), (Kernel(workload.name, grid, body, launch),))


def _place(steps: tuple[str, ...] = ("r", "c")) -> tuple[Slice, ...]:
    own = {"r": Slice(Affine.of(("r.0", TILE_ROWS)), TILE_ROWS, "r"), "c": Slice(Affine(), TILE_COLUMNS, "c")}
    return tuple(own[s] for s in steps)


def _tile(name: str, dtype: str = "float32") -> Tile:
    return Tile(name, ("r", "c"), (TILE_ROWS, TILE_COLUMNS), dtype)


def _added(workload: Workload) -> tuple[Statement, ...]:
    dtype = workload.outputs[0].dtype
    return (
        Load(_tile("x", dtype), "x", _place()),
        Load(_tile("y", dtype), "y", _place()),
        Map(_tile("sum"), "add", ("x", "y")),
        Map(_tile("rounded", dtype), "cast", ("sum",)),
        Store("total", _place(), "rounded"),
        Reduce(Tile("top", ("r",), (TILE_ROWS,)), "rounded", "c", "max", Bound(Affine(), COLUMNS)),
        Store("largest", _place(("r",)), "top"),
    )


def _compared(workload: Workload) -> tuple[Statement, ...]:
    powers = [name for name in workload.output_names if name not in ("positive", "tripled")]
    body = (
        Load(_tile("x"), "x", _place()),
        Map(_tile("e"), "exp", ("x",)),
        *(Store(name, _place(), "e") for name in powers),
        Map(_tile("above"), "lt", (0.0, "x")),
        Store("positive", _place(), "above"),
        Map(_tile("three"), "mul", ("x", 3.0)),
        Store("tripled", _place(), "three"),
    )
    return tuple(s for s in body if not isinstance(s, Store) or s.buffer in workload.output_names)
