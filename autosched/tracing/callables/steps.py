"""The steps of a traced function as those of a plan: launches of kernels, and calls of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autosched.kernels.kernel import Kernel
from autosched.planning import Call, Launch, Layout, Slot, Step
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.fusion.assembly import Assembled
from autosched.tracing.values.tensor_reads import MemoryView, memory_view
from autosched.tracing.values.values import Fallback, FallbackOperation, Leaf, Value
from search_spaces.workloads.strides import same_places


@dataclass
class PlannedFunction:
    """A traced function on a device: `slots` and `steps` of its plan, and the slots that are `kept`.

    `numbers`: the slot of every value in memory (`slot_numbers`). `kernels`: by the key of a
    workload. `alignment`: of the addresses that kernels take.
    """

    traced: TracedFunction
    kernels: Mapping[str, Kernel]
    device: torch.device
    alignment: int
    numbers: Mapping[Value, int] = field(init=False)
    slots: list[Slot] = field(init=False)
    steps: list[Step] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = slot_numbers(self.traced)
        self.slots = [self._slot(value) for value in self.numbers]
        self.steps = []
        operations: set[FallbackOperation] = set()
        for step in self.traced.steps:
            if step.assembled is not None:
                self._add_launch(step.assembled)
            # What is in place was stored with its parts; the first of several results of one operation computes all.
            elif isinstance(value := step.values[0], Fallback) and value.operation not in operations:
                operations.add(value.operation)
                self.steps.append(self._call_of(value.operation))

    @property
    def kept(self) -> set[int]:
        """The slots of results, and of what is written at the end of a call."""
        values = (*self.traced.results, *(w.value for w in self.traced.written))
        return {self.numbers[_view(value, self.numbers).value] for value in values}

    def _slot(self, value: Value) -> Slot:
        if isinstance(value, Leaf | Fallback):
            return Slot()
        dtype: torch.dtype = getattr(torch, value.dtype)
        whole, offset = self.traced.in_place.get(value, (None, 0))
        within = None if whole is None else (self.numbers[whole], offset * dtype.itemsize)
        return Slot(Layout(tuple(value.shape), value.memory_strides, dtype), within)

    def _add_launch(self, assembled: Assembled) -> None:
        kernel = self.kernels[assembled.workload.key].called_as(assembled.workload)
        reads = []
        for number, view in enumerate(assembled.inputs):
            slot, offset = self.numbers[view.value], view.offset * getattr(torch, view.value.dtype).itemsize
            # Every tensor in memory is aligned, but views of it may not be.
            reads.append((self._copied(slot, view, kernel, number), 0) if offset % self.alignment else (slot, offset))
        self.steps.append(Launch(kernel, tuple(reads), tuple(self.numbers[v] for v in assembled.values)))

    def _copied(self, slot: int, view: MemoryView, kernel: Kernel, number: int) -> int:
        """The slot of an aligned copy of a view, which is an input of a kernel."""
        here, argument = len(self.slots), kernel.inputs[number]

        def run(tensors: list[Any]) -> None:
            there = tensors[slot]
            tensors[here] = argument.usable(
                there.as_strided(view.shape, view.strides, there.storage_offset() + view.offset)
            )

        self.slots.append(Slot())
        self.steps.append(Call(run, (slot,), (here,)))
        return here

    def _call_of(self, operation: FallbackOperation) -> Call:
        """A call of PyTorch, which computes all results of one operation."""
        read = {v: reader(v, self.numbers) for v in operation.operands}
        made = [v for v in self.traced.made if isinstance(v, Fallback) and v.operation is operation]
        kept = [(self.numbers[v], v.output, v.memory_strides if v.readable else None) for v in made]
        device, alignment = self.device, self.alignment

        def run(tensors: list[Any]) -> None:
            given = [_given(a, tensors, read) for a in operation.arguments]
            keywords = {k: _given(v, tensors, read) for k, v in operation.keywords}
            if "device" in keywords:
                keywords["device"] = device
            found = operation.target(*given, **keywords)
            for slot, number, strides in kept:
                one = found if number is None else found[number]
                tensors[slot] = one if strides is None else _as_kernels_read(one, strides, alignment)

        reads = tuple(self.numbers[_view(v, self.numbers).value] for v in operation.operands)
        return Call(run, reads, tuple(slot for slot, _, _ in kept))


def slot_numbers(traced: TracedFunction) -> Mapping[Value, int]:
    """The slot of every value in memory: of the arguments, the constants, the state that changes, then what is made."""
    constants = [leaf for leaf in traced.leaves if leaf.position is None and leaf not in traced.places]
    return {v: n for n, v in enumerate([*traced.arguments, *constants, *traced.places, *traced.made])}


def reader(value: Value, numbers: Mapping[Value, int]) -> Callable[[list[Any]], Any]:
    """A function that reads a value, or a view of one, from the tensors of all slots."""
    strided = _view(value, numbers)
    slot, shape, strides, offset = numbers[strided.value], strided.shape, strided.strides, strided.offset
    if value is strided.value:
        return lambda tensors: tensors[slot]
    return lambda tensors: tensors[slot].as_strided(shape, strides, tensors[slot].storage_offset() + offset)


def _view(value: Value, numbers: Mapping[Value, int]) -> MemoryView:
    strided = memory_view(value, numbers)
    assert strided is not None
    return strided


def _given(argument: Any, tensors: list[Any], read: Mapping[Value, Callable[[list[Any]], Any]]) -> Any:
    """An argument of an operator with values replaced by their tensors."""
    match argument:
        case Value():
            return read[argument](tensors)
        case list():
            return [_given(a, tensors, read) for a in argument]
        case tuple():
            return tuple(_given(a, tensors, read) for a in argument)
        case dict():
            return {k: _given(v, tensors, read) for k, v in argument.items()}
        case slice(start=start, stop=stop, step=step):
            return slice(*(_given(a, tensors, read) for a in (start, stop, step)))
        case _:
            return argument


def _as_kernels_read(tensor: Tensor, strides: tuple[int, ...], alignment: int) -> Tensor:
    """PyTorch's result, copied if its strides or alignment are not those of the kernels."""
    # The memory of a lazily negated tensor has other values.
    tensor = tensor.resolve_neg()
    if tensor.data_ptr() % alignment or not same_places(tuple(tensor.shape), tensor.stride(), strides):
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor
