"""Random ends of segments: sorted integers that divide the positions of an axis in the ways that data does.

    seed % 4    segments of 100 positions, by 4 ends                            as
    0           uniform cuts                 [12, 40, 71, 100]                  tokens routed at random
    1           cuts that crowd at the end   [57, 90, 98, 100]                  a few experts with most of the tokens
    2           one segment with everything  [0, 0, 100, 100]                   one expert, one sequence
    3           equal segments               [25, 50, 75, 100]                  sequences of one length

The first three are the histograms that workloads are timed with, in the order of `HISTOGRAMS`. Segments may be empty.
Those who draw several inputs for one axis with one seed get the same cuts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

# Exponent of uniform numbers whose cuts leave most positions to a few segments.
_SKEW = 0.25


def seeds_of_all_ways(seed: int) -> range:
    """Seeds from this one on that divide in each way once."""
    return range(seed, seed + len(_WAYS))


def drawn(count: int, positions: int, seed: int) -> torch.Tensor:
    """The ends of so many segments, the last one that of all positions: int64, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    shares = _WAYS[seed % len(_WAYS)](count - 1, generator)
    return torch.cat([(shares * positions).round().long(), torch.tensor([positions])])


def _uniform(cuts: int, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(cuts, generator=generator).sort().values


def _skewed(cuts: int, generator: torch.Generator) -> torch.Tensor:
    return _uniform(cuts, generator) ** _SKEW


def _one_hot(cuts: int, generator: torch.Generator) -> torch.Tensor:
    taken = int(torch.randint(0, cuts + 1, (), generator=generator))
    return (torch.arange(cuts) >= taken).float()


def _equal(cuts: int, generator: torch.Generator) -> torch.Tensor:
    return torch.arange(1, cuts + 1) / (cuts + 1)


_WAYS: tuple[Callable[[int, torch.Generator], torch.Tensor], ...] = (_uniform, _skewed, _one_hot, _equal)
