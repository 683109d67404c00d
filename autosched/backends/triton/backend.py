"""The Triton backend: prints Triton, compiles it to cubins without a GPU, launches them through the CUDA driver."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence

from autosched.backends.backend import Artefact, CompileError, Launcher
from autosched.backends.gpu.cubin import CubinFacts, read_cubin
from autosched.backends.gpu.early_launch import launches_early
from autosched.backends.gpu.kernel import CudaKernel, TensorMap, kernels_from_json, kernels_to_json
from autosched.backends.gpu.warps import why_other_waves
from autosched.backends.triton.limits import TritonLimits
from search_spaces import Target, TileProgram
from tuning_logs import CompileFacts

# The first that Triton makes fast kernels for: it does not use Volta's tensor cores, and hardly more of Turing's.
_AMPERE = 80


class TritonBackend:
    """GPU kernels through Triton 3.6 to 3.9. Compiling takes 0.2 to 0.5 seconds a kernel, longer when it spills."""

    name = "triton"
    limits = TritonLimits()

    def serves(self, target: Target) -> bool:
        return target.capability >= _AMPERE and why_other_waves(target) is None

    def why_unavailable(self, target: Target) -> str | None:
        found = importlib.util.find_spec("triton") is not None
        return None if found else "Triton is not installed; expected it: pip install triton"

    def render(self, program: TileProgram, comment: str, target: Target) -> str:
        """Triton source, the same for every GPU: a function per kernel. Raises CompileError for unsupported ones."""
        # Printers take a tenth of a second to import, which a process that only loads kernels does without.
        from autosched.backends.triton.source import print_module

        return print_module(program, comment)

    def compile(self, source: str, program: TileProgram, target: Target) -> Artefact:
        """Cubins for the target's compute capability. Raises CompileError."""
        # Triton takes a second to import, and only compiling needs it.
        from autosched.backends.triton.compile import compile_kernel, load_functions
        from autosched.backends.triton.printer import function_name
        from autosched.backends.triton.source import kernel_arguments

        if target.kind != "gpu":
            raise CompileError(f"target {target.name} is a {target.kind}; Triton compiles for gpu targets")
        if why := why_other_waves(target):
            raise CompileError(why)
        started = time.perf_counter()
        functions = load_functions(source)
        cubins: list[bytes] = []
        kernels: list[CudaKernel] = []
        for kernel in program.kernels:
            taken = kernel_arguments(program, kernel)
            compiled = compile_kernel(functions[function_name(kernel)], taken, kernel.launch, target)
            cubins.append(compiled.cubin)
            kernels.append(
                CudaKernel(
                    name=compiled.name,
                    arguments=tuple(b.name for b in taken.pointers),
                    programs=kernel.grid.programs,
                    num_warps=compiled.num_warps,
                    num_ctas=kernel.launch.num_ctas,
                    dependent=kernel.launch.dependent,
                    waits=launches_early(target),
                    shared_bytes=compiled.shared_bytes,
                    scratch_bytes=compiled.scratch_bytes,
                    hidden_parameters=compiled.hidden_parameters,
                    maps=tuple(
                        TensorMap(d.buffer.name, d.buffer.dtype, d.shape, d.strides, box, swizzle)
                        for d, (box, swizzle) in zip(taken.descriptors, compiled.boxes, strict=True)
                    ),
                )
            )
        facts = _facts(time.perf_counter() - started, kernels, [read_cubin(c) for c in cubins])
        return Artefact(self.name, source, tuple(cubins), facts, kernels_to_json(kernels))

    def load(self, artefact: Artefact, program: TileProgram) -> Launcher:
        """Load the cubins on torch's current device. Raises LoadError."""
        # Only the process that runs kernels needs the driver.
        from autosched.backends.gpu.launch import CudaLauncher

        return CudaLauncher(program, artefact.binaries, kernels_from_json(artefact.launch))


def _facts(seconds: float, kernels: Sequence[CudaKernel], cubins: Sequence[CubinFacts]) -> CompileFacts:
    return CompileFacts(
        seconds=seconds,
        registers=max(c.registers for c in cubins),
        spill_bytes=max(c.frame_bytes for c in cubins),
        shared_memory_bytes=max(k.shared_bytes for k in kernels),
    )
