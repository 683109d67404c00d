"""Threads that share the tiles of a grid: each takes some, and comes back for more until none is left.

So a thread that begins late, or shares its core with something else, does less. The threads are those of the OpenMP
that PyTorch's own operators run on, if there is one with GNU's interface: a thread of our own would compete for its
core with one of theirs, which after an operator spins for some milliseconds before it sleeps.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llvmlite.binding as llvm
import torch

from autosched.backends.llvm.compiler import compiler, engine

# A thread comes for tiles so many times if all are as fast: a delayed one delays the others by one share at most.
_SHARES = 8
# Layout of a job, in 64-bit words, before the addresses of the buffers.
_NEXT_TILE, _TILES, _SHARE, _NEXT_THREAD, _KERNEL, _SCRATCH, _BUFFERS = range(7)
_FORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)


class Team:
    """The threads that run the kernels of one program. One call at a time."""

    def __init__(self, threads: int, buffers: int, openmp: bool = True) -> None:
        """`buffers`: their number in a kernel. Without `openmp`, or if PyTorch has none, threads are made."""
        self._threads = threads
        self._work = _work(buffers)
        self._fork = _gnu_openmp() if openmp else None
        self._pool = ThreadPoolExecutor(threads - 1, "autosched") if self._fork is None else None
        self._job = (ctypes.c_void_p * (_BUFFERS + buffers))()
        self._scratch = (ctypes.c_void_p * threads)()

    def run(self, kernel: int, tiles: int, pointers: Sequence[int], scratch: Sequence[int]) -> None:
        """Compute all tiles of the kernel at this address; `scratch` is an address for every thread."""
        for thread, address in enumerate(scratch):
            self._scratch[thread] = address
        share = max(1, tiles // (self._threads * _SHARES))
        words = (0, tiles, share, 0, kernel, ctypes.addressof(self._scratch), *pointers)
        for place, word in enumerate(words):
            self._job[place] = word
        job = ctypes.addressof(self._job)
        if self._fork is not None:
            self._fork(self._work.address, job, min(self._threads, tiles), 0)
            return
        assert self._pool is not None
        others = [self._pool.submit(self._work.function, job) for _ in range(min(self._threads, tiles) - 1)]
        self._work.function(job)
        for other in others:
            # Threads that have not begun by now need not.
            if not other.cancel():
                other.result()

    def dismiss(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class _Work:
    """The work of every thread of a team, as machine code."""

    def __init__(self, buffers: int) -> None:
        own, self._engine = compiler(), engine()
        binary = own.machine.emit_object(llvm.parse_assembly(_source(buffers)))
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(binary))
        self._engine.finalize_object()
        self.address = self._engine.get_function_address("work")
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)


@functools.cache
def _work(buffers: int) -> _Work:
    return _Work(buffers)


@functools.cache
def _gnu_openmp() -> Callable[[int, int, int, int], None] | None:
    """GOMP_parallel(function, its argument, threads, flags) of the OpenMP library that PyTorch loaded, or None."""
    for found in sorted((Path(torch.__file__).parent / "lib").glob("lib[gi]*omp*.so*")):
        try:
            return _FORK(("GOMP_parallel", ctypes.CDLL(str(found))))
        except (OSError, AttributeError):
            continue
    return None


def _source(buffers: int) -> str:
    """Function that takes a thread's number, then shares of tiles while there are any; for a job see `_NEXT_TILE`."""
    given = "".join(f"ptr %buffer.{i}, " for i in range(buffers))
    loads = "".join(_load("ptr", f"buffer.{i}", _BUFFERS + i) for i in range(buffers))
    return f"""
define void @work(ptr %job) nounwind {{
entry:
{_load("i64", "tiles", _TILES)}{_load("i64", "share", _SHARE)}{_load("ptr", "kernel", _KERNEL)}
{_load("ptr", "scratches", _SCRATCH)}{loads}
  %counter = getelementptr i64, ptr %job, i64 {_NEXT_THREAD}
  %thread = atomicrmw add ptr %counter, i64 1 seq_cst
  %own = getelementptr ptr, ptr %scratches, i64 %thread
  %scratch = load ptr, ptr %own
  %next = getelementptr i64, ptr %job, i64 {_NEXT_TILE}
  br label %more
more:
  %first = atomicrmw add ptr %next, i64 %share seq_cst
  %any = icmp slt i64 %first, %tiles
  br i1 %any, label %some, label %none
some:
  %left = sub i64 %tiles, %first
  %count = call i64 @llvm.smin.i64(i64 %left, i64 %share)
  call void %kernel({given}ptr %scratch, i64 %first, i64 %count)
  br label %more
none:
  ret void
}}

declare i64 @llvm.smin.i64(i64, i64)
"""


def _load(kind: str, name: str, word: int) -> str:
    return f"  %{name}.at = getelementptr i64, ptr %job, i64 {word}\n  %{name} = load {kind}, ptr %{name}.at\n"
