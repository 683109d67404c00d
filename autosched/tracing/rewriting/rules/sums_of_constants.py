"""Sums, norms and products of constants, computed before the first call.

    x @ (v * g / norm(v)).T   →   n = g / norm(v), once; x @ (v * n).T

The condition: what is prepared is smaller than a constant that it is folded from, so that a call reads less, and no
result, which is new memory in every call. Pointwise functions of constants stay where they are read: they cost no
launch, and no memory for another copy of a weight.

Exactness: computed in float64, and rounded where PyTorch rounds to 16 bits and once when it is stored: sums have no
order, and the other roundings are left out. The error is at most u of what is stored, plus those roundings. NaN and
infinities are the same, but for sums that overflow in float32 only. Source: constant folding (Aho, Lam, Sethi, Ullman,
"Compilers", 2007, section 8.5.4), as TensorRT and Inductor's freezing apply it to models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, pointwise
from autosched.tracing.rewriting.preparing import prepared
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.terms import is_constant, takes_other_operands
from autosched.tracing.values.values import Prepared, Product, Reduced, Value, View
from search_spaces.workloads.expressions import expression as ex


def _matches(equalities: Equalities) -> Iterator[Match]:
    folded: set[int] = set()
    small: dict[int, Value] = {}
    for value in equalities.terms():
        number = equalities.number(value)
        sums = isinstance(value, Product | Reduced) or any(equalities.number(o) in folded for o in value.operands)
        if sums and takes_other_operands(value) and is_constant(value):
            folded.add(number)
            if _is_small(value):
                small.setdefault(number, value)
    readers = equalities.readers() if small else {}
    for number, value in small.items():
        read = any(equalities.number(reader) not in small for reader in readers.get(number, ()))
        known = any(isinstance(form, Prepared) for form in equalities.forms(value))
        if read and not known and number not in equalities.results:
            yield Match(((value, prepared(value)),))


def _is_small(value: Value) -> bool:
    kept = value.readable and not isinstance(value, View)
    return kept and value.bytes < max(constant.bytes for constant in prepared(value).constants)


def _of(constant: bool, sizes: Sequence[int], result: bool = False) -> list[Value]:
    """A weight over the sums of its rows, as a factor of an argument."""
    rows, columns = sizes[0], sizes[1] + 1
    weight = leaf("weight", (rows, columns), constant=constant)
    total = Result("total", (rows,), "float32", "").reduced("sum", weight, (1,))
    column = reshape(total, (rows, 1))
    scaled = pointwise(lambda x, w, n: ex.mul(x, ex.mul(w, n)), leaf("x", (rows, columns)), weight, column)
    return [scaled, total] if result else [scaled]


RULE = Rule(
    name="sums of constants",
    exactness="reassociated",
    matches=_matches,
    example=lambda sizes: _of(True, sizes),
    refused=(
        lambda sizes: _of(False, sizes),
        lambda sizes: _of(True, sizes, result=True),
        lambda sizes: [pointwise(ex.mul, leaf("x", sizes[:2]), leaf("weight", sizes[:2], constant=True))],
    ),
)
