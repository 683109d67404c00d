"""Parts of a graph, each computed by a call of its own, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from autosched.torch_compile.others import Call
from autosched.torch_compile.segments import DividedGraph, Segment, attribute, results_of

# A call by AOTAutograd's convention: it takes its inputs in a list, which it empties.
Boxed = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Step:
    """A call on values by their places in the list of all values, of which it sets others; `dropped`: those that no
    later step reads.
    """

    call: Call
    read: tuple[int, ...]
    made: tuple[int, ...]
    dropped: tuple[int, ...]

    def run(self, values: list[Any]) -> None:
        made = self.call(*[values[place] for place in self.read])
        for place, value in zip(self.made, made, strict=True):
            values[place] = value
        for place in self.dropped:
            values[place] = None


@dataclass(frozen=True)
class Composition:
    """Steps run in order on the inputs of a graph, its `constants`, and as many values as are `made`.

    `results`: places of the graph's results, which are kept; the others are the same at every call.
    """

    steps: tuple[Step, ...]
    constants: tuple[Any, ...]
    made: int
    results: tuple[tuple[int | None, Any], ...]

    def __call__(self, inputs: list[Any]) -> list[Any]:
        values = [*inputs, *self.constants, *[None] * self.made]
        inputs.clear()
        for step in self.steps:
            step.run(values)
        return [same if place is None else values[place] for place, same in self.results]


def composed(divided: DividedGraph, parts: Sequence[tuple[Segment, Call]]) -> Boxed:
    """The graph as a call of these parts, which hold all of its operators in order."""
    if len(parts) == 1:
        return boxed(parts[0][1])
    graph = divided.module.graph
    constants = [n for n in graph.nodes if n.op == "get_attr"]
    made = [node for segment, _ in parts for node in segment.outputs]
    places = {node: place for place, node in enumerate((*divided.whole.inputs, *constants, *made))}
    returned = results_of(graph)
    known = tuple(attribute(divided.module, n) for n in constants)
    results = tuple((places[r], None) if isinstance(r, fx.Node) else (None, r) for r in returned)
    made_call = Composition(_steps(parts, places, set(returned)), known, len(made), results)
    return _marked(made_call.__call__)


def _steps(
    parts: Sequence[tuple[Segment, Call]], places: Mapping[fx.Node, int], returned: set[Any]
) -> tuple[Step, ...]:
    last = {node: number for number, (segment, _) in enumerate(parts) for node in (*segment.outputs, *segment.inputs)}
    dropped: list[list[int]] = [[] for _ in parts]
    for node, number in last.items():
        if node not in returned:
            dropped[number].append(places[node])
    return tuple(
        Step(
            call,
            tuple(places[n] for n in segment.inputs),
            tuple(places[n] for n in segment.outputs),
            tuple(dropped[number]),
        )
        for number, (segment, call) in enumerate(parts)
    )


def boxed(call: Call) -> Boxed:
    """The call of tensors as one that takes its inputs in a list, which it empties."""

    def run(inputs: list[Any]) -> Sequence[Any]:
        given = tuple(inputs)
        inputs.clear()
        return call(*given)

    return _marked(run)


def _marked(call: Callable[[list[Any]], Sequence[Any]]) -> Boxed:
    def run(inputs: list[Any]) -> Sequence[Any]:
        return call(inputs)

    vars(run)["_boxed_call"] = True
    return run
