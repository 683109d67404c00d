"""Tensors with named axes: the reference broadcasts, gathers and contracts by axis name."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor whose dimensions, in order, are the axes called `axes`."""

    axes: tuple[str, ...]
    values: torch.Tensor

    def aligned(self, axes: Sequence[str]) -> torch.Tensor:
        """The values with dimensions in the order of `axes`, of size 1 for axes the tensor does not have."""
        order = [self.axes.index(a) for a in axes if a in self.axes]
        shape = [self.values.shape[self.axes.index(a)] if a in self.axes else 1 for a in axes]
        return self.values.permute(order).reshape(shape)


def union(tensors: Sequence[Named]) -> tuple[str, ...]:
    """Every axis of the tensors, in order of first appearance."""
    return tuple(dict.fromkeys(a for t in tensors for a in t.axes))


def held_exactly(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """The tensor in the type that represents its elements: int64 for integers, else `dtype`; None: as it is."""
    if dtype is None:
        return tensor
    whole = not tensor.is_floating_point() and tensor.dtype != torch.bool
    return tensor.to(torch.int64 if whole else dtype)


def read(
    access: Access, tensor: torch.Tensor, extents: Mapping[str, int], dtype: torch.dtype | None = torch.float64
) -> Named:
    """The elements that `access` reads of `tensor`, in `dtype`, one for every value of the axes in its index.

    Of a tensor of that type a view where every dimension is indexed by one axis of its own, else a copy. `dtype`: as of
    `held_exactly`.
    """
    if access.fill is not None:
        return look_up(tensor, access.index, extents, access.fill, dtype)
    variables = [v for index in access.index for v, _ in index.terms]
    if all(_is_slice(i) for i in access.index) and len(set(variables)) == len(variables):
        pieces = tuple(slice(i.offset, i.offset + extents[i.axes[0]]) if i.terms else i.offset for i in access.index)
        return Named(tuple(variables), held_exactly(tensor[pieces], dtype))
    axes = tuple(dict.fromkeys(variables))
    positions = tuple(_positions(index, axes, extents, tensor.device) for index in access.index)
    return Named(axes, held_exactly(tensor[positions], dtype).expand([extents[a] for a in axes]))


def look_up(
    tensor: torch.Tensor,
    index: Sequence[Affine | Named],
    extents: Mapping[str, int],
    outside: float,
    dtype: torch.dtype | None = torch.float64,
) -> Named:
    """The elements of `tensor`, in `dtype`, at indices that are affine forms or integers in tensors.

    `outside`: the value beyond its bounds; `dtype`: as of `held_exactly`. Nothing but the elements is converted: tables
    may be large.
    """
    forms = [v for i in index if isinstance(i, Affine) for v, _ in i.terms]
    axes = tuple(dict.fromkeys([*forms, *(a for i in index if isinstance(i, Named) for a in i.axes)]))
    positions: list[torch.Tensor] = []
    inside = torch.ones([1] * len(axes), dtype=torch.bool, device=tensor.device)
    for i, size in zip(index, tensor.shape, strict=True):
        at = _positions(i, axes, extents, tensor.device) if isinstance(i, Affine) else i.aligned(axes)
        within = (at >= 0) & (at < size)
        inside = inside & within
        positions.append(torch.where(within, at, 0).to(torch.int64))
    found = held_exactly(tensor[tuple(positions)], dtype)
    return Named(axes, torch.where(inside, found, torch.tensor(outside, dtype=found.dtype, device=found.device)))


def segment_of(ends: torch.Tensor, position: Named) -> Named:
    """The number of the sorted ends that are at most each of the positions, which are integers."""
    at = position.values.to(torch.int64).contiguous()
    return Named(position.axes, torch.bucketize(at, ends.to(torch.int64).contiguous(), right=True))


def count(index: Affine, extents: Mapping[str, int], device: torch.device, dtype: torch.dtype) -> Named:
    """The value of an affine form at every point of its axes."""
    axes = tuple(v for v, _ in index.terms)
    return Named(axes, _positions(index, axes, extents, device).to(dtype))


def _is_slice(index: Affine) -> bool:
    return not index.terms or (len(index.terms) == 1 and index.terms[0][1] == 1)


def _positions(index: Affine, axes: tuple[str, ...], extents: Mapping[str, int], device: torch.device) -> torch.Tensor:
    total = torch.full([1] * len(axes), index.offset, device=device)
    for variable, coefficient in index.terms:
        counted = torch.arange(extents[variable], device=device) * coefficient
        total = total + Named((variable,), counted).aligned(axes)
    return total


def product(tensors: Sequence[Named]) -> Named:
    """The product at every point of the union of the axes."""
    axes = union(tensors)
    values = tensors[0].aligned(axes)
    for other in tensors[1:]:
        values = values * other.aligned(axes)
    return Named(axes, values)


def sum_of_products(factors: Sequence[Named], kept: Sequence[str], reduced: Mapping[str, int]) -> Named:
    """The product of the factors summed over the axes `reduced` (name -> extent); only axes in `kept` are left.

    Factors that share only part of their axes go through torch.einsum, which does not materialise the product.
    """
    axes = union(factors)
    left = tuple(a for a in kept if a in axes)
    repeats = math.prod(extent for axis, extent in reduced.items() if axis not in axes)
    if any(set(axes) == set(f.axes) for f in factors):
        whole = product(factors)
        folded = [whole.axes.index(a) for a in whole.axes if a in reduced]
        summed = whole.values.sum(folded) if folded else whole.values
        result = Named(tuple(a for a in whole.axes if a not in reduced), summed)
    else:
        result = Named(left, _einsum([_in_the_sum(f, axes, reduced) for f in factors], axes, left))
    return result if repeats == 1 else Named(result.axes, result.values * repeats)


def _in_the_sum(factor: Named, axes: Sequence[str], reduced: Mapping[str, int]) -> Named:
    """The factor, broadcast along summed axes that it lacks if it has infinities.

    einsum moves factors that do not depend on these out of the sum, which is wrong for infinities: inf · 1 + inf · -2
    is NaN, and inf · (1 - 2) is not. Most factors lack none; looking at values makes a GPU wait.
    """
    missing = [a for a in axes if a in reduced and a not in factor.axes]
    if not missing or bool(factor.values.isfinite().all()):
        return factor
    values = factor.values[(..., *[None] * len(missing))]
    return Named((*factor.axes, *missing), values.expand(*factor.values.shape, *(reduced[a] for a in missing)))


def _einsum(factors: Sequence[Named], axes: tuple[str, ...], left: tuple[str, ...]) -> torch.Tensor:
    common = functools.reduce(torch.promote_types, (f.values.dtype for f in factors))
    operands: list[torch.Tensor | list[int]] = []
    for factor in factors:
        operands += [factor.values.to(common), [axes.index(a) for a in factor.axes]]
    summed: torch.Tensor = torch.einsum(*operands, [axes.index(a) for a in left])
    return summed
