"""Values as short formulas for people: names of the user's values, with shapes, and what is computed of them.

x[8, 64] @ cat(a.weight[64, 64], b.weight[32, 64]).T
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from autosched.tracing.values.values import (
    Gathered,
    Joined,
    Padded,
    Pointwise,
    Prepared,
    Product,
    Reduced,
    Segments,
    Value,
    View,
)
from autosched.tracing.values.views import Permutation, Selection, Slicing
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, to_text
from search_spaces.workloads.expressions.operators import ROUNDINGS

# Operations within each other, and characters of a part of a formula: beyond, a value is shown by its name.
_MOST_DEPTH = 6
_MOST_CHARACTERS = 80
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def formulas(before: Value, after: Value) -> str:
    """`before → after`, each in a line, with what both are computed from by its name.

    Conversions, roundings and views that only regroup are left out.
    """
    shared = _near(before, _MOST_DEPTH) & _near(after, _MOST_DEPTH) - {before, after}
    return " → ".join(_Formula(shared).of(value, _MOST_DEPTH) for value in (before, after))


def _near(value: Value, depth: int) -> set[Value]:
    """The values at most so far below a value."""
    found = here = {value}
    for _ in range(depth):
        here = {o for v in here for o in v.operands} - found
        found = found | here
    return found


def _is_open(text: str) -> bool:
    """True for operands next to each other outside of brackets."""
    inside = 0
    for character in text:
        inside += (character in "([") - (character in ")]")
        if character == " " and not inside:
            return True
    return False


def _expression(expression: Expression, elements: Sequence[str]) -> str:
    match expression:
        case Access(number, ()):
            return elements[int(number)]
        case Apply(name, (x,)) if name in ROUNDINGS or name in ("to_integer", "to_float"):
            return _expression(x, elements)
        case Apply(name, (a, b)) if name in _INFIX:
            return f"{_part(a, elements)} {_INFIX[name]} {_part(b, elements)}"
        case Apply("neg", (x,)):
            return f"-{_part(x, elements)}"
        case Apply(name, arguments):
            return f"{name}({', '.join(_expression(a, elements) for a in arguments)})"
    return to_text(expression)


def _part(expression: Expression, elements: Sequence[str]) -> str:
    made = _expression(expression, elements)
    return f"({made})" if _is_open(made) else made


@dataclass(frozen=True)
class _Formula:
    """Formulas in which some values are `known`, and shown by their names."""

    known: Container[Value]

    def of(self, value: Value, depth: int) -> str:
        """The computation of a value, of so many operations within each other."""
        if value in self.known and value.operands and not isinstance(value, View):
            return _named(value)
        match value:
            case Pointwise(arguments=arguments, expression=expression):
                return _expression(expression, [self._within(a, depth) for a in arguments])
            case Product():
                return self._product(value, depth)
            case View():
                return self._viewed(value, depth)
            case Reduced(operator=operator, argument=argument, dims=dims):
                return f"{operator}({self._inside(argument, depth)}, {', '.join(map(str, dims))})"
            case Joined(parts=parts, dim=dim):
                return f"cat({', '.join(self._inside(p, depth) for p in parts)}, dim={dim})"
            case Padded(argument=argument):
                return f"pad({self._inside(argument, depth)})"
            case Gathered(table=table, index=index):
                places = (":" if isinstance(i, int) else self._inside(i, depth) for i in index)
                return f"{self._within(table, depth)}[{', '.join(places)}]"
            case Segments(ends=ends, position=position):
                return f"bucketize({self._inside(position, depth)}, {self._inside(ends, depth)})"
            case Prepared(argument=argument):
                return f"prepared({self._inside(argument, depth)})"
        return _named(value)

    def _within(self, value: Value, depth: int) -> str:
        """A value as an operand: in parentheses where it is an operation, by its name where that takes many words."""
        made = self._inside(value, depth)
        return f"({made})" if _is_open(made) else made

    def _inside(self, value: Value, depth: int) -> str:
        """A value as an argument in brackets."""
        made = self.of(value, depth - 1) if depth else _named(value)
        return made if len(made) <= _MOST_CHARACTERS else _named(value)

    def _product(self, value: Product, depth: int) -> str:
        """Matrices, or batches of these, by `@`; other sums of products by `einsum`."""
        batch = tuple(range(len(value.shape) - 2))
        m, n, k = len(batch), len(batch) + 1, len(batch) + 2
        a, b = self._within(value.a, depth), self._within(value.b, depth)
        if value.a_loops == (*batch, m, k) and value.b_loops in ((*batch, k, n), (*batch, n, k)):
            return f"{a} @ {b}" + ".mT" * (value.b_loops[-1] == k)
        own, other = ("".join(_LETTERS[n % len(_LETTERS)] for n in loops) for loops in (value.a_loops, value.b_loops))
        return f'einsum("{own}, {other} -> {_LETTERS[: len(value.shape)]}", {a}, {b})'

    def _viewed(self, value: View, depth: int) -> str:
        match value.kind:
            case Permutation(order=order):
                turned = (*range(len(order) - 2), len(order) - 1, len(order) - 2)
                change = ".mT" if order == turned else f".permute({', '.join(map(str, order))})"
            case Slicing(dim=dim, start=start, step=step, count=count):
                end = start + step * (count - 1) + 1
                change = f"[{':, ' * dim}{start}:{end}{f':{step}' * (step != 1)}]"
            case Selection(dim=dim, at=at):
                change = f"[{':, ' * dim}{at}]"
            case _:
                return self.of(value.argument, depth)
        return f"{self._within(value.argument, depth)}{change}"


def _named(value: Value) -> str:
    return f"{value.name}{list(value.shape)}"
