"""What a search asks to measure: here (`local_measurer`), elsewhere, or out of a recorded table (`recorded`)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, runtime_checkable

from autosched.machine.policies import Policy
from search_spaces import AutoschedError, Schedule, Target, TargetUnavailableError, Workload
from tuning_logs import Measurement, Versions

# Schedules of the largest batch that keeps the workers of one machine busy: that of Ansor and MetaSchedule.
BATCH = 64
# What candidates compute: a workload, or a kernel of the user's own.
S = TypeVar("S", contravariant=True)


class UnfitWorkloadError(TargetUnavailableError):
    """The inputs of a workload cannot be set up on the device; another's may."""


class LostTrialError(AutoschedError):
    """A candidate was not measured, and that is no fault of its own: the machine that had it is gone, say.

    It is given again with the next batch. What is lost when nothing but lost candidates was given, and none of them
    answered, is given up, and the result of the search says so.
    """


class MeasurerOf(Protocol[S]):
    """What runs schedules on one target, of several workloads in turn: here, elsewhere, or out of a recorded table.

    `policy` is how they are timed, and the inputs are drawn from `seed`.
    """

    @property
    def capacity(self) -> int:
        """How many schedules it takes at a time, those included that it works on; a batch is never larger.

        Below two batches of 64, the next schedules are proposed when all of these have ended; from there on, while they
        are measured. Above three, batches grow with it.
        """
        ...

    @property
    def environment(self) -> Versions:
        """Versions of all that measurements depend on, on the machine that measures: they stand in every record."""
        ...

    def library_s(self, workload: S) -> float | None:
        """What the vendor's library takes; None while that is not known."""
        ...

    def submit(
        self, workload: S, schedules: Sequence[Schedule], *, policy: Policy = ..., seed: int = ...
    ) -> list[Future[Measurement]]:
        """Have the schedules measured; a failure is a measurement too.

        A future raises what broke the measurer, UnfitWorkloadError, or LostTrialError.
        """
        ...

    def remeasure(
        self, workload: S, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = ..., seed: int = ...
    ) -> list[Measurement] | None:
        """The same, timed interleaved with each other to compare them fairly, `rounds` at a time until one wins.

        None when they could not be timed together.
        """
        ...

    def cancel(self) -> None:
        """Give up what was submitted and is not being worked on yet: those futures are cancelled."""
        ...


Measurer = MeasurerOf[Workload]


@runtime_checkable
class Reservable(Protocol):
    """A measurer on this machine that serves one search at a time; what it found right is known to be right here."""

    def reserved(self, target: Target) -> AbstractContextManager[None]:
        """Let no other search use it for as long as the block lasts.

        Raises:
            InputError: it cannot be used, is in use already, or measures on another target.
        """
        ...


@runtime_checkable
class Revising(Protocol):
    """A measurer that may learn later that it said something wrong: it has no reference to compare results with."""

    def revisions(self) -> Sequence[tuple[Schedule, Measurement]]:
        """What it says otherwise by now, or did not say when it was asked, each once."""
        ...
