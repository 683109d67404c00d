"""Loops leave out what guards and masks by position make nothing of, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import empty, random_inputs
from autosched.machine import devices
from best_spaces import build
from cost_models.program_counts import count
from row_kinds import of_kind
from scheduled_tensors import interpreted, launched_on
from search_spaces import Axis, Reduction, Stage, Target, Tensor, TileProgram, Workload, target_named
from search_spaces.anchors.loops.contributions import Guards, positions
from search_spaces.programs.statements import For
from search_spaces.programs.text import to_text
from search_spaces.schedules.knobs import KnobValue
from search_spaces.structure.axes import structure_of
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Expression,
    Integer,
    Literal,
    Position,
    add,
    call,
    mul,
    sub,
)

TRITON, LLVM = TritonBackend(), LlvmBackend()
H100, HERE = target_named("h100"), devices.cpu_target()
ROWS, COLUMNS = 40, 300
R, C = Axis("r", ROWS), Axis("c", COLUMNS)
r, c = axis_index("r"), axis_index("c")
X = Access("x", (r, c))
NONE, ZERO = Literal(-math.inf), Literal(0.0)


X_ROWS = Tensor("x", (ROWS, COLUMNS), "float32")


def folded(operator: str, body: Expression, columns: int = COLUMNS) -> Workload:
    assert operator in ("sum", "max", "min")
    fold = Reduction("sum" if operator == "sum" else "max" if operator == "max" else "min", (C,))
    return Workload("folded", (Tensor("x", (ROWS, columns), "float32"),), (Stage("out", (R,), body, fold),))


def softmax(values: Expression) -> Workload:
    top = Access("top", (r,))
    power = call("exp", sub(values, top))
    stages = (
        Stage("top", (R,), values, Reduction("max", (C,))),
        Stage("total", (R,), power, Reduction("sum", (C,))),
        Stage("out", (R,), call("div", Access("total", (r,)), add(top, Literal(10.0)))),
    )
    return Workload("softmax", (Tensor("x", (ROWS, COLUMNS), "float32"),), stages)


def at(row: int, column: int, offset: int = 0) -> Position:
    return Position(Affine.of(("r", row), ("c", column), offset=offset))


def chosen(condition: Expression, otherwise: Expression) -> Expression:
    return call("where", condition, X, otherwise)


TRIANGLE = call("le", at(0, 1), at(5, 0))
BAND = mul(call("le", at(0, 1), at(5, 0, 40)), call("lt", at(5, 0, -40), at(0, 1)))
NEVER = call("lt", at(1, 0, 500), at(0, 1))

WORKLOADS = {
    "triangle": folded("sum", chosen(TRIANGLE, ZERO)),
    "triangle_above": folded("sum", call("where", TRIANGLE, ZERO, X)),
    "band": folded("max", chosen(BAND, NONE)),
    "not_the_band": folded("sum", chosen(call("eq", BAND, ZERO), ZERO)),
    "product": folded("sum", mul(chosen(TRIANGLE, ZERO), chosen(TRIANGLE, ZERO))),
    "nothing": folded("sum", chosen(NEVER, ZERO)),
    "padding": folded("sum", Access("x", (r, Affine.of(("c", 1), offset=-130)), 0.0), columns=100),
    "backwards": folded("max", Access("x", (r, Affine.of(("c", -1), offset=250)), -math.inf), columns=100),
    "in_integers": folded(
        "min",
        call("where", call("lt", call("to_integer", at(0, 1)), call("to_integer", at(1, 0, 7))), X, Literal(math.inf)),
    ),
    "causal_softmax": softmax(chosen(TRIANGLE, NONE)),
    "banded_softmax": softmax(mul(chosen(BAND, NONE), Literal(0.5))),
}
each_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


def looped(workload: Workload, target: Target, wanted: int, **allowed: Sequence[KnobValue]) -> list[TileProgram]:
    """So many programs that stream the columns in loops."""
    space, rng = of_kind(build(workload, target), "streamed", **allowed), np.random.default_rng(0)
    found: dict[str, TileProgram] = {}
    while len(found) < wanted:
        schedule = space.sample(rng)
        (kernel, *_) = schedule.program.kernels
        if any(isinstance(s, For) and s.extent > 1 for s in kernel.body):
            found[schedule.one_line] = schedule.program
    return list(found.values())


def drawn(workload: Workload) -> list[torch.Tensor]:
    """With what must not be multiplied by 0, everywhere and where only some rows have it."""
    (x,) = random_inputs(workload, 5)
    x[::3, ::7] = math.inf
    x[4, :50] = math.nan
    x[5, 60:] = -math.inf
    return [x]


@each_workload
def test_the_interpreter_leaves_out_only_what_changes_nothing(workload: Workload) -> None:
    inputs = drawn(workload)
    for program in looped(workload, H100, 3):
        (got,) = interpreted(workload, program, inputs)
        assert why_wrong(torch.from_numpy(got).reshape(ROWS), *expect(workload, inputs)) is None


@each_workload
def test_triton_leaves_out_only_what_changes_nothing(triton_interpreter, workload: Workload) -> None:
    inputs = drawn(workload)
    for program in looped(workload, H100, 2):
        (got,) = triton_interpreter.computed(TRITON.render(program, "", H100), workload, program, inputs)
        assert why_wrong(torch.from_numpy(got).reshape(ROWS), *expect(workload, inputs)) is None


@each_workload
def test_machine_code_leaves_out_only_what_changes_nothing(workload: Workload) -> None:
    inputs = drawn(workload)
    for program in looped(workload, HERE, 3):
        launcher = LLVM.load(LLVM.compile(LLVM.render(program, "", HERE), program, HERE), program)
        (out,) = (empty(t, "cpu") for t in workload.outputs)
        launcher(launched_on(workload, inputs, out))
        launcher.unload()
        assert why_wrong(out, *expect(workload, inputs)) is None


@pytest.mark.parametrize("name", ["triangle", "band", "padding", "causal_softmax"])
def test_a_loop_that_begins_late_and_ends_early_compiles_without_a_gpu(name: str) -> None:
    (program,) = looped(WORKLOADS[name], H100, 1)
    assert TRITON.compile(TRITON.render(program, "", H100), program, H100).binaries


def forms(workload: Workload) -> list[list[str]]:
    guards = Guards(structure_of(workload))
    return [sorted(map(str, positions(guards.unchanged(fold)))) for fold in guards.structure.folds]


class TestWhatChangesNothing:
    @pytest.mark.parametrize(
        ("name", "found"),
        [
            ("triangle", ["c*-1 + r*5"]),
            ("triangle_above", ["c + r*-5 + -1"]),
            ("band", ["c + r*-5 + 39", "c*-1 + r*5 + 40"]),
            ("padding", ["c + -130", "c*-1 + 229", "r", "r*-1 + 39"]),
            ("in_integers", ["c*-1 + r + 6"]),
        ],
    )
    def test_it_is_where_a_form_is_negative(self, name: str, found: list[str]) -> None:
        assert forms(WORKLOADS[name]) == [found]

    def test_exponentials_shifted_by_their_maximum_follow_it(self) -> None:
        assert forms(WORKLOADS["causal_softmax"]) == [["c*-1 + r*5"]] * 2

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(mul(X, chosen(TRIANGLE, ZERO)), id="0 times what may be infinite"),
            pytest.param(add(X, chosen(TRIANGLE, ZERO)), id="0 and something"),
            pytest.param(chosen(TRIANGLE, NONE), id="an infinity in a sum"),
            pytest.param(chosen(call("le", mul(at(0, 1), at(1, 0)), Literal(9.0)), ZERO), id="a hyperbola"),
            pytest.param(chosen(call("le", X, at(0, 1)), ZERO), id="values"),
        ],
    )
    def test_other_things_change_something(self, body: Expression) -> None:
        assert forms(folded("sum", body)) == [[]]

    def test_rows_without_any_point_are_not_left_out_of_a_softmax(self) -> None:
        """All their exponentials are NaN, and so is their sum."""
        empty = call("lt", at(0, 1), at(1, 0, -3))
        assert forms(softmax(chosen(empty, NONE))) == [["c*-1 + r + -4"], []]

    def test_an_infinity_that_is_shifted_by_anything_else_may_be_nan(self) -> None:
        body = call("exp", sub(chosen(TRIANGLE, NONE), Access("y", (r,))))
        total = dataclasses.replace(folded("sum", X), inputs=(X_ROWS, Tensor("y", (ROWS,), "float32")))
        stage = dataclasses.replace(total.stages[0], expression=body)
        assert forms(dataclasses.replace(total, stages=(stage,))) == [[]]

    def test_positions_that_float32_does_not_hold_are_not_compared(self) -> None:
        far = call("le", at(0, 1, 2**24), at(5, 0, 2**24))
        assert forms(folded("sum", chosen(far, ZERO))) == [[]]

    def test_constants_of_integers_and_floats_are_positions_too(self) -> None:
        early = call("lt", call("to_integer", at(0, 1)), Integer(20))
        assert forms(folded("sum", chosen(early, ZERO))) == [["c*-1 + 19"]]


def test_a_loop_is_charged_for_the_iterations_that_are_of_use() -> None:
    """The triangle has about half of the columns where the others have all."""
    shares = {}
    for name in ("triangle", "nothing"):
        (program,) = looped(WORKLOADS[name], H100, 1, rows=[(10, 4)])
        ((_, trips, loop),) = count(program)[0].loops
        shares[name] = trips / loop.extent
    assert 0.2 < shares["triangle"] < 0.8
    assert shares["nothing"] == 0


def test_what_is_left_out_is_shown() -> None:
    (program,) = looped(WORKLOADS["triangle"], H100, 1)
    assert "of use where" in to_text(program)
