"""Search strategies: which schedules to measure next. The module `<name>.py` holds the strategy `<name>`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autosched.strategies.strategy import Stopped, Strategy
from cost_models import CostModel
from search_spaces import SearchSpace
from search_spaces.errors import unknown_name
from search_spaces.plug_ins import only_class

__all__ = ["Stopped", "Strategy", "create", "names"]

# Modules of this package that hold no strategy.
_OTHERS = frozenset({"__init__", "strategy", "transfer"})


def names() -> tuple[str, ...]:
    """The strategies there are: the modules of this package, except those that they share."""
    return tuple(sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in _OTHERS))


def create(name: str, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> Strategy:
    """The strategy called `name`, searching `space` and steered by `cost_model`; it draws from `rng`.

    Raises:
        InputError: no such strategy.
    """
    if name not in names():
        raise unknown_name("strategy", name, names())
    found: Strategy = only_class(f"{__name__}.{name}")(space, cost_model, rng)
    return found
