"""Views as data (`values.ViewKind`), one class per kind: each maps an index of the view to one of its source.

`source` is the shape of the source; dimensions are counted from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from autosched.tracing.values.values import Extents, Index
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Expression


@dataclass(frozen=True)
class AxisCutError(Exception):
    """An index is affine only with this axis split in two: `inner` positions of the second for each of the first."""

    axis: str
    inner: int


class NotAffineError(Exception):
    """No affine index of the source corresponds to the index of the view."""


@dataclass(frozen=True)
class Placement:
    """x.as_strided(shape, strides), `offset` elements behind the first of x: a result's place in memory.

    Kernels meet none of these: nothing is computed from results.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.as_strided(self.shape, self.strides, tensor.storage_offset() + self.offset)

    def source_index(self, index: Index, extents: Extents) -> Index:
        raise NotAffineError


def affine(at: Affine | Expression) -> Affine:
    """The index, which must be no data."""
    if not isinstance(at, Affine):
        raise NotAffineError
    return at


@dataclass(frozen=True)
class Permutation:
    """x.permute(order)"""

    order: tuple[int, ...]

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.permute(self.order)

    def source_index(self, index: Index, extents: Extents) -> Index:
        given = dict(zip(self.order, index, strict=True))
        return tuple(given[d] for d in range(len(self.order)))


@dataclass(frozen=True)
class Expansion:
    """x.expand(shape)"""

    source: tuple[int, ...]
    shape: tuple[int, ...]

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.expand(self.shape)

    def source_index(self, index: Index, extents: Extents) -> Index:
        return expanded(index, self.source)


@dataclass(frozen=True)
class Reshape:
    """x.reshape(shape), which leaves the order of the elements as it is."""

    source: tuple[int, ...]
    shape: tuple[int, ...]

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(self.shape)

    def source_index(self, index: Index, extents: Extents) -> Index:
        if all(isinstance(i, Affine) for i in index):
            return reshaped(tuple(map(affine, index)), self.shape, self.source, extents)
        kept = [i for i, size in zip(index, self.shape, strict=True) if size > 1]
        if [n for n in self.shape if n > 1] != [n for n in self.source if n > 1]:
            raise NotAffineError
        ours = iter(kept)
        return tuple(next(ours) if size > 1 else Affine() for size in self.source)


@dataclass(frozen=True)
class Slicing:
    """`count` elements along a dimension, from `start` on, every `step`-th, or backwards where it is below 0."""

    dim: int
    start: int
    step: int
    count: int

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.step < 0:
            raise RuntimeError("no tensor has negative strides")
        stop = self.start + self.count * self.step
        return tensor[(*(slice(None),) * self.dim, slice(self.start, stop, self.step))]

    def source_index(self, index: Index, extents: Extents) -> Index:
        here = affine(index[self.dim]) * self.step + Affine(offset=self.start)
        return (*index[: self.dim], here, *index[self.dim + 1 :])


@dataclass(frozen=True)
class Selection:
    """x.select(dim, at): one position along a dimension, which the view does not have."""

    dim: int
    at: int

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.select(self.dim, self.at)

    def source_index(self, index: Index, extents: Extents) -> Index:
        return (*index[: self.dim], Affine(offset=self.at), *index[self.dim :])


@dataclass(frozen=True)
class Diagonal:
    """x.diagonal(offset, first, second), which comes last."""

    offset: int
    first: int
    second: int

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.diagonal(self.offset, self.first, self.second)

    def source_index(self, index: Index, extents: Extents) -> Index:
        *others, last = index
        along, rest = affine(last), iter(others)
        places = {
            self.first: along + Affine(offset=max(-self.offset, 0)),
            self.second: along + Affine(offset=max(self.offset, 0)),
        }
        return tuple(places[d] if d in places else next(rest) for d in range(len(index) + 1))


@dataclass(frozen=True)
class Windows:
    """x.unfold(dim, size, step): windows along a dimension, whose positions come last, `spacing` elements apart."""

    dim: int
    size: int
    step: int
    spacing: int = 1

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        whole = tensor.unfold(self.dim, (self.size - 1) * self.spacing + 1, self.step)
        return whole[..., :: self.spacing]

    def source_index(self, index: Index, extents: Extents) -> Index:
        *others, inner = index
        here = affine(others[self.dim]) * self.step + affine(inner) * self.spacing
        return (*others[: self.dim], here, *others[self.dim + 1 :])


@dataclass(frozen=True)
class Strided:
    """x.as_strided(shape, strides, offset) of a dense tensor of one dimension."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        step, start = tensor.stride(0), tensor.storage_offset()
        return tensor.as_strided(self.shape, [s * step for s in self.strides], start + self.offset * step)

    def source_index(self, index: Index, extents: Extents) -> Index:
        along = zip(map(affine, index), self.strides, strict=True)
        return (sum((at * stride for at, stride in along), Affine(offset=self.offset)),)


def expanded(index: Index, shape: Sequence[int]) -> Index:
    """The index of x of that shape, for an index of a broadcast of x."""
    ours = index[len(index) - len(shape) :]
    return tuple(Affine() if size == 1 else at for at, size in zip(ours, shape, strict=True))


def reshaped(index: Sequence[Affine], shape: Sequence[int], source: Sequence[int], extents: Extents) -> Index:
    """The index of x of shape `source`, for an index of x.reshape(shape).

    Raises:
        AxisCutError: there would be one with that axis split in two.
        NotAffineError: there is none.
    """
    found = [Affine()] * len(source)
    for ours, theirs in _groups(shape, source):
        if len(ours) == len(theirs) == 1:
            # Unchanged, also where it is outside.
            found[theirs[0]] = index[ours[0]]
            continue
        number = sum((index[d] * math.prod(shape[i] for i in ours if i > d) for d in ours), Affine())
        for d in theirs:
            inner = math.prod(source[i] for i in theirs if i > d)
            found[d], number = quotient(number, inner, source[d], extents)
    return tuple(found)


def _groups(shape: Sequence[int], source: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The dimensions of both shapes in groups of equal size, as small as possible, without dimensions of size 1."""
    ours, theirs = ([d for d, size in enumerate(s) if size > 1] for s in (shape, source))
    while ours:
        first, second = [ours.pop(0)], [theirs.pop(0)]
        while (here := math.prod(shape[d] for d in first)) != (there := math.prod(source[d] for d in second)):
            (first if here < there else second).append((ours if here < there else theirs).pop(0))
        yield first, second


def quotient(number: Affine, inner: int, size: int, extents: Extents) -> tuple[Affine, Affine]:
    """`number` as inner * q + r with 0 <= r < inner, of an index below inner * size.

    Raises:
        AxisCutError: q and r would be affine with that axis split in two.
        NotAffineError: q and r are not affine.
    """
    if size == 1:
        return Affine(), number
    whole = [(v, c // inner) for v, c in number.terms if c % inner == 0]
    rest = Affine.of(*((v, c) for v, c in number.terms if c % inner), offset=number.offset % inner)
    for variable, coefficient in rest.terms:
        # An axis that steps within and beyond `inner`: cut where it has filled it.
        if coefficient > 0 and inner % coefficient == 0:
            steps = inner // coefficient
            if extents[variable] > steps:
                if extents[variable] % steps:
                    raise NotAffineError
                raise AxisCutError(variable, steps)
    if rest.minimum(extents) < 0 or rest.maximum(extents) >= inner:
        raise NotAffineError
    return Affine.of(*whole, offset=number.offset // inner), rest
