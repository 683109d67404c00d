"""Element types of PyTorch, by the names that workloads have for them."""

from __future__ import annotations

import torch

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def torch_dtype(name: str) -> torch.dtype:
    """The PyTorch element type of the same name as one of `search_spaces.workloads.dtypes`."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor's elements as signed integers of their size, in place."""
    return tensor.view(_INTEGERS[tensor.dtype.itemsize])
