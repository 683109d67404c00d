"""Running error analysis of a workload: the deviation of a correct kernel from the exact result.

Every quantity carries, next to its float64 value, the standard deviation of the error that float32 arithmetic leaves in
it, in units of u = 2^-23 (Higham, Accuracy and Stability of Numerical Algorithms, sections 2.8 and 3.3: rounding errors
taken as independent). To first order, for f(a, b):

    error(f)^2 = (df/da error(a))^2 + (df/db error(b))^2 + (c f)^2

with c = 1 for additions and multiplications, 2 for division and square roots, 4 for transcendental functions, which
GPUs approximate; tanh, erf and log are charged 4 u of absolute error, since polynomials for them are accurate to that,
and functions with a formula 2 (see `autosched.checking.accuracy`). Functions that flatten away from 0, as erf, have the
steepest slope within 8 standard deviations of the argument. A sum of K terms t in any order rounds each partial sum,
which is at most of the order of S (the sum) or of the root of Q (the sum of squares, the larger when terms cancel):

    error(sum)^2 = sum of error(t)^2 + Q + K (Q + S^2)

Inputs are exact, and so are products of 16-bit numbers in float32; tf32 dots truncate operands to 10 bits of mantissa,
an error of 2^-10 of each. A stage declared narrower than float32 may be rounded to its element type. Sums of integers
are exact, and rounded once where pointwise work on them begins. Values that float32 represents are not rounded where
operands are exact: positions, counts, comparisons.

Where an error may change a decision (a comparison, `where`, floor, an index), the result may be another one: decisions
between numbers within 8 standard deviations of each other carry the difference of the outcomes in place of a deviation.
A look-up with such an index may yield anything: its error is infinite, which means that it is not checked. The
roundings that a workload asks for are not in the exact value; half a unit in the last place of the narrower type is in
the error, so that programs that keep more precision are right, too.

Sums of products of 8-bit floats stay in the accumulators of tensor cores for L products: 128, also where scales follow
each sum, or all K where that is allowed ("fast"). One instruction adds 32 products to an accumulator: all are truncated
to multiples of w = 2^-13 of the power of two below the largest (DeepSeek-V3 Technical Report, 2024, section 3.3.2,
calls that 14 bits; Zhang et al., "SageAttention2", 2024, section 3.3). With P the mean square of a partial sum, w has a
mean square of 2^-26 P / 2, since rounding down to powers of two halves squares on average. Truncation takes between 0
and w off each of L products: a variance of w^2 / 3 each, and w / 2 in the direction of the sum for as many as outweigh
those of the other sign, about |s| / rms(t) for a sum s of terms t; and it takes w / 2 off the accumulator L / 32 times.
A sum of L of the terms has a mean square s^2 of q = Q L / K times r = 1 + L S^2 / (K Q), and its partial sums have half
of that. K / L such sums have

    error^2 = 2^-26 Q r / 4 (L (1 / 3 + r / 4) + (L / 64)^2)

In numbers: a float32 matmul of standard normal data has Q = S^2 = K, so its errors have a standard deviation of u K
sqrt(2): 8.6e-5 for K = 512, on results of size 22.6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from autosched.checking.named_tensors import Named, count, look_up, read, segment_of, sum_of_products
from autosched.checking.pieces.pieces import joined, pieces_of
from autosched.checking.pieces.runs import runs_of
from autosched.checking.reference import check_shapes, evaluate, factors, literal, members, outside
from autosched.checking.rounding.folds import (
    cut_to_tf32,
    extreme_of,
    fold_of_integers,
    product_of,
    running_sums,
    sum_of,
)
from autosched.checking.rounding.rules import (
    UNIT,
    RoundedValue,
    applied,
    as_float,
    counted,
    error_at,
    is_whole,
    rounded,
)
from autosched.checking.scanned import Values, combined_values, named, running, scanned
from autosched.machine.element_types import torch_dtype
from autosched.machine.memory import memory_for
from search_spaces import Scan, Stage, Workload
from search_spaces.scheduling import multiplied
from search_spaces.workloads.dtypes import FLOAT8, FLOAT8_CHAIN, dtype, is_integer, is_promoted
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    Segment,
)
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import accesses, variables
from search_spaces.workloads.scans import LEFT, RIGHT


def rounding_error(workload: Workload, inputs: Sequence[torch.Tensor]) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Every output, exact (float64), and the standard deviation of a correct kernel's error (float32) at each element.

    Excludes the rounding to an output's own element type.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
        OutOfMemoryError: the float64 values do not fit in memory.
    """
    check_shapes(workload, inputs)
    pieces = pieces_of(workload, inputs, evaluate)
    if pieces is not None:
        made = [rounding_error(part, read) for part, read in pieces.parts]
        exact, errors = (joined([[o[n] for o in outputs] for outputs in made], pieces) for n in (0, 1))
        return tuple(zip(exact, errors, strict=True))
    # Of tables only the elements that are looked up are converted.
    read = {a.tensor for s in workload.stages for a in accesses(s.expression)}
    converted = sum(t.elements for t in workload.inputs if t.name in read)
    needed = (converted + sum(math.prod(s.shape) for s in workload.stages)) * torch.float64.itemsize
    with memory_for(f"the float64 values to check {workload.label} with", needed, inputs[0].device):
        return _analysed(workload, inputs)


def _analysed(workload: Workload, inputs: Sequence[torch.Tensor]) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    # Stages read an output before it is stored; sums of integers are exact in memory, and rounded for readers.
    stored: dict[str, RoundedValue] = {}
    scans: dict[str, RoundedValue] = {}
    known = {
        t.name: RoundedValue(Named(_dims(x), x), None, outside(t)) for t, x in zip(workload.inputs, inputs, strict=True)
    }
    for stage in workload.stages:
        is_output = stage.name in workload.output_names
        if stage.scan and stage.name not in scans:
            scans |= _scanned(members(workload, stage.scan), known, workload)
        computed = scans.get(stage.name) or _with_all_axes(_stage(stage, known, workload), stage)
        known[stage.name] = computed if is_output else _narrowed(computed, stage)
        if is_output:
            stored[stage.name] = _in_memory(computed, stage, workload)
    return tuple(map(_exact_and_error, map(stored.__getitem__, workload.output_names)))


def _exact_and_error(output: RoundedValue) -> tuple[torch.Tensor, torch.Tensor]:
    exact = output.value.values
    error = torch.zeros_like(exact, dtype=torch.float32) if output.error is None else output.error.values * UNIT
    return exact, error


def _dims(tensor: torch.Tensor) -> tuple[str, ...]:
    return tuple(map(str, range(tensor.ndim)))


def _with_all_axes(estimate: RoundedValue, stage: Stage) -> RoundedValue:
    """A stage's result as a tensor with all of its axes."""
    names = [a.name for a in stage.axes]

    def whole(given: Named) -> Named:
        values = given.aligned(names).expand(stage.shape)
        return Named(_dims(values), values)

    return RoundedValue(whole(estimate.value), None if estimate.error is None else whole(estimate.error))


def _narrowed(computed: RoundedValue, stage: Stage) -> RoundedValue:
    """A stage that is not stored, which may be rounded to its element type."""
    if dtype(stage.dtype).epsilon <= UNIT:
        return computed
    value, error = computed.value, computed.error
    rounding = value.values.to(torch.float32) * (dtype(stage.dtype).epsilon / UNIT)
    error_of_both = rounding.abs() if error is None else torch.hypot(error.values, rounding)
    return RoundedValue(value, Named(value.axes, error_of_both))


def _in_memory(computed: RoundedValue, stage: Stage, workload: Workload) -> RoundedValue:
    """An output as stored: integers wrap to its element type, and sums of them are exact."""
    if is_whole(computed):
        bits = computed.value.values.to(torch_dtype(stage.dtype)).to(torch.int64)
        return RoundedValue(Named(computed.value.axes, bits), computed.error)
    exact = stage.reduction is not None and _multiplies_integers(stage, workload) and is_integer(stage.dtype)
    return RoundedValue(computed.value, None) if exact else computed


def _stage(stage: Stage, known: Mapping[str, RoundedValue], workload: Workload) -> RoundedValue:
    def exact(e: Expression) -> Named | None:
        found = _expression(e, stage, known)
        return None if found.error is not None else found.value

    found = runs_of(stage, exact)
    if found is None:
        return _folded(stage, known, workload)
    made = []
    for run in found.runs:
        beside = {name: RoundedValue(Named(_dims(x), x), None) for name, x in run.tensors.items()}
        made.append(_with_all_axes(_folded(run.stage, {**known, **beside}, workload), run.stage))
    axes = tuple(a.name for a in stage.axes)
    values = [m.value.values for m in made]
    errors = [error_at(m, m.value.axes).expand(m.value.values.shape) for m in made]
    return RoundedValue(Named(axes, found.joined(values)), Named(axes, found.joined(errors)))


def _folded(stage: Stage, known: Mapping[str, RoundedValue], workload: Workload) -> RoundedValue:
    if stage.reduction is None:
        return _expression(stage.expression, stage, known)
    if is_integral(stage.expression):
        return fold_of_integers(_expression(stage.expression, stage, known), stage)
    if stage.reduction.operator == "prod":
        return product_of(_expression(stage.expression, stage, known), stage)
    if stage.reduction.operator != "sum":
        return extreme_of(_expression(stage.expression, stage, known), stage.reduction)
    terms = [_expression(f, stage, known) for f in factors(stage.expression)]
    kept, reduced = [a.name for a in stage.axes], {a.name: a.extent for a in stage.reduction.axes}
    if not stage.is_contraction:
        if workload.precision == "tf32" and stage.name in multiplied(workload):
            # A dot truncates its operands, not what these are computed from.
            assert isinstance(stage.expression, Apply)
            terms = [cut_to_tf32(_expression(a, stage, known)) for a in stage.expression.arguments]
        return sum_of(terms, kept, reduced, _chain(stage, workload))
    if _multiplies_integers(stage, workload):
        exact = sum_of_products([t.value for t in terms], kept, reduced)
        return RoundedValue(exact, Named(exact.axes, exact.values.to(torch.float32).abs()))
    if workload.precision == "tf32":
        terms = [cut_to_tf32(t) for t in terms]
    return sum_of(terms, kept, reduced, _chain(stage, workload))


def _dtypes(workload: Workload) -> dict[str, str]:
    return {t.name: t.dtype for t in workload.inputs} | {s.name: s.dtype for s in workload.stages}


def _multiplied_types(stage: Stage, workload: Workload) -> list[str]:
    """The element types of the factors of a sum of products that have all summed axes: those of its dots."""
    assert stage.reduction is not None
    dtypes, summed = _dtypes(workload), {x.name for x in stage.reduction.axes}
    found = [f for f in factors(stage.expression) if summed <= variables(f)]
    return [dtypes[f.tensor] if isinstance(f, Access) else "float32" for f in found]


def _multiplies_integers(stage: Stage, workload: Workload) -> bool:
    """True if a sum of products of two tensors is exact."""
    dtypes = _dtypes(workload)
    return stage.is_contraction and all(is_integer(dtypes[a.tensor]) for a in accesses(stage.expression))


def _chain(stage: Stage, workload: Workload) -> int:
    """Products of 8-bit floats that are summed in a tensor core's accumulator; 0 of others."""
    types = _multiplied_types(stage, workload)
    if stage.reduction is None or len(types) < 2 or not {*types} <= {*FLOAT8}:
        return 0
    count = math.prod(x.extent for x in stage.reduction.axes)
    promoted = any(is_promoted(x, workload.precision) for x in types)
    return min(count, FLOAT8_CHAIN) if promoted else count


def _scanned(group: Sequence[Stage], known: Mapping[str, RoundedValue], workload: Workload) -> dict[str, RoundedValue]:
    """All stages of a scan."""
    scan, names = group[0].scan, [a.name for a in group[0].axes]
    assert scan is not None
    dim = names.index(scan.axis)
    given = [_with_all_axes(_stage(s, known, workload), s) for s in group]
    axes = given[0].value.axes
    elements = [(g.value.values, error_at(g, axes).expand(g.value.values.shape)) for g in given]
    if running(scan) is torch.cumsum:
        made: Values = [running_sums(*elements[0], dim, scan.reverse)]
    else:
        made = scanned(elements, dim, scan.reverse, lambda left, right, step: _joined(scan, left, right, step))
    return {
        s.name: RoundedValue(Named(axes, value), Named(axes, error))
        for s, (value, error) in zip(group, made, strict=True)
    }


def _joined(scan: Scan, left: Values, right: Values, step: int) -> Values:
    """The combination of two pieces, with as many roundings as combining element by element takes."""
    stage, combined = combined_values(scan, left[0][0].shape)
    own = _dims(left[0][0])

    def estimates(exactly: bool) -> dict[str, RoundedValue]:
        return {
            named(side, n): RoundedValue(Named(own, x), Named(own, torch.zeros_like(e) if exactly else e))
            for side, some in ((LEFT, left), (RIGHT, right))
            for n, (x, e) in enumerate(some)
        }

    inherited, alone = estimates(exactly=False), estimates(exactly=True)
    made = []
    for e in combined:
        result, rounding = _expression(e, stage, inherited), error_at(_expression(e, stage, alone), own)
        error = torch.hypot(error_at(result, own), rounding * math.sqrt(step - 1))
        value = result.value.aligned(own).expand(stage.shape)
        made.append((value, error.expand(stage.shape)))
    return made


def _expression(expression: Expression, stage: Stage, known: Mapping[str, RoundedValue]) -> RoundedValue:
    match expression:
        case Literal(constant):
            device = next(iter(known.values())).value.values.device
            held = torch.tensor(constant, dtype=torch.float32).item()
            error = None if held == constant else literal(abs(constant) / 2, device, torch.float32)
            return RoundedValue(literal(constant, device), error)
        case Integer(value):
            return RoundedValue(literal(value, next(iter(known.values())).value.values.device, torch.int64), None)
        case Segment(tensor, position):
            return _segment(tensor, position, stage, known)
        case Access() | Gather() | Position():
            exact = _leaf(expression, stage, known)
            return RoundedValue(Named(exact.value.axes, exact.value.values.to(torch.float64)), exact.error)
        case Apply("to_integer", (argument,)):
            is_leaf = isinstance(argument, Access | Gather | Position)
            return counted((_leaf if is_leaf else _expression)(argument, stage, known))
        case Apply("to_float", (argument,)):
            return as_float(_expression(argument, stage, known))
        case Apply(operator, (argument,)) if operator in ROUNDINGS:
            return rounded(_expression(argument, stage, known), ROUNDINGS[operator])
        case Apply("eq", (a, b)) if a == b:
            # A test for NaN, which an error does not change.
            given = _expression(a, stage, known).value
            return RoundedValue(Named(given.axes, (given.values == given.values).to(torch.float64)), None)
        case Apply(operator, arguments):
            return applied(operator, [_expression(a, stage, known) for a in arguments])


def _leaf(expression: Expression, stage: Stage, known: Mapping[str, RoundedValue]) -> RoundedValue:
    """The value read or counted, in the type that represents it exactly."""
    match expression:
        case Access(tensor):
            value, error = known[tensor].value, known[tensor].error
            # Values read outside of a tensor are exact.
            exactly = expression if expression.fill is None else replace(expression, fill=0.0)
            read_error = None if error is None else read(exactly, error.values, stage.extents, None)
            return RoundedValue(read(expression, value.values, stage.extents), read_error)
        case Gather(tensor, index):
            return _looked_up(tensor, index, stage, known)
        case Position(index):
            device = next(iter(known.values())).value.values.device
            return RoundedValue(count(index, stage.extents, device, torch.int64), None)
        case _:
            raise AssertionError(f"{expression} is computed")


def _looked_up(
    tensor: str, index: Sequence[Affine | Expression], stage: Stage, known: Mapping[str, RoundedValue]
) -> RoundedValue:
    """An element of a tensor, which may be any where an index is in doubt."""
    at = [i if isinstance(i, Affine) else _expression(i, stage, known) for i in index]
    places = [i if isinstance(i, Affine) else i.value for i in at]
    value, error = known[tensor].value, known[tensor].error
    found = look_up(value.values, places, stage.extents, known[tensor].outside)
    own = None if error is None else look_up(error.values, places, stage.extents, 0.0, None)
    doubted = _in_doubt(found, [i.error for i in at if isinstance(i, RoundedValue)])
    if own is None or doubted.error is None:
        return doubted if own is None else RoundedValue(found, own)
    return RoundedValue(found, Named(found.axes, torch.maximum(own.aligned(found.axes), doubted.error.values)))


def _segment(
    tensor: str, position: Affine | Expression, stage: Stage, known: Mapping[str, RoundedValue]
) -> RoundedValue:
    """The segment of a position, which is exact, unless the position is in doubt."""
    at = (
        _leaf(Position(position), stage, known) if isinstance(position, Affine) else _expression(position, stage, known)
    )
    return _in_doubt(segment_of(known[tensor].value.values, at.value), [at.error])


def _in_doubt(found: Named, errors: Sequence[Named | None]) -> RoundedValue:
    """A value that may be any where one of the errors of what it is found by is not 0."""
    error: torch.Tensor | None = None
    for e in (e for e in errors if e is not None):
        doubt = torch.where(e.aligned(found.axes) > 0, math.inf, 0.0)
        error = doubt if error is None else torch.maximum(error, doubt)
    return RoundedValue(found, None if error is None else Named(found.axes, error.expand(found.values.shape)))
