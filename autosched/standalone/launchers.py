"""The function of a stand-alone file that launches the kernels of one workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from autosched.backends.printing.quoting import docstring
from autosched.backends.printing.scope import call
from autosched.backends.triton.language.scope import python_identifiers
from search_spaces import Tensor, TileProgram, Workload
from search_spaces.programs.tile_program import Kernel


class FileKernels(Protocol):
    """The kernels of one workload in a stand-alone file, in the language of their backend.

    `program` is theirs; `imports` and `functions` are lines and parts of the file, each once among those of all
    kernels; `names` are the names in the file that they have taken.
    """

    @property
    def program(self) -> TileProgram: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def imports(self) -> tuple[str, ...]: ...

    @property
    def functions(self) -> tuple[str, ...]: ...

    def launch(self, kernel: Kernel, variables: Mapping[str, str]) -> str:
        """The statement that launches a kernel; `variables` maps the program's tensors to names in the file."""
        ...


class LaidOut(Protocol):
    """A tensor in memory; `dtype` is PyTorch's name of its element type."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def effective_strides(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...


# The allocator that functions take: torch.empty_strided, or one that puts guard bands around every tensor.
ALLOCATE = "empty"
# The function that checks the kernels before the first call.
FIRST_CALL = "_checked"

# Key of a function that launches kernels: the workload's key, the order of its inputs, its outputs.
LauncherKey = tuple[str, tuple[int, ...], tuple[Tensor, ...]]

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


def call_of(workload: Workload) -> LauncherKey:
    return workload.key, workload.canonical.inputs, workload.outputs


def launcher(function: str, workload: Workload, kernels: FileKernels, reserved: tuple[str, ...]) -> str:
    """A function of the workload's inputs, and of an allocator, that returns its outputs. It checks no argument.

    `reserved`: names of the file that it uses.
    """
    names, program = python_identifiers(), kernels.program
    for name in (*reserved, ALLOCATE):
        names.of(("reserved", name), name)
    variables = {b.name: names.of(b.name, b.name) for b in program.buffers}
    # Kernels see the same memory in another shape, such as rows end to end.
    inputs, outputs = ([variables[b.name] for b in program.buffers if b.role == role] for role in ("input", "output"))
    called = dict(zip(workload.canonical.inputs, inputs, strict=True))
    taken = [called[n] for n in range(len(workload.inputs))]
    lines = [_allocated(f"{name} = ", t, taken[0]) for name, t in zip(outputs, workload.outputs, strict=True)]
    once = dict(program.prepared)
    for workspace in (b for b in program.buffers if b.role == "workspace"):
        room = Tensor(workspace.name, workspace.shape, workspace.dtype, workspace.declared_strides)
        before = f"{variables[workspace.name]} = {'lambda: ' if workspace.name in once else ''}"
        lines.append(_allocated(before, room, taken[0]))
    lines += [f"{variables[name]}.zero_()" for name in program.zeroed]
    # On a CPU, where Triton's interpreter runs kernels, this does nothing.
    lines.append(f"with torch.cuda.device_of({taken[0]}):")
    each = zip(program.kernels, program.preparing, strict=True)
    launches = [(prepared, kernels.launch(kernel, variables)) for kernel, prepared in each]
    for made, read in once.items():
        lines += _preparation(function, variables, made, read, [text for x, text in launches if x == made])
    for text in (text for prepared, text in launches if not prepared):
        lines += [f"    {line}" for line in text.split("\n")]
    lines.append(f"return {', '.join(outputs)}")
    return function_text(function, [*taken, ALLOCATE], lines)


def _preparation(
    function: str, variables: Mapping[str, str], workspace: str, read: str, launches: Iterable[str]
) -> list[str]:
    """The lines that make a prepared workspace, a function that allocates it so far, of a constant."""
    name = variables[workspace]
    filled = [f"        {line}" for text in launches for line in text.split("\n")]
    given = f'"{function} {workspace}", {variables[read]}, {name}, fill_{name}'
    return [f"    def fill_{name}({name}):", *filled, f"    {name} = _prepared({given})"]


def entry(function: str, launched: str, workload: Workload, reserved: tuple[str, ...]) -> str:
    """The main function of a file: checks its arguments, and calls `launched` after the first check of that."""
    names = python_identifiers()
    for name in reserved:
        names.of(("reserved", name), name)
    taken = [names.of(t.name, t.name) for t in workload.inputs]
    lines = [docstring(_what(workload))]
    lines += [check(name, t, f"{taken[0]}.device") for name, t in zip(taken, workload.inputs, strict=True)]
    lines += [f"{FIRST_CALL}({taken[0]}.device)", f"return {launched}({', '.join(taken)}, torch.empty_strided)"]
    return function_text(function, taken, lines)


def function_text(name: str, arguments: Sequence[str], lines: Iterable[str]) -> str:
    """A function of a file with these lines, which it indents."""
    body = "\n".join(f"    {line}" for text in lines for line in text.split("\n"))
    return f"{call(f'def {name}', *arguments)}:\n{body}"


def check(name: str, tensor: LaidOut, device: str) -> str:
    """The call that checks an argument."""
    layout = [str(tensor.shape), str(tensor.effective_strides)]
    return call("_check", f'"{name}"', name, *layout, f"torch.{tensor.dtype}", device)


def _what(workload: Workload) -> str:
    given = ", ".join(f"{t.name}{list(t.shape)} {t.dtype}" for t in workload.inputs)
    made = ", ".join(f"{t.name}{list(t.shape)} {t.dtype}" for t in workload.outputs)
    return f"{made} of {given}."


def _allocated(before: str, tensor: Tensor, like: str) -> str:
    """An allocation of such a tensor, after the text before it."""
    layout = [str(tensor.shape), str(tensor.effective_strides)]
    arguments = [*layout, f"dtype=torch.{tensor.dtype}", f"device={like}.device"]
    return call(ALLOCATE, *arguments, before=before)
