"""Links of epilogues by PyTorch, a call each (see `workloads.activations.apply_chain`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# Links whose functions take values of one type and write another; all others need a conversion before them.
CONVERTING = (("bias",), ("residual",), ("gate",), ("scale",), ("rowscale",), ("colscale",))


def chained(x: Tensor, links: Sequence[str], extra: Iterator[Tensor], scale: float) -> Tensor:
    """`x` after these links, as a user writes it."""
    for link in links:
        x = _linked(x, link, extra, scale, None)
    return x


def chained_into(x: Tensor, out: Tensor, links: Sequence[str], extra: Iterator[Tensor], scale: float) -> None:
    """The same into `out`, without allocating: the first link reads `x`, the others work in place."""
    for link in links:
        x = _linked(x, link, extra, scale, out)


def _linked(x: Tensor, link: str, extra: Iterator[Tensor], scale: float, out: Tensor | None) -> Tensor:
    """`x` after one link: a new tensor, or `out`."""
    match link:
        case "bias" | "residual":
            return torch.add(x, next(extra), out=out)
        case "bn":
            by, shift = next(extra), next(extra)
            return torch.addcmul(shift, x, by, out=out)
        case "gate" | "colscale":
            return torch.mul(x, next(extra), out=out)
        case "rowscale":
            return torch.mul(x, next(extra)[:, None], out=out)
        case "scale":
            return torch.mul(x, scale, out=out)
        case "relu":
            return F.relu(x) if out is None else torch.clamp_min(x, 0.0, out=out)
        case "gelu" | "gelutanh":
            to = "tanh" if link == "gelutanh" else "none"
            return F.gelu(x, approximate=to) if out is None else torch.ops.aten.gelu.out(x, approximate=to, out=out)
        case "silu":
            return F.silu(x) if out is None else torch.ops.aten.silu.out(x, out=out)
        case "hardswish":
            return F.hardswish(x) if out is None else torch.ops.aten.hardswish.out(x, out=out)
    raise ValueError(f"no PyTorch function for link {link!r}")
