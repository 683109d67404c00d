"""A graph as one plan of its parts: kernels of all parts share one arena, and are launched together.

What PyTorch or Inductor computes is a call between the launches. The memory of a value that kernels made is read where
it is, also as a view; what comes from elsewhere is copied where kernels cannot read it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from autosched.planning import Call as PlannedCall
from autosched.planning import Layout, Plan, Slot, Step
from autosched.torch_compile.direct_writes import Apart, Plans, PlansOfWrites, direct_writes, in_place
from autosched.torch_compile.fallback import Call
from autosched.torch_compile.input_writes import write_back, writing_back
from autosched.torch_compile.segments import DividedGraph, Segment, attribute, results_of
from autosched.tracing import TracedKernel
from autosched.tracing.callables.call_arguments import CallArguments, argument_of
from autosched.tracing.callables.changed_weights import ChangedWeights, warn_of_refusal
from autosched.tracing.callables.steps import Draft, Reader, Region, ResultRegion
from autosched.tracing.callables.whole_check import FirstUse
from autosched.tracing.values.values import Leaf
from search_spaces.workloads.strides import same_places

# A call by AOTAutograd's convention: it takes its inputs in a list, which it empties.
Boxed = Callable[[list[Any]], Sequence[Any]]
_CPU = torch.device("cpu")


def composed(
    divided: DividedGraph, parts: Sequence[tuple[Segment, Call]], graphs: bool = False, apart: bool = False
) -> Boxed:
    """The graph as a call of these parts, which hold all of its operators in order.

    `graphs`: launches are CUDA graphs where they can be. `apart`: parts share no arena, so that what one of them is the
    last to read is free after it.
    """
    if len(parts) == 1 and _as_steps(*parts[0]) is None:
        segment, call = parts[0]
        return boxed(call if segment is divided.in_place else writing_back(call, divided.writes))
    composition = _Composition(divided, parts)
    composition.add_parts(apart)
    planned = composition.planned(graphs)
    numbers = {node: number for number, node in enumerate(divided.whole.inputs)}
    folded = [(segment, call.traced) for segment, call in parts if isinstance(call, TracedKernel) and call.traced.folds]
    if not folded:
        return _marked(planned.__call__)
    places = [(traced, [*map(numbers.get, segment.inputs)]) for segment, traced in folded]
    weights = ChangedWeights(places, judged=True)
    return _marked(_WhileExact(planned, weights, lambda why: composed(divided, _as_written(parts, why), graphs, apart)))


class _WhileExact:
    """A graph by kernels whose rewrites combine weights, until these have changed so that the rewrites are refused."""

    def __init__(self, call: Boxed, weights: ChangedWeights, written: Callable[[str], Boxed]) -> None:
        self._call, self._written = call, written
        self._weights: ChangedWeights | None = weights
        self._replacing = threading.Lock()

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        weights = self._weights
        if weights is not None and (why := weights.why_refused(inputs)) is not None:
            self._replace(why)
        return self._call(inputs)

    def _replace(self, why: str) -> None:
        """Let the graph be computed as it is written from now on; a thread that comes meanwhile waits for that."""
        with self._replacing:
            if self._weights is None:
                return
            self._call = self._written(why)
            self._weights = None
        warn_of_refusal("graph", why)


def _as_written(parts: Sequence[tuple[Segment, Call]], why: str) -> list[tuple[Segment, Call]]:
    """The parts, those whose rewrites combine weights as they are written: by kernels, or else by PyTorch."""
    return [
        (segment, call.without_rewrites(why, segment.module.forward))
        if isinstance(call, TracedKernel) and call.traced.folds
        else (segment, call)
        for segment, call in parts
    ]


@dataclass(frozen=True)
class _Result:
    """A result of a graph: what lies there, or what is the same at every call. `whole`: it is all of a slot."""

    slot: int | None
    read: Reader
    whole: bool


@dataclass(frozen=True)
class PlannedGraph:
    """A graph as a function of a list of its inputs.

    `order`: of the inputs and `constants`, as the plan takes them: first those that kernels read, which are
    `arguments`. `closed_over`: what kernels read besides. `noticed`: a change of a constant that kernels have prepared
    is one of an argument. `first_uses`: of its kernels.
    """

    plans: Plans
    arguments: CallArguments
    read: int
    order: tuple[int, ...]
    constants: tuple[Any, ...]
    closed_over: tuple[torch.Tensor, ...]
    results: tuple[_Result, ...]
    noticed: bool
    first_uses: tuple[FirstUse, ...]

    def __call__(self, inputs: list[Any]) -> list[Any]:
        for first_use in self.first_uses:
            if not first_use.passed:
                first_use.ensure_right()
        given = [*inputs, *self.constants]
        inputs.clear()
        tensors = [given[n] for n in self.order]
        taken = self.arguments.taken(tensors[: self.read])
        originals = {}
        if taken.copied:
            originals = {r.slot: tensors[r.slot] for r in self.results if r.slot is not None and r.slot < self.read}
        addresses = [*taken.addresses, *[0] * (len(tensors) - self.read), *(t.data_ptr() for t in self.closed_over)]
        tensors[: self.read] = taken.tensors
        tensors += self.closed_over
        static = taken.static if self.noticed else None
        copied = taken.copied
        # What nothing reads any more is free while the plan runs.
        del given, taken
        self.plans(tensors, addresses, copied)(tensors, addresses, static)
        for slot, tensor in originals.items():
            if same_places(tuple(tensor.shape), tensor.stride(), tensors[slot].stride()):
                tensors[slot] = tensor
        return [originals[r.slot] if r.whole and r.slot in originals else r.read(tensors) for r in self.results]


class _Composition:
    """The plan of a graph under construction.

    `_memory`: of the value of every node so far, a slot, or, of what kernels made, more exactly where. `_readable`:
    where kernels can read those that lie in memory of others.
    """

    def __init__(self, divided: DividedGraph, parts: Sequence[tuple[Segment, Call]]) -> None:
        self._divided, self._parts = divided, parts
        self._kernels = [_as_steps(segment, call) for segment, call in parts]
        kernels = [kernel for kernel in self._kernels if kernel is not None]
        self._device, self._alignment = (kernels[0].device, kernels[0].alignment) if kernels else (_CPU, 1)
        if any(kernel.device != self._device for kernel in kernels):
            # A plan has one device: those of others are calls.
            self._kernels = [k if k is not None and k.device == self._device else None for k in self._kernels]
        self._draft = Draft(self._device, self._alignment)
        self._constants = [n for n in divided.module.graph.nodes if n.op == "get_attr"]
        self._given = [*divided.whole.inputs, *self._constants]
        self._leaves = self._read_by_kernels()
        self._ordered = [*self._leaves, *(n for n in self._given if n not in self._leaves)]
        self._memory: dict[fx.Node, ResultRegion | int] = {n: self._draft.add_slot() for n in self._ordered}
        # They are as they were passed, where kernels may read copies.
        self._targets = [self._draft.add_slot() for _ in divided.writes]
        self._readable = {node: Region(number) for number, node in enumerate(self._leaves)}
        self._closed_over = [t for kernel in self._kernels if kernel is not None for t in kernel.constants]
        self._closed_over_slots = iter([Region(self._draft.add_slot()) for _ in self._closed_over])

    def _read_by_kernels(self) -> dict[fx.Node, Leaf]:
        """The inputs and constants that kernels read, as leaves."""
        found: dict[fx.Node, Leaf] = {}
        given = set(self._given)
        for (segment, _), kernel in zip(self._parts, self._kernels, strict=True):
            for node, leaf in zip(segment.inputs, kernel.traced.arguments if kernel is not None else (), strict=False):
                if node in given:
                    found.setdefault(node, leaf)
        for number in self._divided.writes if found else ():
            node, example = self._divided.whole.inputs[number], self._divided.examples[number]
            leaf = Leaf(
                name=node.name,
                shape=tuple(example.shape),
                dtype=str(example.dtype).removeprefix("torch."),
                strides=example.stride(),
                position=number,
            )
            if leaf.readable and example.device == self._device:
                found.setdefault(node, leaf)
        # In this order a call has least to do.
        return dict(sorted(found.items(), key=lambda item: item[1].static))

    def add_parts(self, apart: bool) -> None:
        """Add the steps of all parts."""
        for (segment, call), kernel in zip(self._parts, self._kernels, strict=True):
            if apart:
                # A call ends a stretch of launches, and with it the memory that they share.
                self._draft.steps.append(PlannedCall(lambda _: None, (), ()))
            if kernel is None:
                self._add_call(segment, call)
                continue
            pairs = zip(segment.inputs, kernel.traced.arguments, strict=True)
            arguments = [self._region(node, leaf) for node, leaf in pairs]
            constants = [next(self._closed_over_slots) for _ in kernel.constants]
            made = kernel.add_to(self._draft, arguments, constants)
            self._memory.update(zip(segment.outputs, made, strict=True))

    def planned(self, graphs: bool) -> PlannedGraph:
        """The graph as a function, once all parts are added."""
        draft, leaves, writes = self._draft, list(self._leaves.values()), self._divided.writes
        returned = results_of(self._divided.module.graph)
        count = len(returned) - len(writes)
        results = tuple(map(self._result, returned[:count]))
        static = {number for number, leaf in enumerate(leaves) if leaf.static}
        # Weights are alive anyway.
        kept = static | {r.slot for r in results if r.slot is not None}
        numbers = {node: number for number, node in enumerate(self._given)}
        return PlannedGraph(
            self._plans(returned[count:], kept, graphs),
            CallArguments("the graph", leaves, self._device, self._alignment),
            len(leaves),
            (*(numbers[node] for node in self._ordered), *writes),
            tuple(attribute(self._divided.module, n) for n in self._constants),
            tuple(self._closed_over),
            results,
            draft.prepared <= static,
            tuple({id(k.first_use): k.first_use for k in self._kernels if k is not None}.values()),
        )

    def _add_call(self, segment: Segment, call: Call) -> None:
        read, slots = [self._reader(n) for n in segment.inputs], [self._slot(n) for n in segment.inputs]
        made = [self._draft.add_slot() for _ in segment.outputs]

        def run(tensors: list[Any]) -> None:
            for slot, value in zip(made, call(*[each(tensors) for each in read]), strict=True):
                tensors[slot] = value

        self._draft.steps.append(PlannedCall(run, tuple(slots), tuple(made)))
        self._memory.update(zip(segment.outputs, made, strict=True))

    def _plans(self, values: Sequence[fx.Node], kept: Collection[int], graphs: bool) -> Plans:
        """The plan, and another one for writes to inputs that kernels can make themselves; copies come last."""
        draft = self._draft

        def plan(slots: Sequence[Slot], steps: Sequence[Step], copied: Sequence[int]) -> Plan:
            copies = [self._copies([values[n] for n in copied], copied)] if copied else []
            return Plan(slots, [*steps, *copies], kept, self._device, graphs)

        everything = range(len(values))
        steps, direct = in_place(draft.steps, self._direct(values, kept))
        if not direct:
            only = plan(draft.slots, draft.steps, everything)
            return lambda *_: only
        slots = [replace(s, within=(direct[n], 0)) if n in direct else s for n, s in enumerate(draft.slots)]
        copied = [n for n in everything if self._slot(values[n]) not in direct]
        without = plan(slots, steps, copied)
        apart = Apart([_bytes(self._divided, node) for node in self._ordered], [*direct.values()])
        return PlansOfWrites(without, lambda: plan(draft.slots, draft.steps, everything), apart, len(self._leaves))

    def _direct(self, values: Sequence[fx.Node], kept: Collection[int]) -> dict[int, int]:
        """The slots of values that may lie in the memory of inputs, and the slots of these."""
        numbers = {node: n for n, node in enumerate(self._leaves)}
        counts, writes = Counter(map(self._slot, values)), dict[int, int]()
        for value, number in zip(values, self._divided.writes, strict=True):
            memory, node = self._memory[value], self._divided.whole.inputs[number]
            if isinstance(memory, int) or memory.region.begin or node not in numbers:
                continue
            leaf, slot = self._leaves[node], memory.region.slot
            # All of the slot's memory is the value's, in the input's order of elements.
            alike = (memory.shape, memory.strides) == (leaf.shape, leaf.strides)
            layout = self._draft.slots[slot].layout
            whole = layout is not None and (layout.dtype, layout.bytes) == (getattr(torch, leaf.dtype), leaf.bytes)
            # No other value may be the input as it was.
            if alike and whole and counts[slot] == 1 and numbers[node] not in counts:
                writes[slot] = numbers[node]
        return direct_writes(self._draft.slots, self._draft.steps, writes, kept)

    def _copies(self, values: Sequence[fx.Node], numbers: Sequence[int]) -> PlannedCall:
        """Copies to inputs: all else has read them before."""
        targets, read = [self._targets[n] for n in numbers], [self._reader(n) for n in values]

        def run(tensors: list[Any]) -> None:
            write_back([tensors[slot] for slot in targets], [each(tensors) for each in read])

        return PlannedCall(run, (*targets, *map(self._slot, values)), ())

    def _region(self, node: fx.Node, leaf: Leaf) -> Region:
        """The memory at which kernels read a node's value: where it is, or that of a copy."""
        memory = self._memory[node]
        # Others than kernels read may lie in memory in any way.
        if isinstance(memory, ResultRegion) and memory.shape == leaf.shape and leaf.readable:
            begin = memory.region.begin * getattr(torch, leaf.dtype).itemsize
            if same_places(leaf.shape, memory.strides, leaf.strides) and begin % self._alignment == 0:
                return memory.region
        if node not in self._readable:
            usable = argument_of(leaf, self._device, self._alignment).usable
            self._readable[node] = Region(self._draft.add_copy(usable, self._reader(node), self._slot(node)))
        return self._readable[node]

    def _reader(self, node: fx.Node) -> Reader:
        memory = self._memory[node]
        if isinstance(memory, ResultRegion):
            return memory.read
        return lambda tensors: tensors[memory]

    def _slot(self, node: fx.Node) -> int:
        memory = self._memory[node]
        return memory.region.slot if isinstance(memory, ResultRegion) else memory

    def _result(self, returned: Any) -> _Result:
        if not isinstance(returned, fx.Node):
            return _Result(None, lambda _: returned, False)
        memory = self._memory[returned]
        whole = isinstance(memory, int) or memory.region.offset is None
        return _Result(self._slot(returned), self._reader(returned), whole)


def _bytes(divided: DividedGraph, node: fx.Node) -> int:
    """Bytes from the first element of an input to its last one; 0 of a constant, which nothing writes."""
    if node.op != "placeholder":
        return 0
    example = divided.examples[divided.whole.inputs.index(node)]
    return Layout(tuple(example.shape), example.stride(), example.dtype).bytes


def _as_steps(segment: Segment, call: Call) -> TracedKernel | None:
    """The kernels of a part, if their steps can be steps of the whole graph's plan."""
    if not isinstance(call, TracedKernel):
        return None
    traced = call.traced
    counts = (len(traced.arguments), len(traced.results)) == (len(segment.inputs), len(segment.outputs))
    return call if call.kernels and counts and not (traced.written or traced.places) else None


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
