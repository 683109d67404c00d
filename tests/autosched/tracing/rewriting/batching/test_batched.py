"""One term in the place of many: its positions along the first dimension are the terms."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autosched.tracing.operators.joining_rules import padded
from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import expand, permute, piece, select, view
from autosched.tracing.rewriting.batching.batched import Operand, batched
from autosched.tracing.rewriting.evaluation import evaluated
from autosched.tracing.rewriting.examples import leaf, pointwise
from autosched.tracing.rewriting.terms import with_operands
from autosched.tracing.values.values import Joined, Value
from autosched.tracing.values.views import Diagonal, Strided, Windows
from residues import Residues
from rule_checks import residues_of
from search_spaces.workloads.expressions.expression import add

A, B, V = leaf("a", (3, 4)), leaf("b", (3, 4)), leaf("v", (4,))


def made(name: str, *shape: int) -> Result:
    return Result(name, shape, "float32", "")


def joined(*parts: Value) -> Value:
    return made("joined", 3, 8).of(Joined, parts=parts, dim=1)


TERMS: dict[str, Value] = {
    "pointwise": pointwise(add, A, B),
    "broadcast": pointwise(add, A, V),
    "reduced": made("total", 3).reduced("max", A, (1,)),
    "product": product(made("product", 3, 3), A, B, (3, 3), (0, 2), (1, 2)),
    "permuted": permute(made("permuted", 4, 3), A, (1, 0)),
    "reshaped": reshape(A, (2, 6)),
    "expanded": expand(made("expanded", 2, 3, 4), A, (2, 3, 4)),
    "of more rows": expand(made("expanded", 3, 4), V, (3, 4)),
    "sliced": piece(A, 1, 1, 2),
    "selected": select(made("selected", 3), A, 1, 2),
    "diagonal": view(made("diagonal", 3), A, Diagonal(1, 0, 1)),
    "windows": view(made("windows", 3, 2, 3), A, Windows(1, 3, 1)),
    "padded": padded(made("padded", 5, 6), A, (1, 2), 3.0),
    "joined": joined(A, B),
}


# Of each term, which operands are other ones.
STACKED = {1: [(True,)], 2: [(True, True), (True, False), (False, True)]}


@pytest.mark.parametrize(
    ("name", "stacked"), [(name, s) for name, t in TERMS.items() for s in STACKED[len(t.operands)]]
)
def test_a_batch_has_the_terms_along_its_first_dimension(name: str, stacked: Sequence[bool]) -> None:
    term, count = TERMS[name], 2
    apart = [leaf(f"stack{n}", (count, *o.shape)) for n, o in enumerate(term.operands)]
    operands = [
        Operand(whole if each else o, each) for o, whole, each in zip(term.operands, apart, stacked, strict=True)
    ]
    batch = batched(term, count, operands)
    assert batch is not None
    assert batch.shape == (count, *term.shape)
    each = [
        with_operands(term, dict(zip(term.operands, at(operands, n), strict=True)).__getitem__) for n in range(count)
    ]
    given = residues_of([batch, *each], seed=0)
    whole, *single = evaluated([batch, *each], given, Residues(rounded=True))
    for row, right in zip(whole, single, strict=True):
        assert row.equal(right)


def at(operands: Sequence[Operand], number: int) -> list[Value]:
    """The operands of one of the terms."""
    return [
        select(Result(f"{o.value.name}_{number}", o.value.shape[1:], o.value.dtype, ""), o.value, 0, number)
        if o.stacked
        else o.value
        for o in operands
    ]


def test_what_lies_at_strides_of_its_own_has_no_batch() -> None:
    strided = view(made("strided", 2, 2), V, Strided((2, 2), (1, 1), 0))
    assert batched(strided, 2, [Operand(leaf("stack", (2, 4)), stacked=True)]) is None
