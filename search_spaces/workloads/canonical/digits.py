"""Dimensions of memory from addresses: the digits of an index in mixed radix.

    x at 64 i0 + 8 i1 + i2, with i1 < 8, i2 < 8        →   x[i0, i1, i2] with strides (64, 8, 1)
    x at 32 i0 + 16 i1 + 2 i2 + i3, i1 < 3, i3 < 3     →   x[2 i0 + i1, 2 i2 + i3] with strides (16, 1): windows

A term of an address begins a new digit where all smaller terms together stay within its step, and otherwise is one more
term of the same digit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces.workloads.expressions.affine import Affine

# The extents of the axes that addresses are forms of.
Extents = Mapping[str, int]


@dataclass(frozen=True)
class Address:
    """The address of a read, in elements, and the extents of the axes there."""

    form: Affine
    extents: Extents


def steps_of(addresses: Sequence[Address], known: Mapping[int, int]) -> list[int]:
    """The strides of as many dimensions as all of these addresses have digits, largest first.

    `known`: strides and sizes of dimensions that exist in any case; larger steps within one are steps of it.
    """
    rest = list(addresses)
    found = {abs(c) for a in addresses for _, c in a.form.terms}
    own = {c for c in found if not any(s < c < s * size and c % s == 0 for s, size in known.items())}
    sizes = sorted({*known, *own}, reverse=True)
    steps: list[int] = []
    group: list[int] = []
    for size in sizes:
        group.append(size)
        step = math.gcd(*group)
        if size == sizes[-1]:
            # A read of several elements of one step is along the same dimension.
            left = {a.form.offset % step for a in rest}
            return [*steps, step, *([1] if left != {0} else [])] if len(left) == 1 else [*steps, math.gcd(step, *left)]
        split = [_divided(a.form, step, a.extents) for a in rest]
        if all(each is not None for each in split):
            steps.append(step)
            rest = [Address(each[1], a.extents) for each, a in zip(split, rest, strict=True) if each is not None]
            group = []
    return [] if all(a.form.offset == 0 for a in rest) else [1]


def digits(address: Address, steps: Sequence[int]) -> tuple[Affine, ...] | None:
    """The index along each of the dimensions with these strides, largest first; None where no such index is affine."""
    found: list[Affine] = []
    form = address.form
    for step in steps:
        split = _divided(form, step, address.extents)
        if split is None:
            return None
        index, form = split
        found.append(index)
    return tuple(found) if form == Affine() else None


def _divided(form: Affine, step: int, extents: Extents) -> tuple[Affine, Affine] | None:
    """Quotient and rest by a step; None where the smaller terms are no rest, or the others no multiple of the step."""
    high: list[tuple[str, int]] = []
    low: list[tuple[str, int]] = []
    for v, c in form.terms:
        if abs(c) < step:
            low.append((v, c))
        elif c % step:
            return None
        else:
            high.append((v, c // step))
    rest = Affine(tuple(low), form.offset)
    quotient = rest.minimum(extents) // step
    if rest.maximum(extents) // step != quotient:
        return None
    return Affine(tuple(high), quotient), Affine(rest.terms, rest.offset - quotient * step)
