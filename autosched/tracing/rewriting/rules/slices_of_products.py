"""Slices of products as products of slices.

    (x @ w + b)[:, -1]    →    x[:, -1] @ w + b            the head of a language model
    norm(f(x) @ w)[:3]    →    norm(f(x[:3]) @ w)

The slice of a value is computed of slices of its operands: of all that only this slice is made of, back to values that
others read, or that mix the positions along its dimension; among them must be a product. A result that is a part of a
larger tensor's memory keeps its strides: it is the first part of such memory, the rest of which nobody writes.

Exactness: the same products, sums and roundings, of fewer elements; NaN and infinities too, though a kernel of another
size may sum in another order, as any schedule may. Sources: Z. Jia et al., "TASO", SOSP 2019 (split of matmul); vLLM
and Hugging Face's `num_logits_to_keep`, by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.tracing.fusion.regions import below
from autosched.tracing.operators.parts import in_parts
from autosched.tracing.operators.rules import reshape
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.rewriting.digits import (
    Digit,
    Operand,
    Positions,
    computed_of,
    placed_digit,
    sliced,
    sliced_operands,
)
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import Product, Value, View
from autosched.tracing.values.views import Placement, Selection, Slicing
from search_spaces.workloads.expressions import expression as ex


def _matches(equalities: Equalities) -> Iterator[Match]:
    readers = equalities.readers()
    for value in equalities.terms():
        if not isinstance(value, View) or not value.elements or len(equalities.forms(value)) > 1:
            continue
        found = _slice_of(value)
        if found is None or found[1].count == found[0].size:
            continue
        digit, at = found
        region = _Region(equalities, readers, value, digit)
        if any(isinstance(each.value, Product) for each in region.members.values()):
            after = _viewed(value, digit, at, region.computed(value.argument, at))
            if after is not None:
                yield Match(((value, after),))


def _slice_of(view: View) -> tuple[Digit, Positions] | None:
    """The digit of the argument that a view takes positions of."""
    match view.kind:
        case Slicing(dim=dim, start=start, step=step, count=count):
            return Digit(dim, 1, view.argument.shape[dim], 1), Positions(start, step, count)
        case Selection(dim=dim, at=at):
            return Digit(dim, 1, view.argument.shape[dim], 1), Positions(at, 1, 1)
        case Placement() as place:
            return placed_digit(view.argument, place)
        case _:
            return None


@dataclass(frozen=True, eq=False)
class _Member:
    value: Value
    digit: Digit


class _Region:
    """The values of which only a slice is needed, as all readers are such themselves, by the number of their class."""

    def __init__(
        self, equalities: Equalities, readers: Mapping[int, Sequence[Value]], view: View, digit: Digit
    ) -> None:
        self._equalities = equalities
        self.members: dict[int, _Member] = {}
        wanted: dict[int, set[Digit | None]] = {equalities.number(view.argument): {digit}}
        waiting: list[Value] = [view.argument]
        inside = {equalities.number(view)}
        while waiting:
            value = waiting.pop()
            number = equalities.number(value)
            digits = wanted[number]
            mine = next(iter(digits))
            if len(digits) > 1 or mine is None or number in self.members or number in equalities.results:
                continue
            operands = sliced_operands(value, mine)
            if operands is None or not {equalities.number(r) for r in readers.get(number, ())} <= inside:
                continue
            self.members[number] = _Member(value, mine)
            inside.add(number)
            for operand in operands:
                wanted.setdefault(equalities.number(operand.value), set()).add(operand.digit)
                waiting.append(operand.value)

    def computed(self, value: Value, at: Positions) -> Value:
        """The slice of the value."""
        made: dict[int, Value] = {}
        for each in below([value]):
            number = self._equalities.number(each)
            member = self.members.get(number)
            if member is None or number in made:
                continue
            operands = []
            for operand in sliced_operands(member.value, member.digit) or ():
                operands.append(self._sliced(operand, at, made))
            made[number] = computed_of(member.value, member.digit, at.count, operands)
        return made[self._equalities.number(value)]

    def _sliced(self, operand: Operand, at: Positions, made: Mapping[int, Value]) -> Value:
        number = self._equalities.number(operand.value)
        if operand.digit is None:
            return operand.value
        if number in made and self.members[number].digit == operand.digit:
            return made[number]
        return sliced(operand.value, operand.digit, at)


def _viewed(view: View, digit: Digit, at: Positions, made: Value) -> Value | None:
    """The value in the place of a view, of the slice; None where kernels cannot store it there."""
    if isinstance(view.kind, Placement):
        return _in_memory(view, view.kind, digit, reshape(made, _three(made.shape, digit, at.count)))
    return reshape(made, view.shape) if isinstance(view.kind, Selection) else made


def _three(shape: Sequence[int], digit: Digit, count: int) -> tuple[int, int, int]:
    """What is before and after a digit, and the digit, as dimensions."""
    before, after = shape[: digit.dim], shape[digit.dim + 1 :]
    return math.prod(before) * digit.outer, count, math.prod(after) * digit.inner


def _in_memory(view: View, place: Placement, digit: Digit, part: Value) -> Value | None:
    """The part as first one in memory like that of the whole, so that it has PyTorch's strides and is aligned."""
    base = view.argument
    memory = reshape(base, _three(base.shape, digit, digit.size))
    whole = in_parts(memory, [part], [(0, 0, 0)], (1, 1, 1))
    if whole is None:
        return None
    return replace(view, name=f"{view.name}_sliced", argument=whole, kind=replace(place, offset=0))


def _example(sizes: Sequence[int]) -> list[Value]:
    m, k, n, rows = sizes
    x, w, b = leaf("x", (m + rows, k)), leaf("w", (k, n), constant=True), leaf("b", (n,), constant=True)
    return [piece(pointwise(ex.add, matmul(x, w), b), 0, m, rows)]


def _columns(sizes: Sequence[int]) -> list[Value]:
    m, k, n, columns = sizes
    return [piece(matmul(leaf("x", (m, k)), leaf("w", (k, n + columns))), 1, 0, columns)]


def _two_slices(sizes: Sequence[int]) -> list[Value]:
    m, k, n, columns = sizes
    whole = matmul(leaf("x", (m, k)), leaf("w", (k, n + columns)))
    return [piece(whole, 1, 0, columns), piece(whole, 1, columns, n)]


RULE = Rule(
    name="slices of products",
    exactness="same",
    matches=_matches,
    example=_example,
    others=(_columns,),
    refused=(_two_slices,),
)
