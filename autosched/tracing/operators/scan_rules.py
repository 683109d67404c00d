"""ATen's scans: cumulative sums, products, extremes with their positions, and logarithms of sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from autosched.tracing.operators.rules import Result, UnsupportedError, arange, converted, copyable, torch_name
from autosched.tracing.values.elements import element
from autosched.tracing.values.pulled import FusionLimits, NotOneKernelError, Pulled
from autosched.tracing.values.reads import at_its_axes
from autosched.tracing.values.values import Scanned, ScanOperand, ScanOperation, Value
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Access, Expression, Literal
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import rewritten
from search_spaces.workloads.scans import LEFT, RIGHT, operand
from search_spaces.workloads.strides import dense_strides


def _sides(number: int, whole: bool) -> list[Expression]:
    """The left and the right formal parameter of a scanned value."""
    sides = [operand(side, number) for side in (LEFT, RIGHT)]
    return [ex.call("to_integer", s) for s in sides] if whole else [*sides]


def _cumulative(operator: str) -> Callable[..., Value]:
    def rule(result: Result, x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
        x = x if dtype is None else converted(x, torch_name(dtype))
        computed = "float32" if is_float(result.dtype) else "int64"
        x = x if is_float(x.dtype) and computed == "float32" else converted(x, computed)
        combine = ex.call(operator, *_sides(0, computed == "int64"))
        return converted(_scanned(result, [x], dim, [combine], [computed])[0], result.dtype, f"{result.name}_rounded")

    return rule


def _log_sum_exp(result: Result, x: Value, dim: int) -> Value:
    left, right = _sides(0, False)
    top, low = ex.call("maximum", left, right), ex.call("minimum", left, right)
    apart = ex.add(top, ex.call("log1p", ex.call("exp", ex.sub(low, top))))
    # Holds for two infinities, too.
    joined = ex.call("where", ex.call("eq", low, top), ex.add(top, Literal(math.log(2.0))), apart)
    return converted(_scanned(result, [x], dim, [joined], ["float32"])[0], result.dtype, f"{result.name}_rounded")


def _extreme_and_place(operator: str) -> Callable[..., tuple[Value, ...]]:
    """The extreme and its position: the last one of equal elements, or of NaNs."""

    def rule(result: Result, x: Value, dim: int) -> tuple[Value, ...]:
        rank = len(x.shape)
        if not rank or x.shape[dim] == 1:
            return x, result.constant(0.0, shape=x.shape, dtype="int64")
        whole = not is_float(x.dtype)
        keys = converted(x, "int64") if whole else x
        at = arange(x.shape[dim], rank, dim % rank, f"{result.name}_at")
        places = result.elementwise(
            lambda _, p: p, keys, at, name=f"{result.name}_places", shape=x.shape, dtype="int64"
        )
        (left, right), sides = _sides(0, whole), _sides(1, True)
        later = ex.call("le", left, right) if operator == "maximum" else ex.call("le", right, left)
        earlier = sides[0] if whole else ex.call("where", ex.call("eq", right, right), sides[0], sides[1])
        combine = [ex.call(operator, left, right), ex.call("where", later, sides[1], earlier)]
        value, place = _scanned(result, [keys, places], dim, combine, ["int64" if whole else x.dtype, "int64"])
        return converted(value, x.dtype, f"{result.name}_of_type"), place

    return rule


def _scanned(
    result: Result, elements: Sequence[Value], dim: int, combine: Sequence[Expression], dtypes: Sequence[str]
) -> list[Value]:
    """The scans of these values, all of the result's shape."""
    shape = elements[0].shape
    if not shape or shape[dim] == 1:
        return [
            result.elementwise(lambda e: e, x, name=f"{result.name}_{n}", shape=shape, dtype=dtype)
            for n, (x, dtype) in enumerate(zip(elements, dtypes, strict=True))
        ]
    operation = ScanOperation(result.name, tuple(map(copyable, elements)), tuple(combine), dim % len(shape))
    return [
        result.of(Scanned, name=f"{result.name}_{n}", shape=shape, dtype=dtype, operation=operation, output=n)
        for n, dtype in enumerate(dtypes)
    ]


def _operand(result: Result, element: Value, side: int, number: int) -> Value:
    return result.of(ScanOperand)


def _associative(
    result: Result, elements: Sequence[Value], left: Sequence[Value], right: Sequence[Value], combined: Sequence[Value]
) -> tuple[Value, ...]:
    """A scan by a combine function of left and right operands (see `tracing.capture.scans`)."""
    places = {o: operand(side, n) for side, some in ((LEFT, left), (RIGHT, right)) for n, o in enumerate(some)}
    combine = [_combination(made, places) for made in combined]
    dtypes = ["float32" if is_float(x.dtype) else x.dtype for x in elements]
    made = _scanned(result, elements, 0, combine, dtypes)
    return tuple(converted(v, x.dtype, f"{v.name}_rounded") for v, x in zip(made, elements, strict=True))


def _combination(made: Value, places: Mapping[Value, Access]) -> Expression:
    """An element as an expression of operands, all at its own position; no intermediate result is rounded."""
    pulled = Pulled({o: dense_strides(o.shape) for o in places}, {}, FusionLimits())
    own = tuple(pulled.dimension(f"d{d}", size) for d, size in enumerate(made.shape))
    strides = {v: s for i, s in zip(own, dense_strides(made.shape), strict=True) for v, _ in i.terms}
    try:
        whole = element(pulled, made, own)
    except NotOneKernelError as error:
        raise UnsupportedError(f"the scan's combine function is not pointwise: {error}") from None
    reads = {r.name: r for r in pulled.reads.operands.values()}

    def change(e: Expression) -> Expression | None:
        match e:
            case Access(tensor):
                read = reads.get(tensor)
                if read is None or read.offset or dict(read.strides) != strides or e != at_its_axes(read):
                    raise UnsupportedError(f"the scan combines elements at different places of {tensor}")
                return places[read.value]
            case ex.Gather() | ex.Segment() | ex.Position():
                raise UnsupportedError("the scan's combine function depends on positions of elements")
            case ex.Apply(operator, (argument,)) if operator in ROUNDINGS:
                return rewritten(argument, change)
            case _:
                return None

    return rewritten(whole, change)


RULES: Mapping[str, Callable[..., Any]] = {
    "cumsum": _cumulative("add"),
    "cumprod": _cumulative("mul"),
    "logcumsumexp": _log_sum_exp,
    "cummax": _extreme_and_place("maximum"),
    "cummin": _extreme_and_place("minimum"),
    "autosched_scans.operand.default": _operand,
    "autosched_scans.scanned.default": _associative,
}
