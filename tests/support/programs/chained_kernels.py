"""Kernels of chains of products on a GPU: with such tiles, their walks, and how far off they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

import best_spaces
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.machine.element_types import torch_dtype
from search_spaces import Schedule, Workload, target_named
from search_spaces.programs.statements import For, Map, statements
from search_spaces.schedules.knobs import cover

H200 = target_named("h200")
TRITON = TritonBackend()


def worst(workload: Workload, inputs: Sequence[torch.Tensor], got: Sequence[np.ndarray]) -> float:
    expected = expect(workload, inputs)
    made = [
        torch.from_numpy(np.asarray(g)).to(torch_dtype(t.dtype)) for g, t in zip(got, workload.outputs, strict=True)
    ]
    return max(map(error_ratio, made, expected))


def with_tiles(workload: Workload, m: int, c: int) -> Schedule:
    """A schedule with such tiles, without producer warps."""
    space = best_spaces.build(workload, H200)
    extents = {a.name: a.extent for s in workload.stages for a in s.loops}
    allowed = {
        "m": [cover(extents["m"], (m,))],
        "c": [cover(extents["c"], (c,))],
        "direction": ["ascending"],
        "split": [1],
        "specialize": ["none"],
    }
    return space.restricted("chain", **allowed).sample(np.random.default_rng(0))


def walks(schedule: Schedule) -> list[For]:
    (kernel,) = schedule.program.kernels
    return [s for s in statements(kernel.body) if isinstance(s, For) and s.variable == "c.0"]


def masked(loop: For) -> bool:
    return any(isinstance(s, Map) and s.operator == "where" for s in loop.body)
