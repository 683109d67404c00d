"""Products with constants into which a scale and a shift along their channels are multiplied and added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.rewriting.affine import Affine, Readers, regroups
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.scaled_weights import scaled
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.values import Pointwise, Product, Value, View
from autosched.tracing.values.views import Reshape
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression


def channels_of(product: Product) -> tuple[int, ...]:
    """The dimensions of the result that constants have, next to each other: one, or groups and channels within them."""
    if not is_constant(product.b) or is_constant(product.a):
        return ()
    found = tuple(n for n in product.b_loops if n < len(product.shape))
    alone = len(found) == 1 and found[0] not in product.a_loops
    grouped = len(found) == 2 and found[1] == found[0] + 1 and found[1] not in product.a_loops
    return found if alone or grouped else ()


def behind(equalities: Equalities, readers: Readers, product: Product) -> list[Value]:
    """The pointwise values computed from a product, each the only reader of the one before; the last one first."""
    found: list[Value] = []
    here: Value = product
    while equalities.number(here) not in equalities.results:
        new = readers.get(equalities.number(here), ())
        if len(new) != 1 or not isinstance(new[0], Pointwise | View):
            break
        here = new[0]
        found.append(here)
    return [v for v in reversed(found) if isinstance(v, Pointwise)]


def is_of_channels(found: Affine, product: Product, channels: Sequence[int]) -> bool:
    """True for a function of the product, or of the view of it in which groups and channels are one dimension."""
    core = regrouped(found.core, found.place)
    if len(channels) == 1:
        return core is product
    whole = math.prod(product.shape[d] for d in channels), *product.shape[channels[-1] + 1 :]
    as_one = isinstance(core, View) and isinstance(core.kind, Reshape) and core.argument is product
    return as_one and core.shape[-found.place :] == whole


def regrouped(core: Value, place: int) -> Value:
    """The value of which a function of channels is made, with its other dimensions as they are there."""
    while isinstance(core, View) and regroups(core, place):
        core = core.argument
    return core


def folded(value: Value, found: Affine, product: Product, channels: Sequence[int]) -> Value:
    """A value, as `found` of a product, with the scale in the weights and one shift behind the product."""
    weights = scaled(product.b, [product.b_loops.index(n) for n in channels], found.scale)
    sums: Value = replace(product, name=f"{product.name}_scaled", b=weights)
    if found.core is not product:
        sums = reshape(sums, found.core.shape)
    shift = () if found.shift is None else (_along(found),)

    def combine(total: Expression, *others: Expression) -> Expression:
        for factor in others[: len(found.factors)]:
            total = ex.mul(total, factor)
        return ex.add(total, others[-1]) if shift else total

    result = Result(f"{value.name}_folded", value.shape, value.dtype, value.line)
    return result.pointwise(combine, sums, *found.factors, *shift)


def _along(found: Affine) -> Value:
    """The shift, to be broadcast along the dimensions behind its own."""
    assert found.shift is not None
    return reshape(found.shift, (*found.shift.shape, *(1,) * (found.place - 1))) if found.shift.shape else found.shift
