"""Cost models: which schedules are worth measuring. The module `<name>_model.py` holds the cost model `<name>`."""

from __future__ import annotations

from pathlib import Path

from cost_models.cost_model import CostModel
from cost_models.roofline import bound_s
from search_spaces.errors import unknown_name
from search_spaces.plug_ins import only_class

__all__ = ["CostModel", "bound_s", "create", "names"]

_SUFFIX = "_model"


def names() -> tuple[str, ...]:
    """The cost models there are: the modules of this package called `<name>_model`."""
    modules = (path.stem for path in Path(__file__).parent.glob(f"*{_SUFFIX}.py"))
    return tuple(sorted(m.removesuffix(_SUFFIX) for m in modules if m != CostModel.__module__.rpartition(".")[2]))


def create(name: str, seed: int) -> CostModel:
    """The cost model called `name`, with a random state of its own.

    Raises:
        InputError: no such cost model.
    """
    if name not in names():
        raise unknown_name("cost model", name, names())
    found: CostModel = only_class(f"{__name__}.{name}{_SUFFIX}")(seed)
    return found
