"""Mathematical functions of PyTorch, traced and run on a CPU: as eager, special numbers included."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from autosched import cpu_target, trace
from autosched.checking.correctness import error_ratio, expect, why_wrong
from autosched.checking.function_errors import SLOPES
from autosched.checking.operations import OPERATIONS
from autosched.tracing import loaded
from function_accuracy import SPECIAL
from search_spaces import Axis, Stage, Workload
from search_spaces import Tensor as TensorSpec
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal, add, call, mul
from search_spaces.workloads.expressions.operators import OPERATORS
from untuned import untuned_kernels

# Two functions that are within 1.5 units in the last place each, of which one is 2^-23 of the value at most.
CLOSE = {"rtol": 3 * 2.0**-23, "atol": 2.0**-148, "equal_nan": True}
EXACT = {"rtol": 0.0, "atol": 0.0, "equal_nan": True}
PLAIN = torch.tensor(SPECIAL)
X, Y = (v.flatten() for v in torch.meshgrid(PLAIN, PLAIN, indexing="ij"))


def run(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """What a kernel of the function computes, with any schedule."""
    traced = trace(function, *inputs)
    made = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(*inputs)
    assert isinstance(made, Tensor)
    return made


OF_ONE: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in ("exp2", "log2", "log10", "expm1", "log1p", "erf", "erfc", "tan")},
    **{
        name: getattr(torch, name)
        for name in ("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "signbit")
    },
    "erfcx": torch.special.erfcx,
    "a power of 2": lambda x: 2**x,
    "a whole power": lambda x: x**9,
    "the power 1.5": lambda x: x**1.5,
    "the power -2.5": lambda x: x**-2.5,
    "an infinite power": lambda x: x**math.inf,
}


@pytest.mark.parametrize("name", OF_ONE)
def test_functions_are_those_of_pytorch(name: str) -> None:
    function = OF_ONE[name]
    x = torch.cat([PLAIN, torch.randn(500, generator=torch.Generator().manual_seed(0)) * 3])
    # PyTorch's own float32 hyperbolic functions overflow from 88.7 on.
    expected = function(x.double()).to(function(x).dtype)
    torch.testing.assert_close(run(function, x), expected, **CLOSE)


@pytest.mark.parametrize("function", [torch.pow, torch.atan2, torch.hypot], ids=lambda f: f.__name__)
def test_functions_of_two_arguments_are_those_of_pytorch(function: Callable[..., Tensor]) -> None:
    expected = function(X.double(), Y.double()).float()
    torch.testing.assert_close(run(function, X, Y), expected, **CLOSE)


REMAINDERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "fmod": torch.fmod,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "copysign": torch.copysign,
}


@pytest.mark.parametrize("name", REMAINDERS)
def test_what_needs_no_rounding_is_exact(name: str) -> None:
    exact = REMAINDERS[name](X.double(), Y.double()).float()
    torch.testing.assert_close(run(REMAINDERS[name], X, Y), exact, **EXACT)


def test_remainders_are_exact_at_any_size_and_have_the_sign_of_the_divisor() -> None:
    x = torch.tensor([1e8, 1e8 + 8, 2.0**31, 3.4e38, -1e10, -7.0, 7.0, -0.0, math.inf, 5e-324, 1.0])
    for divisor in (3.0, -3.0, 0.1, 7e-30, math.inf, -math.inf):
        held = torch.tensor(divisor).double()
        r = torch.fmod(x.double(), held)
        expected = torch.where((r != 0) & ((r < 0) != (held < 0)), r.float() + held.float(), r.float())
        torch.testing.assert_close(run(lambda x, d=divisor: x % d, x), expected, **EXACT)


def test_floored_quotients_are_those_of_pytorch() -> None:
    x = torch.tensor([-1.0, 1.0, -1.0, 1.0, 7.0, -7.0, 1e8, 1.0, -1.0, 0.0, math.inf, math.nan, 6.0, 0.3])
    y = torch.tensor([math.inf, math.inf, -math.inf, -math.inf, 2.0, 2.0, 3.0, 0.0, 0.0, 0.0, 2.0, 1.0, 3.0, 0.1])
    for function in (torch.floor_divide, lambda a, b: torch.div(a, b, rounding_mode="floor")):
        torch.testing.assert_close(run(function, x, y), function(x, y), **EXACT)


def test_gamma_and_its_gradient_are_those_of_float64() -> None:
    x = torch.cat([torch.linspace(-12.3, 40.0, 2001), torch.tensor([1e10, 3.4e38, 1e-30, 2.0, 1.0, 0.0])])
    for function in (torch.lgamma, torch.digamma):
        torch.testing.assert_close(run(function, x), function(x.double()).float(), **CLOSE)


def test_mish_is_that_of_float64_also_far_out_with_one_function() -> None:
    mish = torch.nn.functional.mish
    given = torch.tensor([math.nan, math.inf, -200.0, -30.0, -1e-3, 0.0, 0.5, 19.99, 20.01, 200.0, 1e30])
    traced = trace(mish, given)
    text = str(traced.workloads[0])
    assert "log1p" not in text
    assert "tanh" not in text
    torch.testing.assert_close(run(mish, given), mish(given.double()).float(), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_are_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    x = (torch.randn(2000, generator=torch.Generator().manual_seed(1)) * 4).to(dtype)
    for function in (torch.expm1, torch.atan, lambda x: x.abs() ** 1.7, lambda x: x % 3):
        # A number in the last place of float32 may round to the other side.
        assert float((run(function, x) != function(x)).float().mean()) < 0.01


# -- tolerances


def inexact(operator: str, count: int) -> Workload:
    """The operator of arguments that have errors: e^(x / 8), and a number."""
    given = call("exp", mul(Access("x", (axis_index("i"),)), Literal(0.125)))
    if operator in ("asin", "acos", "atanh"):
        given = mul(given, Literal(0.25))
    if operator == "acosh":
        given = add(given, Literal(1.0))
    arguments: tuple[Expression, ...] = (given, Literal(0.7))[: OPERATORS[operator][0]]
    tensor = TensorSpec("x", (count,), "float32")
    return Workload(operator, (tensor,), (Stage("out", (Axis("i", count),), call(operator, *arguments)),))


FUNCTIONS = [
    *("exp2", "log2", "log10", "expm1", "log1p", "pow", "sinh", "cosh", "asinh", "acosh", "atanh", "tan", "asin"),
    *("acos", "atan", "atan2", "hypot", "erfc", "erfcx", "erf_relative", "lgamma", "digamma", "fmod"),
]


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_tolerances_hold_what_errors_of_arguments_become_and_not_much_more(operator: str) -> None:
    workload = inexact(operator, 1000)
    x = torch.linspace(-4.0, 4.0, 1000)
    (expectation,) = expect(workload, [x])
    given = (x * 0.125).exp()
    given = given * 0.25 if operator in ("asin", "acos", "atanh") else given
    given = given + 1.0 if operator == "acosh" else given
    rest = [torch.tensor(0.7)] * (OPERATORS[operator][0] - 1)
    got = OPERATIONS[operator](given.double(), *(r.double() for r in rest)).float()
    assert why_wrong(got, expectation) is None
    assert float(expectation.allowed.isinf().float().mean()) < 0.01
    wrong = torch.where(expectation.allowed.isfinite(), got + 1e-3 * (got.abs() + 0.1), got)
    assert error_ratio(wrong, expectation) > 1


@pytest.mark.parametrize("operator", SLOPES)
def test_slopes_are_derivatives_but_for_their_signs(operator: str) -> None:
    start = 1.1 if operator == "acosh" else 0.1
    first = torch.linspace(start, start + 0.8, 9, dtype=torch.float64)
    arguments = [first, first.flip(0)][: OPERATORS[operator][0]]
    leaves = [a.clone().requires_grad_() for a in arguments]
    result = OPERATIONS[operator](*leaves)
    derivatives = torch.autograd.grad(result.sum(), leaves)
    for slope, derivative in zip(SLOPES[operator](result.detach(), *arguments), derivatives, strict=True):
        found = slope[0] / slope[1] if isinstance(slope, tuple) else slope
        torch.testing.assert_close(found.abs(), derivative.abs(), rtol=1e-9, atol=1e-12)


def test_whether_a_value_is_a_number_is_never_in_doubt() -> None:
    value = call("exp", Access("x", (axis_index("i"),)))
    plain = inexact("exp2", 50)
    chosen = call("where", call("eq", value, value), value, Literal(0.0))
    workload = Workload("numbers", plain.inputs, (Stage("out", (Axis("i", 50),), chosen),))
    x = torch.linspace(-2.0, 2.0, 50)
    assert float(expect(workload, [x])[0].allowed.max()) < 1e-3
