"""`torch.vmap` as torch.export records it.

    torch.vmap(f, in_dims=1)(x)    →    f over dimension 1 of x, whose results PyTorch then moves to dimension 0

PyTorch's own C++ code moves them, which is not recorded: the tensor that it returns has no node in the graph.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, maybe_get_bdim, maybe_get_level

_MODULE = "torch._functorch.vmap"


@contextlib.contextmanager
def moves_recorded() -> Iterator[None]:
    """A context in which vmap moves dimensions by an operator of its own, which is recorded."""
    module: Any = importlib.import_module(_MODULE)
    own = module._remove_batch_dim

    def without_batch(made: Any, level: int, size: int, to: int) -> Any:
        if not isinstance(made, Tensor) or not is_batchedtensor(made) or maybe_get_level(made) != level:
            return own(made, level, size, to)
        there = maybe_get_bdim(made)
        return torch.movedim(own(made, level, size, there), there, to)

    module._remove_batch_dim = without_batch
    try:
        yield
    finally:
        module._remove_batch_dim = own
