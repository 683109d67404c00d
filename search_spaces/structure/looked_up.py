"""Operands of contractions whose tiles are looked up: one index is data that is one number in an iteration.

    b[col[e] * 128 + j, n]        at one e the block of rows whose number is col[e]
    table[page[t], p, d]          at one t a page

Before:  gather b[col[e] * 128 + j, n]       an address for each element
After:   load b[number * 128 + j, n]         number = col[e], a variable of the index that is data

The number counts blocks of so many positions that the other axes stay within one, and blocks divide the dimension: so
either all elements of a tile exist, or none does, and all are NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces.structure.contraction import Contraction
from search_spaces.structure.operand_maps import LookedUp
from search_spaces.workloads.dtypes import is_float, is_integer, range_of
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Position,
    call,
    mul,
    to_text,
)
from search_spaces.workloads.expressions.operators import LARGEST_INTEGER
from search_spaces.workloads.expressions.walking import rewritten, variables

# Expressions, and how often each is added.
_Terms = tuple[tuple[Expression, int], ...]


def with_looked_up_tiles(form: Contraction) -> Contraction:
    """The contraction with the operands that it gathers in whole tiles read at indices that have variables of data."""
    found: dict[str, LookedUp] = {}

    def read(e: Expression) -> Access | None:
        made = _looked_up(e, form) if isinstance(e, Gather) else None
        if made is None:
            return None
        access, place = made
        found[place.variable] = place
        return access

    dots = tuple(replace(d, a=rewritten(d.a, read), b=rewritten(d.b, read)) for d in form.dots)
    return replace(form, dots=dots, looked_up=tuple(found.values())) if found else form


def _looked_up(gather: Gather, form: Contraction) -> tuple[Access, LookedUp] | None:
    """The read of a tile of k and another axis, and the place of the tile."""
    tensor = next(t for t in form.workload.inputs if t.name == gather.tensor)
    by_data = [d for d, i in enumerate(gather.index) if not isinstance(i, Affine)]
    if len(by_data) != 1 or not is_float(tensor.dtype):
        return None
    (dimension,) = by_data
    ((index,), size) = gather.looked_up, tensor.shape[dimension]
    within, terms = _sum(index)
    if len(terms) != 1:
        return None
    ((data, block),) = terms
    number = _number(data, block, {t.name: t.dtype for t in form.workload.inputs})
    if number is None or size % block or within.minimum(form.extents) < 0 or within.maximum(form.extents) >= block:
        return None
    place = LookedUp(f"({to_text(number)} of {size // block})", number, size // block)
    at = Affine.of((place.variable, block)) + within
    access = Access(gather.tensor, tuple(i if isinstance(i, Affine) else at for i in gather.index))
    moved, across = variables(access), {form.m.name, form.n.name}
    whole = form.k.name in moved and not moved.isdisjoint(across)
    return (access, place) if whole and variables(data).isdisjoint({*across, form.k.name}) else None


def _sum(e: Expression) -> tuple[Affine, _Terms]:
    """An integer as the sum of an affine form of the axes and of multiples of data."""
    match e:
        case Integer(value):
            return Affine(offset=value), ()
        case Apply("to_integer", (Position(index),)):
            return index, ()
        case Apply("add", (first, second)):
            (one, some), (other, more) = _sum(first), _sum(second)
            return one + other, (*some, *more)
        case Apply("mul", (Integer(by), multiplied)) | Apply("mul", (multiplied, Integer(by))):
            form, terms = _sum(multiplied)
            return form * by, tuple((data, times * by) for data, times in terms)
        case _:
            return Affine(), ((e, 1),)


def _number(data: Expression, block: int, dtypes: Mapping[str, str]) -> Expression | None:
    """The number of the block that begins at this multiple of the data, whose integer wraps around; None if unknown."""
    match data:
        case Apply("to_integer", (Access(tensor) | Gather(tensor),)) if is_integer(dtypes[tensor]):
            known = block * range_of(dtypes[tensor])[1] <= LARGEST_INTEGER
        case _:
            known = False
    if block == 1 or (known and block > 0):
        return data
    if block < 1 or block & (block - 1):
        return None
    return call("shift_right", mul(data, Integer(block)), Integer(block.bit_length() - 1))
