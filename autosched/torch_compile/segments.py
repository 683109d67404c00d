"""Segments: a graph of operators divided into graphs that run one after the other, equal ones being one problem.

What depends on no input, such as a causal mask, is computed by every segment that reads it: known positions cost
nothing in a kernel, and leave out blocks that are masked.
"""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx

from autosched.torch_compile.graphs import changes_something
from autosched.torch_compile.input_writes import without_writes
from autosched.torch_compile.repeats import borders, tensor_text
from autosched.torch_compile.reports import Kind
from autosched.torch_compile.shared_work import with_shared_work
from autosched.tracing.capture.capture import Static, Weights
from autosched.tracing.capture.memory_format import channels_last
from autosched.tracing.translation.constant_nodes import ConstantNodes


@dataclass(frozen=True, eq=False)
class Segment:
    """Operators of a graph that follow each other, as a graph of their own.

    `first`, `end`: positions among the called operators. `graph` takes the values of the nodes `inputs` of the whole
    graph, which are like `examples`, and returns those of `outputs`; its constants are those of the module `owner`.
    `weights`: the numbers of inputs that are weights of the model. `key` is equal for equal problems: the same
    operators with the same arguments, on tensors of the same shapes, strides, element types and devices, the same of
    them weights.
    """

    first: int
    end: int
    owner: fx.GraphModule
    graph: fx.Graph
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    examples: tuple[Any, ...]
    weights: frozenset[int]
    key: str

    @property
    def operators(self) -> int:
        """The number of its operators."""
        return self.end - self.first

    @cached_property
    def module(self) -> fx.GraphModule:
        """The segment as a function."""
        return self.owner if self.graph is self.owner.graph else fx.GraphModule(self.owner, self.graph)


@dataclass(frozen=True, eq=False)
class DividedGraph:
    """A graph in segments, which hold all of its operators in order.

    `examples`: its inputs without data; `weights`: the numbers of those that are weights of the model. `writes`: the
    numbers of the inputs to which a call writes the last results; `given`: the graph that writes them itself.
    `tensors`: of the inputs, by their numbers, as far as they are known. `before`: the graph as it was written, where
    this one has its images in another memory format.
    """

    module: fx.GraphModule
    examples: tuple[Any, ...]
    weights: frozenset[int]
    writes: tuple[int, ...]
    given: fx.GraphModule
    tensors: Weights = field(default_factory=dict)
    before: DividedGraph | None = None

    @staticmethod
    def of(
        graph: fx.GraphModule,
        examples: Sequence[Any],
        weights: frozenset[int] = frozenset(),
        tensors: Weights | None = None,
    ) -> DividedGraph:
        """The graph as AOTAutograd gives it, taken apart into what changes nothing and writes to inputs."""
        functional, writes = without_writes(graph)
        return DividedGraph(
            with_shared_work(functional), tuple(examples), weights - {*writes}, writes, graph, tensors or {}
        )

    def for_kernels(self, kind: Kind) -> DividedGraph:
        """The graph with the memory format that kernels are fastest with: on a GPU, images channels last.

        On a CPU neither is faster for all convolutions. A graph of training is itself: its results are what the other
        direction reads.
        """
        on_gpu = any(isinstance(x, Tensor) and x.is_cuda for x in self.examples)
        return self.with_channels_last() if on_gpu and kind == "inference" else self

    def with_channels_last(self) -> DividedGraph:
        """The graph with images channels last from one convolution to the next; itself where that changes nothing."""
        moved = channels_last(self.module.graph)
        return self if moved is None else replace(self, module=fx.GraphModule(self.module, moved), before=self)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The segments between the borders of layers."""
        at = (0, *_borders(self.module.graph), len(self._nodes))
        parts = [self.part(first, end) for first, end in itertools.pairwise(at) if end > first]
        return tuple(p for p in parts if p.outputs) or (self.whole,)

    @cached_property
    def problems(self) -> tuple[tuple[Segment, int], ...]:
        """Every distinct segment, the first of equal ones, and how often it is in the graph."""
        first = {s.key: s for s in reversed(self.segments)}
        counted = Counter(s.key for s in self.segments)
        return tuple((first[key], count) for key, count in counted.items())

    def static(self, segment: Segment) -> Static:
        """The inputs of a segment that are weights; with those of all equal segments, where they are known."""
        if not segment.weights or not all(n in self.tensors for n in self.weights):
            return segment.weights
        numbers = {node: n for n, node in enumerate(self.whole.inputs)}
        equal = [s for s in self.segments if s.key == segment.key] or [segment]
        return tuple({n: self.tensors[numbers[s.inputs[n]]] for n in s.weights} for s in equal)

    @cached_property
    def whole(self) -> Segment:
        """The graph itself; its key is that of no part."""
        graph = self.module.graph
        inputs = tuple(n for n in graph.nodes if n.op == "placeholder")
        outputs = tuple(x for x in results_of(graph) if isinstance(x, fx.Node))
        return Segment(0, len(self._nodes), self.module, graph, inputs, outputs, self.examples, self.weights, "whole")

    @property
    def as_written(self) -> Segment:
        """The graph itself, without writes, in the memory format in which it was written."""
        return self.whole if self.before is None else self.before.whole

    @cached_property
    def in_place(self) -> Segment:
        """The graph as it was written, with its writes; itself where it has none."""
        if self.before is not None:
            return self.before.in_place
        if not self.writes:
            return self.whole
        count = len(results_of(self.module.graph)) - len(self.writes)
        outputs = tuple(x for x in results_of(self.module.graph)[:count] if isinstance(x, fx.Node))
        return replace(
            self.whole, owner=self.given, graph=self.given.graph, outputs=outputs, weights=frozenset(), key="in place"
        )

    def part(self, first: int, end: int) -> Segment:
        """The operators from `first` to before `end` as a segment."""
        if (first, end) == (0, len(self._nodes)):
            return self.whole
        own = {n for n in self._nodes[first:end] if n not in self._constant or _is_returned(n)}
        outputs = tuple(n for n in self._nodes[first:end] if n in own and self._is_read_after(n, end))
        chosen = self._with_constants(own)
        within = set(chosen)
        read = dict.fromkeys(x for n in chosen for x in n.all_input_nodes if x not in within)
        inputs = tuple(x for x in read if not self._is_module(x))
        graph = self._extracted(chosen, tuple(read), outputs)
        examples = tuple(map(self._example, inputs))
        text = [tensor_text(n.meta.get("val")) for n in outputs]
        given = {self.whole.inputs[n] for n in self.weights}
        weights = frozenset(n for n, x in enumerate(inputs) if x in given)
        key = "\n".join([*map(tensor_text, examples), str(sorted(weights)), str(graph), *text])
        return Segment(first, end, self.module, graph, inputs, outputs, examples, weights, key)

    def _is_read_after(self, node: fx.Node, end: int) -> bool:
        """True if the node is a result, or operators from position `end` on read it."""
        return any(user.op == "output" or self._positions[user] >= end for user in node.users)

    def _with_constants(self, own: set[fx.Node]) -> list[fx.Node]:
        """These nodes and the constants that they are computed from, in order."""
        found, rest = set(own), [*own]
        while rest:
            read = [x for x in rest.pop().all_input_nodes if x in self._constant and x not in found]
            found |= {*read}
            rest += read
        return [n for n in self._nodes if n in found]

    def _extracted(self, chosen: Sequence[fx.Node], read: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> fx.Graph:
        """The nodes as a graph whose names tell only their order."""
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        # Placeholders come first.
        for node in sorted(read, key=self._is_module):
            if self._is_module(node):
                copies[node] = graph.get_attr(str(node.target))
            else:
                copies[node] = graph.placeholder(f"x{len(copies)}")
        for node in chosen:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
            copies[node] = graph.create_node(node.op, node.target, args, kwargs)
        for node, copy in copies.items():
            copy.meta = dict(node.meta)
        graph.output(tuple(copies[n] for n in outputs))
        return graph

    def _is_module(self, node: fx.Node) -> bool:
        """True for a graph within the graph."""
        return node.op == "get_attr" and isinstance(attribute(self.module, node), torch.nn.Module)

    @cached_property
    def _nodes(self) -> tuple[fx.Node, ...]:
        return tuple(n for n in self.module.graph.nodes if n.op.startswith("call"))

    @cached_property
    def _positions(self) -> dict[fx.Node, int]:
        return {node: n for n, node in enumerate(self._nodes)}

    @cached_property
    def _constant(self) -> frozenset[fx.Node]:
        """The operators that depend on no input."""
        constants = ConstantNodes(self.module.graph)
        return frozenset(n for n in self._nodes if n in constants)

    @cached_property
    def _given(self) -> dict[fx.Node, Any]:
        return dict(zip(self.whole.inputs, self.examples, strict=True))

    def _example(self, node: fx.Node) -> Any:
        """The value of a node, without data."""
        return self._given[node] if node in self._given else node.meta["val"]


def _is_returned(node: fx.Node) -> bool:
    return any(user.op == "output" for user in node.users)


def attribute(module: fx.GraphModule, node: fx.Node) -> Any:
    """The constant, or the graph within a graph, that a node stands for."""
    return operator.attrgetter(str(node.target))(module)


def _borders(graph: fx.Graph) -> tuple[int, ...]:
    """The borders of layers; none where operators have effects, which are in order."""
    return () if any(map(changes_something, graph.nodes)) else borders(graph)


def results_of(graph: fx.Graph) -> tuple[Any, ...]:
    """The results of a graph: nodes, and what is the same at every call."""
    (output,) = (n for n in graph.nodes if n.op == "output")
    return tuple(output.args[0])
