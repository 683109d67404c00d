"""ATen's operators on segments: reductions of each, numbers of repeated elements, and places among sorted bounds.

    segment_reduce        y[g, d] = sum over the t of segment g of x[t, d]
    repeat_interleave     y[t] = the segment of t, of segments with these lengths
    bucketize             y[i] = the number of bounds that are at most x[i]

Lengths and offsets that do not fit the tensor, for which PyTorch may raise, are no error: what no segment has is left
out, and what a segment has beyond the tensor as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from autosched.tracing.operators.own_segments import of_segments
from autosched.tracing.operators.rules import Result, UnsupportedError, arange, as_constant, converted, reshape
from autosched.tracing.operators.scan_rules import RULES as SCANS
from autosched.tracing.operators.segments import bounds_of_offsets, inside_alone, segment_of
from autosched.tracing.values.values import Gathered, Value
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Literal
from search_spaces.workloads.segments import is_inside

# What a segment without elements has, by the name of the reduction, and how it is folded.
_FOLDS = {
    "sum": ("sum", 0.0, ex.add),
    "mean": ("sum", 0.0, ex.add),
    "prod": ("prod", 1.0, ex.mul),
    "max": ("max", -math.inf, lambda a, b: ex.call("maximum", a, b)),
    "min": ("min", math.inf, lambda a, b: ex.call("minimum", a, b)),
}


def _segment_reduce(
    result: Result,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Value:
    """`unsafe` leaves a check of the lengths out, which no kernel makes."""
    _check_floats(data)
    if initial is not None and math.isnan(initial):
        raise UnsupportedError("reductions of segments from NaN; expected a number")
    begin, end = _bounds(result, lengths, offsets)
    operator, identity, combine = _FOLDS[reduce]
    dim = axis % len(data.shape)
    own = of_segments(data, end, dim) if len(end.shape) == 1 else None
    terms = inside_alone(result, data, (begin, end), dim, place=dim, other=identity, own=own)
    folded = result.reduced(operator, terms, (dim + 1,), name=f"{result.name}_folded")
    first = None if initial is None else Literal(float(initial))
    shape = (*begin.shape, *(1,) * (len(result.shape) - len(begin.shape)))
    bounds = [reshape(b, shape) for b in (begin, end)] if reduce == "mean" else []

    def finished(total: Expression, *of_segment: Expression) -> Expression:
        made = total if first is None else combine(total, first)
        if not of_segment:
            return made
        count = ex.call("to_float", ex.sub(of_segment[1], of_segment[0]))
        mean = ex.div(made, count)
        return mean if first is None else ex.call("where", ex.call("eq", count, Literal(0.0)), first, mean)

    return result.pointwise(finished, folded, *bounds)


def _segment_reduce_backward(
    result: Result,
    grad: Value,
    output: Value,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Value:
    """The gradient of an element is that of its segment, for means over its length; `initial` changes none of them."""
    if reduce not in ("sum", "mean"):
        raise UnsupportedError(f"the gradient of the {reduce} of segments; expected that of sum or mean")
    begin, end = _bounds(result, lengths, offsets)
    if axis % len(data.shape) or len(begin.shape) != 1:
        raise UnsupportedError("the gradient of a reduction of segments along another dimension than the first")
    at = arange(data.shape[0], 1, 0, f"{result.name}_at")
    segment = segment_of(result.part("segment", at.shape, "int64"), end, at)

    def own(table: Value, rank: int) -> Value:
        """The entry of a table for the segment of every element."""
        index: list[Value | int] = [reshape(segment, (*segment.shape, *(1,) * (rank - 1))), *range(1, rank)]
        made = result.part(f"{table.name}_own", (*at.shape, *table.shape[1:]), table.dtype)
        return made.of(Gathered, table=table, index=tuple(index))

    along = (*at.shape, *(1,) * (len(data.shape) - 1))
    bounds = [reshape(v, along) for v in (at, own(begin, 1), own(end, 1))]

    def slope(p: Expression, b: Expression, e: Expression, g: Expression) -> Expression:
        share = g if reduce == "sum" else ex.div(g, ex.call("to_float", ex.sub(e, b)))
        return ex.call("where", is_inside(p, b, e), share, Literal(0.0))

    return result.pointwise(slope, *bounds, own(grad, len(data.shape)))


def _check_floats(data: Value) -> None:
    if not is_float(data.dtype):
        raise UnsupportedError(f"reductions of segments of {data.dtype}; expected floating point")


def _bounds(result: Result, lengths: Value | None, offsets: Value | None) -> tuple[Value, Value]:
    if offsets is not None:
        return bounds_of_offsets(offsets)
    if lengths is None:
        raise UnsupportedError("segments without lengths or offsets")
    end = _ends(result, lengths)
    begin = result.part("begin", end.shape, end.dtype)
    return begin.elementwise(lambda e, n: ex.sub(e, n), end, converted(lengths, "int64")), end


def _ends(result: Result, lengths: Value) -> Value:
    made = result.part("ends", lengths.shape, "int64")
    ends: Value = SCANS["cumsum"](made, lengths, len(lengths.shape) - 1)
    return ends


def _repeat_interleave(result: Result, repeats: Value, *, output_size: int | None = None) -> Value:
    """The graph has the size of the result."""
    at = arange(result.shape[0], 1, 0, f"{result.name}_at")
    return converted(segment_of(result, _ends(result, repeats), at), result.dtype, f"{result.name}_numbers")


def _bucketize(result: Result, x: Value, bounds: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    if not isinstance(x, Value):
        raise UnsupportedError("the place of a number among bounds; expected a tensor")
    if len(bounds.shape) != 1:
        raise UnsupportedError("places among the bounds of several rows")
    return converted(segment_of(result, bounds, x, right), result.dtype, f"{result.name}_numbers")


def _searchsorted(
    result: Result,
    bounds: Value,
    x: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
) -> Value:
    return _bucketize(result, x, bounds, right=right or side == "right")


def _padded_from_jagged(
    result: Result, values: Value, offsets: list[Value], max_lengths: list[int], padding_value: float = 0.0
) -> Value:
    """out[g, t] = values[offsets[g] + t], the padding behind the end of the segment."""
    begin, end = _bounds_of_one(offsets)
    count, longest = result.shape[:2]
    at = arange(longest, 2, 1, f"{result.name}_at")
    shape = (count, longest)
    places = result.part("places", shape, "int64").elementwise(ex.add, reshape(begin, (count, 1)), at)
    inside = result.part("inside", shape, "int64").elementwise(
        lambda p, e: ex.call("where", ex.call("lt", p, e), ex.Integer(1), ex.Integer(0)),
        places,
        reshape(end, (count, 1)),
    )
    padding = as_constant(padding_value, values.dtype)
    rank = len(result.shape)
    behind = (1,) * (rank - 2)
    found = result.part("found", result.shape, values.dtype).of(
        Gathered, table=values, index=(reshape(places, (*shape, *behind)), *range(2, rank))
    )
    return result.pointwise(
        lambda i, v: ex.call("where", ex.call("eq", i, ex.Integer(1)), v, padding),
        reshape(inside, (*shape, *behind)),
        found,
    )


def _jagged_from_padded(result: Result, dense: Value, offsets: list[Value], total_L: int | None = None) -> Value:
    """out[t] = dense[g, t - offsets[g]] of the segment g that t is in, 0 where that is longer than the dense one."""
    begin, end = _bounds_of_one(offsets)
    at = arange(result.shape[0], 1, 0, f"{result.name}_at")
    segment = segment_of(result.part("segment", at.shape, "int64"), end, at)
    first = result.part("first", at.shape, begin.dtype).of(Gathered, table=begin, index=(segment,))
    along = result.part("along", at.shape, "int64").elementwise(ex.sub, at, first)
    rank = len(dense.shape)
    shape = (*at.shape, *(1,) * (rank - 2))
    index = (reshape(segment, shape), reshape(along, shape), *range(1, rank - 1))
    found = result.part("found", result.shape, dense.dtype).of(Gathered, table=dense, index=index)
    longest, nothing = dense.shape[1], as_constant(0.0, dense.dtype)
    return result.pointwise(
        lambda p, v: ex.call("where", is_inside(p, ex.Integer(0), ex.Integer(longest)), v, nothing),
        reshape(along, shape),
        found,
    )


def _bounds_of_one(offsets: list[Value]) -> tuple[Value, Value]:
    if len(offsets) != 1:
        raise UnsupportedError(f"jagged tensors with {len(offsets)} jagged dimensions; expected one")
    return bounds_of_offsets(offsets[0])


RULES: Mapping[str, Callable[..., Any]] = {
    "segment_reduce": _segment_reduce,
    "_segment_reduce_backward": _segment_reduce_backward,
    "repeat_interleave": _repeat_interleave,
    "bucketize": _bucketize,
    "searchsorted": _searchsorted,
    "_jagged_to_padded_dense_forward": _padded_from_jagged,
    "_padded_dense_to_jagged_forward": _jagged_from_padded,
}
