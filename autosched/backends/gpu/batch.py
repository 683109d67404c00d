"""Launches of several programs laid out together: a call fills in addresses, and enqueues all at once.

Every value that a kernel takes lies in one array: a constant, or a constant plus the address of a base, which differs
from call to call. One vector sum fills it, and only where a base has moved since the last call with that array. Like
the parameters of a single launch, such an array serves one call at a time.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from cuda.bindings import driver

from autosched.backends.backend import PlacedLaunch
from autosched.backends.gpu.enqueueing import STEP_WORDS, enqueueing
from autosched.backends.gpu.launch import DONE, CudaLauncher, launch_of
from autosched.backends.gpu.tensor_maps import EncodedMap, EncodedMaps
from autosched.machine.torch_internals import current_device, current_stream

if TYPE_CHECKING:
    from autosched.backends.gpu.graph import CudaGraph

_VALUE_BYTES = 8
# No tensor begins at the last byte.
_NOWHERE = 2**64 - 1


class CudaBatch:
    """Launches on one device: `batch(addresses)` enqueues them on its current stream, given the addresses of all bases.

    Threads may call it at the same time, and CUDA graphs capture it. `kernels`: of each launch, the numbers of those
    that run; `early`: the launches that begin while those before them end; `read_by_steps`: for each step, the numbers
    of the bases whose addresses it reads.
    """

    def __init__(self, launches: Sequence[PlacedLaunch]) -> None:
        """`launches`: of a `CudaLauncher` each. Raises LoadError when the driver is too old."""
        launchers = [launch.launcher for launch in launches if isinstance(launch.launcher, CudaLauncher)]
        self.launchers = tuple(launchers)
        self.early = [launch.early for launch in launches]
        self.kernels = [_kernels_of(launch, own) for launch, own in zip(launches, launchers, strict=True)]
        self._bases = sorted({base for x in launches for base, _ in (*x.places, x.workspace, *x.prepared)})
        numbers = {base: n for n, base in enumerate(self._bases)}
        # After the bases comes 0, to which constants are added.
        values = [v for x, own in zip(launches, launchers, strict=True) for v in _values(x, own, numbers)]
        self.read_by_steps = [
            {numbers[base] for base in read}
            for launch, own in zip(launches, launchers, strict=True)
            for read in _bases_of_steps(launch, own)
        ]
        self._index = np.array([number for number, _ in values], np.intp)
        self._offsets = np.array([offset for _, offset in values], np.uint64)
        self.enqueue = enqueueing()
        self._idle: list[Parameters] = []

    def __call__(self, addresses: Sequence[int]) -> None:
        """Enqueue all.

        Raises:
            RuntimeError: the driver reports an error, which may be that of a kernel launched earlier.
        """
        first = self.launchers[0]
        if current_device() != first.device:
            # Kernels run in the context that is current, and so does the default stream.
            with torch.cuda.device(first.device):
                return self(addresses)
        try:
            parameters = self._idle.pop()
        except IndexError:
            parameters = Parameters(self)
        stream = current_stream(first.device)
        parameters.use_stream(stream)
        bases = self.bases_at(addresses)
        if bases != parameters.bases:
            self.fill(parameters, bases)
        status = self.enqueue(parameters.address, parameters.count, stream)
        if status != DONE:
            first.enqueue_again(status, lambda: self.enqueue(parameters.address, parameters.count, stream))
        self._idle.append(parameters)
        return None

    def bases_at(self, addresses: Sequence[int]) -> list[int]:
        """The addresses of the bases that its launches read or write, in order."""
        return [addresses[base] for base in self._bases]

    def fill(self, parameters: Parameters, bases: list[int]) -> None:
        """Let all values be those for bases at these addresses.

        Raises:
            RuntimeError: the driver makes no tensor map of such an address.
        """
        parameters.fill(bases, self._index, self._offsets)

    def graph(self) -> CudaGraph:
        """The same as one CUDA graph."""
        # It is made of batches.
        from autosched.backends.gpu.graph import CudaGraph

        return CudaGraph(self)


def _values(launch: PlacedLaunch, launcher: CudaLauncher, numbers: dict[int, int]) -> list[tuple[int, int]]:
    """Base and offset of every value of a launch, in the order of its layout."""
    layout, nowhere = launcher.layout, len(numbers)
    values = [(nowhere, constant) for constant in layout.values]
    values[: len(launch.places)] = [(numbers[base], offset) for base, offset in launch.places]
    base, begin = launch.workspace
    for slot, offset in layout.workspaces:
        values[slot] = numbers[base], begin + offset
    for slot, (base, offset) in zip(layout.prepared, launch.prepared, strict=False):
        values[slot] = numbers[base], offset
    return values


def _bases_of_steps(launch: PlacedLaunch, launcher: CudaLauncher) -> Iterator[set[int]]:
    """For each step of a launch, the bases whose addresses it reads."""
    layout = launcher.layout
    base_of = dict(enumerate(base for base, _ in launch.places))
    base_of |= {slot: launch.workspace[0] for slot, _ in layout.workspaces}
    base_of |= dict(zip(layout.prepared, (base for base, _ in launch.prepared), strict=False))
    for slot, _ in layout.zeroed:
        yield {base_of[slot]}
    for number in _kernels_of(launch, launcher):
        mapped = [m.slot for m in layout.maps if m.kernel == number]
        yield {base_of[slot] for slot in (*layout.parameters[number], *mapped) if slot in base_of}


def _kernels_of(launch: PlacedLaunch, launcher: CudaLauncher) -> Sequence[int]:
    """The numbers of the kernels that a launch runs."""
    return launcher.called if launch.prepared else range(len(launcher.kernels))


class Parameters:
    """The memory that the driver reads during one call: so many steps at an `address`, and all that these point to.

    `bases`: the addresses that it was filled with.
    """

    def __init__(self, batch: CudaBatch) -> None:
        counts = [len(launcher.layout.values) for launcher in batch.launchers]
        begins = list(itertools.accumulate(counts, initial=0))
        self.values = np.zeros(begins[-1], np.uint64)
        self.bases: list[int] | None = None
        self._stream = 0
        self._launches: list[Any] = []
        self._pointers: list[Any] = []
        # Of each map: the array of pointers, its place there, and the known ones; the number of its tensor's address.
        self._maps: list[tuple[Any, int, EncodedMaps]] = []
        self._mapped: list[int] = []
        launched = zip(batch.launchers, batch.kernels, batch.early, begins, strict=False)
        words = [w for own, numbers, early, begin in launched for w in self._laid_out(own, numbers, early, begin)]
        self._steps = (ctypes.c_uint64 * len(words))(*words)
        self.address, self.count = ctypes.addressof(self._steps), len(words) // STEP_WORDS
        # What the maps were last encoded for; these live as long as the pointers to them.
        self._at = np.full(len(self._maps), _NOWHERE, np.uint64)
        self._found: list[EncodedMap | None] = [None] * len(self._maps)

    def _laid_out(self, launcher: CudaLauncher, kernels: Sequence[int], early: bool, begin: int) -> list[int]:
        """The steps of a launch of some kernels, whose values begin at a number."""
        layout, first = launcher.layout, self.values.ctypes.data + _VALUE_BYTES * begin
        words = [w for slot, size in layout.zeroed for w in (0, first + _VALUE_BYTES * slot, size)]
        pointers = [
            (ctypes.c_void_p * len(slots))(*(first + _VALUE_BYTES * s for s in slots)) for slots in layout.parameters
        ]
        for place, number in enumerate(kernels):
            kernel = launcher.kernels[number]
            # After steps that set memory to zero none can be launched early.
            after_kernel = place > 0 or bool(self._launches and not layout.zeroed)
            launch = launch_of(kernel, early=early and kernel.waits and after_kernel)
            self._launches.append(launch)
            words += [launch.getPtr(), int(launcher.functions[number]), ctypes.addressof(pointers[number])]
        self._pointers += pointers
        maps = [m for m in layout.maps if m.kernel in kernels]
        self._maps += [(pointers[m.kernel], m.parameter, m.maps) for m in maps]
        self._mapped += [begin + m.slot for m in maps]
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
            addresses = self.values[self._mapped]
            # Those of weights stay where they are.
            for number in np.flatnonzero(addresses != self._at).tolist():
                pointers, parameter, maps = self._maps[number]
                self._found[number] = made = maps.at(int(addresses[number]))
                pointers[parameter], self._at[number] = made.address, addresses[number]
        self.bases = bases

    def words(self, step: int) -> tuple[int, int, int]:
        """The words of a step (`enqueueing.STEP_WORDS`)."""
        first, second, third = self._steps[step * STEP_WORDS : (step + 1) * STEP_WORDS]
        return first, second, third

    def value_at(self, address: int) -> int:
        """One of its values, by the address of that."""
        return int(self.values[(address - self.values.ctypes.data) // _VALUE_BYTES])
