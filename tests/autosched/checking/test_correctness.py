"""The tolerance: wide enough for every correct kernel, too narrow for every wrong one."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from autosched.checking.correctness import (
    STANDARD_DEVIATIONS,
    Expectation,
    error_ratio,
    expect,
    why_not_finite,
    why_wrong,
    worst,
)
from autosched.checking.random_inputs import random_inputs
from autosched.checking.reference import evaluate
from autosched.machine.element_types import torch_dtype
from search_spaces import Axis, Reduction, Stage, Tensor, Workload, ops
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Literal

WORKLOADS = [
    ops.matmul(64, 48, 512),
    ops.matmul(16, 16, 16384),
    ops.matmul(64, 48, 1024, dtype="float16", epilogue="bias_relu"),
    ops.matmul(64, 48, 1024, dtype="bfloat16", epilogue="gelu_residual"),
    ops.matmul(8, 16, 32, batch=4, epilogue="scale_silu"),
    ops.softmax(16, 4096),
    ops.softmax(16, 512, "float16"),
    ops.layernorm(16, 4096),
    ops.rmsnorm(16, 4096, "bfloat16"),
    ops.gelu_scale(100_000),
]


def in_float32(workload: Workload, inputs: list[torch.Tensor]) -> torch.Tensor:
    """What a correct kernel computes: float32 throughout, rounded once."""
    return evaluate(workload, inputs, torch.float32)[0].to(torch_dtype(workload.outputs[0].dtype))


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.label.replace(" ", "-"))
def test_correct_kernels_stay_well_within_the_tolerance(workload: Workload) -> None:
    for seed in range(3):
        inputs = random_inputs(workload, seed)
        assert error_ratio(in_float32(workload, inputs), *expect(workload, inputs)) < 0.6


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.label.replace(" ", "-"))
def test_one_element_wrong_by_a_hundredth_of_the_largest_is_found(workload: Workload) -> None:
    inputs = random_inputs(workload, 0)
    actual, expectation = in_float32(workload, inputs), expect(workload, inputs)[0]
    actual.view(-1)[-1] += 0.02 * actual.abs().max()
    assert error_ratio(actual, expectation) > 1
    assert "1 of" in str(why_wrong(actual, expectation))


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "ieee"), ("float32", "tf32"), ("float16", "ieee")])
def test_leaving_out_one_step_of_a_long_contraction_is_found(dtype: str, precision: str) -> None:
    workload = dataclasses.replace(ops.matmul(64, 64, 4096, dtype=dtype), precision=precision)
    a, b = random_inputs(workload, 0)
    (expectation,) = expect(workload, [a, b])
    a = a.clone()
    a[:, 17] = 0
    assert error_ratio(in_float32(workload, [a, b]), expectation) > 1


def test_leaving_out_one_tap_of_a_channel_is_found_in_tf32() -> None:
    layer = ops.conv(1, 64, (9, 8), 16, 3, padding=1, dtype="tf32")
    x, w = random_inputs(layer, 0)
    (expectation,) = expect(layer, [x, w])
    w = w.clone()
    w[:, 5, 1, 1] = 0
    assert error_ratio(in_float32(layer, [x, w]), expectation) > 1


@pytest.mark.parametrize(
    "exact", [ops.matmul(64, 64, 1024), ops.conv(1, 64, (9, 8), 16, 3, padding=1)], ids=lambda op: op.name
)
def test_operands_cut_to_tf32_are_allowed_when_the_workload_says_so_and_only_then(exact: Workload) -> None:
    a, b = random_inputs(exact, 0)
    cut = [(x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b)]
    actual = in_float32(exact, cut)
    assert error_ratio(actual, *expect(exact, [a, b])) > 1
    assert error_ratio(actual, *expect(dataclasses.replace(exact, precision="tf32"), [a, b])) < 1


def test_an_epilogue_that_hides_the_size_of_the_accumulator_widens_the_tolerance() -> None:
    """tanh(a b) is at most 1, but where a b is near 0 it has the error of a sum of 4096 terms of size 1."""
    plain = ops.matmul(64, 64, 4096)
    m, n = plain.stages[-1].axes
    accumulator = Access(plain.stages[-1].name, (axis_index(m.name), axis_index(n.name)))
    squashed = Stage("squashed", (m, n), Apply("tanh", (accumulator,)))
    workload = Workload("tanh", plain.inputs, (*plain.stages, squashed))
    inputs = random_inputs(workload, 0)
    assert error_ratio(in_float32(workload, inputs), *expect(workload, inputs)) < 0.6


def test_sums_whose_errors_reach_the_steep_part_of_an_activation_widen_the_tolerance() -> None:
    """gelu(-5) is -1e-6, and its slope as small; a sum that rounded weights move to -2 is as right."""
    workload = ops.matmul(64, 256, 1024, "bfloat16", layout="nt", epilogue="gelu", b_dtype="int8", group=128)
    inputs = random_inputs(workload, 0)
    x, q, scale = (t.double() for t in inputs)
    weights = (q.unflatten(1, (8, 128)) * scale[..., None]).flatten(1).bfloat16().double()
    (expectation,) = expect(workload, inputs)
    assert error_ratio(torch.nn.functional.gelu(x @ weights.T).bfloat16(), expectation) < 1
    weights[:, -1] = 0.0
    assert error_ratio(torch.nn.functional.gelu(x @ weights.T).bfloat16(), expectation) > 1


def test_the_figures_in_the_documentation() -> None:
    for workload, low, high in (
        (ops.matmul(128, 128, 512), 5.5e-4, 8.5e-4),
        (ops.matmul(128, 128, 4096), 4.4e-3, 6.6e-3),
        (dataclasses.replace(ops.matmul(128, 128, 4096), precision="tf32"), 0.6, 0.8),
    ):
        allowed = expect(workload, random_inputs(workload, 0))[0].allowed
        assert low < float(allowed.median()) < high


def test_booleans_are_in_doubt_only_where_rounding_may_decide() -> None:
    i = Axis("i", 3)
    difference = Apply("sub", (Apply("exp", (Access("x", (axis_index("i"),)),)), Literal(1.0)))
    workload = Workload("truth", (Tensor("x", (3,), "float32"),), (Stage("out", (i,), difference, dtype="bool"),))
    (expectation,) = expect(workload, [torch.tensor([1e-8, 1e-3, 1.0])])
    assert expectation.allowed.isinf().tolist() == [True, False, False]
    exact = dataclasses.replace(workload, stages=(Stage("out", (i,), Access("x", (axis_index("i"),)), dtype="bool"),))
    (expectation,) = expect(exact, [torch.tensor([0.0, -0.0, 1.0])])
    assert not expectation.allowed.isinf().any()


def test_a_comparison_in_doubt_may_be_either_and_others_are_exact() -> None:
    i = Axis("i", 3)
    less = Apply("lt", (Apply("exp", (Access("x", (axis_index("i"),)),)), Literal(1.0)))
    workload = Workload("less", (Tensor("x", (3,), "float32"),), (Stage("out", (i,), less),))
    (expectation,) = expect(workload, [torch.tensor([-1.0, 1e-9, 1.0])])
    assert expectation.values.tolist() == [1.0, 0.0, 0.0]
    exactly, doubt, _ = expectation.allowed.tolist()
    assert exactly < 1e-5
    # As many standard deviations as any error, each the difference of 1 and 0.
    assert doubt == pytest.approx(STANDARD_DEVIATIONS, rel=0.01)


def test_what_is_chosen_has_its_own_value_and_error() -> None:
    i, x = Axis("i", 2), Access("x", (axis_index("i"),))
    small, large = (Apply("exp", (Apply("mul", (x, Literal(factor))),)) for factor in (1.0, 10.0))
    chosen = Apply("where", (Apply("lt", (small, Literal(2.0))), small, large))
    workload = Workload("chosen", (Tensor("x", (2,), "float32"),), (Stage("out", (i,), chosen),))
    (expectation,) = expect(workload, [torch.tensor([0.5, 1.0])])
    torch.testing.assert_close(expectation.values.double(), torch.tensor([0.5, 10.0], dtype=torch.float64).exp())
    assert (expectation.allowed < 1e-5).tolist() == [True, False]


def test_an_extreme_has_the_error_of_what_may_be_it() -> None:
    """And not that of the others, which is the larger in a minimum of what has relative errors."""
    i, c = Axis("i", 2), Axis("c", 2)
    values = Apply("exp", (Access("x", (axis_index("i"), axis_index("c"))),))
    least = Stage("out", (i,), values, Reduction("min", (c,)))
    (expectation,) = expect(
        Workload("least", (Tensor("x", (2, 2), "float32"),), (least,)), [torch.tensor([[0.0, 10.0], [10.0, 10.0]])]
    )
    assert (expectation.allowed < 1e-5).tolist() == [True, False]


def test_an_output_that_is_not_a_number_is_infinitely_wrong() -> None:
    workload = ops.gelu_scale(1000)
    inputs = random_inputs(workload, 0)
    (expectation,) = expect(workload, inputs)
    actual = torch.full((1000,), math.nan)
    assert error_ratio(actual, expectation) == math.inf
    assert "1000 of 1000 elements are wrong; the first, [0], is nan" in str(why_wrong(actual, expectation))


def test_a_number_that_is_wrong_is_finite_and_an_infinity_that_is_expected_too() -> None:
    workload = pointwise("mul", 2, "float16", Literal(1e5))
    (expectation,) = expect(workload, [torch.tensor([1.0, 0.01], dtype=torch.float16)])
    assert why_not_finite(torch.tensor([math.inf, 7.0], dtype=torch.float16), expectation) is None
    found = why_not_finite(torch.tensor([math.inf, -math.inf], dtype=torch.float16), expectation)
    assert found is not None
    assert "1 of 2 elements are NaN or infinite; the first, [1], is -inf, expected 1000" in found


def pointwise(operator: str, elements: int, dtype: str, *rest: Literal) -> Workload:
    """y[i] = operator(x[i], ...)."""
    stage = Stage("y", (Axis("i", elements),), Apply(operator, (Access("x", (axis_index("i"),)), *rest)), dtype=dtype)
    return Workload(operator, (Tensor("x", (elements,), dtype),), (stage,))


def test_where_the_reference_is_not_a_number_the_kernel_must_yield_none_either() -> None:
    workload = pointwise("log", 4, "float32")
    inputs = [torch.tensor([-1.0, 0.0, 1.0, 2.0])]
    (expectation,) = expect(workload, inputs)
    right = in_float32(workload, inputs)
    assert right.isnan().tolist() == [True, False, False, False]
    assert error_ratio(right, expectation) < 1
    assert why_wrong(right, expectation) is None
    assert error_ratio(torch.nan_to_num(right), expectation) == math.inf


def test_overflow_of_a_narrow_output_is_correct_where_the_reference_overflows_too() -> None:
    workload = pointwise("mul", 2, "float16", Literal(1e5))
    (expectation,) = expect(workload, [torch.tensor([1.0, 0.01], dtype=torch.float16)])
    assert error_ratio(torch.tensor([math.inf, 1000.0], dtype=torch.float16), expectation) <= 1
    assert error_ratio(torch.tensor([-math.inf, 1000.0], dtype=torch.float16), expectation) == math.inf


def test_long_outputs_are_compared_to_their_last_element() -> None:
    values = torch.zeros(2**18 + 3)
    expectation = Expectation(values, torch.ones_like(values))
    actual = values.clone()
    actual[-1] = 3.0
    assert error_ratio(actual, expectation) == 3.0


def test_the_worst_element_is_that_of_the_largest_part_of_its_tolerance() -> None:
    values, allowed = torch.zeros(2**17), torch.full((2**17,), 4.0)
    values[0] = values[-1] = math.nan
    allowed[7], allowed[8] = 1.0, math.inf
    actual = values.clone()
    actual[7], actual[8], actual[-2] = 0.5, 9.0, 1.0
    found = worst(actual, Expectation(values, allowed))
    assert (found.ratio, found.allowed, found.error) == (0.5, 1.0, 0.5)
    exact = worst(values, Expectation(values, allowed))
    assert (exact.ratio, exact.error) == (0.0, 0.0)
    unchecked = worst(actual, Expectation(values, torch.full_like(values, math.inf)))
    assert (unchecked.ratio, unchecked.allowed, unchecked.error) == (0.0, None, 0.0)


# x is rounded to bfloat16 on the way, so that what is computed with it may be another number.
X, Y = (Access(name, (axis_index("r"),)) for name in "xy")
NEAR = Apply("round_bfloat16", (X,))


def allowed(expression: Apply, x: float, y: float) -> float:
    """How far a kernel may be off that computes the expression of two numbers."""
    tensors = (Tensor("x", (2,), "float32"), Tensor("y", (2,), "float32"))
    workload = Workload("decided", tensors, (Stage("out", (Axis("r", 2),), expression),))
    return float(expect(workload, [torch.tensor([v, v]) for v in (x, y)])[0].allowed[0])


@pytest.mark.parametrize("operator", ["div", "log", "log2", "log10", "rsqrt", "sqrt"])
def test_nothing_is_known_beside_a_pole(operator: str) -> None:
    away = Apply("sub", (NEAR, Y))
    whole = Apply(operator, (Literal(1.0), away)) if operator == "div" else Apply(operator, (away,))
    assert allowed(whole, 1.001, 1.0) == math.inf
    assert allowed(whole, 9.0, 1.0) < 1e-4


def test_nothing_is_known_of_what_comes_of_an_unknown_infinity() -> None:
    # 1 / 0 is infinite, unless what is compared with y came out equal to it.
    equal = Apply("eq", (NEAR, Y))
    doubtful = Apply("round_bfloat16", (Apply("mul", (Apply("div", (Literal(1.0), equal)), Literal(0.0))),))
    assert allowed(doubtful, 1.001, 1.0) == math.inf
    assert allowed(doubtful, 9.0, 1.0) < 1e-4


def test_a_remainder_is_in_doubt_where_the_quotient_may_be_the_next_integer() -> None:
    remainder = Apply("fmod", (Y, NEAR))
    assert allowed(remainder, 1.0640625, 1.0625) > 1.0
    assert allowed(remainder, 2.25, 1.0625) < 1e-4


def test_a_square_near_zero_is_as_far_off_as_its_errors_multiplied() -> None:
    # The difference is 0 but for roundings to bfloat16, of which a kernel may make half a unit: 0.004 ** 2.
    away = Apply("sub", (NEAR, X))
    assert 0.004**2 < allowed(Apply("mul", (away, away)), 1.001, 0.0) < 0.1**2
