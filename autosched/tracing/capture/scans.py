"""Scans by any function of PyTorch's `associative_scan`, kept as one operator while a function is captured.

Before:  associative_scan(combine, (a, x), dim)      slices, as many as there are levels of a tree, or a module
After:   left, right = operand(a), operand(a)        what stands for elements on the left, and on the right
         combined = combine(left, right)             ordinary operators of these
         scanned([a, x], [left …], [right …], combined)

These operators are no more than marks: nothing computes them, and what they are of is said by a kernel.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

_LIBRARY = torch.library.Library("autosched_scans", "DEF")
_LIBRARY.define("operand(Tensor element, int side) -> Tensor")
_LIBRARY.define("scanned(Tensor[] elements, Tensor[] left, Tensor[] right, Tensor[] combined) -> Tensor[]")
# Where PyTorch scans along the first dimension: in general, and by functions for its own compiler.
_MODULE = "torch._higher_order_ops.associative_scan"
_GENERAL, _COMPILED = "generic_associative_scan", "_maybe_compile_and_run_fn"


@torch.library.register_fake("autosched_scans::operand")
def _operand(element: Tensor, side: int) -> Tensor:
    return torch.empty_like(element)


@torch.library.register_fake("autosched_scans::scanned")
def _scanned(
    elements: Sequence[Tensor], left: Sequence[Tensor], right: Sequence[Tensor], combined: Sequence[Tensor]
) -> list[Tensor]:
    return [torch.empty_like(e) for e in elements]


@contextlib.contextmanager
def scans_kept() -> Iterator[None]:
    """Within it, scans are such operators."""
    module = importlib.import_module(_MODULE)
    before = {name: getattr(module, name) for name in (_GENERAL, _COMPILED)}

    def general(
        combine: Callable[..., Any], leaves: Sequence[Tensor], dim: int = 0, additional_inputs: Any = ()
    ) -> Any:
        if dim or additional_inputs:
            return before[_GENERAL](combine, leaves, dim, additional_inputs)
        return _marked(combine, leaves)

    def compiled(scan: Callable[..., Any], combine: Callable[..., Any], leaves: Sequence[Tensor]) -> Any:
        return _marked(combine, leaves)

    try:
        setattr(module, _GENERAL, general)
        setattr(module, _COMPILED, compiled)
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _marked(combine: Callable[..., Any], leaves: Sequence[Tensor]) -> list[Tensor]:
    operators = torch.ops.autosched_scans
    left, right = ([operators.operand(x, side) for x in leaves] for side in range(2))
    return list(operators.scanned(list(leaves), left, right, tree_leaves(combine(*left, *right))))
