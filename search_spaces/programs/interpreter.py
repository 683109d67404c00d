"""Executes tile programs with NumPy: the oracle that backends are tested against.

Tiles of floating-point numbers and booleans are held in float32, and rounded where a program rounds; those of integers
in int64. What a statement computes in is what it says (`tile_program.Map.computed`).
Tiles are arrays whose dimensions are the tile's named axes; nothing here is fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search_spaces.programs.tile_program import (
    Bound,
    Buffer,
    Combination,
    Dot,
    Fill,
    For,
    Gather,
    If,
    Kernel,
    Load,
    Map,
    Position,
    Prefetch,
    Reduce,
    Scan,
    Slice,
    Split,
    Statement,
    Store,
    Tile,
    TileProgram,
    View,
    identity,
)
from search_spaces.workloads.dtypes import is_integer, range_of, round_to

Array = np.ndarray


def _by_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python's own, which NumPy does not have."""

    def computed(x: Array) -> Array:
        return np.array([function(v) for v in x.reshape(-1).tolist()], dtype=np.float64).reshape(x.shape)

    return _rounded_once(computed)


def _rounded_once(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function computed in float64."""
    return lambda *x: np.asarray(function(*(np.asarray(v, np.float64) for v in x)), np.float32)


def _lgamma(x: float) -> float:
    is_pole = x <= 0 and x == math.floor(x) if math.isfinite(x) else x == -math.inf
    return math.inf if is_pole else math.lgamma(x)


def _erfcx(x: float) -> float:
    """exp(x^2) erfc(x), by its asymptotic series where erfc is nearly 0."""
    if x < -26:
        return math.inf
    if x < 25:
        return math.exp(x * x) * math.erfc(x)
    y = 0.5 / (x * x)
    return (1 - y * (1 - 3 * y * (1 - 5 * y))) / (x * math.sqrt(math.pi))


def _digamma(x: float) -> float:
    """As PyTorch defines it: at 0 the infinity of the other sign, at other poles NaN."""
    if x == 0:
        return -math.copysign(math.inf, x)
    if x < 0:
        return math.nan if x == -math.inf or x == math.floor(x) else _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    lower = 0.0
    while x < 12:
        lower, x = lower + 1 / x, x + 1
    y = 1 / (x * x)
    return math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132)))) - lower


def _where(condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition != 0, a, b)


def _quotient(a: Array, b: Array) -> Array:
    """Cut towards 0; by 0, the dividend."""
    a, b = np.broadcast_arrays(a, b)
    by_one = (b == 0) | (b == 1)
    # The one quotient that does not fit is -2^63 / -1, which wraps around.
    divisor = np.where(by_one | (b == -1), 1, b)
    down = a // divisor
    cut = down + ((down < 0) & (down * divisor != a))
    return np.where(b == -1, -a, cut)


def _shift_left(a: Array, b: Array) -> Array:
    return np.where((b < 0) | (b > 63), 0, np.left_shift(a, np.clip(b, 0, 63)))


def _shift_right(a: Array, b: Array) -> Array:
    return np.asarray(np.right_shift(a, np.where((b < 0) | (b > 63), 63, b)))


OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "tanh": np.tanh,
    **dict.fromkeys(("erf", "erf_relative"), _by_element(math.erf)),
    "sin": np.sin,
    "cos": np.cos,
    **{
        name: _rounded_once(getattr(np, name))
        for name in ("exp2", "log2", "log10", "expm1", "log1p", "sinh", "cosh", "hypot", "fmod")
    },
    **{
        name: _rounded_once(getattr(np, name.replace("a", "arc", 1)))
        for name in ("asinh", "acosh", "atanh", "asin", "acos", "atan", "atan2")
    },
    "pow": _rounded_once(np.power),
    "tan": _rounded_once(np.tan),
    "erfc": _by_element(math.erfc),
    "erfcx": _by_element(_erfcx),
    "lgamma": _by_element(_lgamma),
    "digamma": _by_element(_digamma),
    "floor": np.floor,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "where": _where,
    "quotient": _quotient,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "cast": lambda x: x,
}
_FOLDS: dict[str, Callable[..., Array]] = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


def interpret(program: TileProgram, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The outputs of the program for these inputs (in buffer order; any type that holds them), rounded to their dtypes.

    Elements that no statement stores come out as NaN, in an output of integers as the smallest, as True in one of
    booleans.
    """
    given = iter(inputs)
    memory: dict[str, Array] = {}
    for buffer in program.buffers:
        if buffer.role == "input":
            memory[buffer.name] = np.asarray(next(given), dtype=_held_as(buffer.dtype)).reshape(buffer.shape)
        else:
            start = 0 if buffer.name in program.zeroed else _unwritten(buffer.dtype)
            memory[buffer.name] = np.full(buffer.shape, start, dtype=_held_as(buffer.dtype))
    with np.errstate(all="ignore"):
        for kernel in program.kernels:
            _run_kernel(kernel, program, memory)
    return tuple(round_to(memory[b.name], b.dtype) for b in program.buffers if b.role == "output")


def _held_as(dtype: str) -> type[np.float32 | np.int64]:
    """The NumPy type of tiles and memory of an element type."""
    return np.int64 if is_integer(dtype) else np.float32


def _unwritten(name: str) -> float | int:
    return range_of(name)[0] if is_integer(name) else np.nan


def _run_kernel(kernel: Kernel, program: TileProgram, memory: Mapping[str, Array]) -> None:
    buffers = {b.name: b for b in program.buffers}
    grid = kernel.grid
    if grid.stream is None:
        for position in grid.order():
            _Program(buffers, memory, dict(position), {}, {}).run(kernel.body)
        return
    for tile, iterations in grid.shares():
        _Program(buffers, memory, grid.position(tile), {}, {grid.stream[0]: iterations}).run(kernel.body)


@dataclass
class _Program:
    """One program of a grid: its loop variables, its tiles, and its iterations of the loop that the grid streams."""

    buffers: Mapping[str, Buffer]
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
                self._set(s.dst, self._sliced(self.memory[s.buffer], s.slices, s.fill))
            case Gather():
                self._gather(s)
            case Position():
                self._set(s.dst, self._positions(s.piece).reshape(s.dst.shape))
            case View():
                self._set(s.dst, self._sliced(self.tiles[s.src][1], s.slices, 0.0))
            case Fill():
                self._set(s.dst, np.full(s.dst.shape, s.value, dtype=_held_as(s.dst.dtype)))
            case Dot():
                self._dot(s)
            case Map():
                values = self._cast(s) if s.operator == "cast" else OPERATIONS[s.operator](*self._arguments(s))
                self._set(s.dst, np.broadcast_to(values, s.dst.shape))
            case Reduce():
                self._reduce(s)
            case Scan():
                self._scan(s)
            case Split():
                tile, values = self.tiles[s.src]
                first, second = np.split(values, 2, axis=tile.axes.index(s.axis))
                self._set(s.first, first)
                self._set(s.second, second)
            case Store():
                self._scatter(s)
            case Prefetch():
                pass
            case For():
                for value in self.streamed.get(s.variable, range(s.extent)):
                    self.variables[s.variable] = value
                    if all(map(self._within, (s.bound, *s.useful))):
                        self.run(s.body)
            case If():
                self.run(s.then if self.variables[s.variable] == s.value else s.otherwise)

    def _set(self, tile: Tile, values: Array) -> None:
        assert values.shape == tile.shape, f"{tile} got shape {values.shape}"
        self.tiles[tile.name] = (tile, np.asarray(values, dtype=_held_as(tile.dtype)))

    def _within(self, bound: Bound | None) -> bool:
        return bound is None or bound.start.evaluate(self.variables) < bound.size

    def _arguments(self, s: Map) -> list[Array]:
        types = [_held_as(s.computed)] * len(s.arguments)
        if s.operator == "where":
            types[0] = np.float32
        return [self._operand(a, s.dst).astype(t, copy=False) for a, t in zip(s.arguments, types, strict=True)]

    def _cast(self, s: Map) -> Array:
        values = self._operand(s.arguments[0], s.dst)
        # Of what is no integer of 64 bits anything may become.
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
        # Sums of integers are exact; these fit 64 bits whatever the operands are.
        operands = [t[1].astype(np.int64) if s.dst.dtype == "int32" else t[1] for t in (left, right)]
        product = np.einsum(f"{spec}->{result}", *operands)
        self._set(s.dst, self.tiles[s.dst.name][1] + product)

    def _reduce(self, s: Reduce) -> None:
        tile, values = self.tiles[s.src]
        values = values.astype(_held_as(s.dst.dtype), copy=False)
        axis = tile.axes.index(s.axis)
        if s.bound is not None:
            inside = np.arange(tile.shape[axis]) + s.bound.start.evaluate(self.variables) < s.bound.size
            shape = [-1 if d == axis else 1 for d in range(values.ndim)]
            left_out = identity(s.operator, is_integer(s.dst.dtype))
            values = np.where(inside.reshape(shape), values, np.asarray(left_out, dtype=values.dtype))
        self._set(s.dst, _FOLDS[s.operator](values, axis=axis))

    def _scan(self, s: Scan) -> None:
        """One element after the other."""
        axis, combine = s.dsts[0].axes.index(s.axis), s.combine
        elements: list[Array] = []
        for name, dst in zip(s.srcs, s.dsts, strict=True):
            tile, values = self.tiles[name]
            elements.append(np.moveaxis(_aligned(values, tile.axes, dst.axes).astype(_held_as(dst.dtype)), axis, 0))
        made = [np.empty_like(x) for x in elements]
        order = range(len(elements[0]))
        running: list[Array] = []
        for at in reversed(order) if s.reverse else order:
            right = [x[at] for x in elements]
            running = self._combined(combine, running, right) if running else right
            for whole, value in zip(made, running, strict=True):
                whole[at] = value
        for dst, whole in zip(s.dsts, made, strict=True):
            self._set(dst, np.moveaxis(whole, 0, axis))

    def _combined(self, combine: Combination, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        """The values of the tiles are elements, which may be many at once."""
        given = zip((*combine.left, *combine.right), (*left, *right), strict=True)
        values = {tile.name: x.astype(_held_as(tile.dtype)) for tile, x in given}
        for s in combine.body:
            types = [_held_as(s.computed)] * len(s.arguments)
            types[0] = np.float32 if s.operator == "where" else types[0]
            named = [values[a] if isinstance(a, str) else np.asarray(a) for a in s.arguments]
            arguments = [x.astype(t) for x, t in zip(named, types, strict=True)]
            if s.operator == "cast":
                made = round_to(np.nan_to_num(named[0]) if is_integer(s.dst.dtype) else named[0], s.dst.dtype)
            else:
                made = OPERATIONS[s.operator](*arguments)
            values[s.dst.name] = np.asarray(made, dtype=_held_as(s.dst.dtype))
        return [values[name] for name in combine.results]

    def _positions(self, piece: Slice) -> Array:
        return piece.start.evaluate(self.variables) + piece.step * np.arange(piece.extent or 1)

    def _indices(self, slices: Sequence[Slice]) -> list[Array]:
        """One index array per dimension, shaped to broadcast to the sliced dimensions."""
        sliced = [i for i, piece in enumerate(slices) if piece.extent is not None]
        result = []
        for i, piece in enumerate(slices):
            index = self._positions(piece)
            shape = [1] * len(sliced)
            if piece.extent is not None:
                shape[sliced.index(i)] = -1
            result.append(index.reshape(shape))
        return result

    def _gather(self, s: Gather) -> None:
        source = self.memory[s.buffer]
        sliced = iter(s.axes)
        inside: Array = np.ones((), dtype=bool)
        at: list[Array] = []
        for index, size in zip(s.index, source.shape, strict=True):
            if isinstance(index, str):
                tile, values = self.tiles[index]
                axes = tile.axes
            else:
                values = self._positions(index)
                axes = (next(sliced),) if index.extent is not None else ()
                values = values if axes else values[0]
            positions = _aligned(values, axes, s.dst.axes)
            within = (positions >= 0) & (positions < size)
            inside = inside & within
            at.append(np.where(within, positions, 0).astype(np.int64))
        fill = np.asarray(s.outside(self.buffers[s.buffer].dtype), dtype=source.dtype)
        self._set(s.dst, np.broadcast_to(np.where(inside, source[tuple(at)], fill), s.dst.shape))

    def _sliced(self, source: Array, slices: Sequence[Slice], fill: float | int) -> Array:
        index = self._indices(slices)
        inside = np.ones((), dtype=bool)
        for i, size, piece in zip(index, source.shape, slices, strict=True):
            if not piece.clamped:
                inside = inside & (i >= 0) & (i < size)
        clipped = tuple(np.clip(i, 0, size - 1) for i, size in zip(index, source.shape, strict=True))
        return np.where(inside, source[clipped], np.asarray(fill, dtype=source.dtype))

    def _scatter(self, s: Store) -> None:
        target, buffer = self.memory[s.buffer], self.buffers[s.buffer]
        index = self._indices(s.slices)
        extents = [piece.extent for piece in s.slices if piece.extent is not None]
        tile, stored = self.tiles[s.src]
        values = np.broadcast_to(stored.transpose([tile.axes.index(x) for x in s.axes or tile.axes]), extents)
        full = [np.broadcast_to(i, values.shape).reshape(-1) for i in index]
        if not full:
            # One number, as a vector of one.
            target, full = target.reshape(1), [np.zeros(1, dtype=np.int64)]
        inside = np.ones(values.size, dtype=bool)
        for i, size in zip(full, target.shape, strict=True):
            inside &= (i >= 0) & (i < size)
        at = tuple(i[inside] for i in full)
        new = round_to(values.reshape(-1)[inside], buffer.dtype).astype(target.dtype)
        if s.atomic:
            np.add.at(target, at, new)
        else:
            target[at] = new


def _aligned(values: Array, axes: tuple[str, ...], target: tuple[str, ...]) -> Array:
    """The values with dimensions in the order of `target`, of size 1 for axes that they do not have."""
    kept = [x for x in target if x in axes]
    values = np.asarray(values).transpose([axes.index(x) for x in kept])
    sizes = dict(zip(kept, values.shape, strict=True))
    return values.reshape([sizes.get(x, 1) for x in target])
