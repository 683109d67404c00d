"""Slices of values along a digit of a dimension, pushed towards what the values are computed from.

A dimension of size outer · size · inner has three digits; a slice takes some positions of the middle one. So rows of
every batch are taken of a [batch · rows, features] matrix, as `x.view(-1, k) @ w` has them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autosched.tracing.operators.rules import reshape
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.values.values import Joined, Padded, Pointwise, Product, Reduced, Value, View
from autosched.tracing.values.views import Expansion, Permutation, Placement, Reshape, Selection, Slicing, Windows
from search_spaces.workloads.strides import dense_strides


@dataclass(frozen=True)
class Digit:
    """`size` positions of dimension `dim`, `inner` elements apart, `outer` times."""

    dim: int
    outer: int
    size: int
    inner: int


@dataclass(frozen=True)
class Positions:
    """`count` positions from `start` on, `step` apart."""

    start: int
    step: int
    count: int


@dataclass(frozen=True)
class Operand:
    """An operand of a sliced value, and the digit of it that is sliced; None: it does not have the dimension."""

    value: Value
    digit: Digit | None


def sliced_operands(value: Value, digit: Digit) -> list[Operand] | None:
    """The operands of a value that is sliced along a digit; None if its slice is none of slices of these."""
    match value:
        case Pointwise(arguments=arguments):
            return [_broadcast(a, digit, len(value.shape)) for a in arguments]
        case Product(a=a, b=b):
            return [_of_factor(a, value.a_loops, digit), _of_factor(b, value.b_loops, digit)]
        case Reduced(argument=argument, dims=dims):
            kept = [d for d in range(len(argument.shape)) if d not in dims]
            return [Operand(argument, replace(digit, dim=kept[digit.dim]))]
        case Joined(parts=parts, dim=dim) if dim != digit.dim and not value.in_groups:
            return [Operand(p, digit) for p in parts]
        case Padded(argument=argument) if argument.shape[digit.dim] == value.shape[digit.dim]:
            return [Operand(argument, digit)]
        case View(argument=argument, kind=kind):
            found = _of_view(kind, argument.shape, value.shape, digit)
            return [Operand(argument, found.digit)] if found is not None else None
        case _:
            return None


@dataclass(frozen=True)
class _Found:
    digit: Digit | None


def _broadcast(argument: Value, digit: Digit, rank: int) -> Operand:
    dim = digit.dim - (rank - len(argument.shape))
    has = dim >= 0 and argument.shape[dim] > 1
    return Operand(argument, replace(digit, dim=dim) if has else None)


def _of_factor(operand: Value, loops: Sequence[int], digit: Digit) -> Operand:
    return Operand(operand, replace(digit, dim=loops.index(digit.dim)) if digit.dim in loops else None)


def _of_view(kind: object, source: Sequence[int], shape: Sequence[int], digit: Digit) -> _Found | None:
    match kind:
        case Permutation(order=order):
            return _Found(replace(digit, dim=order[digit.dim]))
        case Expansion():
            dim = digit.dim - (len(shape) - len(source))
            return _Found(replace(digit, dim=dim) if dim >= 0 and source[dim] > 1 else None)
        case Reshape():
            outer = math.prod(shape[: digit.dim]) * digit.outer
            inner = math.prod(shape[digit.dim + 1 :]) * digit.inner
            return _Found(found) if (found := digit_at(source, outer, digit.size, inner)) else None
        case Slicing(dim=dim) if dim != digit.dim:
            return _Found(digit)
        case Windows(dim=dim) if dim != digit.dim < len(source):
            return _Found(digit)
        case Selection(dim=dim):
            return _Found(replace(digit, dim=digit.dim + (digit.dim >= dim)))
        case _:
            return None


def digit_at(shape: Sequence[int], outer: int, size: int, inner: int) -> Digit | None:
    """The digit of a tensor with so many elements before and after it; None where it lies in several dimensions."""
    for dim, extent in enumerate(shape):
        before, after = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
        if outer % before == 0 and inner % after == 0 and outer // before * size * (inner // after) == extent:
            return Digit(dim, outer // before, size, inner // after)
    return None


def resized(shape: Sequence[int], digit: Digit, count: int) -> tuple[int, ...]:
    """The shape with so many positions of the digit."""
    return (*shape[: digit.dim], digit.outer * count * digit.inner, *shape[digit.dim + 1 :])


def sliced(value: Value, digit: Digit, at: Positions) -> Value:
    """The slice as a view of the value."""
    if digit.outer == digit.inner == 1:
        return piece(value, digit.dim, at.start, at.count, at.step)
    before, after = value.shape[: digit.dim], value.shape[digit.dim + 1 :]
    apart = reshape(value, (*before, digit.outer, digit.size, digit.inner, *after))
    return reshape(piece(apart, digit.dim + 1, at.start, at.count, at.step), resized(value.shape, digit, at.count))


def computed_of(value: Value, digit: Digit, count: int, operands: Sequence[Value]) -> Value:
    """The slice of a value, computed of those of its operands, in their order."""
    shape = resized(value.shape, digit, count)
    made: Value
    match value:
        case Pointwise():
            made = replace(value, arguments=tuple(operands))
        case Product():
            made = replace(value, a=operands[0], b=operands[1])
        case Joined():
            made = replace(value, parts=tuple(operands))
        case View(kind=Expansion() | Reshape() as kind):
            made = replace(value, argument=operands[0], kind=replace(kind, source=operands[0].shape, shape=shape))
        case View() | Reduced() | Padded():
            made = replace(value, argument=operands[0])
        case _:
            raise AssertionError(f"{value.name}: {type(value).__name__} is not computed of slices")
    return replace(made, name=f"{value.name}_sliced", shape=shape, strides=None)


def placed_digit(base: Value, place: Placement) -> tuple[Digit, Positions] | None:
    """The digit of a dense value, and the positions of it, that lie in a place of its memory; None if there is none."""
    if base.memory_strides != dense_strides(base.shape):
        return None
    dims = sorted((stride, size) for size, stride in zip(place.shape, place.strides, strict=True) if size > 1)
    dims.append((base.elements, 1))
    dense, number = [1], 0
    for stride, size in dims:
        if stride != dense[-1]:
            break
        dense.append(stride * size)
        number += 1
    if number == len(dims) or not _are_dense(dims[number:]):
        return None
    # A position of a digit that the place does not have, or some of the digit before.
    ways = [(dense[-1], 1), *([(dense[-2], dense[-1] // dense[-2])] if number else [])]
    found = (_at(base, place.offset, inner, count, dims[number][0]) for inner, count in ways)
    return next((each for each in found if each is not None), None)


def _are_dense(dims: Sequence[tuple[int, int]]) -> bool:
    return all(above == stride * size for (stride, size), (above, _) in itertools.pairwise(dims))


def _at(base: Value, offset: int, inner: int, count: int, stride: int) -> tuple[Digit, Positions] | None:
    """Positions of a digit whose neighbours are so many elements apart, and that repeats after `stride` elements."""
    if stride < 1 or stride % inner or base.elements % stride or offset % inner:
        return None
    start, size = offset // inner, stride // inner
    digit = digit_at(base.shape, base.elements // stride, size, inner)
    return None if digit is None or start + count > size else (digit, Positions(start, 1, count))
