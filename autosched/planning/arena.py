"""Offsets in shared memory for buffers of known lifetimes: greedy by size, best fit.

The largest buffer comes first and takes the smallest gap that is free as long as it lives; only where there is none the
memory grows (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, section 5.2). Memory
of a buffer outside, a result's, is such a gap before its first write.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
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
    arena = _Memory()
    lent = [(number, room, _Memory(room.bytes)) for number, room in enumerate(rooms)]
    places: dict[int, tuple[int | None, int]] = {}
    # Among equals the latest first: only the last ones cannot lie in results.
    for number in sorted(range(len(buffers)), key=lambda n: (-buffers[n].bytes, -buffers[n].first)):
        buffer = buffers[number]
        fitting = ((n, memory) for n, room, memory in lent if room.bytes >= buffer.bytes and not room.meets(buffer))
        everywhere: Iterator[tuple[int | None, _Memory]] = itertools.chain(fitting, [(None, arena)])
        places[number] = next((n, at) for n, memory in everywhere if (at := memory.place(buffer)) is not None)
    return Arrangement(tuple(places[n] for n in range(len(buffers))), arena.end)


@dataclass
class _Memory:
    """Memory of so many bytes, None for as many as needed.

    `taken`: by step, first byte and end of what is in use. `end`: that of everything.
    """

    bytes: int | None = None
    taken: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    end: int = 0

    def place(self, buffer: Lifetime) -> int | None:
        """The first byte of the smallest gap for a buffer, which takes it; None where there is no gap."""
        steps, needed = range(buffer.first, buffer.last + 1), aligned(buffer.bytes)
        gaps, end = [], 0
        for begin, after in sorted({each for step in steps for each in self.taken.get(step, ())}):
            gaps.append((begin - end, end))
            end = max(end, after)
        if self.bytes is not None:
            gaps.append((self.bytes - end, end))
        fitting = [gap for gap in gaps if gap[0] >= (needed if self.bytes is None else buffer.bytes)]
        if not fitting and self.bytes is not None:
            return None
        begin = min(fitting)[1] if fitting else end
        for step in steps:
            self.taken[step].append((begin, begin + needed))
        self.end = max(self.end, begin + needed)
        return begin


def aligned(count: int) -> int:
    """The bytes that a buffer takes: what comes after it is aligned."""
    return -(-count // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
