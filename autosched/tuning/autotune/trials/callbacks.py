"""A user's callbacks in trials, with Triton's signatures: a timing function, and hooks around every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autosched.machine.timing import Run
from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.configurations import Configuration
from autosched.tuning.autotune.settings import DoBench, Hooks

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


class PairedHooks:
    """The user's hooks around runs of a call, one for one, although timed runs are queued at once.

    A run is closed when the next one is opened, or its trial ends.
    """

    def __init__(self, hooks: Hooks, call: Call) -> None:
        self._hooks, self._named = hooks, call.named
        self._open: Mapping[str, Any] | None = None
        self._last: Mapping[str, Any] = {}

    def open(self, configuration: Configuration) -> None:
        """Call the hook before a run, with all arguments and knobs."""
        self._open = self._last = configuration.keywords
        if self._hooks.before is not None:
            self._hooks.before({**self._named, **self._open}, reset_only=False)

    def close(self, error: Exception | None = None) -> None:
        """Call the hook after a run; nothing if none is open."""
        if self._hooks.after is not None and self._open is not None:
            self._hooks.after({**self._named, **self._open}, exception=error)
        self._open = None

    def reset(self) -> None:
        """Call the hook before the call itself, after the last trial; there is no closing this one."""
        if self._hooks.before is not None:
            self._hooks.before({**self._named, **self._last}, reset_only=True)
