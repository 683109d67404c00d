"""Executes tile programs with NumPy: the oracle that backends are tested against.

Tiles of floating-point numbers and booleans are kept in float32, and rounded where a program rounds; those of integers
in int64. Statements compute in their own types (`statements.Map.computed`). Tiles are arrays whose dimensions are the
tile's named axes; nothing here is fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search_spaces.programs.addressing import Address, dimensions
from search_spaces.programs.interpreting.combining import combined, held_as
from search_spaces.programs.interpreting.operations import FOLDS, OPERATIONS, Array
from search_spaces.programs.statements import (
    Deinterleave,
    Dot,
    Fill,
    For,
    Gather,
    If,
    Interleave,
    Let,
    Load,
    Map,
    Position,
    Prefetch,
    Reduce,
    Regroup,
    Scan,
    Split,
    Statement,
    Store,
    View,
    fold_identity,
    statements,
)
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from search_spaces.programs.tiles import Bound, Slice, Tile, sliced
from search_spaces.workloads.dtypes import is_integer, range_of, round_to

# Runs a kernel of a program on the buffers in memory.
Run = Callable[[Kernel, TileProgram, dict[str, Array]], None]


def interpret(program: TileProgram, inputs: Sequence[Array], run: Run | None = None) -> tuple[Array, ...]:
    """The outputs of the program for these inputs, rounded to their element types.

    `inputs` are in buffer order, of any element type; `run`: runs a kernel; by default, every program one after the
    other. Elements that no statement stores are NaN, the smallest integer, or True.
    """
    given = iter(inputs)
    memory: dict[str, Array] = {}
    for buffer in program.buffers:
        if buffer.role == "input":
            memory[buffer.name] = np.asarray(next(given), dtype=held_as(buffer.dtype)).reshape(buffer.shape)
        else:
            start = 0 if buffer.name in program.zeroed else _unwritten(buffer.dtype)
            memory[buffer.name] = np.full(buffer.shape, start, dtype=held_as(buffer.dtype))
    with np.errstate(all="ignore"):
        for kernel in program.kernels:
            (run or run_kernel)(kernel, program, memory)
    return tuple(round_to(memory[b.name], b.dtype) for b in program.buffers if b.role == "output")


@functools.cache
def _unwritten(name: str) -> float | int:
    return range_of(name)[0] if is_integer(name) else np.nan


def run_kernel(kernel: Kernel, program: TileProgram, memory: Mapping[str, Array]) -> None:
    moves = [s for s in statements(kernel.body) if isinstance(s, Load | Gather | Store)]
    places = {id(s): place_of(s, program, loop_extents(kernel)) for s in moves}
    grid = kernel.grid
    if grid.stream is None:
        for position in grid.order():
            OneProgram(places, memory, dict(position), {}, {}).run(kernel.body)
        return
    for tile, iterations in grid.shares():
        OneProgram(places, memory, grid.position(tile), {}, {grid.stream[0]: iterations}).run(kernel.body)


def place_of(s: Load | Gather | Store, program: TileProgram, extents: Mapping[str, int]) -> Address:
    buffer = program.buffer(s.buffer)
    return Address(buffer, dimensions(buffer, s.index if isinstance(s, Gather) else s.slices, extents))


@dataclass
class OneProgram:
    """One program of a grid: its loop variables, its tiles, and its iterations of the loop that the grid streams.

    `places`: the addresses at which statements read and write, by their identity.
    """

    places: Mapping[int, Address]
    memory: Mapping[str, Array]
    variables: dict[str, int]
    tiles: dict[str, tuple[Tile, Array]]
    streamed: Mapping[str, range]

    def run(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.step(statement)

    def step(self, s: Statement) -> None:
        match s:
            case Load():
                self._load(s)
            case Gather():
                self._gather(s)
            case Position():
                self.set(s.dst, self._placed(s.piece, s.dst.axes))
            case View():
                self.set(s.dst, self.tiles[s.src][1][tuple(self._placed(p, s.dst.axes) for p in s.slices)])
            case Fill():
                self.set(s.dst, np.full(s.dst.shape, s.value, dtype=held_as(s.dst.dtype)))
            case Dot():
                self._dot(s)
            case Map():
                values = self._cast(s) if s.operator == "cast" else OPERATIONS[s.operator](*self._arguments(s))
                self.set(s.dst, values if values.shape == s.dst.shape else np.broadcast_to(values, s.dst.shape))
            case Reduce():
                self._reduce(s)
            case Regroup():
                self.set(s.dst, self.tiles[s.src][1].reshape(s.dst.shape))
            case Scan():
                self._scan(s)
            case Split():
                tile, values = self.tiles[s.src]
                first, second = np.split(values, 2, axis=tile.axes.index(s.axis))
                self.set(s.first, first)
                self.set(s.second, second)
            case Deinterleave():
                tile, values = self.tiles[s.src]
                before = (slice(None),) * tile.axes.index(s.axis)
                for p, dst in enumerate(s.dst):
                    self.set(dst, values[(*before, slice(p, None, len(s.dst)))])
            case Interleave():
                along = s.dst.axes.index(s.axis)
                tiles = [_aligned(values, tile.axes, s.dst.axes) for tile, values in map(self.tiles.__getitem__, s.src)]
                outer, inner = s.dst.shape[:along], s.dst.shape[along + 1 :]
                runs = [t.reshape(*outer, -1, s.run, *inner) for t in tiles]
                self.set(s.dst, np.stack(runs, axis=along + 1).reshape(s.dst.shape))
            case Store():
                self._scatter(s)
            case Prefetch():
                pass
            case For():
                for value in self.streamed.get(s.variable, range(s.extent)):
                    self.begin(s, value)
                    if self.is_made(s, value):
                        self.run(s.body)
            case Let():
                self.variables[s.variable] = min(max(int(self.tiles[s.src][1]), 0), s.extent - 1)
            case If():
                self.run(s.then if self.variables[s.variable] == s.value else s.otherwise)

    def set(self, tile: Tile, values: Array) -> None:
        assert values.shape == tile.shape, f"{tile} got shape {values.shape}"
        self.tiles[tile.name] = (tile, np.asarray(values, dtype=held_as(tile.dtype)))

    def begin(self, loop: For, iteration: int) -> None:
        """Set the loop's variable, and those that are its digits."""
        self.variables[loop.variable] = iteration
        for name, flat in loop.digits.flats.items() if loop.digits else ():
            self.variables[name] = flat.of(flat.start.evaluate(self.variables))

    def is_made(self, loop: For, iteration: int) -> bool:
        earlier = any(all(map(self._within, group)) for group in loop.since)
        marked = not loop.marks or self.tiles[loop.marks][1][iteration] != 0
        return marked and not earlier and all(map(self._within, (loop.bound, *loop.useful, *loop.until)))

    def _within(self, bound: Bound | None) -> bool:
        return bound is None or bound.start.evaluate(self.variables) < bound.size

    def _arguments(self, s: Map) -> list[Array]:
        types = [held_as(s.computed)] * len(s.arguments)
        if s.operator == "where":
            types[0] = np.float32
        return [self._operand(a, s.dst).astype(t, copy=False) for a, t in zip(s.arguments, types, strict=True)]

    def _cast(self, s: Map) -> Array:
        values = self._operand(s.arguments[0], s.dst)
        # Values outside of 64-bit integers may become anything.
        return round_to(np.nan_to_num(values) if is_integer(s.dst.dtype) else values, s.dst.dtype)

    def _operand(self, argument: str | float | int, dst: Tile) -> Array:
        if isinstance(argument, float | int):
            return np.asarray(argument)
        tile, values = self.tiles[argument]
        return _aligned(values, tile.axes, dst.axes)

    def _dot(self, s: Dot) -> None:
        left, right = self.tiles[s.a], self.tiles[s.b]
        letters = {x: chr(ord("a") + i) for i, x in enumerate(dict.fromkeys((*left[0].axes, *right[0].axes)))}
        spec = ",".join("".join(letters[x] for x in t.axes) for t in (left[0], right[0]))
        result = "".join(letters[x] for x in s.dst.axes)
        # Sums of integers are exact; these fit 64 bits for all operands.
        operands = [t[1].astype(np.int64) if s.dst.dtype == "int32" else t[1] for t in (left, right)]
        product = np.einsum(f"{spec}->{result}", *operands)
        self.set(s.dst, self.tiles[s.dst.name][1] + product)

    def _reduce(self, s: Reduce) -> None:
        tile, values = self.tiles[s.src]
        values = values.astype(held_as(s.dst.dtype), copy=False)
        axis = tile.axes.index(s.axis)
        if s.bound is not None:
            piece = Slice(s.bound.start, tile.shape[axis], s.axis, skew=s.bound.skew)
            positions = self._placed(piece, tile.axes)
            left_out = fold_identity(s.operator, is_integer(s.dst.dtype))
            inside = (positions >= 0) & (positions < s.bound.size)
            values = np.where(inside, values, np.asarray(left_out, dtype=values.dtype))
        self.set(s.dst, FOLDS[s.operator](values, axis=axis))

    def _scan(self, s: Scan) -> None:
        """Scan one element after the other."""
        axis, combine = s.dsts[0].axes.index(s.axis), s.combine
        elements: list[Array] = []
        for name, dst in zip(s.srcs, s.dsts, strict=True):
            tile, values = self.tiles[name]
            elements.append(np.moveaxis(_aligned(values, tile.axes, dst.axes).astype(held_as(dst.dtype)), axis, 0))
        made = [np.empty_like(x) for x in elements]
        order = range(len(elements[0]))
        running: list[Array] = []
        for at in reversed(order) if s.reverse else order:
            right = [x[at] for x in elements]
            running = combined(combine, running, right) if running else right
            for whole, value in zip(made, running, strict=True):
                whole[at] = value
        for dst, whole in zip(s.dsts, made, strict=True):
            self.set(dst, np.moveaxis(whole, 0, axis))

    def _positions(self, piece: Slice) -> Array:
        count = np.arange(piece.extent or 1)
        if piece.flat is not None:
            counted = (piece.flat.start.evaluate(self.variables) + count) // piece.flat.divisor
            count = counted % piece.flat.size if piece.flat.size else counted
        found = piece.start.evaluate(self.variables) + piece.step * count
        for b in reversed(piece.before):
            found = np.where(self._positions(b.at) < b.size, self._positions(b.then), found)
        return found

    def _placed(self, piece: Slice, axes: tuple[str, ...]) -> Array:
        """The positions of a slice, shaped to broadcast to a tile with `axes`."""
        positions = self._positions(piece)
        placed = _aligned(positions, (piece.axis,), axes) if piece.axis else positions[0]
        if piece.skew is None:
            return placed
        behind = np.zeros((), np.int64)
        for row, apart in piece.skew.terms:
            behind = behind + apart * self._placed(row, axes)
        return placed - behind % piece.skew.vector

    def _load(self, s: Load) -> None:
        place, source = self.places[id(s)], self.memory[s.buffer]
        part = self._part(source, s.slices)
        if part is not None and s.dst.axes == tuple(sliced(s.slices)):
            self.set(s.dst, part.copy())
            return
        fill = s.fill
        if not s.guarded and any(piece.skew for piece in s.slices):
            # Any value may lie there, so one that shows.
            fill = _unwritten(place.buffer.dtype)
        self.set(s.dst, self._read(place, source, s.dst, fill))

    def _gather(self, s: Gather) -> None:
        place = self.places[id(s)]
        self.set(s.dst, self._read(place, self.memory[s.buffer], s.dst, s.outside(place.buffer.dtype)))

    def _read(self, place: Address, source: Array, dst: Tile, fill: float | int) -> Array:
        at, inside = self._elements(place, dst.axes)
        return np.broadcast_to(np.where(inside, source[at], np.asarray(fill, dtype=source.dtype)), dst.shape)

    def _elements(self, place: Address, axes: tuple[str, ...]) -> tuple[tuple[Array, ...], Array]:
        """An index for each dimension, and the elements that exist, shaped to broadcast to a tile with `axes`.

        Where nothing is to be tested, everything must exist.
        """
        index, inside = [], np.ones((), dtype=bool)
        for d in place.dimensions:
            if isinstance(d.index, str):
                tile, values = self.tiles[d.index]
                positions = _aligned(values, tile.axes, axes)
            else:
                positions = self._placed(d.index, axes)
            within = (positions >= 0) & (positions < d.size)
            if not d.is_clamped:
                assert d.tests or within.all(), f"{d.index} of {place.buffer.name} is outside, and not tested"
                inside = inside & within
            if not isinstance(d.index, str) and d.index.bound:
                bounded = Slice(d.index.bound.start, d.index.extent, d.index.axis)
                inside = inside & (self._placed(bounded, axes) < d.index.bound.size)
            near = np.clip(positions, 0, d.size - 1) if d.is_clamped else np.where(within, positions, 0)
            index.append(near.astype(np.int64))
        return tuple(index), inside

    def _part(self, source: Array, slices: Sequence[Slice]) -> Array | None:
        """The part that the slices select, if they are plain and all of it exists; otherwise None."""
        at: list[int | slice] = []
        for piece, size in zip(slices, source.shape, strict=True):
            start = piece.start.evaluate(self.variables)
            last = start + piece.step * ((piece.extent or 1) - 1)
            if piece.skew or piece.flat or piece.before or piece.bound or piece.step < 1 or start < 0 or last >= size:
                return None
            at.append(start if piece.extent is None else slice(start, last + 1, piece.step))
        return np.asarray(source[tuple(at)])

    def _scatter(self, s: Store) -> None:
        place, target = self.places[id(s)], self.memory[s.buffer]
        (tile, stored), element = self.tiles[s.src], place.buffer.dtype
        values = np.broadcast_to(_aligned(stored, tile.axes, s.axes), [*sliced(s.slices).values()])
        part = self._part(target, s.slices)
        if part is not None and values.ndim and not (s.atomic or s.where):
            part[...] = round_to(values, element)
            return
        index, inside = self._elements(place, s.axes)
        if s.where:
            chosen, marks = self.tiles[s.where]
            inside = inside & (_aligned(marks, chosen.axes, s.axes) != 0)
        there = np.broadcast_to(inside, values.shape)
        # One number, as a vector of one.
        at = tuple(np.broadcast_to(i, values.shape)[there] for i in index) or (np.zeros(1, dtype=np.int64),)
        target = target if index else target.reshape(1)
        new = round_to(values[there], element).astype(target.dtype)
        if s.atomic:
            np.add.at(target, at, new)
        else:
            target[at] = new


def _aligned(values: Array, axes: tuple[str, ...], target: tuple[str, ...]) -> Array:
    """The values with dimensions in the order of `target`, of size 1 for axes that they do not have."""
    values = np.asarray(values)
    if axes == target:
        return values
    kept = [x for x in target if x in axes]
    values = values.transpose([axes.index(x) for x in kept])
    sizes = dict(zip(kept, values.shape, strict=True))
    return values.reshape([sizes.get(x, 1) for x in target])
