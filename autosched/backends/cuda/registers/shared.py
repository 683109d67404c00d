"""Shared memory of a block: what is reserved as long as the kernel runs, and scratch that every exchange uses anew."""

from __future__ import annotations

# What vectors, asynchronous copies and matrix loads ask of addresses; swizzled tiles of the tensor memory accelerator
# ask for more, and reserve it.
ALIGNMENT = 16


class SharedMemory:
    """Counts the bytes that the text of one kernel uses of `shared`, its dynamic shared memory.

    Reserved memory comes first. Scratch begins behind it, at the constant `scratch`; before it is written, and again
    before it is read, all threads meet.
    """

    def __init__(self) -> None:
        self._reserved = 0
        self._scratch = 0

    def reserve(self, size: int, alignment: int = ALIGNMENT) -> int:
        """The first byte of memory that nothing else uses."""
        first = -(-self._reserved // alignment) * alignment
        self._reserved = first + size
        return first

    def scratch(self, size: int) -> str:
        """An expression for where so many bytes of scratch begin, for as long as the threads do not meet twice."""
        self._scratch = max(self._scratch, size)
        return "shared + scratch"

    @property
    def bytes(self) -> int:
        """All that the kernel needs."""
        return self._scratch_at + self._scratch

    @property
    def _scratch_at(self) -> int:
        return -(-self._reserved // ALIGNMENT) * ALIGNMENT

    def definitions(self) -> list[str]:
        """What stands at the beginning of the kernel."""
        if not self.bytes:
            return []
        lines = ["extern __shared__ __align__(1024) unsigned char shared[];"]
        return [*lines, f"constexpr int scratch = {self._scratch_at};"] if self._scratch else lines
