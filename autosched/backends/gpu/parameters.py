"""Layout of kernel parameters: computed once per program, filled in by every call.

The driver takes a kernel's parameters as an array of pointers to their values, and copies these while it launches. All
values of all kernels of a program are in one array: addresses of inputs and outputs, of workspaces, null, addresses of
scratch memory, then the sizes and strides that accompany tensor maps. The maps themselves are elsewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.backends.gpu.kernel import CudaKernel
from autosched.backends.gpu.tensor_maps import EncodedMap, EncodedMaps
from search_spaces import TileProgram

_SLOT_BYTES = 8
# Workspaces that share an allocation start at multiples of the device allocator's guaranteed alignment (CUDA
# programming guide, "Device Memory Accesses").
_WORKSPACE_ALIGNMENT = 256


@dataclass(frozen=True)
class _MapParameter:
    """A tensor map: its kernel and parameter, by their numbers, and the slot of its tensor's address."""

    kernel: int
    parameter: int
    slot: int
    maps: EncodedMaps


class ParameterLayout:
    """The slots of all values, and the slots of the parameters of each kernel.

    `zeroed` has the slot and the bytes of every buffer to clear before a call; `workspaces` the slot of every workspace
    and its place within `workspace_bytes` of memory, of which `called_bytes` come before the `prepared` ones.
    """

    def __init__(self, program: TileProgram, kernels: Sequence[CudaKernel]) -> None:
        workspaces = [b for b in program.buffers if b.role == "workspace"]
        names = [b.name for b in program.buffers if b.role != "workspace"] + [b.name for b in workspaces]
        self._slot = {name: i for i, name in enumerate(names)}
        self._null = len(names)
        # Values that stay the same from call to call; the rest is zero here.
        self.values = [0] * (self._null + 1 + len(kernels))
        self.maps: list[_MapParameter] = []
        self.parameters = tuple(self._parameters(i, kernel) for i, kernel in enumerate(kernels))
        self.zeroed = tuple((self._slot[name], program.buffer(name).bytes) for name in program.zeroed)
        self.prepared = tuple(self._slot[name] for name, _ in program.prepared)
        sizes = {self._slot[b.name]: b.room_bytes for b in workspaces}
        sizes |= {self._null + 1 + i: k.scratch_bytes * k.programs * k.num_ctas for i, k in enumerate(kernels)}
        # Prepared ones last: without them the others take the beginning.
        _, self.called_bytes = _placed({slot: size for slot, size in sizes.items() if slot not in self.prepared})
        ordered = sorted(sizes.items(), key=lambda each: each[0] in self.prepared)
        self.workspaces, self.workspace_bytes = _placed(dict(ordered))

    def _parameters(self, number: int, kernel: CudaKernel) -> tuple[int, ...]:
        """The slots of a kernel's parameters, in order."""
        slots = [self._slot[name] for name in kernel.arguments]
        for described in kernel.maps:
            self.maps.append(_MapParameter(number, len(slots), self._slot[described.buffer], EncodedMaps(described)))
            first = len(self.values)
            self.values += [*described.shape, *described.strides] if described.sizes_follow else []
            # A call replaces null by the map.
            slots += [self._null, *range(first, len(self.values))]
        hidden = [self._null + 1 + number, *[self._null] * kernel.hidden_parameters]
        return (*slots, *hidden[: kernel.hidden_parameters])


class CallMemory:
    """The values of one call, and for each kernel the array of pointers to them, whose address is in `parameters`."""

    def __init__(self, layout: ParameterLayout) -> None:
        self.values = (ctypes.c_uint64 * len(layout.values))(*layout.values)
        first = ctypes.addressof(self.values)
        self._pointers = tuple(
            (ctypes.c_void_p * len(slots))(*(first + _SLOT_BYTES * s for s in slots)) for slots in layout.parameters
        )
        self.parameters = tuple(ctypes.addressof(p) for p in self._pointers)
        self._maps = tuple((self._pointers[m.kernel], m.parameter, m.slot, m.maps) for m in layout.maps)
        self._workspaces, self._prepared = layout.workspaces, layout.prepared
        self._held: list[EncodedMap] = []

    def set_addresses(self, addresses: Sequence[int], workspace: int, prepared: Sequence[int] = ()) -> None:
        """Fill in addresses of the inputs and outputs, of the memory for workspaces, and of prepared ones elsewhere.

        Raises:
            RuntimeError: the driver makes no tensor map of such an address.
        """
        values = self.values
        values[: len(addresses)] = addresses  # type: ignore[call-overload]  # any sequence will do
        for slot, offset in self._workspaces:
            values[slot] = workspace + offset
        if prepared:
            for slot, address in zip(self._prepared, prepared, strict=True):
                values[slot] = address
        if self._maps:
            held = []
            for pointers, parameter, slot, maps in self._maps:
                found = maps.at(values[slot])
                pointers[parameter] = found.address
                held.append(found)
            self._held = held


def _placed(sizes: dict[int, int]) -> tuple[tuple[tuple[int, int], ...], int]:
    """Places one after the other for nonempty sizes, by key, and the total size, in bytes."""
    places, end = [], 0
    for key, size in sizes.items():
        if size:
            places.append((key, end))
            end += -(-size // _WORKSPACE_ALIGNMENT) * _WORKSPACE_ALIGNMENT
    return tuple(places), end
