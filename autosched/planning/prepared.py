"""Prepared constants of a stretch's launches: looked up again when a tensor that they are made of has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autosched.backends.backend import Place
from autosched.kernels.prepared_constants import PreparedConstants
from autosched.machine.torch_internals import stream_on
from autosched.planning.layout import PlacedStep


@dataclass(frozen=True)
class _Read:
    """The constants of a launch: its inputs by the slots and offsets of the originals, and by their places."""

    constants: PreparedConstants
    slots: tuple[int, ...]
    offsets: tuple[int, ...]
    places: tuple[Place, ...]


class PreparedBases:
    """The bases of all prepared constants of a stretch, which follow one another."""

    def __init__(self, launches: Sequence[PlacedStep], device: torch.device) -> None:
        self._device, self._reads = device, [_read(p) for p in launches if p.prepared]
        bases = [base for placed in launches for base in placed.prepared]
        self._slice = slice(bases[0], bases[-1] + 1) if bases else slice(0, 0)
        # Of the last call: what stood for the static tensors, the stream, the addresses.
        self._known: tuple[object, int, list[int]] | None = None

    def located(self, tensors: list[Any], addresses: list[int], static: object) -> bool:
        """True if the addresses of all are noted; False if this call has to prepare for itself.

        `static`: an object that is another one whenever a tensor has changed; None where nobody knows.
        """
        if not self._reads:
            return True
        stream, known = stream_on(self._device), self._known
        if static is None or known is None or known[0] is not static or known[1] != stream:
            found = self._found(tensors, addresses)
            if found is None:
                return False
            self._known = known = (static, stream, found)
        addresses[self._slice] = known[2]
        return True

    def _found(self, tensors: list[Any], addresses: list[int]) -> list[int] | None:
        found: list[int] = []
        for read in self._reads:
            there = [addresses[base] + offset for base, offset in read.places]
            made = read.constants.addresses([tensors[slot] for slot in read.slots], there, read.offsets)
            if not made:
                return None
            found += made
        return found


def _read(placed: PlacedStep) -> _Read:
    launch = placed.launch
    assert launch.kernel.constants is not None
    slots, offsets = zip(*(launch.originals or launch.reads), strict=True)
    return _Read(launch.kernel.constants, slots, offsets, placed.places[: len(launch.reads)])
