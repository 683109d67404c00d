"""The result of `triton.jit`, and its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Protocol

from search_spaces import InputError

Grid = tuple[int, ...] | Callable[[dict[str, Any]], tuple[int, ...]]


class JitKernel(Protocol):
    """The result of `triton.jit`, or a decorator of Triton's around it."""

    arg_names: Sequence[str]

    def run(self, *arguments: Any, grid: Grid, warmup: bool, **keywords: Any) -> Any: ...


def layers(kernel: object) -> Iterator[Any]:
    """The kernel, the object that it decorates, and so on, down to the decorated function.

    Raises:
        InputError: there is no function of Python at the end.
    """
    found: Any = kernel
    while not isinstance(found, FunctionType):
        yield found
        if not hasattr(found, "fn"):
            raise InputError(f"got {type(kernel).__name__}; expected a kernel: a function under @triton.jit")
        found = found.fn
    yield found


def function_of(kernel: object) -> FunctionType:
    """The decorated function, through any number of decorators; InputError if there is none."""
    function: FunctionType
    *_, function = layers(kernel)
    return function


@dataclass(frozen=True)
class Parameters:
    """Parameters of a kernel: all names, the `defaults` of some, and those `computed` by `triton.heuristics`."""

    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    computed: frozenset[str]

    @staticmethod
    def of(kernel: JitKernel) -> Parameters:
        signature = inspect.signature(function_of(kernel)).parameters
        defaults = {name: p.default for name, p in signature.items() if p.default is not inspect.Parameter.empty}
        heuristics = (getattr(layer, "values", None) or {} for layer in layers(kernel))
        return Parameters(tuple(kernel.arg_names), defaults, frozenset(name for some in heuristics for name in some))
