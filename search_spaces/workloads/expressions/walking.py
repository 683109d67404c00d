"""Traversal of expressions: their parts, and expressions with some of them replaced."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping

from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Compound,
    Expression,
    Gather,
    LookUp,
    Position,
    Segment,
)
from search_spaces.workloads.expressions.operators import OPERATORS


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it, outermost first, left to right."""
    rest = [expression]
    while rest:
        here = rest.pop()
        yield here
        if isinstance(here, Apply):
            rest += reversed(here.arguments)
        elif isinstance(here, LookUp):
            rest += reversed(here.looked_up)


def distinct(expression: Expression) -> tuple[Expression, ...]:
    """The expression and everything in it, a shared part once; computed once for an expression."""
    if not isinstance(expression, Compound):
        return (expression,)
    if "distinct" not in expression.known:
        found: dict[int, Expression] = {}
        rest: list[Expression] = [expression]
        while rest:
            here = rest.pop()
            if id(here) in found:
                continue
            found[id(here)] = here
            if isinstance(here, Apply):
                rest += reversed(here.arguments)
            elif isinstance(here, LookUp):
                rest += reversed(here.looked_up)
        # Without itself, which would be a cycle.
        expression.known["distinct"] = tuple(found.values())[1:]
    within: tuple[Expression, ...] = expression.known["distinct"]
    return expression, *within


def inlined_depth(expression: Expression, below: Mapping[str, int]) -> int:
    """Depth of nesting; an element read of a tensor has the depth given in `below`, if any."""
    return _measured(expression, below, {})


def _measured(e: Expression, below: Mapping[str, int], known: dict[int, int]) -> int:
    if id(e) not in known:
        match e:
            case Access(tensor):
                known[id(e)] = max(1, below.get(tensor, 0))
            case Apply(_, within):
                known[id(e)] = 1 + max(_measured(x, below, known) for x in within)
            case Gather() | Segment():
                known[id(e)] = 1 + max((_measured(x, below, known) for x in e.looked_up), default=0)
            case _:
                known[id(e)] = 1
    return known[id(e)]


def accesses(expression: Expression) -> tuple[Access, ...]:
    """Every tensor element that the expression reads at affine indices, in order, repeats included."""
    if isinstance(expression, Access):
        return (expression,)
    if not isinstance(expression, Compound):
        return ()
    if "accesses" not in expression.known:
        expression.known["accesses"] = tuple(e for e in walk(expression) if isinstance(e, Access))
    found: tuple[Access, ...] = expression.known["accesses"]
    return found


def distinct_accesses(expression: Expression) -> tuple[Access, ...]:
    """The same, in order, a shared one once."""
    if not isinstance(expression, Compound):
        return (expression,) if isinstance(expression, Access) else ()
    if "distinct_accesses" not in expression.known:
        expression.known["distinct_accesses"] = tuple(e for e in distinct(expression) if isinstance(e, Access))
    found: tuple[Access, ...] = expression.known["distinct_accesses"]
    return found


def gathers(expression: Expression) -> tuple[Gather, ...]:
    """Every tensor element that the expression reads at indices that are data, in order, repeats included."""
    if not any(isinstance(e, Gather) for e in distinct(expression)):
        return ()
    return tuple(e for e in walk(expression) if isinstance(e, Gather))


def segments(expression: Expression) -> tuple[Segment, ...]:
    """Every number of a segment in the expression, a shared one once."""
    return tuple(e for e in distinct(expression) if isinstance(e, Segment))


def own_forms(e: Expression) -> tuple[Affine, ...]:
    """The affine forms of the axes that an expression has itself, not those of expressions in it."""
    match e:
        case Access(_, index) | Gather(_, index):
            return tuple(i for i in index if isinstance(i, Affine))
        case Position(form) | Segment(_, Affine() as form):
            return (form,)
        case _:
            return ()


def affine_forms(expression: Expression) -> Iterator[Affine]:
    """Every affine form of the axes in the expression: indices and positions."""
    return (form for e in distinct(expression) for form in own_forms(e))


def variables(expression: Expression) -> frozenset[str]:
    """The axes that the value of the expression depends on."""
    if not isinstance(expression, Compound):
        return frozenset(v for form in affine_forms(expression) for v, _ in form.terms)
    if "variables" not in expression.known:
        expression.known["variables"] = frozenset(v for form in affine_forms(expression) for v, _ in form.terms)
    found: frozenset[str] = expression.known["variables"]
    return found


def rewritten(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """The expression with every part for which `change` gives another one replaced, outermost first.

    A shared part is visited once.
    """
    return _rewritten(expression, change, {})


def _rewritten(
    e: Expression, change: Callable[[Expression], Expression | None], known: dict[int, Expression]
) -> Expression:
    # A function within the one above that calls itself would be a cycle, and what it holds garbage to be collected.
    made = known.get(id(e)) or change(e)
    if made is None:
        made = e
        if isinstance(e, Apply):
            within = tuple([_rewritten(a, change, known) for a in e.arguments])
            # An unchanged part stays the same object, with its cached results.
            made = e if all(map(operator.is_, within, e.arguments)) else Apply(e.operator, within)
        elif isinstance(e, Gather):
            index = tuple([i if isinstance(i, Affine) else _rewritten(i, change, known) for i in e.index])
            made = Gather(e.tensor, index)
        elif isinstance(e, Segment) and not isinstance(e.position, Affine):
            made = Segment(e.tensor, _rewritten(e.position, change, known), e.size)
    known[id(e)] = made
    return made


def reindexed(expression: Expression, form: Callable[[Affine], Affine]) -> Expression:
    """The expression with every affine form of the axes, of indices and of positions, replaced by another one."""

    def change(e: Expression) -> Expression | None:
        match e:
            case Access(tensor, index, fill):
                return Access(tensor, tuple(map(form, index)), fill)
            case Position(index):
                return Position(form(index))
            case Gather(tensor, mixed):
                at = (form(i) if isinstance(i, Affine) else reindexed(i, form) for i in mixed)
                return Gather(tensor, tuple(at))
            case Segment(tensor, Affine() as position, size):
                return Segment(tensor, form(position), size)
            case _:
                return None

    return rewritten(expression, change)


def flops(expression: Expression) -> int:
    """Floating-point operations for one evaluation."""
    return sum(OPERATORS[e.operator][1] for e in walk(expression) if isinstance(e, Apply))
