"""The steps of a plan in a call: memory is allocated, kernels are launched, functions called."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autosched.backends.backend import Batch, PlacedLaunch
from autosched.machine.memory import memory_for
from autosched.machine.torch_internals import allocator
from autosched.planning.layout import Layouts, Memory, PlacedStep
from autosched.planning.prepared import PreparedBases
from autosched.planning.steps import Call

# Takes the tensors of all slots, the addresses of all bases, and what stands for static tensors (`PreparedBases`).
Run = Callable[[list[Any], list[int], object], None]
# Takes the addresses of all bases.
Launching = Callable[[list[int]], None]


def calling(call: Call, layouts: Layouts) -> Run:
    run, launched = call.run, [slot for slot in call.writes if slot in layouts.launched]

    def call_and_locate(tensors: list[Any], addresses: list[int], _: object) -> None:
        run(tensors)
        for slot in launched:
            addresses[slot] = tensors[slot].data_ptr()

    return call_and_locate


def launching(memory: Memory, device: torch.device) -> Run:
    """The launches of a stretch, in memory that is allocated for all of them."""
    allocate, enqueue = allocating(memory, device), StretchLaunches(memory, device, _one_after_the_other(memory))

    def allocate_and_launch(tensors: list[Any], addresses: list[int], static: object) -> None:
        # Given back when all is enqueued: a stream's memory is handed out again in the order of its work.
        arena = allocate(tensors, addresses)
        enqueue(tensors, addresses, static)
        del arena

    return allocate_and_launch


class StretchLaunches:
    """Launches of a stretch with prepared constants, or, where these are not to be had, one by one without."""

    def __init__(self, memory: Memory, device: torch.device, launching: Launching) -> None:
        self._launching, self._prepared = launching, PreparedBases(memory.launches, device)
        self._alone = [_alone(placed) for placed in memory.launches]

    def __call__(self, tensors: list[Any], addresses: list[int], static: object) -> None:
        if self._prepared.located(tensors, addresses, static):
            self._launching(addresses)
            return
        for launch in self._alone:
            launch(addresses)


def _one_after_the_other(memory: Memory) -> Launching:
    groups = itertools.groupby(memory.launches, lambda placed: placed.launch.kernel.batched is not None)
    launches = [
        launch
        for batched, group in groups
        for launch in ([batch_of([*group])] if batched else [_launch_of(placed) for placed in group])
    ]

    def launching(addresses: list[int]) -> None:
        for launch in launches:
            launch(addresses)

    return launching


def allocating(memory: Memory, device: torch.device) -> Callable[[list[Any], list[int]], Tensor | None]:
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


def batch_of(group: Sequence[PlacedStep]) -> Batch:
    """Launches that are laid out together."""
    launches = []
    for placed in group:
        kernel, count = placed.launch.kernel, len(placed.launch.reads)
        assert kernel.batched is not None
        places = (*(placed.places[n] for n in kernel.order), *placed.places[count:])
        prepared = tuple((base, 0) for base in placed.prepared)
        launches.append(PlacedLaunch(kernel.batched, places, placed.workspace, prepared, kernel.early))
    return launches[0].launcher.batch(launches)


def _launch_of(placed: PlacedStep) -> Launching:
    launch, places, prepared = placed.launch.kernel.launch, placed.places, placed.prepared
    if not prepared:
        return _alone(placed)

    def run(addresses: list[int]) -> None:
        launch([addresses[base] + offset for base, offset in places], [addresses[base] for base in prepared])

    return run


def _alone(placed: PlacedStep) -> Launching:
    """The launch of a kernel that prepares its constants itself."""
    launch, places = placed.launch.kernel.launch, placed.places
    return lambda addresses: launch([addresses[base] + offset for base, offset in places])
