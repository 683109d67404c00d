"""A node of a fleet as its actors see it: devices, and processes that measure or compile. This runs on the node."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol

from autosched.backends.backend import Artefact
from autosched.machine.policies import Policy
from autosched.measuring.fleet.code import Code
from search_spaces import Schedule, Target, Workload
from tuning_logs import Measurement

# The node that is here, as "module:class": how actors import it, and PyTorch with it.
LOCATION = "autosched.measuring.fleet.this_node:ThisNode"


class CardMeasurer(Protocol):
    """The part of a `LocalMeasurer` that a card needs."""

    @property
    def usable(self) -> bool: ...

    def reserved(self, target: Target) -> AbstractContextManager[None]: ...

    def library_s(self, workload: Workload) -> float | None: ...

    def submit(
        self,
        workload: Workload,
        schedules: Sequence[Schedule],
        *,
        policy: Policy = ...,
        seed: int = ...,
        artefact: Artefact | None = ...,
    ) -> list[Future[Measurement]]: ...

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = ..., seed: int = ...
    ) -> list[Measurement] | None: ...

    def cancel(self) -> None: ...


class Compiling(Protocol):
    """Compiles bound schedules: `CompileService`."""

    def submit(self, workload: Workload, schedule: Schedule) -> Future[Artefact | Measurement]: ...


class Node(Protocol):
    """A machine of the fleet; `workers` are processes that compile."""

    def devices(self) -> list[str]:
        """The names of its GPUs, each as often as it is there, and that of its CPU."""
        ...

    def code(self, target: Target) -> Code:
        """The code that it runs, and what measurements on a target depend on there."""
        ...

    def card(self, target: Target) -> str:
        """UUID of the GPU of this process; the node's name for a CPU."""
        ...

    def measurer(self, target: Target, workers: int) -> CardMeasurer:
        """Raises TargetUnavailableError: this process has no such device."""
        ...

    def compiling(self, target: Target, workers: int) -> Compiling: ...


def node_at(location: str) -> Node:
    """The node that the class at "module:name" describes."""
    module, _, name = location.partition(":")
    node: Node = getattr(importlib.import_module(module), name)()
    return node
