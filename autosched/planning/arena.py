"""Offsets in shared memory for buffers of known lifetimes: greedy by size, best fit.

The largest buffer comes first and takes the smallest gap that is free as long as it lives; only where there is none the
memory grows (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, section 5.2). Memory
of a buffer outside, a result's, is such a gap before its first write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# The alignment that CUDA's allocations have at least (programming guide, "Device Memory Accesses"); more than the
# widest vector of any CPU.
ALIGNMENT_BYTES = 256


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `bytes` that is in use from step `first` to step `last`, both included."""

    bytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Arrangement:
    """For every buffer the number of the room that it lies in, None for the arena, and its first byte there."""

    places: tuple[tuple[int | None, int], ...]
    arena_bytes: int


def arranged(buffers: Sequence[Lifetime], rooms: Sequence[Lifetime] = ()) -> Arrangement:
    """Places for buffers: no two overlap in memory and in time.

    `rooms`: memory that is allocated anyway, free outside of its own lifetime.
    """
    arena = _Memory(None)
    everywhere: list[tuple[int | None, _Memory]] = [
        *((number, _Memory(room.bytes, [(0, room.bytes, room)])) for number, room in enumerate(rooms)),
        (None, arena),
    ]
    places: dict[int, tuple[int | None, int]] = {}
    # Among equals the latest first: only the last ones cannot lie in results.
    for number in sorted(range(len(buffers)), key=lambda n: (-buffers[n].bytes, -buffers[n].first)):
        places[number] = next(
            (room, offset) for room, memory in everywhere if (offset := memory.place(buffers[number])) is not None
        )
    ends = [end for _, end, _ in arena.taken]
    return Arrangement(tuple(places[n] for n in range(len(buffers))), max(ends, default=0))


@dataclass
class _Memory:
    """Memory of so many bytes, None for as many as needed; `taken`: first byte, end and lifetime of what is in it."""

    bytes: int | None
    taken: list[tuple[int, int, Lifetime]] = field(default_factory=list)

    def place(self, buffer: Lifetime) -> int | None:
        """The first byte of the smallest gap for a buffer, which takes it; None where there is no gap."""
        needed = aligned(buffer.bytes)
        gaps, end = [], 0
        for begin, after, _ in sorted((t for t in self.taken if t[2].meets(buffer)), key=lambda t: t[:2]):
            gaps.append((begin - end, end))
            end = max(end, after)
        if self.bytes is not None:
            gaps.append((self.bytes - end, end))
        fitting = [gap for gap in gaps if gap[0] >= (needed if self.bytes is None else buffer.bytes)]
        if not fitting and self.bytes is not None:
            return None
        begin = min(fitting)[1] if fitting else end
        self.taken.append((begin, begin + needed, buffer))
        return begin


def aligned(count: int) -> int:
    """The bytes that a buffer takes: what comes after it is aligned."""
    return -(-count // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
