"""Writes to inputs that kernels make themselves: the value is stored to the input's memory, and nothing is copied.

A kernel may do that if nothing reads the input after it, and of the input it uses at most the element that it stores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from autosched.kernels.in_place import Places, may_alias, storing_in_place
from autosched.kernels.kernel import Kernel
from autosched.planning import Launch, Plan, Slot, Step
from autosched.torch_compile.graphs import on_data
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.own_elements import uses_only_own_elements

# Takes the tensors and addresses of a call, and whether some are copies.
Plans = Callable[[Sequence[Any], Sequence[int], bool], Plan]


def direct_writes(
    slots: Sequence[Slot], steps: Sequence[Step], writes: Mapping[int, int], kept: Collection[int]
) -> dict[int, int]:
    """The slots of values, among these, that could lie in the memory of the input that they are written to.

    Kernels that read that input must be such as may do so: `in_place`.

    `writes`: by the slot of a whole value that of its input. `kept`: slots that are read after all steps.
    """
    parts = {slot.within[0] for slot in slots if slot.within is not None}
    return {
        value: target
        for value, target in writes.items()
        if value not in kept and value not in parts and _is_direct(steps, value, target)
    }


def _is_direct(steps: Sequence[Step], value: int, target: int) -> bool:
    maker = next((n for n, step in enumerate(steps) if value in step.writes), None)
    if maker is None:
        return False
    for number, step in enumerate(steps):
        if not isinstance(step, Launch):
            # What it returns may be a view of what it reads.
            if {value, target} & {*step.reads}:
                return False
            continue
        reads = target in {slot for slot, _ in (*step.reads, *step.originals)}
        if reads and (number > maker or (number == maker and not _reads_where_it_stores(step, value, target))):
            return False
    return isinstance(steps[maker], Launch)


def _reads_where_it_stores(launch: Launch, value: int, target: int) -> bool:
    """True for a kernel of one loop nest that uses of the input only the element that it stores."""
    kernel = launch.kernel
    if not isinstance(kernel, Kernel) or launch.originals:
        return False
    workload, output = kernel.workload, launch.writes.index(value)
    begins = {workload.inputs[n].name: begin for n, (_, begin) in _places(launch, kernel, {value: target}).items()}
    return uses_only_own_elements(workload, workload.output_names[output], begins)


def _places(launch: Launch, kernel: Kernel, direct: Mapping[int, int]) -> Places:
    """The inputs that lie in the memory of outputs."""
    outputs = {direct[value]: n for n, value in enumerate(launch.writes) if value in direct}
    sizes = [dtype(output.dtype).bytes for output in kernel.workload.outputs]
    reads = [(n, outputs[slot], offset) for n, (slot, offset) in enumerate(launch.reads) if slot in outputs]
    return {n: (output, offset // sizes[output]) for n, output, offset in reads}


def in_place(steps: Sequence[Step], direct: Mapping[int, int]) -> tuple[list[Step], dict[int, int]]:
    """The steps with kernels that store only what changes, for values in the memory of inputs that they read.

    `direct`: by the slot of a value that of the input; returned without the values of kernels that may not be there.
    """
    made = dict[tuple[int, frozenset[tuple[int, tuple[int, int]]]], Kernel | None]()
    found, apart = list[Step](), set[int]()
    for step in steps:
        kernel = step.kernel if isinstance(step, Launch) else None
        places = _places(step, kernel, direct) if isinstance(step, Launch) and isinstance(kernel, Kernel) else {}
        if isinstance(step, Launch) and isinstance(kernel, Kernel) and places:
            # Launches of one code share one for this.
            key = id(kernel.artefact), frozenset((kernel.order.index(n), place) for n, place in places.items())
            if key not in made:
                with on_data():
                    made[key] = storing_in_place(kernel, places)
            changed = made[key]
            if changed is not None:
                step = replace(step, kernel=changed.called_as(kernel.workload))
            elif not may_alias(kernel):
                apart.update(step.writes[output] for output, _ in places.values())
        found.append(step)
    return found, {value: target for value, target in direct.items() if value not in apart}


class Apart:
    """A check that inputs written in place share no memory with others.

    `bytes`: that every input covers; `written`: the numbers of those that are written.
    """

    def __init__(self, bytes: Sequence[int], written: Collection[int]) -> None:
        self._bytes, self._written = tuple(bytes), frozenset(written)
        self._known: list[int] = []

    def of(self, tensors: Sequence[Any], first: int) -> list[int]:
        """The addresses of the inputs from the one of number `first` on."""
        sizes = self._bytes[first:]
        return [x.data_ptr() if size else 0 for x, size in zip(tensors[first:], sizes, strict=False)]

    def __call__(self, addresses: list[int]) -> bool:
        """True if inputs at these addresses are apart."""
        if addresses == self._known:
            return True
        ends = {True: 0, False: 0}
        covered = zip(addresses, self._bytes, strict=True)
        for begin, size, number in sorted((a, size, n) for n, (a, size) in enumerate(covered) if size):
            written = number in self._written
            if begin < ends[True] or (written and begin < ends[False]):
                return False
            ends[written] = max(ends[written], begin + size)
        self._known = addresses
        return True


class PlansOfWrites:
    """The plan of a call: that without copies of what kernels write to inputs, where memory allows that."""

    def __init__(self, direct: Plan, copying: Callable[[], Plan], apart: Apart, read: int) -> None:
        """`copying`: makes the other plan; `read`: the number of inputs whose addresses are known."""
        self._direct, self._copying, self._apart, self._read = direct, cache(copying), apart, read

    def __call__(self, tensors: Sequence[Any], addresses: Sequence[int], copied: bool) -> Plan:
        """The plan for these inputs, of which kernels read copies where `copied`."""
        if copied:
            return self._copying()
        rest = self._apart.of(tensors, self._read)
        return self._direct if self._apart([*addresses[: self._read], *rest]) else self._copying()
