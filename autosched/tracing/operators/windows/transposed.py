"""Transposed convolutions, which gradients to the inputs of convolutions are, too, as ordinary ones.

    out[o] = sum over i, r with step*i + spacing*r - before = o of x[i] * w[r]

Every residue of o by the step has a set of taps of its own. With the residues as columns, like filters, one sum of
products computes all of them, if each has as many taps (missing ones would multiply infinities by 0):

    out[step*u + e - before] = sum over t of x[u - t] * w[step*t + e]

Otherwise it is an ordinary convolution for each residue. Its results are stored at their places in the whole, or a
kernel that reads them interleaves them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from autosched.tracing.operators.joining_rules import joined
from autosched.tracing.operators.parts import in_parts
from autosched.tracing.operators.rules import Result, constant_number, reshape
from autosched.tracing.operators.view_translation import permute, piece, view
from autosched.tracing.operators.windows.convolved import Geometry, ordinary, summed
from autosched.tracing.operators.windows.windows import Window, covered, windowed
from autosched.tracing.values.values import Value
from autosched.tracing.values.views import Slicing
from search_spaces.workloads.strides import dense_strides, memory_order

# Bytes that memory moves during a launch; larger results have a launch for every residue.
_LAUNCH_BYTES = 8e6
# Rounding of the sums of a result or a part of it, with what is added before.
Finish = Callable[[Result, Value], Value]


def transposed(result: Result, x: Value, weight: Value, geometry: Geometry, groups: int, finish: Finish) -> Value:
    """A transposed convolution with weights [channels, filters of a group, taps …]."""
    stride, _, dilation = geometry
    taps = weight.shape[2:]
    even = all(k % s == 0 for k, s in zip(taps, stride, strict=True))
    large = result.whole and 2 * result.of(Value).bytes > math.prod(stride) * _LAUNCH_BYTES
    if max(stride) > 1 and set(dilation) == {1} and even and not (large and _is_cropped(result, geometry)):
        return _by_columns(result, x, weight, geometry, groups, finish)
    turned = _exchanged(result, weight, groups)
    sizes = zip(result.shape[2:], taps, *geometry, strict=True)
    along = [list(_residues(size, *of)) for size, *of in sizes]
    chosen = list(itertools.product(*(range(len(r)) for r in along)))
    steps = [len(r) for r in along]
    laid = replace(result, strides=_channels_last(result.shape)) if large and _alternate(result, steps) else result
    if all(taps for of in along for taps, *_ in of) and _is_best_in_parts(laid, steps):
        of_laid = partial(_of_residue, laid, x, turned, groups=groups, finish=finish)
        parts = [of_laid([r[n] for r, n in zip(along, c, strict=True)]) for c in chosen]
        made = in_parts(laid.of(Value), parts, [(0, 0, *c) for c in chosen], (1, 1, *steps))
        if made is not None:
            return made if laid is result else result.elementwise(lambda x: x, made)
    of_residue = partial(_of_residue, result, x, turned, groups=groups, finish=finish)
    longest = [[(taps, place, spacing, of[0][-1]) for taps, place, spacing, _ in of] for of in along]
    parts_of = {c: of_residue([r[n] for r, n in zip(longest, c, strict=True)]) for c in chosen}
    return _interleaved(result, parts_of, [len(r) for r in along])


def _is_cropped(result: Result, geometry: Geometry) -> bool:
    """True if all residues at once have positions beyond the result's: it is copied without them."""
    stride, padding, _ = geometry
    sizes = zip(result.shape[2:], stride, padding, strict=True)
    return any(before % step or (before + size) % step for size, step, before in sizes)


def _is_best_in_parts(result: Result, steps: Sequence[int]) -> bool:
    """True if parts stored in place are faster than a kernel that interleaves them.

    That reads and writes all of it once more, and where residues have unequal numbers, once for every dimension.
    """
    if not result.whole or max(steps) == 1:
        return False
    unequal = any(size % step for size, step in zip(result.shape[2:], steps, strict=True))
    return unequal or not _alternate(result, steps)


def _alternate(result: Result, steps: Sequence[int]) -> bool:
    """True if parts alternate within sectors of memory: they are written at half the speed.

    Where the result is large, its parts are stored with channels innermost, and copied.
    """
    strides = dense_strides(result.shape) if result.strides is None else result.strides
    return any(step > 1 and stride == 1 for step, stride in zip(steps, strides[2:], strict=True))


def _channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Dense strides with the second dimension innermost."""
    batch, channels, *sizes = shape
    first, *along, last = dense_strides((batch, *sizes, channels))
    return (first, last, *along)


def _by_columns(result: Result, x: Value, weight: Value, geometry: Geometry, groups: int, finish: Finish) -> Value:
    """All residues at once: [n, groups, filters, u, e …], of which every position is step*u + e - before."""
    stride, padding, _ = geometry
    batch, filters, *sizes = result.shape
    count, inner, own = len(stride), x.shape[1] // groups, filters // groups
    windows, firsts = list[Window](), list[int]()
    for dim, (size, k, step, before) in enumerate(zip(sizes, weight.shape[2:], stride, padding, strict=True), 2):
        first, last = before // step, (size - 1 + before) // step
        taps = k // step
        windows.append(Window(dim, taps, 1, taps - 1 - first, 1, last - first + 1))
        firsts.append(before % step)
    image = covered(result, x, windows, 0.0)
    positions = [w.count for w in windows]
    whole = (batch, filters, *(n * s for n, s in zip(positions, stride, strict=True)))
    of_all = replace(result.part("whole", whole, result.dtype), strides=_in_order_of(result, whole))
    if constant_number(image) == 0:
        sums = of_all.constant(0.0, dtype="float32")
    else:
        image = reshape(
            windowed(result, image, windows), (batch, groups, inner, *positions, *(w.size for w in windows))
        )
        # Loops: image, group, filter, then u and e along every dimension, then channel and taps.
        along, beyond = 3 + 2 * count, 4 + 2 * count
        image_loops = (0, 1, along, *range(3, along, 2), *range(beyond, beyond + count))
        weight_loops = (1, along, 2, *(n for d in range(count) for n in (beyond + d, 4 + 2 * d)))
        apart = (batch, groups, own, *(n for u, s in zip(positions, stride, strict=True) for n in (u, s)))
        split = replace(of_all, shape=apart, strides=_split_strides(of_all, own, stride))
        taps_of = _taps_by_residue(weight, groups, stride, [w.size for w in windows])
        sums = reshape(summed(split, image, taps_of, apart, image_loops, weight_loops), whole)
    made = finish(of_all, sums)
    for dim, (first, size) in enumerate(zip(firsts, sizes, strict=True), 2):
        made = piece(made, dim, first, size)
    return made


def _taps_by_residue(weight: Value, groups: int, stride: Sequence[int], steps: Sequence[int]) -> Value:
    """Weights [groups, channels, filters, taps, residue …] with taps in reverse."""
    channels, own = weight.shape[:2]
    apart = (groups, channels // groups, own, *(n for pair in zip(steps, stride, strict=True) for n in pair))
    weight = reshape(weight, apart)
    for d, n in enumerate(steps):
        weight = piece(weight, 3 + 2 * d, n - 1, n, -1) if n > 1 else weight
    return weight


def _in_order_of(result: Result, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Dense strides of a shape with its dimensions in memory in the order of those of the result."""
    order = None if result.strides is None else memory_order(result.shape, result.strides)
    if order is None:
        return None
    inner = {d: math.prod(shape[i] for i in order[place + 1 :]) for place, d in enumerate(order)}
    return tuple(inner[d] for d in range(len(shape)))


def _split_strides(result: Result, filters: int, stride: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of a result with its channels as groups and filters, and positions as steps and residues."""
    if result.strides is None:
        return None
    batch, channel, *along = result.strides
    return (
        batch,
        channel * filters,
        channel,
        *(n for own, s in zip(along, stride, strict=True) for n in (own * s, own)),
    )


def _exchanged(result: Result, weight: Value, groups: int) -> Value:
    """Weights [channels, filters of a group, …] as [filters, channels of a group, …]."""
    channels, filters, *taps = weight.shape
    inner = channels // groups
    apart = reshape(weight, (groups, inner, filters, *taps))
    order = (0, 2, 1, *range(3, 3 + len(taps)))
    moved = permute(result.part("weight", (groups, filters, inner, *taps), weight.dtype), apart, order)
    return reshape(moved, (groups * filters, inner, *taps))


# Taps of one residue as (first, step, number), and what these are in x: position of the last for result 0, spacing,
# number of results.
_Residue = tuple[range, int, int, int]


def _residues(size: int, taps: int, step: int, before: int, spacing: int) -> Iterator[_Residue]:
    """For every residue along a dimension of the result: taps, place in x of result 0 by the last tap, their spacing
    in x, and the number of results.
    """
    apart = step // math.gcd(step, spacing)
    for residue in range(min(step, size)):
        first = next((r for r in range(min(apart, taps)) if (residue + before - spacing * r) % step == 0), None)
        own = range(0) if first is None else range(first, taps, apart)
        last = own[-1] if own else 0
        yield own, (residue + before - spacing * last) // step, apart * spacing // step, -(-(size - residue) // step)


def _of_residue(
    result: Result, x: Value, weight: Value, along: Sequence[_Residue], groups: int, finish: Finish
) -> Value:
    """The results at positions of one residue along every dimension; 0 where no tap is of that residue."""
    shape = (*result.shape[:2], *(count for *_, count in along))
    part = result.part("part", shape, result.dtype)
    windows: list[Window] = []
    for dim, (taps, place, spacing, count) in enumerate(along, 2):
        if not taps:
            return finish(part, part.constant(0.0, dtype="float32"))
        kept = (*weight.shape[:dim], len(taps), *weight.shape[dim + 1 :])
        backwards = Slicing(dim, taps[-1], -taps.step, len(taps))
        weight = view(result.part(f"taps_{dim}_{taps.start}", kept, weight.dtype), weight, backwards)
        windows.append(Window(dim, len(taps), 1, -place, spacing, count))
    named = replace(part, name=f"{part.name}_{'_'.join(str(taps.start) for taps, *_ in along)}")
    return finish(named, ordinary(named, x, weight, windows, groups))


def _interleaved(result: Result, parts: Mapping[tuple[int, ...], Value], residues: Sequence[int]) -> Value:
    """The parts of all residues as one, dimension by dimension from the last, cropped to the result's positions."""
    for axis, count in reversed(list(enumerate(residues))):
        dim, found = axis + 2, {}
        for rest in dict.fromkeys(chosen[:axis] for chosen in parts):
            own = [parts[*rest, n] for n in range(count)]
            found[rest] = own[0] if count == 1 else _alternating(result, own, dim)
        parts = found
    return parts[()]


def _alternating(result: Result, parts: Sequence[Value], dim: int) -> Value:
    """Elements of the parts in turn along a dimension, as many as the result has."""
    shape, size = parts[0].shape, result.shape[dim]
    if all(constant_number(p) == 0 for p in parts):
        return result.constant(
            0.0,
            name=f"{result.name}_residues_{dim}",
            shape=(*shape[:dim], size, *shape[dim + 1 :]),
            dtype=parts[0].dtype,
        )
    apart = [reshape(p, (*shape[: dim + 1], 1, *shape[dim + 1 :])) for p in parts]
    beside = (*shape[: dim + 1], len(parts), *shape[dim + 1 :])
    together = joined(result.part(f"residues_{dim}", beside, parts[0].dtype), apart, dim + 1)
    whole = (*shape[:dim], shape[dim] * len(parts), *shape[dim + 1 :])
    return piece(reshape(together, whole), dim, 0, size)
