"""Nodes of a fleet with made-up cards, whose measurers make up latencies and take made-up times.

Nodes import it by name: the tests put its folder on their module path, and say in the environment of each node what it
has and how it behaves.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from autosched.backends.backend import Artefact
from autosched.machine.policies import Policy
from autosched.measuring.fleet.code import Code, own_versions
from autosched.measuring.measurer import BATCH
from search_spaces import Schedule, Target, Workload
from search_spaces.devices.target import cpu
from tuning_logs import CompileFacts, Measurement

LOCATION = "made_up_node:MadeUpNode"
ONE_OUTDATED = "made_up_node:NodeOfSeveralVersions"
IMAGINARY_CPU = "Imaginary CPU"
# Not that of this machine, for which a node would import PyTorch.
ENVIRONMENT = (("made up", "environment"),)
# Variables of a node: its devices, separated by commas; seconds of a trial and of a compilation; a file of schedules,
# one a line, that end the process that measures them; and whether it is outdated (`NodeOfSeveralVersions`).
DEVICES, TRIAL_S, COMPILE_S = "MADE_UP_DEVICES", "MADE_UP_TRIAL_S", "MADE_UP_COMPILE_S"
DEADLY, OUTDATED = "MADE_UP_DEADLY", "MADE_UP_OUTDATED"


def imaginary_cpu() -> Target:
    return cpu(IMAGINARY_CPU, lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)


def made_up(workload: Workload, schedule: Schedule) -> Measurement:
    """One in seven fails to compile; the others take microseconds that schedule and workload decide."""
    number = zlib.crc32(f"{workload.key} {schedule.one_line}".encode())
    if number % 7 == 0:
        return Measurement("compile_error", detail="made up")
    return Measurement("ok", (float(f"{100 + number % 10_000}e-7"),))


class Local:
    """Makes them up in this process, with as many batches in flight as a fleet has."""

    environment = ()

    def __init__(self, batches: int) -> None:
        self.capacity = BATCH * batches

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for schedule, future in zip(schedules, futures, strict=True):
            future.set_result(made_up(workload, schedule))
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        return [made_up(workload, schedule) for schedule in schedules]

    def cancel(self) -> None:
        """Nothing to cancel."""


def _seconds(variable: str) -> float:
    return float(os.environ.get(variable, "0"))


class MadeUpNode:
    def devices(self) -> list[str]:
        return [name for name in os.environ.get(DEVICES, "").split(",") if name]

    def code(self, target: Target) -> Code:
        return Code(own_versions(), ENVIRONMENT)

    def card(self, target: Target) -> str:
        return f"{os.environ.get('CUDA_VISIBLE_DEVICES')} of {os.getpid()}"

    def measurer(self, target: Target, workers: int) -> MadeUpMeasurer:
        return MadeUpMeasurer(workers)

    def compiling(self, target: Target, workers: int) -> MadeUpCompiling:
        return MadeUpCompiling(workers)


class NodeOfSeveralVersions(MadeUpNode):
    """One whose code is another if it is told so."""

    def code(self, target: Target) -> Code:
        here = super().code(target)
        return Code((*here.own, ("made up", "other code")), here.environment) if os.environ.get(OUTDATED) else here


class MadeUpCompiling:
    """Compiles to nothing, as many at a time as there are workers."""

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers)

    def submit(self, workload: Workload, schedule: Schedule) -> Future[Artefact | Measurement]:
        return self._pool.submit(self._compiled, workload, schedule)

    def _compiled(self, workload: Workload, schedule: Schedule) -> Artefact | Measurement:
        time.sleep(_seconds(COMPILE_S))
        made = made_up(workload, schedule)
        facts = CompileFacts(_seconds(COMPILE_S))
        return Artefact(schedule.backend, "made up", (b"binary",), facts, "{}") if made.ok else made


class MadeUpMeasurer:
    """One trial at a time; without an artefact it is compiled before."""

    usable = True

    def __init__(self, workers: int) -> None:
        self._compiling = MadeUpCompiling(workers)
        self._device = ThreadPoolExecutor(1)
        self._lock = threading.Lock()

    @contextmanager
    def reserved(self, target: Target) -> Iterator[None]:
        yield

    def library_s(self, workload: Workload) -> float | None:
        return 1e-6

    def submit(
        self,
        workload: Workload,
        schedules: Sequence[Schedule],
        *,
        policy: Policy = "cold",
        seed: int = 0,
        artefact: Artefact | None = None,
    ) -> list[Future[Measurement]]:
        return [self._device.submit(self._one, workload, schedule, artefact) for schedule in schedules]

    def _one(self, workload: Workload, schedule: Schedule, artefact: Artefact | None) -> Measurement:
        if artefact is None:
            self._compiling.submit(workload, schedule).result()
        if (deadly := os.environ.get(DEADLY)) and schedule.one_line in Path(deadly).read_text().splitlines():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(_seconds(TRIAL_S))
        return made_up(workload, schedule)

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        return [made_up(workload, schedule) for schedule in schedules]

    def cancel(self) -> None:
        pass
