"""Warp roles in a kernel that asks for a producer, for printers: a kernel without legal roles is not compiled."""

from __future__ import annotations

from typing import NoReturn

from autosched.backends.backend import CompileError
from autosched.backends.gpu.warps import WGMMA
from search_spaces.errors import UnmatchedError
from search_spaces.programs.roles.chains import ChainRoles
from search_spaces.programs.roles.making import roles_of
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.requests import RoleLimits, check_types
from search_spaces.programs.tile_program import Kernel, TileProgram


def warp_roles(
    program: TileProgram, kernel: Kernel, limits: RoleLimits, kept_registers: int = 0
) -> ProductRoles | ChainRoles:
    """Its roles; `kept_registers`: of a thread of the producer of a contraction (0: the least).

    Raises:
        CompileError: why it has none.
    """
    try:
        roles = roles_of(kernel, WGMMA, limits, kept_registers)
        check_types(program, kernel, roles.copied)
    except UnmatchedError as why:
        raise CompileError(str(why)) from None
    return roles


def refuse(kernel: Kernel, reason: str) -> NoReturn:
    """Raise CompileError for a kernel that a printer cannot express."""
    raise CompileError(f"kernel {kernel.name} with producer warps: {reason}")
