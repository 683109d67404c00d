"""How far a correct kernel may be from the exact result: a running error analysis of a workload.

Every quantity carries, next to its float64 value, the variance of the error that float32 arithmetic leaves in it, in
squared units of u = 2^-23 (Higham, Accuracy and Stability of Numerical Algorithms, sections 2.8 and 3.3: rounding
errors taken as independent). To first order, for f(a, b):

    variance(f) = (df/da)^2 variance(a) + (df/db)^2 variance(b) + (c f)^2

with c = 1 for additions and multiplications, 2 for division and square roots, 4 for transcendental functions, which
GPUs approximate; tanh, erf and log are charged 4 u of absolute error, since polynomials for them are accurate to that.
A sum of K terms t in any order rounds each partial sum, which is at most of the order of S (the sum) or of the root of
Q (the sum of squares, which rules when terms cancel):

    variance(sum) = variances of the terms + Q + K (Q + S^2)

Inputs are exact, and so are products of 16-bit numbers in float32; tf32 dots cut operands to 10 bits of mantissa, an
error of 2^-10 of each. A stage declared narrower than float32 may be rounded to its element type.

In numbers: a float32 matmul of standard normal data has Q = S^2 = K, so its errors have a standard deviation of
u K sqrt(2): 8.6e-5 for K = 512, on results of size 22.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from autosched.named_tensors import Named, read, sum_of_products, union
from autosched.reference import OPERATIONS, check_shapes, extreme, factors, literal
from search_spaces import Stage, Workload
from search_spaces.dtypes import dtype
from search_spaces.expression import Access, Apply, Expression, Literal

UNIT = 2.0**-23
_TF32_UNITS = 2.0**-10 / UNIT


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value in float64 and the variance of its error in units of 2^-23, squared, in float32; None when exact."""

    value: Named
    variance: Named | None


def rounding_error(workload: Workload, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact output (float64) and the standard deviation of a correct kernel's error (float32) at every element.

    The rounding to the output's own element type is not in it.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    check_shapes(workload, inputs)
    known: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {
        t.name: (x.to(torch.float64), None) for t, x in zip(workload.inputs, inputs, strict=True)
    }
    for stage in workload.stages:
        estimate = _stage(stage, known, workload.precision)
        names = [a.name for a in stage.axes]
        value = estimate.value.aligned(names).expand(stage.shape)
        variance = None if estimate.variance is None else estimate.variance.aligned(names).expand(stage.shape)
        if dtype(stage.dtype).epsilon > UNIT and stage is not workload.stages[-1]:
            stored = (value.to(torch.float32) * (dtype(stage.dtype).epsilon / UNIT)).square()
            variance = stored if variance is None else variance + stored
        known[stage.name] = (value, variance)
    value, variance = known[workload.output.name]
    if variance is None:
        return value, torch.zeros_like(value, dtype=torch.float32)
    return value, variance.sqrt() * UNIT


def _stage(stage: Stage, known: Mapping[str, tuple[torch.Tensor, torch.Tensor | None]], precision: str) -> Estimate:
    if stage.reduction is None:
        return _expression(stage.expression, stage, known)
    if stage.reduction.operator != "sum":
        folded = _expression(stage.expression, stage, known)
        # The largest value may be any of them: the largest variance bounds its error.
        worst = None if folded.variance is None else _largest(folded.variance, stage)
        return Estimate(extreme(folded.value, stage), worst)
    terms = [_expression(f, stage, known) for f in factors(stage.expression)]
    if stage.is_contraction and precision == "tf32":
        terms = [_cut_to_tf32(t) for t in terms]
    return _sum(terms, stage)


def _sum(terms: list[Estimate], stage: Stage) -> Estimate:
    assert stage.reduction is not None
    kept, reduced = [a.name for a in stage.axes], {a.name: a.extent for a in stage.reduction.axes}
    total = sum_of_products([t.value for t in terms], kept, reduced)
    squares = [_square(t.value) for t in terms]
    q = sum_of_products(squares, kept, reduced)
    s = _square(total)
    count = math.prod(reduced.values())
    variance = q.values + count * (q.values + s.aligned(q.axes))
    for number, term in enumerate(terms):
        if term.variance is not None:
            others = squares[:number] + squares[number + 1 :]
            variance = variance + sum_of_products([term.variance, *others], kept, reduced).aligned(q.axes)
    return Estimate(total, Named(q.axes, variance))


def _square(named: Named) -> Named:
    return Named(named.axes, named.values.to(torch.float32).square())


def _cut_to_tf32(term: Estimate) -> Estimate:
    cut = Named(term.value.axes, _square(term.value).values * _TF32_UNITS**2)
    if term.variance is None:
        return Estimate(term.value, cut)
    axes = union([term.variance, cut])
    return Estimate(term.value, Named(axes, term.variance.aligned(axes) + cut.aligned(axes)))


def _largest(variance: Named, stage: Stage) -> Named:
    assert stage.reduction is not None
    reduced = {a.name for a in stage.reduction.axes}
    dims = [d for d, a in enumerate(variance.axes) if a in reduced]
    left = tuple(a for a in variance.axes if a not in reduced)
    return Named(left, torch.amax(variance.values, dims) if dims else variance.values)


def _expression(
    expression: Expression, stage: Stage, known: Mapping[str, tuple[torch.Tensor, torch.Tensor | None]]
) -> Estimate:
    match expression:
        case Literal(value):
            return Estimate(literal(value), None)
        case Access(tensor):
            values, variance = known[tensor]
            read_variance = None if variance is None else read(expression, variance, stage.extents)
            return Estimate(read(expression, values, stage.extents), read_variance)
        case Apply(operator, arguments):
            return _apply(operator, [_expression(a, stage, known) for a in arguments])


def _apply(operator: str, given: list[Estimate]) -> Estimate:
    axes = union([g.value for g in given])
    result = OPERATIONS[operator](*(g.value.aligned(axes) for g in given))
    variances = [None if g.variance is None else g.variance.aligned(axes) for g in given]
    if operator in ("neg", "abs", "maximum", "minimum"):
        exact = [v for v in variances if v is not None]
        if not exact:
            return Estimate(Named(axes, result), None)
        worst = exact[0] if len(exact) == 1 else torch.maximum(exact[0], exact[1])
        return Estimate(Named(axes, result), Named(axes, worst.expand(result.shape)))
    f = result.to(torch.float32)
    total = _OWN[operator](f)
    if any(v is not None for v in variances):
        operands = [g.value.aligned(axes).to(torch.float32) for g in given]
        for slope, v in zip(_SLOPES[operator](f, *operands), variances, strict=True):
            if v is not None:
                total = total + (v if slope is None else slope.square() * v)
    return Estimate(Named(axes, result), Named(axes, total.expand(result.shape)))


_Slopes = tuple[torch.Tensor | None, ...]

# The variance that the operator itself adds, given its result.
_OWN: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda f: f.square(),
    "sub": lambda f: f.square(),
    "mul": lambda f: f.square(),
    "div": lambda f: (2 * f).square(),
    "sqrt": lambda f: (2 * f).square(),
    "rsqrt": lambda f: (2 * f).square(),
    "exp": lambda f: (4 * f).square(),
    "log": lambda f: (4 * f).square().clamp(min=16.0),
    "tanh": lambda f: torch.full_like(f, 16.0),
    "erf": lambda f: torch.full_like(f, 16.0),
}

# The partial derivative by every operand, given the result and the operands; None is 1 or -1.
_SLOPES: Mapping[str, Callable[..., _Slopes]] = {
    "add": lambda f, a, b: (None, None),
    "sub": lambda f, a, b: (None, None),
    "mul": lambda f, a, b: (b, a),
    "div": lambda f, a, b: (1 / b, f / b),
    "sqrt": lambda f, a: (0.5 / f,),
    "rsqrt": lambda f, a: (0.5 * f / a,),
    "exp": lambda f, a: (f,),
    "log": lambda f, a: (1 / a,),
    "tanh": lambda f, a: (1 - f.square(),),
    "erf": lambda f, a: (2 / math.sqrt(math.pi) * torch.exp(-a.square()),),
}
