"""The source of a GPU program: a module with every kernel, each printed in the language for its launch.

Triton's compiler compiles both: Triton itself, where it assigns work to warps, and Gluon, where the text does.
"""

from __future__ import annotations

from dataclasses import replace

from autosched.backends.backend import CompileError
from autosched.backends.gpu.arguments import Arguments, arguments
from autosched.backends.gpu.roles import warp_roles
from autosched.backends.printing.exponentials import with_cheaper_exponentials
from autosched.backends.printing.head import head_comment
from autosched.backends.triton.gluon import printer as products
from autosched.backends.triton.gluon.chains import printer as chains
from autosched.backends.triton.language import operators
from autosched.backends.triton.language.bit_fields import with_bit_fields
from autosched.backends.triton.printer import KernelPrinter, function_name
from search_spaces.programs.roles.chains import ChainRoles
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.statements import Map, Reduce, Scan, statements
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.limits import USUAL


def print_module(program: TileProgram, comment: str) -> str:
    """The source text of the module with every kernel of `program`.

    Raises:
        CompileError: the program contains something that the language of the kernel cannot express.
    """
    said = head_comment(program, comment, "#")
    names = [function_name(kernel) for kernel in program.kernels]
    if len(set(names)) < len(names):
        raise CompileError(f"kernels of {program.name} are called {names}; expected different names")
    kernels = (with_cheaper_exponentials(k) for k in program.kernels)
    program = replace(program, kernels=tuple(k if is_gluon(k) else with_bit_fields(k) for k in kernels))
    body = [s for k in program.kernels for s in statements(k.body)]
    maps = [*body, *(s for scan in body if isinstance(scan, Scan) for s in scan.combine.body)]
    used = {s.operator for s in maps if isinstance(s, Map)}
    folded = {s.operator for s in body if isinstance(s, Reduce)}
    functions = operators.functions(used)
    functions += [text for name, text in operators.COMBINING.items() if name in folded]
    printed = [_print_kernel(program, kernel) for kernel in program.kernels]
    imports = ["import triton", "import triton.language as tl"]
    imports += [products.IMPORTS] if any(map(is_gluon, program.kernels)) else []
    return "\n\n\n".join(["\n".join([said, *imports]), *(f.rstrip("\n") for f in functions), *printed]) + "\n"


def is_gluon(kernel: Kernel) -> bool:
    """True if the kernel is printed in Gluon."""
    return kernel.launch.producer_warps > 0


def kernel_arguments(program: TileProgram, kernel: Kernel) -> Arguments:
    """The arguments of the printed kernel.

    Raises:
        CompileError: the hardware cannot describe a tile.
    """
    return arguments(program, _roles(program, kernel).moving if is_gluon(kernel) else kernel)


def _print_kernel(program: TileProgram, kernel: Kernel) -> str:
    if not is_gluon(kernel):
        return KernelPrinter(program, kernel).text()
    roles = _roles(program, kernel)
    return (
        chains.print_kernel(program, roles) if isinstance(roles, ChainRoles) else products.print_kernel(program, roles)
    )


def _roles(program: TileProgram, kernel: Kernel) -> ProductRoles | ChainRoles:
    return warp_roles(program, kernel, USUAL, products.PRODUCER_REGISTERS)
