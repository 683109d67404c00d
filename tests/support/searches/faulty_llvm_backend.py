"""The CPU's backend with a fault that follows from the number of rows of the output; other numbers are right.

Worker processes import it by name: the tests put its folder on the module path.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import torch

from autosched.backends.backend import Artefact, Launcher
from autosched.backends.llvm.backend import LlvmBackend
from search_spaces import Target, TileProgram

LOCATION = "faulty_llvm_backend:create"
# Rows -> what the kernel does.
WRITES_PAST_ITS_OUTPUT = 11
CRASHES = 12
IS_WRONG_WHEN_LOADED_FIRST = 13
NEVER_ENDS = 14

_loaded: set[int] = set()


def create(target: Target) -> tuple[FaultyLlvmBackend]:
    return (FaultyLlvmBackend(),)


class FaultyLlvmBackend:
    """Prints and compiles as the real one does: the source tells nothing of the fault."""

    name = "llvm"
    limits = LlvmBackend.limits

    def serves(self, target: Target) -> bool:
        return self._llvm.serves(target)

    def why_unavailable(self, target: Target) -> str | None:
        return None

    def __init__(self) -> None:
        self._llvm = LlvmBackend()

    def render(self, program: TileProgram, comment: str, target: Target) -> str:
        return self._llvm.render(program, comment, target)

    def compile(self, source: str, program: TileProgram, target: Target) -> Artefact:
        return self._llvm.compile(source, program, target)

    def load(self, artefact: Artefact, program: TileProgram) -> FaultyLauncher:
        (output,) = (b for b in program.buffers if b.role == "output")
        rows = output.shape[0]
        first = rows not in _loaded
        _loaded.add(rows)
        return FaultyLauncher(self._llvm.load(artefact, program), rows, first)


class FaultyLauncher:
    """Runs a kernel, and then does harm."""

    def __init__(self, launcher: Launcher, rows: int, first: bool) -> None:
        self._launcher = launcher
        self._rows = rows
        self._first = first

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        self._launcher(buffers)
        output = buffers[-1]
        if self._rows == WRITES_PAST_ITS_OUTPUT:
            output.as_strided((1,), (1,), output.storage_offset() + output.numel()).fill_(1.0)
        elif self._rows == CRASHES:
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self._rows == NEVER_ENDS:
            time.sleep(600.0)
        elif self._rows == IS_WRONG_WHEN_LOADED_FIRST and self._first:
            output.mul_(1.5)

    def launch(self, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        raise AssertionError("a faulty kernel was called on tensors of the caller")

    def prepare(self, number: int, constant: int, memory: torch.Tensor | None = None) -> torch.Tensor:
        raise AssertionError("it prepares nothing")

    def unload(self) -> None:
        self._launcher.unload()
