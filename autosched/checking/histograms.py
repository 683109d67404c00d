"""Ends of segments for timing: the same at all times, whatever data kernels are checked on.

Times of work on segments depend on their ends: those of two trials compare if both have the same. A workload that names
a histogram has its ends alone. Others are timed with the ends of several, one after the other, and their latency is
the geometric mean (`machine.mean_timer`), so that the schedule is chosen that is good for all of them:

    segments choose entries of tables, as experts their weights      uniform, skewed, one hot
    segments are ranges of loops, as rows that are summed            uniform, skewed

Where all positions are in the range of one loop, one program has all work under every schedule, and that time would
decide between schedules that it does not tell about the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch

from autosched.checking.random_inputs import random_ends, segmented
from autosched.machine.mean_timer import MeanTimer
from autosched.machine.timing import Timer
from search_spaces import Workload
from search_spaces.workloads.expressions.walking import gathers, segments
from search_spaces.workloads.stages import HISTOGRAMS

_OF_RANGES = HISTOGRAMS[:2]


def timed_ends(workload: Workload) -> Mapping[str, Mapping[int, torch.Tensor]]:
    """By histogram, the ends of each input of such, by its number: int64, on the CPU. Nothing without segments."""
    ends = segmented(workload)
    named = {t.name: t.histogram for t in workload.inputs if t.name in ends}
    own = {tensor: HISTOGRAMS.index(name) for tensor, name in named.items() if name}
    if named and len(own) == len(named):
        return {", ".join(dict.fromkeys(named.values())): random_ends(workload, 0, own)}
    several = HISTOGRAMS if _choose_entries(workload) else _OF_RANGES
    return {name: random_ends(workload, n, own) for n, name in enumerate(several if named else ())}


def over(ends: Mapping[str, Mapping[int, torch.Tensor]], inputs: Sequence[torch.Tensor], timer: Timer) -> Timer:
    """The timer of calls that read these inputs with the ends of each histogram; without any, the same timer.

    The ends of the last histogram stay in the inputs.
    """
    on_device = {name: {n: e.to(inputs[n]) for n, e in given.items()} for name, given in ends.items()}
    settings = {name: partial(set_ends, inputs, given) for name, given in on_device.items()}
    return MeanTimer(timer, settings) if settings else timer


def set_ends(inputs: Sequence[torch.Tensor], ends: Mapping[int, torch.Tensor]) -> None:
    """Copy ends of segments into the inputs of their numbers."""
    for number, given in ends.items():
        inputs[number].copy_(given)


def _choose_entries(workload: Workload) -> bool:
    """True if segments choose entries of tables, and no loop runs over one of them."""
    looked_up = (e for s in workload.stages for g in gathers(s.expression) for e in g.looked_up)
    return any(map(segments, looked_up)) and not any(s.cut for s in workload.stages)
