"""The source of a CUDA program: its description on top, then the device functions that it uses, then every kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots.printer import Dots
from autosched.backends.cuda.dots.register_dots import RegisterDots
from autosched.backends.cuda.hopper.printer import HopperPrinter
from autosched.backends.cuda.language import operators, types
from autosched.backends.cuda.memory import functions
from autosched.backends.cuda.printer import KernelPrinter, Products, function_name
from autosched.backends.cuda.resources import has_dots, multiplies_what_lanes_loaded
from autosched.backends.gpu.kernel import CudaKernel
from autosched.backends.gpu.warps import why_no_groups
from autosched.backends.printing.exponentials import with_cheaper_exponentials
from autosched.backends.printing.head import head_comment
from search_spaces import Target, TileProgram
from search_spaces.devices.features import Features
from search_spaces.programs.statements import Map, Reduce, Scan, Store, produced, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.workloads.dtypes import DTYPES


def print_module(program: TileProgram, comment: str, target: Target) -> str:
    """The text of a whole program for devices of the target's compute capability.

    Raises:
        CompileError: a statement cannot be expressed; the message names it.
    """
    said = head_comment(program, comment, "//")
    names = [function_name(kernel) for kernel in program.kernels]
    if len(set(names)) < len(names):
        raise CompileError(f"kernels of {program.name} are called {names}; expected different names")
    printers = _printed(program, target)
    kernels = [text for _, text in printers]
    own = list(dict.fromkeys(text for printer, _ in printers for text in printer.functions()))
    head = _functions(_as_printed(program), "".join([*own, *kernels]), target.features)
    return "\n".join([f"{said}\n", *head, *own, *kernels])


def launched(program: TileProgram, target: Target) -> tuple[CudaKernel, ...]:
    """Launch data of each kernel of the printed program: its function's name, parameters, warps and shared memory."""
    return tuple(printer.launched for printer, _ in _printed(program, target))


def _as_printed(program: TileProgram) -> TileProgram:
    return replace(program, kernels=tuple(map(with_cheaper_exponentials, program.kernels)))


# The launch data, which printers know, is needed next by the compiler of a text just printed.
@lru_cache(2)
def _printed(program: TileProgram, target: Target) -> list[tuple[KernelPrinter | HopperPrinter, str]]:
    """Every kernel's printer, after printing, and its text."""
    program = _as_printed(program)
    printers = [_printer(program, kernel, target) for kernel in program.kernels]
    return [(printer, printer.text()) for printer in printers]


def _printer(program: TileProgram, kernel: Kernel, target: Target) -> KernelPrinter | HopperPrinter:
    if not kernel.launch.producer_warps:
        return KernelPrinter(program, kernel, target.features, _products(program, kernel, target))
    if why := why_no_groups(target, kernel.launch.producer_warps):
        raise CompileError(why)
    return HopperPrinter(program, kernel, target.features)


def _products(program: TileProgram, kernel: Kernel, target: Target) -> Products | None:
    """The printer of a kernel's dots; None without dots."""
    if not has_dots(kernel):
        return None
    made = RegisterDots if multiplies_what_lanes_loaded(kernel) else Dots
    return made(program, kernel, target.features)


def _functions(program: TileProgram, text: str, features: Features) -> list[str]:
    """The device functions of operators, element types and memory that a program uses."""
    body = [s for k in program.kernels for s in statements(k.body)]
    maps = [*body, *(s for scan in body if isinstance(scan, Scan) for s in scan.combine.body)]
    used = {s.operator for s in maps if isinstance(s, Map)} | {s.operator for s in body if isinstance(s, Reduce)}
    used |= {"cast"} if "rounded<" in text else set()
    stored = [s for s in body if isinstance(s, Store)]
    names = {b.dtype for b in program.buffers} | {t.dtype for s in maps for t in produced(s)}
    names |= {name for name in DTYPES if f"rounded<{types.memory_type(name)}>" in text}
    for name in sorted(names):
        if why := types.why_not_converted(name, features):
            raise CompileError(why)
    added = sorted({program.buffer(s.buffer).dtype for s in stored if s.atomic})
    return [
        *types.definitions(names, features),
        *functions.definitions(text, names, added, features),
        *operators.functions(used, features),
    ]
