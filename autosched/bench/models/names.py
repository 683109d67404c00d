"""Names of the ways to run a model."""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces import InputError
from search_spaces.errors import unknown_name

# One of WAYS, or another backend of torch.compile that is installed (onnxrt, tensorrt, openxla …).
WayName = str
WAYS: tuple[WayName, ...] = (
    "eager",  # one PyTorch operator after the other
    "graph",  # the same, in a CUDA graph: its inputs are those of the capture, its results are overwritten
    "compile",  # torch.compile, in its default mode
    "reduce-overhead",  # torch.compile with CUDA graphs
    "max-autotune",  # torch.compile with CUDA graphs, which measures several kernels
    "autosched",  # torch.compile(backend="autosched")
    "autosched-max",  # the same in the mode max-autotune
)
_OURS: tuple[WayName, ...] = ("autosched", "autosched-max")


def is_ours(way: WayName) -> bool:
    return way.partition(":")[0] in _OURS


def is_max(way: WayName) -> bool:
    """Is it the mode max-autotune of autosched?"""
    return way.partition(":")[0] == "autosched-max"


def numerics_of(way: WayName) -> str | None:
    """The numerics that one of autosched's ways names, as autosched-max:eager does."""
    return way.partition(":")[2] or None


def check_ways(names: Iterable[str]) -> tuple[WayName, ...]:
    """The names, each once, in the usual order; those with numerics and other backends of torch.compile come last.

    Raises:
        InputError: one is unknown, or there is none.
    """
    given = list(names)
    others = list(dict.fromkeys(name for name in given if name not in WAYS))
    unknown = [name for name in others if not is_ours(name)]
    known = _other_backends() if unknown else ()
    for name in unknown:
        if name not in known:
            raise unknown_name("way to run a model", name, (*WAYS, *known))
    if not given:
        raise InputError(f"no way to run a model is named; expected some of {', '.join(WAYS)}")
    return (*(way for way in WAYS if way in given), *others)


def _other_backends() -> tuple[str, ...]:
    """Backends of torch.compile besides its own and this project's."""
    import torch._dynamo

    return tuple(n for n in torch._dynamo.list_backends(exclude_tags=("debug",)) if n not in ("inductor", *_OURS))
