"""Scans by any function of PyTorch's `associative_scan`, kept as one operator while a function is captured.

Before:  associative_scan(combine, (a, x), dim)      slices, as many as there are levels of a tree, or a module
After:   left, right = operand(a, 0, 0), …           formal parameters for elements on the left, and on the right
         combined = combine(left, right)             ordinary operators of these
         scanned([a, x], [left …], [right …], combined)

These operators are only markers: nothing executes them, and a kernel has their meaning.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

LIBRARY = "autosched_scans"
_OPERATORS = (
    "operand(Tensor element, int side, int number) -> Tensor",
    "scanned(Tensor[] elements, Tensor[] left, Tensor[] right, Tensor[] combined) -> Tensor[]",
)
_LIBRARY = torch.library.Library(LIBRARY, "DEF")
for _operator in _OPERATORS:
    _LIBRARY.define(_operator)
# PyTorch's scans along the first dimension: the general one, and the one for its own compiler.
_MODULE = "torch._higher_order_ops.associative_scan"
_GENERAL, _COMPILED = "generic_associative_scan", "_maybe_compile_and_run_fn"


def _operand(element: Tensor, side: int, number: int) -> Tensor:
    return torch.empty_like(element)


def _scanned(
    elements: Sequence[Tensor], left: Sequence[Tensor], right: Sequence[Tensor], combined: Sequence[Tensor]
) -> list[Tensor]:
    return [torch.empty_like(e) for e in elements]


torch.library.register_fake(f"{LIBRARY}::operand", _operand)
torch.library.register_fake(f"{LIBRARY}::scanned", _scanned)


@contextlib.contextmanager
def scans_kept() -> Iterator[None]:
    """A context in which scans are such operators."""
    module = importlib.import_module(_MODULE)
    before = {name: getattr(module, name) for name in (_GENERAL, _COMPILED) if hasattr(module, name)}

    def general(
        combine: Callable[..., Any], leaves: Sequence[Tensor], dim: int = 0, additional_inputs: Any = ()
    ) -> Any:
        if dim or additional_inputs:
            return before[_GENERAL](combine, leaves, dim, additional_inputs)
        return _marked(combine, leaves)

    def compiled(scan: Callable[..., Any], combine: Callable[..., Any], leaves: Sequence[Tensor]) -> Any:
        return _marked(combine, leaves)

    try:
        for name, function in {_GENERAL: general, _COMPILED: compiled}.items():
            if name in before:
                setattr(module, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _marked(combine: Callable[..., Any], leaves: Sequence[Tensor]) -> list[Tensor]:
    return list(cast(Callable[..., list[Tensor]], _Marked.apply)(combine, *leaves))


class _Marked(torch.autograd.Function):
    """A scan along the first dimension, and its gradient: a scan in the opposite direction.

    With y[t] = combine(y[t - 1], x[t]), and its derivatives M[t] by y[t - 1], the gradients of y are

        g[t] = given[t] + g[t + 1] M[t + 1]         from the last on
    """

    @staticmethod
    def forward(ctx: Any, combine: Callable[..., Any], *leaves: Tensor) -> tuple[Tensor, ...]:
        made = _scan(combine, leaves)
        ctx.combine = combine
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*leaves, *made)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        leaves, made = ctx.saved_tensors[: len(given)], ctx.saved_tensors[len(given) :]
        # Made from a gradient, so that the forward graph does not contain and store it.
        none_before = torch.zeros_like(next(g for g in given if g is not None)[:1])
        before = [torch.cat([none_before.to(y.dtype), y[:-1]]) for y in made]
        by_before, by_element = _slopes(ctx.combine, before, leaves)
        gradients = _accumulated(given, by_before)
        first = torch.arange(len(leaves[0]), device=leaves[0].device).reshape(-1, *(1,) * (leaves[0].ndim - 1)) == 0
        found: list[Tensor | None] = []
        for n in range(len(leaves)):
            terms = ((gradients.get(i), slopes[n]) for i, slopes in enumerate(by_element))
            later = [g * slope for g, slope in terms if g is not None and slope is not None]
            own = gradients.get(n)
            if own is None and later:
                own = torch.zeros_like(leaves[n])
            found.append(None if own is None else torch.where(first, own, _sum(later) if later else 0.0))
        return None, *found


def _scan(combine: Callable[..., Any], leaves: Sequence[Tensor]) -> list[Tensor]:
    operators = torch.ops.autosched_scans
    left, right = ([operators.operand(x, side, n) for n, x in enumerate(leaves)] for side in range(2))
    return list(operators.scanned(list(leaves), left, right, tree_leaves(combine(*left, *right))))


def _moved(values: Tensor, by: int) -> Tensor:
    """The values shifted by that many positions along the first dimension, filled with zeros."""
    return torch.nn.functional.pad(values, (*(0,) * (2 * values.ndim - 2), by, -by))


# The derivatives of every combined value by some others; None where it does not depend on one.
_Slopes = list[tuple[Tensor | None, ...]]


def _slopes(combine: Callable[..., Any], before: Sequence[Tensor], leaves: Sequence[Tensor]) -> tuple[_Slopes, _Slopes]:
    """The derivatives by every value before, and by every element."""
    with torch.enable_grad():
        given = [x.detach().requires_grad_() for x in (*before, *leaves)]
        combined = tree_leaves(combine(*given))
        rows = [
            torch.autograd.grad(c, given, torch.ones_like(c), retain_graph=True, allow_unused=True) for c in combined
        ]
    return [row[: len(before)] for row in rows], [row[len(before) :] for row in rows]


def _accumulated(given: Sequence[Tensor | None], slopes: _Slopes) -> dict[int, Tensor]:
    """The gradients of the scan's results that have any, including those by way of later results.

    They are affine functions of each other, which are composed.
    """
    moved = {(i, j): _moved(s, -1) for i, row in enumerate(slopes) for j, s in enumerate(row) if s is not None}
    places = _composed(moved)
    have = sorted({n for n, g in enumerate(given) if g is not None} | {j for i, j in places if given[i] is not None})
    # Rows are later results, columns earlier ones.
    places = [(i, j) for i, j in places if i in have]
    zero = torch.zeros_like(next(g for g in given if g is not None))
    elements = [zero if (g := given[n]) is None else g for n in have] + [moved.get(p, zero) for p in places]

    def combine(*both: Tensor) -> list[Tensor]:
        (g1, m1), (g2, m2) = (named(some) for some in (both[: len(elements)], both[len(elements) :]))
        sums = [[g2[j], *(g1[i] * m2[i, j] for i in have if (i, j) in m2)] for j in have]
        products = [[m1[i, k] * m2[k, j] for k in have if (i, k) in m1 and (k, j) in m2] for i, j in places]
        return [_sum(terms) if terms else torch.zeros_like(g2[have[0]]) for terms in (*sums, *products)]

    def named(some: Sequence[Tensor]) -> tuple[dict[int, Tensor], dict[tuple[int, int], Tensor]]:
        return dict(zip(have, some, strict=False)), dict(zip(places, some[len(have) :], strict=True))

    scanned = _scan(combine, [x.flip(0) for x in elements])
    return {n: x.flip(0) for n, x in zip(have, scanned, strict=False)}


def _sum(terms: Sequence[Tensor]) -> Tensor:
    return functools.reduce(torch.add, terms)


def _composed(places: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """The non-zero entries of products of matrices with these non-zero entries."""
    found = set(places)
    while new := {(i, last) for i, j in found for k, last in found if j == k} - found:
        found |= new
    return sorted(found)
