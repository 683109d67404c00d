"""Shared memory of a block: memory reserved as long as the kernel runs, and scratch that every exchange reuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autosched.backends.printing.scope import Block

# Alignment that vectors, asynchronous copies and matrix loads need; swizzled tiles of the tensor memory accelerator
# need more, and reserve it.
ALIGNMENT = 16
# Alignment of matrices of wmma (PTX ISA, wmma.load).
_MATRIX_ALIGNMENT = 32
# Small enough to have two places, so that one can be written while the other is still read.
_SMALL = 4096
_SMALL_PLACES = ("small_1", "small_2")
_SCRATCH = "scratch"


class SharedMemory:
    """Bytes that the text of one kernel uses of `shared`, its dynamic shared memory, and the barriers needed.

    Reserved memory comes first, then two small places for exchanges. The constant `scratch` is the start of a stack of
    places, and the scratch memory of large exchanges follows its top. Data written to scratch may be read after a
    barrier.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._reserved = 0
        self._small = dict.fromkeys(_SMALL_PLACES, 0)
        self._taken = 0
        self._most = 0
        self._uses = 0
        self._written: set[str] = set()
        # Places that threads past the last barrier may still be reading.
        self._read: set[str] = set()
        self._groups, self._group = 1, ""
        self._meeting = "__syncthreads();"

    def reserve(self, size: int, alignment: int = ALIGNMENT) -> int:
        """The first byte of memory that nothing else uses."""
        first = _aligned(self._reserved, alignment)
        self._reserved = first + size
        return first

    def place(self, size: int) -> str:
        """Offset from `shared` of a place of `size` bytes, which is not reused until `taken` ends."""
        first = self._taken
        self._uses += 1
        self._taken += _aligned(size, _MATRIX_ALIGNMENT)
        self._most = max(self._most, self._taken)
        return f"{_SCRATCH} + {first}" if first else _SCRATCH

    def claim(self, size: int) -> str:
        """The same for memory that may be written at once."""
        if _SCRATCH in self._read:
            self.meet()
        return self.place(size)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Context that gives back in the end the places taken within."""
        before = self._taken
        yield
        self._taken = before
        self.forget()

    def share(self, groups: int, group: str, meeting: str) -> None:
        """Give each of several groups of threads, which print like whole blocks, scratch of its own.

        `group` is a variable of theirs, the group's number; `meeting`: the barrier of the threads of one.
        """
        self._groups, self._group, self._meeting = groups, group, meeting

    def scratch(self, size: int) -> str:
        """An expression for the start of `size` bytes of scratch, which may be written at once."""
        places = _SMALL_PLACES if size <= _SMALL else (_SCRATCH,)
        place = next((p for p in places if p not in self._read), places[0])
        if place in self._read:
            self.meet()
        self._written.add(place)
        self._uses += 1
        if place in self._small:
            self._small[place] = max(self._small[place], _aligned(size))
            return f"shared + {place}{self._own(place)}"
        self._most = max(self._most, _aligned(self._taken + size))
        own = self._own(_SCRATCH)
        return f"shared + {_SCRATCH}{own} + {self._taken}" if self._taken else f"shared + {_SCRATCH}{own}"

    def _own(self, place: str) -> str:
        """Offset of a group's scratch from the first group's, as a term of a sum."""
        return f" + {self._group} * {place}_bytes" if self._groups > 1 else ""

    def meet(self) -> None:
        """Barrier: all threads wait for each other; written data may be read."""
        self._block.write(self._meeting)
        self._uses += 1
        self._read, self._written = self._written, set()

    def forget(self) -> None:
        """Any scratch may still be read: at the start of a loop's body, or where branches join."""
        self._read = {*_SMALL_PLACES, _SCRATCH}

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Context of statements that may run several times, or not at all."""
        before, uses = self._read, self._uses
        self.forget()
        yield
        if self._uses == uses:
            self._read = before
        else:
            self.forget()

    @property
    def bytes(self) -> int:
        """All that the kernel needs."""
        return self._begins()[_SCRATCH] + self._most * self._groups

    def _begins(self) -> dict[str, int]:
        begins, end = {}, self._reserved
        for place, size in self._small.items():
            begins[place] = _aligned(end)
            end = begins[place] + size * self._groups
        return {**begins, _SCRATCH: _aligned(end, _MATRIX_ALIGNMENT)}

    def definitions(self) -> list[str]:
        """Definitions at the beginning of the kernel."""
        if not self.bytes:
            return []
        lines = ["extern __shared__ __align__(1024) unsigned char shared[];"]
        used = {**self._small, _SCRATCH: self._most}
        for place, begin in self._begins().items():
            if used[place]:
                each = f", {place}_bytes = {used[place]}" if self._groups > 1 else ""
                lines.append(f"constexpr int {place} = {begin}{each};")
        # Addresses for matrix loads and asynchronous copies.
        return [*lines, "const uint32 shared_at = __cvta_generic_to_shared(shared);"]


def _aligned(size: int, alignment: int = ALIGNMENT) -> int:
    return -(-size // alignment) * alignment
