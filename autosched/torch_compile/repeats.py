"""Borders between equal layers in a graph of operators.

A layer that a model repeats is a stretch of operators that follows itself: n ≥ 2 times the same ones, at the same
shapes. The longest such run is cut at every layer, and then the operators before it, after it, and within a layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from autosched.tracing.capture.graph_nodes import is_view

# Fewest operators of a layer that are neither pointwise nor views: a block of a transformer or of a ResNet has as many.
# Between smaller parts, as the steps of a recurrent net, more would be lost than the launches of a segment take.
_FEWEST_ANCHORS = 4
# Most values that a layer computes and the next one reads: the residual stream, and its norm.
_MOST_STREAMS = 2
# Runs that are tried, the longest first: the others are multiples of these, or short.
_MOST_RUNS = 8


def borders(graph: fx.Graph) -> tuple[int, ...]:
    """Positions among the called operators, in order, at which equal layers begin or end."""
    sequence = _Sequence(tuple(n for n in graph.nodes if n.op.startswith("call")))
    return tuple(sorted(sequence.cuts(0, len(sequence.nodes))))


def tensor_text(value: Any) -> str:
    """All that tells a value without data from others: shapes, strides, element types and devices."""
    leaves = tree_leaves(value)
    return "; ".join(
        f"{list(x.shape)} {list(x.stride())} {x.dtype} {x.device}" if isinstance(x, Tensor) else repr(x) for x in leaves
    )


@dataclass(frozen=True)
class _Run:
    """Operators from `start` on that are those `period` later, as many as `count`."""

    start: int
    period: int
    count: int


@dataclass(frozen=True, eq=False)
class _Sequence:
    """The called operators of a graph, in order."""

    nodes: tuple[fx.Node, ...]

    def cuts(self, first: int, end: int) -> set[int]:
        """Borders of layers among the operators from `first` to before `end`."""
        for run in self._runs(first, end):
            if found := self._cut(run):
                unit = found[1] - found[0]
                within = {at - found[0] for at in self.cuts(found[0], found[1])}
                repeated = {start + offset for start in found[:-1] for offset in within}
                assert max(within, default=0) < unit
                return {*self.cuts(first, found[0]), *found, *repeated, *self.cuts(found[-1], end)}
        return set()

    def _runs(self, first: int, end: int) -> Sequence[_Run]:
        """The longest runs of every period, by the operators that need no compilation of their own."""
        ids = self._ids[first:end]
        found = []
        for period in range(1, len(ids) // 2 + 1):
            start, count = _longest(ids[:-period] == ids[period:])
            if count >= period:
                found.append(_Run(first + start, period, count))
        return sorted(found, key=lambda run: -run.count)[:_MOST_RUNS]

    def _cut(self, run: _Run) -> list[int]:
        """Borders of the layers of a run: as few values as possible pass, and a kernel would begin there anyway."""
        end = run.start + run.count + run.period
        unit = run.period * self._periods(run)
        passing = self._passing(unit)
        offers = []
        # Two layers at least.
        for offset in range(min(unit, end + 1 - run.start - 2 * unit)):
            found = list(range(run.start + offset, end + 1, unit))
            if passing[found[1]] > _MOST_STREAMS or any(self._divides_results[at] for at in found):
                continue
            streams = self._streams(*found[:3])
            if self._is_chain(streams, found[1], unit):
                offers.append((len(streams), -self._freshness(streams, found[1]), -len(found), offset, found))
        return min(offers)[-1] if offers else []

    def _periods(self, run: _Run) -> int:
        """Periods that make a layer of enough operators."""
        anchors = sum(_is_anchor(n) for n in self.nodes[run.start : run.start + run.period])
        return -(-_FEWEST_ANCHORS // anchors) if anchors else run.count + 2

    def _passing(self, unit: int) -> list[int]:
        """For each position, the number of values that so many operators before it make and so many behind it read."""
        change = [0] * (len(self.nodes) + 2)
        for number, readers in enumerate(self._readers):
            counted = number
            for reader in readers:
                first, last = max(counted, reader - unit), min(reader, number + unit)
                if first < last:
                    change[first + 1] += 1
                    change[last + 1] -= 1
                    counted = last
        return list(itertools.accumulate(change))

    def _streams(self, first: int, border: int, end: int) -> list[int]:
        """The operators before a border whose results the layer behind it reads."""
        return [n for n in range(first, border) if any(border <= reader < end for reader in self._readers[n])]

    def _is_chain(self, streams: Sequence[int], border: int, unit: int) -> bool:
        """True where a layer computes such values from those of the layer before it: branches do not."""
        reached = {reader for stream in streams for reader in self._readers[stream]}
        for n in range(border, border + unit):
            if n in reached:
                reached.update(self._readers[n])
        return any(stream + unit in reached for stream in streams)

    def _freshness(self, streams: Sequence[int], border: int) -> int:
        """Extent to which a kernel begins at a border anyway: 2 before products, 1 before other operators that are not
        pointwise or where a value has several readers, 0 where one pointwise operator follows.
        """
        return min(self._freshness_of(stream, border) for stream in streams)

    def _freshness_of(self, stream: int, border: int) -> int:
        found = [self.nodes[n] for n in self._computing(stream) if n >= border]
        if any(map(_contracts, found)):
            return 2
        return 1 if len(found) > 1 or any(map(_is_anchor, found)) else 0

    def _computing(self, number: int) -> Iterator[int]:
        """The operators that read a value, also by a view of it."""
        for reader in self._readers[number]:
            if reader < len(self.nodes) and is_view(self.nodes[reader]):
                yield from self._computing(reader)
            else:
                yield min(reader, len(self.nodes) - 1)

    @cached_property
    def _ids(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """A number for each operator, the same for the same operator at the same shapes."""
        known: dict[str, int] = {}
        return np.array([known.setdefault(_signature(n), len(known)) for n in self.nodes], dtype=np.int64)

    @cached_property
    def _readers(self) -> list[list[int]]:
        """For each operator the positions of those that read its result; the graph's results are read at the end."""
        number = {node: n for n, node in enumerate(self.nodes)}
        return [sorted(number.get(user, len(self.nodes)) for user in node.users) for node in self.nodes]

    @cached_property
    def _divides_results(self) -> list[bool]:
        """For each position, True between an operator with several results, or one that is no tensor, and a reader."""
        found = [False] * (len(self.nodes) + 1)
        for n, node in enumerate(self.nodes):
            if not isinstance(node.meta.get("val"), Tensor):
                last = max(self._readers[n], default=n)
                found[n + 1 : last + 1] = [True] * (last - n)
        return found


def _longest(equal: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[int, int]:
    """Start and length of the longest stretch that is True."""
    ends = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
    lengths = ends[1::2] - ends[::2]
    if not len(lengths):
        return 0, 0
    longest = int(np.argmax(lengths))
    return int(ends[2 * longest]), int(lengths[longest])


def _signature(node: fx.Node) -> str:
    """An operator with its arguments, tensors as shapes."""
    given = fx.node.map_arg((node.args, node.kwargs), lambda x: _Text(tensor_text(x.meta.get("val"))))
    return f"{node.target} {given} {tensor_text(node.meta.get('val'))}"


class _Text(str):
    """A text that stands for a tensor among arguments."""


def _is_anchor(node: fx.Node) -> bool:
    """True for an operator of tensors that is neither pointwise nor a view."""
    tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else ()
    return bool(node.all_input_nodes) and not is_view(node) and torch.Tag.pointwise not in tags


def _contracts(node: fx.Node) -> bool:
    """True for products, convolutions and attention: PyTorch counts their operations."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.overloadpacket in flop_registry
