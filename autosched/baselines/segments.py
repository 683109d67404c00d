"""Operators on segments in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.workload import Scalar

# Its sizes along memory are multiples of so many bytes.
_ALIGNED = 16


def grouped_product(arguments: Mapping[str, Scalar]) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
    """`torch._grouped_mm` on the inputs of `ops.grouped_matmul`; None for those that it does not take on every device.

    Rows behind the last end are anything there.
    """
    element = str(arguments["dtype"])
    sizes = [int(arguments[x] or 0) * dtype(element).bytes for x in "mnk"]
    if element != "bfloat16" or arguments["index_dtype"] != "int32" or any(size % _ALIGNED for size in sizes):
        return None
    transposed_a, transposed_b = (stored == "t" for stored in str(arguments["layout"]))

    def run(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
        made: Tensor = torch._grouped_mm(a.mT if transposed_a else a, b.mT if transposed_b else b, offs=ends)
        return made

    return run


def segment_sum(x: Tensor, offsets: Tensor) -> Tensor:
    """`torch.segment_reduce` in float32."""
    return torch.segment_reduce(x.float(), "sum", offsets=offsets, axis=0, unsafe=True)
