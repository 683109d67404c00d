"""Copies of tensors before trials, to restore them between trials and after the last one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from autosched.machine import memory
from search_spaces.errors import OutOfMemoryError

# Bytes compared at a time.
_AT_A_TIME = 2**28


class SavedTensors:
    """Copies of tensors that a call may change: of whole storages, whatever part is an argument.

    Comparison shows which of them a kernel changes (`note_changes`), and only those are restored. The copies are on the
    device, or in the host's memory if the device has no room. `zeroed` tensors are set to zero instead. Memory that a
    kernel reaches by addresses that it reads from memory is not seen, and not restored.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], zeroed: Collection[str] = ()) -> None:
        self._zeroed = [t for name, t in tensors.items() if name in zeroed]
        apart = {t.untyped_storage().data_ptr() for t in self._zeroed}
        storages = {s.data_ptr(): s for s in (t.untyped_storage() for t in tensors.values()) if s.nbytes()}
        self._now = {at: _as_bytes(s) for at, s in storages.items() if at not in apart}
        self._then = {at: copied(now) for at, now in self._now.items()}
        self._changed: set[int] = set()

    def note_changes(self) -> None:
        """Remember which tensors differ from their copies."""
        for at, now in self._now.items():
            if at not in self._changed and not _equal(now, self._then[at]):
                self._changed.add(at)

    def changed(self, tensor: torch.Tensor) -> bool:
        """True if a tensor was ever seen changed, or is not copied, and may have been."""
        at = tensor.untyped_storage().data_ptr()
        return at in self._changed or at not in self._now

    def original(self, tensor: torch.Tensor) -> torch.Tensor:
        """The original of a copied tensor, on the device of the copy."""
        copy = self._then[tensor.untyped_storage().data_ptr()].untyped_storage()
        made = torch.empty(0, dtype=tensor.dtype, device=copy.device)
        return made.set_(copy, tensor.storage_offset(), tensor.size(), tensor.stride())

    def restore(self) -> None:
        """Restore the tensors that were seen to change."""
        for at in self._changed:
            self._now[at].copy_(self._then[at])
        for tensor in self._zeroed:
            tensor.detach().zero_()


def _as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _equal(now: torch.Tensor, then: torch.Tensor) -> bool:
    """True if bytes are the same; a copy in the host's memory is moved to the device a part at a time."""
    parts = (slice(i, i + _AT_A_TIME) for i in range(0, now.numel(), _AT_A_TIME))
    return all(torch.equal(now[part], then[part].to(now.device)) for part in parts)


def copied(content: torch.Tensor) -> torch.Tensor:
    """A copy, in the host's memory if the device has no room.

    Raises:
        OutOfMemoryError: there is none either.
    """
    try:
        return content.clone()
    except RuntimeError as error:
        if not memory.ran_out(error):
            raise
    try:
        # For a tensor on the host this tries once more, and is refused.
        return content.to("cpu", copy=True)
    except RuntimeError as error:
        raise OutOfMemoryError(
            f"no memory for a copy of {content.nbytes / 2**30:.1f} GiB of the kernel's arguments, which are restored "
            "after trials; restore_value= names those that are to be copied, in the place of all"
        ) from error
