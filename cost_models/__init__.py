"""Cost models, which rank schedules for measuring. The module `<name>_model.py` has the cost model `<name>`."""

from __future__ import annotations

from pathlib import Path

from cost_models.cost_model import CostModel
from cost_models.roofline import bound_s
from cost_models.sharing import SharedModel
from cost_models.xgboost_model import XGBoostModel
from search_spaces.errors import InputError, unknown_name
from search_spaces.plug_ins import lacking, only_class

__all__ = ["CostModel", "SharedModel", "XGBoostModel", "bound_s", "create", "names"]

_SUFFIX = "_model"


def names() -> tuple[str, ...]:
    """The names of cost models: the modules of this package called `<name>_model`."""
    modules = (path.stem for path in Path(__file__).parent.glob(f"*{_SUFFIX}.py"))
    return tuple(sorted(m.removesuffix(_SUFFIX) for m in modules if m != CostModel.__module__.rpartition(".")[2]))


def create(cost_model: str | CostModel, seed: int) -> CostModel:
    """The cost model of that name, with a random state of its own; an existing one is returned unchanged.

    Raises:
        InputError: no such cost model.
    """
    if not isinstance(cost_model, str):
        _check(cost_model)
        return cost_model
    if cost_model not in names():
        raise unknown_name("cost model", cost_model, names())
    found: CostModel = only_class(f"{__name__}.{cost_model}{_SUFFIX}")(seed)
    return found


def _check(cost_model: object) -> None:
    methods = ("fit(space, records)", "predict(space, schedules)", "failure_chance(space, schedules)")
    if missing := lacking(cost_model, methods):
        raise InputError(
            f"cost_model: expected a name ({', '.join(names())}), or an object with {', '.join(methods)}, such as "
            f"cost_models.XGBoostModel(seed=0); got {cost_model!r}, which has no {', no '.join(missing)}"
        )
