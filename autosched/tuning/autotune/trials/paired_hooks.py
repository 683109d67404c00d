"""Hooks that Triton calls before and after each run of a trial, in pairs, although timed runs are queued at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.configurations import Configuration
from autosched.tuning.autotune.settings import Hooks


class PairedHooks:
    """The user's hooks around runs of a call: a run is closed when the next one is opened, or its trial ends."""

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
