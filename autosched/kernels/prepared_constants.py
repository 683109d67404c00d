"""Constants in the layouts that a kernel reads: made once for a tensor, and again after it has changed.

A tensor is known by its identity, or that of the tensor that it is a view of, its place in a storage, its strides, and
its version counter, which PyTorch raises with every change in place (`Tensor._version`); a step of an optimizer, whose
fused kernels do not raise it, counts as a change of all. What the counter does not see is not seen here either: writes
into the same storage through `tensor.data`, or by code that PyTorch does not know of. A change is prepared in the same
memory, so that a CUDA graph that has captured the kernel reads it as well, from then on.

Nothing is prepared while a CUDA graph is captured, nor of tensors without a version counter (those of inference mode):
the call then prepares for itself, and a replay of the graph does the same.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from autosched.backends.backend import Launcher
from autosched.kernels.dispatch import Argument
from autosched.kernels.optimizer_steps import optimizer_steps
from autosched.kernels.static_tensors import is_captured
from autosched.machine.torch_internals import stream_on
from search_spaces import InputError, TileProgram
from search_spaces.programs.tile_program import Buffer, Launch
from search_spaces.programs.tile_program import Kernel as ProgramKernel

# Fills a prepared workspace: its number, the address of the constant, and memory of an earlier call.
_Prepare = Callable[[int, int, Tensor | None], Tensor]


# Number of a prepared workspace; identity of a constant; element of its storage where the input begins; its strides.
_Key = tuple[int, int, int, tuple[int, ...]]


@dataclass(frozen=True)
class _Layout:
    """All that the elements of a prepared workspace depend on, but for those of its constant.

    `kernels`: those that store to it, without their names and launches, which differ between programs.
    """

    workspace: Buffer
    constant: Buffer
    kernels: tuple[ProgramKernel, ...]


@dataclass(frozen=True)
class _Prepared:
    """A constant in the layout of one workspace; `streams`: those that have used the memory.

    `steps`: of optimizers, when it was made. `storage`: while it is referred to, no other has its identity.
    """

    root: weakref.ref[Tensor]
    version: int
    steps: int
    storage: StorageWeakRef
    memory: Tensor
    streams: set[int] = field(default_factory=set)

    def is_of(self, tensor: Tensor, steps: int) -> bool:
        """True if it was made of the tensor as it is now, after so many steps of optimizers."""
        made, now = (self.version, self.steps, self.storage.cdata), (tensor._version, steps, _storage(tensor))
        return self.root() is _root(tensor) and made == now


class PreparedWeight:
    """A constant that a kernel takes in the place of a tensor, prepared before the first call.

    A call prepares it again after a change of the tensor that PyTorch counts, and `update` after any other.
    `memories`: the prepared workspaces made of it, by their numbers.
    """

    def __init__(
        self,
        tensor: Tensor,
        argument: Argument,
        place: int,
        launcher: Launcher,
        constants: PreparedConstants | None,
        earlier: Iterable[PreparedWeight] = (),
    ) -> None:
        """`launcher`: of the kernel that it is for. `earlier`: of the same tensor, for other kernels; their memory is
        used where the layout is the same."""
        self.tensor = tensor
        self._argument, self._place, self._launcher, self._constants = argument, place, launcher, constants
        places = () if constants is None else constants.places
        self._layouts = {n: constants.layouts[n] for n, at in enumerate(places) if constants and at == place}
        known = {layout: (made, n) for made in earlier for n, layout in made._layouts.items()}
        self._shared = {n: known[layout] for n, layout in self._layouts.items() if layout in known}
        self.memories: dict[int, Tensor] = {n: made.memories[there] for n, (made, there) in self._shared.items()}
        self._optimizers = optimizer_steps()
        self._state = self._state_now()
        self._prepare()

    def update(self) -> None:
        """Prepare the present values of the tensor, in the same memory: CUDA graphs that read it read these.

        Memory of an earlier one is left to the `update` of that.
        """
        self._state = self._state_now()
        self._prepare()

    def current(self, number: int) -> Tensor:
        """The memory of a workspace, with the tensor's values of now.

        While a CUDA graph is captured it is as it was: the graph reads what later calls put there.
        """
        made, there = self._shared.get(number, (self, number))
        changed = made._state != made._state_now()
        if changed and made._constants is not None and not is_captured(made._constants.device):
            made.update()
        return made.memories[there]

    def check_for(self, launcher: Launcher, constants: PreparedConstants | None, place: int) -> None:
        """Raise InputError unless it was prepared for this input of this kernel."""
        if launcher is not self._launcher or constants is not self._constants or place != self._place:
            raise InputError(f"{self._argument.name} was prepared by another kernel or for another input of this one")

    def _prepare(self) -> None:
        read = self._argument.usable(self.tensor)
        for number in self._layouts.keys() - self._shared.keys():
            assert self._constants is not None
            self.memories[number] = self._constants.made(number, read.data_ptr(), self.memories.get(number))

    def _state_now(self) -> tuple[int, int]:
        """Changes with every change that PyTorch counts: none of tensors of inference mode."""
        return 0 if self.tensor.is_inference() else self.tensor._version, self._optimizers.count

    def __repr__(self) -> str:
        return f"<PreparedWeight {self._argument.name}: {len(self._layouts)} layouts of its own>"


# Of calls with tensors only.
_NO_WEIGHTS: Mapping[int, PreparedWeight] = MappingProxyType({})


class PreparedConstants:
    """The prepared workspaces of a kernel, for every constant that it was called with and that still exists.

    `places`: for each prepared workspace, the number of the constant among the kernel's inputs; `layouts`: its layout.
    `device`: that of its memory.
    """

    def __init__(
        self, launcher: Launcher, places: Sequence[int], device: torch.device, layouts: Iterable[_Layout] = ()
    ) -> None:
        self.places, self.layouts = tuple(places), tuple(layouts)
        self._prepare: _Prepare = launcher.prepare
        self.device = device
        self._known: dict[_Key, _Prepared] = {}
        self._lock = threading.Lock()
        self._optimizers = optimizer_steps()

    @staticmethod
    def of(launcher: Launcher, program: TileProgram, order: Sequence[int], device: torch.device) -> PreparedConstants:
        """Prepared workspaces of a program whose inputs, in order, are a kernel's inputs of these numbers."""
        names = [b.name for b in program.buffers if b.role == "input"]
        places = [order[names.index(read)] for _, read in program.prepared]
        return PreparedConstants(launcher, places, device, _layouts(program))

    def addresses(
        self,
        tensors: Sequence[Tensor],
        inputs: Sequence[int],
        offsets: Sequence[int] = (),
        weights: Mapping[int, PreparedWeight] = _NO_WEIGHTS,
    ) -> tuple[int, ...]:
        """The addresses of the prepared workspaces; none if this call has to prepare for itself.

        `tensors`: the kernel's inputs, of which those at `places` are used; `inputs`: the addresses of their elements,
        or of a copy that the kernel can read; `offsets`: where in the tensors the inputs begin, if not at their start;
        `weights`: inputs, by their numbers, that were prepared by the caller.
        """
        found = []
        for number, place in enumerate(self.places):
            offset = offsets[place] if offsets else 0
            if place in weights:
                found.append(weights[place].current(number).data_ptr())
                continue
            tensor = tensors[place]
            key = number, id(_root(tensor)), int(tensor.storage_offset()) + offset, tensor.stride()
            memory = self._memory(key, tensor, inputs[place])
            if memory is None:
                return ()
            found.append(memory.data_ptr())
        return tuple(found)

    def made(self, number: int, address: int, memory: Tensor | None = None) -> Tensor:
        """The memory of a prepared workspace, filled from the constant at this address when this returns."""
        made = self._prepare(number, address, memory)
        if self.device.type == "cuda":
            # Other streams may use it next.
            torch.cuda.current_stream(self.device).synchronize()
        return made

    def _memory(self, key: _Key, tensor: Tensor, address: int) -> Tensor | None:
        if tensor.is_inference():
            return None
        known = self._known.get(key)
        if known is None or not known.is_of(tensor, self._optimizers.count):
            if is_captured(self.device):
                return None
            known = self._made(key, tensor, address)
        if self.device.type == "cuda":
            self._use(known)
        return known.memory

    def _made(self, key: _Key, tensor: Tensor, address: int) -> _Prepared:
        with self._lock:
            known = self._known.get(key)
            if known is not None and known.is_of(tensor, self._optimizers.count):
                return known
            root, own = _root(tensor), weakref.ref(self)
            same = known is not None and known.root() is root
            version, steps = tensor._version, self._optimizers.count
            storage = StorageWeakRef(tensor.untyped_storage())
            memory = self.made(key[0], address, known.memory if known is not None and same else None)
            # PyTorch gives memory out again on the stream that it was allocated on, once the others are done with it.
            streams = known.streams if known is not None and same else {stream_on(self.device)}
            forgotten = weakref.ref(root, lambda _: _forget(own(), key))
            found = _Prepared(forgotten, version, steps, storage, memory, streams)
            self._known[key] = found
            return found

    def _use(self, known: _Prepared) -> None:
        """Keep the memory until the present stream is done with it."""
        stream = stream_on(self.device)
        if stream not in known.streams:
            known.memory.record_stream(torch.cuda.current_stream(self.device))
            known.streams.add(stream)


def _layouts(program: TileProgram) -> Iterable[_Layout]:
    """The layouts of the prepared workspaces of a program."""
    for name, read in program.prepared:
        stored = [k for k, made in zip(program.kernels, program.preparing, strict=True) if made == name]
        kernels = tuple(replace(k, name="", launch=Launch()) for k in stored)
        yield _Layout(program.buffer(name), program.buffer(read), kernels)


def _root(tensor: Tensor) -> Tensor:
    """The tensor that it is a view of, with which it shares its version counter, or itself."""
    base: Tensor | None = tensor._base
    return tensor if base is None else base


def _storage(tensor: Tensor) -> int:
    """Identity of a tensor's storage, valid as long as that is referred to."""
    identity: int = tensor.untyped_storage()._cdata
    return identity


def _forget(constants: PreparedConstants | None, key: _Key) -> None:
    if constants is not None:
        constants._known.pop(key, None)
