"""Names of a program's functions and constants in LLVM IR, which whoever loads its object looks up."""

from __future__ import annotations

from search_spaces import TileProgram

# Follows a function's name: the constant with the bytes of scratch memory that one thread needs.
SCRATCH_SUFFIX = "_scratch_bytes"


def symbols(program: TileProgram) -> tuple[str, ...]:
    """The names of the functions of a program's kernels: those of the kernels, if the linker accepts them."""
    return tuple(
        kernel.name if kernel.name.isascii() and kernel.name.isidentifier() else f"kernel.{number}"
        for number, kernel in enumerate(program.kernels)
    )
