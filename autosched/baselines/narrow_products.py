"""Products of narrow operands in PyTorch: operands are dequantised first, in passes of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from search_spaces.workloads.workload import Scalar

# Arguments of `ops.matmul` for operands in another type, or in memory of another layout than the dequantised ones.
_NARROW = ("b_dtype", "group", "zero_points", "block", "scale_dtype")
_PLACES = ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")


def is_narrow(arguments: Mapping[str, Scalar]) -> bool:
    """True for a product of narrow operands with scales along k, or of another type than the product."""
    return bool(arguments.get("b_dtype") or arguments.get("group"))


def plain_arguments(arguments: Mapping[str, Scalar], made: str) -> dict[str, Scalar]:
    """The arguments of the product of the dequantised operands, with outputs of type `made`."""
    dtype = arguments["dtype"] if arguments.get("b_dtype") else "bfloat16"
    kept = {name: value for name, value in arguments.items() if name not in (*_NARROW, *_PLACES)}
    return {**kept, "dtype": dtype, "out_dtype": made, "fast_accum": False}


def dequantised(arguments: Mapping[str, Scalar], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs of the product of the dequantised operands: A and B, laid out as they were, then the epilogue's."""
    layout = str(arguments["layout"])
    k_of_a, k_of_b = (-2 if layout[0] == "t" else -1), (-1 if layout[1] == "t" else -2)
    group, block = (int(arguments.get(name) or 0) for name in ("group", "block"))

    def spread(x: Tensor, k: int) -> Tensor:
        return x.repeat_interleave(group, k) if group else x.unsqueeze(k)

    def spread_scales(k: int) -> Tensor:
        """The next input for every k."""
        given = rest.pop(0)
        return spread(given.view(torch.float8_e8m0fnu).float() if arguments.get("scale_dtype") else given, k)

    rest = list(inputs)
    if not arguments.get("b_dtype"):
        a = rest.pop(0).float() * spread_scales(k_of_a)
        b = rest.pop(0).float() * spread_scales(k_of_b).repeat_interleave(block or 1, -3 - k_of_b)
        return [a.bfloat16(), b.bfloat16(), *rest]
    a, b = rest.pop(0), rest.pop(0)
    packed = arguments["b_dtype"] == "int4"
    if packed:
        after = b.ndim + k_of_b + 1
        b = torch.stack((b & 15, b >> 4), after).flatten(after - 1, after)
    number = b.to(a.dtype)
    if arguments.get("zero_points"):
        number = number - spread(rest.pop(0), k_of_b).to(a.dtype)
    elif packed:
        number = number - 8
    return [a, (number * spread_scales(k_of_b)).to(a.dtype), *rest]
