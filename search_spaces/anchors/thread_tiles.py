"""Starting tiles: some vectors for every thread, as many programs as keep a device busy.

Computed from a device alone: its waves, the vector of a load instruction, its registers and multiprocessors.
"""

from __future__ import annotations

from search_spaces.devices.target import Target

# Waves of a program: one for each scheduler of a multiprocessor, and up to eight.
_WAVES = (4, 8, 16, 32)
# Bytes of an element of the narrow types, which have the longest vectors.
_NARROW = 2
# Programs of a multiprocessor that hide each other's latency, if a split makes as many as wanted.
PROGRAMS_PER_SM = (4, 8)


def thread_tiles(target: Target) -> tuple[tuple[int, int], ...]:
    """(elements of a tile, waves of its program), the smallest first.

    A thread has one vector to four; in programs of twice the waves, which share a larger tile, twice as many. No tile
    has more elements than half the registers of a multiprocessor.
    """
    vector = target.features.load_bytes // _NARROW
    found: dict[tuple[int, int], None] = {}
    for doubled, waves in enumerate(w for w in _WAVES if w <= target.most_waves):
        for vectors in (1, 2, 4):
            elements = (vectors << doubled) * vector * waves * target.wave
            found[min(elements, most_elements(target)), waves] = None
    return tuple(found)


def most_elements(target: Target) -> int:
    """The elements of the largest tile: more than half the registers leave too few for anything else."""
    return target.registers_per_sm // 2
