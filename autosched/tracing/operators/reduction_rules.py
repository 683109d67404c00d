"""ATen's reductions, with pointwise prologues and epilogues."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from autosched.tracing.operators.rules import Result, arange, converted, dims_of, reshape, torch_name
from autosched.tracing.values.values import Value
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Integer, Literal
from search_spaces.workloads.expressions.kinds import is_integral


def _count(value: Value, dims: tuple[int, ...]) -> int:
    return math.prod(value.shape[d] for d in dims)


def _finished(result: Result, folded: Value, dims: tuple[int, ...], keep: bool) -> Value:
    """A float32 reduction in the element type and shape of the operator's result."""
    dtype = result.dtype
    if dtype != folded.dtype:
        folded = converted(folded, dtype, f"{result.name}_{dtype}")
    return result.keeping(folded, dims, keep)


def _sum(result: Result, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    over, x = dims_of(dim, len(x.shape)), _as_summed(x, dtype)
    if is_float(result.dtype):
        return _finished(result, result.reduced("sum", x, over), over, keepdim)
    return _finished(result, _of_integers(result, "sum", x, over), over, keepdim)


def _as_summed(x: Value, dtype: torch.dtype | None) -> Value:
    """The argument of a reduction in the requested element type: it is converted before any addition."""
    return x if dtype is None else converted(x, torch_name(dtype))


def _of_integers(result: Result, operator: str, x: Value, over: tuple[int, ...]) -> Value:
    """A reduction of integers or booleans, in 64 bits."""
    return result.reduced(operator, converted(x, "int64"), over, dtype="int64")


def _mean(result: Result, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    over, x = dims_of(dim, len(x.shape)), _as_summed(x, dtype)
    return result.keeping(_divided(result, result.reduced("sum", x, over), _count(x, over)), over, keepdim)


def _divided(result: Result, total: Value, count: float, dtype: str = "") -> Value:
    dtype = dtype or result.dtype
    fields = {"shape": total.shape, "dtype": dtype, "name": f"{result.name}_mean"}
    if count <= 0:
        return result.pointwise(lambda t: ex.div(t, Literal(0.0)), total, **fields)
    return result.pointwise(lambda t: ex.mul(t, Literal(1.0 / count)), total, **fields)


def _moments(result: Result, x: Value, over: tuple[int, ...], correction: float) -> tuple[Value, Value]:
    """Variance and mean over these dimensions, in two passes: the mean first, then the squares about it."""
    count = _count(x, over)
    total = result.reduced("sum", x, over, name=f"{result.name}_total")
    mean = _divided(result, total, count, "float32")
    kept = result.keeping(mean, over, True)

    def square(a: ex.Expression, m: ex.Expression) -> ex.Expression:
        away = ex.sub(a, m)
        return ex.mul(away, away)

    squares = result.elementwise(square, x, kept, name=f"{result.name}_squares", shape=x.shape, dtype="float32")
    spread = result.reduced("sum", squares, over, name=f"{result.name}_spread")
    return _divided(result, spread, count - correction, "float32"), mean


def _var_mean(
    result: Result, x: Value, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    over = dims_of(dim, len(x.shape))
    variance, mean = _moments(result, x, over, 1.0 if correction is None else correction)
    return _finished(result, variance, over, keepdim), _finished(result, mean, over, keepdim)


def _var(result: Result, x: Value, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Value:
    return _var_mean(result, x, dim, correction=correction, keepdim=keepdim)[0]


def _extreme(operator: str) -> Callable[..., Value]:
    def rule(result: Result, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        over = dims_of(dim, len(x.shape))
        folded = result.reduced(operator, x, over, dtype=x.dtype)
        return result.keeping(folded, over, keepdim)

    return rule


def _arg_extreme(operator: str) -> Callable[..., Value]:
    """The first position of the extreme: the least one of those where the element equals it."""

    def rule(result: Result, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if dim is None:
            flat = reshape(x, (x.elements,))
            found = rule(result, flat, 0)
            return reshape(found, (1,) * len(x.shape)) if keepdim else found
        (d,) = dims_of(dim, len(x.shape)) or (None,)
        if d is None:
            return result.constant(0.0, dtype="int64")
        extent = x.shape[d]
        top = result.reduced(operator, x, (d,), name=f"{result.name}_top", dtype=x.dtype)
        at = arange(extent, len(x.shape), d, f"{result.name}_at")
        where = result.elementwise(
            lambda a, t, p: ex.call("where", _is_extreme(a, t), p, Integer(extent)),
            *(x, result.keeping(top, (d,), True), at),
            name=f"{result.name}_where",
            shape=x.shape,
            dtype="int64",
        )
        # Stored as integers, too, so that random data for a kernel that gathers there are positions.
        folded = result.reduced("min", where, (d,), name=f"{result.name}_first", dtype="int64")
        return result.keeping(folded, (d,), keepdim)

    return rule


def _is_extreme(a: ex.Expression, extreme: ex.Expression) -> ex.Expression:
    """True for an element that equals the extreme, or is NaN, which then is the extreme too."""
    if is_integral(a):
        return ex.call("eq", a, extreme)
    unordered = ex.call("eq", ex.call("eq", a, a), Literal(0.0))
    return ex.call("maximum", ex.call("eq", a, extreme), unordered)


def _extreme_and_place(operator: str) -> Callable[..., tuple[Value, Value]]:
    def rule(result: Result, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        return _extreme(operator)(result, x, dim, keepdim), _arg_extreme(operator)(result, x, dim, keepdim)

    return rule


def _whether(operator: str) -> Callable[..., Value]:
    """any or all: the maximum or the minimum of 1 for elements other than 0, and 0."""

    def rule(result: Result, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        over = dims_of(dim, len(x.shape))
        truth = converted(x, "bool", f"{result.name}_truth")
        folded = result.reduced(operator, truth, over, dtype="bool")
        # For uint8 the result is uint8.
        return _finished(result, folded, over, keepdim)

    return rule


def _prod(result: Result, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    over, x = dims_of(dim, len(x.shape)), _as_summed(x, dtype)
    if not is_float(result.dtype):
        return _finished(result, _of_integers(result, "prod", x, over), over, keepdim)
    return _finished(result, result.reduced("prod", x, over), over, keepdim)


def _batch_norm(
    result: Result,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """Batch normalisation with given statistics, one per position of the second dimension.

    `momentum` is the rate of updating them, which does not happen here.
    """
    shape = (1, x.shape[1], *(1,) * (len(x.shape) - 2))
    given = [reshape(v, shape) for v in (mean, var, weight, bias) if v is not None]

    def normalised(a: ex.Expression, m: ex.Expression, v: ex.Expression, *affine: ex.Expression) -> ex.Expression:
        scaled = ex.mul(ex.sub(a, m), ex.call("rsqrt", ex.add(v, Literal(eps))))
        rest = list(affine)
        if weight is not None:
            scaled = ex.mul(scaled, rest.pop(0))
        return ex.add(scaled, rest.pop(0)) if bias is not None else scaled

    of_mean, of_deviation = result.dtypes[1:3]
    if result.on_cpu:
        # The results for training are empty.
        nothing = (result.part("nothing", (0,), dtype).constant(0.0) for dtype in (of_mean, of_deviation))
        return result.pointwise(normalised, x, *given), *nothing
    kept = converted(mean, of_mean, f"{result.name}_mean_kept")
    return result.pointwise(normalised, x, *given), kept, _deviation(result, var, eps)


def _deviation(result: Result, variance: Value, eps: float) -> Value:
    """One over the deviation, the third result of batch normalisation."""
    made = result.part("deviation", variance.shape, result.dtypes[2])
    return made.pointwise(lambda v: ex.call("rsqrt", ex.add(v, Literal(eps))), variance)


def _batch_norm_of_batch(
    result: Result, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> tuple[Value, ...]:
    """Batch normalisation with the statistics of the batch, followed by these: the mean, and one over the deviation."""
    over = tuple(d for d in range(len(x.shape)) if d != 1)
    variance, mean = _moments(result, x, over, 0.0)
    normalised, *_ = _batch_norm(result, x, weight, bias, mean, variance, momentum, eps)
    return normalised, converted(mean, result.dtypes[1], f"{result.name}_kept"), _deviation(result, variance, eps)


def _batch_norm_and_statistics(
    result: Result,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """Batch normalisation, followed by the running statistics, which are updated in training."""
    of_mean, of_variance = (result.part(f"next_{n}", mean.shape, dtype) for n, dtype in enumerate(result.dtypes[3:]))
    if not training:
        kept = converted(mean, of_mean.dtype), converted(var, of_variance.dtype)
        return *_batch_norm(result, x, weight, bias, mean, var, momentum, eps), *kept
    over = tuple(d for d in range(len(x.shape)) if d != 1)
    variance, average = _moments(result, x, over, 0.0)
    # Running statistics estimate the population's variance.
    unbiased = _count(x, over) / max(_count(x, over) - 1, 1)

    def followed(old: ex.Expression, new: ex.Expression, scale: float) -> ex.Expression:
        return ex.add(ex.mul(old, Literal(1.0 - momentum)), ex.mul(new, Literal(momentum * scale)))

    return (
        *_batch_norm_of_batch(result, x, weight, bias, training, momentum, eps),
        of_mean.pointwise(lambda old, new: followed(old, new, 1.0), mean, average),
        of_variance.pointwise(lambda old, new: followed(old, new, unbiased), var, variance),
    )


def _rms_norm(
    result: Result, x: Value, shape: Any, weight: Value | None = None, eps: float | None = None
) -> tuple[Value, ...]:
    """Root-mean-square normalisation over the last dimensions, in float32 and rounded once."""
    over = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    squares = result.elementwise(
        lambda a: ex.mul(a, a), x, name=f"{result.name}_squares", shape=x.shape, dtype="float32"
    )
    total = result.reduced("sum", squares, over, name=f"{result.name}_total")
    kept = result.keeping(_divided(result, total, _count(x, over), "float32"), over, True)
    # By default that of the element type which PyTorch computes in.
    added = torch.finfo(torch.float32).eps if eps is None else eps

    def normalised(a: ex.Expression, mean: ex.Expression, *scale: ex.Expression) -> ex.Expression:
        scaled = ex.mul(a, ex.call("rsqrt", ex.add(mean, Literal(added))))
        return ex.mul(scaled, scale[0]) if scale else scaled

    given = (x, kept) if weight is None else (x, kept, weight)
    return (result.pointwise(normalised, *given),)


RULES: Mapping[str, Callable[..., Any]] = {
    "sum": _sum,
    "mean": _mean,
    "var": _var,
    "var_mean": _var_mean,
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "argmax": _arg_extreme("max"),
    "argmin": _arg_extreme("min"),
    "any": _whether("max"),
    "all": _whether("min"),
    "prod": _prod,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_native_batch_norm_legit": _batch_norm_of_batch,
    "_native_batch_norm_legit_functional": _batch_norm_and_statistics,
    "_fused_rms_norm": _rms_norm,
}
PAIRS: Mapping[str, Callable[..., Any]] = {"max": _extreme_and_place("max"), "min": _extreme_and_place("min")}


def rule_of(operator: str, overload: str) -> Callable[..., Any] | None:
    """The rule of an ATen operator, or None."""
    if operator == "_native_batch_norm_legit" and overload != "no_stats":
        # It changes running statistics in place, too.
        return None
    if operator in PAIRS:
        return {"dim": PAIRS[operator], "default": RULES[f"a{operator}"]}.get(overload)
    return RULES.get(operator)
