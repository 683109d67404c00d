"""Products of segments on a CPU: what each of them multiplies, stores and leaves alone, whatever the ends are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import best_spaces
from autosched.checking.reference import evaluate
from schedule_checks import faults
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Tensor, TileProgram, Workload, ops
from search_spaces.anchors import segmented_contraction
from search_spaces.decisions.decision import each_body
from search_spaces.devices.target import cpu
from search_spaces.errors import UnmatchedError
from search_spaces.programs.statements import Store
from search_spaces.schedules.limits import USUAL
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Gather, Literal, Segment, add, call, mul

ROWS, COLUMNS, DEPTH, GROUPS = 45, 20, 36, 4
# Products of these numbers are exact in float32; sums of them differ in order, and are rounded to float16 once.
TOLERANCE = 2e-3


def rows(dtype: str = "float16", layout: str = "nn") -> Workload:
    return ops.grouped_matmul(GROUPS, ROWS, COLUMNS, DEPTH, dtype, layout)


def sums(dtype: str = "float16", layout: str = "nn") -> Workload:
    return ops.grouped_matmul(GROUPS, COLUMNS, DEPTH, ROWS, dtype, layout, ragged="k")


def with_epilogue(result: str = "float16") -> Workload:
    """The positive products of rows, plus a residual, times a bias of their segment."""
    made, own = rows(), (axis_index("m"), axis_index("n"))
    total, out = made.stages
    bias = Gather("bias", (Segment("ends", own[0], GROUPS), own[1]))
    positive = call("maximum", out.expression, Literal(0.0))
    stage = replace(out, expression=mul(add(positive, Access("residual", own)), bias), dtype=result)
    more = (Tensor("residual", (ROWS, COLUMNS), "float16"), Tensor("bias", (GROUPS, COLUMNS), "float16"))
    return replace(made, inputs=(*made.inputs, *more), stages=(total, stage), arguments=())


def with_computed_rows() -> Workload:
    """The products of positive rows."""
    made = rows()
    total, out = made.stages
    assert isinstance(total.expression, Apply)
    a, b = total.expression.arguments
    computed = mul(call("round_float16", call("maximum", a, Literal(0.0))), b)
    return replace(made, stages=(replace(total, expression=computed), out), arguments=())


def of_columns() -> Workload:
    """The products of rows, stored as columns."""
    made = rows()
    total, out = made.stages
    turned = (*total.axes[::-1],)
    read = Access(total.name, tuple(axis_index(x.name) for x in turned))
    assert isinstance(out.expression, Apply)
    inside, _, other = out.expression.arguments
    result = replace(out, axes=turned, expression=call("where", inside, read, other))
    return replace(made, stages=(replace(total, axes=turned), result), arguments=())


WORKLOADS = {
    "rows": rows(),
    "rows, transposed": rows(layout="tt"),
    "rows, with an epilogue": with_epilogue(),
    "columns": of_columns(),
    "sums": sums(),
    "sums, transposed": sums(layout="tt"),
}
# Both ends of the row that is cut, empty segments, all in one, and ends behind the last position and before the first.
cuts = st.lists(st.integers(-3, ROWS + 9), min_size=GROUPS, max_size=GROUPS).map(sorted)
cuts |= st.lists(st.sampled_from([0, 32, ROWS]), min_size=GROUPS, max_size=GROUPS).map(sorted)


# A CPU of short vectors, so that few columns are several of them.
TARGET = cpu("of the tests", 4, 1, 32 * 2**10, 2**20, 1e11)


def space(made: Workload) -> SearchSpace:
    """The schedules of segments."""
    found = best_spaces.build(made, TARGET)
    return replace(found, sketches=tuple(s for s in found.sketches if s.name == "segmented_contraction"))


def drawn(name: str, seed: int) -> Schedule:
    return space(WORKLOADS[name]).sample(np.random.default_rng(seed))


def inputs_of(made: Workload, ends: Sequence[int], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.tensor(ends, dtype=torch.int32)
        if t.dtype == "int32"
        else torch.randint(-8, 9, t.shape, generator=generator).to(getattr(torch, t.dtype)) / 8
        for t in made.inputs
    ]


Run = Callable[[Workload, TileProgram, Sequence[Any]], Sequence[np.ndarray]]


def check(name: str, ends: Sequence[int], seed: int, run: Run = interpreted) -> None:
    made, schedule = WORKLOADS[name], drawn(name, seed)
    inputs = inputs_of(made, ends, seed)
    (expected,) = evaluate(made, inputs)
    (got,) = run(made, schedule.program, [x.numpy() for x in inputs])
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=schedule.one_line)


@pytest.mark.parametrize("name", WORKLOADS)
@given(ends=cuts, seed=st.integers(0, 2**20))
@settings(max_examples=6, deadline=None)
def test_every_segment_is_multiplied_alone(name: str, ends: list[int], seed: int) -> None:
    check(name, ends, seed)


@given(ends=cuts, seed=st.integers(0, 2**20))
@settings(max_examples=6, deadline=None)
def test_every_element_is_stored_once(ends: list[int], seed: int) -> None:
    """Stores to the output add here, to zeros: what two tiles store would be the sum of both."""

    def added(made: Workload, program: TileProgram, inputs: Sequence[Any]) -> Sequence[np.ndarray]:
        outputs = tuple(b.name for b in program.buffers if b.role == "output")
        adding = each_body(
            program, lambda s: replace(s, atomic=True) if isinstance(s, Store) and s.buffer in outputs else s
        )
        return interpreted(made, replace(adding, zeroed=outputs), inputs)

    check("rows", ends, seed, added)


@given(ends=st.permutations([-9, 5, 40, 2**31 - 1]), seed=st.integers(0, 2**20))
@settings(max_examples=6, deadline=None)
def test_sums_over_segments_are_right_whatever_the_order_of_the_ends(ends: list[int], seed: int) -> None:
    check("sums", ends, seed)


@pytest.mark.parametrize("made", [rows, sums])
def test_infinities_of_other_segments_do_not_matter(made: Callable[..., Workload]) -> None:
    op = made("float32")
    for seed in range(3):
        schedule = space(op).sample(np.random.default_rng(seed))
        inputs = inputs_of(op, [7, 20, 21, ROWS], seed)
        of_first = [
            slice(0, 7) if n == ROWS else slice(0, 1) if n == GROUPS else slice(None) for n in op.outputs[0].shape
        ]
        (expected,) = evaluate(op, inputs)
        for x in inputs[:2]:
            along = next(d for d, n in enumerate(x.shape) if n in (ROWS, GROUPS))
            x.select(along, 1 if x.shape[along] == GROUPS else 9).fill_(torch.inf)
        with np.errstate(invalid="ignore"):
            (got,) = interpreted(op, schedule.program, [x.numpy() for x in inputs])
        np.testing.assert_allclose(got[tuple(of_first)], expected[tuple(of_first)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WORKLOADS)
def test_kernels_write_nothing_else_for_any_histogram(name: str) -> None:
    assert not faults(WORKLOADS[name], samples=2, seed=len(name))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("made", [rows, sums])
def test_starts_are_right_in_other_types(made: Callable[..., Workload], dtype: str) -> None:
    assert not faults(made(dtype), samples=1)


def test_partial_sums_of_rows_are_a_programs_own() -> None:
    """Segments that end within one tile share the place of its rows."""
    roles = {b.role for seed in range(20) for b in drawn("rows", seed).program.buffers}
    assert "own" in roles
    assert "workspace" not in roles


@pytest.mark.parametrize("made", [rows, sums])
def test_nothing_gathers_the_matrix_of_every_row(made: Callable[..., Workload]) -> None:
    """Such kernels take a hundred times as long, and would be among the first that a search measures."""
    assert [s.name for s in best_spaces.build(made(), TARGET).sketches] == ["segmented_contraction"]
    (one,) = best_spaces.build(ops.grouped_matmul(GROUPS, 1, COLUMNS, DEPTH), TARGET).sketches
    assert one.name == "reduction", "a single row is no tile"


def test_operands_that_are_computed_have_no_such_schedule() -> None:
    assert not space(with_computed_rows()).sketches
    with pytest.raises(UnmatchedError, match="packs tiles of one product of two tensors"):
        segmented_contraction.derive(with_computed_rows(), TARGET, USUAL)
