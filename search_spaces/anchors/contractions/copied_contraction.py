"""Contractions of copies of operands: after the kernels that make these, the program of a workload that reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.schedules.knobs import Values
from search_spaces.schedules.sketch import Sketch
from search_spaces.workloads.workload import Tensor, Workload


class Copy(Protocol):
    """A workspace and the kernel that fills it before the contraction; with a `constant` of that alone, once."""

    @property
    def workspace(self) -> Buffer: ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def constant(self) -> str: ...


def of_copies(name: str, workload: Workload, copies: Sequence[Copy], sketches: Iterable[Sketch]) -> tuple[Sketch, ...]:
    """Sketches of a workload under this name, from those of one that reads the copies instead."""
    return tuple(replace(s, name=name, lower=_Lowering(workload, tuple(copies), s)) for s in sketches)


@dataclass(frozen=True)
class _Lowering:
    """The program of a contraction of copies, after the kernels that make these."""

    workload: Workload
    copies: tuple[Copy, ...]
    sketch: Sketch

    def __call__(self, values: Values) -> TileProgram:
        program = self.sketch.lower(values)
        known = {b.name: b for b in program.buffers if b.role == "input"}
        inputs = (known.get(t.name, _given(t)) for t in self.workload.inputs)
        outputs = (b for b in program.buffers if b.role == "output")
        others = (b for b in program.buffers if b.role not in ("input", "output"))
        workspaces = [c.workspace for c in self.copies]
        once = tuple((c.workspace.name, c.constant) for c in self.copies if c.constant)
        return replace(
            program,
            buffers=(*inputs, *outputs, *workspaces, *others),
            kernels=(*(c.kernel for c in self.copies), *program.kernels),
            prepared=(*once, *program.prepared),
        )


def _given(tensor: Tensor) -> Buffer:
    return Buffer(tensor.name, tensor.shape, tensor.dtype, "input", tensor.strides)
