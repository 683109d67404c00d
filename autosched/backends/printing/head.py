"""The comment at the top of generated code: its title, the tensors that it takes, and the loop nest.

# contraction m=64 n=64 …                             the schedule
#
# in0: (512, 256) float32                             inputs, outputs and workspaces of the canonical workload
# in1: (256, 128) float32, strides (1, 256)
# out0: (512, 128) float32
#
# kernel dot_512x128: grid m.0 in 8, n.0 in 2 …       the tile program

Tensors have the names and the order of the canonical workload, since one kernel serves all workloads of a key; the
title of what is printed for one of them, and `print` of a loaded kernel, say which of a call each is.
"""

from __future__ import annotations

from autosched.backends.printing.quoting import comment
from search_spaces.programs.text import to_text
from search_spaces.programs.tile_program import Buffer, TileProgram
from search_spaces.workloads.workload import Tensor, Workload


def head_comment(program: TileProgram, title: str, mark: str) -> str:
    """The lines of the comment, each after `mark`."""
    buffers = map(buffer_text, program.buffers)
    return comment([*title.splitlines(), "", *buffers, "", *to_text(program).split("\n")], mark)


def buffer_text(buffer: Buffer) -> str:
    """Name, shape, element type, strides if they are not dense, and what it is for if no tensor of a call."""
    strides = f", strides {buffer.strides}" if buffer.declared_strides else ""
    role = {"workspace": ", workspace", "own": ", of each program"}.get(buffer.role, "")
    return f"{buffer.name}: {buffer.shape} {buffer.dtype}{strides}{role}"


def tensors_of_call(workload: Workload) -> tuple[str, ...]:
    """The tensors of a call in the source's order: the name there, and name, shape and type in the workload."""
    scheduled = workload.scheduled
    named = (*(t.name for t in scheduled.inputs), *scheduled.output_names)
    called = (*(workload.inputs[n] for n in workload.canonical.inputs), *workload.outputs)
    return tuple(f"{name}: {_tensor_text(tensor)}" for name, tensor in zip(named, called, strict=True))


def _tensor_text(tensor: Tensor) -> str:
    strides = "" if tensor.strides is None else f" with strides {list(tensor.strides)}"
    return f"{tensor.name}{list(tensor.shape)} {tensor.dtype}{strides}"
