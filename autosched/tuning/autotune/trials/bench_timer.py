"""A timer from a user's own timing function in the form that Triton takes."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.machine.timing import Run
from autosched.tuning.autotune.settings import DoBench

_QUANTILES = (0.5, 0.2, 0.8)


class BenchTimer:
    """Times each call by `do_bench(call, quantiles=…)`, whose calls are warm and not reset between."""

    slowdown = 1.0

    def __init__(self, do_bench: DoBench, before: Run) -> None:
        self._do_bench, self._before = do_bench, before

    def sample(self, runs: Sequence[Run]) -> list[float]:
        return [self._once(run) for run in runs]

    def _once(self, run: Run) -> float:
        self._before()
        taken = self._do_bench(run, quantiles=_QUANTILES)
        return float(taken[0] if isinstance(taken, list | tuple) else taken) * 1e-3
