"""Triton kernels in a stand-alone file, launched by Triton's own launcher."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from autosched.backends.gpu.arguments import Descriptor
from autosched.backends.gpu.warps import WARP_GROUP
from autosched.backends.printing.scope import Identifiers, call
from autosched.backends.triton.gluon.compile import SWIZZLES
from autosched.backends.triton.source import is_gluon, kernel_arguments, print_module
from search_spaces import TileProgram
from search_spaces.programs.tile_program import Buffer, Kernel
from search_spaces.workloads.dtypes import dtype

# Names of the two classes of tensor descriptors in files.
DESCRIPTOR = "TensorDescriptor"
GLUON_DESCRIPTOR = "GluonTensorDescriptor"
# The separator of `print_module`'s parts: comment and imports, then functions.
_BETWEEN = "\n\n\n"


@dataclass(frozen=True)
class TritonKernels:
    """The kernels of a program, with names that are unique in the file."""

    program: TileProgram

    @staticmethod
    def named(program: TileProgram, names: Identifiers) -> TritonKernels:
        """With names that are unique in the file: `matmul` becomes `matmul_kernel`."""
        kernels = tuple(
            dataclasses.replace(k, name=names.of((program, k.name), f"{k.name}_kernel")) for k in program.kernels
        )
        return TritonKernels(dataclasses.replace(program, kernels=kernels))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(k.name for k in self.program.kernels)

    @property
    def imports(self) -> tuple[str, ...]:
        return tuple(line for line in self._parts[0].split("\n") if line and not line.startswith("#"))

    @property
    def functions(self) -> tuple[str, ...]:
        return self._parts[1:]

    @cached_property
    def _parts(self) -> tuple[str, ...]:
        return tuple(print_module(self.program, "").rstrip("\n").split(_BETWEEN))

    def launch(self, kernel: Kernel, variables: Mapping[str, str]) -> str:
        taken = kernel_arguments(self.program, kernel)
        gluon = is_gluon(kernel)
        arguments = [_passed(variables[b.name], b) for b in taken.pointers]
        arguments += [_descriptor(variables[d.buffer.name], d, gluon) for d in taken.descriptors]
        launch = kernel.launch
        # For a Gluon kernel these are the warps of the first warp group; its text has those of the others.
        arguments += [f"num_warps={WARP_GROUP if gluon else launch.num_warps}", f"num_stages={launch.num_stages}"]
        arguments += [f"num_ctas={launch.num_ctas}"] if launch.num_ctas > 1 else []
        arguments += [f"maxnreg={launch.max_registers}"] if launch.max_registers else []
        return call(f"{kernel.name}[({kernel.grid.programs},)]", *arguments)


def _passed(name: str, buffer: Buffer) -> str:
    """The tensor as the kernel takes it: booleans as bytes."""
    return f"{name}.view(torch.int8)" if buffer.dtype == "bool" else name


def _descriptor(name: str, descriptor: Descriptor, gluon: bool) -> str:
    layout = [list(descriptor.shape), list(descriptor.strides), list(descriptor.block)]
    arguments = [_passed(name, descriptor.buffer), *map(str, layout)]
    if not gluon:
        return f"{DESCRIPTOR}({', '.join(arguments)})"
    size = dtype(descriptor.buffer.dtype).bytes
    swizzle = next((s for s in SWIZZLES if s <= descriptor.block[-1] * size), 0)
    bits, rank = 8 * size, len(descriptor.block)
    shared = f"gl.NVMMASharedLayout(swizzle_byte_width={swizzle}, element_bitwidth={bits}, rank={rank})"
    return f"{GLUON_DESCRIPTOR}({', '.join([*arguments, shared])})"
