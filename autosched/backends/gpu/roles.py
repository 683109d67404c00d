"""The roles of warps in a kernel that asks for a producer, for printers: what has none is not compiled."""

from __future__ import annotations

from typing import NoReturn

from autosched.backends.backend import CompileError
from autosched.backends.gpu.warps import WGMMA
from search_spaces.errors import UnmatchedError
from search_spaces.programs.roles.chains import ChainRoles
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.requests import RoleLimits, check_types
from search_spaces.programs.tile_program import Kernel, TileProgram


def product_roles(program: TileProgram, kernel: Kernel, limits: RoleLimits, kept_registers: int = 0) -> ProductRoles:
    """Those of a contraction; `kept_registers`: of a thread of the producer (0: the least).

    Raises:
        CompileError: why it has none.
    """
    try:
        roles = ProductRoles.of(kernel, WGMMA, limits, kept_registers)
        check_types(program, kernel, (*roles.loads, *roles.extras))
    except UnmatchedError as why:
        raise CompileError(str(why)) from None
    return roles


def chain_roles(program: TileProgram, kernel: Kernel) -> ChainRoles:
    """Those of chained dots.

    Raises:
        CompileError: why it has none.
    """
    try:
        roles = ChainRoles.of(kernel, WGMMA)
        check_types(program, kernel, roles.shared.values())
    except UnmatchedError as why:
        raise CompileError(str(why)) from None
    return roles


def refuse(kernel: Kernel, reason: str) -> NoReturn:
    """Raise what a printer has no words for."""
    raise CompileError(f"kernel {kernel.name} with producer warps: {reason}")
