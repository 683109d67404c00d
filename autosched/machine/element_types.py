"""Element types of PyTorch, by the names that workloads have for them."""

from __future__ import annotations

import torch

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Elements summed at once: PyTorch converts all of them before it sums, to half a gigabyte of int64.
_SUMMED = 2**26


def torch_dtype(name: str) -> torch.dtype:
    """The PyTorch element type of the same name as one of `search_spaces.workloads.dtypes`."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor's elements as signed integers of their size, in place."""
    return tensor.view(_INTEGERS[tensor.dtype.itemsize])


def sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of the elements' bits as integers, a number of 64 bits, which may wrap."""
    bits = as_integers(tensor)
    longest = max(range(bits.ndim), key=lambda d: bits.shape[d], default=0)
    parts = -(-bits.numel() // _SUMMED)
    if parts < 2:
        return bits.sum(dtype=torch.int64)
    each = bits.split(-(-bits.shape[longest] // parts), longest)
    return torch.stack([part.sum(dtype=torch.int64) for part in each]).sum()
