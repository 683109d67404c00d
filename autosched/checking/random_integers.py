"""Random integers that reveal inexact arithmetic: of every magnitude, with small and equal ones among them."""

from __future__ import annotations

import torch

from search_spaces import Workload
from search_spaces.workloads.expressions.expression import Access, Apply, Gather
from search_spaces.workloads.expressions.operators import LARGEST_INTEGER, LEAST_INTEGER
from search_spaces.workloads.expressions.walking import walk

# Half of them are small, so that some are 0 and some are equal.
_SMALL = 8


def exactly_read(workload: Workload) -> frozenset[str]:
    """The inputs that some kernel reads as integers."""
    parts = (e for s in workload.stages for e in walk(s.expression))
    leaves = (e.arguments[0] for e in parts if isinstance(e, Apply) and e.operator == "to_integer")
    return frozenset(leaf.tensor for leaf in leaves if isinstance(leaf, Access | Gather))


def divides(workload: Workload) -> bool:
    """True if integers are divided; PyTorch raises where a divisor is 0."""
    parts = (e for s in workload.stages for e in walk(s.expression))
    return any(isinstance(e, Apply) and e.operator == "quotient" for e in parts)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Integers of every magnitude that the type has; larger ones wrap around."""

    def integers(first: int, end: int) -> torch.Tensor:
        return torch.randint(first, end, shape, generator=generator, device=generator.device, dtype=torch.int64)

    bits = integers(LEAST_INTEGER, LARGEST_INTEGER) >> integers(0, 64)
    return torch.where(integers(0, 2) == 0, integers(-_SMALL, _SMALL + 1), bits).to(dtype)
