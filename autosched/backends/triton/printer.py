"""Tile programs as Triton source: one `@triton.jit` function per kernel, every size a constant.

The text is a pure function of the program and the comment. It runs on Triton 3.6 to 3.9: plain pointers and tensor
descriptors, no block pointers. Arguments of a kernel are pointers, then descriptors (see `gpu.arguments`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autosched.backends.backend import CompileError
from autosched.backends.printing.scope import Block, Scope, call
from autosched.backends.triton.language import operators
from autosched.backends.triton.language.bit_fields import is_field
from autosched.backends.triton.language.folds import folded_tiles
from autosched.backends.triton.language.grid import print_grid, printed_once, stream_iterations
from autosched.backends.triton.language.index import Along, Indexing, expand
from autosched.backends.triton.language.loops import turns
from autosched.backends.triton.language.marked import open_marked
from autosched.backends.triton.language.scope import identifier, python_identifiers
from autosched.backends.triton.language.tiles import TRITON_LAYOUTS, TRITON_TYPES, Layouts, Tiles, constant
from autosched.backends.triton.memory import TRITON_MOVES, MemoryPrinter, Parameters, TileMoves
from search_spaces.programs.addressing import Dimension
from search_spaces.programs.statements import (
    Combination,
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
    produced,
    statements,
)
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_digits, loop_extents
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.workloads.dtypes import FLOAT8_CHAIN, is_promoted


def function_name(kernel: Kernel) -> str:
    return identifier(kernel.name)


def followed_ahead(program: TileProgram, kernel: Kernel) -> bool:
    """True if the next kernel is launched while this one runs."""
    after = program.kernels[program.kernels.index(kernel) + 1 :]
    return bool(after) and after[0].launch.dependent


class KernelPrinter:
    """Prints one kernel. Text around its statements goes into `block`, with the names of `own`."""

    def __init__(
        self,
        program: TileProgram,
        kernel: Kernel,
        moves: TileMoves = TRITON_MOVES,
        layouts: Layouts = TRITON_LAYOUTS,
        own: Iterable[str] = (),
    ) -> None:
        self._program, self._kernel, self._moves = program, kernel, moves
        self._extents = loop_extents(kernel)
        self.root = Scope(variables=frozenset())
        self.block = Block(self.root)
        identifiers = python_identifiers()
        for name in own:
            # It may be a variable of the grid too.
            identifiers.of(("variable", name), name)
        self.parameters = Parameters.of(program, kernel, identifiers)
        self.indexing = Indexing(self._extents, identifiers, self.block, loop_digits(kernel))
        self.tiles = Tiles((t for s in statements(kernel.body) for t in produced(s)), identifiers, self.block, layouts)
        self._memory = MemoryPrinter(program, self.parameters, self.tiles, self.indexing, self.block, moves)
        self._combining: list[str] = []

    def text(self) -> str:
        if self._kernel.launch.dependent:
            self.root.definitions.append("tl.extra.cuda.gdc_wait()")
        if followed_ahead(self._program, self._kernel):
            self.root.definitions.append("tl.extra.cuda.gdc_launch_dependents()")
        once = printed_once(self._kernel)
        for statement in self._kernel.body[:once]:
            self.print(statement)
        print_grid(self._kernel, self.indexing, self.root, self.block)
        self._print_body(self._kernel.body[once:])
        signature = f"def {function_name(self._kernel)}({', '.join(self.parameters.names)}):"
        kernel = "\n".join(["@triton.jit", signature, *self.root.text(1)])
        return "\n\n\n".join([*self._combining, kernel])

    def body_function(self, head: str, given: Sequence[Tile], variables: tuple[str, ...], rest: list[str]) -> str:
        """The body alone as a function of the tiles that it reads.

        Further parameters are the kernel's arguments, these variables of the grid, and `rest`.
        """
        self.tiles.add(given)
        self.root.variables = frozenset(self._extents)
        known = [self.indexing.variable(v) for v in variables]
        names = [*(self.tiles.name(tile.name) for tile in given), *self.parameters.names, *known, *rest]
        self._print_body(self._kernel.body)
        return "\n".join([f"{head}({', '.join(names)}):", *self.root.text(1)])

    def _print_body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self.print(statement)
        for _ in (s for s in body if isinstance(s, Let)):
            self.block.close()

    def print(self, statement: Statement) -> None:
        match statement:
            case Load():
                self._memory.load(statement)
            case Gather():
                self._memory.gather(statement)
            case Position():
                self._position(statement)
            case View():
                self._view(statement)
            case Fill(dst=dst, value=value):
                self.tiles.assign(dst, self.tiles.full(dst, value))
            case Dot():
                self._dot(statement)
            case Map():
                self._map(statement)
            case Reduce():
                self._reduce(statement)
            case Regroup(dst=dst, src=src):
                self.tiles.assign(dst, f"tl.reshape({self.tiles.name(src)}, {list(dst.shape)})")
            case Scan():
                self._scan(statement)
            case Split():
                self._split(statement)
            case Deinterleave():
                self.tiles.take_apart(statement)
            case Interleave():
                self.tiles.put_together(statement)
            case Store():
                self._memory.store(statement)
            case Prefetch():
                pass  # A GPU hides the latency of stores by itself.
            case For():
                self._for(statement)
            case If():
                self._if(statement)
            case Let():
                self._let(statement)

    # Positions and views

    def _position(self, s: Position) -> None:
        if s.piece.extent is None:
            self.tiles.assign(s.dst, f"tl.cast({self.indexing.affine(s.piece.start)}, {TRITON_TYPES[s.dst.dtype]})")
            return
        positions = self.indexing.positions(s.piece)
        self.tiles.assign(s.dst, f"{positions.name}.to({TRITON_TYPES[s.dst.dtype]})")

    def _view(self, s: View) -> None:
        source = self.tiles[s.src]
        whole = all(not p.start.terms and p.start.offset == 0 for p in s.slices) and s.dst.shape == source.shape
        self.tiles.assign(s.dst, self.tiles.name(s.src) if whole else self._picked(s, source))

    def _picked(self, s: View, source: Tile) -> str:
        """One position of a tile along one axis: Triton slices no tiles, but zeros can be added up with it."""
        at = [n for n, p in enumerate(s.slices) if p.extent is None]
        rest = tuple(e for n, e in enumerate(source.shape) if n not in at)
        if len(at) != 1 or s.slices[at[0]].start.terms or rest != s.dst.shape:
            raise CompileError(f"tile {s.dst.name} is a part of {s.src}; Triton cannot slice a tile in registers")
        (dim,) = at
        chosen = f"(tl.arange(0, {source.shape[dim]}) == {s.slices[dim].start.offset})"
        chosen += expand((source.axes[dim],), source.axes)
        return f"tl.sum(tl.where({chosen}, {self.tiles.name(s.src)}, {constant(0, source.dtype)}), axis={dim})"

    # Arithmetic

    def _dot(self, s: Dot) -> None:
        *batch, row, column = s.dst.axes
        a, b = self.tiles[s.a], self.tiles[s.b]
        if row not in a.axes:
            a, b = b, a
        if a.dtype != b.dtype:
            raise CompileError(f"dot of {s.a} and {s.b}: element types {a.dtype} and {b.dtype}; expected equal ones")
        left = self.tiles.operand(a, (*batch, row, s.axis), a.dtype)
        right = self.tiles.operand(b, (*batch, s.axis, column), b.dtype)
        precision = _dot_precision(s, a.dtype, a.extent(s.axis))
        self.tiles.assign(s.dst, call("tl.dot", left, right, self.tiles.name(s.dst.name), *precision))

    def _map(self, s: Map) -> None:
        computed = s.computed
        types = [s.dst.dtype if s.operator == "cast" else computed] * len(s.arguments)
        if s.operator == "where" and computed == "int64":
            types[0] = "float32"
        if is_field(s.operator):
            types = [self.tiles[str(a)].dtype for a in s.arguments]
        arguments: list[str] = []
        axes: set[str] = set()
        for argument, element in zip(s.arguments, types, strict=True):
            if isinstance(argument, str):
                tile = self.tiles[argument]
                axes.update(tile.axes)
                arguments.append(self.tiles.operand(tile, s.dst.axes, element))
            else:
                arguments.append(constant(argument, element))
        first = s.arguments[0]
        if not any(isinstance(a, str) for a in s.arguments):
            assert not isinstance(first, str)
            arguments[0] = self.tiles.full(Tile(s.dst.name, s.dst.axes, s.dst.shape, types[0]), first)
            axes = set(s.dst.axes)
        text = operators.apply(s.operator, arguments)
        if axes != set(s.dst.axes):
            text = f"tl.broadcast_to({text}, {list(s.dst.shape)})"
        if s.operator != "cast" and s.dst.dtype not in (computed, "float32"):
            text = f"({text}).to({TRITON_TYPES[s.dst.dtype]})"
        self.tiles.assign(s.dst, text)

    def _reduce(self, s: Reduce) -> None:
        source = self.tiles[s.src]
        rest = tuple(a for a in source.axes if a != s.axis)
        if s.dst.axes != rest:
            raise CompileError(f"{s.operator} of {s.src} over {s.axis} has axes {list(rest)}, not {list(s.dst.axes)}")
        text = self.tiles.operand(source, source.axes, s.dst.dtype)
        mask = self._bound_mask(s.bound, s.axis, source.extent(s.axis)) if s.bound else None
        if mask:
            left_out = constant(fold_identity(s.operator, s.dst.dtype == "int64"), s.dst.dtype)
            text = f"tl.where({mask.name}{expand(mask.axes, source.axes)}, {text}, {left_out})"
        self.tiles.assign(s.dst, operators.fold(s.operator, text, source.axes.index(s.axis)))

    def _scan(self, s: Scan) -> None:
        first = s.dsts[0]
        given = [self.tiles.operand(self.tiles[x], d.axes, d.dtype) for x, d in zip(s.srcs, s.dsts, strict=True)]
        values = given[0] if len(given) == 1 else f"({', '.join(given)})"
        made = ", ".join(self.tiles.name(d.name) for d in s.dsts)
        order = ["reverse=True"] if s.reverse else []
        axis = str(first.axes.index(s.axis))
        self.block.write(call("tl.associative_scan", values, axis, self._combine(s), *order, before=f"{made} = "))

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
        self.tiles.add([*given, *(s.dst for s in combine.body)])
        names = ", ".join(self.tiles.name(t.name) for t in given)
        self._print_body(combine.body)
        self.block.write(f"return {', '.join(self.tiles.name(name) for name in combine.results)}")
        return "\n".join([f"{head}({names}):", *self.root.text(1)])

    def _bound_mask(self, bound: Bound, axis: str, extent: int) -> Along | None:
        piece = Slice(bound.start, extent, axis, skew=bound.skew)
        return self.indexing.inside(Dimension.of(piece, bound.size, self.indexing.extents))

    def _split(self, s: Split) -> None:
        source = self.tiles[s.src]
        at = source.axes.index(s.axis)
        shape = [*source.shape[:at], 2, source.shape[at] // 2, *source.shape[at + 1 :]]
        order = [d for d in range(len(shape)) if d != at] + [at]
        text = f"tl.split({self.tiles.name(s.src)}.reshape({shape}).permute({order}))"
        self.block.write(f"{self.tiles.name(s.first.name)}, {self.tiles.name(s.second.name)} = {text}")

    # Control

    def _for(self, s: For) -> None:
        streamed = stream_iterations(self._kernel.grid, s.variable)
        if s.extent == 1 and s.bound is None and not (s.until or s.since or s.marks):
            self._print_body(s.body)
            return
        attributes = [f"num_stages={s.pipeline_stages}"] if s.pipeline_stages else []
        if not (self._kernel.grid.walked and any(s is t for t in self._kernel.body)):
            attributes += ["flatten=True"] if s.flatten else []
        body = s.body
        if s.marks:
            body = open_marked(s, self.tiles[s.marks], self.tiles.name(s.marks), self.indexing, self.block)
        else:
            times = streamed or turns(s, self.indexing)
            loop = f"tl.range({', '.join([times, *attributes])})" if attributes else f"range({times})"
            self.block.open(f"for {self.indexing.variable(s.variable)} in {loop}:", s.variable)
        self._print_body(body)
        self.block.close()
        for tile in folded_tiles(s):
            name = self.tiles.name(tile.name)
            zero = constant(0, tile.dtype)
            self.block.write(f"{name} = {name} + {zero}  # Triton fails where the loop's result has several readers.")

    def _let(self, s: Let) -> None:
        """Begin the part of a body in which the variable is known."""
        value = self.tiles.operand(self.tiles[s.src], (), "int64")
        name = self.indexing.variable(s.variable)
        self.block.write(f"{name} = tl.minimum(tl.maximum({value}, 0), {s.extent - 1}).to(tl.int32)")
        self.block.open("", s.variable)

    def _if(self, s: If) -> None:
        if self._extents[s.variable] == 1:
            self._print_body(s.then if s.value == 0 else s.otherwise)
            return
        self.block.open(f"if {self.indexing.variable(s.variable)} == {s.value}:")
        self._print_body(s.then)
        self.block.close()
        if s.otherwise:
            self.block.open("else:")
            self._print_body(s.otherwise)
            self.block.close()


def _dot_precision(s: Dot, operand: str, products: int) -> list[str]:
    """Precision arguments of `tl.dot` with `products` products an iteration, if its operands leave a choice."""
    if s.dst.dtype == "int32":
        return ["out_dtype=tl.int32"]
    if is_promoted(operand, s.precision):
        # Effective on Hopper only. By default Triton lets its tensor cores keep all sums.
        return [f"max_num_imprecise_acc={min(FLOAT8_CHAIN, products)}"]
    return [f'input_precision="{s.precision}"'] if operand == "float32" else []
