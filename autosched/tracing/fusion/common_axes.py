"""Alignment of another output of a kernel with the kernel's axes.

A value is pulled with axes of its own first. It shares reads or computed values with other outputs of the kernel; where
both access the same memory with the same strides, their axes are the same:

    out[i, j] = h[i, j] * scale[i]     h has strides {i: 4096, j: 1}
    top[a]    = max over b of h[a, b]  h has strides {a: 4096, b: 1}, so that a is i
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from autosched.tracing.values.elements import element
from autosched.tracing.values.pulled import NotOneKernelError, Pulled, axes_in
from autosched.tracing.values.values import Extents, Index, Value
from autosched.tracing.values.views import AxisCutError
from search_spaces.workloads.expressions.affine import Affine, axis_index

# Distance of neighbours along each axis, in elements of memory.
AxisStrides = Mapping[str, int]


def index_among(value: Value, kernel: Pulled, number: int) -> Index:
    """The index of an element of the value by the axes of the kernel, as far as they are common.

    `number`: of values pulled before.

    Raises:
        NotOneKernelError: they have no axis in common, or the value cannot be computed with them.
        AxisCutError: an axis of either is two of the other.
    """
    for met, at in kernel.known:
        if met is value and _covers(at, value.shape, kernel.extents):
            return at
    alone = Pulled(kernel.stored, kernel.cuts, kernel.fusing, prefix=f"v{number}")
    index = tuple(alone.dimension(f"v{number}d{d}", size) for d, size in enumerate(value.shape))
    own = alone.output_axes = axes_in(index)
    element(alone, value, index)
    mine, theirs = _axis_strides(alone), _axis_strides(kernel)
    common = [v for v in mine if v in theirs]
    known = _known_axes(own, [(a, b) for v in common for a in mine[v] for b in theirs[v]], alone, kernel)
    if not common or (own and not known):
        raise NotOneKernelError(f"{value.name} has no axis in common with the other outputs")
    for axis in own:
        if axis not in known:
            kernel.extend(axis, alone.extents[axis])
    return tuple(_renamed(at, known) for at in index)


def _covers(index: Index, shape: Sequence[int], extents: Extents) -> bool:
    """True if the index takes every element of the shape once."""
    forms = [at for at in index if isinstance(at, Affine)]
    axes = [v for form in forms for v, _ in form.terms]
    whole = math.prod(extents[v] for v in axes) == math.prod(shape) and len(set(axes)) == len(axes) and axes
    ends = [(form.minimum(extents), form.maximum(extents)) for form in forms]
    return bool(whole) and ends == [(0, size - 1) for size in shape]


def _renamed(at: object, names: Mapping[str, str]) -> Affine:
    assert isinstance(at, Affine)
    return at.substituted({v: axis_index(names.get(v, v)) for v, _ in at.terms})


def _known_axes(
    own: Sequence[str], pairs: Sequence[tuple[AxisStrides, AxisStrides]], alone: Pulled, kernel: Pulled
) -> dict[str, str]:
    """The kernel's axis for each of the value's own axes, from strides of common tensors; the largest access decides
    first.
    """
    found: dict[str, str] = {}
    for mine, other in sorted(pairs, key=lambda pair: -math.prod(alone.extents[a] for a in pair[0])):
        same = dict(_same_axes(own, mine, other, alone, kernel))
        agreeing = all(found.get(a, b) == b for a, b in same.items())
        if agreeing and len({**found, **same}) == len({*found.values(), *same.values()}):
            found |= same
    return found and _with_equal_extents(found, own, alone, kernel)


def _with_equal_extents(found: Mapping[str, str], own: Sequence[str], alone: Pulled, kernel: Pulled) -> dict[str, str]:
    """The known axes, and those without common access matched by equal extents, in order."""
    known = dict(found)
    for axis in own:
        free = (a for a in kernel.output_axes if a not in known.values())
        same = next((a for a in free if kernel.extents[a] == alone.extents[axis]), None)
        if axis not in known and same is not None:
            known[axis] = same
    return known


def _axis_strides(pulled: Pulled) -> dict[Value, list[AxisStrides]]:
    """The strides of every visited value's accesses, in its memory, or in dense memory if it is not stored."""
    addresses = list(pulled.reads.addresses)
    for value, index in pulled.known:
        if value not in pulled.stored and all(isinstance(at, Affine) for at in index):
            steps = zip(index, value.memory_strides, strict=True)
            addresses.append((value, sum((at * s for at, s in steps if isinstance(at, Affine)), Affine())))
    found: dict[Value, list[AxisStrides]] = {}
    for value, address in addresses:
        # At any offset, and backwards as well.
        found.setdefault(value, []).append({axis: abs(step) for axis, step in address.terms})
    return found


def _same_axes(
    own: Sequence[str], mine: AxisStrides, other: AxisStrides, alone: Pulled, kernel: Pulled
) -> Iterator[tuple[str, str]]:
    """The value's own axes paired with the kernel's axes of equal stride and extent.

    Raises:
        AxisCutError: both access the same elements, with more axes on one side.
    """
    alike = math.prod(alone.extents[a] for a in mine) == math.prod(kernel.extents[a] for a in other)
    by_step = {step: axis for axis, step in other.items() if kernel.extents[axis] > 1}
    for axis in own:
        step = mine.get(axis, 0)
        same = by_step.get(step)
        if same is None:
            if step and alike:
                _cut_at(step, other, kernel.extents)
            continue
        here, there = alone.extents[axis], kernel.extents[same]
        if here == there:
            yield axis, same
        elif alike and there % here == 0:
            raise AxisCutError(same, here)
        elif alike and here % there == 0:
            raise AxisCutError(axis, there)


def _cut_at(step: int, strides: AxisStrides, extents: Extents) -> None:
    """Raise AxisCutError for an axis whose steps lie both within and beyond `step` elements."""
    for axis, own in strides.items():
        inner = step // own if own and step % own == 0 else 1
        if 1 < inner < extents[axis] and extents[axis] % inner == 0:
            raise AxisCutError(axis, inner)
