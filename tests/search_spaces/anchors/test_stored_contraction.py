"""Contractions of computed operands, which a kernel stores first."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import best_spaces
from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from autosched.machine import devices
from convolutions import convolution
from cost_models.roofline import latency_s
from fused_workloads import gated, prepared
from needed import needs_gpu
from schedule_checks import fault, tried
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Schedule, SearchSpace, Stage, Tensor, Workload, ops, target_named
from search_spaces.programs.statements import Load, Store
from search_spaces.programs.tile_program import Buffer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Gather, Segment
from search_spaces.workloads.expressions.walking import rewritten

H200 = target_named("h200")


def narrow(
    b_dtype: str, m: int = 260, n: int = 40, k: int = 96, dtype: str = "bfloat16", **options: object
) -> Workload:
    return ops.matmul(m, n, k, dtype, **{"layout": "nt", "constant": "b", "b_dtype": b_dtype, **options})


def at(tensor: str, *axes: str) -> Access:
    return Access(tensor, tuple(map(axis_index, axes)))


def columns_scaled() -> Workload:
    """out[m, n] = max(sum over k of x[m, k] * (q[n, k] * s[n]), 0), of which s leaves the sum."""
    m, n, k = Axis("m", 260), Axis("n", 40), Axis("k", 96)
    product = ex.mul(at("x", "m", "k"), ex.mul(at("q", "n", "k"), at("s", "n")))
    inputs = Tensor("x", (260, 96), "bfloat16"), Tensor("q", (40, 96), "int8"), Tensor("s", (40,), "float32")
    largest = ex.call("maximum", at("acc", "m", "n"), ex.Literal(0.0))
    stages = Stage("acc", (m, n), product, Reduction("sum", (k,))), Stage("out", (m, n), largest, dtype="bfloat16")
    return Workload("columns_scaled", inputs, stages)


def looked_up(groups: int, tables: int = 1, rows: int = 50) -> Workload:
    """Sums over k of x[token[m], k] * w[k, n] for one or two w, added up; of several groups w[segment of m, k, n]."""
    m, n, k = Axis("m", rows), Axis("n", 260), Axis("k", 40)
    entry: tuple[Affine | Segment, ...] = (Segment("ends", axis_index("m"), groups),) if groups else ()
    row = Gather("x", (ex.call("to_integer", at("token", "m")), axis_index("k")))
    read = [(*entry, axis_index("k"), axis_index("n"))] * tables
    weights = [Gather(f"w{i}", index) if groups else Access(f"w{i}", index) for i, index in enumerate(read)]
    sums = [Stage(f"acc{i}", (m, n), ex.mul(row, w), Reduction("sum", (k,))) for i, w in enumerate(weights)]
    total = functools.reduce(ex.add, (at(s.name, "m", "n") for s in sums))
    own = ((groups,) if groups else ()) + (40, 260)
    inputs = Tensor("x", (30, 40), "bfloat16"), Tensor("token", (rows,), "int64")
    inputs += tuple(Tensor(f"w{i}", own, "bfloat16") for i in range(tables))
    ends = (Tensor("ends", (groups,), "int32"),) if groups else ()
    return Workload("looked_up", (*inputs, *ends), (*sums, Stage("out", (m, n), total, dtype="bfloat16")))


def of_pages() -> Workload:
    """out[m, n] = sum over e, j of x[m, e, j] * w[page[e] * 16 + j, n], whose tiles are looked up whole."""
    m, n, e, j = Axis("m", 300), Axis("n", 300), Axis("e", 4), Axis("j", 16)
    place = ex.call("to_integer", ex.Position(axis_index("j")))
    number = ex.mul(ex.call("to_integer", at("page", "e")), ex.Integer(16))
    product = ex.mul(at("x", "m", "e", "j"), Gather("w", (ex.add(number, place), axis_index("n"))))
    inputs = Tensor("x", (300, 4, 16), "bfloat16"), Tensor("w", (160, 300), "bfloat16"), Tensor("page", (4,), "int32")
    return Workload("of_pages", inputs, (Stage("out", (m, n), product, Reduction("sum", (e, j)), "bfloat16"),))


def rectified(workload: Workload, tensor: str) -> Workload:
    """The workload with the largest of 0 and every element of an input in its place."""

    def change(e: ex.Expression) -> ex.Expression | None:
        return ex.call("maximum", e, ex.Literal(0.0)) if isinstance(e, Access) and e.tensor == tensor else None

    stages = (replace(s, expression=rewritten(s.expression, change)) for s in workload.stages)
    return replace(workload, stages=tuple(stages), arguments=())


# Workloads, and the shape and type of the workspaces.
STORED = {
    "int4": (narrow("int4", group=16), [((40, 96), "bfloat16")]),
    "zero points": (narrow("int4", group=32, zero_points=True, dtype="float16"), [((40, 96), "float16")]),
    "int4 by rows": (narrow("int4", group=16, layout="nn"), [((96, 40), "bfloat16")]),
    "float32": (narrow("int4", dtype="float32"), [((40, 96), "float32")]),
    "int8, a batch": (narrow("int8", group=32, batch=2, epilogue="bias_gelu"), [((2, 40, 96), "bfloat16")]),
    "exponents": (narrow("float8_e4m3fn", group=32, scale_dtype="float8_e8m0fnu"), [((40, 96), "bfloat16")]),
    "scales of columns": (columns_scaled(), [((40, 96), "bfloat16")]),
    "pixels of one window": (
        rectified(convolution((18, 20), (2, 2), 8, 260, stride=2), "x"),
        [((9, 2, 10, 16), "float16")],
    ),
    "two products, uneven rows": (gated(40, 264, 67, batch=7, prologue="relu_scale"), [((280, 67), "float16")]),
    "tokens": (looked_up(0), [((50, 40), "bfloat16")]),
    "tokens by expert, two products": (looked_up(5, 2), [((50, 40), "bfloat16")]),
    "both sides": (prepared(300, 300, 70, prologue="decayed", computed="ab"), [((300, 70), "float16")] * 2),
}


def stored(space: SearchSpace, most: int) -> list[Schedule]:
    """Some schedules with operands that are stored first."""
    return [s for s in tried(space, 12 * most, 0) if s.sketch == "stored_contraction"][:most]


def workspaces(schedule: Schedule) -> list[Buffer]:
    return [b for b in schedule.program.buffers if b.name.endswith("_stored")]


def assert_right(workload: Workload, schedules: list[Schedule]) -> None:
    inputs = random_inputs(workload, 0, torch.device("cpu"))
    (expected,) = expect(workload, inputs)
    assert schedules
    for schedule in schedules:
        (out,) = interpreted(workload, schedule.program, [t.double() for t in inputs])
        assert error_ratio(torch.from_numpy(np.ascontiguousarray(out)), expected) <= 1, schedule.one_line


@pytest.mark.parametrize("kind", STORED)
def test_a_contraction_of_stored_operands_gives_the_same_result(kind: str) -> None:
    workload, made = STORED[kind]
    schedules = stored(best_spaces.build(workload, H200), 2)
    assert_right(workload, schedules)
    assert [(b.shape, b.dtype) for b in workspaces(schedules[0])] == made
    kept = {name for name, _ in schedules[0].program.prepared}
    assert kept.isdisjoint(b.name for b in workspaces(schedules[0])), "memory that few bits save would be taken"


@given(
    b_dtype=st.sampled_from(("int8", "int4")),
    groups=st.sampled_from(((16, 3), (24, 5), (None, 14))),
    layout=st.sampled_from(("nn", "nt", "tn", "tt")),
    n=st.integers(17, 70),
    zero_points=st.booleans(),
)
@settings(max_examples=8, deadline=None)
def test_any_order_of_groups_bytes_and_rows_is_stored(
    b_dtype: str, groups: tuple[int | None, int], layout: str, n: int, zero_points: bool
) -> None:
    group, count = groups
    k = (group or 6) * count
    workload = narrow(b_dtype, 257, n, k, group=group, layout=layout, zero_points=zero_points and group is not None)
    assert_right(workload, stored(best_spaces.build(workload, H200), 1))


@pytest.mark.parametrize(
    ("workload", "there"),
    [
        (narrow("int8", m=257), True),
        (narrow("int8", m=256), False),
        (looked_up(5), True),
        (ops.grouped_matmul(5, 50, 260, 40), False),
        (of_pages(), False),
        (gated(270, 24, 64, prologue="relu_scale"), False),
        (ops.matmul(300, 1, 64, layout="nt", b_dtype="int4", group=32), False),
        (rectified(convolution((20, 20), (3, 3), 32, 300), "x"), False),
        (rectified(convolution((20, 20), (2, 2), 32, 300, stride=2), "x"), True),
        (ops.matmul(300, 300, 64, "float8_e4m3fn", group=32, block=30, out_dtype="bfloat16"), False),
    ],
)
def test_operands_are_stored_where_several_tiles_compute_few_elements(workload: Workload, there: bool) -> None:
    assert ("stored_contraction" in {s.name for s in best_spaces.build(workload, H200).sketches}) == there


@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_a_byte_is_loaded_once_for_both_of_its_numbers(backend: str) -> None:
    workload, by = narrow("int4", 2048, 256, 256, group=64), backends.named(backend)
    schedule = next(s for s in spaces.build(workload, H200, [by]).seeds() if s.sketch == "stored_contraction")
    first = schedule.program.kernels[0]
    assert [s.buffer for s in first.body if isinstance(s, Load | Store)] == ["in1", "in2", "in1_stored"]
    assert build(replace(schedule.program, kernels=(first,)), "", H200, by).binaries


def test_the_estimate_prefers_stored_weights_to_fields_that_many_tiles_convert() -> None:
    space = best_spaces.build(narrow("int4", 2048, 4096, 4096, group=128), H200)

    def least(sketch: str) -> float:
        seeds = [s for s in space.seeds() if s.sketch == sketch]
        return min(latency_s(s.program, H200, space.backends[s.backend]) for s in seeds)

    assert least("stored_contraction") < least("contraction")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", STORED)
def test_kernels_are_right_on_a_gpu(kind: str) -> None:
    target, (workload, _) = devices.gpu_target(), STORED[kind]
    data = TrialData.drawn(workload, 0, torch.device("cuda"))
    schedules = stored(best_spaces.build(workload, target), 3)
    assert [found for s in schedules if (found := fault(s, data, target))] == []
