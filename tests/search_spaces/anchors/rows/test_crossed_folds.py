"""Folds of rows and of columns of one tensor in one walk over it: sums over both axes, gradients of norms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import search_spaces
from autosched import trace
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from autosched.machine.devices import cpu_target
from autosched.machine.element_types import torch_dtype
from best_spaces import build
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Stage, Workload, target_named
from search_spaces.errors import UnmatchedError
from search_spaces.structure.crossed import crossed_of
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access

TRITON, TARGET = TritonBackend(), target_named("h200")
ROWS, COLUMNS = 70, 50
X, W = torch.empty(ROWS, COLUMNS), torch.empty(COLUMNS)


def norm_gradient(x: Tensor, g: Tensor, w: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    h = (x - mean) * scale
    across = g * w
    left = across - across.mean(-1, keepdim=True) - h * (across * h).mean(-1, keepdim=True)
    return left * scale, (g * h).sum(0), g.sum(0)


CASES: dict[str, tuple[Callable[..., object], list[Tensor]]] = {
    "sums": (lambda x: (x.sum(0), x.sum(1)), [X]),
    "computed further": (lambda x: (x.amax(0) * 2, x.sum(1) + 1), [X]),
    "of folds of rows": (lambda x: torch.softmax(x, -1).sum(0), [X]),
    "of several axes": (lambda x: (x.mean((0, 1)), x.amin(-1)), [torch.empty(7, 10, COLUMNS)]),
    "gradients of a norm": (norm_gradient, [X, X, W, torch.empty(ROWS, 1), torch.empty(ROWS, 1)]),
    "of integers": (lambda x: (x.sum(0), x.sum(1)), [torch.empty(ROWS, COLUMNS, dtype=torch.int32)]),
}


def workload_of(name: str) -> Workload:
    function, inputs = CASES[name]
    (workload,) = trace(function, *inputs).for_target(TARGET).workloads
    return workload


@pytest.mark.parametrize("name", CASES)
def test_rows_and_columns_are_folded_in_one_walk(triton_interpreter, name: str) -> None:
    workload = workload_of(name)
    inputs = random_inputs(workload, seed=2)
    space = build(workload, TARGET).restricted("crossed_reduction", rows=(4, 16, 32))
    rng = np.random.default_rng(3)
    for schedule in dict.fromkeys(space.sample(rng) for _ in range(2)):
        by_numpy = interpreted(workload, schedule.program, [x.double() for x in inputs])
        printed = triton_interpreter.computed(
            TRITON.render(schedule.program, "", TARGET), workload, schedule.program, inputs
        )
        results = zip(workload.outputs, expect(workload, inputs), by_numpy, printed, strict=True)
        for output, expected, *found in results:
            for got in found:
                values = torch.from_numpy(got).to(torch_dtype(output.dtype))
                assert why_wrong(values.view(expected.values.shape), expected) is None, str(schedule)


def test_the_gradient_of_a_norm_is_one_kernel_on_a_gpu_and_several_on_a_cpu() -> None:
    x, w = torch.empty(ROWS, COLUMNS, requires_grad=True), torch.empty(COLUMNS, requires_grad=True)
    traced = trace(lambda x, w: F.rms_norm(x, (COLUMNS,), w), x, w, backward=True)
    assert len(traced.for_target(TARGET).backward.steps) == 1
    assert len(traced.for_target(cpu_target()).backward.steps) > 1


def test_rows_that_need_whole_columns_are_refused() -> None:
    (workload,) = trace(lambda x: (x.sum(0), x.sum(1)), X).workloads
    assert {s.name for s in crossed_of(workload).crossed} == {"out1"}
    with pytest.raises(UnmatchedError, match="both of two axes"):
        crossed_of(trace(lambda x: x.sum(0), X).workloads[0])
    r, c, at = Axis("r", 70), Axis("c", 50), Access("x", (axis_index("r"), axis_index("c")))
    rows = Stage("rows", (r,), at, Reduction("sum", (c,)))
    stages = (rows, Stage("all", (), Access("rows", (axis_index("r"),)), Reduction("sum", (r,))))
    of_rows = Workload(
        "of_rows", (search_spaces.Tensor("x", (70, 50), "float32"),), stages, output_names=("rows", "all")
    )
    with pytest.raises(UnmatchedError, match="expected c"):
        crossed_of(of_rows)
    traced = trace(lambda x: (x - x.mean(0)).square().sum(1), X)
    assert len(traced.workloads) == 2


@pytest.mark.parametrize("function", [lambda x: (x.sum(1), x.argmin(0)), lambda x: (x.sum(1), x.var(0))])
def test_columns_that_are_folded_of_whole_columns_are_refused(function) -> None:
    traced = trace(function, X).for_target(TARGET)
    for workload in traced.workloads:
        space = build(workload, TARGET)
        space.sample(np.random.default_rng(0))
    assert len(traced.workloads) > 1
