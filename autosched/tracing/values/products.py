"""Products on the way down from an output: the axes they sum over, and their operands."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from autosched.tracing.values.pulled import NotOneKernelError, Pulled, Pulling, axes_in
from autosched.tracing.values.reads import at_its_axes
from autosched.tracing.values.tensor_reads import base_of
from autosched.tracing.values.values import Index, Pointwise, Product, Value, View
from search_spaces import Reduction, Stage
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression
from search_spaces.workloads.expressions.walking import accesses, gathers


def multiplied(pulled: Pulled, value: Product, index: Index) -> Pulling:
    """A contraction: a stage with the axes of the product, at least m and n."""
    if not pulled.reads.is_inside(index, value.shape):
        raise NotOneKernelError(f"{value.name} is a product, and read at positions that it does not have", value)
    if len(pulled.factors) > (1 if pulled.fusing.chained else 0):
        factor = _missing(pulled, pulled.factors[-1])
        reason = f"{factor.name} is multiplied, and computed from a product"
        raise NotOneKernelError(reason, factor, needed=not pulled.fusing.computed)
    *batch, m, n = index
    m, n = pulled.unit(m, "m"), pulled.unit(n, "n")
    own = axes_in((*batch, m, n))
    summed = _summed_axis(pulled, value, own)
    k = pulled.unit(pulled.dimension(summed, value.a.shape[-1]), summed)
    if pulled.multiplies and not pulled.fusing.chained and own != pulled.output_axes:
        raise NotOneKernelError("there are products over different axes", value)
    pulled.contracted.append(axes_in((k,)))
    a = yield from _factor(pulled, value.a, (*batch, m, k))
    b = yield from _factor(pulled, value.b, (*batch, k, n))
    pulled.contracted.pop()
    _widen_output(pulled, value, own)
    # Products of 16 bits are "ieee" whatever the precision of others.
    pulled.precision = value.precision if pulled.precision == "ieee" else pulled.precision
    pulled.multiplies = True
    reduction = Reduction("sum", pulled.axes(axes_in((k,))))
    made = pulled.access(Stage(value.name, pulled.axes(own), ex.mul(a, b), reduction), value)
    pulled.products |= {a.tensor for a in accesses(made)}
    return made


def _widen_output(pulled: Pulled, value: Product, own: Sequence[str]) -> None:
    """Give the output the product's own axes of size 1, which it leaves out."""
    if not {*pulled.output_axes} <= {*own} and not pulled.fusing.chained:
        raise NotOneKernelError("a product is read at other axes than it has", value)
    units = [a for a in pulled.units(own) if a not in pulled.output_axes]
    if not pulled.fusing.chained or {*own} == {*pulled.output_axes, *units}:
        pulled.output_axes = tuple(own)
    else:
        pulled.output_axes = (*pulled.output_axes, *units)


def _summed_axis(pulled: Pulled, value: Product, own: Sequence[str]) -> str:
    """The axis that a product sums over: that of another one, if its extent is equal and it is none of the product's
    own.
    """
    first, size = f"{pulled.prefix}k", value.a.shape[-1]
    if not pulled.fusing.chained:
        if pulled.multiplies and not (pulled.fusing.computed and size == pulled.extents.get(first)):
            raise NotOneKernelError("there are several products", value)
        return first
    names = (f"{first}{number or ''}" for number in itertools.count())
    # An axis may be cut in two.
    free = (n for n in names if not {n, f"{n}o", f"{n}i"} & {*own})
    return next(n for n in free if pulled.summed.setdefault(n, size) == size)


def _factor(pulled: Pulled, value: Value, index: Index) -> Pulling:
    """An operand of a product: an element in memory, or an expression where `fusing` allows it.

    An element in memory is read by every axis of the index, with stride 0 by those that it does not depend on.
    """
    pulled.factors.append(value)
    read = yield value, index
    pulled.factors.pop()
    if isinstance(read, ex.Apply) and read.operator == "to_integer":
        # Dots take integers as they are in memory.
        (read,) = read.arguments
    operand = pulled.reads.read_by(read)
    if operand is None and _may_be_computed(pulled, read, value):
        return read
    if operand is None:
        raise NotOneKernelError(f"{value.name} is multiplied", _missing(pulled, value), needed=True)
    if operand.value.dtype != value.dtype:
        reason = f"{value.name} is multiplied, and is {operand.value.dtype} in memory"
        raise NotOneKernelError(reason, value, needed=True)
    steps = [s for v, s in operand.strides if pulled.extents[v] > 1]
    if steps and min(steps) > 1 and isinstance(value, View):
        # Strided elements are better gathered once into a dense copy than read by every tile.
        reason = f"{value.name} is multiplied, and none of its elements are neighbours"
        raise NotOneKernelError(reason, value, needed=True)
    given = dict(operand.strides)
    repeated = tuple((a, 0) for a in axes_in(index) if a not in given)
    if not repeated or pulled.fusing.chained:
        return read
    operand = pulled.reads.operand(replace(operand, strides=(*repeated, *operand.strides), sizes=()))
    return at_its_axes(operand)


def _may_be_computed(pulled: Pulled, factor: Expression, value: Value) -> bool:
    """True if a product may multiply an expression instead of a tensor in memory."""
    stages = {s.name for s in pulled.stages}
    folded = any(a.tensor in stages for a in accesses(factor)) or next(iter(gathers(factor)), None)
    return bool(pulled.fusing.chained and folded) or (pulled.fusing.computed and value.dtype != "float32")


def _missing(pulled: Pulled, factor: Value) -> Value:
    """The value to store for a product: the base of a view or copy, or the factor itself."""
    base = base_of(factor, pulled.stored)
    copied = base
    while isinstance(copied, Pointwise) and copied not in pulled.stored and copied.is_copy:
        copied = base_of(copied.arguments[0], pulled.stored)
    found = base if copied in pulled.stored else copied
    return factor if found in pulled.stored else found
