"""Plans of many launches, each of which reads what the one before it has written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from autosched import backends
from autosched.backends.build import build
from autosched.kernels.kernel import Kernel
from autosched.planning import Launch, Layout, Plan, Slot
from search_spaces import TileProgram


def chained(kernels: Sequence[Kernel], graphs: bool = False) -> Callable[[Tensor, Tensor], Tensor]:
    """The result of the last of the kernels, of which the first reads `x`; a second input of each is `weight`.

    All between is in an arena, where the memory of two results serves for all of them. `graphs`: as one CUDA graph.
    """
    made = [Slot(Layout(tuple(k.outputs[0].shape), k.outputs[0].strides, k.outputs[0].dtype)) for k in kernels]
    launches = [
        Launch(kernel, ((number - 1 if number > 2 else 0, 0), (1, 0))[: len(kernel.inputs)], (number,))
        for number, kernel in enumerate(kernels, 2)
    ]
    last = len(kernels) + 1
    plan = Plan([Slot(), Slot(), *made], launches, {last}, kernels[0].device, graphs)

    def run(x: Tensor, weight: Tensor) -> Tensor:
        tensors = [x, weight]
        plan(tensors, [x.data_ptr(), weight.data_ptr()])
        return tensors[last]

    return run


def with_program(kernel: Kernel, program: TileProgram) -> Kernel:
    """The kernel with another program, which computes the same; not checked."""
    backend = backends.named(kernel.record.backend)
    artefact = build(program, "", kernel.target, backend)
    schedule = replace(kernel.schedule, lowering=lambda _: program)
    return Kernel(kernel.record, schedule, artefact, backend.load(artefact, program), kernel.workload)


def operands(kernel: Kernel, seed: int) -> tuple[Tensor, Tensor]:
    """A first input, and an orthogonal matrix as the weight: results stay as large, and each is another one."""
    draw, first, last = torch.Generator().manual_seed(seed), kernel.inputs[0], kernel.inputs[-1]
    x, weight = (torch.randn(a.shape, generator=draw) for a in (first, last))
    return x.to(kernel.device, first.dtype), torch.linalg.qr(weight).Q.to(kernel.device, last.dtype).contiguous()
