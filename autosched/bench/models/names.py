"""Names of the ways to run a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from search_spaces import InputError
from search_spaces.errors import unknown_name

WayName = Literal[
    "eager",  # one PyTorch operator after the other
    "graph",  # the same, in a CUDA graph: its inputs are those of the capture, its results are overwritten
    "compile",  # torch.compile, in its default mode
    "reduce-overhead",  # torch.compile with CUDA graphs
    "max-autotune",  # torch.compile with CUDA graphs, which measures several kernels
    "autosched",  # torch.compile(backend="autosched")
    "autosched-max",  # the same in the mode max-autotune
]
WAYS: tuple[WayName, ...] = get_args(WayName)
_OURS: tuple[WayName, ...] = ("autosched", "autosched-max")


def is_ours(way: WayName) -> bool:
    return way in _OURS


def check_ways(names: Iterable[str]) -> tuple[WayName, ...]:
    """The names, each once, in the usual order.

    Raises:
        InputError: one is unknown, or there is none.
    """
    given = list(names)
    for name in given:
        if name not in WAYS:
            raise unknown_name("way to run a model", name, WAYS)
    if not given:
        raise InputError(f"no way to run a model is named; expected some of {', '.join(WAYS)}")
    return tuple(way for way in WAYS if way in given)
