"""Elements of traced values as expressions of tensors in memory, pulled from the output of a kernel downwards.

Reductions and products on the way become stages; views only change the index.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from autosched.tracing.values.folds import folded, scanned
from autosched.tracing.values.outside import constant_outside
from autosched.tracing.values.positions import beyond, index_of, is_below, is_inside, moved
from autosched.tracing.values.products import multiplied
from autosched.tracing.values.pulled import NotOneKernelError, Pulled, Pulling
from autosched.tracing.values.stacks import Stack, are_alike
from autosched.tracing.values.templates import filled
from autosched.tracing.values.tensor_reads import MemoryView, base_of, memory_view, overlaps
from autosched.tracing.values.values import (
    Arange,
    Gathered,
    Index,
    Joined,
    Padded,
    Pointwise,
    Product,
    Reduced,
    Scanned,
    Segments,
    Value,
    View,
)
from autosched.tracing.values.views import AxisCutError, NotAffineError, expanded, quotient
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Expression, Literal, Position

# Nodes in the expressions of one kernel. More takes longer to compile than it saves.
_MOST_PARTS = 3000
# Operators nested in one expression. Printing, writing and reading it recurses two or three calls per operator, and
# Python allows a thousand. So many operators take longer than moving a tensor to memory.
_MOST_DEPTH = 150


def element(pulled: Pulled, value: Value, index: Index) -> Expression:
    """The element of the value at the index, as an expression of tensors in memory.

    Pending operands wait in a list, not on Python's stack: dependence chains may be long.
    """
    waiting = [((value, index), _made(pulled, value, index))]
    given: Expression | None = None
    while waiting:
        key, pulling = waiting[-1]
        try:
            wanted = next(pulling) if given is None else pulling.send(given)
        except StopIteration as end:
            waiting.pop()
            given = pulled.known[key] = _bounded(pulled, key[0], end.value)
        else:
            given = pulled.known.get(wanted)
            if given is None:
                waiting.append((wanted, _made(pulled, *wanted)))
    assert given is not None
    return given


def _bounded(pulled: Pulled, value: Value, made: Expression) -> Expression:
    """The expression of an element of the value, unless it is too large for a kernel."""
    if ex.parts(made) <= _MOST_PARTS and ex.depth(made) <= _MOST_DEPTH:
        return made
    reason = f"the expression of {value.name} has over {_MOST_PARTS} parts, or {_MOST_DEPTH} within each other"
    sizes = {v: max(ex.parts(e) / _MOST_PARTS, ex.depth(e) / _MOST_DEPTH) for (v, _), e in pulled.known.items()}
    below = [base_of(o, pulled.stored) for o in value.operands]
    computed = [o for o in below if o.operands and o not in pulled.stored and _reads(pulled, o)]
    largest = max(computed, key=lambda o: sizes.get(o, 0.0), default=None)
    raise NotOneKernelError(reason, largest, needed=largest is not None)


def _reads(pulled: Pulled, value: Value) -> bool:
    """True if it is computed of anything in memory."""
    rest, seen = [value], {value}
    while rest:
        new = [o for o in rest.pop().operands if o not in seen]
        if any(o in pulled.stored for o in new):
            return True
        seen.update(new)
        rest += new
    return False


def _made(pulled: Pulled, value: Value, index: Index) -> Pulling:
    pulled.reached.add(value)
    if value in pulled.stored:
        return pulled.read(MemoryView(value, value.shape, pulled.stored[value], 0), index)
    match value:
        case View():
            return (yield from _viewed(pulled, value, index))
        case Pointwise(arguments=arguments, expression=expression):
            elements = []
            for argument in arguments:
                elements.append((yield argument, expanded(index, argument.shape)))
            return filled(expression, elements)
        case Arange(start=start, step=step):
            return _as_value(index[0], step, start, is_integer(value.dtype))
        case Reduced():
            return (yield from folded(pulled, value, index))
        case Scanned():
            return (yield from scanned(pulled, value, index))
        case Product():
            return (yield from multiplied(pulled, value, index))
        case Gathered(table=table, index=chosen):
            at: list[Affine | Expression] = []
            for i in chosen:
                if isinstance(i, int):
                    at.append(index[i])
                    continue
                found = yield i, expanded(index, i.shape)
                at.append(index_of(found, pulled.extents))
            return (yield table, tuple(at))
        case Segments(ends=ends, position=position):
            found = yield position, index
            return pulled.segment(ends, index_of(found, pulled.extents))
        case Padded():
            return (yield from _padded(pulled, value, index))
        case Joined():
            return (yield from _joined(pulled, value, index))
        case _:
            raise NotOneKernelError(f"{value.name} is left to PyTorch", value)


def _viewed(pulled: Pulled, view: View, index: Index) -> Pulling:
    strided = memory_view(view, pulled.stored)
    if strided is not None and overlaps(strided):
        strided = None
    inside = pulled.reads.is_inside(index, view.shape)
    if strided is not None and inside and pulled.factors:
        return pulled.read(strided, index)
    try:
        at = view.kind.source_index(index, pulled.extents)
    except (NotAffineError, AxisCutError) as error:
        if strided is not None:
            return pulled.read(strided, index)
        if isinstance(error, AxisCutError):
            raise
        base = base_of(view, pulled.stored)
        stored = None if base in pulled.stored else base
        raise NotOneKernelError(f"{view.name} is no affine view", stored) from None
    # Several views of one tensor are then one input; elements outside of a view are never used.
    return (yield view.argument, at)


def _padded(pulled: Pulled, value: Padded, index: Index) -> Pulling:
    """An element of the argument, or the fill outside of it: a guarded read, if the argument is in memory."""
    argument = value.argument
    at = tuple(moved(i, -before) for i, before in zip(index, value.before, strict=True))
    inside: list[Expression] = []
    for i, size in zip(at, argument.shape, strict=True):
        if isinstance(i, Affine) and beyond(i, size, pulled.extents):
            return value.fill
        inside += is_inside(i, size, pulled.extents)
    strided = memory_view(argument, pulled.stored)
    affine = all(isinstance(i, Affine) for i in at)
    if strided is not None and affine and not overlaps(strided) and isinstance(value.fill, Literal | ex.Integer):
        return pulled.read(strided, at, value.fill.value)
    found = yield argument, at
    if not inside or (affine and value.fill == constant_outside(found, at, argument.shape, pulled.reads)):
        return found
    return ex.call("where", functools.reduce(ex.mul, inside), found, value.fill)


def _joined(pulled: Pulled, value: Joined, index: Index) -> Pulling:
    """An element of the part that contains the position; parts that cannot contain it are not visited."""
    at, dim = index[value.dim], value.dim
    place, within = _place_in_stack(pulled, value, at)
    if place is not None:
        found = []
        for part in value.parts:
            found.append((yield part, (*index[:dim], within, *index[dim + 1 :])))
        dtypes = dict.fromkeys((s.name for s in pulled.stages), "float32")
        dtypes |= {read.name: read.value.dtype for read in pulled.reads.operands.values()}
        return Stack(place, dtypes).together(found) or _chosen(place, [*enumerate(found, start=1)])
    chosen: list[tuple[int, Expression]] = []
    begin, last = 0, value.parts[-1]
    for part in value.parts:
        end = begin + part.shape[dim]
        below = part is not last and isinstance(at, Affine) and at.minimum(pulled.extents) >= end
        if not below:
            there = yield part, (*index[:dim], moved(at, -begin), *index[dim + 1 :])
            chosen.append((end, there))
        if isinstance(at, Affine) and at.maximum(pulled.extents) < end:
            break
        begin = end
    return _chosen(at, chosen)


def _chosen(at: Affine | Expression, parts: Sequence[tuple[int, Expression]]) -> Expression:
    """The first of the parts whose end is above the position."""
    *others, (_, found) = parts
    for end, there in reversed(others):
        found = ex.call("where", is_below(at, end), there, found)
    return found


def _place_in_stack(
    pulled: Pulled, value: Joined, at: Affine | Expression
) -> tuple[Affine | None, Affine | Expression]:
    """The number of the part and the position in it, if parts differ in constants alone; else None and the position.

    What they read is then read once for all.

    Raises:
        AxisCutError: there would be a number with that axis split in two.
    """
    if not isinstance(at, Affine) or not are_alike(value.parts):
        return None, at
    try:
        place, within = quotient(at, value.parts[0].shape[value.dim], len(value.parts), pulled.extents)
    except NotAffineError:
        return None, at
    return (place, within) if place.terms else (None, at)


def _as_value(at: Affine | Expression, step: int, start: int, whole: bool) -> Expression:
    """`start + step * at`, as an integer if it is `whole`, or else as a float32; data is an integer."""
    if isinstance(at, Affine):
        form = at * step + Affine(offset=start)
        if not form.terms:
            return ex.Integer(form.offset) if whole else Literal(float(form.offset))
        return ex.call("to_integer", Position(form)) if whole else Position(form)
    scale = at if step == 1 else ex.mul(at, ex.Integer(step))
    number = scale if start == 0 else ex.add(scale, ex.Integer(start))
    return number if whole else ex.call("to_float", number)
