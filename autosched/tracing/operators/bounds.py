"""Arguments that are bounds of segments, which PyTorch takes on trust: others than sorted ones that fit mean nothing.

Random data for them has to be bounds, too: PyTorch raises for some others, and leaves memory as it was for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from autosched.checking import random_segments
from autosched.tracing.operators.segments import is_sorted
from autosched.tracing.values.conversions import converted
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.values import Arange, Leaf, Padded, Pointwise, Scanned, Value, View, placeholder
from autosched.tracing.values.views import Reshape, Slicing
from search_spaces.workloads.dtypes import dtype, is_integer
from search_spaces.workloads.expressions.expression import Apply

# Alignment of what descriptors address.
_VECTOR_BYTES = 16

Kind = Literal["ends", "offsets", "lengths", "sorted", "even"]


@dataclass(frozen=True)
class Bounds:
    """The meaning of the elements along an argument's last dimension.

    `kind`: the last positions of segments and one more, these and the first position, the lengths of segments, or any
    numbers in order; "even": offsets of segments as long as each other, as far as that is possible, which no longest
    length that a function knows contradicts. `size`: of the dimension that is cut; None for any numbers. `step`: only
    its multiples are taken, which a GPU asserts: others end all work of the process.
    """

    kind: Kind
    size: int | None = None
    step: int = 1

    def drawn(self, tensor: Tensor, seed: int) -> Tensor:
        """Random bounds in the tensor, of which any numbers in order are made."""
        if self.size is None:
            return tensor.copy_(tensor.sort(-1).values)
        rows = [self._row(tensor.shape[-1], self.size, seed + n) for n in range(math.prod(tensor.shape[:-1]))]
        return tensor.copy_(torch.stack(rows).view(tensor.shape))

    def _row(self, count: int, size: int, seed: int) -> Tensor:
        match self.kind:
            case "even":
                return torch.arange(count) * size // max(count - 1, 1)
            case "offsets":
                ends = self._ends(count - 1, size, seed) if count > 1 else torch.empty(0, dtype=torch.int64)
                return torch.cat([torch.zeros(1, dtype=torch.int64), ends])
            case "lengths":
                return self._ends(count, size, seed).diff(prepend=torch.zeros(1, dtype=torch.int64))
            case _:
                return self._ends(count, size, seed)

    def _ends(self, count: int, size: int, seed: int) -> Tensor:
        return random_segments.drawn(count, size, seed) // self.step * self.step

    def beside(self, other: Bounds) -> Bounds | None:
        """Bounds that are both; None if there are none."""
        step = math.lcm(self.step, other.step)
        return replace(self, step=step) if replace(self, step=other.step) == other else None


# What an operator takes as bounds, with the dimension that they cut.
Given = Iterator[tuple[Value, Bounds]]


def _of_product(a: Value, b: Value, offs: Value | None = None, *_: Any, **__: Any) -> Given:
    """Of columns or k that are cut, segments begin at whole vectors (PyTorch, GroupMMCommon.cuh)."""
    if offs is None:
        return
    if len(b.shape) == 3:
        yield offs, Bounds("ends", a.shape[0])
    else:
        step = max(1, _VECTOR_BYTES // dtype(a.dtype).bytes)
        yield offs, Bounds("ends", b.shape[-1] if len(a.shape) == 3 else a.shape[1], step)


def _of_reduction(
    *given: Any, lengths: Value | None = None, offsets: Value | None = None, axis: int = 0, **_: Any
) -> Given:
    data = [g for g in given if isinstance(g, Value)][-1]
    size = data.shape[axis % len(data.shape)]
    yield from [(offsets, Bounds("offsets", size))] if offsets is not None else []
    yield from [(lengths, Bounds("lengths", size))] if lengths is not None else []


def _of_places(x: Any, bounds: Value, **_: Any) -> Given:
    even = isinstance(x, Value) and isinstance(_unconverted(x), Arange)
    yield bounds, Bounds("even", x.shape[0]) if even else Bounds("sorted")


def _of_padded(values: Value, offsets: Sequence[Value], *_: Any, **__: Any) -> Given:
    yield from ((each, Bounds("offsets", values.shape[0])) for each in offsets)


def _of_jagged(dense: Value, offsets: Sequence[Value], total_L: int | None = None) -> Given:
    yield from ((each, Bounds("even", total_L or dense.shape[0] * dense.shape[1])) for each in offsets)


def _of_repeated(repeats: Value, *, output_size: int | None = None) -> Given:
    if output_size is not None:
        yield repeats, Bounds("lengths", output_size)


_GIVEN: Mapping[str, Callable[..., Given]] = {
    "_grouped_mm": _of_product,
    "_scaled_grouped_mm": lambda a, b, *_, offs=None, **__: _of_product(a, b, offs),
    "segment_reduce": _of_reduction,
    "_segment_reduce_backward": _of_reduction,
    "repeat_interleave": _of_repeated,
    "bucketize": _of_places,
    "searchsorted": lambda bounds, x, **_: _of_places(x, bounds),
    "_jagged_to_padded_dense_forward": _of_padded,
    "_padded_dense_to_jagged_forward": _of_jagged,
}


def bounds_given(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[Leaf, Bounds | None]:
    """The arguments that are an operator's bounds, or that these are computed from in a way that is not known: None."""
    found: dict[Leaf, Bounds | None] = {}
    for value, bounds in _GIVEN[name](*arguments, **keywords) if name in _GIVEN else ():
        source, known = _source(value, bounds)
        found |= {source: known} if isinstance(source, Leaf) else dict.fromkeys(_arguments(source))
    return found


def _source(value: Value, bounds: Bounds) -> tuple[Value, Bounds]:
    """The value that these bounds are made of by conversions, as offsets without the first, or from lengths."""
    match value:
        case View(argument=argument, kind=Reshape()) if argument.shape == value.shape:
            return _source(argument, bounds)
        case Pointwise(arguments=(argument,)) if _is_converted(value, argument):
            return _source(argument, bounds)
        case View(argument=argument, kind=Slicing(start=1, step=1)) if bounds.kind in ("ends", "even"):
            kind: Kind = "offsets" if bounds.kind == "ends" else "even"
            whole = argument.shape[0] == value.shape[0] + 1
            return _source(argument, replace(bounds, kind=kind)) if whole else (value, bounds)
        case Padded(argument=Scanned() as sums, before=(1,)) if bounds.kind == "offsets" and _is_of_sums(sums):
            return _source(sums.operands[0], replace(bounds, kind="lengths"))
        case Scanned() if bounds.kind == "ends" and _is_of_sums(value):
            return _source(value.operands[0], replace(bounds, kind="lengths"))
        case _:
            return value, bounds


def _unconverted(value: Value) -> Value:
    match value:
        case Pointwise(arguments=(argument,)) if _is_converted(value, argument):
            return _unconverted(argument)
        case _:
            return value


def _is_converted(value: Pointwise, argument: Value) -> bool:
    element = placeholder(0, argument.dtype)
    kept = argument.shape == value.shape and is_integer(value.dtype) and is_integer(argument.dtype)
    return kept and value.expression in (element, converted(element, argument.dtype, value.dtype))


def _is_of_sums(value: Scanned) -> bool:
    (combine, *others) = value.operation.combine
    sums = isinstance(combine, Apply) and combine.operator == "add"
    return sums and not others and not value.operation.reverse


def _arguments(value: Value) -> set[Leaf]:
    """The arguments that a value is computed from by kernels: what PyTorch computes or sorts is taken to be bounds."""
    rest, seen = [value], {value}
    while rest:
        here = rest.pop()
        new = [] if isinstance(here, Fallback) or is_sorted(here) else [o for o in here.operands if o not in seen]
        seen.update(new)
        rest += new
    return {v for v in seen if isinstance(v, Leaf) and v.tensor is None}
