"""Functions that need Triton: parallel compilation, and classification of its errors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future, as_completed, wait
from contextlib import suppress
from itertools import islice
from time import perf_counter
from typing import cast

import triton
from triton.compiler import make_backend
from triton.compiler.errors import CompilationError
from triton.runtime import driver
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import MockTensor

from autosched.machine import memory
from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.calls.jit_kernel import JitKernel, layers
from autosched.tuning.autotune.configurations import Configuration
from tuning_logs import CompileFacts, Status
from tuning_logs.text import first_line

# Registers are spilled in words of so many bytes.
_WORD_BYTES = 4
# All that are submitted compile at once, including those that never end: the next one must not wait for a thread that
# is never returned; threads start on demand.
MOST_THREADS = 1024


def interpreted() -> bool:
    """True if kernels run in Triton's interpreter, on the processor."""
    return bool(triton.knobs.runtime.interpret)


def compiles(kernel: JitKernel) -> bool:
    """True if the kernel is compiled for the GPU, and not interpreted."""
    return any(isinstance(layer, triton.JITFunction) for layer in layers(kernel))


def mocked(arguments: Sequence[object]) -> tuple[object, ...]:
    """Element types as Triton's compiler takes them in the place of tensors; other arguments unchanged."""
    return tuple(map(MockTensor.wrap_dtype, arguments))


def launch_options() -> frozenset[str]:
    """Launch options of the current device, besides the arguments of a kernel."""
    return frozenset(make_backend(driver.active.get_current_target()).parse_options({}).__dict__)


def begin_compiling(call: Call, configurations: Sequence[Configuration], pool: Executor) -> list[Future[object]]:
    """Compile these in threads of the pool: futures of their ends.

    Failures are compiled again, and reported, when they are run.
    """
    if interpreted():
        return [_ended() for _ in configurations]
    begun: list[Future[object]] = []
    mode = triton.AsyncCompileMode(pool, ignore_errors=True)
    # Suppresses the mode's error where the user has opened one: then nothing is compiled ahead.
    with suppress(RuntimeError), mode:
        begun += [_begun(call, configuration) for configuration in configurations]
        # The mode would wait for these at its end.
        mode.raw_futures = []
    return begun or [_ended() for _ in configurations]


def _ended() -> Future[object]:
    future = Future[object]()
    future.set_result(None)
    return future


def _begun(call: Call, configuration: Configuration) -> Future[object]:
    with suppress(Exception):
        kernel = call.compile(configuration)
        if isinstance(kernel, triton.FutureKernel):
            return cast(Future[object], kernel.future)
    return _ended()


def compiled(call: Call, configuration: Configuration) -> object:
    """The kernel of a configuration, compiled; raises whatever the compiler does."""
    kernel = call.compile(configuration)
    return kernel.result() if isinstance(kernel, triton.FutureKernel) else kernel


def why_unusable(call: Call, configuration: Configuration) -> tuple[Status, str] | None:
    """Reason why a configuration that worked once no longer compiles, or fits the device; None if it does."""
    try:
        # Triton checks a kernel's needs against the device when its launcher is first requested.
        getattr(compiled(call, configuration), "run", None)
    except Exception as error:
        return failure_of(error, compiling=True)
    return None


def facts_of(kernel: object, seconds: float) -> CompileFacts | None:
    """Compile facts of a loaded kernel; None for one that is interpreted."""
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
    """Status of a configuration's exception, and its reason in one line."""
    root = _root(error)
    said = root.error_message if isinstance(root, CompilationError) else None
    reason = f"{type(root).__name__}: {first_line(Exception(said)) if said else first_line(root)}"
    if memory.ran_out(error):
        return "out_of_memory", reason
    if isinstance(error, OutOfResources):
        return "load_error", reason
    return ("compile_error" if compiling or isinstance(error, CompilationError) else "run_error"), reason


def _root(error: Exception) -> Exception:
    """The compiler's own error, at the end of a chain of errors that each name the line of a caller."""
    while isinstance(error, CompilationError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


def wait_for_most(asked: Collection[Future[object]], every: Collection[Future[object]], most_s: float) -> None:
    """Until half as many as were asked for have ended, of every one; then as long again for what was asked for.

    One at least; and for the half no longer than so many seconds. Of an attention most configurations for an H200 took
    the compiler 1 to 3 s on one core, and large tiles on two warps up to 18 s, most of it to spill registers: none of
    these is fast. A search of 48 trials that waited for each took 23 s, and one that does not 11 s.
    """
    begin = perf_counter()
    with suppress(TimeoutError):
        for _ in islice(as_completed(every, most_s), max(1, (len(asked) + 1) // 2)):
            pass
    wait(asked, perf_counter() - begin)
