"""Tiles as Triton text: their names, and their text as operands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from autosched.backends.backend import CompileError
from autosched.backends.printing.scope import Block, Identifiers
from autosched.backends.triton.language import operators
from autosched.backends.triton.language.index import Along, expand
from search_spaces.programs.statements import Deinterleave, Interleave
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
# Above every index (`search_spaces.workloads.workload.MAX_EXTENT`), in float32.
_MAX_INDEX = 2.0**31


class Layouts(Protocol):
    """Layouts of tiles over threads, for languages whose text contains them."""

    def of(self, tile: Tile) -> str:
        """Layout argument of a new tile, after its shape and type; "" leaves it to the compiler."""
        ...

    def moved(self, text: str, tile: Tile, axes: tuple[str, ...]) -> str:
        """The text of a tile, as an operand of something with `axes`."""
        ...


class _TritonLayouts:
    def of(self, tile: Tile) -> str:
        return ""

    def moved(self, text: str, tile: Tile, axes: tuple[str, ...]) -> str:
        return text


TRITON_LAYOUTS = _TritonLayouts()


class Tiles:
    """The tiles of one kernel, by the names that its statements give them."""

    def __init__(
        self, tiles: Iterable[Tile], identifiers: Identifiers, block: Block, layouts: Layouts = TRITON_LAYOUTS
    ) -> None:
        self._layouts = layouts
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
        return self._full(tile, constant(value, tile.dtype))

    def repeat(self, tile: Tile, axes: Collection[str]) -> None:
        """Repeat along its other axes a tile that was written with these alone."""
        if missing := [a for a in tile.axes if a not in axes]:
            name = self.name(tile.name)
            whole = len(missing) == len(tile.axes)
            self.assign(tile, self._full(tile, name) if whole else f"tl.broadcast_to({name}, {list(tile.shape)})")

    def _full(self, tile: Tile, value: str) -> str:
        of = [str(list(tile.shape)), value, TRITON_TYPES[tile.dtype], self._layouts.of(tile)]
        return f"tl.full({', '.join(filter(None, of))})"

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
        return self._layouts.moved(text, tile, axes) + expand(order, axes)

    def take_apart(self, s: Deinterleave) -> None:
        """Deinterleave by halves of halves: `tl.split` separates every other element, along a last dimension of two."""
        source = self[s.src]
        at, parts = source.axes.index(s.axis), len(s.dst)
        shape = [*source.shape[:at], source.shape[at] // parts, parts, *source.shape[at + 1 :]]
        text = self.name(s.src)
        if at + 1 < len(source.axes):
            text += f".reshape({shape}).permute({[d for d in range(len(shape)) if d != at + 1] + [at + 1]})"
        self._halve(text, s.dst[0].shape, [self.name(tile.name) for tile in s.dst])

    def _halve(self, text: str, shape: tuple[int, ...], names: Sequence[str]) -> None:
        half = len(names) // 2
        if half == 1:
            self._block.write(f"{names[0]}, {names[1]} = tl.split({text}.reshape({[*shape, 2]}))")
            return
        even, odd = (self._identifiers.of(("half", n, half), f"{n}_of_{half}") for n in names[:2])
        self._block.write(f"{even}, {odd} = tl.split({text}.reshape({[*shape, half, 2]}))")
        self._halve(even, shape, names[::2])
        self._halve(odd, shape, names[1::2])

    def put_together(self, s: Interleave) -> None:
        at, parts = s.dst.axes.index(s.axis), len(s.src)
        shape = [*s.dst.shape]
        shape[at] //= parts
        text = self._joined([self.operand(self[name], s.dst.axes, s.dst.dtype) for name in s.src], shape)
        if s.run > 1:
            split = [*shape[:at], shape[at] // s.run, s.run, *shape[at + 1 :]]
            rank = len(split)
            text += f".reshape({[*split, parts]}).permute({[*range(at + 1), rank, *range(at + 1, rank)]})"
        elif at + 1 < len(shape):
            rank = len(shape)
            text += f".permute({[*range(at + 1), rank, *range(at + 1, rank)]})"
        self.assign(s.dst, f"{text}.reshape({list(s.dst.shape)})")

    def _joined(self, parts: Sequence[str], shape: list[int]) -> str:
        if len(parts) == 1:
            return parts[0]
        text = f"tl.join({self._joined(parts[::2], shape)}, {self._joined(parts[1::2], shape)})"
        return text if len(parts) == 2 else f"{text}.reshape({[*shape, len(parts)]})"

    def as_index(self, tile: Tile, axes: tuple[str, ...]) -> Along:
        """The tile's values as integers of 64 bits, in the order of `axes`; impossible indices, such as NaN, as -1."""
        name = self._identifiers.of(("index", tile.name), f"{tile.name}_at")
        order = tuple(a for a in axes if a in tile.axes)
        value = self.operand(tile, order, tile.dtype)
        if is_float(tile.dtype):
            value = f"tl.where(({value} >= 0) & ({value} < {_MAX_INDEX:.1f}), {value}, -1.0)"
        self._block.write(f"{name} = {value}.to(tl.int64)")
        return Along(name, order)


def constant(value: float | int, dtype: str) -> str:
    return str(int(value)) if dtype in ("int32", "int64") else operators.constant(value)
