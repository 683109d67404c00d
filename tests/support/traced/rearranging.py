"""`rearrange` of einops for modules that import it, where it is not installed: dimensions split, moved and merged."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
import types
from collections.abc import Sequence
from typing import Any

from torch import Tensor


def provide_einops() -> None:
    """Make `from einops import rearrange` work."""
    if "einops" not in sys.modules and importlib.util.find_spec("einops") is None:
        stub: Any = types.ModuleType("einops")
        stub.rearrange = rearrange
        sys.modules["einops"] = stub


def rearrange(x: Tensor, pattern: str, **lengths: int) -> Tensor:
    """The dimensions in the order of the pattern's right side: `rearrange(x, "b (c l) ... -> b c l ...", l=64)`."""
    left, right = (_groups(side) for side in pattern.split("->"))
    rest = [f"rest{n}" for n in range(len(x.shape) - len(left) + 1)]
    left, right = (_spelled_out(side, rest) for side in (left, right))
    sizes = dict(lengths)
    for group, extent in zip(left, x.shape, strict=True):
        known = math.prod(sizes[name] for name in group if name in sizes)
        sizes |= {name: extent // known for name in group if name not in sizes}
    names = [name for group in left for name in group]
    moved = x.reshape([sizes[name] for name in names]).permute([names.index(n) for group in right for n in group])
    return moved.reshape([math.prod(sizes[name] for name in group) for group in right])


def _groups(side: str) -> list[list[str]]:
    return [part.strip("()").split() for part in re.findall(r"\([^)]*\)|\S+", side)]


def _spelled_out(groups: Sequence[list[str]], rest: Sequence[str]) -> list[list[str]]:
    """Every name of `rest` in the place of `...`."""
    return [one for group in groups for one in ([[name] for name in rest] if group == ["..."] else [group])]
