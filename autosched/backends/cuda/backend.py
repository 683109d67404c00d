"""The CUDA backend: prints CUDA C++, compiles it by NVRTC without a GPU, launches it through the CUDA driver."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from autosched.backends.backend import Artefact, CompileError, Launcher
from autosched.backends.cuda import nvrtc
from autosched.backends.cuda.limits import CudaLimits
from autosched.backends.gpu.cubin import read_cubin
from autosched.backends.gpu.early_launch import cuda_that_waits, launches_early
from autosched.backends.gpu.kernel import CudaKernel, kernels_from_json, kernels_to_json
from autosched.backends.gpu.warps import WARP, why_other_waves
from search_spaces import Target, TileProgram
from tuning_logs import CompileFacts

# The first with tensor cores.
_VOLTA = 70


class CudaBackend:
    """GPU kernels in CUDA C++ with inline PTX, from Volta on. Compiling takes 0.05 to 0.4 seconds a program."""

    name = "cuda"
    limits = CudaLimits()

    def serves(self, target: Target) -> bool:
        return target.capability >= _VOLTA and why_other_waves(target) is None

    def why_unavailable(self, target: Target) -> str | None:
        return nvrtc.why_unavailable(target.capability)

    def render(self, program: TileProgram, comment: str, target: Target) -> str:
        """CUDA C++ for the target's compute capability. Raises CompileError for a program that it cannot express."""
        # Printers take a tenth of a second to import, which a process that only loads kernels does without.
        from autosched.backends.cuda.source import print_module

        return print_module(program, comment, target)

    def compile(self, source: str, program: TileProgram, target: Target) -> Artefact:
        """A cubin for the target's compute capability with all kernels, and its PTX. Raises CompileError."""
        from autosched.backends.cuda.source import launched

        if not self.serves(target):
            expected = f"compute capability 7.0 or later with warps of {WARP}"
            raise CompileError(f"target {target.name} is no GPU of {expected}")
        started = time.perf_counter()
        waits = launches_early(target)
        kernels = [replace(kernel, waits=waits) for kernel in launched(program, target)]
        compiled = nvrtc.compile_text(cuda_that_waits(source) if waits else source, target.capability)
        facts = _facts(time.perf_counter() - started, compiled.cubin, kernels)
        launch = json.dumps({"capability": target.capability, "kernels": kernels_to_json(kernels)})
        return Artefact(self.name, source, (compiled.cubin, compiled.ptx), facts, launch)

    def load(self, artefact: Artefact, program: TileProgram) -> Launcher:
        """Load the code on torch's current device: the cubin, or PTX on a newer one. Raises LoadError."""
        # Only the process that runs kernels needs torch and the driver.
        import torch

        from autosched.backends.gpu.launch import CudaLauncher

        launch = json.loads(artefact.launch)
        major, minor = torch.cuda.get_device_capability()
        cubin, ptx = artefact.binaries
        kernels = kernels_from_json(launch["kernels"])
        image = cubin if launch["capability"] == 10 * major + minor else ptx
        return CudaLauncher(program, [image] * len(kernels), kernels)


def _facts(seconds: float, cubin: bytes, kernels: Sequence[CudaKernel]) -> CompileFacts:
    found = read_cubin(cubin)
    return CompileFacts(
        seconds=seconds,
        registers=found.registers,
        spill_bytes=found.frame_bytes,
        shared_memory_bytes=max(k.shared_bytes for k in kernels) + found.shared_bytes,
    )
