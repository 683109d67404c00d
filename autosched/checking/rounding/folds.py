"""Errors of a stage's reductions: sums, products, extremes; the formulas are in `rounding.analysis`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from autosched.checking.named_tensors import Named, sum_of_products, union
from autosched.checking.operations import extreme, product_along
from autosched.checking.rounding.rules import DECIDED, UNIT, RoundedValue, nowhere, of_finite
from search_spaces import Reduction, Stage

_TF32_UNITS = 2.0**-10 / UNIT
_FLOAT8_UNITS = 2.0**-13 / UNIT
# Integers up to here, and so sums of them, are exact in float32.
_EXACT_INTEGERS = 2.0**24


def fold_of_integers(given: RoundedValue, stage: Stage) -> RoundedValue:
    """A reduction of integers, which is exact: its error is that of the integers."""
    assert stage.reduction is not None
    if stage.reduction.operator in ("max", "min"):
        return extreme_of(given, stage.reduction)
    kept, reduced = [a.name for a in stage.axes], {a.name: a.extent for a in stage.reduction.axes}
    if stage.reduction.operator == "sum":
        result = sum_of_products([given.value], kept, reduced)
    else:
        result = product_along(given.value, stage.reduction.axes)
    if given.error is None:
        return RoundedValue(result, None)
    error = sum_of_products([given.error], kept, reduced)
    if stage.reduction.operator == "prod":
        error = Named(error.axes, torch.where(error.values > 0, math.inf, 0.0))
    return RoundedValue(result, error)


def extreme_of(given: RoundedValue, reduction: Reduction) -> RoundedValue:
    """The largest or smallest: any candidate within its error, so the largest of their errors bounds the result's."""
    fold = torch.amax if reduction.operator == "max" else torch.amin
    result = extreme(given.value, reduction.axes, fold)
    if given.error is None:
        return RoundedValue(result, None)
    axes = union([given.value, given.error])
    sign = 1 if reduction.operator == "max" else -1
    signed, error = sign * given.value.aligned(axes), given.error.aligned(axes)
    reach = (DECIDED * UNIT) * error
    surely = extreme(Named(axes, signed - reach), reduction.axes, torch.amax)
    possible = torch.where(signed + reach >= surely.aligned(axes), error, 0.0)
    return RoundedValue(result, extreme(Named(axes, possible), reduction.axes, torch.amax))


def sum_of(
    terms: Sequence[RoundedValue], kept: Sequence[str], reduced: Mapping[str, int], chain: int = 0
) -> RoundedValue:
    """The sum of the terms' products; 8-bit dots keep `chain` of them at a time in their accumulators."""
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
    errors = [_square(t.error) for t in terms if t.error is not None]
    if len(errors) == 2:
        # Derivatives say nothing of squares near 0, whose factors have equal errors.
        both = sum_of_products(errors, kept, reduced).aligned(q.axes)
        variance = variance + (DECIDED * UNIT) ** 2 * both.nan_to_num(nan=0.0)
    error = variance.sqrt()
    if len(terms) == 1 and bool((terms[0].value.values == terms[0].value.values.floor()).all()):
        error = torch.where(_sums_exactly(terms[0], q.axes, kept, reduced), 0.0, error)
    doubt = _unknown(terms, q.axes, kept, reduced)
    return RoundedValue(total, Named(q.axes, of_finite(error, total.aligned(q.axes), doubt)))


def _unknown(
    terms: Sequence[RoundedValue], axes: Sequence[str], kept: Sequence[str], reduced: Mapping[str, int]
) -> torch.Tensor:
    """Mask over the kept axes: a value of unknown error is reduced there."""
    found = nowhere(terms[0].value.values.device)
    for error in (t.error for t in terms if t.error is not None):
        here = error.values.isinf()
        if bool(here.any()):
            counts = sum_of_products([Named(error.axes, here.to(torch.float32))], kept, reduced)
            found = found | (counts.aligned(axes) > 0)
    return found


def _sums_exactly(
    term: RoundedValue, axes: Sequence[str], kept: Sequence[str], reduced: Mapping[str, int]
) -> torch.Tensor:
    """Mask where all partial sums of an integral term are integers that float32 represents."""
    sizes = Named(term.value.axes, term.value.values.to(torch.float32).abs())
    exact = sum_of_products([sizes], kept, reduced).aligned(axes) <= _EXACT_INTEGERS
    if term.error is None:
        return exact
    return exact & (sum_of_products([term.error], kept, reduced).aligned(axes) == 0)


def product_of(term: RoundedValue, stage: Stage) -> RoundedValue:
    """The product along the stage's reduction axes, each multiplication rounded."""
    assert stage.reduction is not None
    axes, counts = stage.reduction.axes, math.prod(a.extent for a in stage.reduction.axes)
    total = product_along(term.value, axes)
    size = total.values.to(torch.float32).abs()
    relative = torch.full_like(size, float(counts))
    exact = Named(term.value.axes, (term.value.values != term.value.values.floor()).to(torch.float32))
    if term.error is not None:
        values = term.value.values.to(torch.float32)
        e = term.error.aligned(term.value.axes).expand(values.shape)
        of_terms = Named(term.value.axes, torch.where(e == 0, 0.0, e / values).square())
        sums = sum_of_products([of_terms], [a.name for a in stage.axes], {a.name: a.extent for a in axes})
        relative = relative + sums.aligned(total.axes)
        exact = Named(term.value.axes, exact.values + e)
    inexact = sum_of_products([exact], [a.name for a in stage.axes], {a.name: a.extent for a in axes})
    kept = (inexact.aligned(total.axes) == 0) & (size <= _EXACT_INTEGERS)
    error = torch.where(kept, 0.0, size * relative.sqrt())
    doubt = _unknown([term], total.axes, [a.name for a in stage.axes], {a.name: a.extent for a in axes})
    return RoundedValue(total, Named(total.axes, of_finite(error, total.values, doubt)))


def _chain_variance(q: torch.Tensor, s: torch.Tensor, count: int, chain: int) -> torch.Tensor:
    """The variance that sums of `chain` products in an accumulator of 14 bits add to one of `count` in all."""
    r = 1 + s * (chain / count) / q.clamp(min=torch.finfo(torch.float32).tiny)
    return _FLOAT8_UNITS**2 / 4 * q * r * (chain * (1 / 3 + r / 4) + (chain / 64) ** 2)


def _square(named: Named) -> Named:
    return Named(named.axes, named.values.to(torch.float32).square())


def cut_to_tf32(term: RoundedValue) -> RoundedValue:
    cut = Named(term.value.axes, term.value.values.to(torch.float32).abs() * _TF32_UNITS)
    if term.error is None:
        return RoundedValue(term.value, cut)
    axes = union([term.error, cut])
    return RoundedValue(term.value, Named(axes, torch.hypot(term.error.aligned(axes), cut.aligned(axes))))


def running_sums(x: torch.Tensor, error: torch.Tensor, dim: int, reverse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Partial sums; the error is that of the terms so far, with the largest partial sum rounded as often."""
    if reverse:
        turned = running_sums(x.flip(dim), error.flip(dim), dim, False)
        return turned[0].flip(dim), turned[1].flip(dim)
    total = x.cumsum(dim)
    if not x.is_floating_point():
        return total, error.cumsum(dim)
    size = x.to(torch.float32)
    q = size.square().cumsum(dim)
    largest = total.to(torch.float32).abs().nan_to_num(nan=math.inf).cummax(dim)[0].square()
    shape = [-1 if d == dim else 1 for d in range(x.ndim)]
    counts = torch.arange(1, x.shape[dim] + 1, device=x.device, dtype=torch.float32).reshape(shape)
    rounded = (q + counts * (q + largest) + error.square().cumsum(dim)).sqrt()
    whole = ((x != x.floor()) | (error != 0)).cumsum(dim) == 0
    exact = whole & (size.abs().cumsum(dim) <= _EXACT_INTEGERS)
    doubt = error.isinf().cumsum(dim) > 0
    return total, of_finite(torch.where(exact, 0.0, rounded), total, doubt)
