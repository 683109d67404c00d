"""CUDA kernels in a stand-alone file: their text, compiled by NVRTC on the machine that runs the file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.backends.cuda.nvrtc import architecture
from autosched.backends.cuda.source import launched, print_module
from autosched.backends.printing.scope import Identifiers
from autosched.standalone.driver_launches import DRIVER_NAMES, launch_text, runtime_texts
from search_spaces import Target, TileProgram
from search_spaces.programs.tile_program import Kernel

_COMPILED = '''\
def _compiled(architecture, source):
    """A function of a compute capability that compiles CUDA C++ of this architecture for such devices."""

    def cubin(capability):
        least, own = int(architecture[3:].rstrip("a")), architecture.endswith("a")
        if capability < least or (own and capability != least):
            raise RuntimeError(f"the GPU has compute capability {capability / 10}; expected {least / 10}")
        version, _ = _done(nvrtc.nvrtcVersion())
        if capability < 75 and version > 12:
            raise RuntimeError(f"NVRTC {version} has left out the GPU; expected cuda-bindings 12 with NVRTC 12")
        options = [f"--gpu-architecture=sm_{capability}{'a' * own}".encode(), b"--std=c++17"]
        program = _done(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
        if int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0]):
            log = b" " * _done(nvrtc.nvrtcGetProgramLogSize(program))
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"NVRTC {_done(nvrtc.nvrtcVersion())}: {log.decode()}")
        code = b" " * _done(nvrtc.nvrtcGetCUBINSize(program))
        _done(nvrtc.nvrtcGetCUBIN(program, code))
        return code

    return cubin'''


@dataclass(frozen=True)
class CudaKernels:
    """The kernels of a program, as one text that the file assigns to `variable`."""

    program: TileProgram
    target: Target
    variable: str

    @staticmethod
    def named(program: TileProgram, target: Target, names: Identifiers) -> CudaKernels:
        """With a name that is unique in the file: `MATMUL`."""
        return CudaKernels(program, target, names.of((program, "source"), program.name.upper()))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.variable, "nvrtc", *DRIVER_NAMES)

    @property
    def imports(self) -> tuple[str, ...]:
        return ("from cuda.bindings import driver, nvrtc",)

    @property
    def functions(self) -> tuple[str, ...]:
        text = _code(print_module(self.program, "", self.target))
        made = f"_compiled(\"{architecture(text, self.target.capability)}\", r'''\n{text}\n''')"
        mapped = any(kernel.maps for kernel in launched(self.program, self.target))
        return (*runtime_texts(mapped), _COMPILED, f"{self.variable} = _Kernels({made})")

    def launch(self, kernel: Kernel, variables: Mapping[str, str]) -> str:
        described = launched(self.program, self.target)[self.program.kernels.index(kernel)]
        return launch_text(self.variable, described, variables)


def _code(text: str) -> str:
    """The text without its leading comment, which the file has at its top, and which may quote what ends a string."""
    return "\n".join(itertools.dropwhile(lambda line: line.startswith("//"), text.split("\n"))).strip("\n")
