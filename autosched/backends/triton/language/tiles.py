"""Tiles as Triton text: their names, and what they are as operands."""

from __future__ import annotations

from collections.abc import Iterable

from autosched.backends.backend import CompileError
from autosched.backends.triton.language import operators
from autosched.backends.triton.language.index import Along, expand
from autosched.backends.triton.language.scope import Block, Identifiers
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import is_float

TRITON_TYPES = {
    "float64": "tl.float64",
    "float32": "tl.float32",
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "float8_e4m3fn": "tl.float8e4nv",
    "float8_e5m2": "tl.float8e5",
    "int8": "tl.int8",
    "int16": "tl.int16",
    "int32": "tl.int32",
    "int64": "tl.int64",
    "uint8": "tl.uint8",
    "bool": "tl.int8",
}
# Above every index (`search_spaces.workloads.workload.MAX_ELEMENTS`), in float32.
_MAX_INDEX = 2.0**31


class Tiles:
    """The tiles of one kernel, by the names that its statements give them."""

    def __init__(self, tiles: Iterable[Tile], identifiers: Identifiers, block: Block) -> None:
        self._tiles = {tile.name: tile for tile in tiles}
        self._identifiers = identifiers
        self._block = block

    def __getitem__(self, name: str) -> Tile:
        return self._tiles[name]

    def add(self, tiles: Iterable[Tile]) -> None:
        self._tiles |= {tile.name: tile for tile in tiles}

    def name(self, tile: str) -> str:
        return self._identifiers.of(("tile", tile), tile)

    def assign(self, dst: Tile, text: str) -> None:
        self._block.write(f"{self.name(dst.name)} = {text}")

    def full(self, tile: Tile, value: float | int) -> str:
        return f"tl.full({list(tile.shape)}, {constant(value, tile.dtype)}, {TRITON_TYPES[tile.dtype]})"

    def operand(self, tile: Tile, axes: tuple[str, ...], dtype: str) -> str:
        """A tile as an operand of something with `axes`: cast, its axes in that order, missing ones inserted."""
        text = self.name(tile.name)
        if tile.dtype != dtype:
            # Before compute capability 8.0 there is no instruction from float16 to bfloat16, and Triton prints it.
            wide = ".to(tl.float32)" if (tile.dtype, dtype) == ("float16", "bfloat16") else ""
            text = f"({text} != 0).to(tl.int8)" if dtype == "bool" else f"{text}{wide}.to({TRITON_TYPES[dtype]})"
        order = tuple(a for a in axes if a in tile.axes)
        if len(order) != len(tile.axes):
            raise CompileError(f"tile {tile.name} has axes {list(tile.axes)}; expected some of {list(axes)}")
        if order != tile.axes:
            text = f"tl.permute({text}, {[tile.axes.index(a) for a in order]})"
        return text + expand(order, axes)

    def as_index(self, tile: Tile, axes: tuple[str, ...]) -> Along:
        """The tile's values as integers of 64 bits, in the order of `axes`; what cannot be an index, NaN say, as -1."""
        name = self._identifiers.of(("index", tile.name), f"{tile.name}_at")
        order = tuple(a for a in axes if a in tile.axes)
        value = self.operand(tile, order, tile.dtype)
        if is_float(tile.dtype):
            value = f"tl.where(({value} >= 0) & ({value} < {_MAX_INDEX:.1f}), {value}, -1.0)"
        self._block.write(f"{name} = {value}.to(tl.int64)")
        return Along(name, order)


def constant(value: float | int, dtype: str) -> str:
    return str(int(value)) if dtype in ("int32", "int64") else operators.constant(value)
