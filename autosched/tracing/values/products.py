"""Products on the way down from an output: the axes they sum over, and their operands."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from autosched.tracing.values.pulled import NotOneKernelError, Pulled, Pulling, axes_in
from autosched.tracing.values.reads import at_its_axes
from autosched.tracing.values.tensor_reads import base_of
from autosched.tracing.values.values import Gathered, Index, Pointwise, Product, Value, View
from search_spaces import Reduction, Stage
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Expression, Gather
from search_spaces.workloads.expressions.walking import accesses, distinct, gathers, segments, variables

# A prologue reads a tensor at two places at most, as rotations of halves do: copies read more of them once.
_MOST_PLACES = 2


def multiplied(pulled: Pulled, value: Product, index: Index) -> Pulling:
    """A contraction: a stage with the axes of the product, at least m and n."""
    if not pulled.reads.is_inside(index, value.shape):
        raise NotOneKernelError(f"{value.name} is a product, and read at positions that it does not have", value)
    if not all(isinstance(i, Affine) for i in index):
        raise NotOneKernelError("an element of a product is looked up")
    if len(pulled.factors) > (1 if pulled.fusing.chained else 0):
        factor = _missing(pulled, pulled.factors[-1])
        reason = f"{factor.name} is multiplied, and computed from a product"
        raise NotOneKernelError(reason, factor, needed=not pulled.fusing.computed)
    own, others = value.precision, pulled.precision
    # Only products of 8-bit floats are "fast": with others in a kernel, none is.
    if own != others and ((own and others) or (pulled.multiplies and "fast" in (own, others))):
        raise NotOneKernelError(f"there are products as {others or 'ieee'} and as {own or 'ieee'}", value)
    # Before operands are pulled: these may have products of their own.
    pulled.precision = others or own
    index = _with_rows_and_columns(pulled, value, index)
    axes = axes_in(index)
    along_k = _summed_index(pulled, value, axes)
    over, loops = axes_in(along_k), (*index, *along_k)
    if pulled.multiplies and not pulled.fusing.chained and axes != pulled.output_axes:
        raise NotOneKernelError("there are products over different axes", value)
    pulled.contracted.append(over)
    a = yield from _factor(pulled, value.a, tuple(loops[n] for n in value.a_loops))
    b = yield from _factor(pulled, value.b, tuple(loops[n] for n in value.b_loops))
    pulled.contracted.pop()
    _widen_output(pulled, value, axes)
    pulled.multiplies = True
    reduction = Reduction("sum", pulled.axes(over))
    made = pulled.access(Stage(value.name, pulled.axes(axes), ex.mul(a, b), reduction), value)
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


def _with_rows_and_columns(pulled: Pulled, value: Product, index: Index) -> Index:
    """The index of a product with an axis of extent 1 where its rows, or its columns, have none."""
    found = list(index)
    for name, loops, others in (("m", value.a_loops, value.b_loops), ("n", value.b_loops, value.a_loops)):
        own = [n for n in range(len(index)) if n in loops and n not in others]
        if not axes_in(tuple(index[n] for n in own)):
            found[own[-1]] = pulled.unit(index[own[-1]], name)
    return tuple(found)


def _summed_index(pulled: Pulled, value: Product, own: Sequence[str]) -> Index:
    """The index along the summed loops of a product, with at least one axis."""
    names = _summed_axes(pulled, value, own)
    found = [pulled.dimension(name, size) for name, size in zip(names, value.summed, strict=True)]
    if not axes_in(tuple(found)):
        found[-1] = pulled.unit(found[-1], names[-1])
    return tuple(found)


def _summed_axes(pulled: Pulled, value: Product, own: Sequence[str]) -> tuple[str, ...]:
    """The axes that a product sums over: those of other products, if their extents are equal and they are none of the
    product's own.
    """
    names = (f"{pulled.prefix}k{number or ''}" for number in itertools.count())
    if pulled.fusing.chained:
        # An axis may be cut in two.
        free = (n for n in names if not {n, f"{n}o", f"{n}i"} & {*own})
        return tuple(next(n for n in free if pulled.summed.setdefault(n, size) == size) for size in value.summed)
    taken = tuple(itertools.islice(names, len(value.summed)))
    alike = all(size == pulled.extents.get(n, 1) for n, size in zip(taken, value.summed, strict=True))
    if pulled.multiplies and not (pulled.fusing.computed and alike):
        raise NotOneKernelError("there are several products", value)
    return taken


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
    if _is_window(pulled, read, value):
        return read
    operand = pulled.reads.read_by(read)
    if operand is None and _may_be_computed(pulled, read):
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


def _is_window(pulled: Pulled, read: Expression, value: Value) -> bool:
    """True for elements of a tensor in memory at affine indices, 0 outside of it: tiles of these are loaded."""
    if not isinstance(read, Access) or read.fill not in (None, 0):
        return False
    operand = next((o for o in pulled.reads.operands.values() if o.name == read.tensor), None)
    return operand is not None and not operand.is_plain and operand.value.dtype == value.dtype


def _may_be_computed(pulled: Pulled, factor: Expression) -> bool:
    """True if a product may multiply an expression instead of a tensor in memory."""
    stages = {s.name for s in pulled.stages}
    folded = any(a.tensor in stages for a in accesses(factor)) or next(iter(gathers(factor)), None)
    if (pulled.fusing.chained and folded) or _repeats_a_table(pulled, factor):
        return True
    places = Counter(a.tensor for a in distinct(factor) if isinstance(a, Access))
    return pulled.fusing.computed and max(places.values(), default=0) <= _MOST_PLACES


def _repeats_a_table(pulled: Pulled, factor: Expression) -> bool:
    """True for elements looked up in a tensor that has fewer: stored, they would take more memory than it does.

    A matrix for each row of a grouped product is such, which takes far more unless there are few rows.
    """
    if not isinstance(factor, Gather):
        return False
    if any(map(segments, factor.looked_up)):
        return True
    table = next(o.value for o in pulled.reads.operands.values() if o.name == factor.tensor)
    return math.prod(pulled.extents[v] for v in variables(factor)) > table.elements


def _missing(pulled: Pulled, factor: Value) -> Value:
    """The value to store for a product: the base of a view or copy, or the factor itself."""
    base = base_of(factor, pulled.stored)
    if isinstance(base, Gathered) and base.elements > base.table.elements:
        # What has fewer elements, of which the product then reads any.
        table = base_of(base.table, pulled.stored)
        return base.table if table in pulled.stored else table
    copied = base
    while isinstance(copied, Pointwise) and copied not in pulled.stored and copied.is_copy:
        copied = base_of(copied.arguments[0], pulled.stored)
    found = base if copied in pulled.stored else copied
    return factor if found in pulled.stored else found
