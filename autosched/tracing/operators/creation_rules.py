"""ATen's operators that create tensors, from numbers or as copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.tracing.operators.rules import Result, UnsupportedError, converted
from autosched.tracing.operators.view_translation import expand
from autosched.tracing.values.values import Arange, Value
from search_spaces.workloads.dtypes import is_float

# Integers up to here are exact in float32.
_EXACT_BELOW = 2**24


# Every rule takes `dtype` and ignores it: it is that of the result, which the captured graph has.


def _of(result: Result, number: Any) -> Value:
    """A tensor filled with this number, which may be one that is read from memory."""
    if isinstance(number, Value):
        return expand(result, converted(number, result.dtype), result.shape)
    return result.constant(number)


def _full(result: Result, size: Sequence[int], number: Any, dtype: Any = None) -> Value:
    return _of(result, number)


def _full_like(result: Result, x: Value, number: Any, dtype: Any = None) -> Value:
    return _of(result, number)


def _new_full(result: Result, x: Value, size: Sequence[int], number: Any, dtype: Any = None) -> Value:
    return _of(result, number)


def _scalar(result: Result, number: Any, dtype: Any = None) -> Value:
    return _of(result, number)


def _filled(number: float) -> Callable[..., Value]:
    """A rule for a tensor of this number. Its arguments give a shape, which is that of the result."""

    def rule(result: Result, like: Any, size: Sequence[int] | None = None, dtype: Any = None) -> Value:
        return result.constant(number)

    return rule


def _copy(result: Result, x: Value) -> Value:
    return x


def _to_copy(result: Result, x: Value, *, dtype: Any = None) -> Value:
    if x.dtype != result.dtype:
        return converted(x, result.dtype, result.name)
    return result.elementwise(lambda a: a, x)


def _arange(result: Result, start: float, end: float | None = None, step: float = 1, dtype: Any = None) -> Value:
    start, end = (0, start) if end is None else (start, end)
    if any(int(v) != v for v in (start, step)):
        raise UnsupportedError("positions that are no integers")
    if is_float(result.dtype) and max(abs(start), abs(end)) > _EXACT_BELOW:
        raise UnsupportedError(f"positions up to {max(abs(start), abs(end)):g}, which are not exact in float32")
    if result.dtype in ("float16", "bfloat16"):
        counted_up = result.of(Arange, start=int(start), step=int(step), name=f"{result.name}_exact", dtype="float32")
        return result.pointwise(lambda x: x, counted_up)
    return result.of(Arange, start=int(start), step=int(step))


RULES: Mapping[str, Callable[..., Value]] = {
    "full": _full,
    "full_like": _full_like,
    "new_full": _new_full,
    "scalar_tensor": _scalar,
    "lift_fresh_copy": _copy,
    "_to_copy": _to_copy,
    "arange": _arange,
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _filled(1.0)),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), _filled(0.0)),
    # Uninitialised elements may have any value.
    **dict.fromkeys(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"), _filled(0.0)),
    "new_empty_strided": lambda result, x, size, stride, dtype=None: result.constant(0.0),
}
