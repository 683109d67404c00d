"""Stand-ins for tensors: an operator that PyTorch composes in Python, call by call, is run on them.

    for step in x.unbind(0):                      512 steps are 512 calls of each of a dozen functions,
        hidden = tanh(linear(hidden, w) + step)   all 512 of one kind: one of them is computed, the others look it up

A stand-in is known by the shape, strides and element type of its tensor. So recurrent nets take as long as the steps of
Python that they are made of, and not as long as PyTorch's capture of each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from autosched.tracing.capture.result_memory import storage_of

# With fewer calls, to look them up takes as long as to make them.
_MANY_CALLS = 200


class NoStandInsError(Exception):
    """A function cannot be run on stand-ins."""


class ManyCallsError(Exception):
    """A function makes many calls."""


class FewCalls(TorchFunctionMode):
    """A context in which more than `_MANY_CALLS` calls of PyTorch's functions raise ManyCallsError."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        self._calls += 1
        if self._calls > _MANY_CALLS:
            raise ManyCallsError
        return func(*args, **(kwargs or {}))


class Calls(Protocol):
    """Calls of PyTorch's functions on stand-ins."""

    def made(self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """The results of a call, with stand-ins for tensors."""


class StandIn(Tensor):
    """Stands for `value`, a fake tensor that others of its kind share. `origin`: what `calls` know of this one."""

    value: Tensor
    origin: Any
    calls: Calls

    @staticmethod
    def of(value: Tensor, origin: Any, calls: Calls) -> StandIn:
        made: StandIn = Tensor._make_wrapper_subclass(
            StandIn, value.shape, strides=value.stride(), dtype=value.dtype, device=value.device
        )
        made.value, made.origin, made.calls = value, origin, calls
        return made

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind(0))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        leaves = args if isinstance(args[0], StandIn) else pytree.arg_tree_leaves(*args, **(kwargs or {}))
        calls: Calls = next(x for x in leaves if isinstance(x, StandIn)).calls
        return calls.made(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # PyTorch's own is a function, and called like this
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NoStandInsError(f"{func} of a stand-in")


@dataclass
class Kinds:
    """Keys of calls: equal where one function is called with arguments of the same kinds."""

    _known: dict[int, tuple[Tensor, Hashable]] = field(default_factory=dict)

    def key(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Hashable, list[StandIn]]:
        """The key of a call, and its stand-ins, each once."""
        if "strided" in str(function):
            raise NoStandInsError(f"{function} depends on where memory begins")
        given: dict[int, StandIn] = {}
        places: dict[int, int] = {}

        def part(argument: Any) -> Hashable:
            if isinstance(argument, StandIn):
                given[id(argument)] = argument
                return places.setdefault(id(argument), len(places)), self._of(argument.value)
            if isinstance(argument, Tensor):
                raise NoStandInsError(f"{function} of a tensor that nothing stands for")
            if isinstance(argument, list | tuple):
                return type(argument), tuple(map(part, argument))
            # As text: 0 and -0 are equal, and two constants.
            return type(argument), repr(argument)

        key = (function, tuple(map(part, arguments)), tuple((name, part(x)) for name, x in named.items()))
        return key, list(given.values())

    def _of(self, value: Tensor) -> Hashable:
        if id(value) not in self._known:
            kind = (tuple(value.shape), value.stride(), value.dtype, value.device, value.is_conj(), value.is_neg())
            self._known[id(value)] = value, kind
        return self._known[id(value)][1]


def with_stand_ins(results: Any, stand_in: Callable[[Tensor], StandIn]) -> Any:
    """Results of a call with stand-ins for tensors."""
    if isinstance(results, Tensor):
        return stand_in(results)
    if type(results) in (list, tuple):
        return type(results)(with_stand_ins(r, stand_in) for r in results)
    return results


def with_values(given: Sequence[StandIn], nested: Any, values: Sequence[Tensor]) -> Any:
    """Arguments with these values for the stand-ins in them."""
    places = {id(s): n for n, s in enumerate(given)}
    return pytree.tree_map_only(StandIn, lambda s: values[places[id(s)]], nested)


def values_apart(given: Sequence[StandIn]) -> list[Tensor]:
    """A fake tensor of the kind of each stand-in, no two in one memory."""
    found: dict[int, Tensor] = {}
    for value in (s.value for s in given):
        if storage_of(value) in found:
            value = empty_like(value)
        found[storage_of(value)] = value
    return list(found.values())


def empty_like(value: Tensor) -> Tensor:
    """Memory of its own with the shape and the strides of a tensor."""
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
