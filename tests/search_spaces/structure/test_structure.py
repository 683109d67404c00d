"""Workloads that anchors match; the others are refused before anything is tried."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import best_spaces
from autosched.checking.trial_data import TrialData
from row_kinds import of_kind
from schedule_checks import HERE, fault, faults, tried
from search_spaces import Axis, EmptySearchSpaceError, Reduction, Schedule, Stage, Target, Tensor, Workload, ops
from search_spaces.devices.target import GPUS, cpu
from search_spaces.programs.statements import For, Store, statements
from search_spaces.structure.axes import structure_of
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from structured_workloads import Build, activation_and_sums, folded

TARGETS = (
    cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11),
    GPUS["h200"],
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_reductions_over_different_axes_are_refused_with_the_rules_tried(target: Target) -> None:
    r, b, c = Axis("r", 64), Axis("b", 8), Axis("c", 50)
    x = Access("x", (axis_index("r"), axis_index("b"), axis_index("c")))
    both = (
        Stage("rows", (r, b), x, Reduction("sum", (c,))),
        Stage("out", (b, c), ex.mul(x, Access("rows", (axis_index("r"), axis_index("b")))), Reduction("sum", (r,))),
    )
    workload = Workload("both_sums", (Tensor("x", (64, 8, 50), "float32"),), both)
    with pytest.raises(EmptySearchSpaceError, match=r"no anchor matches both_sums .*reduction.*; sizes: i0 \d+"):
        best_spaces.build(workload, target)


def test_reductions_over_both_of_two_axes_are_one_walk_on_a_gpu() -> None:
    r, c = Axis("r", 64), Axis("c", 50)
    x = Access("x", (axis_index("r"), axis_index("c")))
    both = (
        Stage("rows", (r,), x, Reduction("sum", (c,))),
        Stage("out", (c,), ex.mul(x, Access("rows", (axis_index("r"),))), Reduction("sum", (r,))),
    )
    workload = Workload("both_sums", (Tensor("x", (64, 50), "float32"),), both)
    assert [s.name for s in best_spaces.build(workload, GPUS["h200"]).sketches] == ["crossed_reduction"]
    with pytest.raises(EmptySearchSpaceError, match="crossed_reduction"):
        best_spaces.build(workload, TARGETS[0])


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_rows_may_be_indexed_in_any_order_as_long_as_columns_come_last(target: Target) -> None:
    a, b, c = Axis("a", 4), Axis("b", 6), Axis("c", 50)
    x = Access("x", (axis_index("b"), axis_index("a"), axis_index("c")))
    row_sum = Workload(
        "row_sum_of_swapped", (Tensor("x", (6, 4, 50), "float32"),), (Stage("out", (a, b), x, Reduction("sum", (c,))),)
    )
    assert best_spaces.build(row_sum, target).size > 0


def test_tiles_of_short_rows_have_a_third_axis_and_older_schedules_print_what_they_did() -> None:
    space = best_spaces.build(interleaved_rows(), TARGETS[1])
    values = {"rows": [8, 8], "columns": [1, 64], "warps": 4, "persistent": False, "streaming": False}
    older = space.bind(Schedule.from_json({"sketch": "pointwise", "values": values}))
    newer = space.bind(Schedule.from_json({"sketch": "pointwise", "values": {"planes": [2, 16], **values}}))
    assert [stored(s).count("+") for s in (older, newer)] == [2, 3]


def interleaved_rows() -> Workload:
    """Rows of 2, which do not follow each other in memory."""
    axes = Axis("n", 32), Axis("i", 64), Axis("j", 2)
    read = Access("x", tuple(axis_index(x.name) for x in axes))
    return Workload(
        "rows_of_two",
        (Tensor("x", (32, 64, 2), "float32", (200, 3, 1)),),
        (Stage("out", axes, ex.mul(read, read)),),
    )


def stored(schedule: Schedule) -> str:
    return next(line for line in str(schedule).splitlines() if "store" in line)


def test_vectors_run_across_rows_that_are_shorter_than_they() -> None:
    space = best_spaces.build(interleaved_rows(), TARGETS[0]).restricted("pointwise", across=[True])
    text = stored(space.sample(np.random.default_rng(0)))
    assert "i2.0]" in text


def test_what_is_refused_is_refused_by_what_it_is() -> None:
    i, j = Axis("i", 40), Axis("j", 30)
    at = axis_index("i"), axis_index("j")
    folds = (
        Stage("rows", (i,), Access("x", at), Reduction("sum", (j,))),
        Stage("columns", (j,), Access("x", at), Reduction("sum", (i,))),
    )
    workload = Workload("both", (Tensor("x", (40, 30), "float32"),), folds, output_names=("rows", "columns"))
    with pytest.raises(EmptySearchSpaceError, match=r"out0 keeps i1, which out1 folds, and out1 keeps i0"):
        best_spaces.build(workload, TARGETS[0])


def test_what_needs_no_fold_is_written_while_the_first_fold_reads() -> None:
    space = best_spaces.build(activation_and_sums(64, 50_000), TARGETS[1])
    for kind in ("streamed", "shared"):
        program = of_kind(space, kind).sample(np.random.default_rng(0)).program
        loops = [s for kernel in program.kernels for s in statements(kernel.body) if isinstance(s, For)]
        assert len(loops) == 1
        assert any(isinstance(s, Store) for s in loops[0].body)


def test_threads_of_a_cpu_share_rows_that_are_fewer_than_they() -> None:
    target = dataclasses.replace(HERE, threads=3, num_sms=3)
    workload = folded({"i": 31, "j": 700}, "", "ij", "ij", ("sum", "max"))
    space = of_kind(best_spaces.build(workload, target), "shared")
    data = TrialData.drawn(workload, 1, torch.device("cpu"))
    assert not [found for s in tried(space, 4, 0) if (found := fault(s, data, target))]


def test_a_fold_of_another_fold_by_a_tensor_is_no_product_for_dots() -> None:
    make = Build(r=6, g=3, c=20)
    x, w = make.input("x", "rgc"), make.input("w", "g")
    each = make.fold("each", "rg", "c", x)
    total = make.fold("total", "r", "g", ex.mul(each, w))
    make.stage("out", "rgc", ex.sub(x, total))
    workload = make.workload("relative_to_weighted_sums", each="float32", out="float32")
    assert not faults(workload, 4)


def test_a_few_positions_that_are_folded_and_folded_again_are_unrolled() -> None:
    make = Build(r=6, g=300, c=2)
    x = make.input("x", "rgc")
    pair = make.fold("pair", "rg", "c", x, "max")
    make.fold("total", "r", "g", pair)
    workload = make.workload("sum_of_maxima", pair="float32", total="float32")
    structure = structure_of(workload)
    assert [x.extent for x in structure.reduced] == [300]
    assert not faults(workload, 4)


def test_rows_of_a_sparse_matrix_lie_as_the_dense_rows_that_they_look_up() -> None:
    found = structure_of(ops.block_sparse_matmul(64, 16, 32, 256, 1))
    assert found.outer
    assert found.rows == 16
