"""Kernels at sizes that were not tuned: by the schedules of sizes that were, adapted.

The first schedule whose kernel passes a trial in a separate process is taken: a tenth of a second for each, once on a
machine, and seconds for the first process (`kernels.first_use`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from autosched.backends import spaces
from autosched.kernels import first_use
from autosched.kernels.kernel import Kernel, load_kernel
from autosched.kernels.tier import Tier
from autosched.strategies.evolution.transfer import adapted
from search_spaces import Schedule, SearchSpace, Workload
from tuning_logs import TuningRecord

# Schedules tried: after that many failures the next one would fail as well.
_MOST_TRIED = 8


def in_order_for(size: int, tuned: Iterable[int]) -> list[int]:
    """Tuned sizes in the order in which their schedules suit another size.

    The next larger ones come first: the tiles of a smaller size would be more, and a kernel's time grows in steps of
    whole tiles, so that the sizes of one step share a schedule.
    """
    return sorted(tuned, key=lambda t: (t < size, abs(t - size)))


def adapted_kernel(workload: Workload, lenders: Sequence[Schedule], like: TuningRecord) -> Kernel:
    """The kernel of a workload by the first of these schedules, adapted, that passes its check; else by any other one.

    `like` is a record of another size: its target, and the policy of the trial.

    Raises:
        AutoschedError: none passes.
    """
    space = spaces.build(workload, like.target)
    schedules = list(islice(dict.fromkeys(_schedules(space, lenders)), _MOST_TRIED))
    record = first_use.first_right(space, schedules, like.provenance)
    return load_kernel(record, workload, Tier.OTHER_SHAPE)


def _schedules(space: SearchSpace, lenders: Sequence[Schedule]) -> Iterator[Schedule]:
    """Schedules of other sizes as far as the space has them, then others: right, if not fast."""
    yield from (schedule for each in lenders if (schedule := adapted(space, each)) is not None)
    yield from space.seeds()
    rng = np.random.default_rng(0)
    for _ in range(_MOST_TRIED):
        yield space.sample(rng)
