"""Kernels in a stand-alone file as cubins, compiled when it is written: the file needs no compiler."""

from __future__ import annotations

import base64
import textwrap
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from autosched import backends
from autosched.backends.backend import Artefact, CompileError
from autosched.backends.cuda.source import launched
from autosched.backends.gpu.kernel import CudaKernel, kernels_from_json
from autosched.backends.printing.scope import Identifiers
from autosched.standalone.driver_launches import DRIVER_NAMES, launch_text, runtime_texts
from search_spaces import InputError, Target, TileProgram
from search_spaces.programs.tile_program import Kernel

_LINE = 116
_CUBIN = '''\
def _cubin(capability, text):
    """A function of a compute capability that returns a cubin for this one."""

    def cubin(given):
        if given != capability:
            raise RuntimeError(f"the GPU has compute capability {given / 10}; expected {capability / 10}")
        return zlib.decompress(base64.b64decode(text))

    return cubin'''


@dataclass(frozen=True)
class CubinKernels:
    """The kernels of a program, compiled for the compute capability of a target.

    `compiled`: of each the cubin that has it, and its launch data; `variables`: of the file, by the cubins.
    """

    program: TileProgram
    target: Target
    compiled: tuple[tuple[bytes, CudaKernel], ...]
    variables: Mapping[bytes, str]

    @staticmethod
    def named(program: TileProgram, target: Target, backend: str, names: Identifiers) -> CubinKernels:
        """With names that are unique in the file: `MATMUL`.

        Raises:
            InputError: the backend cannot compile here.
        """
        maker = backends.named(backend)
        try:
            artefact = maker.compile(maker.render(program, "", target), program, target)
        except CompileError as error:
            raise InputError(f"{program.name} has no cubin for {target.label}: {error}") from error
        compiled = _of_program(artefact, program, target)
        found = dict.fromkeys(cubin for cubin, _ in compiled)
        return CubinKernels(
            program, target, compiled, {c: names.of((program, n), program.name.upper()) for n, c in enumerate(found)}
        )

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.variables.values(), "base64", "zlib", *DRIVER_NAMES)

    @property
    def imports(self) -> tuple[str, ...]:
        return ("from cuda.bindings import driver",)

    @property
    def functions(self) -> tuple[str, ...]:
        mapped = any(kernel.maps for _, kernel in self.compiled)
        capability = self.target.capability
        made = (f"{name} = _Kernels(_cubin({capability}, {_text(c)}))" for c, name in self.variables.items())
        return (*runtime_texts(mapped), _CUBIN, *made)

    def launch(self, kernel: Kernel, variables: Mapping[str, str]) -> str:
        cubin, described = self.compiled[self.program.kernels.index(kernel)]
        return launch_text(self.variables[cubin], described, variables)


def _of_program(artefact: Artefact, program: TileProgram, target: Target) -> tuple[tuple[bytes, CudaKernel], ...]:
    """The cubin and the launch data of each kernel."""
    if artefact.backend == "cuda":
        # One for all; the other binary is PTX.
        return tuple((artefact.binaries[0], kernel) for kernel in launched(program, target))
    return tuple(zip(artefact.binaries, kernels_from_json(artefact.launch), strict=True))


def _text(cubin: bytes) -> str:
    lines = textwrap.wrap(base64.b64encode(zlib.compress(cubin, 9)).decode("ascii"), _LINE)
    return '"""\n' + "\n".join(lines) + '\n"""'
