"""How far a correct kernel may be from the exact result: a running error analysis of a workload.

Every quantity carries, next to its float64 value, the standard deviation of the error that float32 arithmetic leaves in
it, in units of u = 2^-23 (Higham, Accuracy and Stability of Numerical Algorithms, sections 2.8 and 3.3: rounding errors
taken as independent). To first order, for f(a, b):

    error(f)^2 = (df/da error(a))^2 + (df/db error(b))^2 + (c f)^2

with c = 1 for additions and multiplications, 2 for division and square roots, 4 for transcendental functions, which
GPUs approximate; tanh, erf and log are charged 4 u of absolute error, since polynomials for them are accurate to that.
A sum of K terms t in any order rounds each partial sum, which is at most of the order of S (the sum) or of the root of
Q (the sum of squares, which rules when terms cancel):

    error(sum)^2 = sum of error(t)^2 + Q + K (Q + S^2)

Inputs are exact, and so are products of 16-bit numbers in float32; tf32 dots cut operands to 10 bits of mantissa, an
error of 2^-10 of each. A stage declared narrower than float32 may be rounded to its element type. Sums of integers are
exact, and rounded once where pointwise work on them begins.

Sums of products of 8-bit floats stay in the accumulators of tensor cores for L products: 128, or all K where that is
allowed ("fast"). One instruction adds 32 products to an accumulator: all are cut to multiples of w = 2^-13 of the power
of two below the largest (DeepSeek-V3 Technical Report, 2024, section 3.3.2, calls that 14 bits; Zhang et al.,
"SageAttention2", 2024, section 3.3). With P the mean square of a partial sum, w has a mean square of 2^-26 P / 2, since
rounding down to powers of two halves squares on average. Cutting takes between 0 and w off each of L products: a
variance of w^2 / 3 each, and w / 2 in the direction of the sum for as many as outweigh those of the other sign, about
|s| / rms(t) for a sum s of terms t; and it takes w / 2 off the accumulator L / 32 times. A sum of L of the terms has a
mean square s^2 of q = Q L / K times r = 1 + L S^2 / (K Q), and its partial sums have half of that. K / L such sums have

    error^2 = 2^-26 Q r / 4 (L (1 / 3 + r / 4) + (L / 64)^2)

In numbers: a float32 matmul of standard normal data has Q = S^2 = K, so its errors have a standard deviation of
u K sqrt(2): 8.6e-5 for K = 512, on results of size 22.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from autosched.free_memory import memory_for
from autosched.named_tensors import Named, read, sum_of_products, union
from autosched.reference import OPERATIONS, check_shapes, extreme, factors, literal
from search_spaces import Stage, Workload
from search_spaces.dtypes import FLOAT8, FLOAT8_CHAIN, dtype, is_integer, is_promoted
from search_spaces.expression import Access, Apply, Expression, Literal

UNIT = 2.0**-23
_TF32_UNITS = 2.0**-10 / UNIT
_FLOAT8_UNITS = 2.0**-13 / UNIT


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value in float64, and the standard deviation of its error in units of 2^-23, in float32; None when exact."""

    value: Named
    error: Named | None


def rounding_error(workload: Workload, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact output (float64) and the standard deviation of a correct kernel's error (float32) at every element.

    The rounding to the output's own element type is not in it.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
        OutOfMemoryError: the float64 values do not fit in memory.
    """
    check_shapes(workload, inputs)
    shapes = [t.shape for t in workload.inputs] + [s.shape for s in workload.stages]
    needed = sum(math.prod(shape) for shape in shapes) * torch.float64.itemsize
    with memory_for(f"the float64 values to check {workload.label} with", needed, inputs[0].device):
        return _analysed(workload, inputs)


def _analysed(workload: Workload, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    known = {
        t.name: Estimate(Named(_dims(x), x.to(torch.float64)), None)
        for t, x in zip(workload.inputs, inputs, strict=True)
    }
    for stage in workload.stages:
        known[stage.name] = _stored(_stage(stage, known, workload), stage, last=stage is workload.stages[-1])
    output = known[workload.output.name]
    exact = output.value.values
    error = torch.zeros_like(exact, dtype=torch.float32) if output.error is None else output.error.values * UNIT
    return exact, error


def _dims(tensor: torch.Tensor) -> tuple[str, ...]:
    return tuple(map(str, range(tensor.ndim)))


def _stored(estimate: Estimate, stage: Stage, last: bool) -> Estimate:
    """A stage's result as a tensor with all of its axes, rounded to its element type unless it is the output."""
    names = [a.name for a in stage.axes]
    value = estimate.value.aligned(names).expand(stage.shape)
    error = None if estimate.error is None else estimate.error.aligned(names).expand(stage.shape)
    if dtype(stage.dtype).epsilon > UNIT and not last:
        rounding = value.to(torch.float32) * (dtype(stage.dtype).epsilon / UNIT)
        error = rounding.abs() if error is None else torch.hypot(error, rounding)
    dims = _dims(value)
    return Estimate(Named(dims, value), None if error is None else Named(dims, error))


def _stage(stage: Stage, known: Mapping[str, Estimate], workload: Workload) -> Estimate:
    if stage.reduction is None:
        return _expression(stage.expression, stage, known)
    if stage.reduction.operator != "sum":
        folded = _expression(stage.expression, stage, known)
        # The extreme may be any of them: the largest error bounds its own.
        worst = None if folded.error is None else extreme(folded.error, stage.reduction.axes, torch.amax)
        fold = torch.amax if stage.reduction.operator == "max" else torch.amin
        return Estimate(extreme(folded.value, stage.reduction.axes, fold), worst)
    terms = [_expression(f, stage, known) for f in factors(stage.expression)]
    kept, reduced = [a.name for a in stage.axes], {a.name: a.extent for a in stage.reduction.axes}
    if not stage.is_contraction:
        return _sum(terms, kept, reduced)
    if is_integer(workload.contracted[0]):
        exact = sum_of_products([t.value for t in terms], kept, reduced)
        return Estimate(exact, Named(exact.axes, exact.values.to(torch.float32).abs()))
    if workload.precision == "tf32":
        terms = [_cut_to_tf32(t) for t in terms]
    if workload.contracted[0] in FLOAT8:
        count = math.prod(reduced.values())
        promoted = is_promoted(workload.contracted[0], workload.precision)
        return _sum(terms, kept, reduced, min(count, FLOAT8_CHAIN) if promoted else count)
    return _sum(terms, kept, reduced)


def _sum(terms: Sequence[Estimate], kept: Sequence[str], reduced: Mapping[str, int], chain: int = 0) -> Estimate:
    """The sum of the terms' products, of which so many at a time stay in the accumulators of 8-bit dots."""
    total = sum_of_products([t.value for t in terms], kept, reduced)
    squares = [_square(t.value) for t in terms]
    q = sum_of_products(squares, kept, reduced)
    count = math.prod(reduced.values())
    s = _square(total).aligned(q.axes)
    variance = q.values + count * (q.values + s)
    if chain:
        variance = variance + _chain_variance(q.values, s, count, chain)
    for number, term in enumerate(terms):
        if term.error is not None:
            others = squares[:number] + squares[number + 1 :]
            variance = variance + sum_of_products([_square(term.error), *others], kept, reduced).aligned(q.axes)
    return Estimate(total, Named(q.axes, variance.sqrt()))


def _chain_variance(q: torch.Tensor, s: torch.Tensor, count: int, chain: int) -> torch.Tensor:
    """The variance that sums of `chain` products in an accumulator of 14 bits add to one of `count` in all."""
    r = 1 + s * (chain / count) / q.clamp(min=torch.finfo(torch.float32).tiny)
    return _FLOAT8_UNITS**2 / 4 * q * r * (chain * (1 / 3 + r / 4) + (chain / 64) ** 2)


def _square(named: Named) -> Named:
    return Named(named.axes, named.values.to(torch.float32).square())


def _cut_to_tf32(term: Estimate) -> Estimate:
    cut = Named(term.value.axes, term.value.values.to(torch.float32).abs() * _TF32_UNITS)
    if term.error is None:
        return Estimate(term.value, cut)
    axes = union([term.error, cut])
    return Estimate(term.value, Named(axes, torch.hypot(term.error.aligned(axes), cut.aligned(axes))))


def _expression(expression: Expression, stage: Stage, known: Mapping[str, Estimate]) -> Estimate:
    match expression:
        case Literal(constant):
            device = next(iter(known.values())).value.values.device
            return Estimate(literal(constant, device), None)
        case Access(tensor):
            value, error = known[tensor].value, known[tensor].error
            read_error = None if error is None else read(expression, error.values, stage.extents)
            return Estimate(read(expression, value.values, stage.extents), read_error)
        case Apply(operator, arguments):
            return _apply(operator, [_expression(a, stage, known) for a in arguments])


def _apply(operator: str, given: Sequence[Estimate]) -> Estimate:
    axes = union([g.value for g in given])
    result = OPERATIONS[operator](*(g.value.aligned(axes) for g in given))
    errors = [None if g.error is None else g.error.aligned(axes) for g in given]
    inherited = [e for e in errors if e is not None]
    if operator in ("neg", "abs", "maximum", "minimum"):
        if not inherited:
            return Estimate(Named(axes, result), None)
        worst = inherited[0] if len(inherited) == 1 else torch.maximum(inherited[0], inherited[1])
        return Estimate(Named(axes, result), Named(axes, worst.expand(result.shape)))
    f = result.to(torch.float32)
    error = _OWN[operator](f)
    if inherited:
        operands = [g.value.aligned(axes).to(torch.float32) for g in given]
        variance = error.square()
        for slope, e in zip(_SLOPES[operator](f, *operands), errors, strict=True):
            if e is not None:
                variance = variance + (e if slope is None else slope * e).square()
        error = variance.sqrt()
    return Estimate(Named(axes, result), Named(axes, error.expand(result.shape)))


_Slopes = tuple[torch.Tensor | None, ...]

# The error that the operator itself adds, given its result.
_OWN: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": torch.abs,
    "sub": torch.abs,
    "mul": torch.abs,
    "div": lambda f: 2 * f.abs(),
    "sqrt": lambda f: 2 * f.abs(),
    "rsqrt": lambda f: 2 * f.abs(),
    "exp": lambda f: 4 * f.abs(),
    "log": lambda f: 4 * f.abs().clamp(min=1.0),
    "tanh": lambda f: torch.full_like(f, 4.0),
    "erf": lambda f: torch.full_like(f, 4.0),
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
