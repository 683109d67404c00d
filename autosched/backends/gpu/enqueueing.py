"""Many launches by one call of machine code: the driver's own time each, and none of Python's.

LLVM compiles the loop, as it does the kernels of a CPU: it takes some milliseconds, once in a process.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import llvmlite.binding as llvm
from cuda.bindings import driver

from autosched.backends.gpu.tensor_maps import driver_function

# Words of a step: a launch has the addresses of its description and of its parameters, and its function between these;
# a step that clears memory has 0, the address of the memory's address, and the number of bytes.
STEP_WORDS = 3
# Takes the steps, their number, and the stream of those that clear; returns the driver's first status that is none of
# success. Launches have their stream in their description.
_LOOP = """
define i32 @enqueue(ptr %steps, i64 %count, ptr %stream, ptr %launch, ptr %clear) nounwind {
entry:
  br label %more
more:
  %n = phi i64 [ 0, %entry ], [ %next, %done ]
  %any = icmp slt i64 %n, %count
  br i1 %any, label %some, label %enqueued
some:
  %word = mul i64 %n, 3
  %first.at = getelementptr i64, ptr %steps, i64 %word
  %second.at = getelementptr i64, ptr %first.at, i64 1
  %third.at = getelementptr i64, ptr %first.at, i64 2
  %first = load ptr, ptr %first.at
  %second = load ptr, ptr %second.at
  %third = load ptr, ptr %third.at
  %clears = icmp eq ptr %first, null
  br i1 %clears, label %clearing, label %launching
clearing:
  %memory = load i64, ptr %second
  %bytes = ptrtoint ptr %third to i64
  %cleared = call i32 %clear(i64 %memory, i8 zeroext 0, i64 %bytes, ptr %stream)
  br label %done
launching:
  %launched = call i32 %launch(ptr %first, ptr %second, ptr %third, ptr null)
  br label %done
done:
  %status = phi i32 [ %cleared, %clearing ], [ %launched, %launching ]
  %next = add i64 %n, 1
  %right = icmp eq i32 %status, 0
  br i1 %right, label %more, label %refused
enqueued:
  ret i32 0
refused:
  ret i32 %status
}
"""


class Enqueueing:
    """`enqueueing(steps, count, stream)`: the driver's status after so many steps at an address."""

    def __init__(self) -> None:
        """Raises LoadError when the driver lacks a function."""
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
        # The code lives as long as its engine.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_LOOP), machine)
        self._engine.finalize_object()
        pointer = ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_int64, pointer, pointer, pointer)
        self._loop: Any = kind(self._engine.get_function_address("enqueue"))
        self._launch, self._clear = driver_function("cuLaunchKernelEx"), driver_function("cuMemsetD8Async")

    def __call__(self, steps: int, count: int, stream: int) -> tuple[Any]:
        return (driver.CUresult(self._loop(steps, count, stream, self._launch, self._clear)),)


@functools.cache
def enqueueing() -> Enqueueing:
    """Made once in a process."""
    return Enqueueing()
