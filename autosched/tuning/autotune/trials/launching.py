"""What Triton is needed for: compiling configurations at once, and telling its errors apart."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import triton
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from autosched.machine import memory
from autosched.tuning.autotune.call import Call
from autosched.tuning.autotune.configurations import Configuration
from autosched.tuning.autotune.jit_kernel import JitKernel, layers
from tuning_logs import CompileFacts, Status
from tuning_logs.text import first_line

# Registers are spilled in words of so many bytes.
_WORD_BYTES = 4


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on the processor."""
    return bool(triton.knobs.runtime.interpret)


def compiles(kernel: JitKernel) -> bool:
    """Whether it is compiled for the GPU, and not interpreted."""
    return any(isinstance(layer, triton.JITFunction) for layer in layers(kernel))


def compile_all(call: Call, configurations: Sequence[Configuration]) -> float:
    """Compile these in parallel threads; seconds for each. What fails is compiled again, and told, when it is run."""
    begin = time.perf_counter()
    if not interpreted() and len(configurations) > 1:
        # Suppressed is what the mode raises where the user has opened one: then nothing is compiled ahead.
        with (
            ThreadPoolExecutor(os.cpu_count()) as pool,
            suppress(RuntimeError),
            triton.AsyncCompileMode(pool, ignore_errors=True),
        ):
            for configuration in configurations:
                with suppress(Exception):
                    call.compile(configuration)
    return (time.perf_counter() - begin) / max(1, len(configurations))


def compiled(call: Call, configuration: Configuration) -> object:
    """The kernel of a configuration, compiled; raises whatever the compiler does."""
    kernel = call.compile(configuration)
    return kernel.result() if isinstance(kernel, triton.FutureKernel) else kernel


def why_unusable(call: Call, configuration: Configuration) -> tuple[Status, str] | None:
    """Why a configuration that worked once does not compile, or fit the device, any more; None where it does."""
    try:
        # Triton looks at what it needs of the device when it is asked for what runs it.
        getattr(compiled(call, configuration), "run", None)
    except Exception as error:
        return failure_of(error, compiling=True)
    return None


def facts_of(kernel: object, seconds: float) -> CompileFacts | None:
    """What is known of a kernel that was loaded; nothing of one that is interpreted."""
    if not hasattr(kernel, "n_regs"):
        return None
    shared = getattr(getattr(kernel, "metadata", None), "shared", None)
    return CompileFacts(
        round(seconds, 6),
        registers=kernel.n_regs,
        spill_bytes=_WORD_BYTES * int(getattr(kernel, "n_spills", 0) or 0),
        shared_memory_bytes=shared,
    )


def failure_of(error: Exception, compiling: bool) -> tuple[Status, str]:
    """What a configuration's exception means, and its reason in one line."""
    root = _root(error)
    said = root.error_message if isinstance(root, CompilationError) else None
    reason = f"{type(root).__name__}: {first_line(Exception(said)) if said else first_line(root)}"
    if memory.ran_out(error):
        return "out_of_memory", reason
    if isinstance(error, OutOfResources):
        return "load_error", reason
    return ("compile_error" if compiling or isinstance(error, CompilationError) else "run_error"), reason


def _root(error: Exception) -> Exception:
    """What is wrong where the compiler was, of errors that each name the line of the caller."""
    while isinstance(error, CompilationError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error
