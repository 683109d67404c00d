"""A backend that compiles nothing and doubles its input, or goes wrong in the way that the program's name says.

Worker processes import it by name: the tests put its folder on the module path.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from autosched.backends.backend import Artefact, CompileError, LoadError
from autosched.checking.trial_data import TrialData
from autosched.machine import memory
from search_spaces import Axis, Schedule, Stage, Target, Tensor, TileProgram, Workload
from search_spaces.schedules.limits import Unlimited
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from tuning_logs import CompileFacts

ELEMENTS = 256
LOCATION = "fake_backend:create"
FOREVER_S = 600.0


def doubling() -> Workload:
    """y[i] = x[i] + x[i]."""
    x = ex.Access("x", (axis_index("i"),))
    return Workload(
        "doubling", (Tensor("x", (ELEMENTS,), "float32"),), (Stage("y", (Axis("i", ELEMENTS),), ex.add(x, x)),)
    )


def schedule(behaviour: str, number: int = 0) -> Schedule:
    """A schedule whose kernel behaves like that; `number` tells apart those that behave alike."""
    program = TileProgram(behaviour, (), ())
    return Schedule(behaviour, (("number", number),), lowering=lambda _: program, backend=FakeBackend.name)


def create(target: Target) -> tuple[FakeBackend]:
    return (FakeBackend(),)


def create_slowly(target: Target) -> tuple[FakeBackend]:
    time.sleep(1.0)
    return (FakeBackend(),)


def create_broken(target: Target) -> tuple[FakeBackend]:
    raise RuntimeError("the toolchain is not installed")


class FakeBackend:
    """Renders the behaviour's name and compiles it to nothing."""

    name = "fake"
    limits = Unlimited()

    def serves(self, target: Target) -> bool:
        return True

    def why_unavailable(self, target: Target) -> str | None:
        return None

    def render(self, program: TileProgram, comment: str, target: Target) -> str:
        if program.name == "cannot be printed":
            raise CompileError("no such statement\nin this backend")
        return f"{comment.splitlines()[0]}\n{program.name}"

    def compile(self, source: str, program: TileProgram, target: Target) -> Artefact:
        match program.name.split(":"):
            case ["compiler bug"]:
                raise KeyError("acc")
            case ["compiles forever"]:
                time.sleep(FOREVER_S)
            case ["crashes the compiler"]:
                os.kill(os.getpid(), signal.SIGSEGV)
            case ["aborts the compiler"]:
                print("LLVM ERROR: out of patience", flush=True)
                os._exit(3)
            case ["eats memory in the compiler"]:
                hoard()
            case ["aborts for memory in the compiler"]:
                os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
                os.abort()
            case ["compiles in ms", duration]:
                time.sleep(float(duration) * 1e-3)
            case ["compiles once", _]:
                _compiled[program.name] += 1
                if _compiled[program.name] > 1:
                    raise CompileError("compiled before")
        return Artefact(self.name, source, (), CompileFacts(seconds=0.001, registers=7), "{}")

    def load(self, artefact: Artefact, program: TileProgram) -> FakeLauncher:
        if program.name == "does not fit":
            raise LoadError("needs 300 KiB of shared memory, the device has 227")
        return FakeLauncher(program.name)


def hoard() -> None:
    """Ask for memory, without using it, until it is refused; an error when all of the machine's was granted."""
    piece = 2**28
    held = [np.empty(piece, np.uint8) for _ in range(memory.machine_bytes() // piece)]
    raise AssertionError(f"{len(held)} pieces of {piece} bytes were granted")


def beside(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """The element that lies so many after the first one of a tensor, be it inside or not."""
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + offset)


def spoil_reference() -> None:
    """What a write far outside the operands may hit."""
    for found in gc.get_objects():
        if isinstance(found, TrialData):
            found._expectations[0].values.add_(1.0)


_loads: dict[str, int] = {}
_compiled: Counter[str] = Counter()


class FakeLauncher:
    def __init__(self, behaviour: str) -> None:
        self._behaviour = behaviour.split(":")
        self._calls = 0
        _loads[behaviour] = self._loads = _loads.get(behaviour, 0) + 1

    def launch(self, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        raise AssertionError("a kernel of tests was called on tensors of the caller")

    def prepare(self, number: int, constant: int, memory: torch.Tensor | None = None) -> torch.Tensor:
        raise AssertionError("it prepares nothing")

    def unload(self) -> None:
        if self._behaviour == ["spoils the reference in the end"]:
            spoil_reference()

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        x, y = buffers
        self._calls += 1
        if self._behaviour == ["leaves the end unwritten"]:
            x, y = x[:-3], y[:-3]
        if self._behaviour == ["writes nothing the second time"] and self._calls > 1:
            return
        torch.add(x, x, out=y)
        self._misbehave(x, y)

    def _misbehave(self, x: torch.Tensor, y: torch.Tensor) -> None:
        match self._behaviour:
            case ["runs forever"]:
                time.sleep(FOREVER_S)
            case ["runs in ms", duration]:
                time.sleep(float(duration) * 1e-3)
            case ["warms up in calls", calls]:
                until = time.perf_counter() + (60e-6 if self._calls > int(calls) else 300e-6)
                while time.perf_counter() < until:
                    pass
            case ["crashes"]:
                os.kill(os.getpid(), signal.SIGSEGV)
            case ["reads an illegal address"]:
                ctypes.string_at(8)
            case ["exits"]:
                os._exit(7)
            case ["cannot be launched"]:
                raise RuntimeError("invalid argument")
            case ["computes something else"]:
                y.mul_(1.001)
            case ["yields NaN"]:
                y[-1] = torch.nan
            case ["yields infinity"]:
                y[-1] = torch.inf
            case ["reads past its input"]:
                y[-1:] += 0.0 * beside(x, x.numel())
            case ["writes past its output"]:
                beside(y, y.numel()).fill_(1.0)
            case ["writes before its output"]:
                beside(y, -2).fill_(1.0)
            case ["writes past its input"]:
                beside(x, x.numel()).fill_(1.0)
            case ["changes its input"]:
                x[0] = 5.0
            case ["overwrites the reference"]:
                spoil_reference()
            case ["eats memory"]:
                hoard()
            case ["is right the first time only"]:
                y.mul_(self._calls)
            case ["breaks the device"]:
                # On a GPU the assertion in the kernel leaves the context unusable.
                torch.index_select(x, 0, torch.full((1,), 2**20, device=x.device))
            case ["crashes when loaded again"] if self._loads > 1:
                os._exit(9)
            case ["is wrong from load", number] if self._loads >= int(number):
                y.mul_(1.001)
            case ["rounds in turn up and down"] if self._calls % 2:
                y.copy_(torch.nextafter(y, torch.tensor(torch.inf)))
