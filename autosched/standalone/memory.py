"""The memory of a model's values in a stand-alone file: one allocation in every call, laid out by their lifetimes.

What PyTorch's operators read has memory of its own, since their results may be views of it, and so has what a call
returns or writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import fx

from autosched.machine.element_types import torch_dtype
from autosched.planning.arena import Arrangement, Lifetime, arranged
from autosched.standalone.aten import tuple_text
from autosched.standalone.launchers import ALLOCATE
from autosched.tracing import TracedFunction
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.tensor_reads import memory_view
from autosched.tracing.values.values import Leaf, Prepared, Value
from search_spaces.workloads.strides import span

# Names of what the function of a part takes besides its arguments: an allocation, the first byte of what it alone needs
# there, and those of its results.
PLACED = _ARENA, _BASE, _RESULTS = "arena", "base", "results"


@dataclass(frozen=True, eq=False)
class FunctionMemory:
    """The memory of the values of a function of kernels, which is a part of a model."""

    traced: TracedFunction

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of its function in a file, for memory of a model; without them all values have their own."""
        nowhere = tuple_text(["None"] * len(self.results))
        return f"{_ARENA}=None", f"{_BASE}=0", f"{_RESULTS}={nowhere}"

    def allocator(self, values: Sequence[Value]) -> str:
        """The allocator, in that function, of these values, and then of others."""
        places = [*map(self._place, values)]
        placed = any(place != "None" for place in places)
        return f"_placed({_ARENA}, {tuple_text(places)}, {ALLOCATE})" if placed else ALLOCATE

    def _place(self, value: Value) -> str:
        if value in self.inner:
            return f"{_BASE} + {self.inner[value]}"
        return f"{_RESULTS}[{self.results.index(value)}]" if value in self.results else "None"

    @cached_property
    def inner(self) -> Mapping[Value, int]:
        """The first byte of each value that is needed by kernels of the function alone."""
        return dict(zip(self._inner, (at for _, at in self._arranged.places), strict=True))

    @property
    def inner_bytes(self) -> int:
        return self._arranged.arena_bytes

    @cached_property
    def results(self) -> tuple[Value, ...]:
        """The values whose memory results lie in, where kernels write it, and none but these and callers read it."""
        lying = dict.fromkeys(map(self._root, self.traced.results))
        return tuple(value for value in lying if value in self._written and value not in self._called)

    def lies_in(self, result: int) -> Value:
        """The value, one of `results` or another, in whose memory a result lies."""
        return self._root(self.traced.results[result])

    @cached_property
    def called(self) -> frozenset[Leaf]:
        """The arguments that operators of PyTorch read."""
        return frozenset(value for value in self._called if isinstance(value, Leaf))

    @cached_property
    def _inner(self) -> tuple[Value, ...]:
        returned = {*map(self._root, self.traced.results)}
        return tuple(value for value in self._written if value not in returned | self._called)

    @cached_property
    def _arranged(self) -> Arrangement:
        return arranged([Lifetime(bytes_of(v), self._written[v], self._used[v]) for v in self._inner])

    @cached_property
    def _written(self) -> Mapping[Value, int]:
        """The values that kernels write, wholes for their parts, and the first step that does."""
        found: dict[Value, int] = {}
        for number, step in enumerate(self.traced.steps):
            for value in step.values if step.assembled is not None else ():
                found.setdefault(self._root(value), number)
        return found

    @cached_property
    def _used(self) -> Mapping[Value, int]:
        """The last step that writes or reads each value."""
        found: dict[Value, int] = {}
        for number, step in enumerate(self.traced.steps):
            if step.assembled is not None:
                read = [view.value for view in step.assembled.inputs]
                found |= dict.fromkeys(map(self._root, (*step.values, *read)), number)
        return found

    @cached_property
    def _called(self) -> frozenset[Value]:
        """The values that operators of PyTorch read."""
        calls = (v for v in self.traced.made if isinstance(v, Fallback | Prepared))
        return frozenset(self._root(operand) for call in calls for operand in call.operands)

    def _root(self, value: Value) -> Value:
        """The value in whose memory it lies."""
        view = memory_view(value, self._stored)
        assert view is not None
        stored = view.value
        while stored in self.traced.in_place:
            stored = self.traced.in_place[stored][0]
        return stored

    @cached_property
    def _stored(self) -> frozenset[Value]:
        return frozenset((*self.traced.leaves, *self.traced.made))


def bytes_of(value: Value) -> int:
    """The bytes from a value's first element to its last."""
    return max(0, span(value.shape, value.memory_strides)) * torch_dtype(value.dtype).itemsize


class Part(Protocol):
    """Operators of a model: the nodes of the values that they read and make. `key`: equal for equal functions."""

    @property
    def key(self) -> str: ...

    @property
    def inputs(self) -> tuple[fx.Node, ...]: ...

    @property
    def outputs(self) -> tuple[fx.Node, ...]: ...


# A result's memory: the number of its part, and the value of that.
_Made = tuple[int, Value]


@dataclass(frozen=True)
class ModelMemory:
    """One allocation of `bytes`: for every part the first byte of what it alone needs, and those of the memories of its
    results, None for memory of their own.
    """

    bytes: int
    bases: tuple[int, ...]
    results: tuple[tuple[int | None, ...], ...]

    @staticmethod
    def of(parts: Sequence[Part], functions: Mapping[str, FunctionMemory], kept: Collection[fx.Node]) -> ModelMemory:
        """That of a model; `functions`: of its parts by kernels, by their keys; `kept`: what calls return or write."""
        made: dict[fx.Node, _Made] = {}
        last: dict[_Made, int] = {}
        own: set[_Made] = set()
        for number, part in enumerate(parts):
            function = functions.get(part.key)
            arguments = function.traced.arguments if function is not None else [None] * len(part.inputs)
            for node, leaf in zip(part.inputs, arguments, strict=True):
                if node in made:
                    last[made[node]] = number
                    # Operators of PyTorch may return views of it.
                    own |= {made[node]} if function is None or leaf in function.called else set()
            if function is None:
                continue
            given = dict(zip(arguments, part.inputs, strict=True))
            for place, node in enumerate(part.outputs):
                lying = function.lies_in(place)
                if lying in function.results:
                    made[node] = (number, lying)
                    last.setdefault((number, lying), number)
                elif lying in given and given[lying] in made:
                    made[node] = made[given[lying]]
        own |= {made[node] for node in kept if node in made}
        shared = [each for each in last if each not in own]
        lifetimes = [Lifetime(bytes_of(value), number, last[number, value]) for number, value in shared]
        alone = [
            Lifetime(function.inner_bytes if (function := functions.get(part.key)) is not None else 0, n, n)
            for n, part in enumerate(parts)
        ]
        found = arranged([*alone, *lifetimes])
        begins = [begin for _, begin in found.places]
        at = dict(zip(shared, begins[len(parts) :], strict=True))
        results = tuple(
            tuple(at.get((n, value)) for value in (functions[part.key].results if part.key in functions else ()))
            for n, part in enumerate(parts)
        )
        return ModelMemory(found.arena_bytes, tuple(begins[: len(parts)]), results)
