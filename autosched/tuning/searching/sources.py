"""Logs for a warm start, besides the search's own records: the argument `history`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autosched.replaying.arguments import log_path
from search_spaces import InputError, LogError
from tuning_logs import TuningLog
from tuning_logs.log import INDEX_FROM_BYTES
from tuning_logs.selection import MOST_TOLD

# A log that was measured elsewhere, by a colleague or on another machine.
_OtherLog = str | os.PathLike[str] | TuningLog
# Such logs, in addition to the user's and the shipped ones; None: no others; (): not even these.
OtherLogs = _OtherLog | Sequence[_OtherLog] | None


@dataclass(frozen=True)
class Sources:
    """Logs for a warm start: `others` are further logs; `most`: the records of theirs that a search learns from.

    A `cold` search uses none, neither its own log's records of elsewhere nor shipped ones.
    """

    others: tuple[TuningLog, ...] = ()
    cold: bool = False
    most: int = MOST_TOLD

    @staticmethod
    def of(history: OtherLogs) -> Sources:
        """The user's choice, checked: a file that is no log, or has no record, is refused before a search.

        Raises:
            InputError: an item is no path and no log, does not exist, or has no record that can be read.
            LogError: a file is no tuning log, or out of reach.
        """
        if history is None:
            return Sources()
        if isinstance(history, str | os.PathLike | TuningLog):
            history = (history,)
        if not isinstance(history, Iterable):
            raise InputError(f"history={history!r}; {_EXPECTED}")
        others = tuple(_checked(log) for log in history)
        return Sources(others, cold=not others)


# The user's log and the shipped ones.
USUAL = Sources()
_EXPECTED = "expected the path of a tuning log, several of them, or () to start cold"


def _checked(log: object) -> TuningLog:
    if not isinstance(log, str | os.PathLike | TuningLog):
        raise InputError(f"history={log!r}; {_EXPECTED}")
    found = log if isinstance(log, TuningLog) else TuningLog(log_path(log))
    path = log_path(found.path)
    if not path.is_file():
        raise InputError(f"history: there is no file {path}; {_EXPECTED}")
    # A large log is indexed, and not read here.
    if path.stat().st_size < INDEX_FROM_BYTES:
        try:
            readable = found.readable()
        except LogError as error:
            raise InputError(f"history: {error}") from None
        if not readable:
            raise InputError(f"history: no record of this log can be read: {path} is empty")
    return found
