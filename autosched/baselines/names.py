"""Names of the baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, cast, get_args

from search_spaces import InputError
from search_spaces.errors import unknown_name

BaselineName = Literal[
    "library",  # the vendor's, by the heuristic that PyTorch calls it with, into a given output
    "converting",  # the vendor's convolution from and to the memory formats of the workload, conversions timed
    "cublaslt",  # the same call with cuBLASLt preferred
    "eager",  # as a user writes it
    "parts",  # one PyTorch call per operation
    "compile",  # torch.compile
    "max-autotune",  # torch.compile, which then measures several kernels
]
BASELINES: tuple[BaselineName, ...] = get_args(BaselineName)
# Names of baselines, or functions of one's own that take the same inputs, by the names that their rows get; None stands
# for the baseline of that name.
Baselines = Sequence[BaselineName] | Mapping[str, Callable[..., object] | None]
# Baselines of any PyTorch function.
FUNCTION_BASELINES: tuple[BaselineName, ...] = ("eager", "compile", "max-autotune")
# Excludes those that say little on most workloads (converting, cublaslt), or take up to minutes to compile
# (max-autotune).
USUAL_BASELINES: tuple[BaselineName, ...] = ("library", "eager", "parts", "compile")
COMPILED_BASELINES: tuple[BaselineName, ...] = ("compile", "max-autotune")


def split_baselines(given: Baselines) -> tuple[tuple[BaselineName, ...], dict[str, Callable[..., object]]]:
    """The named baselines, and the functions of one's own.

    Raises:
        InputError: as `check_baselines`; or something else than a function is given, or one with a baseline's name.
    """
    if not isinstance(given, Mapping):
        return check_baselines(given), {}
    own = {str(name): function for name, function in given.items() if function is not None}
    for name, function in own.items():
        if not callable(function):
            raise InputError(f"baseline {name}={function!r} is {type(function).__name__}; expected a function or None")
        if name in (*BASELINES, "tuned", "roofline"):
            raise InputError(f"{name!r} is the name of another row; expected a name of your own")
    return check_baselines(name for name, function in given.items() if function is None), own


def check_baselines(names: Iterable[str], allowed: Sequence[str] = BASELINES) -> tuple[BaselineName, ...]:
    """The names, in their order, checked to be baselines, and among those allowed.

    Raises:
        InputError: one is none, or comes twice; or a string is given for a sequence of them.
    """
    if isinstance(names, str):
        raise InputError(f"baselines={names!r} is a text; expected a sequence of names, such as ({names!r},)")
    given = tuple(names)
    for name in given:
        if name not in allowed:
            raise unknown_name("baseline", str(name), allowed)
        if given.count(name) > 1:
            raise InputError(f"baseline {name} is named twice; expected each once")
    return tuple(cast(BaselineName, name) for name in given)
