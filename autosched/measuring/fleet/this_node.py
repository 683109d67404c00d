"""The machine of this process as a node of a fleet."""

from __future__ import annotations

import platform

from autosched.backends.environment import environment
from autosched.machine import devices
from autosched.machine.telemetry import device_uuid, listed_gpus
from autosched.measuring.fleet.code import Code, own_versions
from autosched.measuring.fleet.compile_service import CompileService
from autosched.measuring.local_measurer import LocalMeasurer
from autosched.measuring.worker_setups import TrialLimits
from search_spaces import Target


class ThisNode:
    """The machine of this process."""

    def devices(self) -> list[str]:
        return [*listed_gpus(), devices.cpu_target().device]

    def code(self, target: Target) -> Code:
        return Code(own_versions(), environment(target))

    def card(self, target: Target) -> str:
        return (device_uuid() or "") if target.kind == "gpu" else platform.node()

    def measurer(self, target: Target, workers: int) -> LocalMeasurer:
        return LocalMeasurer(target, limits=TrialLimits(compile_workers=workers))

    def compiling(self, target: Target, workers: int) -> CompileService:
        return CompileService(target, TrialLimits(compile_workers=workers))
