"""The function of a stand-alone file that launches the kernels of one workload, through Triton's own launcher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autosched.backends.gpu.arguments import Descriptor
from autosched.backends.printing.scope import call
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.source import is_gluon, kernel_arguments
from search_spaces import Tensor, TileProgram, Workload
from search_spaces.devices.warps import WARP_GROUP
from search_spaces.programs.tile_program import Buffer, Kernel
from search_spaces.workloads.dtypes import dtype

# What files call the two classes of tensor descriptors.
DESCRIPTOR = "TensorDescriptor"
GLUON_DESCRIPTOR = "GluonTensorDescriptor"
# What functions take that allocates: torch.empty_strided, or what puts bands around every tensor.
ALLOCATE = "empty"
# The function that checks the kernels before the first call.
FIRST_CALL = "_checked"
# As in `autosched.backends.triton.gluon.compile`: the widths of rows in shared memory whose banks are permuted.
_SWIZZLES = (128, 64, 32)

# What tells one function that launches kernels from another: the workload's key, the order of its inputs, its outputs.
Call = tuple[str, tuple[int, ...], tuple[Tensor, ...]]

CHECK = '''\
def _check(name, tensor, shape, strides, dtype, device):
    """Raise ValueError unless the kernels, which have shapes and strides built in, can take the tensor."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != device:
        got = f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}"
        raise ValueError(f"{name}: got {got}; expected {list(shape)} {dtype} on {device}")
    if any(size > 1 and got != want for size, got, want in zip(shape, tensor.stride(), strides)):
        raise ValueError(f"{name}: strides {tensor.stride()}; expected {strides}")
    if tensor.data_ptr() % 16:
        raise ValueError(f"{name} begins at {tensor.data_ptr():#x}; expected a multiple of 16, as of {name}.clone()")'''


def call_of(workload: Workload) -> Call:
    return workload.key, workload.canonical.inputs, workload.outputs


def launcher(function: str, workload: Workload, made: Workload, program: TileProgram, reserved: tuple[str, ...]) -> str:
    """A function of the workload's inputs, and of what allocates, that returns its outputs. It looks at no argument.

    The program is one of `made`, of the same key. `reserved`: names of the file that it uses.
    """
    names = python_identifiers()
    for name in (*reserved, ALLOCATE):
        names.of(("reserved", name), name)
    variables = {b.name: names.of(b.name, b.name) for b in program.buffers}
    # Kernels may see the same memory in another shape: rows end to end, say.
    taken = [variables[made.inputs[n].name] for n in made.input_order(workload)]
    outputs = [variables[name] for name in made.output_names]
    lines = [_allocated(name, t, taken[0]) for name, t in zip(outputs, workload.outputs, strict=True)]
    for workspace in (b for b in program.buffers if b.role == "workspace"):
        lines.append(
            _allocated(variables[workspace.name], Tensor(workspace.name, workspace.shape, workspace.dtype), taken[0])
        )
    lines += [f"{variables[name]}.zero_()" for name in program.zeroed]
    # On a CPU, where Triton's interpreter runs kernels, this does nothing.
    lines.append(f"with torch.cuda.device_of({taken[0]}):")
    for kernel in program.kernels:
        lines += [f"    {line}" for line in _launch(program, kernel, variables).split("\n")]
    lines.append(f"return {', '.join(outputs)}")
    return function_text(function, [*taken, ALLOCATE], lines)


def entry(function: str, launched: str, workload: Workload, reserved: tuple[str, ...]) -> str:
    """The function that a file is for: it looks at its arguments, and calls `launched` once that has been checked."""
    names = python_identifiers()
    for name in reserved:
        names.of(("reserved", name), name)
    taken = [names.of(t.name, t.name) for t in workload.inputs]
    lines = [f'"""{_what(workload)}"""']
    lines += [check(name, t, f"{taken[0]}.device") for name, t in zip(taken, workload.inputs, strict=True)]
    lines += [f"{FIRST_CALL}({taken[0]}.device)", f"return {launched}({', '.join(taken)}, torch.empty_strided)"]
    return function_text(function, taken, lines)


def function_text(name: str, arguments: Sequence[str], lines: Iterable[str]) -> str:
    """A function of a file, of lines that are indented by it."""
    body = "\n".join(f"    {line}" for text in lines for line in text.split("\n"))
    return f"def {name}({', '.join(arguments)}):\n{body}"


def check(name: str, tensor: Tensor, device: str) -> str:
    """The call that looks at an argument."""
    layout = [str(tensor.shape), str(tensor.effective_strides)]
    return call("_check", f'"{name}"', name, *layout, f"torch.{tensor.dtype}", device)


def _what(workload: Workload) -> str:
    given = ", ".join(f"{t.name}{list(t.shape)} {t.dtype}" for t in workload.inputs)
    made = ", ".join(f"{t.name}{list(t.shape)} {t.dtype}" for t in workload.outputs)
    return f"{made} of {given}."


def _allocated(name: str, tensor: Tensor, like: str) -> str:
    layout = [str(tensor.shape), str(tensor.effective_strides)]
    arguments = [*layout, f"dtype=torch.{tensor.dtype}", f"device={like}.device"]
    return call(ALLOCATE, *arguments, before=f"{name} = ")


def _launch(program: TileProgram, kernel: Kernel, variables: dict[str, str]) -> str:
    taken = kernel_arguments(program, kernel)
    gluon = is_gluon(kernel)
    arguments = [_passed(variables[b.name], b) for b in taken.pointers]
    arguments += [_descriptor(variables[d.buffer.name], d, gluon) for d in taken.descriptors]
    launch = kernel.launch
    # Of a Gluon kernel these are the warps of the first warp group; those of the others stand in its text.
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
    swizzle = next((s for s in _SWIZZLES if s <= descriptor.block[-1] * size), 0)
    bits, rank = 8 * size, len(descriptor.block)
    shared = f"gl.NVMMASharedLayout(swizzle_byte_width={swizzle}, element_bitwidth={bits}, rank={rank})"
    return f"{GLUON_DESCRIPTOR}({', '.join([*arguments, shared])})"
