"""Search strategies: they propose the schedules to measure next. The module `<name>.py` holds the strategy `<name>`.

Imports `backends` at most; runs nothing, and knows neither a device nor a log.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autosched.strategies.strategy import Stopped, Strategy, StrategyFactory, Transferring
from cost_models import CostModel
from search_spaces import InputError, SearchSpace
from search_spaces.errors import unknown_name
from search_spaces.plug_ins import lacking, only_class, takes

__all__ = ["Stopped", "Strategy", "StrategyFactory", "Transferring", "create", "names"]

# Modules of this package that are no strategy.
_OTHERS = frozenset({"__init__", "strategy"})


def names() -> tuple[str, ...]:
    """Names of the strategies: the modules of this package, less those that they share."""
    return tuple(sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in _OTHERS))


def create(
    strategy: str | StrategyFactory, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator
) -> Strategy:
    """A strategy by its name or by its factory: searches `space`, is guided by `cost_model`, draws from `rng`.

    Raises:
        InputError: no such strategy, or the factory's result is none.
    """
    if not isinstance(strategy, str):
        return _made(strategy, space, cost_model, rng)
    if strategy not in names():
        raise unknown_name("strategy", strategy, names())
    found: Strategy = only_class(f"{__name__}.{strategy}")(space, cost_model, rng)
    return found


def _made(factory: StrategyFactory, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> Strategy:
    expected = (
        f"strategy: expected a name ({', '.join(names())}), or a factory to be called with a search space, a "
        "cost model and a random generator, such as the class of a strategy"
    )
    if not takes(factory, "(space, cost_model, rng)"):
        raise InputError(f"{expected}; got {factory!r}")
    strategy = factory(space, cost_model, rng)
    if missing := lacking(strategy, ("ask(count)", "tell(records)", "tell(records, elsewhere=…)")):
        raise InputError(f"{expected}; got {strategy!r}, which has no {', no '.join(missing)}")
    if not isinstance(getattr(strategy, "stopped", None), Stopped):
        raise InputError(f"{expected}; got {strategy!r}, whose `stopped` is no autosched.strategies.Stopped")
    return strategy
