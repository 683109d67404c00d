"""Constant operands in layouts of their own, which kernels make once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch

import best_spaces
from autosched import backends
from autosched.backends.build import build
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from convolutions import block, convolution
from schedule_checks import HERE, faults, tried
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Schedule, Stage, Target, Tensor, Workload, ops, target_named
from search_spaces.anchors.contractions.operand_copies import PREPARED_WAYS
from search_spaces.programs.statements import Load, statements
from search_spaces.programs.text import to_text
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access

H200, A100 = target_named("h200"), target_named("a100")


def constant(workload: Workload, name: str = "w") -> Workload:
    """The workload with a constant input."""
    return replace(workload, inputs=tuple(replace(t, constant=t.name == name) for t in workload.inputs))


def columns_before_channels() -> Workload:
    """out[p, f] = sum over r, c of x[p + r - 1, c] * w[r, f, c]: whole panels of w are transposed matrices."""
    p, f, r, c = Axis("p", 9), Axis("f", 32), Axis("r", 3), Axis("c", 16)
    x = Access("x", (Affine.of(("p", 1), ("r", 1), offset=-1), axis_index("c")), 0.0)
    w = Access("w", tuple(map(axis_index, "rfc")))
    stage = Stage("out", (p, f), ex.mul(x, w), Reduction("sum", (r, c)))
    return Workload("transposed", (Tensor("x", (9, 16), "float32"), Tensor("w", (3, 32, 16), "float32")), (stage,))


ON_A_CPU = {
    "rows of columns": ops.matmul(37, 50, 70, constant="b", layout="nt"),
    "few columns": ops.matmul(5, 7, 9, constant="b", layout="nt"),
    "epilogue": ops.matmul(64, 96, 64, constant="b", epilogue="bias_relu"),
    "rows": ops.matmul(37, 50, 70, constant="a", layout="tn"),
    "batch": ops.matmul(37, 50, 70, constant="a", batch=3, dtype="bfloat16"),
    "3x3": constant(convolution((9, 7), (3, 3), padding=1, dtype="float32")),
    "channels first": constant(convolution((9, 7), (3, 3), padding=1, dtype="float32", layout="nchw")),
    "groups": constant(convolution((9, 7), (3, 3), padding=1, stride=2, groups=2, dtype="float32", batch=2)),
    "columns before channels": constant(columns_before_channels()),
    "one dimension": constant(convolution((9,), (3,), 3, 5, padding=1, dtype="float32", layout="nchw")),
}
ON_A_GPU = {
    "odd rows": ops.matmul(64, 50, 70, dtype="float16", constant="b", layout="nt"),
    "columns": ops.matmul(96, 64, 64, dtype="float16", constant="b"),
    "3x3": constant(convolution((9, 7), (3, 3), padding=1)),
    "channels first": constant(convolution((9, 7), (3, 3), padding=1, layout="nchw")),
    "groups": constant(convolution((9, 7), (3, 3), 32, 32, padding=1, stride=2, groups=2, batch=2)),
    "three channels": constant(convolution((9, 7), (3, 3), 3, 16, padding=1, layout="nchw")),
    "block": constant(block(convolution((9, 7), (3, 3), padding=1))),
}


@lru_cache(64)
def prepared(workload: Workload, target: Target, most: int) -> tuple[Schedule, ...]:
    """Some schedules that store an operand in another layout."""
    found = (s for s in tried(best_spaces.build(workload, target), 12 * most, 0) if s.program.prepared)
    return tuple(itertools.islice(found, most))


@pytest.mark.parametrize("workload", ON_A_CPU.values(), ids=ON_A_CPU)
def test_panels_that_are_packed_once_give_the_same_result(workload: Workload) -> None:
    assert prepared(workload, HERE, 2)
    assert faults(workload, 4) == []


@pytest.mark.parametrize("target", [H200, A100], ids=str)
@pytest.mark.parametrize("workload", ON_A_GPU.values(), ids=ON_A_GPU)
def test_operands_in_any_layout_give_the_same_result(workload: Workload, target: Target) -> None:
    inputs = random_inputs(workload, 0, torch.device("cpu"))
    expected = expect(workload, inputs)
    schedules = prepared(workload, target, 6)
    assert schedules
    for schedule in schedules:
        (out,) = interpreted(workload, schedule.program, [t.numpy() for t in inputs])
        error = error_ratio(torch.from_numpy(np.ascontiguousarray(out)), expected[0])
        assert error <= 1, schedule.one_line


@pytest.mark.parametrize("workload", [ON_A_GPU["odd rows"], ON_A_GPU["channels first"]], ids=["product", "convolution"])
def test_kernels_of_prepared_operands_compile(workload: Workload) -> None:
    schedule = prepared(workload, H200, 6)[0]
    assert build(schedule.program, schedule.one_line, H200, backends.named(schedule.backend)).binaries


def test_the_part_of_every_call_does_not_read_what_is_prepared() -> None:
    (schedule, *_) = prepared(ON_A_GPU["odd rows"], H200, 6)
    ((_, read),) = schedule.program.prepared
    called = [s for k in schedule.program.called.kernels for s in statements(k.body) if isinstance(s, Load)]
    assert called
    assert all(s.buffer != read for s in called)
    assert "once for a constant, in1_prepared:" in to_text(schedule.program)


def test_an_operand_that_changes_is_never_prepared() -> None:
    for target in (HERE, H200, A100):
        space = best_spaces.build(ON_A_GPU["3x3"].varying if target.kind == "gpu" else ON_A_CPU["3x3"].varying, target)
        assert all(not s.program.prepared for s in tried(space, 40, 0))


def test_an_operand_that_has_the_layout_is_not_prepared() -> None:
    space = best_spaces.build(ops.matmul(64, 64, 64, dtype="float16", constant="b", layout="nt"), H200)
    ways = {v for sketch in space.sketches for k in sketch.knobs if k.name == "b_load" for v in k.values}
    assert ways == {"pointer", "descriptor"}
    assert ways.isdisjoint(PREPARED_WAYS)
