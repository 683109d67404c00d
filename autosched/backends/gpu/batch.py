"""Launches of several programs laid out together: a call fills in addresses, and enqueues all at once.

Every value that a kernel takes lies in one array: a constant, or a constant plus the address of a base, which differs
from call to call. One vector sum fills it, and only where a base has moved since the last call with that array. Like
the parameters of a single launch, such an array serves one call at a time.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from cuda.bindings import driver

from autosched.backends.backend import PlacedLaunch
from autosched.backends.gpu.enqueueing import STEP_WORDS, enqueueing
from autosched.backends.gpu.launch import DONE, CudaLauncher, launch_of
from autosched.backends.gpu.tensor_maps import EncodedMap, EncodedMaps
from autosched.machine.torch_internals import current_device, current_stream

_VALUE_BYTES = 8


class CudaBatch:
    """Launches on one device: `batch(addresses)` enqueues them on its current stream, given the addresses of all bases.

    Threads may call it at the same time, and CUDA graphs capture it.
    """

    def __init__(self, launches: Sequence[PlacedLaunch]) -> None:
        """`launches`: of a `CudaLauncher` each. Raises LoadError when the driver is too old."""
        launchers = [launch.launcher for launch in launches if isinstance(launch.launcher, CudaLauncher)]
        self._launchers = tuple(launchers)
        self._bases = sorted({base for launch in launches for base, _ in (*launch.places, launch.workspace)})
        numbers = {base: n for n, base in enumerate(self._bases)}
        # After the bases comes 0, to which constants are added.
        values = [v for x, own in zip(launches, launchers, strict=True) for v in _values(x, own, numbers)]
        self._index = np.array([number for number, _ in values], np.intp)
        self._offsets = np.array([offset for _, offset in values], np.uint64)
        self._enqueue = enqueueing()
        self._idle: list[_Parameters] = []

    def __call__(self, addresses: Sequence[int]) -> None:
        """Enqueue all.

        Raises:
            RuntimeError: the driver reports an error, which may be that of a kernel launched earlier.
        """
        first = self._launchers[0]
        if current_device() != first.device:
            # Kernels run in the context that is current, and so does the default stream.
            with torch.cuda.device(first.device):
                return self(addresses)
        try:
            parameters = self._idle.pop()
        except IndexError:
            parameters = _Parameters(self._launchers)
        stream = current_stream(first.device)
        parameters.use_stream(stream)
        bases = [addresses[base] for base in self._bases]
        if bases != parameters.bases:
            parameters.fill(bases, self._index, self._offsets)
        status = self._enqueue(parameters.address, parameters.count, stream)
        if status != DONE:
            first.enqueue_again(status, lambda: self._enqueue(parameters.address, parameters.count, stream))
        self._idle.append(parameters)
        return None


def _values(launch: PlacedLaunch, launcher: CudaLauncher, numbers: dict[int, int]) -> list[tuple[int, int]]:
    """Base and offset of every value of a launch, in the order of its layout."""
    layout, nowhere = launcher.layout, len(numbers)
    values = [(nowhere, constant) for constant in layout.values]
    values[: len(launch.places)] = [(numbers[base], offset) for base, offset in launch.places]
    base, begin = launch.workspace
    for slot, offset in layout.workspaces:
        values[slot] = numbers[base], begin + offset
    return values


class _Parameters:
    """The memory that the driver reads during one call: so many steps at an `address`, and all that these point to.

    `bases`: the addresses that it was filled with.
    """

    def __init__(self, launchers: Sequence[CudaLauncher]) -> None:
        counts = [len(launcher.layout.values) for launcher in launchers]
        begins = list(itertools.accumulate(counts, initial=0))
        self.values = np.zeros(begins[-1], np.uint64)
        self.bases: list[int] | None = None
        self._stream = 0
        self._launches: list[Any] = []
        self._pointers: list[Any] = []
        # Of each map: the array of pointers, its place there, and the known ones; the number of its tensor's address.
        self._maps: list[tuple[Any, int, EncodedMaps]] = []
        self._mapped: list[int] = []
        self._found: list[EncodedMap] = []
        words = [w for own, begin in zip(launchers, begins, strict=False) for w in self._words(own, begin)]
        self._steps = (ctypes.c_uint64 * len(words))(*words)
        self.address, self.count = ctypes.addressof(self._steps), len(words) // STEP_WORDS

    def _words(self, launcher: CudaLauncher, begin: int) -> list[int]:
        """The steps of a launch, whose values begin at a number."""
        layout, first = launcher.layout, self.values.ctypes.data + _VALUE_BYTES * begin
        words = [w for slot, size in layout.zeroed for w in (0, first + _VALUE_BYTES * slot, size)]
        pointers = [
            (ctypes.c_void_p * len(slots))(*(first + _VALUE_BYTES * s for s in slots)) for slots in layout.parameters
        ]
        for kernel, function, parameters in zip(launcher.kernels, launcher.functions, pointers, strict=True):
            launch = launch_of(kernel)
            self._launches.append(launch)
            words += [launch.getPtr(), int(function), ctypes.addressof(parameters)]
        self._pointers += pointers
        self._maps += [(pointers[m.kernel], m.parameter, m.maps) for m in layout.maps]
        self._mapped += [begin + m.slot for m in layout.maps]
        return words

    def use_stream(self, stream: int) -> None:
        if stream != self._stream:
            for launch in self._launches:
                launch.hStream = driver.CUstream(stream)
            self._stream = stream

    def fill(self, bases: list[int], index: Any, offsets: Any) -> None:
        """Let all values be those for bases at these addresses.

        Raises:
            RuntimeError: the driver makes no tensor map of such an address.
        """
        self.bases = None
        np.take(np.array([*bases, 0], np.uint64), index, out=self.values, mode="clip")
        np.add(self.values, offsets, out=self.values)
        if self._maps:
            addresses = self.values[self._mapped].tolist()
            found = [maps.at(address) for (_, _, maps), address in zip(self._maps, addresses, strict=True)]
            for (pointers, parameter, _), made in zip(self._maps, found, strict=True):
                pointers[parameter] = made.address
            # As long as the pointers are.
            self._found = found
        self.bases = bases
