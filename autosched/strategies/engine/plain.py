"""The search core on a plain space: its knobs are what the kernel sees, and histories what it begins with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.strategies.engine.candidates import Candidates
from autosched.strategies.engine.engine import Engine
from autosched.strategies.engine.observations import History
from autosched.strategies.engine.prior import Histories
from cost_models.gaussian_process import Description
from search_spaces.schedules.plain_space import PlainSpace, Point

# The best of histories that are looked through for points that are legal here.
_MOST_SEEDS = 50


def plain_engine(space: PlainSpace, seed: int, history: Sequence[History] = ()) -> Engine[Point]:
    """The search of a plain space, begun with what was measured elsewhere."""
    rng, description = np.random.default_rng(seed), Description(space.columns)
    candidates = Candidates(space, lambda points: description(space.codes(points)), rng, space.points)
    prior = Histories(space, history, candidates, rng)
    return Engine(candidates, prior, [p for p in prior.best()[:_MOST_SEEDS] if space.holds(p)], rng)
