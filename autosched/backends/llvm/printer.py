"""Prints a tile program as LLVM IR for a CPU.

Every kernel is one function that computes the tiles `first` to `first + count` of its grid, so that threads share a
grid without ever waiting for each other:

    void kernel(ptr buffer…, ptr scratch, i64 first, i64 count)

Next to it is a constant with the bytes of scratch memory that one thread needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autosched.backends.backend import CompileError
from autosched.backends.llvm.bodies.contraction import contraction_printer
from autosched.backends.llvm.bodies.merged_rows import with_merged_rows
from autosched.backends.llvm.bodies.row_axes import with_whole_stores
from autosched.backends.llvm.bodies.rows import row_printer
from autosched.backends.llvm.bodies.transposed_copies import transposed_copy
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.text import I64, PTR, Builder, IRValue, Module
from autosched.backends.llvm.ir.values import index, plus
from autosched.backends.llvm.symbols import SCRATCH_SUFFIX, symbols
from autosched.backends.printing.head import head_comment
from search_spaces.programs.statements import Dot, For, Let, Load, Statement, Store, produced, read, statements
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram, loop_extents


def print_program(program: TileProgram, comment: str) -> str:
    """The module's text, with the comment and the loop nest at its top.

    Raises:
        CompileError: the program contains something that a CPU kernel does not support.
    """
    module = Module()
    for kernel, symbol in zip(program.kernels, symbols(program), strict=True):
        _print_kernel(module, program, kernel, symbol)
    header = head_comment(program, comment, ";")
    return f"{header}\n\n{module}"


def _print_kernel(module: Module, program: TileProgram, kernel: Kernel, symbol: str) -> None:
    buffers: Mapping[str, Buffer] = {b.name: b for b in program.buffers}
    has_dots = any(isinstance(s, Dot) for s in statements(kernel.body))
    if not has_dots:
        kernel, buffers = with_merged_rows(with_whole_stores(kernel), buffers)
    if kernel.grid.group or kernel.grid.persistent:
        raise CompileError("grouped and persistent grids are for GPUs; a CPU's threads take ranges of the grid")
    stores = [s for s in statements(kernel.body) if isinstance(s, Store)]
    if any(s.atomic for s in stores):
        raise CompileError("atomic stores are not available on a CPU; programs own their output")
    if any(s.where for s in stores) and not has_dots:
        raise CompileError("only some elements of a tile are stored; a CPU's kernels of rows store all")
    if any(isinstance(s, For) and (s.until or s.since) for s in statements(kernel.body)):
        raise CompileError("loops that share iterations are for GPUs; a CPU's have all of them")
    names = [b.name for b in program.given]
    arguments = [*((f"{PTR} noalias", n) for n in (*names, "scratch")), (I64, "first"), (I64, "count")]
    # Without this the tuning of some CPUs splits a 512-bit vector in two.
    width = f'"prefer-vector-width"="{kernel.launch.lanes * 32}"'
    builder = Builder(module, symbol, arguments, f"nounwind {width}")
    *bases, scratch, first, count = builder.arguments
    base = dict(zip(names, bases, strict=True))
    code = Code(
        builder,
        kernel.launch.lanes,
        buffers,
        base,
        scratch,
        loop_extents(kernel),
    )
    own = [b for b in program.buffers if b.role == "own"]
    for buffer in own:
        base[buffer.name] = code.take_scratch(max(buffer.elements, buffer.room_bytes // 4))
    with code.loop(count, "tile") as tile:
        _place(code, kernel, plus(builder, first, tile))
        for body in _parts(kernel.body) if own else (kernel.body,):
            body = _without_marks(code, body)
            part = replace(kernel, body=body)
            printer = contraction_printer(code, part) or transposed_copy(code, part) or row_printer(code, part)
            printer.body(body)
    if any(s.streaming for s in stores):
        # Streaming stores are weakly ordered; other threads may read the outputs once the function has returned.
        builder.fence()
    builder.ret_void()
    module.add(builder)
    module.add_constant(f"{symbol}{SCRATCH_SUFFIX}", index(code.scratch_bytes))


def _parts(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """The body in parts that share no tile, only memory: each is a contraction, or folds rows.

    What binds variables to data is of the first one, or all of it if it folds rows.
    """
    first, made = 0, set[str]()
    bound = max((n for n, s in enumerate(body, 1) if isinstance(s, Let)), default=0)
    if any(t.axes for s in body[:bound] for t in produced(s)):
        yield body[:bound]
        first = bound
    for at, statement in enumerate(body[first:], first):
        later = {name for s in statements(body[at:]) for name in read(s)}
        if at > max(first, bound) and made.isdisjoint(later):
            yield body[first:at]
            first, made = at, set()
        made |= {t.name for s in statements((statement,)) for t in produced(s)}
    yield body[first:]


def _without_marks(code: Code, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements without loads of block masks, which loops read from memory.

    Raises:
        CompileError: a block mask is computed.
    """
    marks = {s.marks for s in statements(body) if isinstance(s, For) and s.marks}
    for s in body:
        if isinstance(s, Load) and s.dst.name in marks:
            code.hold_marks(s)
    for name in marks - code.marks.keys():
        raise CompileError(f"{name} marks iterations of a loop, and is computed; expected a tile that is loaded")
    return tuple(s for s in body if not (isinstance(s, Load) and s.dst.name in marks))


def _place(code: Code, kernel: Kernel, number: IRValue) -> None:
    """The grid variables of a tile: its number written in the mixed radix of the grid's extents."""
    for position, axis in enumerate(reversed(kernel.grid.axes)):
        if position + 1 == len(kernel.grid.axes):
            code.variables[axis.variable] = number
        elif axis.extent == 1:
            code.variables[axis.variable] = index(0)
        else:
            code.variables[axis.variable] = code.b.urem(number, index(axis.extent))
            number = code.b.udiv(number, index(axis.extent))
