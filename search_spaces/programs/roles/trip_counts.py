"""Trip counts of loops, at some tile and over all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from search_spaces.programs.statements import For, Let, statements
from search_spaces.programs.tile_program import Kernel, loop_extents
from search_spaces.programs.tiles import Bound


def fewest_iterations(kernel: Kernel, loop: For) -> int:
    """Fewest iterations of the loop in any program."""
    return min(_every(kernel, loop))


def most_iterations(kernel: Kernel, loop: For) -> int:
    """Most iterations of the loop in any program."""
    return max(_every(kernel, loop))


def _every(kernel: Kernel, loop: For) -> Iterator[int]:
    """The trip counts, for all values of the variables that decide them; of data none, and all iterations."""
    extents = loop_extents(kernel)
    own = (loop.bound,) if loop.bound else ()
    every = (*own, *loop.useful, *loop.until, *(b for group in loop.since for b in group))
    names = sorted({n for b in every for n, _ in b.start.terms if n != loop.variable and extents.get(n, 1) > 1})
    if any(s.variable in names for s in statements(kernel.body) if isinstance(s, Let)):
        return iter((0, loop.extent))
    places = (dict(zip(names, at, strict=True)) for at in itertools.product(*(range(extents[n]) for n in names)))
    return (iterations_at(loop, at) for at in places)


def iterations_at(loop: For, at: Mapping[str, int]) -> int:
    """Trip count of the loop at these values of the other variables."""
    bounds = (*((loop.bound,) if loop.bound else ()), *loop.useful)
    first = max([0, *(_first(loop, b, at) for b in bounds), *(_end(loop, group, at) for group in loop.since)])
    return _end(loop, (*bounds, *loop.until), at) - first


def _first(loop: For, bound: Bound, at: Mapping[str, int]) -> int:
    """The first iteration within a bound whose start becomes smaller."""
    step, begin = _along(loop, bound, at)
    return -((bound.size - 1 - begin) // -step) if step < 0 else 0


def _end(loop: For, bounds: Sequence[Bound], at: Mapping[str, int]) -> int:
    """The first iteration that is not within all bounds whose start grows."""
    along = [(b.size, *_along(loop, b, at)) for b in bounds]
    return min([loop.extent, *(-((begin - size) // step) for size, step, begin in along if step > 0)])


def _along(loop: For, bound: Bound, at: Mapping[str, int]) -> tuple[int, int]:
    step, rest = loop.along(bound)
    return step, rest.offset + sum(c * at.get(n, 0) for n, c in rest.terms)
