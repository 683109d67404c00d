"""Loops of sums of products, and the indices of their factors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from autosched.tracing.values.values import Value
from autosched.tracing.values.views import Expansion, Permutation, Reshape

# Per dimension of a tensor the loops along it, outermost first, as the digits of a number; none where it has size 1.
LoopIndex = tuple[tuple[int, ...], ...]


class LoopCutError(Exception):
    """No loops correspond to a dimension: it begins within one of them, say, at no whole number of its iterations."""


@dataclass
class Loops:
    """Loops by number. One may be split into two, so that indices that have it are resolved late, by `flat`."""

    _extents: list[int] = field(default_factory=list)
    _split: dict[int, tuple[int, int]] = field(default_factory=dict)

    def new(self, extent: int) -> tuple[int, ...]:
        """A new loop as the index of a dimension."""
        if extent == 1:
            return ()
        self._extents.append(extent)
        return (len(self._extents) - 1,)

    def extent(self, loops: Iterable[int]) -> int:
        return math.prod(self._extents[loop] for loop in loops)

    def flat(self, loops: Iterable[int]) -> tuple[int, ...]:
        """The loops, each that was split as its parts."""
        return tuple(
            part for loop in loops for part in (self.flat(self._split[loop]) if loop in self._split else (loop,))
        )

    def regrouped(self, index: LoopIndex, shape: Sequence[int]) -> LoopIndex:
        """The index of a tensor of this shape, for an index of its elements in order in another one.

        Raises:
            LoopCutError: no loops correspond to a dimension.
        """
        rest = [loop for loops in index for loop in self.flat(loops)]
        return tuple(self._taken(rest, size) for size in shape)

    def through(self, kind: object, index: LoopIndex, source: Sequence[int]) -> LoopIndex:
        """The index of a view's argument, of shape `source`, for an index of the view.

        Raises:
            LoopCutError: the view has not all of its elements, or no loops correspond to a dimension of it.
        """
        match kind:
            case Permutation(order=order):
                given = dict(zip(order, index, strict=True))
                return tuple(given[d] for d in range(len(order)))
            case Expansion():
                return broadcast(index, source)
            case Reshape():
                return self.regrouped(index, source)
            case _:
                raise LoopCutError

    def _taken(self, rest: list[int], size: int) -> tuple[int, ...]:
        """The first loops of `rest` that have `size` iterations together, one split where needed."""
        taken: list[int] = []
        while size > 1:
            loop = rest.pop(0)
            here = self._extents[loop]
            if here > size:
                if here % size:
                    raise LoopCutError
                (outer,), (inner,) = self.new(size), self.new(here // size)
                self._split[loop] = outer, inner
                rest.insert(0, inner)
                loop, here = outer, size
            if size % here:
                raise LoopCutError
            taken.append(loop)
            size //= here
        return tuple(taken)


def broadcast(index: LoopIndex, shape: Sequence[int]) -> LoopIndex:
    """The index of a tensor of this shape, for an index of its broadcast."""
    ours = index[len(index) - len(shape) :]
    return tuple(() if size == 1 else loops for loops, size in zip(ours, shape, strict=True))


@dataclass(frozen=True, eq=False)
class Factor:
    """A tensor read at an index."""

    value: Value
    index: LoopIndex


@dataclass(frozen=True, eq=False)
class Monomial:
    """A product of factors times a number, summed over the loops that the result does not have."""

    factors: tuple[Factor, ...]
    coefficient: float = 1.0


@dataclass(frozen=True, eq=False)
class SumOfProducts:
    """`result` as a sum of monomials.

    `index`: of the result. `cost`: of computing it as it is written (see `costs`). `contractions`: sums in it.
    `narrow`: the 16-bit type to which intermediate results are rounded, "" for none; `precision`: of its products.
    """

    result: Value
    loops: Loops
    index: LoopIndex
    monomials: tuple[Monomial, ...]
    cost: float
    contractions: int
    narrow: str
    precision: str

    @property
    def kept(self) -> tuple[int, ...]:
        """The loops of the result."""
        return tuple(loop for loops in self.index for loop in self.loops.flat(loops))

    def loops_of(self, factor: Factor) -> tuple[int, ...]:
        """The loops of a factor, one per dimension of it as `tensor` has it."""
        return tuple(loop for loops in factor.index for loop in self.loops.flat(loops))
