"""ATen's views: how an index of the view becomes an index of what is viewed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.tracing.values.values import Extents, Index
from search_spaces.workloads.expression import Affine


@dataclass(frozen=True)
class AxisCutError(Exception):
    """An index is affine only when this axis is two: `inner` positions of the second for each one of the first."""

    axis: str
    inner: int


class NotAffineError(Exception):
    """No affine index of what is viewed corresponds to the index of the view."""


def scaled(form: Affine, factor: int) -> Affine:
    return Affine.of(*((v, c * factor) for v, c in form.terms), offset=form.offset * factor)


def permuted(index: Index, order: Sequence[int]) -> Index:
    """The index of x, for an index of x.permute(order)."""
    given = dict(zip(order, index, strict=True))
    return tuple(given[d] for d in range(len(order)))


def expanded(index: Index, shape: Sequence[int]) -> Index:
    """The index of x of that shape, for an index of something that x was broadcast to."""
    ours = index[len(index) - len(shape) :]
    return tuple(Affine() if size == 1 else at for at, size in zip(ours, shape, strict=True))


def reshaped(index: Sequence[Affine], shape: Sequence[int], source: Sequence[int], extents: Extents) -> Index:
    """The index of x of shape `source`, for an index of x.reshape(shape).

    Raises:
        AxisCutError: with that axis cut in two there would be one.
        NotAffineError: there is none.
    """
    number = Affine()
    for at, size in zip(index, shape, strict=True):
        number = scaled(number, size) + at
    found: list[Affine] = []
    inner = math.prod(source)
    for size in source:
        inner //= size
        here, number = _quotient(number, inner, size, extents)
        found.append(here)
    return tuple(found)


def _quotient(number: Affine, inner: int, size: int, extents: Extents) -> tuple[Affine, Affine]:
    """`number` as inner * q + r with 0 <= r < inner."""
    if size == 1:
        return Affine(), number
    whole = [(v, c // inner) for v, c in number.terms if c % inner == 0]
    rest = Affine.of(*((v, c) for v, c in number.terms if c % inner), offset=number.offset % inner)
    for variable, coefficient in rest.terms:
        # An axis that steps within and beyond `inner`: cut where it has filled it.
        if coefficient > 0 and inner % coefficient == 0:
            steps = inner // coefficient
            if extents[variable] > steps:
                if extents[variable] % steps:
                    raise NotAffineError
                raise AxisCutError(variable, steps)
    if rest.minimum(extents) < 0 or rest.maximum(extents) >= inner:
        raise NotAffineError
    return Affine.of(*whole, offset=number.offset // inner), rest
