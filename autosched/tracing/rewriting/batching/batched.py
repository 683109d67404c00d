"""One term in the place of many that are equal but for their operands: these stacked along a new first dimension.

relu(a), relu(b)             →    relu(stack([a, b]))
a @ u, b @ v                 →    bmm(stack([a, b]), stack([u, v]))
sum(a, 0), sum(b, 0)         →    sum(stack([a, b]), 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import expand
from autosched.tracing.values.values import Joined, Padded, Pointwise, Product, Reduced, Value, View, ViewKind
from autosched.tracing.values.views import Diagonal, Expansion, Permutation, Reshape, Selection, Slicing, Windows


@dataclass(frozen=True, eq=False)
class Operand:
    """An operand of each of many terms: the same `value` for all, or `stacked` along its first dimension."""

    value: Value
    stacked: bool


def batched(term: Value, count: int, operands: Sequence[Operand]) -> Value | None:
    """`count` terms like this one, with these in the places of its operands; None for a kind that has no such form.

    At least one operand is stacked.
    """
    shape = (count, *term.shape)
    whole = replace(term, name=f"{term.name}_batch", shape=shape, strides=None)
    values = [o.value for o in operands]
    match whole:
        case Pointwise():
            return replace(whole, arguments=tuple(_aligned(o, len(term.shape)) for o in operands))
        case Reduced(dims=dims):
            return replace(whole, argument=values[0], dims=tuple(d + 1 for d in dims))
        case Product(a_loops=a_loops, b_loops=b_loops):
            loops = [
                ((0,) if o.stacked else ()) + tuple(loop + 1 for loop in own)
                for o, own in zip(operands, (a_loops, b_loops), strict=True)
            ]
            return replace(whole, a=values[0], b=values[1], a_loops=loops[0], b_loops=loops[1])
        case Padded(before=before):
            return replace(whole, argument=values[0], before=(0, *before))
        case Joined(dim=dim, in_groups=False):
            return replace(whole, parts=tuple(_repeated(o, count) for o in operands), dim=dim + 1)
        case View(kind=kind):
            argument = _aligned(operands[0], len(term.shape)) if isinstance(kind, Expansion) else values[0]
            made = _batched_kind(kind, argument.shape, shape)
            return None if made is None else replace(whole, argument=argument, kind=made)
        case _:
            return None


def _batched_kind(kind: ViewKind, source: tuple[int, ...], shape: tuple[int, ...]) -> ViewKind | None:
    match kind:
        case Permutation(order=order):
            return Permutation((0, *(d + 1 for d in order)))
        case Reshape():
            return Reshape(source, shape)
        case Expansion():
            return Expansion(source, shape)
        case Slicing(dim=dim) | Selection(dim=dim) | Windows(dim=dim):
            return replace(kind, dim=dim + 1)
        case Diagonal(first=first, second=second):
            return replace(kind, first=first + 1, second=second + 1)
        case _:
            return None


def _aligned(operand: Operand, rank: int) -> Value:
    """The operand so that it is broadcast to terms of so many dimensions."""
    value = operand.value
    missing = rank + 1 - len(value.shape)
    if not operand.stacked or not missing:
        return value
    return reshape(value, (value.shape[0], *(1,) * missing, *value.shape[1:]))


def _repeated(operand: Operand, count: int) -> Value:
    """The operand with a first dimension of this size."""
    value = operand.value
    if operand.stacked:
        return value
    whole = Result(f"{value.name}_repeated", (count, *value.shape), value.dtype, value.line)
    return expand(whole, value, whole.shape)
