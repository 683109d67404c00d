"""What PyTorch is asked at every call of a kernel, asked at the least cost.

The public functions cost three to ten times what it takes to find the answer: they parse keywords, pass the dispatcher,
check again whether CUDA was initialised, and wrap what they found. Code that PyTorch's own compiler generates asks the
ones used here instead. They are not public: where one is missing, in a build without CUDA or in some later version, the
public one answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._C._dynamo import guards


def _stream_handle(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


# The index of the GPU that is current in this thread.
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
# The handle (CUstream) of the stream that is current in this thread for the GPU of an index.
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_handle)


def allocator(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Callable[[], Tensor]:
    """What allocates such a tensor, not initialised, whenever it is called. It raises RuntimeError when it cannot."""
    sizes, steps = tuple(shape), tuple(strides)

    def anywhere() -> Tensor:
        return torch.empty_strided(sizes, steps, dtype=dtype, device=device)

    quick: Callable[..., Tensor] | None = getattr(guards, f"_empty_strided_{device.type}", None)
    if quick is None:
        return anywhere
    here = functools.partial(quick, sizes, steps, dtype)
    # It knows no GPU but the current one.
    return here if device.type == "cpu" else lambda: here() if current_device() == device.index else anywhere()
