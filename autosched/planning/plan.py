"""A plan: launches and calls in order, in memory that is laid out once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from autosched.backends.backend import PlacedLaunch
from autosched.kernels.prepared_constants import PreparedConstants
from autosched.machine.memory import memory_for
from autosched.machine.torch_internals import allocator
from autosched.planning.layout import Layouts, Memory, PlacedStep
from autosched.planning.steps import Call, Launchable, Slot, Step

# Takes the tensors of all slots, and their addresses.
_Run = Callable[[list[Any], list[int]], None]


class Plan:
    """Steps that run on the current stream of a device: `plan(tensors, addresses)`.

    It takes the tensors of the first slots, which no step writes, and the addresses that kernels read them at, and
    returns the tensors of all slots, of which those that are kept are there. Every call has memory of its own, of which
    only that of the kept slots outlives it: calls may overlap in threads and on streams.
    """

    def __init__(
        self, slots: Sequence[Slot], steps: Sequence[Step], kept: Collection[int], device: torch.device
    ) -> None:
        """`kept`: slots that a call returns."""
        layouts = Layouts(slots, steps, kept)
        # A slot more: that of the arena.
        count = len(slots) + 1 - layouts.given
        self._made: list[Any] = [None] * count
        self._nowhere = [0] * count
        runs = {s.first: (s.end, _launching(layouts.memory(s), device)) for s in layouts.stretches}
        runs |= {n: (n + 1, _calling(step, layouts)) for n, step in enumerate(steps) if isinstance(step, Call)}
        self._runs = [(run, layouts.released(first, end)) for first, (end, run) in sorted(runs.items())]

    def __call__(self, tensors: Sequence[Any], addresses: Sequence[int]) -> list[Any]:
        """Run all steps.

        Raises:
            OutOfMemoryError: there is no memory for what launches write. And what calls raise.
        """
        all_tensors, all_addresses = [*tensors, *self._made], [*addresses, *self._nowhere]
        for run, released in self._runs:
            run(all_tensors, all_addresses)
            for slot in released:
                all_tensors[slot] = None
        return all_tensors


def _calling(call: Call, layouts: Layouts) -> _Run:
    run, launched = call.run, [slot for slot in call.writes if slot in layouts.launched]

    def call_and_locate(tensors: list[Any], addresses: list[int]) -> None:
        run(tensors)
        for slot in launched:
            addresses[slot] = tensors[slot].data_ptr()

    return call_and_locate


def _launching(memory: Memory, device: torch.device) -> _Run:
    """The launches of a stretch, in memory that is allocated for all of them."""
    allocate = _allocating(memory, device)
    groups = itertools.groupby(memory.launches, lambda placed: placed.launch.kernel.batched is not None)
    launches = [run for batched, group in groups for run in (_batch_of if batched else _launches_of)(list(group))]

    def allocate_and_launch(tensors: list[Any], addresses: list[int]) -> None:
        # Given back when all is enqueued: a stream's memory is handed out again in the order of its work.
        arena = allocate(tensors, addresses)
        for launch in launches:
            launch(tensors, addresses)
        del arena

    return allocate_and_launch


def _allocating(memory: Memory, device: torch.device) -> Callable[[list[Any], list[int]], Tensor | None]:
    """Allocates a stretch's memory, whose tensors and addresses it notes; returns the arena."""
    empty = allocator((memory.arena_bytes,), (1,), torch.uint8, device) if memory.arena_bytes else None
    made = [(s, allocator(m.shape, m.strides, m.dtype, device)) for s, m in memory.allocated.items()]
    parts = [(p.slot, p.base, p.layout.shape, p.layout.strides, p.offset) for p in memory.views]

    def allocate(tensors: list[Any], addresses: list[int]) -> Tensor | None:
        for slot, of_slot in made:
            tensors[slot] = tensor = of_slot()
            addresses[slot] = tensor.data_ptr()
        for slot, base, shape, strides, offset in parts:
            tensors[slot] = tensors[base].as_strided(shape, strides, offset)
        if empty is None:
            return None
        arena = empty()
        addresses[memory.arena] = arena.data_ptr()
        return arena

    def checked(tensors: list[Any], addresses: list[int]) -> Tensor | None:
        try:
            return allocate(tensors, addresses)
        except RuntimeError:
            # Only now, because querying free memory takes longer than many a kernel.
            with memory_for("the results and intermediate values", memory.bytes, device):
                return allocate(tensors, addresses)

    return checked


def _batch_of(group: Sequence[PlacedStep]) -> list[_Run]:
    """Launches that are laid out together."""
    launches = []
    for placed in group:
        kernel, count = placed.launch.kernel, len(placed.launch.reads)
        assert kernel.batched is not None
        places = (*(placed.places[n] for n in kernel.order), *placed.places[count:])
        launches.append(PlacedLaunch(kernel.batched, places, placed.workspace))
    batch = launches[0].launcher.batch(launches)
    return [lambda _, addresses: batch(addresses)]


def _launches_of(group: Sequence[PlacedStep]) -> list[_Run]:
    return [_launch_of(placed) for placed in group]


def _launch_of(placed: PlacedStep) -> _Run:
    kernel, places = placed.launch.kernel, placed.places
    launch = kernel.launch
    if kernel.constants is not None:
        return _launch_prepared(kernel, kernel.constants, placed)

    def run(_: list[Any], addresses: list[int]) -> None:
        launch([addresses[slot] + offset for slot, offset in places])

    return run


def _launch_prepared(kernel: Launchable, constants: PreparedConstants, placed: PlacedStep) -> _Run:
    """A launch that reads constants in layouts of its own, which are made anew after these change."""
    launch, places, reads = kernel.launch, placed.places, placed.launch.reads
    within = [offset for _, offset in reads]

    def run(tensors: list[Any], addresses: list[int]) -> None:
        there = [addresses[slot] + offset for slot, offset in places]
        launch(there, constants.addresses([tensors[slot] for slot, _ in reads], there, within))

    return run
