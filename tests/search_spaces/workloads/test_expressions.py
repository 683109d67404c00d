"""Workloads that compare, choose, round, look up and count: the interpreter, the reference and Triton agree on them.

Triton's kernels run under its own interpreter here, and compile for two generations of GPUs.
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect, why_not_finite, why_wrong
from autosched.checking.guarded_memory import GuardedInputs, GuardedOutput
from autosched.checking.random_inputs import random_inputs
from autosched.checking.reference import as_written, evaluate
from autosched.checking.rounding.analysis import rounding_error
from autosched.machine.element_types import torch_dtype
from best_spaces import build
from cost_models.features import FEATURE_NAMES, features
from cost_models.program_counts import count
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Stage, Tensor, TileProgram, Workload, target_named
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Expression,
    Gather,
    Literal,
    Position,
    Segment,
    add,
    call,
    mul,
    sub,
)
from search_spaces.workloads.expressions.operators import OPERATORS

BACKEND = TritonBackend()
H100 = target_named("h100")
ROWS, COLUMNS = 6, 100
R, C = Axis("r", ROWS), Axis("c", COLUMNS)
r, c = axis_index("r"), axis_index("c")
X = Access("x", (r, c))
T = Access("t", (r,))
FLOATS = Tensor("x", (ROWS, COLUMNS), "float32")
INDICES = Tensor("t", (ROWS,), "int64")
MINUS_INFINITY = Literal(-math.inf)


def row(name: str) -> Access:
    return Access(name, (r,))


def pointwise(expression: Expression, *inputs: Tensor, dtype: str = "float32") -> Workload:
    return Workload("pointwise", inputs or (FLOATS,), (Stage("out", (R, C), expression, dtype=dtype),))


def softmax(values: Expression, *inputs: Tensor) -> Workload:
    shifted = call("exp", sub(values, row("top")))
    return Workload(
        "softmax",
        inputs,
        (
            Stage("top", (R,), values, Reduction("max", (C,))),
            Stage("total", (R,), shifted, Reduction("sum", (C,))),
            Stage("out", (R, C), call("div", shifted, row("total"))),
        ),
    )


def argmax(values: Expression, *inputs: Tensor) -> Workload:
    first = call("where", call("eq", values, row("top")), Position(c), Literal(COLUMNS))
    return Workload(
        "argmax",
        inputs,
        (
            Stage("top", (R,), values, Reduction("max", (C,))),
            Stage("first", (R,), first, Reduction("min", (C,))),
            Stage("out", (R,), row("first"), dtype="int64"),
        ),
    )


def folded(operator: str, values: Expression, *inputs: Tensor, dtype: str = "float32") -> Workload:
    stages = (Stage("fold", (R,), values, Reduction(operator, (C,))), Stage("out", (R,), row("fold"), dtype=dtype))
    return Workload("folded", inputs, stages)


def cross_entropy() -> Workload:
    """log(sum of exp(x[r, :])) - x[r, t[r]]."""
    total = Stage("total", (R,), call("exp", sub(X, row("top"))), Reduction("sum", (C,)))
    loss = sub(add(call("log", row("total")), row("top")), Gather("x", (r, T)))
    return Workload(
        "cross_entropy",
        (FLOATS, INDICES),
        (Stage("top", (R,), X, Reduction("max", (C,))), total, Stage("out", (R,), loss)),
    )


def embedding(dtype: str = "float32") -> Workload:
    table = Tensor("w", (37, COLUMNS), dtype)
    return pointwise(Gather("w", (T, c)), table, INDICES, dtype=dtype)


MASK = Tensor("mask", (ROWS, COLUMNS), "bool")
CAUSAL = call("where", call("le", Position(c), Position(Affine.of(("r", 7), offset=3))), X, MINUS_INFINITY)
MASKED = call("where", Access("mask", (r, c)), X, MINUS_INFINITY)

WORKLOADS = {
    "compared": pointwise(add(call("lt", X, Literal(0.1)), mul(Literal(2.0), call("le", Literal(0.5), X)))),
    "equal": pointwise(call("eq", call("floor", X), Literal(-1.0))),
    "chosen": pointwise(call("where", call("lt", X, Literal(0.0)), call("sin", X), call("cos", X))),
    "between_constants": pointwise(call("where", call("floor", X), Literal(2.0), Literal(math.inf))),
    "counted": pointwise(add(Position(Affine.of(("r", 1000), ("c", -3), offset=7)), X)),
    "rounded_to_float16": pointwise(mul(call("round_float16", mul(X, X)), Literal(3.0))),
    "truth_of_floats": pointwise(call("floor", X), dtype="bool"),
    "whole_numbers": pointwise(call("floor", mul(X, Literal(4.0))), dtype="int8"),
    "position_of_an_axis": pointwise(add(mul(Literal(0.0), X), Position(c)), dtype="int32"),
    "a_denormal_constant": pointwise(call("where", call("lt", X, Literal(0.0)), Literal(1e-40), X)),
    "causal_softmax": softmax(CAUSAL, FLOATS),
    "masked_softmax": softmax(MASKED, FLOATS, MASK),
    "argmax": argmax(X, FLOATS),
    "cross_entropy": cross_entropy(),
    "embedding": embedding(),
    "embedding_of_float16": embedding("float16"),
    "looked_up_twice": pointwise(
        Gather("w", (Gather("s", (Access("u", (r, c)),)), c)),
        Tensor("w", (37, COLUMNS), "float32"),
        Tensor("s", (20,), "int32"),
        Tensor("u", (ROWS, COLUMNS), "int32"),
    ),
    "looked_up_by_the_transpose": pointwise(
        Gather("w", (Access("u", (c, r)), r)),
        Tensor("w", (20, ROWS), "float32"),
        Tensor("u", (COLUMNS, ROWS), "int32"),
    ),
    "any": folded("max", Access("mask", (r, c)), MASK, dtype="bool"),
    "all": folded("prod", call("lt", X, Literal(2.0)), FLOATS, dtype="bool"),
    "product": folded("prod", add(Literal(1.0), mul(Literal(0.1), X)), FLOATS),
    "number_of_positives": folded("sum", call("lt", Literal(0.0), X), FLOATS, dtype="int64"),
    "sum_of_integers": folded("sum", Access("n", (r, c)), Tensor("n", (ROWS, COLUMNS), "int64"), dtype="int32"),
}
each_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


def programs(workload: Workload) -> list[TileProgram]:
    """One of every sketch that takes the workload, and more of the first."""
    space = build(workload, H100)
    rng = np.random.default_rng(0)
    drawn = [space.sample(rng) for _ in range(24)]
    chosen = {s.sketch: s for s in drawn}
    return [space.lower(s) for s in (*chosen.values(), drawn[0], drawn[1])]


def output_of(workload: Workload, values: np.ndarray) -> torch.Tensor:
    """What a program wrote, of the type of the workload's output."""
    return torch.from_numpy(values).to(torch_dtype(workload.outputs[0].dtype))


def by_first(workload: Workload, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    return output_of(workload, interpreted(workload, programs(workload)[0], inputs)[0])


@each_workload
def test_the_interpreter_computes_what_the_reference_says(workload: Workload) -> None:
    inputs = random_inputs(workload, 1)
    (expectation,) = expect(workload, inputs)
    for program in programs(workload):
        got = output_of(workload, interpreted(workload, program, inputs)[0])
        assert why_wrong(got, expectation) is None, str(workload)


@each_workload
def test_triton_computes_what_the_reference_says(triton_interpreter, workload: Workload) -> None:
    inputs = random_inputs(workload, 2)
    (expectation,) = expect(workload, inputs)
    for program in programs(workload)[:2]:
        got = triton_interpreter.computed(BACKEND.render(program, "", H100), workload, program, inputs)[0]
        assert why_wrong(output_of(workload, got), expectation) is None, str(workload)


@each_workload
def test_eager_stages_compute_what_the_reference_says(workload: Workload) -> None:
    inputs = random_inputs(workload, 3)
    assert why_wrong(*as_written(workload, inputs), *expect(workload, inputs)) is None


@pytest.mark.parametrize(
    ("workload", "target"), zip(WORKLOADS.values(), itertools.cycle(["a100", "h100"]), strict=False), ids=WORKLOADS
)
def test_triton_compiles_without_a_gpu(workload: Workload, target: str) -> None:
    program = programs(workload)[0]
    artefact = BACKEND.compile(BACKEND.render(program, "", target_named(target)), program, target_named(target))
    assert len(artefact.binaries) == len(program.kernels)


@pytest.mark.parametrize("to", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("read", ["float32", "float16", "bfloat16", "int64"])
def test_conversions_compile_for_the_oldest_gpus(read: str, to: str) -> None:
    stage = Stage("out", (Axis("i", 100),), Access("x", (axis_index("i"),)), dtype=to)
    workload = Workload("convert", (Tensor("x", (100,), read),), (stage,))
    program = programs(workload)[0]
    assert BACKEND.compile(BACKEND.render(program, "", target_named("v100")), program, target_named("v100")).binaries


@each_workload
def test_a_wrong_element_is_found(workload: Workload) -> None:
    """Not within the tolerance of any: no decision of these random numbers is in doubt."""
    inputs = random_inputs(workload, 4)
    (expectation,) = expect(workload, inputs)
    right = by_first(workload, inputs)
    at = expectation.values.isfinite().reshape(-1).nonzero()[-1]
    wrong = right.clone().reshape(-1)
    wrong[at] = wrong[at] == 0 if right.dtype == torch.bool else wrong[at] + 1
    assert error_ratio(right, expectation) <= 1 < error_ratio(wrong.reshape(right.shape), expectation)


def test_an_expression_is_hashed_once_in_every_process() -> None:
    """Of 2^64 parts; what another process made of its strings is of no use here."""
    i = axis_index("i")
    nested: Expression = Access("x", (i,))
    for _ in range(64):
        nested = add(nested, nested)
    assert hash(nested) == hash(add(*nested.arguments))
    for made in (add(Literal(1.0), Access("x", (i,))), Gather("x", (i, Position(i))), Segment("ends", i, 4)):
        assert hash(made) == made.known["hash"]
        copied = pickle.loads(pickle.dumps(made))
        assert copied == made
        assert "hash" not in copied.known


def test_every_operator_is_in_a_workload_here_or_as_old_as_the_activations() -> None:
    text = " ".join(map(str, WORKLOADS.values()))
    for operator in ("lt", "le", "eq", "where", "floor", "sin", "cos", "round_float16"):
        assert operator in OPERATORS
        assert f"{operator}(" in text


def in_triton(triton_interpreter, workload: Workload, *inputs: torch.Tensor) -> list[torch.Tensor]:
    return [
        output_of(workload, triton_interpreter.computed(BACKEND.render(p, "", H100), workload, p, inputs)[0])
        for p in programs(workload)[:3]
    ]


class TestLookingUp:
    def test_an_index_outside_the_table_gives_nan_and_the_others_their_rows(self, triton_interpreter) -> None:
        workload = embedding()
        w = torch.randn(37, COLUMNS)
        t = torch.tensor([0, -1, 36, 37, 2**40, 5])
        expected = torch.full((ROWS, COLUMNS), math.nan)
        expected[[0, 2, 5]] = w[[0, 36, 5]]
        close = {"rtol": 0.0, "atol": 0.0, "equal_nan": True}
        torch.testing.assert_close(evaluate(workload, [w, t])[0].float(), expected, **close)
        torch.testing.assert_close(by_first(workload, [w, t]), expected, **close)
        for got in in_triton(triton_interpreter, workload, w, t):
            torch.testing.assert_close(got, expected, **close)

    def test_nan_and_infinities_are_no_indices(self, triton_interpreter) -> None:
        at = Access("at", (r, c))
        table, indices = Tensor("w", (4,), "float32"), Tensor("at", (ROWS, COLUMNS), "float32")
        workload = pointwise(Gather("w", (at,)), table, indices)
        given = torch.zeros(ROWS, COLUMNS)
        given[0, :5] = torch.tensor([math.nan, math.inf, -math.inf, -1.0, 1e30])
        w = torch.arange(1.0, 5.0)
        for got in (*in_triton(triton_interpreter, workload, w, given), by_first(workload, [w, given])):
            assert got.isnan().nonzero().tolist() == [[0, i] for i in range(5)]
            assert bool((got[1:] == 1.0).all())

    def test_a_table_of_integers_has_0_outside(self, triton_interpreter) -> None:
        table = Tensor("w", (4,), "int64")
        along = mul(Literal(0.0), Position(c))
        workload = pointwise(add(Gather("w", (T,)), along), table, INDICES, dtype="int64")
        w, t = torch.tensor([5, 6, 7, 8]), torch.tensor([0, 4, 3, -1, 1, 2])
        expected = torch.tensor([5, 0, 8, 0, 6, 7])[:, None].expand(ROWS, COLUMNS)
        for got in (*in_triton(triton_interpreter, workload, w, t), by_first(workload, [w, t])):
            assert torch.equal(got, expected)
        assert torch.equal(*evaluate(workload, [w, t]), expected.double())

    def test_a_row_of_the_same_tensor_is_looked_up_beside_a_slice(self) -> None:
        x, t = torch.randn(ROWS, COLUMNS), torch.randint(0, COLUMNS, (ROWS,))
        expected = torch.nn.functional.cross_entropy(x.double(), t, reduction="none")
        torch.testing.assert_close(*evaluate(cross_entropy(), [x, t]), expected, rtol=1e-12, atol=1e-12)

    def test_inputs_that_are_indices_are_drawn_within_the_dimension_they_index(self) -> None:
        wrapped = call("where", call("lt", T, Literal(0.0)), add(T, Literal(37.0)), T)
        workload = pointwise(Gather("w", (wrapped, c)), Tensor("w", (37, COLUMNS), "float32"), INDICES)
        drawn = torch.cat([random_inputs(workload, seed)[1] for seed in range(100)])
        assert drawn.dtype == torch.int64
        assert set(drawn.tolist()) == set(range(37))


class TestNumbersThatAreNotFinite:
    def test_rows_that_are_masked_as_a_whole_are_nan_and_the_others_are_not(self, triton_interpreter) -> None:
        workload = WORKLOADS["masked_softmax"]
        x, mask = torch.randn(ROWS, COLUMNS), torch.rand(ROWS, COLUMNS) > 0.5
        mask[2] = False
        (expectation,) = expect(workload, [x, mask])
        torch_softmax = torch.softmax(x.double().masked_fill(~mask, -math.inf), -1)
        torch.testing.assert_close(expectation.values.double(), torch_softmax, rtol=1e-6, atol=0.0, equal_nan=True)
        assert bool(expectation.allowed.isfinite().all())
        for got in in_triton(triton_interpreter, workload, x, mask):
            assert why_wrong(got, expectation) is None
            assert got.isnan().any(dim=1).tolist() == [False, False, True, False, False, False]

    def test_a_mask_that_is_added_as_the_lowest_number_leaves_the_tolerance_narrow(self) -> None:
        lowest = Literal(-3.4028234663852886e38)
        added = add(X, call("where", Access("mask", (r, c)), Literal(0.0), lowest))
        workload = softmax(added, FLOATS, MASK)
        inputs = random_inputs(workload, 0)
        assert float(expect(workload, inputs)[0].allowed.max()) < 1e-5

    @pytest.mark.parametrize("operator", ["max", "min", "sum", "prod"])
    def test_nan_stays_nan_in_every_fold(self, triton_interpreter, operator: str) -> None:
        workload = folded(operator, X, FLOATS)
        x = torch.rand(ROWS, COLUMNS) + 0.5
        x[3, 7] = math.nan
        for got in (*in_triton(triton_interpreter, workload, x), by_first(workload, [x])):
            assert got.isnan().tolist() == [False, False, False, True, False, False]

    @pytest.mark.parametrize("operator", ["maximum", "minimum"])
    def test_nan_stays_nan_in_maximum_and_minimum_as_in_pytorch(self, triton_interpreter, operator: str) -> None:
        workload = pointwise(call(operator, X, Literal(0.0)))
        x = torch.randn(ROWS, COLUMNS)
        x[0, 0] = math.nan
        expected = getattr(torch, operator)(x, torch.zeros(()))
        for got in (*in_triton(triton_interpreter, workload, x), by_first(workload, [x])):
            torch.testing.assert_close(got, expected, rtol=0.0, atol=0.0, equal_nan=True)
            assert bool(got[0, 0].isnan())

    def test_comparisons_of_infinities_denormals_and_large_numbers_are_those_of_pytorch(
        self, triton_interpreter
    ) -> None:
        special = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1.0])
        x = special[torch.randint(0, 10, (ROWS, COLUMNS))]
        y = special[torch.randint(0, 10, (ROWS, COLUMNS))]
        other = Tensor("y", (ROWS, COLUMNS), "float32")
        for operator in ("lt", "le", "eq"):
            workload = pointwise(call(operator, X, Access("y", (r, c))), FLOATS, other, dtype="bool")
            expected = getattr(torch, operator)(x, y)
            assert torch.equal(evaluate(workload, [x, y])[0] != 0, expected)
            assert why_wrong(expected, *expect(workload, [x, y])) is None
            for got in (*in_triton(triton_interpreter, workload, x, y), by_first(workload, [x, y])):
                assert torch.equal(got, expected)

    def test_an_infinity_that_is_expected_must_be_that_infinity(self) -> None:
        workload = pointwise(call("where", call("lt", X, Literal(0.0)), MINUS_INFINITY, Literal(math.inf)))
        (x,) = random_inputs(workload, 0)
        (expectation,) = expect(workload, [x])
        right = torch.where(x < 0, -math.inf, math.inf)
        assert error_ratio(right, expectation) == 0.0
        assert error_ratio(-right, expectation) == math.inf
        assert why_not_finite(right, expectation) is None
        assert why_wrong(torch.zeros_like(right), expectation) is not None


class TestDoubt:
    """What a float32 kernel may decide otherwise than float64 does."""

    def test_only_elements_that_an_error_may_flip_are_left_unchecked(self) -> None:
        inexact = call("exp", X)
        workload = pointwise(call("lt", inexact, Literal(1.0)), dtype="bool")
        x = torch.ones(ROWS, COLUMNS)
        x[0, 0], x[0, 1] = 0.0, 1e-3
        allowed = expect(workload, [x])[0].allowed
        assert allowed.isinf().nonzero().tolist() == [[0, 0]]

    def test_numbers_without_errors_are_never_in_doubt(self) -> None:
        twice = pointwise(call("eq", add(X, X), mul(Literal(2.0), X)), dtype="bool")
        (x,) = random_inputs(twice, 0)
        assert not bool(expect(twice, [x])[0].allowed.isinf().any())
        assert not bool(expect(argmax(X, FLOATS), [x])[0].allowed.isinf().any())

    def test_a_choice_in_doubt_may_be_either_branch(self) -> None:
        workload = pointwise(call("where", call("lt", call("exp", X), Literal(1.0)), Literal(5.0), Literal(7.0)))
        x = torch.ones(ROWS, COLUMNS)
        x[0, 0] = 0.0
        (expectation,) = expect(workload, [x])
        assert error_ratio(torch.full_like(x, 7.0), expectation) <= 1
        flipped = torch.full_like(x, 7.0)
        flipped[0, 0] = 5.0
        assert error_ratio(flipped, expectation) <= 1
        flipped[0, 1] = 5.0
        assert error_ratio(flipped, expectation) > 1

    def test_floor_is_in_doubt_near_integers_only(self) -> None:
        workload = pointwise(call("floor", call("exp", X)), dtype="int32")
        x = torch.full((ROWS, COLUMNS), 0.5)
        x[0, 0] = 0.0
        ((exact, error),) = rounding_error(workload, [x])
        assert float(error[0, 0]) >= 1
        assert int((error > 0).sum()) == 1
        assert set(exact.unique().tolist()) == {1.0}

    def test_an_index_in_doubt_may_find_anything(self) -> None:
        workload = pointwise(Gather("w", (call("floor", call("exp", X)),)), Tensor("w", (9,), "float32"), FLOATS)
        x = torch.full((ROWS, COLUMNS), 0.5)
        x[0, 0] = 0.0
        (expectation,) = expect(workload, [torch.randn(9), x])
        assert expectation.allowed.isinf().nonzero().tolist() == [[0, 0]]
        anything = expectation.values.clone()
        anything[0, 0] = math.nan
        assert error_ratio(anything, expectation) <= 1
        assert why_not_finite(anything, expectation) is None
        anything[0, 1] = math.nan
        assert error_ratio(anything, expectation) == math.inf

    def test_programs_that_round_and_those_that_keep_more_are_both_right(self) -> None:
        workload = WORKLOADS["rounded_to_float16"]
        (x,) = random_inputs(workload, 0)
        (expectation,) = expect(workload, [x])
        assert error_ratio((x * x).half().float() * 3, expectation) <= 1
        assert error_ratio(x * x * 3, expectation) <= 1
        assert error_ratio(x * x * 3 * 1.01, expectation) > 1

    def test_what_rounds_to_infinity_is_infinite(self) -> None:
        workload = pointwise(call("round_float16", X))
        x = torch.full((ROWS, COLUMNS), 65519.0)
        x[0, :2] = torch.tensor([65520.0, -1e6])
        right = x.half().float()
        assert right[0, :3].tolist() == [math.inf, -math.inf, 65504.0]
        assert error_ratio(right, *expect(workload, [x])) <= 1
        assert error_ratio(x, *expect(workload, [x])) == math.inf

    def test_where_a_wave_turns_it_is_off_by_the_square_of_its_argument(self) -> None:
        workload = pointwise(call("sin", call("round_bfloat16", X)))
        x = torch.full((ROWS, COLUMNS), 2.5 * math.pi)
        (expectation,) = expect(workload, [x])
        assert error_ratio(x.bfloat16().float().sin(), expectation) <= 1
        assert error_ratio(x.sin(), expectation) <= 1
        assert error_ratio(x.sin() - 0.1, expectation) > 1

    def test_products_of_many_factors_have_the_error_of_as_many_roundings(self) -> None:
        workload = folded("prod", X, FLOATS)
        x = torch.rand(ROWS, COLUMNS) * 0.2 + 0.9
        (expectation,) = expect(workload, [x])
        assert error_ratio(x.prod(-1), expectation) <= 1
        relative = expectation.allowed / expectation.values
        # 8 standard deviations of the root of 100 roundings of 2^-23, and the output's own.
        assert float(relative.max()) < 81 * 2.0**-23 * 1.01


def test_features_count_look_ups_as_loads_and_are_as_many_as_ever() -> None:
    for workload in (embedding(), cross_entropy(), WORKLOADS["causal_softmax"]):
        program = programs(workload)[0]
        assert len(features(program, H100)) == len(FEATURE_NAMES)
    space = build(embedding(), H100)
    (counts,) = count(space.lower(space.sample(np.random.default_rng(0))))
    looked_up = next(t for t in counts.loads if t.place == "in0")
    assert looked_up.tile_bytes * looked_up.times * counts.grid_tiles >= ROWS * COLUMNS * 4
    assert looked_up.run_bytes >= 4
    assert looked_up.row_bytes == COLUMNS * 4


@pytest.mark.parametrize("name", ["embedding", "any", "argmax", "sum_of_integers"])
def test_guards_show_what_was_not_written_in_integers_and_booleans_too(name: str) -> None:
    workload = WORKLOADS[name]
    output = GuardedOutput(workload.outputs[0], "cpu")
    output.poison()
    assert bool(output.unwritten().all())
    expected = by_first(workload, random_inputs(workload, 0))
    output.tensor.copy_(expected)
    assert not bool(output.unwritten().any())
    assert output.why_damaged() is None
    inputs = GuardedInputs(workload, random_inputs(workload, 0))
    assert inputs.changed() == ()
    flat = inputs.tensors[0].view(-1)
    flat[0] = flat[0] == 0 if flat.dtype == torch.bool else flat[0] + 1
    assert inputs.changed() == (workload.inputs[0].name,)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_program_knows_the_position_of_an_axis_that_it_has_one_index_of(triton_interpreter, batch: int) -> None:
    outer, b = Axis("b", batch), axis_index("b")
    x, top = Access("x", (b, r, c)), Access("top", (b, r))
    looked_up = Gather("t", (b, Access("at", (b, r))))
    workload = Workload(
        "batched",
        (
            Tensor("x", (batch, ROWS, COLUMNS), "float32"),
            Tensor("t", (batch, 9), "float32"),
            Tensor("at", (batch, ROWS), "int64"),
        ),
        (
            Stage("top", (outer, R), x, Reduction("max", (C,))),
            Stage("out", (outer, R), add(add(top, looked_up), Position(Affine.of(("b", 50), offset=3)))),
        ),
    )
    given, table, at = random_inputs(workload, 0)
    expected = given.amax(-1) + table.gather(1, at) + 50 * torch.arange(batch)[:, None] + 3
    for got in (
        *in_triton(triton_interpreter, workload, given, table, at),
        by_first(workload, [given, table, at]),
    ):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    program = programs(workload)[0]
    assert BACKEND.compile(BACKEND.render(program, "", H100), program, H100).binaries
