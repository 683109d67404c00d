"""A loaded program of the CPU backend: its kernels, with the memory and the threads that they need."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import llvmlite.binding as llvm
import torch

from autosched.backends.llvm.symbols import SCRATCH_SUFFIX, symbols
from autosched.backends.llvm.team import Team
from search_spaces import TileProgram

# Scratch memory begins at a large page of x86 and Arm, so that nothing depends on its place in memory.
_HUGE_PAGE = 2 * 2**20


@dataclass(frozen=True)
class _LoadedKernel:
    """A kernel's code, the number of tiles of its grid, and a scratch buffer per thread."""

    address: int
    function: Callable[..., None]
    tiles: int
    scratch: tuple[torch.Tensor, ...]

    @cached_property
    def scratch_addresses(self) -> tuple[int, ...]:
        return tuple(s.data_ptr() for s in self.scratch)


class LlvmLauncher:
    """Runs the kernels of a loaded program; threads share the tiles of a grid."""

    def __init__(self, engine: llvm.ExecutionEngine, program: TileProgram, threads: int) -> None:
        self._engine, self._program = engine, program
        self._workspaces = [_bytes(b.room_bytes) for b in program.buffers if b.role == "workspace"]
        self._zeroed = [(i, b.bytes) for i, b in enumerate(program.buffers) if b.name in program.zeroed]
        self._kernels = [
            self._kernel(symbol, kernel.grid.tiles, len(program.given), threads)
            for symbol, kernel in zip(symbols(program), program.kernels, strict=True)
        ]
        self._team = Team(threads, len(program.given)) if threads > 1 else None
        self._lock = threading.Lock()
        self._plain = threads == 1 and not self._zeroed
        kernels = zip(self._kernels, program.preparing, strict=True)
        self._called = [k for k, prepared in kernels if not prepared]
        self._places = {b.name: place for place, b in enumerate(program.given)}
        self._prepared = [self._places[name] for name, _ in program.prepared]
        self._fixed = [w.data_ptr() for w in self._workspaces]

    def _kernel(self, symbol: str, tiles: int, buffers: int, threads: int) -> _LoadedKernel:
        address = self._engine.get_function_address(symbol)
        size = ctypes.c_int64.from_address(self._engine.get_global_value_address(symbol + SCRATCH_SUFFIX)).value
        arguments = [ctypes.c_void_p] * (buffers + 1) + [ctypes.c_int64] * 2
        scratch = tuple(_bytes(size) for _ in range(threads))
        return _LoadedKernel(address, ctypes.CFUNCTYPE(None, *arguments)(address), tiles, scratch)

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        self.launch([t.data_ptr() for t in buffers])

    def launch(self, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        pointers, kernels = [*addresses, *self._fixed], self._kernels
        if prepared:
            kernels = self._called
            for place, address in zip(self._prepared, prepared, strict=True):
                pointers[place] = address
        # Scratch memory and workspaces serve one call at a time.
        with self._lock:
            if self._plain:
                for kernel in kernels:
                    kernel.function(*pointers, kernel.scratch_addresses[0], 0, kernel.tiles)
                return
            for number, size in self._zeroed:
                ctypes.memset(pointers[number], 0, size)
            for kernel in kernels:
                self._run(kernel, pointers)

    def prepare(self, number: int, constant: int, memory: torch.Tensor | None = None) -> torch.Tensor:
        name, read = self._program.prepared[number]
        made = _bytes(self._program.buffer(name).room_bytes) if memory is None else memory
        pointers = [0] * len(self._places)
        pointers[self._places[read]], pointers[self._places[name]] = constant, made.data_ptr()
        kernels = zip(self._kernels, self._program.preparing, strict=True)
        with self._lock:
            for kernel in [k for k, prepared in kernels if prepared == name]:
                self._run(kernel, pointers)
        return made

    def _run(self, kernel: _LoadedKernel, pointers: list[int]) -> None:
        if self._team is None or kernel.tiles == 1:
            kernel.function(*pointers, kernel.scratch_addresses[0], 0, kernel.tiles)
        else:
            self._team.run(kernel.address, kernel.tiles, pointers, kernel.scratch_addresses)

    def unload(self) -> None:
        if self._team is not None:
            self._team.dismiss()
        self._kernels.clear()
        self._engine.close()


def _bytes(size: int) -> torch.Tensor:
    """Memory that begins at a page; large memory uses large pages if the system has them."""
    memory = mmap.mmap(-1, size + _HUGE_PAGE)
    if size >= _HUGE_PAGE // 8 and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    raw = torch.frombuffer(memory, dtype=torch.uint8)
    return raw[-raw.data_ptr() % _HUGE_PAGE :][:size]
