"""Names of the baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
# Baselines of any PyTorch function.
FUNCTION_BASELINES: tuple[BaselineName, ...] = ("eager", "compile", "max-autotune")
# Excludes those that say little on most workloads (converting, cublaslt), or take up to minutes to compile
# (max-autotune).
USUAL_BASELINES: tuple[BaselineName, ...] = ("library", "eager", "parts", "compile")
COMPILED_BASELINES: tuple[BaselineName, ...] = ("compile", "max-autotune")


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
