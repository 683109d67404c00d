"""Search strategies: which schedules to measure next. The module `<name>.py` holds the strategy `<name>`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np

from autosched.strategies.strategy import Stopped, Strategy
from cost_models import CostModel
from search_spaces import SearchSpace
from search_spaces.errors import unknown_name

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
    module = importlib.import_module(f"{__name__}.{name}")
    classes = inspect.getmembers(module, inspect.isclass)
    own = [c for name, c in classes if c.__module__ == module.__name__ and not name.startswith("_")]
    (found,) = own
    return cast(Callable[[SearchSpace, CostModel, np.random.Generator], Strategy], found)(space, cost_model, rng)
