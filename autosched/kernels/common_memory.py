"""Tensors that lie next to each other in one memory, which kernels read as one tensor: no second copy is needed.

before:  a → |aaaa|   b → |bbbb|   whole → |aaaabbbb|
after:   a, b and whole → |aaaabbbb|

Each of the tensors keeps a storage of its own, of its own bytes, within that memory: PyTorch's views of one storage
would be saved and copied with all of it, and taken for aliases. The memory is free when the last of them is.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from autosched.kernels.static_tensors import is_captured
from autosched.machine.memory import ran_out
from search_spaces.workloads.strides import same_places

# Where PyTorch's allocators let tensors begin at least: code compiled for one that begins there relies on it.
_ALIGNMENT = 64
# The storages of common memories by their addresses; one that is free is none of them.
_storages: weakref.WeakValueDictionary[int, torch.UntypedStorage] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Piece:
    """A dense part of a memory: its first element, counted from that of the whole, and its layout."""

    begin: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class CommonLayout:
    """A dense tensor of this shape and of these strides that consists of `pieces`, each of which is another tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_aligned(self) -> bool:
        """True if every piece may begin where it does."""
        return all(piece.begin * self.dtype.itemsize % _ALIGNMENT == 0 for piece in self.pieces)

    def whole(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """The tensor that these are the pieces of, if they lie so; a new one, with a version counter of its own."""
        size = self.dtype.itemsize
        begin = tensors[0].data_ptr() - self.pieces[0].begin * size
        storage = _storages.get(begin)
        if storage is None or storage.nbytes() != self.bytes:
            return None
        for tensor, piece in zip(tensors, self.pieces, strict=True):
            there = tensor.data_ptr() == begin + piece.begin * size
            if not there or not same_places(piece.shape, tensor.stride(), piece.strides):
                return None
        with torch.inference_mode(False):
            made = torch.empty(0, dtype=self.dtype, device=tensors[0].device)
            return made.set_(storage, 0, self.shape, self.strides)

    def why_bound(self, tensors: Sequence[Tensor]) -> str | None:
        """The reason that tensors must stay where they are, if there is one."""
        if len({id(t) for t in tensors}) < len(tensors):
            return "one tensor has two places"
        if is_captured(tensors[0].device):
            return "a CUDA graph is captured"
        reasons = (_why_bound(tensor, piece) for tensor, piece in zip(tensors, self.pieces, strict=True))
        return next((why for why in reasons if why is not None), None)

    def why_not_moved(self, tensors: Sequence[Tensor]) -> str | None:
        """Move tensors into one memory, each to its piece: they remain the same objects with the same elements.

        No other thread may use them meanwhile. Returns the reason that they stay where they are, if they do.
        """
        if (why := self.why_bound(tensors)) is not None:
            return why
        try:
            with torch.inference_mode(False), torch.no_grad():
                self._move(tensors, tensors[0].device)
        except RuntimeError as error:
            if not ran_out(error):
                raise
            return "there is no memory to move them"
        return None

    def _move(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        memory = torch.empty(self.bytes, dtype=torch.uint8, device=device)
        moved = [self._piece(memory, piece) for piece in self.pieces]
        for tensor, new in zip(tensors, moved, strict=True):
            new.copy_(tensor)
        if device.type == "cuda":
            # Other streams may still read the old memory, and read the new one next.
            torch.cuda.synchronize(device)
        _storages[memory.data_ptr()] = memory.untyped_storage()
        for tensor, new in zip(tensors, moved, strict=True):
            tensor.data = new

    def _piece(self, memory: Tensor, piece: Piece) -> Tensor:
        begin, end = (n * self.dtype.itemsize for n in (piece.begin, piece.begin + piece.size))
        # A storage of its own, which keeps the whole memory alive.
        own: Tensor = from_dlpack(memory[begin:end])
        return own.view(self.dtype).as_strided(piece.shape, piece.strides)


def _why_bound(tensor: Tensor, piece: Piece) -> str | None:
    """The reason that a tensor's elements must stay where they are, if there is one."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_inference() or tensor.is_neg():
        return "one is of another kind than usual parameters and buffers"
    if not same_places(piece.shape, tensor.stride(), piece.strides):
        return "one has other strides than it was traced with"
    storage = tensor.untyped_storage()
    if storage.nbytes() != tensor.nbytes:
        return "one is a part of a larger storage"
    # What others gave is not PyTorch's to resize: memory of files and arrays, and that which is common already.
    is_given = not storage.resizable() or (tensor.device.type == "cpu" and (storage.is_shared() or tensor.is_pinned()))
    if is_given:
        return "one is in memory that is mapped, pinned, shared between processes, or common already"
    if _references(tensor) > _references(torch.empty(1)):
        return "another tensor has the memory of one, as a view or a state dict has"
    return None


def _references(tensor: Tensor) -> int:
    """The number of tensors that have its storage, and a constant."""
    count: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return count
