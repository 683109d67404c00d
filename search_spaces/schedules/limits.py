"""What a backend asks of the programs that it makes kernels of: known to it, and handed in to a search space.

Sketches know what can be lowered, and what a device is. What a compiler makes of a program (how much of it goes to
shared memory and registers) is the compiler's own, and another one's is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from search_spaces.devices.target import Target
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.schedule import Schedule
from search_spaces.workloads.workload import Workload


@dataclass(frozen=True)
class Resources:
    """What one program of a kernel needs on a GPU: estimates from its tiles, not what a compiler reported.

    `threads` are those that compute; a producer's, which have few registers, come beside them.
    """

    shared_memory_bytes: int
    registers_per_thread: int
    threads: int


class Limits(Protocol):
    """What a backend can make, told before anything is compiled."""

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        """Why no schedule can compute the workload on the target, with what is allowed; or None."""
        ...

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        """The limit of the target that the schedule's program breaks, or None when it may be compiled.

        Asked once for all schedules of a sketch that agree in the knobs that decide resources (`Sketch`). What cannot
        be printed for other reasons is refused when it is printed.
        """
        ...

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        """What a kernel of the program needs of a GPU; None where the backend has no estimate."""
        ...


class Unlimited:
    """The limits of no backend: what sketches allow is allowed."""

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        return None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        return None

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources | None:
        return None


UNLIMITED = Unlimited()
# The backends of a search space that is built for none in particular.
NO_BACKEND: Mapping[str, Limits] = {"": UNLIMITED}
