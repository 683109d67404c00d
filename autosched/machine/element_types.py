"""Element types of PyTorch, by the names that workloads have for them."""

from __future__ import annotations

import torch


def torch_dtype(name: str) -> torch.dtype:
    """The PyTorch element type of the same name as one of `search_spaces.workloads.dtypes`."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
