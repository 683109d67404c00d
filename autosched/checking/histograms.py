"""Ends of segments for timing: those of one distribution at all times, whatever data kernels are checked on.

Checks draw all kinds of ends, one kind after the other (`random_segments`). Times of a grouped product depend on the
ends, and would not compare between one batch of trials and the next.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from autosched.checking import random_segments
from autosched.checking.random_inputs import segmented
from search_spaces import Workload
from search_spaces.workloads.dtypes import range_of
from search_spaces.workloads.stages import HISTOGRAMS


def timed_ends(workload: Workload) -> Mapping[int, torch.Tensor]:
    """For each input of ends, by its number, those for timing: int64, on the CPU."""
    positions = segmented(workload)
    return {
        number: random_segments.drawn(
            t.elements, min(positions[t.name], range_of(t.dtype)[1]), HISTOGRAMS.index(t.histogram or HISTOGRAMS[0])
        )
        for number, t in enumerate(workload.inputs)
        if t.name in positions
    }
