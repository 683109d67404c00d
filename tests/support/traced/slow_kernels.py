"""Kernels that take a millisecond longer than they would."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from autosched.kernels.kernel import Kernel


class SlowLauncher:
    """A launcher that takes a millisecond longer than another one."""

    def __init__(self, launcher: Any) -> None:
        self._launcher = launcher

    def launch(self, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        time.sleep(1e-3)
        self._launcher.launch(addresses, prepared)

    def unload(self) -> None:
        self._launcher.unload()


def slow(kernel: Kernel) -> Kernel:
    """The same kernel, a millisecond slower."""
    return Kernel(
        kernel.record, kernel.schedule, kernel.artefact, SlowLauncher(kernel._launcher), kernel.workload, kernel.tier
    )
