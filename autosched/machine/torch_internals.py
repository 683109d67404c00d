"""PyTorch's queries at every call of a kernel, at the least cost.

The public functions cost three to ten times the query itself: they parse keywords, pass the dispatcher, check again
whether CUDA was initialised, and wrap the result. Code that PyTorch's own compiler generates uses the same private ones
as here. Where one is missing, in a build without CUDA or in some later version, the public one answers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._C._dynamo import guards


def _stream_handle(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


# The index of the GPU that is current in this thread.
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
# The handle (CUstream) of the current stream of this thread for the GPU of an index.
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_handle)


def stream_on(device: torch.device) -> int:
    """The handle of the current stream of this thread for a device; 0 for a CPU."""
    return current_stream(device.index or 0) if device.type == "cuda" else 0


def _at_addresses(tensors: list[Tensor], addresses: list[int], numbers: list[int]) -> bool:
    return [tensors[n].data_ptr() for n in numbers] == addresses


# Takes tensors, as many addresses, and their numbers: True if the tensors are at these addresses.
at_addresses: Callable[[list[Tensor], list[int], list[int]], bool] = getattr(
    torch._C, "_tensors_data_ptrs_at_indices_equal", _at_addresses
)
# The version counter of a tensor; RuntimeError for one without. Faster than by a Python function.
version_of: Callable[[Tensor], int] = operator.attrgetter("_version")
# The address of PyTorch's object of a tensor.
identity_of: Callable[[Tensor], int] = operator.attrgetter("_cdata")


def allocator(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Callable[[], Tensor]:
    """Allocator of such a tensor, not initialised. Its calls raise RuntimeError when memory is out."""
    sizes, steps = tuple(shape), tuple(strides)

    def anywhere() -> Tensor:
        return torch.empty_strided(sizes, steps, dtype=dtype, device=device)

    quick: Callable[..., Tensor] | None = getattr(guards, f"_empty_strided_{device.type}", None)
    if quick is None:
        return anywhere
    here = functools.partial(quick, sizes, steps, dtype)
    # It supports the current GPU only.
    return here if device.type == "cpu" else lambda: here() if current_device() == device.index else anywhere()
