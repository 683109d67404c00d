"""Protocol of a measurer: on this machine (`local_measurer`), elsewhere, or from a recorded table (`recorded`)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, runtime_checkable

from autosched.machine.policies import Policy
from search_spaces import AutoschedError, Schedule, Target, TargetUnavailableError, Workload
from tuning_logs import Measurement, Versions

# Schedules per batch, enough to keep the workers of one machine busy: that of Ansor and MetaSchedule.
BATCH = 64
# The subject of a measurement: a workload, or a kernel of the user's own.
S = TypeVar("S", contravariant=True)


class UnfitWorkloadError(TargetUnavailableError):
    """The inputs of a workload cannot be set up on the device; another's may."""


class LostTrialError(AutoschedError):
    """A candidate was not measured through no fault of its own, as when its machine is gone.

    It is submitted again with the next batch. If a batch of lost candidates alone yields no measurement, they are given
    up, and the result of the search says so.
    """


class MeasurerOf(Protocol[S]):
    """Runs schedules on one target, of several workloads in sequence: here, elsewhere, or from a recorded table.

    `policy` is the way of timing; the inputs are drawn from `seed`.
    """

    @property
    def capacity(self) -> int:
        """Number of schedules that it takes at a time, including those in progress; a batch is never larger.

        Below two batches of 64, the next schedules are proposed when all of these have ended; from there on, while they
        are measured. Above three, batches grow with it.
        """
        ...

    @property
    def environment(self) -> Versions:
        """Versions of all that measurements depend on, on the measuring machine: every record has them."""
        ...

    def library_s(self, workload: S) -> float | None:
        """Latency of the vendor's library; None while it is unknown."""
        ...

    def submit(
        self, workload: S, schedules: Sequence[Schedule], *, policy: Policy = ..., seed: int = ...
    ) -> list[Future[Measurement]]:
        """Measure the schedules; a failure is a measurement, too.

        A future raises the error that broke the measurer, UnfitWorkloadError, or LostTrialError.
        """
        ...

    def remeasure(
        self, workload: S, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = ..., seed: int = ...
    ) -> list[Measurement] | None:
        """Measurements in interleaved rounds, to compare schedules fairly, `rounds` at a time until one wins.

        None if they could not be timed together.
        """
        ...

    def cancel(self) -> None:
        """Cancel the futures of schedules that are not in progress yet."""
        ...


Measurer = MeasurerOf[Workload]


@runtime_checkable
class Measurers(Protocol):
    """Measurers of several targets, such as those of a fleet, opened as searches need them."""

    def session(self, target: Target) -> AbstractContextManager[Measurer]:
        """The measurer of a target, reserved for one search while the block lasts.

        Raises:
            InputError: it is in use already.
            TargetUnavailableError: there is none.
        """
        ...


@runtime_checkable
class Reservable(Protocol):
    """A measurer on this machine that serves one search at a time; its right kernels are right here, too."""

    def reserved(self, target: Target) -> AbstractContextManager[None]:
        """Reserve it for one search while the block lasts.

        Raises:
            InputError: it cannot be used, is in use already, or measures on another target.
        """
        ...


@runtime_checkable
class Losing(Protocol):
    """A measurer of machines that may be lost while others go on."""

    @property
    def losses(self) -> Sequence[str]:
        """The machines that were lost since the search began, each with the reason."""
        ...


@runtime_checkable
class Revising(Protocol):
    """A measurer that may revise its answers later: it has no reference to compare results with."""

    def revisions(self) -> Sequence[tuple[Schedule, Measurement]]:
        """Measurements revised, or added, since the last call, each once."""
        ...
