"""Weights that kernels read joined, moved into one memory: prepared values without a second copy (`share_weights`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, fx

from autosched.kernels.common_memory import CommonLayout
from autosched.torch_compile.graphs import on_data
from autosched.torch_compile.parts import Part
from autosched.torch_compile.segments import DividedGraph, Segment
from autosched.tracing import TracedKernel
from autosched.tracing.rewriting.joined_memory import joined_memory
from autosched.tracing.values.values import Prepared, Value

_COMPUTED = "its elements or strides are not those of whole weights next to each other"


@dataclass(frozen=True)
class Sharing:
    """Weights of a graph that kernels read joined where they lie so; `moves`: they are moved there, if they can be."""

    divided: DividedGraph
    moves: bool

    def applied(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The parts of the graph; weights are moved now, and no call may be using them meanwhile."""
        given = _given(self.divided)
        with on_data():
            return tuple(self._shared(p, given) if isinstance(p.call, TracedKernel) else p for p in parts)

    def _shared(self, part: Part, given: Mapping[fx.Node, Tensor]) -> Part:
        kernel = part.choice.kernel
        assert kernel is not None
        tensors = _tensors(kernel, part.segment, given)
        reasons = {value: self._why_copied(value, tensors) for value in _prepared(kernel)}
        return replace(
            part,
            shared_bytes=sum(value.bytes for value, why in reasons.items() if why is None),
            copied=tuple(f"{value.name}: {why}" for value, why in reasons.items() if why is not None),
        )

    def _why_copied(self, value: Prepared, tensors: Mapping[Value, Tensor]) -> str | None:
        """The reason that a value has memory of its own; None where it is that of its constants, from now on."""
        layout, own = joined_memory(value), _known(value, tensors)
        if layout is None:
            return _COMPUTED
        if own is None:
            return "the weights are not known when the graph is compiled"
        if layout.whole(own) is not None:
            return None
        return layout.why_not_moved(own) if self.moves else "kernels tuned in the background move no weights"

    def copied_bytes(self, kernels: Mapping[str, TracedKernel]) -> dict[str, int]:
        """Bytes of copies that remain, by the keys of segments: nothing is moved yet."""
        given, together, found = _given(self.divided), dict[int, _Together](), dict.fromkeys(kernels, 0)
        with on_data():
            for segment in (s for s in self.divided.segments if s.key in kernels):
                kernel = kernels[segment.key]
                tensors = _tensors(kernel, segment, given)
                copied = (v for v in _prepared(kernel) if not self._is_shared(v, tensors, together))
                found[segment.key] += sum(v.bytes for v in copied)
        return found

    def _is_shared(self, value: Prepared, tensors: Mapping[Value, Tensor], together: dict[int, _Together]) -> bool:
        """True if a value needs no memory; what is to be moved for it is noted: it cannot lie in two places."""
        layout, own = joined_memory(value), _known(value, tensors)
        if layout is None or own is None:
            return False
        if layout.whole(own) is not None:
            return True
        here = layout, tuple(map(id, own))
        there = {together.get(number) for number in here[1]}
        if there == {here}:
            return True
        if not self.moves or there != {None} or layout.why_bound(own) is not None:
            return False
        together |= dict.fromkeys(here[1], here)
        return True


# The layout of tensors, and these, by their identities.
_Together = tuple[CommonLayout, tuple[int, ...]]


def _prepared(kernel: TracedKernel) -> Iterator[Prepared]:
    return (v for v in kernel.traced.made if isinstance(v, Prepared))


def _given(divided: DividedGraph) -> dict[fx.Node, Tensor]:
    """The tensors of a graph's inputs, as far as they are known."""
    numbers = {node: n for n, node in enumerate(divided.whole.inputs)}
    return {node: x for node, n in numbers.items() if n in divided.tensors and (x := divided.tensors[n]()) is not None}


def _tensors(kernel: TracedKernel, segment: Segment, given: Mapping[fx.Node, Tensor]) -> dict[Value, Tensor]:
    pairs = zip(kernel.traced.arguments, segment.inputs, strict=True)
    return {leaf: given[node] for leaf, node in pairs if node in given}


def _known(value: Prepared, tensors: Mapping[Value, Tensor]) -> list[Tensor] | None:
    """The tensors of a value's constants; None where one is not known."""
    found = [tensors[c] for c in value.constants if c in tensors]
    return found if len(found) == len(value.constants) else None
