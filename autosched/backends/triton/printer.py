"""Tile programs as Triton source: one `@triton.jit` function per kernel, every size a constant.

The text is a pure function of the program and the comment. It runs on Triton 3.6 to 3.9: plain pointers and tensor
descriptors, no block pointers. Arguments of a kernel are pointers, then descriptors (see `triton.arguments`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autosched.backends.backend import CompileError
from autosched.backends.triton.arguments import arguments, described, descriptor, loading_descriptor
from autosched.backends.triton.language import operators
from autosched.backends.triton.language.folds import folded_tiles
from autosched.backends.triton.language.grid import print_grid, stream_iterations
from autosched.backends.triton.language.index import Along, Indexing, expand
from autosched.backends.triton.language.scope import Block, Identifiers, Scope, call, identifier
from search_spaces.programs.tile_program import (
    Bound,
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
    loop_extents,
    produced,
    statements,
)
from search_spaces.workloads.dtypes import FLOAT8_CHAIN, is_float, is_promoted
from search_spaces.workloads.expression import Affine

_TRITON_TYPES = {
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


def function_name(kernel: Kernel) -> str:
    return identifier(kernel.name)


class TileMoves(Protocol):
    """Prints what moves tiles by descriptor, given the descriptor's name and where the tile starts."""

    def load(self, descriptor: str, starts: str, reshaped: str) -> str:
        """An expression; `reshaped`: the call that gives the tile its shape, where it is not the descriptor's."""
        ...

    def store(self, descriptor: str, starts: str, value: str) -> str:
        """Statements."""
        ...


class _TritonMoves:
    def load(self, descriptor: str, starts: str, reshaped: str) -> str:
        return f"{descriptor}.load([{starts}]){reshaped}"

    def store(self, descriptor: str, starts: str, value: str) -> str:
        return f"{descriptor}.store([{starts}], {value})"


_TRITON_MOVES = _TritonMoves()


class KernelPrinter:
    """Prints one kernel."""

    def __init__(self, program: TileProgram, kernel: Kernel, moves: TileMoves = _TRITON_MOVES) -> None:
        self._moves = moves
        self._program = program
        self._kernel = kernel
        self._extents = loop_extents(kernel)
        self._identifiers = Identifiers()
        self._root = Scope(variables=frozenset())
        self._block = Block(self._root)
        taken = arguments(program, kernel)
        self._pointers = {b.name: self._identifiers.of(("buffer", b.name), f"{b.name}_ptr") for b in taken.pointers}
        self._descriptors = {d: self._identifiers.of(d, f"{d.buffer.name}_desc") for d in taken.descriptors}
        self._indexing = Indexing(self._extents, self._identifiers, self._block)
        self._tiles: dict[str, Tile] = {t.name: t for s in statements(kernel.body) for t in produced(s)}
        self._combining: list[str] = []

    def text(self) -> str:
        print_grid(self._kernel, self._indexing, self._root, self._block)
        self._print_body(self._kernel.body)
        names = ", ".join([*self._pointers.values(), *self._descriptors.values()])
        signature = f"def {function_name(self._kernel)}({names}):"
        kernel = "\n".join(["@triton.jit", signature, *self._root.text(1)])
        return "\n\n\n".join([*self._combining, kernel])

    def body_function(self, head: str, given: Sequence[Tile], variables: tuple[str, ...], rest: list[str]) -> str:
        """The body alone as a function of tiles that it reads, of the kernel's arguments, of these variables of the
        grid, and of `rest`."""
        self._tiles |= {tile.name: tile for tile in given}
        self._root.variables = frozenset(self._extents)
        names = [self._indexing.variable(v) for v in variables]
        names = [
            *(self._name(tile.name) for tile in given),
            *self._pointers.values(),
            *self._descriptors.values(),
            *names,
            *rest,
        ]
        self._print_body(self._kernel.body)
        return "\n".join([f"{head}({', '.join(names)}):", *self._root.text(1)])

    def _print_body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self._print(statement)

    def _print(self, statement: Statement) -> None:
        match statement:
            case Load():
                self._load(statement)
            case Gather():
                self._gather(statement)
            case Position():
                self._position(statement)
            case View():
                self._view(statement)
            case Fill(dst=dst, value=value):
                self._assign(dst, self._full(dst, value))
            case Dot():
                self._dot(statement)
            case Map():
                self._map(statement)
            case Reduce():
                self._reduce(statement)
            case Scan():
                self._scan(statement)
            case Split():
                self._split(statement)
            case Store():
                self._store(statement)
            case Prefetch():
                pass  # A GPU hides the latency of stores by itself.
            case For():
                self._for(statement)
            case If():
                self._if(statement)

    # Tiles

    def _name(self, tile: str) -> str:
        return self._identifiers.of(("tile", tile), tile)

    def _assign(self, dst: Tile, text: str) -> None:
        self._block.write(f"{self._name(dst.name)} = {text}")

    def _full(self, tile: Tile, value: float | int) -> str:
        return f"tl.full({list(tile.shape)}, {_constant(value, tile.dtype)}, {_TRITON_TYPES[tile.dtype]})"

    def _operand(self, tile: Tile, axes: tuple[str, ...], dtype: str) -> str:
        """A tile as an operand of something with `axes`: cast, its axes in that order, missing ones inserted."""
        text = self._name(tile.name)
        if tile.dtype != dtype:
            # Before compute capability 8.0 there is no instruction from float16 to bfloat16, and Triton prints it.
            wide = ".to(tl.float32)" if (tile.dtype, dtype) == ("float16", "bfloat16") else ""
            text = f"({text} != 0).to(tl.int8)" if dtype == "bool" else f"{text}{wide}.to({_TRITON_TYPES[dtype]})"
        order = tuple(a for a in axes if a in tile.axes)
        if len(order) != len(tile.axes):
            raise CompileError(f"tile {tile.name} has axes {list(tile.axes)}; expected some of {list(axes)}")
        if order != tile.axes:
            text = f"tl.permute({text}, {[tile.axes.index(a) for a in order]})"
        return text + expand(order, axes)

    # Memory

    def _load(self, s: Load) -> None:
        buffer = self._program.buffer(s.buffer)
        eviction = [f'eviction_policy="{s.eviction}"'] if s.eviction else []
        cast = f".to({_TRITON_TYPES[s.dst.dtype]})" if s.dst.dtype != buffer.dtype else ""
        name = self._name(s.dst.name)
        if s.via == "descriptor":
            tiles = loading_descriptor(buffer, s, self._extents)
            shape = "" if len(s.dst.axes) == len(tiles.block) else f".reshape({list(s.dst.shape)})"
            starts = self._starts(described(buffer, s.slices))
            self._block.write(f"{name} = {self._moves.load(self._descriptors[tiles], starts, shape)}{cast}")
            return
        place = self._indexing.place(buffer, self._pointers[buffer.name], s.slices, s.dst.axes)
        masked = [f"mask={place.mask}", f"other={_outside(s.fill)}"] if place.mask else []
        self._block.write(call("tl.load", place.pointer, *masked, *eviction, before=f"{name} = ") + cast)

    def _gather(self, s: Gather) -> None:
        buffer = self._program.buffer(s.buffer)
        index = tuple(self._index(self._tiles[i], s.dst.axes) if isinstance(i, str) else i for i in s.index)
        place = self._indexing.looked_up(buffer, self._pointers[buffer.name], index, s.axes, s.dst.axes)
        masked = [f"mask={place.mask}", f"other={_outside(s.outside(buffer.dtype))}"] if place.mask else []
        self._block.write(call("tl.load", place.pointer, *masked, before=f"{self._name(s.dst.name)} = "))

    def _index(self, tile: Tile, axes: tuple[str, ...]) -> Along:
        """The tile's values as integers of 64 bits, in the order of `axes`; what cannot be an index, NaN say, as -1."""
        name = self._identifiers.of(("index", tile.name), f"{tile.name}_at")
        order = tuple(a for a in axes if a in tile.axes)
        value = self._operand(tile, order, tile.dtype)
        if is_float(tile.dtype):
            value = f"tl.where(({value} >= 0) & ({value} < {_MAX_INDEX:.1f}), {value}, -1.0)"
        self._block.write(f"{name} = {value}.to(tl.int64)")
        return Along(name, order)

    def _position(self, s: Position) -> None:
        if s.piece.extent is None:
            self._assign(s.dst, f"tl.cast({self._indexing.affine(s.piece.start)}, {_TRITON_TYPES[s.dst.dtype]})")
            return
        (axis,) = s.dst.axes
        positions = self._indexing.offsets(axis, s.piece.start, s.piece.extent, s.piece.step)
        self._assign(s.dst, f"{positions}.to({_TRITON_TYPES[s.dst.dtype]})")

    def _starts(self, slices: tuple[Slice, ...]) -> str:
        return ", ".join(self._indexing.affine(piece.start) for piece in slices)

    def _store(self, s: Store) -> None:
        buffer, tile = self._program.buffer(s.buffer), self._tiles[s.src]
        axes = s.axes or tile.axes
        value = self._operand(tile, axes, buffer.dtype)
        if s.via == "descriptor":
            tiles = descriptor(buffer, s.slices)
            if len(axes) != len(tiles.block):
                value = f"{value}.reshape({list(tiles.block)})"
            name, starts = self._descriptors[tiles], self._starts(described(buffer, s.slices))
            added = f"{name}.atomic_add([{starts}], {value})"
            self._block.write(added if s.atomic else self._moves.store(name, starts, value))
            return
        place = self._indexing.place(buffer, self._pointers[buffer.name], s.slices, axes)
        mask = [f"mask={place.mask}"] if place.mask else []
        if s.atomic:
            self._block.write(call("tl.atomic_add", place.pointer, value, *mask, 'sem="relaxed"'))
            return
        eviction = ['eviction_policy="evict_first"'] if s.streaming else []
        self._block.write(call("tl.store", place.pointer, value, *mask, *eviction))

    def _view(self, s: View) -> None:
        source = self._tiles[s.src]
        whole = all(not p.start.terms and p.start.offset == 0 for p in s.slices) and s.dst.shape == source.shape
        if not whole:
            self._assign(s.dst, self._picked(s, source))
            return
        self._assign(s.dst, self._name(s.src))

    def _picked(self, s: View, source: Tile) -> str:
        """One position of a tile along one axis: Triton slices no tiles, but adds zeros to it."""
        at = [n for n, p in enumerate(s.slices) if p.extent is None]
        rest = tuple(e for n, e in enumerate(source.shape) if n not in at)
        if len(at) != 1 or s.slices[at[0]].start.terms or rest != s.dst.shape:
            raise CompileError(f"tile {s.dst.name} is a part of {s.src}; Triton cannot slice a tile in registers")
        (dim,) = at
        axis, extent = source.axes[dim], source.shape[dim]
        chosen = f"tl.arange(0, {extent}) == {s.slices[dim].start.offset}"
        zero = _constant(0, source.dtype)
        return f"tl.sum(tl.where(({chosen}){expand((axis,), source.axes)}, {self._name(s.src)}, {zero}), axis={dim})"

    # Arithmetic

    def _dot(self, s: Dot) -> None:
        row, column = s.dst.axes
        a, b = self._tiles[s.a], self._tiles[s.b]
        if row not in a.axes:
            a, b = b, a
        if a.dtype != b.dtype:
            raise CompileError(f"dot of {s.a} and {s.b}: element types {a.dtype} and {b.dtype}; expected equal ones")
        left = self._operand(a, (row, s.axis), a.dtype)
        right = self._operand(b, (s.axis, column), b.dtype)
        precision = _dot_precision(s, a.dtype, a.extent(s.axis))
        self._assign(s.dst, call("tl.dot", left, right, self._name(s.dst.name), *precision))

    def _map(self, s: Map) -> None:
        computed = s.computed
        types = [s.dst.dtype if s.operator == "cast" else computed] * len(s.arguments)
        if s.operator == "where" and computed == "int64":
            types[0] = "float32"
        arguments: list[str] = []
        axes: set[str] = set()
        for argument, element in zip(s.arguments, types, strict=True):
            if isinstance(argument, str):
                tile = self._tiles[argument]
                axes.update(tile.axes)
                arguments.append(self._operand(tile, s.dst.axes, element))
            else:
                arguments.append(_constant(argument, element))
        first = s.arguments[0]
        if not any(isinstance(a, str) for a in s.arguments):
            assert not isinstance(first, str)
            arguments[0] = self._full(Tile(s.dst.name, s.dst.axes, s.dst.shape, types[0]), first)
            axes = set(s.dst.axes)
        text = operators.apply(s.operator, arguments)
        if axes != set(s.dst.axes):
            text = f"tl.broadcast_to({text}, {list(s.dst.shape)})"
        if s.operator != "cast" and s.dst.dtype not in (computed, "float32"):
            text = f"({text}).to({_TRITON_TYPES[s.dst.dtype]})"
        self._assign(s.dst, text)

    def _reduce(self, s: Reduce) -> None:
        source = self._tiles[s.src]
        rest = tuple(a for a in source.axes if a != s.axis)
        if s.dst.axes != rest:
            raise CompileError(f"{s.operator} of {s.src} over {s.axis} has axes {list(rest)}, not {list(s.dst.axes)}")
        text = self._operand(source, source.axes, s.dst.dtype)
        mask = self._bound_mask(s.bound, s.axis, source.extent(s.axis)) if s.bound else ""
        if mask:
            left_out = _constant(identity(s.operator, s.dst.dtype == "int64"), s.dst.dtype)
            text = f"tl.where({mask}{expand((s.axis,), source.axes)}, {text}, {left_out})"
        self._assign(s.dst, operators.fold(s.operator, text, source.axes.index(s.axis)))

    def _scan(self, s: Scan) -> None:
        first = s.dsts[0]
        given = [self._operand(self._tiles[x], d.axes, d.dtype) for x, d in zip(s.srcs, s.dsts, strict=True)]
        values = given[0] if len(given) == 1 else f"({', '.join(given)})"
        made = ", ".join(self._name(d.name) for d in s.dsts)
        order = ["reverse=True"] if s.reverse else []
        axis = str(first.axes.index(s.axis))
        self._block.write(call("tl.associative_scan", values, axis, self._combine(s), *order, before=f"{made} = "))

    def _combine(self, s: Scan) -> str:
        """The name of a function of the module that combines two elements."""
        # Kernels have names that begin with a letter.
        name = "_" + identifier(f"{function_name(self._kernel)}_{s.dsts[0].name}")
        within = KernelPrinter(self._program, self._kernel, self._moves)
        self._combining.append(within.combination(f"@triton.jit\ndef {name}", s.combine))
        return name

    def combination(self, head: str, combine: Combination) -> str:
        """The function that combines two elements."""
        given = (*combine.left, *combine.right)
        self._tiles = {t.name: t for t in given} | {s.dst.name: s.dst for s in combine.body}
        names = ", ".join(self._name(t.name) for t in given)
        self._print_body(combine.body)
        self._block.write(f"return {', '.join(self._name(name) for name in combine.results)}")
        return "\n".join([f"{head}({names}):", *self._root.text(1)])

    def _bound_mask(self, bound: Bound, axis: str, extent: int) -> str:
        return self._indexing.mask(axis, Slice(bound.start, extent), bound.size)

    def _split(self, s: Split) -> None:
        source = self._tiles[s.src]
        at = source.axes.index(s.axis)
        shape = [*source.shape[:at], 2, source.shape[at] // 2, *source.shape[at + 1 :]]
        order = [d for d in range(len(shape)) if d != at] + [at]
        text = f"tl.split({self._name(s.src)}.reshape({shape}).permute({order}))"
        self._block.write(f"{self._name(s.first.name)}, {self._name(s.second.name)} = {text}")

    # Control

    def _for(self, s: For) -> None:
        streamed = stream_iterations(self._kernel.grid, s.variable)
        if s.extent == 1 and s.bound is None:
            self._print_body(s.body)
            return
        attributes = [f"num_stages={s.pipeline_stages}"] if s.pipeline_stages else []
        if not (self._kernel.grid.walked and any(s is t for t in self._kernel.body)):
            attributes += ["flatten=True"] if s.flatten else []
        times = streamed or _turns(s, self._indexing)
        loop = f"tl.range({', '.join([times, *attributes])})" if attributes else f"range({times})"
        self._block.open(f"for {self._indexing.variable(s.variable)} in {loop}:", s.variable)
        self._print_body(s.body)
        self._block.close()
        for tile in folded_tiles(s):
            name = self._name(tile.name)
            zero = _constant(0, tile.dtype)
            self._block.write(f"{name} = {name} + {zero}  # Triton fails where the loop's result has several readers.")

    def _if(self, s: If) -> None:
        if self._extents[s.variable] == 1:
            self._print_body(s.then if s.value == 0 else s.otherwise)
            return
        self._block.open(f"if {self._indexing.variable(s.variable)} == {s.value}:")
        self._print_body(s.then)
        self._block.close()
        if s.otherwise:
            self._block.open("else:")
            self._print_body(s.otherwise)
            self._block.close()


def _constant(value: float | int, dtype: str) -> str:
    return str(int(value)) if dtype in ("int32", "int64") else operators.constant(value)


def _outside(value: float | int) -> str:
    """What a load yields that is masked off: a number of the kind that its elements are."""
    return str(value) if isinstance(value, int) else operators.constant(value)


def _dot_precision(s: Dot, operand: str, products: int) -> list[str]:
    """How `tl.dot` of so many products an iteration multiplies and adds, where its operands leave a choice."""
    if s.dst.dtype == "int32":
        return ["out_dtype=tl.int32"]
    if is_promoted(operand, s.precision):
        # Of effect on Hopper only. By default Triton lets its tensor cores keep all sums.
        return [f"max_num_imprecise_acc={min(FLOAT8_CHAIN, products)}"]
    return [f'input_precision="{s.precision}"'] if operand == "float32" else []


def iterations(loop: For, indexing: Indexing) -> str:
    """How many iterations of the loop are within its bound."""
    return str(loop.extent) if loop.bound is None else _within(loop, loop.bound, str(loop.extent), indexing)


def _within(loop: For, bound: Bound, most: str, indexing: Indexing) -> str:
    """At most `most`, how many iterations come before the loop leaves the bound."""
    step, rest = loop.along(bound)
    if step <= 0:
        raise CompileError(f"loop {loop.variable} does not approach its bound {bound.start} < {bound.size}")
    begin = indexing.affine(rest)
    left = str(bound.size) if begin == "0" else f"{bound.size} - ({begin})"
    return f"tl.minimum({most}, tl.cdiv({left}, {step}))"


def _turns(loop: For, indexing: Indexing) -> str:
    """The iterations of a loop that are of use: how many, or the first of them and the end."""
    first, end = "0", iterations(loop, indexing)
    for bound in loop.useful:
        step, rest = loop.along(bound)
        if step > 0:
            end = _within(loop, bound, end, indexing)
        elif step < 0:
            # What is cut towards 0 is not more than 0.
            before = indexing.affine(rest + Affine(offset=1 - bound.size))
            first = f"tl.maximum({first}, tl.cdiv({before}, {-step}))"
    return end if first == "0" else f"{first}, {end}"
