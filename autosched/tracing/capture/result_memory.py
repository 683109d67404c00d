"""Memory of results: they share memory exactly where PyTorch's do.

A result is an argument, a view of one, new memory or a view of that, whatever its elements: `torch.cat((x,))` has the
elements of x, and is not x. So the graph of a function is made to return the memory of its results, each once and
whole, before anything is decomposed or simplified. The results are strided views of that.

Before:  f(x): y = mul(x, 2); a = select(y, 0, 1); b = t(x); c = cat([x]); return (a, y, b, c)
After:   f(x): y = mul(x, 2);                                c = cat([x]); return (y, y, x, c)
         a, y, b, c = y.as_strided((6,), (1,), 6), y, x.as_strided((6, 4), (1, 6)), c
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._C._functorch import is_functorch_wrapped_tensor

from search_spaces.workloads.strides import is_dense, span

Strides = tuple[int, ...]


@dataclass(frozen=True)
class StridedView:
    """A part of memory, in elements, starting at element `offset`."""

    shape: tuple[int, ...]
    strides: Strides
    offset: int

    def of(self, memory: Tensor) -> Tensor:
        """The part of this memory."""
        return memory.as_strided(self.shape, self.strides, memory.storage_offset() + self.offset)


@dataclass(frozen=True)
class ResultView:
    """A result as a view: the number of a tensor returned as memory, and its part; None where it is all of it."""

    memory: int
    view: StridedView | None


@dataclass(frozen=True)
class ResultMemory:
    """The tensors that a graph returns as memory, and the results as views of them.

    `strides`: of every tensor that is returned, where they are known; `own`: the numbers of those that are new memory
    in every call, shared with no argument, no constant and no other.
    """

    strides: tuple[Strides | None, ...]
    own: frozenset[int]
    results: tuple[ResultView, ...]

    @staticmethod
    def as_returned(strides: Sequence[Strides | None], own: int) -> ResultMemory:
        """Results returned directly; the first `own` of them are memory of their own."""
        whole = tuple(ResultView(number, None) for number in range(len(strides)))
        return ResultMemory(tuple(strides), frozenset(range(own)), whole)


def return_memory(graph: fx.Graph) -> list[tuple[fx.Node, StridedView | None]]:
    """Let the graph return for every result the tensor whose memory it is; returns that tensor and the result's view of
    it.
    """
    first: dict[int, fx.Node] = {}
    relaid: set[int] = set()
    for node in graph.nodes:
        if (made := _strided(node)) is not None:
            tags = getattr(node.target, "tags", ())
            memory = first.setdefault(storage_of(made), node)
            if torch.Tag.view_copy in tags:
                # PyTorch makes no views of constants while a graph is captured.
                first[storage_of(made)] = node
            elif torch.Tag.inplace_view in tags and _layout(made) != _layout(memory.meta["val"]):
                # A layout changed in place: the tensor's producer does not have the later strides.
                relaid.add(storage_of(made))
    (output,) = (n for n in graph.nodes if n.op == "output")
    returned: list[Any] = list(output.args[0])
    places = [_place(n, first, relaid) for n in returned if isinstance(n, fx.Node)]
    instead = iter(places)
    output.args = (tuple(next(instead)[0] if isinstance(n, fx.Node) else n for n in returned),)
    return places


def return_once(graph: fx.Graph, places: Sequence[tuple[fx.Node, StridedView | None]]) -> ResultMemory:
    """Let the graph, decomposed since, return each tensor of `return_memory` once; returns the memory of all results.

    Results after those, each in memory of its own, are new values of changed tensors.
    """
    (output,) = (n for n in graph.nodes if n.op == "output")
    returned: list[Any] = [n for n in output.args[0] if isinstance(n, fx.Node)]
    first: dict[fx.Node, fx.Node] = {}
    places = [*places, *((made, None) for made in returned[len(places) :])]
    for (node, _), made in zip(places, returned, strict=True):
        first.setdefault(node, made)
    output.args = (tuple(first.values()),)
    number = {node: n for n, node in enumerate(first)}
    own = frozenset(n for node, n in number.items() if node.op == "call_function")
    strides = tuple(strides_of(node.meta.get("val")) for node in first)
    return ResultMemory(strides, own, tuple(ResultView(number[node], view) for node, view in places))


def strided_view(made: Tensor, whole: Tensor) -> StridedView | None:
    """One tensor as a part of another one in the same memory; None where it is no part of it."""
    shape, strides = tuple(made.shape), strides_of(made)
    offset = int(made.storage_offset() - whole.storage_offset())
    if strides is None or made.dtype != whole.dtype or made.is_neg() or made.is_conj() or offset < 0:
        return None
    within = 0 in shape or offset + span(shape, strides) <= span(tuple(whole.shape), whole.stride())
    return StridedView(shape, strides, offset) if within else None


def strides_of(made: Any) -> Strides | None:
    """The strides of a tensor; None where they depend on data, or there are none."""
    if not isinstance(made, Tensor) or made.layout is not torch.strided:
        return None
    strides = tuple(made.stride())
    return strides if all(isinstance(s, int) for s in (*strides, *made.shape)) else None


def storage_of(made: Tensor) -> int:
    """An identifier of a tensor's memory, valid as long as the tensor exists."""
    storage: int = made.untyped_storage()._cdata
    return storage


def _place(node: fx.Node, first: dict[int, fx.Node], relaid: set[int]) -> tuple[fx.Node, StridedView | None]:
    made = _strided(node)
    memory = None if made is None or storage_of(made) in relaid else first[storage_of(made)]
    whole = None if memory is None else _strided(memory)
    if memory is None or made is None or whole is None or memory is node:
        return node, None
    # A computed tensor fills its memory, so that every part of that is a part of it.
    if memory.op == "call_function" and not is_dense(tuple(whole.shape), whole.stride()):
        return node, None
    view = strided_view(made, whole)
    return (node, None) if view is None else (memory, view)


def _layout(made: Tensor) -> tuple[Any, ...]:
    return tuple(made.shape), strides_of(made), made.storage_offset()


def _strided(node: fx.Node) -> Tensor | None:
    """The tensor that a node makes, if its place in memory is known."""
    made = node.meta.get("val")
    if not isinstance(made, Tensor) or is_functorch_wrapped_tensor(made):
        return None
    return made if strides_of(made) is not None else None
