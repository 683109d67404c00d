"""Errors that autosched raises on purpose.

    AutoschedError
    ├── InputError            misuse: the message says what was expected, what came, what is allowed
    ├── DataError             data is not of the expected form: a damaged record, which readers skip, say
    ├── UnmatchedError        no sketch schedules the structure of a workload; the message says why
    ├── EmptySearchSpaceError no anchor has a legal schedule for this workload and target
    ├── TargetUnavailableError the target is known, but not (usable) on this machine
    ├── OutOfMemoryError      tensors of this size do not fit in the memory that is free
    └── LogError              a tuning log cannot be read or written

A candidate that fails to compile or to run is not here: it is a measurement with a status.
"""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces.plain_text import visible_lines


class AutoschedError(Exception):
    """Base of every error that autosched raises on purpose. Text that it quotes has no effect on a terminal."""

    def __str__(self) -> str:
        return visible_lines(super().__str__())


class InputError(AutoschedError, ValueError):
    """An argument is not allowed; nothing was changed."""


class DataError(AutoschedError, ValueError):
    """Data that was read is not of the expected form; readers of several entries skip it."""


class UnmatchedError(AutoschedError):
    """A sketch does not schedule this computation: a clause that says why."""


class EmptySearchSpaceError(AutoschedError):
    """No schedule is legal for this workload on this target."""


class TargetUnavailableError(AutoschedError):
    """The target is known, but this machine cannot run it."""


class OutOfMemoryError(AutoschedError, MemoryError):
    """Tensors that were asked for do not fit in memory; the message gives the bytes needed and the bytes free."""


class LogError(AutoschedError, OSError):
    """A tuning log cannot be opened, read or appended to."""


def unknown_name(kind: str, got: str, allowed: Iterable[str]) -> InputError:
    """The error for a name that is not in a list, with the closest allowed name first."""
    names = sorted(allowed)
    return InputError(f"unknown {kind} {got!r}{did_you_mean(got, names)} (allowed: {', '.join(names)})")


def did_you_mean(got: object, allowed: Iterable[str]) -> str:
    """End of the message about a name that is not in a list: the closest allowed one, if there is one."""
    import difflib

    spelled = {name.lower(): name for name in sorted(allowed)}
    close = difflib.get_close_matches(str(got).lower(), spelled, n=1)
    return f"; did you mean {spelled[close[0]]!r}?" if close else ""
