"""A second backend for CPUs: its code is the text of a tile program, and NumPy interprets it.

Another package would offer it by an entry point. Worker processes import it by name: the tests put its folder on the
module path.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch

from autosched.backends.backend import Artefact, Backend, CompileError
from autosched.backends.llvm.backend import LlvmBackend
from search_spaces import Schedule, Target, TileProgram, Workload
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.text import to_text
from search_spaces.programs.tile_program import Buffer, Kernel
from search_spaces.schedules.limits import USUAL, Distinguished, Offers, Resources
from tuning_logs import CompileFacts

CLASS = "interpreting_backend:InterpretingBackend"
# What worker processes get their backends from.
LOCATION = "interpreting_backend:both"
# Every tile of a grid takes the interpreter a tenth of a millisecond and more.
MOST_TILES = 16


def both(target: Target) -> tuple[Backend, ...]:
    return LlvmBackend(), InterpretingBackend()


class FewTiles:
    """It takes what has few tiles, in float32."""

    def offers(self, target: Target) -> Offers:
        return USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        other = {t.dtype for t in (*workload.inputs, *workload.outputs)} - {"float32"}
        return f"{other.pop()} is not interpreted; expected float32" if other else None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        most = max(kernel.grid.tiles for kernel in schedule.program.kernels)
        return f"{most} tiles; the interpreter takes {MOST_TILES}" if most > MOST_TILES else None

    def distinguished(self, schedule: Schedule, target: Target) -> Distinguished | None:
        return None

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return None


class InterpretingBackend:
    name = "interpreter"
    limits = FewTiles()

    def serves(self, target: Target) -> bool:
        return target.kind == "cpu"

    def why_unavailable(self, target: Target) -> str | None:
        return None

    def render(self, program: TileProgram, comment: str, target: Target) -> str:
        return f"# {comment}\n{to_text(program)}\n"

    def compile(self, source: str, program: TileProgram, target: Target) -> Artefact:
        if not source.endswith(f"{to_text(program)}\n"):
            raise CompileError("the source is not that of the program")
        return Artefact(self.name, source, (), CompileFacts(seconds=0.0), "{}")

    def load(self, artefact: Artefact, program: TileProgram) -> InterpretedProgram:
        return InterpretedProgram(program)


class InterpretedProgram:
    """Interpreted on every call."""

    def __init__(self, program: TileProgram) -> None:
        self._program = program
        self._buffers = [b for b in program.buffers if b.role != "workspace"]

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        self.launch([t.data_ptr() for t in buffers])

    def prepare(self, number: int, constant: int, memory: torch.Tensor | None = None) -> torch.Tensor:
        name, _ = self._program.prepared[number]
        return torch.empty(self._program.buffer(name).bytes, dtype=torch.uint8) if memory is None else memory

    def launch(self, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        # Whatever was prepared, it computes everything.
        arrays = [(b.role, _array(b, address)) for b, address in zip(self._buffers, addresses, strict=True)]
        made = interpret(self._program, [array for role, array in arrays if role == "input"])
        for output, values in zip((array for role, array in arrays if role == "output"), made, strict=True):
            output[...] = values

    def unload(self) -> None:
        """Nothing is held."""


def _array(buffer: Buffer, address: int) -> np.ndarray:
    size = (ctypes.c_float * (buffer.bytes // 4)).from_address(address)
    return np.frombuffer(size, np.float32).reshape(buffer.shape)
