"""Shared memory of a block: what is reserved as long as the kernel runs, and scratch that every exchange uses anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# What vectors, asynchronous copies and matrix loads ask of addresses; swizzled tiles of the tensor memory accelerator
# ask for more, and reserve it.
ALIGNMENT = 16


class SharedMemory:
    """Counts the bytes that the text of one kernel uses of `shared`, its dynamic shared memory.

    Reserved memory comes first. Behind it, from the constant `scratch` on, lie places that are taken and given back,
    one behind the other, and behind those that are taken the scratch memory of exchanges; before this is written, and
    again before it is read, all threads meet.
    """

    def __init__(self) -> None:
        self._reserved = 0
        self._taken = 0
        self._most = 0

    def reserve(self, size: int, alignment: int = ALIGNMENT) -> int:
        """The first byte of memory that nothing else uses."""
        first = -(-self._reserved // alignment) * alignment
        self._reserved = first + size
        return first

    def place(self, size: int) -> str:
        """Where so many bytes are, by their distance from `shared`, which nothing else uses until `taken` ends."""
        first = self._taken
        self._taken += -(-size // ALIGNMENT) * ALIGNMENT
        self._most = max(self._most, self._taken)
        return f"scratch + {first}" if first else "scratch"

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Give back in the end the places that are taken within."""
        before = self._taken
        yield
        self._taken = before

    def scratch(self, size: int) -> str:
        """An expression for where so many bytes of scratch begin, for as long as the threads do not meet twice."""
        self._most = max(self._most, self._taken + size)
        return f"shared + scratch + {self._taken}" if self._taken else "shared + scratch"

    @property
    def bytes(self) -> int:
        """All that the kernel needs."""
        return self._scratch_at + self._most

    @property
    def _scratch_at(self) -> int:
        return -(-self._reserved // ALIGNMENT) * ALIGNMENT

    def definitions(self) -> list[str]:
        """What stands at the beginning of the kernel."""
        if not self.bytes:
            return []
        lines = ["extern __shared__ __align__(1024) unsigned char shared[];"]
        if self._most:
            lines.append(f"constexpr int scratch = {self._scratch_at};")
        # What matrix loads and asynchronous copies take.
        return [*lines, "const uint32 shared_at = __cvta_generic_to_shared(shared);"]
