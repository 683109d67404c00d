"""Rounding errors of pointwise operators: their own, and the propagation of their operands'.

See `autosched.checking.rounding.analysis` for the definition of an error, and for the sources of the constants.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from autosched.checking import function_errors
from autosched.checking.function_errors import Slope, Slopes
from autosched.checking.named_tensors import Named, union
from autosched.checking.operations import OPERATIONS, overflow, overflowed
from autosched.machine.element_types import torch_dtype

UNIT = 2.0**-23
# Numbers so many standard deviations apart are compared correctly.
DECIDED = 8.0


@dataclass(frozen=True, slots=True)
class RoundedValue:
    """A value in float64, and the standard deviation of its error in units of 2^-23, in float32; None when exact.

    `outside`: for an input, the value of a look-up whose index is out of range.
    """

    value: Named
    error: Named | None
    outside: float = math.nan


def applied(operator: str, given: Sequence[RoundedValue]) -> RoundedValue:
    """The result of a pointwise operator, with its error."""
    if operator in _DECISIONS:
        return _with_error(operator, given, _DECISIONS[operator])
    if is_whole(given[-1]):
        return _of_integers(operator, given)
    axes = union([g.value for g in given])
    result = OPERATIONS[operator](*(g.value.aligned(axes) for g in given))
    errors = [None if g.error is None else g.error.aligned(axes) for g in given]
    inherited = [e for e in errors if e is not None]
    if operator in ("neg", "abs"):
        return RoundedValue(
            Named(axes, result), None if not inherited else Named(axes, inherited[0].expand(result.shape))
        )
    f = result.to(torch.float32)
    error = _OWN[operator](f)
    if operator in _ROUNDED_ONCE:
        # A number that float32 represents is computed without an error from exact operands.
        exact = f == result
        for own in inherited:
            exact = exact & (own == 0)
        error = torch.where(exact, 0.0, error)
    if inherited:
        operands, at = [g.value.aligned(axes).to(torch.float32) for g in given], f
        if operator in _FLATTENING:
            # The slope at an argument says nothing of a steeper one within its error.
            operands = [operands[0].sign() * (operands[0].abs() - DECIDED * UNIT * inherited[0]).clamp(min=0.0)]
            at = OPERATIONS[operator](*operands)
        for slope, e in zip(_SLOPES[operator](at, *operands), errors, strict=True):
            if e is not None:
                # Not by squares, which overflow for masks as large as float32 has them.
                error = torch.hypot(error, torch.where(e == 0, 0.0, _passed_on(slope, e)))
    if operator == "mul" and len(inherited) == 2:
        # Derivatives say nothing of a square near 0, whose factors have equal errors.
        both = torch.where((inherited[0] == 0) | (inherited[1] == 0), 0.0, inherited[0] * inherited[1])
        error = error + DECIDED * UNIT * both
    if operator in ("sin", "cos") and inherited:
        # Nor at extremes of these: they are off by half the square of the argument's error, and by no more than 2.
        off = (DECIDED * UNIT * inherited[0]).clamp(max=2.0)
        error = error + off.square() / (2 * DECIDED * UNIT)
    doubt = unknown(errors, result.device) | _near_pole(operator, given, axes)
    error = of_finite(error, result, doubt)
    if inherited and not _all_finite(result):
        # An infinity that results from finite operands with errors may be a number instead.
        finite, sure = torch.ones_like(result, dtype=torch.bool), torch.ones_like(result, dtype=torch.bool)
        for g in given:
            finite = finite & g.value.aligned(axes).isfinite()
        for e in inherited:
            sure = sure & (e == 0)
        error = torch.where(finite & ~sure & ~result.isfinite(), math.inf, error)
    return RoundedValue(Named(axes, result), Named(axes, error.expand(result.shape)))


def unknown(errors: Sequence[torch.Tensor | None], device: torch.device) -> torch.Tensor:
    """Mask of infinite operand errors: nothing is known of the result there, an infinity or NaN included."""
    return functools.reduce(torch.logical_or, (e.isinf() for e in errors if e is not None), nowhere(device))


def nowhere(device: torch.device) -> torch.Tensor:
    return torch.zeros((), dtype=torch.bool, device=device)


def _near_pole(operator: str, given: Sequence[RoundedValue], axes: Sequence[str]) -> torch.Tensor:
    """Mask where an operand may be 0, or cross it, and the operator is infinite or undefined there.

    A derivative says nothing then: 1 / 0.001 with an error of 0.001 may be 500 or infinite.
    """
    place = _POLES.get(operator)
    if place is None or given[place].error is None:
        return nowhere(given[0].value.values.device)
    return within(given[place].value.aligned(axes).to(torch.float32), error_at(given[place], axes))


def is_whole(estimate: RoundedValue) -> bool:
    """True if the values are integers."""
    return not estimate.value.values.is_floating_point()


# The error of the result, from the result, its operands and their errors.
_ErrorOf = Callable[[torch.Tensor, Sequence[torch.Tensor], Sequence[torch.Tensor]], torch.Tensor]


def _with_error(operator: str, given: Sequence[RoundedValue], error_of: _ErrorOf) -> RoundedValue:
    """The result of an operator that adds no error of its own: exact where its operands are."""
    axes = union([g.value for g in given])
    values = [g.value.aligned(axes) for g in given]
    result = OPERATIONS[operator](*values)
    if all(g.error is None for g in given):
        return RoundedValue(Named(axes, result), None)
    error = error_of(result, values, [error_at(g, axes) for g in given])
    return RoundedValue(Named(axes, result), Named(axes, error.expand(result.shape)))


def _of_integers(operator: str, given: Sequence[RoundedValue]) -> RoundedValue:
    """Arithmetic on integers, whose error is what may come of other integers."""

    def error_of(result: torch.Tensor, values: Sequence[torch.Tensor], errors: Sequence[torch.Tensor]) -> torch.Tensor:
        if operator in ("add", "sub", "neg", "abs"):
            return functools.reduce(torch.add, errors)
        if operator == "mul":
            (a, b), (of_a, of_b) = (v.to(torch.float32).abs() for v in values), errors
            return torch.where(of_a > 0, of_a * b, 0.0) + torch.where(of_b > 0, of_b * a, 0.0)
        # Any other bits.
        return torch.where(functools.reduce(torch.maximum, errors) > 0, math.inf, 0.0)

    return _with_error(operator, given, error_of)


def counted(given: RoundedValue) -> RoundedValue:
    """`to_integer`: truncation of floating-point numbers, which is in doubt next to an integer."""
    axes, values = given.value.axes, given.value.values
    result = Named(axes, OPERATIONS["to_integer"](values))
    if is_whole(given):
        return RoundedValue(result, given.error)
    floored = _with_error("floor", [given], _floored)
    error = torch.zeros_like(values, dtype=torch.float32) if floored.error is None else floored.error.aligned(axes)
    # A value beyond the integers of 64 bits may become any.
    return RoundedValue(result, Named(axes, torch.where(values.abs() < 2.0**63, error, math.inf)))


def as_float(given: RoundedValue) -> RoundedValue:
    """`to_float`: rounded to float32 where that does not represent the integer."""
    axes, exact = given.value.axes, given.value.values.to(torch.float64)
    held = exact.to(torch.float32).to(torch.float64) == exact
    error = torch.where(held, 0.0, exact.abs().to(torch.float32) / 2)
    if given.error is not None:
        error = error + given.error.aligned(axes)
    return RoundedValue(Named(axes, exact), Named(axes, error.expand(exact.shape)))


def _passed_on(slope: Slope, error: torch.Tensor) -> torch.Tensor:
    """The error of an operand, propagated to the result."""
    if slope is None:
        return error
    if isinstance(slope, torch.Tensor):
        return slope * error
    # Not by the quotient itself, which may underflow in float32 where its product with the error does not.
    numerator, denominator = slope
    return numerator * (error / denominator)


def rounded(given: RoundedValue, narrow: str) -> RoundedValue:
    """A rounding that the workload asks for: left out of the value, half a unit in the last place in the error."""
    axes, value = given.value.axes, given.value.values
    result = overflowed(value, narrow)
    size, kind = value.to(torch.float32).abs(), torch.finfo(torch_dtype(narrow))
    error = ((size * kind.eps).clamp(min=kind.smallest_normal * kind.eps) / 2) / UNIT
    # Zero and infinities are the same in every type; a value of the narrower type itself is not changed.
    stays = value.to(torch_dtype(narrow)).to(torch.float64) == value
    if given.error is None:
        error = torch.where(stays, 0.0, error)
    else:
        inherited = given.error.aligned(axes)
        error = torch.where(stays & (inherited == 0), 0.0, torch.hypot(error, inherited))
        undecided = (size - overflow(narrow)).abs() <= DECIDED * UNIT * inherited
        error = torch.where(undecided & (inherited > 0), math.inf, error)
        known = ~(result.isfinite() | undecided | inherited.isinf())
        return RoundedValue(Named(axes, result), Named(axes, torch.where(known, 0.0, error)))
    return RoundedValue(Named(axes, result), Named(axes, torch.where(result.isfinite(), error, 0.0)))


def _compared(result: torch.Tensor, values: Sequence[torch.Tensor], errors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.where(within(_apart(*values), torch.hypot(*errors)), 1 / UNIT, 0.0)


def _apart(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.to(torch.float64) - b.to(torch.float64)).to(torch.float32)


def _larger(result: torch.Tensor, values: Sequence[torch.Tensor], errors: Sequence[torch.Tensor]) -> torch.Tensor:
    """maximum and minimum: the error of the chosen operand, the larger error where it may be either."""
    (a, b), (of_a, of_b) = values, errors
    either = within(_apart(a, b), of_a + of_b)
    error = torch.where(either, torch.maximum(of_a, of_b), torch.where(result == a, of_a, of_b))
    known = result.isnan() & ~unknown(errors, result.device)
    return torch.where(known, 0.0, error)


def error_at(given: RoundedValue, axes: Sequence[str]) -> torch.Tensor:
    if given.error is None:
        return torch.zeros((), device=given.value.values.device)
    return given.error.aligned(axes)


def _chosen(result: torch.Tensor, values: Sequence[torch.Tensor], errors: Sequence[torch.Tensor]) -> torch.Tensor:
    (c, a, b), (of_c, of_a, of_b) = values, errors
    error = torch.where(c != 0, of_a, of_b)
    apart = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, _apart(a, b).abs()) / UNIT
    return torch.where(within(c.to(torch.float32), of_c), error + apart.nan_to_num(nan=math.inf), error)


def _floored(result: torch.Tensor, values: Sequence[torch.Tensor], errors: Sequence[torch.Tensor]) -> torch.Tensor:
    undecided = within((values[0] - values[0].round()).to(torch.float32), errors[0])
    return torch.where(undecided, errors[0].clamp(min=1 / UNIT), 0.0)


def _stepped(result: torch.Tensor, values: Sequence[torch.Tensor], errors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.where(errors[0] > 0, math.inf, 0.0)


def _wrapped(result: torch.Tensor, values: Sequence[torch.Tensor], errors: Sequence[torch.Tensor]) -> torch.Tensor:
    """fmod: exact for exact operands; in doubt by the divisor where the quotient may be another integer."""
    (a, b), (of_a, of_b) = values, errors
    times = (a / b).trunc().to(torch.float32)
    error = torch.hypot(of_a, torch.where(of_b == 0, 0.0, times * of_b))
    left = result.abs().to(torch.float32)
    # For the next multiple of the divisor the error counts once more.
    reach = torch.hypot(of_a, torch.where(of_b == 0, 0.0, (times.abs() + 1) * of_b))
    undecided = within(torch.minimum(left, b.abs().to(torch.float32) - left), reach)
    error = error + torch.where(undecided, b.abs().to(torch.float32) / UNIT, 0.0)
    return of_finite(error, result, unknown(errors, result.device))


def within(distance: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """Mask where a distance may be 0, or have the other sign; never between exact numbers."""
    return ((distance.abs() <= DECIDED * UNIT * error) & (error > 0)) | error.isinf()


def of_finite(error: torch.Tensor, values: torch.Tensor, doubt: torch.Tensor) -> torch.Tensor:
    """The error at finite values, infinite where the analysis has no answer; 0 at other values.

    `doubt`: mask of values of which nothing is known, infinities and NaN included.
    """
    # Not PyTorch's own: it imports a library of symbolic mathematics for that, a second in every new process.
    shape = np.broadcast_shapes(error.shape, values.shape)
    error = error.nan_to_num(nan=math.inf, posinf=math.inf).expand(shape)
    if not _all_finite(values):
        error = torch.where(values.isfinite(), error, 0.0)
    return torch.where(doubt, math.inf, error) if bool(doubt.any()) else error


def _all_finite(values: torch.Tensor) -> bool:
    """True if the sum is finite, which no infinity or NaN leaves it: a tenth of the time of a test of each."""
    return bool(values.sum().isfinite())


# Operators that decide: their result, or the size of its error, depends on which operand is the larger.
_DECISIONS: Mapping[str, _ErrorOf] = {
    "lt": _compared,
    "le": _compared,
    "eq": _compared,
    "where": _chosen,
    "maximum": _larger,
    "minimum": _larger,
    "floor": _floored,
    "exp2_biased": _stepped,
    "fmod": _wrapped,
}
# Operators that are infinite or undefined at 0, or beyond it, of the operand at this position.
_POLES: Mapping[str, int] = {"div": 1, "rsqrt": 0, "sqrt": 0, "log": 0, "log2": 0, "log10": 0}
# Operators that are steepest at 0, and flatter the farther from it.
_FLATTENING = frozenset({"tanh", "erf", "erfc", "atan"})
# Operators that every device rounds to nearest.
_ROUNDED_ONCE = frozenset({"add", "sub", "mul"})


# The operator's own error, given its result.
_OWN: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": torch.abs,
    "sub": torch.abs,
    "mul": torch.abs,
    "div": lambda f: 2 * f.abs(),
    "sqrt": lambda f: 2 * f.abs(),
    "rsqrt": lambda f: 2 * f.abs(),
    # GPUs round x log2(e), which is 5/8 of a unit of the result for every 1 of |x|, uniform about 0.
    "exp": lambda f: 4 * f.abs() + torch.xlogy(f, f).abs() / 8,
    "log": lambda f: 4 * f.abs().clamp(min=1.0),
    "tanh": lambda f: torch.full_like(f, 4.0),
    "erf": lambda f: torch.full_like(f, 4.0),
    "sin": lambda f: torch.full_like(f, 4.0),
    "cos": lambda f: torch.full_like(f, 4.0),
    **function_errors.OWN,
}

# The partial derivative by every operand, given the result and the operands; None is 1 or -1.
_SLOPES: Mapping[str, Callable[..., Slopes]] = {
    "add": lambda f, a, b: (None, None),
    "sub": lambda f, a, b: (None, None),
    "mul": lambda f, a, b: (b, a),
    "div": lambda f, a, b: ((torch.ones_like(b), b), (f, b)),
    "sqrt": lambda f, a: (0.5 / f,),
    "rsqrt": lambda f, a: ((0.5 * f, a),),
    "exp": lambda f, a: (f,),
    "log": lambda f, a: (1 / a,),
    "tanh": lambda f, a: (1 - f.square(),),
    "erf": lambda f, a: (2 / math.sqrt(math.pi) * torch.exp(-a.square()),),
    "sin": lambda f, a: (torch.cos(a),),
    "cos": lambda f, a: (torch.sin(a),),
    **function_errors.SLOPES,
}
