"""Operators on segments in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.workload import Scalar

# `torch._grouped_mm` has sizes along memory that are multiples of so many bytes.
_ALIGNED = 16


def has_grouped_mm(arguments: Mapping[str, Scalar]) -> bool:
    """True if `torch._grouped_mm` takes these inputs on every device, whatever their ends are.

    Of k that is cut it takes ends at whole vectors alone, and a GPU's assertion ends the process's work.
    """
    element = str(arguments["dtype"])
    sizes = [int(arguments[x] or 0) * dtype(element).bytes for x in "mnk"]
    taken = element == "bfloat16" and arguments["index_dtype"] == "int32" and arguments["ragged"] == "m"
    return taken and not any(s % _ALIGNED for s in sizes)


def grouped_product(arguments: Mapping[str, Scalar]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """`torch._grouped_mm` on the inputs of `ops.grouped_matmul`, or a product for each group where it takes others.

    Rows behind the last end are anything in the first.
    """
    transposed_a, transposed_b = (stored == "t" for stored in str(arguments["layout"]))
    at_once, of_rows = has_grouped_mm(arguments), arguments["ragged"] == "m"

    def run(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
        a, b = a.mT if transposed_a else a, b.mT if transposed_b else b
        if at_once:
            made: Tensor = torch._grouped_mm(a, b, offs=ends)
            return made
        counts = ends.diff(prepend=ends.new_zeros(1)).tolist()
        if not of_rows:
            parts = zip(a[:, : sum(counts)].split(counts, 1), b[: sum(counts)].split(counts), strict=True)
            return torch.stack([x @ w for x, w in parts])
        rest = [len(a) - sum(counts)]
        products = [x @ w for x, w in zip(a.split([*counts, *rest]), b, strict=False)]
        return torch.cat([*products, a.new_zeros(rest[0], b.shape[-1])])

    return run


def segment_sum(x: Tensor, offsets: Tensor) -> Tensor:
    """`torch.segment_reduce` in float32."""
    return torch.segment_reduce(x.float(), "sum", offsets=offsets, axis=0, unsafe=True)


def block_sparse_product(values: Tensor, crow: Tensor, col: Tensor, b: Tensor) -> Tensor:
    """A product for each block, added to its row of blocks; blocks of no row are left out."""
    rows, block = len(crow) - 1, values.shape[1]
    row = torch.bucketize(torch.arange(len(values), device=crow.device), crow, right=True) - 1
    known = ((row >= 0) & (row < rows))[:, None, None]
    products = (values @ b.unflatten(0, (-1, block))[col.long()]).where(known, 0.0)
    made: Tensor = products.new_zeros(rows, block, b.shape[1]).index_add_(0, row.clamp(0, rows - 1), products)
    return made


def varlen_attention(causal: bool) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Attention with a mask of the pairs within a sequence."""

    def run(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
        at = torch.arange(len(q), device=q.device, dtype=offsets.dtype)
        sequence = torch.bucketize(at, offsets, right=True)
        inside = sequence < len(offsets)
        seen = (sequence[:, None] == sequence) & inside
        seen = seen & (at[:, None] >= at) if causal else seen
        # A row behind the last sequence sees itself, and is 0 afterwards.
        seen = seen | torch.eye(len(q), dtype=torch.bool, device=q.device)
        query, key, value = (x.transpose(0, 1)[None] for x in (q, k, v))
        made = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return made[0].transpose(0, 1).where(inside[:, None, None], 0.0)

    return run
