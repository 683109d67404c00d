"""The steps of a traced function as those of a plan: launches of kernels, and calls of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from autosched.baselines.library_calls import LibraryCall
from autosched.kernels.kernel import Kernel
from autosched.planning import Call, Launch, Layout, Slot, Step
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.preparation import Preparation
from autosched.tracing.fusion.assembly import Assembled
from autosched.tracing.values.fallbacks import Fallback, FallbackOperation, with_values
from autosched.tracing.values.tensor_reads import MemoryView, memory_view
from autosched.tracing.values.values import Leaf, Prepared, Value
from search_spaces.workloads.strides import same_places

# Reads a value from the tensors of all slots.
Reader = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Region:
    """The memory of a value: a slot's tensor itself, or, with an `offset`, what begins at that element of it.

    `dtype`: the element type as which the tensor is read, where that is another one.
    """

    slot: int
    offset: int | None = None
    dtype: torch.dtype | None = None

    @property
    def begin(self) -> int:
        """The first element."""
        return self.offset or 0


# The memory of every value that has some.
Regions = Mapping[Value, Region]


@dataclass(frozen=True)
class ResultRegion:
    """The memory of a result: a region, or a view of it."""

    region: Region
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(value: Value, numbers: Regions) -> ResultRegion:
        """That of a value, or of a view of one."""
        view = memory_of(value, numbers)
        region = numbers[view.value]
        if value is not view.value:
            region = replace(region, offset=region.begin + view.offset)
        return ResultRegion(region, tuple(view.shape), tuple(view.strides))

    @property
    def read(self) -> Reader:
        """Reads it from the tensors of all slots."""
        return region_reader(self.region, self.shape, self.strides)


@dataclass
class Draft:
    """The slots and steps of a plan on a device, to which traced functions are added one after the other.

    `alignment`: of the addresses that kernels take. `prepared`: the slots that kernels read constants of, in layouts of
    their own. `_constants_of`: the slots that the slot of a prepared value is computed from.
    """

    device: torch.device
    alignment: int
    slots: list[Slot] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    prepared: set[int] = field(default_factory=set)
    _constants_of: dict[int, set[int]] = field(default_factory=dict)

    def add_slot(self, slot: Slot | None = None) -> int:
        """The number of another slot."""
        self.slots.append(slot or Slot())
        return len(self.slots) - 1

    def add(
        self,
        traced: TracedFunction,
        kernels: Mapping[str, Kernel],
        leaves: Regions,
        by_library: Mapping[Value, LibraryCall],
    ) -> Regions:
        """Add the steps of a function whose leaves lie there; returns the memory of all values.

        `kernels`: by the key of a workload; `by_library`: calls that compute values in the place of their kernels.
        """
        numbers = dict(leaves)
        for value in traced.made:
            source = value.same_bytes if isinstance(value, Fallback) else None
            same = None if source is None else replace(numbers[source], dtype=getattr(torch, value.dtype))
            numbers[value] = same or Region(self.add_slot())
        for value in (v for v in traced.made if numbers[v].dtype is None):
            called = value in by_library
            self.slots[numbers[value].slot] = Slot() if called else _slot(value, traced, numbers)
        operations: set[FallbackOperation] = set()
        for step in traced.steps:
            if step.assembled is not None and step.values[0] in by_library:
                self.steps.append(_library_step(step.assembled, by_library[step.values[0]], numbers))
            elif step.assembled is not None:
                self._add_launch(step.assembled, kernels[step.assembled.workload.key], numbers)
            elif isinstance(value := step.values[0], Prepared):
                self._add_preparation(value, numbers)
            # What is in place was stored with its parts; the first of several results of one operation computes all.
            elif isinstance(value := step.values[0], Fallback) and value.operation not in operations:
                operations.add(value.operation)
                if numbers[value].dtype is None:
                    self.steps.append(self._call_of(value.operation, traced, numbers))
        return numbers

    def _add_launch(self, assembled: Assembled, kernel: Kernel, numbers: Regions) -> None:
        kernel = kernel.called_as(assembled.workload)
        reads, originals = [], []
        for view, argument in zip(assembled.inputs, kernel.inputs, strict=True):
            region = numbers[view.value]
            offset = (region.begin + view.offset) * getattr(torch, view.value.dtype).itemsize
            originals.append((region.slot, offset))
            if offset % self.alignment:
                # Every tensor in memory is aligned, but views of it may not be.
                part = replace(region, offset=region.begin + view.offset)
                read = region_reader(part, view.shape, view.strides)
                reads.append((self.add_copy(argument.usable, read, region.slot), 0))
            else:
                reads.append(originals[-1])
        if kernel.constants is not None:
            read_once = {originals[place][0] for place in kernel.constants.places}
            self.prepared |= {s for slot in read_once for s in self._constants_of.get(slot, {slot})}
        # A copy is another tensor in every call.
        known = tuple(originals) if kernel.constants is not None and reads != originals else ()
        self.steps.append(Launch(kernel, tuple(reads), tuple(numbers[v].slot for v in assembled.values), known))

    def _add_preparation(self, value: Prepared, numbers: Regions) -> None:
        """Add the step of a prepared value as early as it can be: a call between launches divides a CUDA graph."""
        slots = [slot_of(v, numbers) for v in value.operands]
        made = numbers[value].slot
        self._constants_of[made] = set(slots)
        run = Preparation(value, [reader(v, numbers) for v in value.operands], made)
        early = 1 + max((n for n, step in enumerate(self.steps) if {*step.writes} & {*slots}), default=-1)
        self.steps.insert(early, Call(run, tuple(slots), (made,)))

    def add_copy(self, usable: Callable[[Tensor], Tensor], read: Reader, slot: int) -> int:
        """The slot of what kernels can read in the place of a part of another slot."""
        here = self.add_slot()

        def run(tensors: list[Any]) -> None:
            tensors[here] = usable(read(tensors))

        self.steps.append(Call(run, (slot,), (here,)))
        return here

    def _call_of(self, operation: FallbackOperation, traced: TracedFunction, numbers: Regions) -> Call:
        """A call of PyTorch, which computes all results of one operation."""
        read = {v: reader(v, numbers) for v in operation.operands}
        made = [v for v in traced.made if isinstance(v, Fallback) and v.operation is operation]
        kept = [(numbers[v].slot, v.output, v.memory_strides if v.readable else None) for v in made]
        device, alignment = self.device, self.alignment

        def run(tensors: list[Any]) -> None:
            given, keywords = with_values((operation.arguments, dict(operation.keywords)), lambda v: read[v](tensors))
            if "device" in keywords:
                keywords["device"] = device
            found = operation.target(*given, **keywords)
            for slot, number, strides in kept:
                one = found if number is None else found[number]
                tensors[slot] = one if strides is None else _as_kernels_read(one, strides, alignment)

        reads = tuple(slot_of(v, numbers) for v in operation.operands)
        return Call(run, reads, tuple(slot for slot, _, _ in kept))


def _library_step(assembled: Assembled, call: LibraryCall, numbers: Regions) -> Call:
    """A call of a library, which allocates its result."""
    regions = [numbers[view.value] for view in assembled.inputs]
    slots = [region.slot for region in regions]
    begins = [region.begin + view.offset for region, view in zip(regions, assembled.inputs, strict=True)]
    whole = [region_reader(replace(region, offset=None), (), ()) for region in regions]
    (value,), compute = assembled.values, call.compute
    made, shape, strides = numbers[value].slot, tuple(value.shape), value.memory_strides
    (out,) = assembled.workload.outputs
    alike = (out.shape, out.effective_strides) == (shape, strides)

    def run(tensors: list[Any]) -> None:
        result = compute([read(tensors) for read in whole], begins)
        tensors[made] = result if alike else result.as_strided(shape, strides, result.storage_offset())

    return Call(run, tuple(slots), (made,))


def _slot(value: Value, traced: TracedFunction, numbers: Regions) -> Slot:
    if isinstance(value, Fallback | Prepared):
        return Slot()
    dtype: torch.dtype = getattr(torch, value.dtype)
    whole, offset = traced.in_place.get(value, (None, 0))
    within = None if whole is None else (numbers[whole].slot, offset * dtype.itemsize)
    return Slot(Layout(tuple(value.shape), value.memory_strides, dtype), within)


def ordered_leaves(traced: TracedFunction) -> list[Leaf]:
    """The tensors that a call begins with: the arguments, the constants, the state that changes."""
    constants = [leaf for leaf in traced.leaves if leaf.position is None and leaf not in traced.places]
    return [*traced.arguments, *constants, *traced.places]


def reader(value: Value, numbers: Regions) -> Reader:
    """A function that reads a value, or a view of one, from the tensors of all slots."""
    return ResultRegion.of(value, numbers).read


def region_reader(region: Region, shape: tuple[int, ...], strides: tuple[int, ...]) -> Reader:
    """A function that reads a region as a tensor of this shape and of these strides."""
    slot, offset, dtype = region.slot, region.begin, region.dtype
    if dtype is not None:
        whole = region_reader(replace(region, dtype=None), shape, strides)
        return lambda tensors: whole(tensors).view(dtype)
    if region.offset is None:
        return lambda tensors: tensors[slot]
    return lambda tensors: tensors[slot].as_strided(shape, strides, tensors[slot].storage_offset() + offset)


def slot_of(value: Value, numbers: Regions) -> int:
    """The slot that a value, or a view of one, lies in."""
    return numbers[memory_of(value, numbers).value].slot


def memory_of(value: Value, numbers: Regions) -> MemoryView:
    """The memory that a value is, or is a view of."""
    strided = memory_view(value, numbers)
    assert strided is not None
    return strided


def _as_kernels_read(tensor: Tensor, strides: tuple[int, ...], alignment: int) -> Tensor:
    """PyTorch's result, copied if its strides or alignment are not those of the kernels."""
    # The memory of a lazily negated tensor has other values.
    tensor = tensor.resolve_neg()
    if tensor.data_ptr() % alignment or not same_places(tuple(tensor.shape), tensor.stride(), strides):
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor
