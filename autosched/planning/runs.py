"""What the steps of a plan do in a call: allocate, launch, call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autosched.backends.backend import Batch, PlacedLaunch
from autosched.kernels.prepared_constants import PreparedConstants
from autosched.machine.memory import memory_for
from autosched.machine.torch_internals import allocator
from autosched.planning.layout import Layouts, Memory, PlacedStep
from autosched.planning.steps import Call, Launchable

# Takes the tensors of all slots, and their addresses.
Run = Callable[[list[Any], list[int]], None]


def calling(call: Call, layouts: Layouts) -> Run:
    run, launched = call.run, [slot for slot in call.writes if slot in layouts.launched]

    def call_and_locate(tensors: list[Any], addresses: list[int]) -> None:
        run(tensors)
        for slot in launched:
            addresses[slot] = tensors[slot].data_ptr()

    return call_and_locate


def launching(memory: Memory, device: torch.device) -> Run:
    """The launches of a stretch, in memory that is allocated for all of them."""
    allocate = allocating(memory, device)
    groups = itertools.groupby(memory.launches, lambda placed: placed.launch.kernel.batched is not None)
    launches = [run for batched, group in groups for run in (_batched if batched else _one_by_one)(list(group))]

    def allocate_and_launch(tensors: list[Any], addresses: list[int]) -> None:
        # Given back when all is enqueued: a stream's memory is handed out again in the order of its work.
        arena = allocate(tensors, addresses)
        for launch in launches:
            launch(tensors, addresses)
        del arena

    return allocate_and_launch


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
        launches.append(PlacedLaunch(kernel.batched, places, placed.workspace))
    return launches[0].launcher.batch(launches)


def _batched(group: Sequence[PlacedStep]) -> list[Run]:
    batch = batch_of(group)
    return [lambda _, addresses: batch(addresses)]


def _one_by_one(group: Sequence[PlacedStep]) -> list[Run]:
    return [_launch_of(placed) for placed in group]


def _launch_of(placed: PlacedStep) -> Run:
    kernel, places = placed.launch.kernel, placed.places
    launch = kernel.launch
    if kernel.constants is not None:
        return _launch_prepared(kernel, kernel.constants, placed)

    def run(_: list[Any], addresses: list[int]) -> None:
        launch([addresses[slot] + offset for slot, offset in places])

    return run


def _launch_prepared(kernel: Launchable, constants: PreparedConstants, placed: PlacedStep) -> Run:
    """A launch that reads constants in layouts of its own, which are made anew after these change."""
    launch, places, reads = kernel.launch, placed.places, placed.launch.reads
    within = [offset for _, offset in reads]

    def run(tensors: list[Any], addresses: list[int]) -> None:
        there = [addresses[slot] + offset for slot, offset in places]
        launch(there, constants.addresses([tensors[slot] for slot, _ in reads], there, within))

    return run
