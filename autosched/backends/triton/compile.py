"""One printed Triton kernel to a cubin, in a process that needs no GPU."""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

from autosched.backends.backend import CompileError
from autosched.backends.gpu.arguments import Arguments, Descriptor
from autosched.backends.gpu.early_launch import launches_early, ptx_that_waits
from autosched.backends.triton.gluon.compile import descriptor_type, first_warps
from search_spaces.devices.target import Target
from search_spaces.programs.tile_program import Launch

# The name under which inspect.getsource, and so Triton, finds the text. Always the same: it goes into the cubin.
_FILE_NAME = "<autosched>"
# Guaranteed alignment of buffers: torch allocates at multiples of 512 bytes, and vector loads need 16.
POINTER_ALIGNMENT_BYTES = 16
# MLIR's message for every failure, after or instead of the reason.
_NO_DIAGNOSIS = "Failures have been detected"
# Some diagnoses quote whole data layouts.
_REASON_LENGTH = 300
_TYPES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    # Of a byte each, which is 0 or 1.
    "bool": "i8",
}


@dataclass(frozen=True)
class CompiledKernel:
    """A cubin and its launch data.

    `num_warps` includes those that warp specialisation added; `scratch_bytes` is per program (and block of a cluster);
    `hidden_parameters` are the pointers that Triton appended: scratch first, then null ones; `boxes`: the tile of every
    descriptor as the hardware moves it, and its swizzle (the number of a CUtensorMapSwizzle).
    """

    cubin: bytes
    name: str
    num_warps: int
    shared_bytes: int
    scratch_bytes: int
    hidden_parameters: int
    boxes: tuple[tuple[tuple[int, ...], int], ...]


def load_functions(source: str) -> dict[str, Any]:
    """Execute printed source; its functions by name."""
    linecache.cache[_FILE_NAME] = (len(source), None, source.splitlines(keepends=True), _FILE_NAME)
    namespace: dict[str, Any] = {"__name__": "autosched_kernels"}
    exec(compile(source, _FILE_NAME, "exec"), namespace)
    return namespace


def compile_kernel(function: Any, taken: Arguments, launch: Launch, target: Target) -> CompiledKernel:
    """Compile one printed function with these arguments.

    Raises:
        CompileError: Triton or ptxas refused it; the message is their reason in one line.
    """
    types = [f"*{_TYPES[b.dtype]}" for b in taken.pointers]
    in_gluon = launch.producer_warps > 0
    describe = descriptor_type if in_gluon else _descriptor_type
    types += [describe(_TYPES[d.buffer.dtype], d) for d in taken.descriptors]
    signature = dict(zip(function.arg_names, types, strict=True))
    aligned = {(i,): [["tt.divisibility", POINTER_ALIGNMENT_BYTES]] for i in range(len(taken.pointers))}
    options: dict[str, int] = {
        "num_warps": first_warps(launch, target) if in_gluon else launch.num_warps,
        "num_stages": launch.num_stages,
        "num_ctas": launch.num_ctas,
    }
    if launch.max_registers:
        options["maxnreg"] = launch.max_registers
    device = GPUTarget("cuda", target.capability, target.wave)
    printed = Printed()
    try:
        with _own_cache(), _without_line_info(), _waiting(target), printed.captured():
            source = (GluonASTSource if in_gluon else ASTSource)(function, signature, {}, aligned)
            compiled = triton.compile(source, target=device, options=options)
    except Exception as error:  # Triton raises RuntimeError, ValueError, AssertionError, its own types, and more.
        raise CompileError(reason(error, printed.text)) from error
    return _described(compiled, taken)


def _descriptor_type(element: str, descriptor: Descriptor) -> str:
    return f"tensordesc<{element}{list(descriptor.block)}>"


def _described(compiled: Any, taken: Arguments) -> CompiledKernel:
    metadata = compiled.metadata
    # Each descriptor adds its map and as many sizes and strides as it has dimensions.
    parameters = len(taken.pointers) + sum(1 + 2 * len(d.block) for d in taken.descriptors)
    return CompiledKernel(
        cubin=compiled.asm["cubin"],
        name=metadata.name,
        num_warps=metadata.num_warps,
        shared_bytes=metadata.shared,
        scratch_bytes=metadata.global_scratch_size or 0,
        hidden_parameters=count_parameters(compiled.asm["ptx"]) - parameters,
        boxes=tuple((tuple(m["block_size"]), m["swizzle"]) for m in metadata.tensordesc_meta or ()),
    )


def count_parameters(ptx: str) -> int:
    """Number of parameters of the kernel of a PTX module. Versions of Triton append different numbers of them."""
    entry = re.search(r"\.entry\s+\w+\s*\((.*?)\)", ptx, re.DOTALL)
    if entry is None:
        raise CompileError("the PTX holds no kernel entry")
    return entry.group(1).count(".param")


@contextlib.contextmanager
def _own_cache() -> Iterator[None]:
    """Context with Triton's files in a temporary directory: thousands of trials would fill the shared one."""
    with tempfile.TemporaryDirectory(prefix="autosched-triton-") as directory, triton.knobs.cache.scope():
        triton.knobs.cache.dir = directory
        yield


@contextlib.contextmanager
def _without_line_info() -> Iterator[None]:
    """Context without source lines in binaries: schedules that differ only in their comment compile to the same."""
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = True
        yield


@contextlib.contextmanager
def _waiting(target: Target) -> Iterator[None]:
    """Context in which kernels wait for those before them, where the device launches them that early."""

    def add(_backend: Any = None, stages: dict[str, Any] | None = None, *_: Any) -> tuple[str, str] | None:
        if stages is None:
            # Asked for its part of the key of Triton's cache, which is this compilation's own.
            return "", ""
        assemble = stages["cubin"]
        stages["cubin"] = lambda ptx, metadata: assemble(ptx_that_waits(ptx), metadata)
        return None

    with triton.knobs.runtime.scope():
        if launches_early(target):
            triton.knobs.runtime.add_stages_inspection_hook = add
        yield


class Printed:
    """Text that was written to the process's standard output and error, by Python or by the compiler's own code."""

    text: str = ""

    @contextlib.contextmanager
    def captured(self) -> Iterator[None]:
        """Context that sends file descriptor 2 to a file: MLIR prints its reasons, and whole modules, there."""
        sys.stderr.flush()
        python = io.StringIO()
        with tempfile.TemporaryFile() as file:
            saved = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                with contextlib.redirect_stdout(python):
                    yield
            finally:
                os.dup2(saved, 2)
                os.close(saved)
                file.seek(0)
                self.text = file.read().decode(errors="replace")


def reason(error: BaseException, printed: str) -> str:
    """Reason of a failed compilation, in one line: the exception's own words, the first error printed, and its pass."""
    while error.__cause__ and str(error).rstrip().endswith("^"):
        error = error.__cause__  # A CompilationError that follows on another exception only quotes the source.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    failed = [line for line in lines if "error" in line.lower()]
    own = _shown(lines, failed, type(error).__name__)
    diagnosed = [
        d.strip() for d in re.findall(r"(?:(?i:error):\s*|: (?=Assertion `))(.+)", printed) if _NO_DIAGNOSIS not in d
    ]
    detail = f": {diagnosed[0]}" if diagnosed and diagnosed[0] not in own else ""
    stage = re.search(r"Pipeline failed while executing \[`(\w+)`", printed)
    return f"{own}{detail}"[:_REASON_LENGTH] + (f" (in {stage.group(1)})" if stage else "")


def _shown(lines: list[str], failed: list[str], kind: str) -> str:
    if not lines:
        return kind
    # CompilationError quotes the source and ends with the reason; PTXASError begins with it and quotes the log.
    if lines[0].startswith("at "):
        return lines[-1]
    return " | ".join(dict.fromkeys([lines[0], *failed[:2]]))
