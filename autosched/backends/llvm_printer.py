"""Prints a tile program as LLVM IR for a CPU.

Every kernel becomes one function that does the tiles `first` to `first + count` of its grid, so that threads share a
grid without ever waiting for each other:

    void kernel(ptr buffer…, ptr scratch, i64 first, i64 count)

Beside it stands a constant with the bytes of scratch memory that one thread needs.
"""

from __future__ import annotations

from llvmlite import ir

from autosched.backends.backend import CompileError
from autosched.backends.llvm_code import Code
from autosched.backends.llvm_contraction import contraction_printer
from autosched.backends.llvm_rows import row_printer
from autosched.backends.llvm_values import I64, PTR, VOID, index
from search_spaces.tile_program import Kernel, Store, TileProgram, loop_extents, statements

SCRATCH_SUFFIX = "_scratch_bytes"


def print_program(program: TileProgram, comment: str) -> str:
    """The module's text, with the comment and the loop nest at its top.

    Raises:
        CompileError: the program says something that a CPU kernel cannot.
    """
    module = ir.Module(program.name)
    for kernel in program.kernels:
        _print_kernel(module, program, kernel)
    header = "\n".join(f"; {line}".rstrip() for line in (*comment.splitlines(), "", *str(program).splitlines()))
    return f"{header}\n\n{module}"


def _print_kernel(module: ir.Module, program: TileProgram, kernel: Kernel) -> None:
    if kernel.grid.group or kernel.grid.persistent:
        raise CompileError("grouped and persistent grids are for GPUs; a CPU's threads take ranges of the grid")
    signature = ir.FunctionType(VOID, [PTR] * (len(program.buffers) + 1) + [I64, I64])
    function = ir.Function(module, signature, kernel.name)
    function.attributes.add("nounwind")
    # Without this the tuning of some CPUs cuts a 512-bit vector in two.
    set.add(function.attributes, f'"prefer-vector-width"="{kernel.launch.lanes * 32}"')
    names = [b.name for b in program.buffers] + ["scratch", "first", "count"]
    for argument, name in zip(function.args, names, strict=True):
        argument.name = name
        if argument.type == PTR:
            argument.add_attribute("noalias")
    *bases, scratch, first, count = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    code = Code(
        builder,
        kernel.launch.lanes,
        {b.name: b for b in program.buffers},
        dict(zip((b.name for b in program.buffers), bases, strict=True)),
        scratch,
        loop_extents(kernel),
    )
    with code.loop(count, "tile") as tile:
        _place(code, kernel, builder.add(first, tile))
        printer = contraction_printer(code, kernel) or row_printer(code, kernel)
        printer.body(kernel.body)
    if any(isinstance(s, Store) and s.streaming for s in statements(kernel.body)):
        # Streaming stores are weakly ordered; other threads may read the output once the function has returned.
        builder.fence("seq_cst")
    builder.ret_void()
    size = ir.GlobalVariable(module, I64, f"{kernel.name}{SCRATCH_SUFFIX}")
    size.global_constant = True
    size.initializer = index(code.scratch_bytes)


def _place(code: Code, kernel: Kernel, number: ir.Value) -> None:
    """The grid variables of a tile: its number written in the mixed radix of the grid's extents."""
    for position, axis in enumerate(reversed(kernel.grid.axes)):
        if position + 1 == len(kernel.grid.axes):
            code.variables[axis.variable] = number
        elif axis.extent == 1:
            code.variables[axis.variable] = index(0)
        else:
            code.variables[axis.variable] = code.b.urem(number, index(axis.extent), name=axis.variable)
            number = code.b.udiv(number, index(axis.extent))
