"""Weights to bring into the L2 while launches run that leave the memory idle: which, when, and how much of them.

attention   norm   o_proj                 before: the memory rests while the first two run
attention   norm   o_proj                 after: a branch of the graph asks for the weights meanwhile
weights of o_proj
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.backends.backend import Place, WeightsAhead
from autosched.planning.layout import Memory, PlacedStep
from autosched.planning.steps import Launchable
from search_spaces import Target

# Of one tensor, and of what is asked for at once: less is there before a branch of a graph has begun.
FEWEST_BYTES = 2**19
# From the end of a kernel of a graph to the begin of the next one.
_BETWEEN_S = 1e-6
# A launch that reads at more than this part of the memory's rate leaves nothing to others.
_BUSY = 0.5
# Part of the L2 for what is on its way; the rest is that of the launches that run.
_ROOM = 0.4


@dataclass(frozen=True)
class Work:
    """A launch: its latency, and the places and bytes of what lies in memory before all launches and is read by it.

    `ahead`: these may be asked for before it.
    """

    seconds: float
    reads: tuple[tuple[Place, int], ...] = ()
    ahead: bool = False

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.reads)

    def resting_s(self, rate: float) -> float:
        """Time that it leaves the memory idle; 0 where it is busy."""
        busy = self.bytes / rate
        return 0.0 if busy > _BUSY * self.seconds else self.seconds + _BETWEEN_S - busy


def brings_ahead(target: Target) -> bool:
    """True if a device has an instruction for it."""
    return target.kind == "gpu" and target.features.descriptors is not None


def ahead_of(memory: Memory) -> list[WeightsAhead]:
    """The weights to bring into the L2 during a stretch that is one graph."""
    kernel = memory.launches[0].launch.kernel
    if not any(placed.launch.kernel.ahead for placed in memory.launches) or not brings_ahead(kernel.target):
        return []
    return ahead([_work(placed, memory) for placed in memory.launches], kernel.target)


def _work(placed: PlacedStep, memory: Memory) -> Work:
    kernel: Launchable = placed.launch.kernel
    made = {memory.arena, *memory.allocated}
    constants = kernel.constants
    prepared = () if constants is None else constants.places
    read = zip(placed.places, kernel.input_bytes, strict=False)
    given = [(place, size) for n, (place, size) in enumerate(read) if place[0] not in made and n not in prepared]
    if constants is not None:
        given += [((base, 0), size) for base, size in zip(placed.prepared, constants.sizes, strict=True)]
    return Work(kernel.latency_s, tuple(x for x in given if x[1] >= FEWEST_BYTES), kernel.ahead)


def ahead(work: Sequence[Work], target: Target) -> list[WeightsAhead]:
    """What to ask for, in the order in which launches read it, from first bytes on.

    As many bytes as the memory brings while it would rest, and as have room beside those on their way.
    """
    rate, room = target.memory_bytes_per_s, int(_ROOM * target.l2_bytes)
    begun = {(n, m): 0 for n, each in enumerate(work) if each.ahead for m in range(len(each.reads))}
    found = list[WeightsAhead]()
    for first, end in _resting(work, rate):
        later = [key for key in begun if key[0] >= end]
        seconds = sum(each.resting_s(rate) for each in work[first:end])
        on_their_way = sum(count for (number, _), count in begun.items() if number >= first)
        left = min(int(seconds * rate), room - on_their_way)
        for number, read in later:
            (base, offset), size = work[number].reads[read]
            count = min(size - begun[number, read], left)
            if count >= FEWEST_BYTES:
                found.append(WeightsAhead(first - 1, base, offset + begun[number, read], count))
                begun[number, read] += count
                left -= count
            if left < FEWEST_BYTES:
                break
    return found


def _resting(work: Sequence[Work], rate: float) -> Iterator[tuple[int, int]]:
    """The first and the end of each longest run of launches that leave the memory idle, others following."""
    first = None
    for number, each in enumerate(work):
        rests = each.resting_s(rate) > 0
        if not rests and first is not None:
            yield first, number
        first = None if not rests else number if first is None else first
