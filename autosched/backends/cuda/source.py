"""Tile programs as CUDA C++: a function per kernel, below the comment that names its schedule."""

from __future__ import annotations

from autosched.backends.backend import CompileError
from autosched.backends.gpu.kernel import CudaKernel
from search_spaces import Target, TileProgram


def print_module(program: TileProgram, comment: str, target: Target) -> str:
    """The text of a whole program for devices of the target's compute capability.

    Raises:
        CompileError: a statement cannot be said; the message names it.
    """
    raise CompileError(f"{program.name}: no statement can be said yet")


def launched(program: TileProgram, target: Target) -> tuple[CudaKernel, ...]:
    """How each kernel of the printed program is launched: its function's name, parameters, warps and shared memory."""
    raise CompileError(f"{program.name}: no statement can be said yet")
