"""What a search asks to measure: here (`local_measurer`), elsewhere, or out of a recorded table (`recorded`)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from autosched.machine.policies import Policy
from search_spaces import Schedule, TargetUnavailableError, Workload
from tuning_logs import Measurement, Versions


class UnfitWorkloadError(TargetUnavailableError):
    """The inputs of a workload cannot be set up on the device; another's may."""


class Measurer(Protocol):
    """What runs schedules on one target, of several workloads in turn: here, elsewhere, or out of a recorded table.

    `policy` is how they are timed, and the inputs are drawn from `seed`.
    """

    @property
    def overlaps(self) -> bool:
        """Whether the next schedules may be worked out, and submitted, while earlier ones are measured."""
        ...

    @property
    def environment(self) -> Versions:
        """Versions of all that measurements depend on, on the machine that measures: they stand in every record."""
        ...

    def library_s(self, workload: Workload) -> float | None:
        """What the vendor's library takes; None while that is not known."""
        ...

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = ..., seed: int = ...
    ) -> list[Future[Measurement]]:
        """Have the schedules measured; a failure is a measurement too.

        A future raises what broke the measurer, or UnfitWorkloadError.
        """
        ...

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = ..., seed: int = ...
    ) -> list[Measurement] | None:
        """The same, timed interleaved with each other to compare them fairly, `rounds` at a time until one wins.

        None when they could not be timed together.
        """
        ...

    def cancel(self) -> None:
        """Give up what was submitted and is not being worked on yet: those futures are cancelled."""
        ...
